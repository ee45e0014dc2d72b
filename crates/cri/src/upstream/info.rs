//! The runtime's own account of a container or sandbox. In: the JSON under `info` of a verbose status. Out: what bayplan needs of
//! it. Pure.
//!
//! CRI does not say what the JSON holds. containerd and CRI-O both put the process id and the OCI runtime specification there; what is
//! missing or looks different is `None`, and an answer that is no JSON at all is an answer without pieces.

use std::collections::BTreeMap;

use bayplan_workload::cmk;
use bayplan_workload::devices::{device_names, mounted_devices};
use bayplan_workload::huge_pages;
use bayplan_workload::runtime::ContainerDetails;
use serde_json::Value;

use crate::v1;

/// The pieces of a verbose `ContainerStatus`.
pub(super) fn parse_container(info: &BTreeMap<String, String>) -> ContainerDetails {
    let info = json(info);
    let resources = |pointer: &str| {
        info.pointer("/runtimeSpec/linux/resources")
            .and_then(|resources| resources.pointer(pointer))
    };
    let text = |pointer: &str| {
        resources(pointer).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    };
    let number = |pointer: &str| resources(pointer).and_then(integer);
    ContainerDetails {
        pid: info
            .pointer("/pid")
            .and_then(Value::as_u64)
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid > 0),
        cpus: text("/cpu/cpus").and_then(|cpus| cpus.parse().ok()),
        mems: text("/cpu/mems").and_then(|mems| mems.parse().ok()),
        shares: number("/cpu/shares"),
        quota: number("/cpu/quota"),
        period: number("/cpu/period"),
        memory_limit: number("/memory/limit"),
        oom_score_adj: info.pointer("/runtimeSpec/process/oomScoreAdj").and_then(integer),
        huge_pages: huge_pages(
            list(&info, "/runtimeSpec/linux/resources/hugepageLimits")
                .iter()
                .filter_map(|it| Some((it.get("pageSize")?.as_str()?, it.get("limit")?.as_u64()?))),
        ),
        cgroups_path: info
            .pointer("/runtimeSpec/linux/cgroupsPath")
            .and_then(Value::as_str)
            .filter(|path| !path.is_empty())
            .map(str::to_owned),
        devices: device_names(
            texts(&info, "/config/devices", "host_path"),
            // The runtime has made the variables of the devices; it does not always repeat their names.
            texts(&info, "/config/CDI_devices", "name")
                .chain(variables(&info).map(|(name, _)| name)),
            variables(&info),
        ),
        mounts: mounted_devices(texts(&info, "/runtimeSpec/mounts", "source")),
        isolate: cmk::read(&[], variables(&info)).and_then(|said| said.asked.ok()),
    }
}

/// Details with what CRI itself says of the container's resources (`ContainerStatus.resources`, since CRI of Kubernetes 1.26), where the runtime's own
/// account lacks it. Zero and the empty text are "not set".
pub(super) fn or_by_status(
    details: ContainerDetails,
    resources: &v1::LinuxContainerResources,
) -> ContainerDetails {
    let number = |own: Option<i64>, told: i64| own.or((told != 0).then_some(told));
    let limits = resources.hugepage_limits.iter();
    let huge_pages = match details.huge_pages.is_empty() {
        true => huge_pages(limits.map(|it| (it.page_size.as_str(), it.limit))),
        false => details.huge_pages,
    };
    ContainerDetails {
        cpus: details.cpus.or_else(|| filled(&resources.cpuset_cpus)?.parse().ok()),
        mems: details.mems.or_else(|| filled(&resources.cpuset_mems)?.parse().ok()),
        shares: number(details.shares, resources.cpu_shares),
        quota: number(details.quota, resources.cpu_quota),
        period: number(details.period, resources.cpu_period),
        memory_limit: number(details.memory_limit, resources.memory_limit_in_bytes),
        oom_score_adj: number(details.oom_score_adj, resources.oom_score_adj),
        huge_pages,
        ..details
    }
}

fn filled(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn list<'a>(info: &'a Value, pointer: &str) -> &'a [Value] {
    info.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A field of every object in a list.
fn texts<'a>(info: &'a Value, pointer: &str, field: &'static str) -> impl Iterator<Item = &'a str> {
    list(info, pointer).iter().filter_map(move |it| it.get(field)?.as_str())
}

fn variables(info: &Value) -> impl Iterator<Item = (&str, &str)> + Clone {
    list(info, "/runtimeSpec/process/env").iter().filter_map(|it| it.as_str()?.split_once('='))
}

/// The parent cgroup that kubelet gave, from a verbose `PodSandboxStatus`. containerd repeats the sandbox's configuration.
pub(super) fn parse_cgroup_parent(info: &BTreeMap<String, String>) -> Option<String> {
    json(info)
        .pointer("/config/linux/cgroup_parent")
        .and_then(Value::as_str)
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
}

fn json(info: &BTreeMap<String, String>) -> Value {
    info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The specification has unsigned shares and period; one above `i64::MAX` is as good as not there.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64()
}

