//! What asked for what cannot be had. In: a rejection, the request and its container. Out: the names that led to it, for people. Pure.

use std::cell::OnceCell;

use bayplan_allocator::{Packing, Rejection, Request, Requirement, Siblings, Strictness};

use super::extended;
use super::field::Field;
use super::koordinator::{FOREIGN, Foreign};
use super::names::{Lookup, look_up};
use super::table::{self, KEYS};
use super::values::shown;
use super::warnings::annotation;
use crate::cmk::INFRA;
use crate::container::NewContainer;

/// Looks for names in what a pod says, which is sorted once at most.
pub struct Sources<'a> {
    container: &'a NewContainer,
    lookup: OnceCell<Lookup<'a>>,
}

impl<'a> Sources<'a> {
    /// Of one container.
    pub fn new(container: &'a NewContainer) -> Sources<'a> {
        Sources { container, lookup: OnceCell::new() }
    }

    /// The annotations and labels without which this might not have been rejected, such as ``annotation `bayplan.dev/within` ``; the
    /// configuration for what the pod does not say. `None`: amounts alone led to it.
    pub fn render(&self, rejection: &Rejection, request: &Request) -> Option<String> {
        let keys = keys_behind(rejection, request);
        let mut sources: Vec<String> = keys.into_iter().map(|key| self.source(key)).collect();
        sources.dedup();
        (!sources.is_empty()).then(|| sources.join(", "))
    }

    /// The name under which the pod fills a field; `None`: it does not.
    pub fn of_field(&self, field: Field) -> Option<String> {
        let lookup = self.lookup();
        let fills = |fills: &[Field]| fills.contains(&field);
        let mut keys = KEYS.iter().rev().filter(|key| fills(key.fills));
        if let Some(found) = keys.find_map(|key| lookup.found.get(key.name)) {
            return Some(annotation(found.name));
        }
        let mut foreign = FOREIGN.iter().filter(|it| fills(it.fills));
        let facts = self.container.facts.as_deref().filter(|_| field == Field::CpuClass);
        let resource =
            extended::requested(facts).map(|(name, _)| format!("resource `{}`", shown(name, 80)));
        let said = resource.or_else(|| foreign.find_map(|it| self.said_by(it)));
        said.or_else(|| (field == Field::IsReserved).then(|| self.infra()).flatten())
    }

    /// CMK's pool of reserved CPUs.
    fn infra(&self) -> Option<String> {
        let isolate = self.container.cmk.as_ref()?.as_ref().ok()?;
        let text = format!("the pool `{INFRA}` of `cmk isolate` (STP_POOL)");
        (isolate.pool == INFRA).then_some(text)
    }

    fn lookup(&self) -> &Lookup<'a> {
        let pod = &self.container.pod;
        let look_up = || look_up(&pod.annotations, &self.container.name, table::is_known);
        self.lookup.get_or_init(look_up)
    }

    /// The name of another system under which the pod says it for this container.
    fn said_by(&self, foreign: &Foreign) -> Option<String> {
        let pod = &self.container.pod;
        let (name, own) = (foreign.name, &self.container.name);
        let names = [
            format!("{name}/{own}"),
            format!("{name}/container.{own}"),
            format!("{name}/pod"),
            name.to_owned(),
        ];
        let annotated = names.iter().find(|it| pod.annotations.contains_key(*it));
        let label = || pod.labels.contains_key(name).then(|| format!("label `{name}`"));
        annotated.map(|it| annotation(it)).or_else(label)
    }

    /// The name under which the pod says it.
    fn source(&self, key: &str) -> String {
        if let Some(found) = self.lookup().found.get(key) {
            return annotation(found.name);
        }
        let fills = KEYS.iter().find(|it| it.name == key).map(|it| it.fills).unwrap_or_default();
        let fits = |foreign: &&Foreign| foreign.fills.iter().any(|field| fills.contains(field));
        let said = FOREIGN.iter().filter(fits).find_map(|it| self.said_by(it));
        said.unwrap_or_else(|| "`requests` in the configuration".to_owned())
    }
}

