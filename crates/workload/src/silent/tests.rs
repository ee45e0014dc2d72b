use crate::container::Pod;

use super::*;

/// Settings that kubelet writes for a request and a limit in milli-CPU, and so many GiB; a limit of zero is none.
fn written(request: u64, limit: u64, gib: i64) -> Resources {
    Resources {
        cpu_shares: i64::try_from(shares_of(MilliCpu(request))).unwrap(),
        cpu_quota: i64::try_from(limit * 100).unwrap(),
        cpu_period: 100_000,
        memory_limit: gib << 30,
        ..Resources::default()
    }
}

/// Containers as `NAME REQUEST/LIMIT GIB`, a `!` after one that was known as silent, of a pod `REQUEST/LIMIT GIB`. What each counts:
/// `NAME CPU MEMORY`, with `*` for the holder of the pod's CPUs and `+` for one that runs on them.
fn check(qos: QosClass, pod: &str, containers: &[&str], expected: &[&str]) {
    let amounts = |text: &str| {
        let (cpu, gib) = text.split_once(' ').unwrap();
        let (request, limit) = cpu.split_once('/').unwrap();
        written(request.parse().unwrap(), limit.parse().unwrap(), gib.parse().unwrap())
    };
    let pod = Pod { qos: Some(qos), resources: amounts(pod), ..Pod::default() };
    let container = |text: &&str| {
        let (text, is_silent) = text.strip_suffix('!').map_or((*text, false), |text| (text, true));
        let (name, settings) = text.split_once(' ').unwrap();
        NewContainer {
            pod: pod.clone(),
            name: name.to_owned(),
            resources: amounts(settings),
            is_silent,
            ..NewContainer::default()
        }
    };
    let mut containers: Vec<NewContainer> = containers.iter().map(container).collect();
    let members: Vec<Member<'_>> = (0..).map(ContainerId).zip(&containers).collect();
    let silent = silent(&members);
    for (container, id) in containers.iter_mut().zip(0..) {
        container.is_silent = silent.contains(&ContainerId(id));
    }
    let members: Vec<Member<'_>> = (0..).map(ContainerId).zip(&containers).collect();
    let shown = members.iter().map(|(id, it)| {
        let share = share(*id, &members).unwrap_or_default();
        let own = it.resources.requests(Some(qos), None);
        let (cpu, memory) = (share.cpu.unwrap_or(own.cpu), share.memory.unwrap_or(own.memory));
        let part = match share.part {
            Part::Alone => "",
            Part::Holder => "*",
            Part::Joined => "+",
            _ => unreachable!("no share is a group"),
        };
        format!("{}{part} {cpu} {}", it.name, memory.0 >> 30)
    });
    let shown: Vec<String> = shown.collect();
    assert_eq!(shown, expected, "{pod:?}");
}

