//! Keys of Koordinator, Katalyst, Power Manager and others: what counts of them.

use super::*;

#[test]
fn frequency_and_sleep_have_the_names_of_other_systems_too() {
    check(
        &[
            ("cpu-c-states.crio.io/c", "max_latency:10"),
            ("cpu-c-states.crio.io", "enable"),
            ("cpu-freq-governor.crio.io", "schedutil"),
            ("cpu-class.resource-policy.nri.io/container.c", "turbo"),
        ],
        expect![[r#"
            cpu_class: Some(
            "turbo"
            )
            cpu_governor: Some(
            "schedutil"
            )
            wake_up: Some(
            AtMostUs(
            10
            )
            )
        "#]],
    );
    check(
        &[
            ("cpu-c-states.crio.io", "max_latency:-1"),
            ("cpu-freq-governor.crio.io", "On Demand"),
            ("bayplan.dev/cpu-class", " "),
        ],
        expect![[r#"
            ! annotation `cpu-c-states.crio.io` is `max_latency:-1`, expected enable, disable or max_latency:MICROSECONDS; ignored
            ! annotation `cpu-freq-governor.crio.io` is `On Demand`, expected the name of a governor; ignored
            ! annotation `bayplan.dev/cpu-class` is ``, expected the name of a class of cpuClasses, or performance, balance-performance, balance-power, power or default; ignored
        "#]],
    );
}

#[test]
fn a_profile_of_power_manager_is_a_class_unless_another_is_named() {
    let requests = r#"{"containers":{"c":{"requests":{"cpu":"2","power.intel.com/power":"2"}}}}"#;
    check(
        &[("intel.com/resources", requests)],
        expect![[r#"
        requests: Some(
        (
        "intel.com/resources"
        ExactRequests {
        cpu: Some(
        MilliCpu(
        2000
        )
        )
        memory: None
        }
        )
        )
        cpu_class: Some(
        "power"
        )
    "#]],
    );
    check(
        &[("intel.com/resources", requests), ("bayplan.dev/cpu-class", "performance")],
        expect![[r#"
            requests: Some(
            (
            "intel.com/resources"
            ExactRequests {
            cpu: Some(
            MilliCpu(
            2000
            )
            )
            memory: None
            }
            )
            )
            cpu_class: Some(
            "performance"
            )
        "#]],
    );
}

#[test]
fn koordinator_and_katalyst_are_read_and_our_keys_count_more() {
    check(
        &[
            ("label koordinator.sh/qosClass", "LSE"),
            (
                "scheduling.koordinator.sh/resource-spec",
                r#"{"preferredCPUBindPolicy":"SpreadByPCPUs","requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}"#,
            ),
            (
                "scheduling.koordinator.sh/numa-topology-spec",
                r#"{"numaTopologyPolicy":"SingleNUMANode"}"#,
            ),
            (
                "katalyst.kubewharf.io/cpu_enhancement",
                r#"{"distribute_evenly_across_numa":"true"}"#,
            ),
            ("bayplan.dev/apart", "none"),
        ],
        expect![[r#"
            prefer_shared_cpus: Some(
            false
            )
            owns_requested: true
            siblings: Idle
            only_whole_cores: true
            within: Some(
            One(
            NumaNode
            )
            )
            is_even: true
        "#]],
    );
    check(
        &[("label koordinator.sh/qosClass", "SYSTEM")],
        expect![[r#"
        prefer_reserved_cpus: Some(
        true
        )
    "#]],
    );
}

/// The CPUs that count, and what is warned of.
#[test]
fn cpus_that_koordinators_scheduler_has_chosen_count_for_pods_that_pay_for_them() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let list = r#"{"cpuset":"2-3","numaNodeResources":[{"node":0}]}"#;
    for (qos, class, value, expected, warning) in [
        (Some(Guaranteed), "", list, "2-3", None),
        (Some(Guaranteed), "LS", list, "2-3", None),
        (Some(Burstable), "LSR", list, "2-3", None),
        (Some(BestEffort), "LSE", list, "2-3", None),
        (Some(Burstable), "LS", list, "", Some(WarningKind::NoEffect)),
        (Some(BestEffort), "", list, "", Some(WarningKind::NoEffect)),
        (None, "", list, "", Some(WarningKind::NoEffect)),
        (Some(Guaranteed), "", "2-3", "", Some(WarningKind::RequirementNotUnderstood)),
        (
            Some(Guaranteed),
            "",
            r#"{"cpuset":"2-"}"#,
            "",
            Some(WarningKind::RequirementNotUnderstood),
        ),
        (
            Some(Guaranteed),
            "",
            r#"{"cpuset":["2"]}"#,
            "",
            Some(WarningKind::RequirementNotUnderstood),
        ),
        (Some(Burstable), "LSR", r#"{"cpuset":"2-"}"#, "", Some(WarningKind::NotUnderstood)),
        (Some(Burstable), "", r#"{"cpuset":7}"#, "", Some(WarningKind::NotUnderstood)),
        (Some(Guaranteed), "", r#"{"cpuset":""}"#, "", None),
        (Some(Guaranteed), "", r#"{"cpuset":null}"#, "", None),
        (Some(Guaranteed), "", r#"{"numaNodeResources":[{"node":0}]}"#, "", None),
    ] {
        let mut container = container(&[(RESOURCE_STATUS, value)]);
        container.pod.qos = qos;
        container.pod.labels = [("koordinator.sh/qosClass".to_owned(), class.to_owned())].into();
        let (asked, warnings) = read_annotations(&container, &everything());
        let row = (qos, class, value);
        assert_eq!(asked.wishes.claimed.to_string(), expected, "{row:?}");
        let has_nodes_only = value.contains("numaNodeResources") && !value.contains("cpuset");
        assert_eq!(!asked.numa_nodes.is_empty(), has_nodes_only, "{row:?}");
        assert_eq!(warnings.first().map(|it| it.kind), warning, "{row:?} {warnings:?}");
        assert!(may_claim(&container.pod));
    }
}

#[test]
fn sockets_are_packages_and_what_katalyst_says_of_memory_counts() {
    check(
        &[("bayplan.dev/within", "socket")],
        expect![[r#"
        within: Some(
        One(
        Package
        )
        )
    "#]],
    );
    check(
        &[("unlimited-burstable.resource-policy.nri.io", "socket")],
        expect![[r#"
        burst_level: Some(
        Package
        )
    "#]],
    );
    check(
        &[
            ("katalyst.kubewharf.io/qos_level", "dedicated_cores"),
            (
                "katalyst.kubewharf.io/memory_enhancement",
                r#"{"numa_binding":"true","numa_exclusive":"true","oom_priority":"1","more":1}"#,
            ),
        ],
        expect![[r#"
            prefer_shared_cpus: Some(
            false
            )
            apart: Some(
            (
            NumaNode
            Preferred
            )
            )
            within: Some(
            Fewest(
            NumaNode
            )
            )
            is_bound: true
            ! annotation `katalyst.kubewharf.io/memory_enhancement`: more is `1`, expected a field of Katalyst's memory_enhancement; ignored
            ! annotation `katalyst.kubewharf.io/memory_enhancement`: oom_priority 1 has no effect
        "#]],
    );
    check(
        &[("katalyst.kubewharf.io/qos_level", "gold")],
        expect![[r#"
        ! annotation `katalyst.kubewharf.io/qos_level` is `gold`, expected dedicated_cores, shared_cores, reclaimed_cores or system_cores; ignored
    "#]],
    );
    check(
        &[(
            "scheduling.koordinator.sh/resource-status",
            r#"{"numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}"#,
        )],
        expect![[r#"
            numa_nodes: NodeSet(0)
        "#]],
    );
    check(
        &[("intel.com/resources", r#"{"c":{"requests":{"cpu":"2"}}}"#)],
        expect![[r#"
        ! annotation `intel.com/resources` is `{"c":{"requests":{"cpu":"2"}}}` (neither `containers` nor `initContainers`), expected requests by container as JSON; ignored
    "#]],
    );
}
