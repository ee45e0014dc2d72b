use std::collections::BTreeMap;

use bayplan_types::MilliCpu;

use super::*;
use crate::annotations::permissions::Rule;
use crate::container::Pod;
use crate::facts::{ContainerFacts, Facts, PodAbout};
use crate::qos::parse_qos;
use crate::rules::Amplification;

fn check(qos: &str, annotations: &[(&str, &str)], resources: Resources, expected: &str) {
    let container = NewContainer {
        pod: Pod {
            namespace: "default".into(),
            qos: parse_qos(qos),
            cgroup_parent: qos.into(),
            annotations: annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..Pod::default()
        },
        name: "c".into(),
        resources,
        ..NewContainer::default()
    };
    let rules = RequestRules {
        reserved_namespaces: vec!["kube-system".into()],
        permissions: vec![Rule::everything()],
        ..RequestRules::default()
    };
    let hardware = Hardware { memory: Some(Bytes::gib(100)), ..Hardware::default() };
    let (request, warnings) = derive_request(ContainerId(1), &container, &rules, hardware, []);
    let mut shown = format!("{}, memory {}", request.demand, request.memory);
    if request.memory_is_expected && request.memory > Bytes::ZERO {
        shown.push_str(" expected");
    }
    if let Some(ceiling) = request.ceiling {
        shown.push_str(&format!(", ceiling {ceiling}"));
    }
    if request.is_reserved {
        shown.push_str(", reserved");
    }
    for warning in warnings {
        shown.push_str(&format!("; {}", warning.text));
    }
    assert_eq!(shown, expected);
}

fn cpu(shares: i64, quota: i64) -> Resources {
    Resources {
        cpu_shares: shares,
        cpu_quota: quota,
        cpu_period: 100_000,
        memory_limit: 1 << 30,
        oom_score_adj: 0,
    }
}

const GUARANTEED: &str = "/kubepods/pod1";
const BURSTABLE: &str = "/kubepods/burstable/pod1";

#[test]
fn requests_are_recovered_from_cgroup_settings() {
    check(GUARANTEED, &[], cpu(2048, 200_000), "2 exclusive, memory 1 GiB, ceiling 2");
    check(
        GUARANTEED,
        &[],
        cpu(1536, 150_000),
        "1 exclusive + 500m shared, memory 1 GiB, ceiling 1500m",
    );
    check(BURSTABLE, &[], cpu(2048, -1), "2 shared, memory 0 B");
    check("/kubepods/besteffort/pod1", &[], cpu(2, 0), "0 shared, memory 0 B");
    check(GUARANTEED, &[], cpu(262_144, 51_200_000), "512 exclusive, memory 1 GiB, ceiling 512");
    check(GUARANTEED, &[], Resources::default(), "0 shared, memory 0 B");
}