#[test]
fn silent_containers_of_a_guaranteed_pod_have_together_what_the_others_leave() {
    for (pod, containers, expected) in [
        // One that is alone in its pod, and pods without a figure of their own: nothing changes.
        ("4000/4000 4", &["a 4000/4000 4"][..], &["a 4 4"][..]),
        ("6000/6000 6", &["a 2000/2000 2", "b 4000/4000 4"], &["a 2 2", "b 4 4"]),
        ("0/0 0", &["a 4000/4000 4", "b 4000/4000 4"], &["a 4 4", "b 4 4"]),
        // Three that say nothing.
        (
            "4000/4000 4",
            &["a 4000/4000 4", "b 4000/4000 4", "c 4000/4000 4"],
            &["a* 4 4", "b+ 0 0", "c+ 0 0"],
        ),
        // One says its own, in any order.
        ("4000/4000 4", &["a 4000/4000 4", "b 1000/1000 1"], &["a* 3 3", "b 1 1"]),
        (
            "4000/4000 4",
            &["a 1000/1000 1", "b 4000/4000 4", "c 4000/4000 4"],
            &["a 1 1", "b* 3 3", "c+ 0 0"],
        ),
        // Only CPUs, only memory.
        ("4000/4000 4", &["a 4000/4000 1", "b 4000/4000 1"], &["a* 4 1", "b+ 0 1"]),
        ("4000/4000 4", &["a 1000/1000 4", "b 3000/3000 4"], &["a 1 4", "b 3 0"]),
        // All is said by one of them.
        (
            "4000/4000 4",
            &["a 4000/4000 4", "b 2000/2000 2", "c 2000/2000 2"],
            &["a 0 0", "b 2 2", "c 2 2"],
        ),
        // A request without a limit.
        ("4000/4000 4", &["a 500/4000 1", "b 2000/2000 2"], &["a* 2 1", "b 2 2"]),
        // No whole CPUs; a fraction beside others.
        ("3500/3500 4", &["a 3500/3500 4", "b 3500/3500 4"], &["a 3500m 4", "b 0 0"]),
        ("4000/4000 4", &["a 4000/4000 4", "b 500/500 1"], &["a* 3500m 3", "b 500m 1"]),
        // Limits are not enforced.
        ("4000/0 4", &["a 4000/0 4", "b 4000/0 4"], &["a* 4 4", "b+ 0 0"]),
    ] {
        check(QosClass::Guaranteed, pod, containers, expected);
    }
}

#[test]
fn silent_containers_of_a_burstable_pod_count_its_request_once() {
    for (pod, containers, expected) in [
        (
            "2000/8000 4",
            &["a 8000/8000 4", "b 8000/8000 4", "c 8000/8000 4"][..],
            &["a 2 0", "b 0 0", "c 0 0"][..],
        ),
        ("2000/8000 4", &["a 8000/8000 4"], &["a 2 0"]),
        ("2000/8000 4", &["a 500/8000 4", "b 8000/8000 4"], &["a 500m 0", "b 1500m 0"]),
        ("3000/4000 4", &["a 1000/2000 1", "b 2000/2000 3"], &["a 1 0", "b 2 0"]),
        ("2000/0 0", &["a 8000/0 0", "b 8000/0 0"], &["a 2 0", "b 0 0"]),
        ("2000/0 0", &["a 2000/0 0", "b 2/0 0"], &["a 2 0", "b 0 0"]),
    ] {
        check(QosClass::Burstable, pod, containers, expected);
    }
}

/// Kubelet changes pod and containers one after another, in either order.
#[test]
fn silent_containers_stay_silent_through_a_resize() {
    for (pod, containers, expected) in [
        ("2000/2000 2", &["a 4000/4000 4!", "b 2000/2000 2!"][..], &["a* 4 4", "b+ 0 0"][..]),
        ("4000/4000 4", &["a 2000/2000 2!", "b 2000/2000 2!"], &["a* 4 2", "b+ 0 2"]),
        ("4000/4000 4", &["a 2000/2000 2!", "b 4000/4000 4!"], &["a* 4 2", "b+ 0 2"]),
        (
            "6000/6000 6",
            &["a 4000/4000 4!", "b 6000/6000 6!", "c 4000/4000 4!"],
            &["a* 6 6", "b+ 0 0", "c+ 0 0"],
        ),
        ("2000/2000 2", &["a 4000/4000 4!", "b 4000/4000 4!"], &["a* 4 4", "b+ 0 0"]),
        // Kubelet 1.37 writes no request when it resizes them.
        (
            "1000/1000 4",
            &["a 0/1000 4!", "b 0/1000 4!", "c 500/500 4!"],
            &["a* 1 4", "b+ 0 0", "c+ 0 0"],
        ),
        (
            "1000/1000 4",
            &["a 0/1000 4!", "b 0/500 4!", "c 0/500 4!"],
            &["a* 1 4", "b+ 0 0", "c+ 0 0"],
        ),
        // The last of them is alone again.
        ("4000/4000 4", &["a 4000/4000 4!"], &["a 4 4"]),
    ] {
        check(QosClass::Guaranteed, pod, containers, expected);
    }
}
