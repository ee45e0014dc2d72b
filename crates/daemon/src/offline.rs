//! `bayplan restore` while no daemon runs. In: a configuration of which the directories and the runtime's socket are right. Out: containers that
//! run everywhere again, and kernel files as they were.
//!
//! Approach: the daemon's own core (journal, state, writer) is started without any socket, told to restore as a running daemon is, and
//! stopped. So what is written, read back and kept is the same: also the mode, in which a daemon that starts again goes on.

use std::io::ErrorKind;
use std::sync::Arc;

use bayplan_host::journal::Journal;
use bayplan_node::event::{Answer, Event};
use bayplan_node::mode::{Mode, ModePlan, ModeReport};
use bayplan_node::reconfigure::check_reserved;
use bayplan_types::CpuSet;
use tokio::sync::watch;

use crate::config::Config;
use crate::control::ControlError;
use crate::hotplug::Machine;
use crate::start_core::{Core, end};
use crate::sync::Syncer;

/// The core of a daemon that serves nothing. It holds the journal's lock, so none runs beside it.
pub struct Offline {
    core: Core,
    syncer: Syncer,
    /// Tasks wait for another configuration as long as this is there.
    live: watch::Sender<Arc<Config>>,
}

impl Offline {
    /// Reads what the last daemon has left. `None`: none has ever run with this state directory, and there is nothing to give back.
    ///
    /// # Errors
    /// A daemon runs, or the state directory or the machine cannot be used.
    pub async fn open(config: &Config) -> anyhow::Result<Option<Offline>> {
        if !Journal::is_in(&config.state_dir) {
            return Ok(None);
        }
        let machine = Machine::of_host(&config.host_root, &config.state_dir)?;
        let mut config = config.clone();
        // What is wrong with them must not keep containers where they are; nothing is placed.
        if check_reserved(machine.topology(), &config.reserved_cpus).is_err() {
            config.reserved_cpus = CpuSet::new();
        }
        let (live, current) = watch::channel(Arc::new(config.clone()));
        let core = Core::start(&config, &machine, &current).await?;
        let syncer = core.syncer(&config);
        Ok(Some(Offline { core, syncer, live }))
    }

    /// What [`Self::restore`] would do with the containers of the journal. `None`: what decides has ended by a bug.
    pub async fn plan(&self) -> Option<ModePlan> {
        match self.core.inbox.ask(Event::PlanMode(Mode::Restored)).await {
            Some(Answer::ModePlan(plan)) => Some(*plan),
            _ => None,
        }
    }

    /// Gives every container all CPUs and memory nodes, and kernel files what they held, and reads back what came of it. `None`: as of
    /// [`Self::plan`].
    pub async fn restore(&mut self) -> Option<ModeReport> {
        let report = self.syncer.change_mode(Mode::Restored).await?;
        let files_not_written = self.core.enforcer.give_back().failures;
        Some(ModeReport { files_not_written, ..report })
    }

    /// Comes back when everything is on disk.
    pub async fn close(self) {
        let Offline { core, syncer, live } = self;
        drop(syncer);
        core.stop.cancel();
        core.kill.cancel();
        end(core.tasks).await;
        drop((core.forwarder, live));
    }
}

/// Whether no daemon listens on a control socket, as far as an error tells: there is no such socket, nothing listens there, or what did has gone.
pub fn is_stopped(error: &ControlError) -> bool {
    match error {
        ControlError::Connect { source, .. } => {
            matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
        }
        ControlError::Http { .. } => true,
        ControlError::Refused { .. } | ControlError::Form(_) => false,
    }
}