#[test]
fn a_burstable_container_is_expected_to_use_what_its_score_and_its_webhook_tell() {
    let resources = Resources { oom_score_adj: 900, memory_limit: 0, ..cpu(2048, -1) };
    let name = "intel.com/resources";
    for (says, expected) in [
        ("", "2 shared, memory 10 GiB expected"),
        (r#"{"memory":"5Gi"}"#, "2 shared, memory 5 GiB expected"),
        (
            r#"{"cpu":"8"}"#,
            "2 shared, memory 10 GiB expected; annotation `intel.com/resources` says 8 CPUs, cpu.shares of 2048 say 2; ignored",
        ),
        (
            r#"{"cpu":"-8"}"#,
            "2 shared, memory 10 GiB expected; annotation `intel.com/resources` is `{\"containers\":{\"c\":{\"requests\":{\"cpu\":\"-...` \
             (cpu is `-8`), expected requests by container as JSON; ignored",
        ),
    ] {
        let text = format!(r#"{{"containers":{{"c":{{"requests":{says}}}}}}}"#);
        let annotations = if says.is_empty() { vec![] } else { vec![(name, text.as_str())] };
        check(BURSTABLE, &annotations, resources, expected);
    }
}

/// A restartable init container has the score of another, and a pod with requests of its own another way to make scores. What kubelet told after a resize
/// is newer than a score that NRI does not tell.
#[test]
fn a_score_that_is_not_its_own_bounds_nothing() {
    for (is_older, is_init, pod_cpu, expected) in [
        (true, false, None, 10 << 30),
        (false, false, None, 1 << 30),
        (true, true, None, 1 << 30),
        (true, false, Some(MilliCpu(4000)), 1 << 30),
    ] {
        let requests = ExactRequests { cpu: None, memory: Some(Bytes(1 << 30)) };
        let own = ContainerFacts { requests, is_init, ..ContainerFacts::default() };
        let about = PodAbout {
            requests: ExactRequests { cpu: pod_cpu, memory: None },
            ..PodAbout::default()
        };
        let container = NewContainer {
            pod: Pod { qos: Some(QosClass::Burstable), ..Pod::default() },
            resources: Resources { oom_score_adj: 900, memory_limit: 0, ..cpu(2048, -1) },
            facts: Some(Box::new(Facts { about, own, is_older })),
            ..NewContainer::default()
        };
        let hardware = Hardware { memory: Some(Bytes::gib(100)), ..Hardware::default() };
        let rules = RequestRules::default();
        let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
        assert_eq!(request.memory, Bytes(expected), "{is_older} {is_init} {pod_cpu:?}");
    }
}

/// Kubelet's word counts before an annotation's, as far as cgroup settings agree with it; a resize in place is seen in the status first or in the
/// specification first.
#[test]
fn kubelets_word_on_requests_counts_first() {
    let said = |cpu: Option<u64>, memory: Option<u64>| ExactRequests {
        cpu: cpu.map(MilliCpu),
        memory: memory.map(|mib| Bytes(mib << 20)),
    };
    let nothing = ExactRequests::default();
    let annotation = r#"{"containers":{"c":{"requests":{"cpu":"2","memory":"7Gi"}}}}"#;
    let by = RequestSource::Annotation("intel.com/resources");
    for (requests, running, annotated, mib, source) in [
        (said(Some(2000), Some(10_300)), nothing, true, 10_300, RequestSource::Kubelet),
        (said(Some(2000), Some(10_300)), nothing, false, 10_300, RequestSource::Kubelet),
        (
            said(Some(8000), Some(10_300)),
            said(Some(2000), Some(10_200)),
            true,
            10_200,
            RequestSource::Kubelet,
        ),
        (said(Some(8000), Some(10_300)), nothing, true, 7 << 10, by),
        (said(Some(8000), Some(10_300)), nothing, false, 10 << 10, RequestSource::Settings),
        // From before a resize of memory alone, up or down, which the score tells of.
        (said(Some(2000), Some(2 << 10)), nothing, false, 10 << 10, RequestSource::Settings),
        (said(Some(2000), Some(20 << 10)), nothing, false, 10 << 10, RequestSource::Settings),
        (nothing, nothing, false, 10 << 10, RequestSource::Settings),
    ] {
        let pair = ("intel.com/resources".to_owned(), annotation.to_owned());
        let own = ContainerFacts { requests, running, ..ContainerFacts::default() };
        let container = NewContainer {
            pod: Pod {
                qos: Some(QosClass::Burstable),
                annotations: annotated.then_some(pair).into_iter().collect(),
                ..Pod::default()
            },
            name: "c".into(),
            resources: Resources { oom_score_adj: 900, memory_limit: 0, ..cpu(2048, -1) },
            facts: Some(Box::new(Facts { own, is_older: true, ..Facts::default() })),
            ..NewContainer::default()
        };
        let (rules, memory) = (RequestRules::default(), Some(Bytes::gib(100)));
        let hardware = Hardware { memory, ..Hardware::default() };
        let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
        let found = (request.memory, request_source(&container, &rules, memory));
        assert_eq!(found, (Bytes(mib << 20), source), "{requests:?} {running:?} {annotated}");
    }
}

/// On a node with amplified CPUs a container that shares requests amplified CPU time, and one with CPUs of its own whole ones (Koordinator's design of node resource amplification).
#[test]
fn amplified_requests_of_sharers_are_divided() {
    let guaranteed = |milli: i64| cpu(milli * 1024 / 1000, milli * 100);
    for (percent, qos, resources, expected) in [
        (100, QosClass::Burstable, cpu(3072, -1), Demand::new(0, Some(MilliCpu(3000)))),
        (150, QosClass::Burstable, cpu(3072, -1), Demand::new(0, Some(MilliCpu(2000)))),
        (130, QosClass::Burstable, cpu(1024, -1), Demand::new(0, Some(MilliCpu(770)))),
        (150, QosClass::Guaranteed, guaranteed(3000), Demand::new(3, None)),
        (150, QosClass::Guaranteed, guaranteed(1500), Demand::new(1, Some(MilliCpu(500)))),
    ] {
        let container = NewContainer {
            pod: Pod { qos: Some(qos), ..Pod::default() },
            resources,
            ..NewContainer::default()
        };
        let rules =
            RequestRules { amplification: Amplification { percent }, ..RequestRules::default() };
        let (request, _) =
            derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
        assert_eq!(request.demand, expected, "{percent} {qos:?}");
    }
}

/// Koordinator's LSE and LSR are for pods of any QoS class; its webhook wants whole CPUs, and the limit to be the request.
#[test]
fn lse_and_lsr_own_what_they_may_use_whatever_the_class_of_their_pod() {
    use QosClass::{BestEffort, Burstable};
    let owns = |cpus| Demand::new(cpus, None);
    let shares = |milli| Demand::new(0, Some(MilliCpu(milli)));
    for (class, qos, resources, expected) in [
        ("LSE", Burstable, cpu(3072, 300_000), owns(3)),
        ("LSR", Burstable, cpu(2048, 200_000), owns(2)),
        ("LSR", Burstable, cpu(2048, 300_000), shares(2000)),
        ("LSR", Burstable, cpu(2048, -1), shares(2000)),
        ("LSE", Burstable, cpu(1536, 150_000), shares(1500)),
        ("LSE", BestEffort, cpu(2, -1), shares(0)),
        ("LS", Burstable, cpu(3072, 300_000), shares(3000)),
        ("", Burstable, cpu(3072, 300_000), shares(3000)),
    ] {
        let labels = [("koordinator.sh/qosClass".to_owned(), class.to_owned())].into();
        let pod = Pod { qos: Some(qos), labels, ..Pod::default() };
        let container = NewContainer { pod, resources, ..NewContainer::default() };
        let rules = RequestRules::default();
        let (request, _) =
            derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
        assert_eq!(request.demand, expected, "{class} {qos:?} {resources:?}");
    }
}

/// What is still to come of the pod is in the same CPU time as the container's demand; CPUs that its other containers may own are not amplified.
#[test]
fn the_amplified_rest_of_a_pod_is_divided() {
    use QosClass::{Burstable, Guaranteed};
    for (percent, qos, prefers_shared, whole, expected) in [
        (100, Burstable, false, 3000, 2000),
        (150, Burstable, false, 3000, 1334),
        (150, Guaranteed, false, 3000, 2000),
        (150, Guaranteed, true, 3000, 1334),
        (150, Guaranteed, false, 1500, 334),
        (150, Burstable, false, 1000, 0),
    ] {
        let written = |milli: i64| cpu(milli * 1024 / 1000, milli * 100);
        let container = NewContainer {
            pod: Pod { qos: Some(qos), resources: written(whole), ..Pod::default() },
            resources: written(1000),
            ..NewContainer::default()
        };
        let rules = RequestRules {
            amplification: Amplification { percent },
            prefer_shared_cpus: prefers_shared,
            ..RequestRules::default()
        };
        let (request, _) =
            derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
        let found = request.wishes.pod.rest;
        assert_eq!(found, MilliCpu(expected), "{percent} {qos:?} {prefers_shared} {whole}");
    }
}

#[test]
fn absurd_settings_are_treated_as_not_set() {
    let absurd = Resources {
        cpu_shares: i64::MIN,
        cpu_quota: i64::MIN,
        cpu_period: -5,
        memory_limit: i64::MIN,
        oom_score_adj: i64::MIN,
    };
    check(GUARANTEED, &[], absurd, "0 shared, memory 0 B");
    let huge = Resources {
        cpu_shares: i64::MAX,
        cpu_quota: i64::MAX,
        cpu_period: 1,
        memory_limit: i64::MAX,
        oom_score_adj: i64::MAX,
    };
    check(BURSTABLE, &[], huge, "256 shared, memory 0 B, ceiling 18446744073709551615m");
}

/// Nothing else that the pod wishes of CPUs, of its place and of its mates counts, but for what it wants left alone.
#[test]
fn a_container_on_chosen_cpus_requests_none() {
    let list = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let status = ("scheduling.koordinator.sh/resource-status", r#"{"cpuset":"4-5"}"#);
        let pairs = pairs.iter().chain([&status]);
        pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    for (namespace, pairs, preserve) in [
        ("default", &[][..], Preserve::default()),
        (
            "kube-system",
            &[("bayplan.dev/within", "numa"), ("bayplan.dev/apart", "core required")],
            Preserve::default(),
        ),
        (
            "default",
            &[("bayplan.dev/memory.preserve", "true")],
            Preserve { cpus: false, memory: true },
        ),
        (
            "default",
            &[("bayplan.dev/cpu.preserve", "true")],
            Preserve { cpus: true, memory: false },
        ),
    ] {
        let pod = Pod {
            namespace: namespace.into(),
            qos: Some(QosClass::Guaranteed),
            resources: cpu(4096, 400_000),
            annotations: list(pairs),
            ..Pod::default()
        };
        let container =
            NewContainer { pod, resources: cpu(2048, 200_000), ..NewContainer::default() };
        let rules = RequestRules {
            reserved_namespaces: vec!["kube-*".into()],
            permissions: vec![Rule::everything()],
            ..RequestRules::default()
        };
        let (request, warnings) =
            derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
        let wishes = Wishes {
            claimed: "4-5".parse().unwrap(),
            preserve,
            is_immovable: true,
            ..Wishes::default()
        };
        assert_eq!(request.wishes, wishes, "{pairs:?}");
        assert!(warnings.is_empty() && !request.is_reserved, "{warnings:?}");
        assert_eq!(request.demand, Demand::new(0, None));
        assert_eq!(request.memory, Bytes::gib(1));
        assert!(request.terms().preserve.cpus);
    }
}

#[test]
fn the_most_specific_annotation_wins_and_older_names_count() {
    let two_and_a_half = cpu(2560, 250_000);
    let split = "2 exclusive + 500m shared, memory 1 GiB, ceiling 2500m";
    check(GUARANTEED, &[], two_and_a_half, "2500m shared, memory 1 GiB, ceiling 2500m");
    for key in [
        "bayplan.dev/prefer-shared-cpus",
        "prefer-shared-cpus.bayplan.dev/pod",
        "prefer-shared-cpus.cri-resource-manager.intel.com/container.c",
        "prefer-shared-cpus.resource-policy.nri.io",
    ] {
        check(GUARANTEED, &[(key, "false")], two_and_a_half, split);
    }
    check(
        GUARANTEED,
        &[
            ("bayplan.dev/prefer-shared-cpus", "true"),
            ("prefer-shared-cpus.bayplan.dev/container.c", "false"),
        ],
        two_and_a_half,
        split,
    );
    check(
        GUARANTEED,
        &[("bayplan.dev/prefer-reserved-cpus", "true")],
        cpu(1024, 100_000),
        "1 exclusive, memory 1 GiB, ceiling 1, reserved",
    );
}

#[test]
fn what_cannot_be_understood_is_said_and_shares() {
    check(
        "/weird",
        &[],
        cpu(2048, 200_000),
        "2 shared, memory 0 B, ceiling 2; cgroup parent `/weird` does not tell a QoS class (expected \
         .../kubepods/... or ...kubepods-...-pod*.slice); treated as shared",
    );
    check(
        "/weird\u{1b}[2J",
        &[],
        cpu(2048, 200_000),
        "2 shared, memory 0 B, ceiling 2; cgroup parent `/weird\\u{1b}[2J` does not tell a QoS class (expected \
         .../kubepods/... or ...kubepods-...-pod*.slice); treated as shared",
    );
    check(
        GUARANTEED,
        &[("bayplan.dev/prefer-shared-cpus", "maybe")],
        cpu(1024, 100_000),
        "1 exclusive, memory 1 GiB, ceiling 1; annotation `bayplan.dev/prefer-shared-cpus` is `maybe`, \
         expected true or false; ignored",
    );
}

#[test]
fn the_configuration_decides_where_the_pod_says_nothing() {
    let rules = RequestRules {
        reserved_namespaces: vec!["kube-*".into()],
        permissions: vec![Rule::everything()],
        prefer_isolated_cpus: true,
        ..RequestRules::default()
    };
    for (namespace, annotation, cpus, is_reserved, isolated) in [
        ("kube-system", ("", ""), 1, true, Some(Strictness::Preferred)),
        ("default", ("", ""), 2, false, None),
        ("default", ("bayplan.dev/prefer-isolated-cpus", "false"), 1, false, None),
        (
            "default",
            ("bayplan.dev/prefer-isolated-cpus", "true"),
            2,
            false,
            Some(Strictness::Preferred),
        ),
        ("kube-dns", ("bayplan.dev/prefer-reserved-cpus", "false"), 2, false, None),
    ] {
        let container = NewContainer {
            pod: Pod {
                namespace: namespace.into(),
                qos: Some(QosClass::Guaranteed),
                annotations: [(annotation.0.to_owned(), annotation.1.to_owned())].into(),
                ..Pod::default()
            },
            resources: cpu(cpus * 1024, cpus * 100_000),
            ..NewContainer::default()
        };
        let (request, _) =
            derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
        let found = (request.is_reserved, request.wishes.cpus.isolated);
        assert_eq!(found, (is_reserved, isolated), "{namespace} {annotation:?} {cpus}");
    }
}

#[test]
fn cpus_isolated_at_boot_are_next_to_a_partition_unless_the_pod_says_no() {
    let rows = [
        (false, 2000, None, None),
        (true, 2000, None, Some(Strictness::Preferred)),
        (true, 3000, None, None),
        (true, 1500, None, None),
        (true, 500, None, None),
        (true, 2000, Some("prefer-isolated-cpus: false"), None),
        (true, 2000, Some("require-isolated-cpus: true"), Some(Strictness::Required)),
    ];
    for (lacks_partition, milli, annotation, expected) in rows {
        let pair = annotation.and_then(|it| it.split_once(": "));
        let pair = pair.map(|(name, value)| (format!("bayplan.dev/{name}"), value.to_owned()));
        let pod = Pod {
            qos: Some(QosClass::Guaranteed),
            annotations: pair.into_iter().collect(),
            ..Pod::default()
        };
        let resources = cpu(milli * 1024 / 1000, milli * 100);
        let container = NewContainer { pod, resources, lacks_partition, ..NewContainer::default() };
        let rules = RequestRules::default();
        let hardware = Hardware { isolated_in_a_node: 2, ..Hardware::default() };
        let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
        assert_eq!(request.wishes.cpus.isolated, expected, "{milli} {annotation:?}");
    }
}

/// NRI tells no score with an update, CRI does.
#[test]
fn a_resize_of_memory_leaves_a_container_the_class_of_its_own() {
    let memory = Some(Bytes::gib(64));
    let resources = |gib: i64, oom_score_adj: i64| Resources {
        cpu_shares: 2048,
        cpu_quota: 200_000,
        cpu_period: 100_000,
        memory_limit: gib << 30,
        oom_score_adj,
    };
    let check = |has_own_qos: bool, had: i64, to: Resources, expected: (i64, QosClass)| {
        let pod = Pod { qos: Some(QosClass::Burstable), ..Pod::default() };
        let rules = RequestRules { has_own_qos, ..RequestRules::default() };
        let resources = resources(4, had);
        let mut container = NewContainer { pod, resources, ..NewContainer::default() };
        container.resources = updated_resources(&container, to, &rules, memory);
        let (asked, _) = read_annotations(&container, &rules);
        let qos = qos_of(&container, &asked, memory).unwrap();
        assert_eq!((container.resources.oom_score_adj, qos), expected, "{had} {to:?}");
    };
    check(true, 938, resources(8, 0), (875, QosClass::Guaranteed));
    check(true, 938, resources(8, 875), (875, QosClass::Guaranteed));
    check(true, 938, resources(8, 938), (938, QosClass::Burstable));
    check(true, 900, resources(8, 0), (900, QosClass::Burstable));
    check(true, 938, resources(0, 0), (938, QosClass::Guaranteed));
    check(false, 938, resources(8, 0), (938, QosClass::Burstable));
}

#[test]
fn a_container_with_a_class_of_its_own_has_exclusive_cpus_in_a_burstable_pod() {
    let check = |has_own_qos: bool, annotation: Option<&str>, quota: i64, exclusive: usize| {
        let annotations =
            annotation.map(|value| ("bayplan.dev/qos-per-container".to_owned(), value.to_owned()));
        let pod = Pod {
            qos: Some(QosClass::Burstable),
            annotations: annotations.into_iter().collect(),
            ..Pod::default()
        };
        let resources = Resources { memory_limit: 4 << 30, oom_score_adj: 938, ..cpu(2048, quota) };
        let container = NewContainer { pod, resources, ..NewContainer::default() };
        let rules = RequestRules { has_own_qos, ..RequestRules::default() };
        let hardware = Hardware { memory: Some(Bytes::gib(64)), ..Hardware::default() };
        let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
        assert_eq!(request.demand.exclusive(), exclusive, "{annotation:?} {quota}");
    };
    check(false, None, 200_000, 0);
    check(true, None, 200_000, 2);
    check(false, Some("true"), 200_000, 2);
    check(true, Some("false"), 200_000, 0);
    // Its limit is above its request.
    check(true, None, 300_000, 0);
}
