//! The events of NRI. In: a method or a `StateChange`, or a version. Out: an [`Event`], or the set of events that a runtime knows.
//!
//! A runtime takes a subscription with a bit that it does not know for an error and ends the connection, and it takes an empty one for all events. So the set is chosen by
//! version, and the smallest one is tried where that was wrong (`ConfigureRequest` in `api.proto`).

use crate::api;

/// Which of the two ways an event is told in: with a call of its own, always; as `StateChange`, by runtimes before NRI 0.12.
pub use crate::api::Event;

/// Events with a method of their own, by its name.
const METHODS: [(&str, Event); 13] = [
    ("RunPodSandbox", Event::RunPodSandbox),
    ("StopPodSandbox", Event::StopPodSandbox),
    ("RemovePodSandbox", Event::RemovePodSandbox),
    ("CreateContainer", Event::CreateContainer),
    ("PostCreateContainer", Event::PostCreateContainer),
    ("StartContainer", Event::StartContainer),
    ("PostStartContainer", Event::PostStartContainer),
    ("UpdateContainer", Event::UpdateContainer),
    ("PostUpdateContainer", Event::PostUpdateContainer),
    ("StopContainer", Event::StopContainer),
    ("RemoveContainer", Event::RemoveContainer),
    ("UpdatePodSandbox", Event::UpdatePodSandbox),
    ("PostUpdatePodSandbox", Event::PostUpdatePodSandbox),
];

/// The event that is told by this method.
pub fn event_of(method: &str) -> Option<Event> {
    METHODS.iter().find(|(name, _)| *name == method).map(|(_, event)| *event)
}

/// The method's name, as metrics and logs have it.
pub fn name_of(event: Event) -> &'static str {
    METHODS.iter().find(|(_, known)| *known == event).map_or("Unknown", |(name, _)| name)
}

/// What a plugin subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All events that this plugin uses; from NRI 0.10 on.
    All,
    /// Without those about changed sandboxes, which older runtimes do not know.
    Old,
}

impl Mask {
    /// One bit for each event, beginning with `RunPodSandbox`. `is_approving`: it is asked to approve creations, too, which tells of other plugins; older runtimes do not know that.
    pub fn bits(self, is_approving: bool) -> i32 {
        match (self, is_approving) {
            (Mask::All, true) => 0x3fff,
            (Mask::All, false) => 0x1fff,
            (Mask::Old, _) => 0x7ff,
        }
    }

    /// What a runtime of this version knows. Runtimes say which NRI they have only from NRI 0.12 on; before, their own version tells.
    pub fn for_runtime(configure: &api::ConfigureRequest) -> Mask {
        if !configure.nri_version.is_empty() {
            return Mask::All;
        }
        let first_with_all = match configure.runtime_name.as_str() {
            "containerd" => (2, 2),
            "cri-o" => (1, 34),
            _ => return Mask::All,
        };
        match parse_version(&configure.runtime_version) {
            Some(version) if version < first_with_all => Mask::Old,
            _ => Mask::All,
        }
    }
}

/// Major and minor of `v2.4.2`, `2.0.0-rc.1`, `1.34.0`.
pub fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_asked_for_events_that_it_knows() {
        for (name, version, nri, expected) in [
            ("containerd", "v1.7.24", "", Mask::Old),
            ("containerd", "v2.0.5", "", Mask::Old),
            ("containerd", "v2.1.0-rc.1", "", Mask::Old),
            ("containerd", "v2.2.0", "", Mask::All),
            ("containerd", "v2.3.1", "v0.12.0", Mask::All),
            ("containerd", "v2.4.2", "0.12.3", Mask::All),
            ("cri-o", "1.30.2", "", Mask::Old),
            ("cri-o", "1.34.0", "", Mask::All),
            ("containerd", "1c4457e00facac03ce1d75f7b6777a7a851e5c41", "", Mask::All),
            ("other", "", "", Mask::All),
        ] {
            let configure = api::ConfigureRequest {
                runtime_name: name.to_owned(),
                runtime_version: version.to_owned(),
                nri_version: nri.to_owned(),
                ..Default::default()
            };
            assert_eq!(Mask::for_runtime(&configure), expected, "{name} {version} {nri}");
        }
    }

    #[test]
    fn every_event_has_a_bit_and_a_method() {
        let bits = METHODS.iter().fold(0, |bits, (_, event)| bits | 1 << (*event as i32 - 1));
        let approving = 1 << (Event::ValidateContainerAdjustment as i32 - 1);
        assert_eq!((bits, bits | approving), (Mask::All.bits(false), Mask::All.bits(true)));
        for (name, event) in METHODS {
            assert_eq!((event_of(name), name_of(event)), (Some(event), name));
        }
        assert_eq!((event_of("StateChange"), name_of(Event::Unknown)), (None, "Unknown"));
    }
}
