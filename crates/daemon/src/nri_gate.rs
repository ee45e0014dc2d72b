//! What the NRI front end needs of the daemon beside decisions. In: the state of the connection, and what is about to be given away. Out: limits, a word on CPUs that others have to leave,
//! and what is shown of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bayplan_host::kernel::DiskKernel;
use bayplan_node::event::Event;
use bayplan_node::status::{PluginStatus, TakenBack};
use bayplan_nri::events::{Event as NriEvent, name_of, parse_version};
use bayplan_nri::front_end::{InEvent, LetGo, Origin};
use bayplan_nri::other_plugins::OtherPlugin;
use bayplan_nri::plugin::Granted;
use bayplan_types::Pinning;
use jiff::Timestamp;

use crate::config::OnFailure;
use crate::gate::Gate;
use crate::tasks::blocking;
use crate::unconfirmed::Freed;

impl InEvent for Gate {
    fn configured(&self, granted: &Granted) -> bool {
        let Granted { runtime, version, nri_version, request_timeout } = granted;
        let config = self.config.borrow().clone();
        // Three quarters: what is decided has to be written, and to travel.
        let limit = request_timeout.map(|it| it * 3 / 4);
        let millis = limit.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX).max(1));
        self.link.limit.store(millis, Ordering::Relaxed);
        self.link.ends_creations_first.store(ends_creations_first(granted), Ordering::Relaxed);
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
        self.tell_again();
        self.settled();
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
            shown.other_plugins.clear();
            was != (false, Some(why.to_owned()))
        });
        self.metrics.nri.registered(false);
        if told == Some(true) {
            tracing::warn!(
                "not registered as an NRI plugin: {why}; containers that are created now are placed once it is"
            );
        }
    }

    fn settled(&self) {
        if self.link.ends_creations_first.load(Ordering::Relaxed) {
            self.send(Event::Reconnected);
        }
    }

    fn beside(&self, others: Vec<OtherPlugin>) {
        self.link.change(|shown| shown.other_plugins = merged(&shown.other_plugins, &others));
    }

    fn taken_back(&self, container: &str, set_before: &str) {
        self.metrics.nri.taken_back.inc();
        let at = Timestamp::now();
        let why = self.link.change(|shown| {
            let why = why_taken_back(&shown.other_plugins, set_before);
            let times = shown.taken_back.as_ref().map_or(0, |it| it.times) + 1;
            let container = container.to_owned();
            shown.taken_back = Some(TakenBack { container, why: why.clone(), at, times });
            why
        });
        let why = why.unwrap_or_default();
        tracing::warn!(container, "the runtime has taken its creation back: {why}");
    }

    fn answered(&self, event: NriEvent, took: Duration, is_late: bool) -> Result<(), String> {
        self.metrics.nri.answered(name_of(event), took, is_late);
        if is_late {
            // Its own answer was not given.
            self.tell_again();
        }
        let decides = matches!(
            event,
            NriEvent::CreateContainer | NriEvent::UpdateContainer | NriEvent::StartContainer
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
        let freed = self.narrow(except, place).await?;
        self.link.unconfirmed.note_answer(&freed);
        Ok(freed.let_go)
    }

    fn origin(&self, container_id: &str, asked: &Pinning) -> Origin {
        let origin = self.link.unconfirmed.origin(container_id, asked);
        if origin != Origin::Other {
            self.metrics.nri.echoes.inc();
        }
        origin
    }
}

impl Gate {
    /// As [`InEvent::let_go`], for an event with an answer that lists no updates.
    ///
    /// # Errors
    /// Containers did not leave, and nothing may be placed there.
    pub(crate) async fn narrow(&self, except: &str, place: &Pinning) -> Result<Freed, String> {
        let (root, unconfirmed) = (self.syncer.host_root.clone(), self.link.unconfirmed.clone());
        let (except, cpus) = (except.to_owned(), place.cpus.clone());
        let _narrowing = self.link.unconfirmed.narrowing();
        let narrowed = blocking(move || {
            let mut kernel = DiskKernel::open(&root).ok()?;
            let freed = unconfirmed.let_go(&mut kernel, &except);
            let overlapping = unconfirmed.overlapping(&mut kernel, &freed.let_go.stuck, &cpus);
            Some((freed, overlapping))
        });
        let Some(Some((freed, overlapping))) = narrowed.await else {
            self.metrics.failed("not_let_go");
            return match self.config.borrow().on_failure {
                OnFailure::Open => Ok(Freed::default()),
                OnFailure::Closed => Err(
                    "bayplan cannot reach the cgroups of other containers, and onFailure is closed"
                        .to_owned(),
                ),
            };
        };
        if !freed.raced.is_empty() {
            self.send(Event::ToldInDoubt(freed.raced.clone()));
        }
        if overlapping.is_empty() {
            return Ok(freed);
        }
        self.metrics.failed("not_let_go");
        match self.config.borrow().on_failure {
            OnFailure::Open => Ok(freed),
            OnFailure::Closed => Err(format!(
                "bayplan cannot free CPUs {}: {} containers still run there, and onFailure is closed",
                place.cpus,
                overlapping.len()
            )),
        }
    }