/// Keys of ours that narrow what a rejection is about.
fn keys_behind(rejection: &Rejection, request: &Request) -> Vec<&'static str> {
    let (cpus, memory) = (&request.wishes.cpus, &request.wishes.memory);
    let is_required = |wish: Option<Strictness>| wish == Some(Strictness::Required);
    let mut keys = match rejection {
        Rejection::NotWholeCores { .. } | Rejection::Unmet(Requirement::WholeCores) => {
            vec![("whole-cores-only", true)]
        }
        Rejection::WiderThan(_)
        | Rejection::MoreDomains { .. }
        | Rejection::TooSmallForPod { .. }
        | Rejection::NoRoomForRest { .. }
        | Rejection::Unmet(Requirement::Within(_))
        | Rejection::AwayFromPod => vec![("within", true)],
        Rejection::TooFarFrom(_) => vec![("strict.topologyhints", true)],
        Rejection::TooLittleMemoryNear { .. } | Rejection::TooFewHugePages { .. } => {
            vec![("memory-bound", true), ("memory-type", !memory.kinds.is_empty())]
        }
        Rejection::TooLittleMemory { .. } => vec![("memory-type", !memory.kinds.is_empty())],
        Rejection::TooFewCpus { .. } | Rejection::Unmet(_) => vec![
            ("whole-cores-only", cpus.only_whole_cores),
            ("packing", cpus.packing == Packing::OnePerCore),
            ("require-isolated-cpus", is_required(cpus.isolated)),
            ("require-core-kind", is_required(cpus.core_kind.map(|(_, strictness)| strictness))),
            ("require-cpu-priority", is_required(cpus.priority.map(|(_, strictness)| strictness))),
            ("apart", is_required(cpus.apart.map(|(_, strictness)| strictness))),
            ("siblings", cpus.siblings != Siblings::Pair),
        ],
        Rejection::NotWorthMoves
        | Rejection::NoSharedCpu
        | Rejection::TooNarrowToShare
        | Rejection::SharedAsOne
        | Rejection::LeavesPrevious => vec![],
        Rejection::Taken(_)
        | Rejection::KeptShared { .. }
        | Rejection::FullGroup { .. }
        | Rejection::NoSuchGroup => vec![("group", true)],
    };
    keys.retain(|(_, narrows)| *narrows);
    keys.into_iter().map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use bayplan_allocator::ContainerId;
    use bayplan_topology::Level;

    use super::*;
    use crate::request::{Hardware, derive_request};
    use crate::rules::RequestRules;

    fn check(pairs: &[(&str, &str)], rejection: &Rejection, expected: &str) {
        let mut container = NewContainer { name: "c".to_owned(), ..NewContainer::default() };
        for (name, value) in pairs {
            let pod = &mut container.pod;
            let map =
                if name.ends_with("qosClass") { &mut pod.labels } else { &mut pod.annotations };
            map.insert((*name).to_owned(), (*value).to_owned());
        }
        let rules = RequestRules::default();
        let (request, _) =
            derive_request(ContainerId(0), &container, &rules, Hardware::default(), []);
        let sources = Sources::new(&container).render(rejection, &request);
        assert_eq!(sources.unwrap_or_default(), expected);
    }

    #[test]
    fn what_narrows_is_named_as_the_pod_names_it() {
        let few = Rejection::TooFewCpus { needed: 2, free: 1, most: 8, required: Vec::new() };
        let wide = Rejection::WiderThan(Level::NumaNode);
        check(&[("bayplan.dev/within", "numa")], &few, "");
        check(&[("bayplan.dev/within", "numa")], &wide, "annotation `bayplan.dev/within`");
        check(&[], &wide, "`requests` in the configuration");
        check(
            &[(
                "scheduling.koordinator.sh/numa-topology-spec",
                r#"{"numaTopologyPolicy":"SingleNUMANode"}"#,
            )],
            &wide,
            "annotation `scheduling.koordinator.sh/numa-topology-spec`",
        );
        check(
            &[
                ("require-isolated-cpus.resource-policy.nri.io/container.c", "true"),
                ("apart.bayplan.dev/pod", "core required"),
                ("koordinator.sh/qosClass", "LSE"),
            ],
            &few,
            "annotation `require-isolated-cpus.resource-policy.nri.io/container.c`, annotation `apart.bayplan.dev/pod`, \
             label `koordinator.sh/qosClass`",
        );
        check(
            &[("bayplan.dev/strict.topologyhints", "true")],
            &Rejection::TooFarFrom("/dev/nvme0n1".to_owned()),
            "annotation `bayplan.dev/strict.topologyhints`",
        );
        check(
            &[("gas-container-cards", "card1"), ("gas-allocate-single-numa", "true")],
            &Rejection::TooFarFrom("/dev/dri/card1".to_owned()),
            "annotation `gas-allocate-single-numa`",
        );
    }
}
