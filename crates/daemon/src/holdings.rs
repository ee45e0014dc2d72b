//! What holds beside what was asked. In: containers as the state has them, what the kernel lets each run on. Out: the same containers, each with what it really has where that differs,
//! and with the intruders on its CPUs.
//!
//! The kernel's word counts; where it cannot be asked (no cgroup is found), the runtime's: a container with a last update that was refused has what
//! it had before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bayplan_host::kernel::DiskKernel;
use bayplan_host::{Holding, read_holding, read_runtime_affinity};
use bayplan_types::CpuSet;

use bayplan_node::status::{ContainerStatus, HeldSets};

/// A reading serves all questions within this time, so that asking often costs little.
const FRESH: Duration = Duration::from_millis(500);

/// What was read last, for everything that shows containers.
#[derive(Clone, Debug)]
pub(crate) struct Holdings {
    root: PathBuf,
    last: Arc<Mutex<Option<Last>>>,
}

/// When it was read, and what.
type Last = (Instant, Arc<Read>);

/// What the kernel says.
#[derive(Debug, Default)]
struct Read {
    /// The runtime's ids of all that was asked for; a container without a cgroup has no holding.
    asked: BTreeSet<String>,
    /// By the runtime's id.
    holdings: BTreeMap<String, Holding>,
    /// The runtime, and its own affinity, where it has one.
    runtime: Option<(String, CpuSet)>,
}

impl Holdings {
    pub(crate) fn new(root: PathBuf) -> Holdings {
        Holdings { root, last: Arc::default() }
    }

    /// Adds what holds, and the intruders.
    pub(crate) async fn tell(&self, containers: &mut [ContainerStatus]) {
        let groups: Vec<(String, String)> = containers
            .iter()
            .filter_map(|it| Some((it.id.clone()?, it.cgroup_parent.clone())))
            .collect();
        let read = self.fresh(groups).await;
        for container in containers.iter_mut() {
            let holding = container.id.as_ref().and_then(|id| read.holdings.get(id));
            if let Some(holding) = holding {
                container.held = held_sets(container, holding, read.runtime.as_ref());
            }
        }
        tell_intruders(containers, &read.holdings);
    }

    async fn fresh(&self, groups: Vec<(String, String)>) -> Arc<Read> {
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, read)) = known
            && at.elapsed() < FRESH
            && groups.iter().all(|(id, _)| read.asked.contains(id))
        {
            return read;
        }
        let root = self.root.clone();
        let read = tokio::task::spawn_blocking(move || read_all(&root, &groups)).await;
        let read = Arc::new(read.unwrap_or_default());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), Arc::clone(&read)));
        read
    }
}

fn read_all(root: &Path, groups: &[(String, String)]) -> Read {
    let Ok(mut kernel) = DiskKernel::open(root) else { return Read::default() };
    let holdings: BTreeMap<String, Holding> = groups
        .iter()
        .filter_map(|(id, parent)| Some((id.clone(), read_holding(root, &mut kernel, parent, id)?)))
        .collect();
    // All processes are looked through for it.
    let is_narrow = holdings.values().any(|it| it.affinity.is_some());
    let runtime = is_narrow.then(|| read_runtime_affinity(root, &mut kernel)).flatten();
    let asked = groups.iter().map(|(id, _)| id.clone()).collect();
    Read { asked, holdings, runtime }
}

/// What the kernel lets it have; `None` where that is what was asked.
fn held_sets(
    container: &ContainerStatus,
    holding: &Holding,
    runtime: Option<&(String, CpuSet)>,
) -> Option<HeldSets> {
    let is_other = |asked: &str, held: &str| !asked.is_empty() && !held.is_empty() && asked != held;
    let cpus = holding.cpus.to_string();
    let mems = holding.mems.to_string();
    let others = is_other(&container.cpus, &cpus) || is_other(&container.mems, &mems);
    let refused = container.held.as_ref().map(|it| it.why.clone());
    let (cpus, why) = match (&holding.affinity, others) {
        (Some(own), _) => (own.to_string(), affinity_text(own, runtime)),
        (None, true) => {
            let narrowed =
                "the kernel's effective set, which the groups above and other programs narrow";
            (cpus, refused.unwrap_or_else(|| narrowed.to_owned()))
        }
        (None, false) => return None,
    };
    let is_inherited = holding.affinity.as_ref().is_some_and(|own| is_of_runtime(own, runtime));
    Some(HeldSets {
        cpus,
        mems,
        why,
        is_expected: holding.affinity.is_some() && !is_inherited && !others,
    })
}

