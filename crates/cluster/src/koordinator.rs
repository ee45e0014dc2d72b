//! Koordinator's annotations on a NodeResourceTopology, without which its scheduler finds no CPUs to choose from. In: what the daemon says of each NUMA node and of the
//! processor. Out: the annotations by name.
//!
//! Rules of the reader (koordinator, `pkg/scheduler/plugins/nodenumaresource/topology_options.go`): CPUs in `pod-cpu-allocs` are not given again, but only those of entries with a
//! uid and `managedByKubelet`, which for the reader means "not chosen by me"; pods for which it has chosen CPUs are in its own books, and listed here they would be subtracted
//! twice. `reservedCPUs` counts whatever the policy is.

use std::collections::BTreeMap;

use bayplan_types::{CpuId, CpuSet, ParseSetError};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::node_topology::{Owner, Zone, ZoneReport};
use crate::quantity::milli;

/// On a pod: what the scheduler has decided for it.
const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";
const CPU_TOPOLOGY: &str = "node.koordinator.sh/cpu-topology";
const POD_CPU_ALLOCS: &str = "node.koordinator.sh/pod-cpu-allocs";
const CPU_SHARED_POOLS: &str = "node.koordinator.sh/cpu-shared-pools";
const BE_CPU_SHARED_POOLS: &str = "node.koordinator.sh/be-cpu-shared-pools";
const CPU_BASIC_INFO: &str = "node.koordinator.sh/cpu-basic-info";
const CPU_MANAGER_POLICY: &str = "kubelet.koordinator.sh/cpu-manager-policy";
/// On a Node, and copied from there.
const RESERVATION: &str = "node.koordinator.sh/reservation";
const SYSTEM_QOS: &str = "node.koordinator.sh/system-qos-resource";

/// Of the daemon's answer to `GET /api/v1/features`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Features {
    processor: Processor,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Processor {
    model: String,
    vendor: String,
    has_threads: bool,
    has_turbo: bool,
    l3_mask: String,
}

