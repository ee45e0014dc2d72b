//! What the NRI front end needs of the daemon beside decisions. In: the state of the connection, and what is about to be given away. Out: limits, a word on CPUs that others have to leave,
//! and what is shown of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bayplan_host::kernel::DiskKernel;
use bayplan_nri::events::{Event, name_of};
use bayplan_nri::front_end::{InEvent, LetGo, Origin};
use bayplan_nri::plugin::Granted;
use bayplan_types::Pinning;

use crate::config::OnFailure;
use crate::gate::Gate;
use crate::tasks::blocking;

impl InEvent for Gate {
    fn configured(&self, granted: &Granted) -> bool {
        let Granted { runtime, version, nri_version, request_timeout } = granted;
        let config = self.config.borrow().clone();
        // Three quarters: what is decided has to be written, and to travel.
        let limit = request_timeout.map(|it| it * 3 / 4);
        let millis = limit.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX).max(1));
        self.link.limit.store(millis, Ordering::Relaxed);
        if limit.is_some_and(|it| it < config.decision_timeout) {
            let (configured, limit) =
                (config.decision_timeout, self.link.limit(config.decision_timeout));
            tracing::info!(
                "decisions may take {limit:?}, not {configured:?} (decisionTimeout): the runtime waits {request_timeout:?} for a plugin"
            );
        }
        self.link.change(|shown| {
            shown.runtime = Some(format!("{runtime} {version}"));
            shown.nri_version = (!nri_version.is_empty()).then(|| nri_version.clone());
            shown.request_timeout_ms =
                request_timeout.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        });
        config.on_failure == OnFailure::Closed
    }

    fn synchronized(&self) {
        self.link.change(|shown| {
            shown.is_registered = true;
            shown.problem = None;
        });
        self.metrics.nri.registered(true);
        tracing::info!("registered with the runtime as an NRI plugin");
        // Containers may have been created before this connection without being asked about; those of the last moment are listed a little later.
        self.sync_soon.notify_one();
        let soon = Arc::clone(&self.sync_soon);
        tokio::spawn(async move {
            tokio::time::sleep(AFTER_REGISTRATION).await;
            soon.notify_one();
        });
    }

    fn lost(&self, why: &str) {
        let told = self.link.change(|shown| {
            let was = (shown.is_registered, shown.problem.take());
            shown.is_registered = false;
            shown.problem = Some(why.to_owned());
            was != (false, Some(why.to_owned()))
        });
        self.metrics.nri.registered(false);
        if told == Some(true) {
            tracing::warn!(
                "not registered as an NRI plugin: {why}; containers that are created now are placed once it is"
            );
        }
    }

    fn answered(&self, event: Event, took: Duration, is_late: bool) -> Result<(), String> {
        self.metrics.nri.answered(name_of(event), took, is_late);
        let decides = matches!(
            event,
            Event::CreateContainer | Event::UpdateContainer | Event::StartContainer
        );
        match self.config.borrow().on_failure {
            OnFailure::Closed if is_late && decides => Err(format!(
                "bayplan did not answer {} in time, and onFailure is closed",
                name_of(event)
            )),
            _ => Ok(()),
        }
    }

    async fn let_go(&self, except: &str, place: &Pinning) -> Result<LetGo, String> {
        let (root, unconfirmed) = (self.syncer.host_root.clone(), self.link.unconfirmed.clone());
        let (except, cpus) = (except.to_owned(), place.cpus.clone());
        let narrowed = blocking(move || {
            let mut kernel = DiskKernel::open(&root).ok()?;
            let let_go = unconfirmed.let_go(&mut kernel, &except);
            let overlapping = unconfirmed.overlapping(&mut kernel, &let_go.stuck, &cpus);
            Some((let_go, overlapping))
        });
        let Some(Some((let_go, overlapping))) = narrowed.await else {
            self.metrics.failed("not_let_go");
            return match self.config.borrow().on_failure {
                OnFailure::Open => Ok(LetGo::default()),
                OnFailure::Closed => Err(
                    "bayplan cannot reach the cgroups of other containers, and onFailure is closed"
                        .to_owned(),
                ),
            };
        };
        if overlapping.is_empty() {
            return Ok(let_go);
        }
        self.metrics.failed("not_let_go");
        match self.config.borrow().on_failure {
            OnFailure::Open => Ok(let_go),
            OnFailure::Closed => Err(format!(
                "bayplan cannot free CPUs {}: {} containers still run there, and onFailure is closed",
                place.cpus,
                overlapping.len()
            )),
        }
    }

    fn origin(&self, container_id: &str, asked: &Pinning) -> Origin {
        let origin = self.link.unconfirmed.origin(container_id, asked);
        if origin != Origin::Other {
            self.metrics.nri.echoes.inc();
        }
        origin
    }
}

/// A container that was being created during the registration is listed by then.
const AFTER_REGISTRATION: Duration = Duration::from_secs(2);