#[cfg(test)]
mod tests {
    use bayplan_types::Bytes;
    use bayplan_workload::cmk::Isolate;

    use super::*;

    fn info(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("info".to_owned(), text.to_owned())])
    }

    #[test]
    fn what_the_account_lacks_is_taken_from_the_status() {
        let told = v1::LinuxContainerResources {
            cpu_shares: 2048,
            cpu_quota: 200_000,
            cpu_period: 100_000,
            memory_limit_in_bytes: 1 << 30,
            oom_score_adj: -997,
            cpuset_cpus: "1,17".to_owned(),
            hugepage_limits: vec![v1::HugepageLimit {
                page_size: "2MB".to_owned(),
                limit: 1 << 21,
            }],
            ..Default::default()
        };
        let by_status = ContainerDetails {
            cpus: Some("1,17".parse().unwrap()),
            shares: Some(2048),
            quota: Some(200_000),
            period: Some(100_000),
            memory_limit: Some(1 << 30),
            oom_score_adj: Some(-997),
            huge_pages: [(Bytes(1 << 21), Bytes(1 << 21))].into(),
            ..ContainerDetails::default()
        };
        assert_eq!(or_by_status(ContainerDetails::default(), &told), by_status);
        // The account goes first, and "not set" says nothing.
        let own = ContainerDetails { shares: Some(512), ..ContainerDetails::default() };
        assert_eq!(
            or_by_status(own.clone(), &told),
            ContainerDetails { shares: Some(512), ..by_status }
        );
        assert_eq!(or_by_status(own.clone(), &v1::LinuxContainerResources::default()), own);
    }

    #[test]
    fn containerds_account_is_read() {
        // The shape of containerd 2.1, shortened.
        let details = parse_container(&info(
            r#"{"sandboxID":"ab","pid":4711,"removing":false,"runtimeType":"io.containerd.runc.v2",
                "config":{"metadata":{"name":"web"},"devices":[{"container_path":"/dev/a","host_path":"/dev/nvme0n1"}]},
                "runtimeSpec":{"ociVersion":"1.2.1","process":{"oomScoreAdj":985,"args":["a"],"env":["A=b","PCIDEVICE_X=0000:10:00.1","STP_POOL=a"]},
                  "mounts":[{"source":"proc"},{"source":"/dev/nvme1n1"},{}],"linux":{
                  "cgroupsPath":"kubepods-burstable-pod1.slice:cri-containerd:cd",
                  "resources":{"devices":[{"allow":false}],"memory":{"limit":1073741824,"swap":1073741824},
                    "hugepageLimits":[{"pageSize":"2MB","limit":4194304},{"pageSize":"1GB","limit":0},{}],
                    "cpu":{"shares":2048,"quota":-1,"period":100000,"cpus":"0-3,8","mems":"0"}}}}}"#,
        ));
        let expected = ContainerDetails {
            pid: Some(4711),
            cpus: Some("0-3,8".parse().unwrap()),
            mems: Some("0".parse().unwrap()),
            shares: Some(2048),
            quota: Some(-1),
            period: Some(100_000),
            memory_limit: Some(1 << 30),
            oom_score_adj: Some(985),
            huge_pages: BTreeMap::from([(Bytes(2 << 20), Bytes(4 << 20))]),
            cgroups_path: Some("kubepods-burstable-pod1.slice:cri-containerd:cd".to_owned()),
            devices: vec!["/dev/nvme0n1".to_owned(), "0000:10:00.1".to_owned()],
            mounts: vec!["/dev/nvme1n1".to_owned()],
            isolate: Some(Isolate { pool: "a".to_owned(), slots: 1, ..Isolate::default() }),
        };
        assert_eq!(details, expected);
    }

    #[test]
    fn what_is_missing_or_strange_is_none() {
        let nothing = ContainerDetails::default();
        for text in [
            "",
            "no json",
            "null",
            "[]",
            "7",
            r#"{"pid":0}"#,
            r#"{"pid":-1}"#,
            r#"{"pid":"12"}"#,
            r#"{"runtimeSpec":null}"#,
            r#"{"runtimeSpec":{"linux":{"cgroupsPath":"","resources":[]}}}"#,
            r#"{"runtimeSpec":{"linux":{"resources":{"cpu":{"cpus":"","mems":"x-","shares":"2"}}}}}"#,
            r#"{"runtimeSpec":{"linux":{"resources":{"cpu":{"shares":18446744073709551615}}}}}"#,
        ] {
            assert_eq!(parse_container(&info(text)), nothing, "{text}");
        }
        assert_eq!(parse_container(&BTreeMap::new()), nothing);
    }

    #[test]
    fn the_parent_cgroup_is_read_where_it_is_told() {
        let told = info(r#"{"config":{"linux":{"cgroup_parent":"/kubepods/pod1"}}}"#);
        assert_eq!(parse_cgroup_parent(&told).as_deref(), Some("/kubepods/pod1"));
        assert_eq!(parse_cgroup_parent(&info(r#"{"config":{"linux":{}}}"#)), None);
    }
}
