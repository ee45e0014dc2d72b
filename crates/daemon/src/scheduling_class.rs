//! Which class of scheduling a container has. In: classes of the configuration, what is named, the pod. Out: a class, and what this front end cannot set of it.

use bayplan_enforcement::{NamedScheduling, SchedulingClass};
use bayplan_host::groups_realtime_threads;
use bayplan_host::kernel::Kernel;
use bayplan_workload::Pod;
use bayplan_workload::annotations::matches_glob;

use crate::config::{Config, FrontEnd};
use crate::finding::Finding;

/// The class that is named by a container's pod or by its group, or that of its namespace, or of its QoS class. A name that is not defined is none; a warning says so.
pub(crate) fn class_of<'a>(
    classes: &'a [NamedScheduling],
    named: Option<&str>,
    pod: &Pod,
) -> Option<&'a NamedScheduling> {
    if let Some(name) = named {
        return classes.iter().find(|it| it.name == name);
    }
    let is_of_namespace = |it: &&NamedScheduling| {
        it.namespaces.iter().any(|pattern| matches_glob(pattern, &pod.namespace))
    };
    let is_of_qos = |it: &&NamedScheduling| pod.qos.is_some_and(|qos| it.qos.contains(&qos));
    classes.iter().find(is_of_namespace).or_else(|| classes.iter().find(is_of_qos))
}

/// What a container does not have by the CRI proxy.
pub(crate) fn without_front_end(unit: &str, class: &str) -> String {
    format!(
        "{unit}: of its scheduling class \"{class}\" the policy, nice value and I/O priority of threads are not set: CRI cannot say them, `frontEnd: nri` can"
    )
}

/// What a container does not have where the kernel gives groups no time for real-time threads.
pub(crate) fn without_realtime(unit: &str, class: &str) -> String {
    format!("{unit}: its scheduling class \"{class}\" is real-time, and {REALTIME_REFUSED}")
}

const REALTIME_REFUSED: &str =
    "this kernel gives groups no time for real-time threads (CONFIG_RT_GROUP_SCHED with cgroup v1)";

/// Whether its threads are to be real-time, which this kernel refuses.
pub(crate) fn lacks_realtime(class: &SchedulingClass, kernel: &mut dyn Kernel) -> bool {
    class.is_realtime() && groups_realtime_threads(kernel)
}

/// Classes that this kernel refuses.
pub(crate) fn check_realtime(config: &Config, kernel: &mut dyn Kernel) -> Option<Finding> {
    let mut classes =
        config.scheduling_classes.iter().filter(|it| it.class.is_realtime()).peekable();
    classes.peek()?;
    if config.front_end == FrontEnd::Cri || !groups_realtime_threads(kernel) {
        return None;
    }
    let names: Vec<&str> = classes.map(|it| it.name.as_str()).collect();
    let message =
        format!("containers of {} have no real-time policy: {REALTIME_REFUSED}", names.join(", "));
    let remedy =
        "use cgroup v2 and a kernel without CONFIG_RT_GROUP_SCHED, or a class without fifo and rr";
    Some(Finding::warning("schedulingClasses", message, remedy))
}

/// Classes of which something is not set on this node.
pub(crate) fn check_scheduling(config: &Config) -> Option<Finding> {
    let classes = config.scheduling_classes.iter().filter(|it| !it.class.threads.is_empty());
    let names: Vec<&str> = classes.map(|it| it.name.as_str()).collect();
    if names.is_empty() || config.front_end == FrontEnd::Nri {
        return None;
    }
    let message = format!(
        "of {} the policy, nice value and I/O priority of threads are not set: CRI cannot say them",
        names.join(", ")
    );
    let remedy = "set frontEnd: nri, for containers that are created from then on";
    Some(Finding::warning("schedulingClasses", message, remedy))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bayplan_host::fake_kernel::FakeKernel;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::config::parse_config;

    #[test]
    fn a_kernel_that_gives_groups_no_time_refuses_realtime_policies() {
        let check = |class: &str, files: &[&str]| {
            let text = format!("frontEnd: nri\nschedulingClasses: [{{name: first, {class}}}]\n");
            let config = parse_config(Path::new("c"), &text).unwrap();
            let files: Vec<(&str, &str)> = files.iter().map(|it| (*it, "0\n")).collect();
            let mut kernel = FakeKernel::new(&files);
            check_realtime(&config, &mut kernel).map(|it| it.message).unwrap_or_default()
        };
        let grouped = &["sys/fs/cgroup/cpu/cpu.rt_runtime_us"];
        expect!["containers of first have no real-time policy: this kernel gives groups no time for real-time threads (CONFIG_RT_GROUP_SCHED with cgroup v1)"]
            .assert_eq(&check("policy: rr, priority: 2", grouped));
        expect![].assert_eq(&check("policy: rr, priority: 2", &[]));
        expect![].assert_eq(&check("policy: batch", grouped));
    }

    #[test]
    fn classes_with_policies_of_threads_need_nri() {
        let check = |front_end: &str, expected: Expect| {
            let text = format!(
                "frontEnd: {front_end}\nschedulingClasses:\n- {{name: calm, policy: idle}}\n- {{name: rt, policy: fifo, priority: 2}}\n"
            );
            let config = parse_config(Path::new("c"), &text).unwrap();
            expected.assert_eq(&check_scheduling(&config).map(|it| it.message).unwrap_or_default());
        };
        check("nri", expect![]);
        check(
            "cri",
            expect![
                "of rt the policy, nice value and I/O priority of threads are not set: CRI cannot say them"
            ],
        );
    }
}
