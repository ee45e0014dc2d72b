//! What CMK's commands print about pools, as JSON with its names; and which process ids are left behind.

use bayplan_types::CpuSet;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{Pools, render_cpu_list};

/// The pools, as `cmk describe` prints them. `path` is the directory, if there is one.
pub fn describe(pools: &Pools, path: Option<&str>) -> Json {
    let mut shown = Map::new();
    for (name, pool) in &pools.pools {
        let lists = pool.slots.iter().map(|slot| {
            let cpus = render_cpu_list(&slot.cpus);
            (cpus.clone(), json!({ "cpus": cpus, "tasks": slot.tasks }))
        });
        let lists: Map<String, Json> = lists.collect();
        let pool = json!({ "cpuLists": lists, "exclusive": pool.is_exclusive, "name": name });
        shown.insert(name.clone(), pool);
    }
    match path {
        Some(path) => json!({ "path": path, "pools": shown }),
        None => json!({ "pools": shown }),
    }
}

/// A process id that was taken out of a list because there is no such process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reclaimed {
    /// The process id.
    pub pid: u32,
    /// The pool.
    pub pool: String,
    /// The list.
    pub cpus: String,
}

/// Takes ids of processes out that do not run.
pub fn reclaim(pools: &mut Pools, runs: impl Fn(u32) -> bool) -> Vec<Reclaimed> {
    let mut reclaimed = Vec::new();
    for (name, pool) in &mut pools.pools {
        for slot in &mut pool.slots {
            let (alive, gone) = slot.tasks.iter().partition(|pid| runs(**pid));
            slot.tasks = alive;
            let gone: Vec<u32> = gone;
            reclaimed.extend(gone.into_iter().map(|pid| Reclaimed {
                pid,
                pool: name.clone(),
                cpus: render_cpu_list(&slot.cpus),
            }));
        }
    }
    reclaimed
}

/// What `cmk reconcile` prints.
pub fn reconcile_report(reclaimed: &[Reclaimed]) -> Json {
    json!({ "reclaimedCpuLists": reclaimed })
}

/// What `cmk node-report` prints: the pools, whether lists overlap, and processes that may run elsewhere than on their list. `allowed` is what the kernel lets a process run on; `None` if it does
/// not run.
pub fn node_report(
    pools: &Pools,
    path: Option<&str>,
    allowed: impl Fn(u32) -> Option<CpuSet>,
) -> Json {
    let lists: Vec<(&str, &CpuSet, &[u32])> = pools
        .pools
        .iter()
        .flat_map(|(name, pool)| {
            let slots = pool.slots.iter();
            slots.map(move |slot| (name.as_str(), &slot.cpus, slot.tasks.as_slice()))
        })
        .collect();
    let mut overlaps = Vec::new();
    for (at, (pool, cpus, _)) in lists.iter().enumerate() {
        for (other, others, _) in lists.iter().skip(at + 1) {
            let both = cpus.intersection(others);
            if !both.is_empty() {
                let (cpus, others) = (render_cpu_list(cpus), render_cpu_list(others));
                overlaps.push(format!(
                    "CPU list overlap detected in {pool}:{cpus} and {other}:{others} (in both: {})",
                    render_cpu_list(&both)
                ));
            }
        }
    }
    let mut elsewhere = Vec::new();
    for (pool, cpus, tasks) in &lists {
        for pid in *tasks {
            match allowed(*pid) {
                None => elsewhere.push(format!(
                    "process {pid} of {pool}:{} does not run",
                    render_cpu_list(cpus)
                )),
                Some(runs_on) if !runs_on.is_subset(cpus) => elsewhere.push(format!(
                    "process {pid} of {pool}:{} runs on {}",
                    render_cpu_list(cpus),
                    render_cpu_list(&runs_on)
                )),
                Some(_) => {}
            }
        }
    }
    let check = |errors: Vec<String>| json!({ "ok": errors.is_empty(), "errors": errors });
    json!({
        "checks": { "configDirectory": check(overlaps), "procfs": check(elsewhere) },
        "description": describe(pools, path),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn pools() -> Pools {
        Pools::from_directory([
            ("pools/exclusive/exclusive", "1"),
            ("pools/exclusive/0/4,12/tasks", "7,8"),
            ("pools/shared/0/3-4,11/tasks", "9"),
        ])
    }

    #[test]
    fn pools_are_described() {
        expect![[r#"{"path":"/etc/cmk","pools":{"exclusive":{"cpuLists":{"4,12":{"cpus":"4,12","tasks":[7,8]}},"exclusive":true,"name":"exclusive"},"shared":{"cpuLists":{"3,4,11":{"cpus":"3,4,11","tasks":[9]}},"exclusive":false,"name":"shared"}}}"#]]
            .assert_eq(&describe(&pools(), Some("/etc/cmk")).to_string());
    }

    #[test]
    fn processes_that_do_not_run_are_taken_out() {
        let mut pools = pools();
        let reclaimed = reclaim(&mut pools, |pid| pid == 7);
        expect![[r#"{"reclaimedCpuLists":[{"cpus":"4,12","pid":8,"pool":"exclusive"},{"cpus":"3,4,11","pid":9,"pool":"shared"}]}"#]]
            .assert_eq(&reconcile_report(&reclaimed).to_string());
        assert_eq!(reclaim(&mut pools, |pid| pid == 7), []);
    }

    #[test]
    fn overlaps_and_processes_elsewhere_are_reported() {
        let allowed = |pid| match pid {
            7 => "4,12".parse().ok(),
            8 => "0-15".parse().ok(),
            _ => None,
        };
        let report = node_report(&pools(), None, allowed);
        let checks = report.get("checks").unwrap();
        expect![[r#"{"configDirectory":{"errors":["CPU list overlap detected in exclusive:4,12 and shared:3,4,11 (in both: 4)"],"ok":false},"procfs":{"errors":["process 8 of exclusive:4,12 runs on 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15","process 9 of shared:3,4,11 does not run"],"ok":false}}"#]]
            .assert_eq(&checks.to_string());
    }
}