    /// What the last answer has told may not have arrived.
    fn tell_again(&self) {
        let told = self.link.unconfirmed.doubt_answer();
        if !told.is_empty() {
            self.send(Event::ToldInDoubt(told));
        }
    }
}

/// Whether this runtime holds a registration back while creations are under way, so that what it does not list afterwards it has not made. Containerd does so with NRI 0.8 and newer.
fn ends_creations_first(granted: &Granted) -> bool {
    let has_it = parse_version(&granted.version).is_some_and(|it| it >= (2, 0));
    // Said by NRI 0.12 and newer.
    let is_new = !granted.nri_version.is_empty();
    granted.runtime == "containerd" && (has_it || is_new)
}

/// Those that are there now, with what they have set until now.
fn merged(known: &[PluginStatus], others: &[OtherPlugin]) -> Vec<PluginStatus> {
    let merge = |other: &OtherPlugin| {
        let before = known.iter().find(|it| it.name == other.name);
        let mut sets: Vec<String> = before.map(|it| it.sets.clone()).unwrap_or_default();
        sets.extend(other.sets.iter().map(|it| (*it).to_owned()));
        sets.sort();
        sets.dedup();
        PluginStatus { name: other.name.clone(), sets }
    };
    others.iter().map(merge).collect()
}

/// What may be the cause, for people. The runtime names both plugins, but only to kubelet, which has it in the pod's events.
fn why_taken_back(others: &[PluginStatus], set_before: &str) -> String {
    let names = |are_setting: bool| {
        let names = others.iter().filter(|it| it.sets.is_empty() != are_setting);
        names.map(|it| it.name.as_str()).collect::<Vec<&str>>().join(", ")
    };
    let (setting, rest) = (names(true), names(false));
    let before = match set_before {
        "" => String::new(),
        cpus => format!("; its CPUs were set to {cpus} before bayplan was asked"),
    };
    let cause = match (setting.as_str(), rest.as_str()) {
        ("", "") => "another plugin that sets the same, or a failure of the runtime".to_owned(),
        ("", rest) => format!("perhaps because the plugin {rest} has set the same"),
        (setting, _) => {
            format!("perhaps because the plugin {setting}, which sets CPU sets, has set the same")
        }
    };
    format!("{cause}{before}; the pod's events have the runtime's words")
}

/// A container that was being created during the registration is listed by then.
const AFTER_REGISTRATION: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str, sets: &[&str]) -> PluginStatus {
        let sets = sets.iter().map(|it| (*it).to_owned()).collect();
        PluginStatus { name: name.to_owned(), sets }
    }

    #[test]
    fn plugins_that_set_cpu_sets_are_remembered_while_they_are_there() {
        let other = |name: &str, sets: &[&'static str]| OtherPlugin {
            name: name.to_owned(),
            sets: sets.iter().copied().collect(),
        };
        let known = [plugin("10-a", &["cpuset.cpus"]), plugin("20-gone", &[])];
        let now = [other("10-a", &["cpuset.mems"]), other("95-new", &[])];
        let expected = [plugin("10-a", &["cpuset.cpus", "cpuset.mems"]), plugin("95-new", &[])];
        assert_eq!(merged(&known, &now), expected);
    }

    #[test]
    fn only_newer_containerd_ends_its_creations_before_a_registration() {
        for (runtime, version, nri_version, expected) in [
            ("containerd", "v1.7.24", "", false),
            ("containerd", "v2.0.5", "", true),
            ("containerd", "v2.4.2", "v0.12.3", true),
            ("containerd", "1c4457e00facac03ce1d75f7b6777a7a851e5c41", "v0.12.3", true),
            ("containerd", "1c4457e00facac03ce1d75f7b6777a7a851e5c41", "", false),
            ("cri-o", "1.36.0", "v0.12.0", false),
        ] {
            let granted = Granted {
                runtime: runtime.to_owned(),
                version: version.to_owned(),
                nri_version: nri_version.to_owned(),
                request_timeout: None,
            };
            assert_eq!(ends_creations_first(&granted), expected, "{granted:?}");
        }
    }

    #[test]
    fn a_creation_that_was_taken_back_is_told_with_the_plugin_that_may_be_the_cause() {
        let (setting, other) = (plugin("10-a", &["cpuset.cpus"]), plugin("20-b", &[]));
        for (others, set_before, expected) in [
            (vec![], "", "another plugin that sets the same, or a failure of the runtime"),
            (vec![other.clone()], "", "perhaps because the plugin 20-b has set the same"),
            (
                vec![setting, other],
                "0-1",
                "perhaps because the plugin 10-a, which sets CPU sets, has set the same; its CPUs were set to 0-1 before bayplan was asked",
            ),
        ] {
            let expected = format!("{expected}; the pod's events have the runtime's words");
            assert_eq!(why_taken_back(&others, set_before), expected);
        }
    }
}