#[derive(Serialize)]
struct CpuTopology {
    detail: Vec<CpuInfo>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct CpuInfo {
    id: u32,
    core: u32,
    socket: u32,
    node: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodCpuAlloc<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    cpuset: &'a str,
    managed_by_kubelet: bool,
}

#[derive(Serialize)]
struct CpuSharedPool {
    socket: u32,
    node: u32,
    cpuset: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuManagerPolicy<'a> {
    policy: &'static str,
    #[serde(rename = "reservedCPUs", skip_serializing_if = "str::is_empty")]
    reserved_cpus: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuBasicInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    cpu_model: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    hyper_thread_enabled: bool,
    #[serde(skip_serializing_if = "is_false")]
    turbo_enabled: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat_l3_cbm_mask: &'a str,
    #[serde(rename = "vendorID", skip_serializing_if = "str::is_empty")]
    vendor_id: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_false(it: &bool) -> bool {
    !it
}

/// CPUs that a Node sets aside, for the system or for pods of class SYSTEM (koordinator, `pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go`).
#[derive(Default)]
struct SetAside {
    /// Copies for the NodeResourceTopology.
    copies: BTreeMap<&'static str, String>,
    /// They are in no shared pool.
    cpus: CpuSet,
}

impl SetAside {
    /// As the Node's annotations say; what cannot be read counts for nothing, as with koordlet.
    fn of(node: &BTreeMap<String, String>, topology: &[CpuInfo]) -> SetAside {
        let said = |name: &str| serde_json::from_str::<Json>(node.get(name)?).ok();
        let list = |json: &Json, key: &str| json.get(key)?.as_str()?.parse::<CpuSet>().ok();
        let mut aside = SetAside::default();
        let reserved = said(RESERVATION).map(|it| {
            let listed = list(&it, "reservedCPUs").filter(|it| !it.is_empty());
            listed.unwrap_or_else(|| lowest(topology, reserved_count(&it)))
        });
        if let Some(cpus) = reserved.filter(|it| !it.is_empty()) {
            let copy = json!({ "reservedCPUs": cpus.to_string() });
            aside.copies.insert(RESERVATION, copy.to_string());
            aside.cpus.union_with(&cpus);
        }
        if let Some(json) = said(SYSTEM_QOS)
            && let Some(cpus) = list(&json, "cpuset").filter(|it| !it.is_empty())
        {
            // Its default.
            if json.get("cpusetExclusive").and_then(Json::as_bool).unwrap_or(true) {
                aside.cpus.union_with(&cpus);
            }
            aside.copies.insert(SYSTEM_QOS, json.to_string());
        }
        aside
    }
}

/// Whole CPUs that hold the reserved CPU time.
fn reserved_count(reservation: &Json) -> usize {
    let cpu = reservation.pointer("/resources/cpu").map(amount_of).unwrap_or_default();
    usize::try_from(cpu.div_ceil(1000)).unwrap_or(usize::MAX)
}

/// In thousandths; numbers are amounts, too.
fn amount_of(json: &Json) -> u64 {
    json.as_str().map_or_else(|| milli(&json.to_string()), milli)
}

/// So many CPUs as kubelet would take of a machine that is free: core by core, package by package.
fn lowest(topology: &[CpuInfo], count: usize) -> CpuSet {
    let mut cpus = topology.to_vec();
    cpus.sort_by_key(|it| (it.socket, it.core, it.id));
    cpus.iter().take(count).map(|it| CpuId(it.id)).collect()
}

/// CPU time by NUMA node that Koordinator's scheduler has set aside in its own books for a pod for which it has chosen no CPUs (`resource-status`), in thousandths.
pub(crate) fn booked(annotations: &BTreeMap<String, String>) -> BTreeMap<u32, u64> {
    let status = annotations.get(RESOURCE_STATUS);
    let status: Json = status.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    if status.get("cpuset").and_then(Json::as_str).is_some_and(|it| !it.is_empty()) {
        return BTreeMap::new();
    }
    let nodes = status.get("numaNodeResources").and_then(Json::as_array);
    let amount = |it: &Json| {
        let node = it.get("node")?.as_u64()?.try_into().ok()?;
        Some((node, amount_of(it.pointer("/resources/cpu")?)))
    };
    nodes.into_iter().flatten().filter_map(amount).collect()
}

/// Gives zones back what the reader subtracts twice: the CPUs of owners that are in its own books, too. `booked`: of an owner.
pub(crate) fn count_booked_once<'a>(
    report: &mut ZoneReport,
    booked: impl Fn(&Owner) -> Option<&'a BTreeMap<u32, u64>>,
) -> Result<(), ParseSetError> {
    for owner in &report.owners {
        let Some(booked) = booked(owner) else { continue };
        let owned: CpuSet = owner.cpus.parse()?;
        for zone in &mut report.zones {
            let here = owned.intersection(&zone.cpus.parse()?).len();
            let here = u64::try_from(here).unwrap_or(u64::MAX).saturating_mul(1000);
            let twice = booked.get(&zone.node).copied().unwrap_or_default().min(here);
            let allocatable = &mut zone.cpu_milli.allocatable;
            *allocatable = allocatable.saturating_add(twice);
        }
    }
    Ok(())
}

/// All annotations; `node`: those of the Node.
///
/// # Errors
/// The daemon has told a list of CPUs that is none.
pub(crate) fn annotations(
    report: &ZoneReport,
    features: &Features,
    node: &BTreeMap<String, String>,
) -> Result<BTreeMap<&'static str, String>, ParseSetError> {
    let mut detail: Vec<CpuInfo> = Vec::new();
    for zone in &report.zones {
        detail.extend(cpus_of(zone)?);
    }
    detail.sort();
    let aside = SetAside::of(node, &detail);
    let alloc = report.owners.iter().map(|it| PodCpuAlloc {
        namespace: &it.namespace,
        name: &it.name,
        uid: &it.uid,
        cpuset: &it.cpus,
        managed_by_kubelet: true,
    });
    let policy = CpuManagerPolicy { policy: "none", reserved_cpus: &report.withheld_cpus };
    let of = &features.processor;
    let basics = CpuBasicInfo {
        cpu_model: &of.model,
        hyper_thread_enabled: of.has_threads,
        turbo_enabled: of.has_turbo,
        cat_l3_cbm_mask: &of.l3_mask,
        vendor_id: &of.vendor,
    };
    let shared = text(&pools(report, &aside.cpus)?);
    let mut all = BTreeMap::from([
        (CPU_TOPOLOGY, text(&CpuTopology { detail })),
        (POD_CPU_ALLOCS, text(&alloc.collect::<Vec<_>>())),
        (CPU_SHARED_POOLS, shared.clone()),
        (BE_CPU_SHARED_POOLS, shared),
        (CPU_MANAGER_POLICY, text(&policy)),
        (CPU_BASIC_INFO, text(&basics)),
    ]);
    all.extend(aside.copies);
    Ok(all)
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn cpus_of(zone: &Zone) -> Result<Vec<CpuInfo>, ParseSetError> {
    let mut cpus = Vec::new();
    for it in &zone.cores {
        let info = |id| CpuInfo { id, core: it.core, socket: it.package, node: zone.node };
        cpus.extend(it.cpus.parse::<CpuSet>()?.iter().map(|cpu| info(cpu.0)));
    }
    Ok(cpus)
}

/// CPUs that containers share, by NUMA node. Those that are lent to BestEffort containers are not in it: they come and go each second, and every change would be written.
fn pools(report: &ZoneReport, aside: &CpuSet) -> Result<Vec<CpuSharedPool>, ParseSetError> {
    let mut pools = Vec::new();
    for zone in &report.zones {
        let cpus = zone.shared_cpus.parse::<CpuSet>()?.difference(aside);
        let socket = zone.cores.first().map_or(0, |it| it.package);
        if !cpus.is_empty() {
            pools.push(CpuSharedPool { socket, node: zone.node, cpuset: cpus.to_string() });
        }
    }
    Ok(pools)
}

/// Makes CPU time that pods can have what the reader subtracts from: all CPUs of each zone. It subtracts reserved CPUs and those of owners itself, and its own pods'.
pub(crate) fn count_all_cpus(report: &mut ZoneReport) -> Result<(), ParseSetError> {
    for zone in &mut report.zones {
        let cpus = zone.cpus.parse::<CpuSet>()?.len();
        zone.cpu_milli.allocatable = u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1000);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const REPORT: &str = r#"{"zones": [
        {"node": 0, "cpus": "0-1,4-5", "cpu_milli": {"capacity": 2000, "allocatable": 2000, "available": 0}, "shared_cpus": "5",
         "cores": [{"core": 0, "package": 0, "cpus": "0,4"}, {"core": 1, "package": 0, "cpus": "1,5"}]},
        {"node": 1, "cpus": "2-3,6-7", "shared_cpus": "3,6-7", "cores": [{"core": 2, "package": 1, "cpus": "2,6"}, {"core": 3, "package": 1, "cpus": "3,7"}]},
        {"node": 2}],
        "owners": [{"namespace": "shop", "name": "web", "uid": "u-1", "cpus": "1-2"}], "withheld_cpus": "0,4"}"#;

    fn check(report: &ZoneReport, features: &str, expected: expect_test::Expect) {
        let features: Features = serde_json::from_str(features).unwrap();
        let found = annotations(report, &features, &BTreeMap::new()).unwrap();
        let lines = found.iter().map(|(name, value)| format!("{name} {value}\n"));
        expected.assert_eq(&lines.collect::<String>());
    }

    #[test]
    fn annotations_have_the_form_of_koordlet() {
        let report: ZoneReport = serde_json::from_str(REPORT).unwrap();
        check(
            &report,
            r#"{"format": "x", "processor": {"model": "Xeon", "vendor": "GenuineIntel", "has_threads": true, "has_turbo": true, "l3_mask": "fff"}}"#,
            expect![[r#"
                kubelet.koordinator.sh/cpu-manager-policy {"policy":"none","reservedCPUs":"0,4"}
                node.koordinator.sh/be-cpu-shared-pools [{"socket":0,"node":0,"cpuset":"5"},{"socket":1,"node":1,"cpuset":"3,6-7"}]
                node.koordinator.sh/cpu-basic-info {"cpuModel":"Xeon","hyperThreadEnabled":true,"turboEnabled":true,"catL3CbmMask":"fff","vendorID":"GenuineIntel"}
                node.koordinator.sh/cpu-shared-pools [{"socket":0,"node":0,"cpuset":"5"},{"socket":1,"node":1,"cpuset":"3,6-7"}]
                node.koordinator.sh/cpu-topology {"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":0,"node":0},{"id":2,"core":2,"socket":1,"node":1},{"id":3,"core":3,"socket":1,"node":1},{"id":4,"core":0,"socket":0,"node":0},{"id":5,"core":1,"socket":0,"node":0},{"id":6,"core":2,"socket":1,"node":1},{"id":7,"core":3,"socket":1,"node":1}]}
                node.koordinator.sh/pod-cpu-allocs [{"namespace":"shop","name":"web","uid":"u-1","cpuset":"1-2","managedByKubelet":true}]
            "#]],
        );
        check(
            &ZoneReport::default(),
            "{}",
            expect![[r#"
                kubelet.koordinator.sh/cpu-manager-policy {"policy":"none"}
                node.koordinator.sh/be-cpu-shared-pools []
                node.koordinator.sh/cpu-basic-info {}
                node.koordinator.sh/cpu-shared-pools []
                node.koordinator.sh/cpu-topology {"detail":[]}
                node.koordinator.sh/pod-cpu-allocs []
            "#]],
        );
    }

    /// Issue 34: the Node's reservation was not copied.
    #[test]
    fn what_the_node_sets_aside_is_copied_and_in_no_shared_pool() {
        let report: ZoneReport = serde_json::from_str(REPORT).unwrap();
        let pools =
            r#"[{"socket":0,"node":0,"cpuset":"5"},{"socket":1,"node":1,"cpuset":"3,6-7"}]"#;
        let one = r#"[{"socket":1,"node":1,"cpuset":"3,6-7"}]"#;
        let last = r#"[{"socket":0,"node":0,"cpuset":"5"},{"socket":1,"node":1,"cpuset":"3"}]"#;
        for (name, said, copy, shared) in [
            (RESERVATION, r#"{"reservedCPUs":"0,5"}"#, Some(r#"{"reservedCPUs":"0,5"}"#), one),
            (
                RESERVATION,
                r#"{"resources":{"cpu":"3500m"},"applyPolicy":"Default"}"#,
                Some(r#"{"reservedCPUs":"0-1,4-5"}"#),
                one,
            ),
            (RESERVATION, r#"{"resources":{"memory":"1Gi"}}"#, None, pools),
            (RESERVATION, "much", None, pools),
            (SYSTEM_QOS, r#"{"cpuset":"6-7"}"#, Some(r#"{"cpuset":"6-7"}"#), last),
            (
                SYSTEM_QOS,
                r#"{"cpuset":"6-7","cpusetExclusive":false}"#,
                Some(r#"{"cpuset":"6-7","cpusetExclusive":false}"#),
                pools,
            ),
            (SYSTEM_QOS, r#"{"cpuset":"six"}"#, None, pools),
        ] {
            let node = BTreeMap::from([(name.to_owned(), said.to_owned())]);
            let found = annotations(&report, &Features::default(), &node).unwrap();
            assert_eq!(found.get(name).map(String::as_str), copy, "{said}");
            for name in [CPU_SHARED_POOLS, BE_CPU_SHARED_POOLS] {
                assert_eq!(found[name], shared, "{said}");
            }
        }
    }

    /// Issue 34: the reader subtracts the CPUs of an owner, and what it has set aside for the same pod.
    #[test]
    fn a_pod_in_the_readers_books_is_subtracted_once() {
        let of = |status: &str| booked(&[(RESOURCE_STATUS.to_owned(), status.to_owned())].into());
        for (status, expected) in [
            (r#"{"numaNodeResources":[{"node":0,"resources":{"cpu":"4"}}]}"#, [5000, 4000]),
            (r#"{"numaNodeResources":[{"node":1,"resources":{"cpu":500e-3}}]}"#, [4000, 4500]),
            (
                r#"{"cpuset":"","numaNodeResources":[{"node":0,"resources":{"cpu":"1"}},{"node":1,"resources":{"cpu":1}}]}"#,
                [5000, 5000],
            ),
            (
                r#"{"cpuset":"1-2","numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}"#,
                [4000, 4000],
            ),
            (
                r#"{"numaNodeResources":[{"node":7,"resources":{"cpu":"2"}},{"node":0}]}"#,
                [4000, 4000],
            ),
            ("[]", [4000, 4000]),
        ] {
            let mut report: ZoneReport = serde_json::from_str(REPORT).unwrap();
            count_all_cpus(&mut report).unwrap();
            let booked = of(status);
            count_booked_once(&mut report, |it| (it.name == "web").then_some(&booked)).unwrap();
            let all = report.zones.iter().map(|it| it.cpu_milli.allocatable).take(2);
            assert_eq!(all.collect::<Vec<u64>>(), expected, "{status}");
        }
    }

    #[test]
    fn what_the_reader_subtracts_from_is_every_cpu() {
        let mut report: ZoneReport = serde_json::from_str(REPORT).unwrap();
        count_all_cpus(&mut report).unwrap();
        let all: Vec<u64> = report.zones.iter().map(|it| it.cpu_milli.allocatable).collect();
        assert_eq!(all, [4000, 4000, 0]);
        report.zones[1].cpus = "two".to_owned();
        assert!(count_all_cpus(&mut report).is_err());
    }
}