fn is_of_runtime(own: &CpuSet, runtime: Option<&(String, CpuSet)>) -> bool {
    runtime.is_some_and(|(_, cpus)| own.is_subset(cpus))
}

fn affinity_text(own: &CpuSet, runtime: Option<&(String, CpuSet)>) -> String {
    match runtime {
        Some((program, cpus)) if is_of_runtime(own, runtime) => format!(
            "affinity inherited from {program}, which runs on CPUs {cpus}: take CPUAffinity= out of its unit"
        ),
        _ => "affinity of its first process, which it has set itself or inherited".to_owned(),
    }
}

/// Names at each owner the containers that run on its CPUs although they are to be elsewhere.
fn tell_intruders(containers: &mut [ContainerStatus], holdings: &BTreeMap<String, Holding>) {
    let set = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
    let really = |it: &ContainerStatus| {
        let holding = it.id.as_ref().and_then(|id| holdings.get(id)).map(|it| it.cpus.clone());
        let held = it.held.as_ref().map(|held| set(&held.cpus));
        // Nothing told is everywhere, but where that is nothing is known.
        holding.or(held).unwrap_or_default()
    };
    let all: Vec<(String, CpuSet, CpuSet)> =
        containers.iter().map(|it| (it.full_name(), set(&it.cpus), really(it))).collect();
    for (at, owner) in containers.iter_mut().enumerate() {
        let own = set(&owner.exclusive);
        if own.is_empty() {
            continue;
        }
        let others = all.iter().enumerate().filter(|(other, _)| *other != at);
        let intruders = others.filter_map(|(_, (name, asked, really))| {
            // CPUs that their owner lends are asked for, too.
            let on = really.intersection(&own).difference(asked);
            (!on.is_empty()).then(|| format!("{name} on {on}"))
        });
        owner.intruders = intruders.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, exclusive: &str, cpus: &str) -> ContainerStatus {
        let text = format!(
            r#"{{"id": "{name}", "namespace": "n", "pod": "p", "container": "{name}", "qos": null, "class": "shared",
                "phase": "running", "asked": "", "exclusive": "{exclusive}", "cpus": "{cpus}", "mems": "0", "pool": "machine"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn holding(cpus: &str, affinity: Option<&str>) -> Holding {
        Holding {
            cpus: cpus.parse().unwrap(),
            mems: "0".parse().unwrap(),
            affinity: affinity.map(|it| it.parse().unwrap()),
        }
    }

    #[track_caller]
    fn check(asked: &str, holding: &Holding, expected: Option<(&str, &str)>) {
        let runtime = ("containerd".to_owned(), "0,4".parse().unwrap());
        let held = held_sets(&container("a", "", asked), holding, Some(&runtime));
        let held = held.as_ref().map(|it| (it.cpus.as_str(), it.why.split(',').next().unwrap()));
        assert_eq!(held, expected);
    }

    #[test]
    fn what_the_kernel_has_is_told_where_it_is_not_what_was_asked() {
        check("0-1", &holding("0-1", None), None);
        check("", &holding("0-1", None), None);
        let narrowed = "the kernel's effective set";
        check("0-3", &holding("0-1", None), Some(("0-1", narrowed)));
        let inherited = "affinity inherited from containerd";
        check("0-1", &holding("0-1", Some("0")), Some(("0", inherited)));
        check("0-1", &holding("0-1", Some("1")), Some(("1", "affinity of its first process")));
    }

    #[test]
    fn any_container_on_the_cpus_of_an_owner_is_named_at_the_owner() {
        let mut all = [
            container("owner", "1-2", "1-2"),
            container("late", "", "0,3"),
            container("lent", "", "0-3"),
            container("unknown", "", ""),
        ];
        let holdings = [("late", "0-3"), ("lent", "0-3"), ("unknown", "2-3")];
        let holdings = holdings.map(|(id, cpus)| (id.to_owned(), holding(cpus, None))).into();
        tell_intruders(&mut all, &holdings);
        assert_eq!(all[0].intruders, ["n/p/late on 1-2", "n/p/unknown on 2"]);
        assert!(all[1..].iter().all(|it| it.intruders.is_empty()));
    }
}
