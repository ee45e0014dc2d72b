//! What is re-enacted: which containers run, what is measured, and the form in which the seed tells it. Pure.

use super::chains::Deployment;
use super::configuration::Configuration;
use super::machine::Machine;
use super::sizes::Sizes;

/// Quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// What background pods do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    Memcpy,
    Cpu,
}

/// Koordinator's words for an application's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orchestration {
    /// LSE with `FullPCPUs`.
    Lse,
    /// LSR with `SpreadByPCPUs` and `PCPULevel`.
    Lsr,
}

/// What happens in one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    /// redis beside two background pods.
    Redis { server: Qos, noise: Noise, beside: Qos },
    /// Six compute kernels, one after the other, beside a CPU hog.
    Aggressor,
    /// Two compute kernels side by side: the one of [`PAIR`] with this index is Guaranteed, the other Burstable.
    Colocated(usize),
    /// Compute kernels with nothing beside them.
    Alone,
    /// Two web servers, one of which is measured.
    Web(Orchestration),
    /// TCP over a veth, first alone and then beside a hog.
    Network,
    /// Packets between two virtual ports of DPDK, first alone and then beside a hog.
    Packets,
    /// redis and its client as pods, where the client asks to be near redis, or far from it.
    Affinity { is_near: bool },
    /// Chains of services, each instance with a load of its own.
    Chains(Deployment),
}

/// The form of the seed's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A row per configuration, in multiples of the lowest median of the first column of the same operation.
    Factors,
    /// Box plots of execution times, normalised to the best run.
    Boxes,
    /// A row per figure, a column per configuration.
    Figures,
    /// A row per configuration, a column per figure.
    Values,
}

/// One figure of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// Less is better, as of all but rates.
    pub(crate) is_cost: bool,
}

/// A row of [`SCENARIOS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) seed: &'static str,
    pub(crate) play: Play,
    pub(crate) form: Form,
}

const CRI_RM: &str = "CRI Resource Manager, technology guide";
const CPU_MANAGER: &str = "Kubernetes, feature highlight: CPU Manager";
const CMK: &str = "Enhanced Platform Awareness, application note (CMK)";
const KOORDINATOR: &str = "Koordinator, fine-grained CPU orchestration";
const ORCHESTRATION: &str = "Resource orchestration, technology guide";

const STATIC_IS_FOR_GUARANTEED: &str =
    "kubelet's static CPU manager pins Guaranteed containers only";

/// In the order in which they are played.
pub(crate) const SCENARIOS: [Scenario; 16] = [
    Scenario {
        name: "redis-guaranteed",
        title: "redis Guaranteed, background memcpy Burstable (table 8)",
        seed: CRI_RM,
        play: Play::Redis { server: Qos::Guaranteed, noise: Noise::Memcpy, beside: Qos::Burstable },
        form: Form::Factors,
    },
    Scenario {
        name: "redis-guaranteed-cpu",
        title: "redis Guaranteed, background CPU-bound, Burstable (section 5)",
        seed: CRI_RM,
        play: Play::Redis { server: Qos::Guaranteed, noise: Noise::Cpu, beside: Qos::Burstable },
        form: Form::Factors,
    },
    Scenario {
        name: "redis-burstable",
        title: "redis and background memcpy Burstable (table 9)",
        seed: CRI_RM,
        play: Play::Redis { server: Qos::Burstable, noise: Noise::Memcpy, beside: Qos::Burstable },
        form: Form::Factors,
    },
    Scenario {
        name: "redis-besteffort",
        title: "redis and background memcpy BestEffort (table 10)",
        seed: CRI_RM,
        play: Play::Redis {
            server: Qos::BestEffort,
            noise: Noise::Memcpy,
            beside: Qos::BestEffort,
        },
        form: Form::Factors,
    },
    Scenario {
        name: "redis-near",
        title: "redis and its client with affinity (section 4.1)",
        seed: CRI_RM,
        play: Play::Affinity { is_near: true },
        form: Form::Values,
    },
    Scenario {
        name: "redis-far",
        title: "redis and its client with anti-affinity (section 4.1)",
        seed: CRI_RM,
        play: Play::Affinity { is_near: false },
        form: Form::Values,
    },
    Scenario {
        name: "aggressor",
        title: "compute kernels Guaranteed beside a CPU hog",
        seed: CPU_MANAGER,
        play: Play::Aggressor,
        form: Form::Boxes,
    },
    Scenario {
        name: "colocated-compute",
        title: "a Guaranteed kernel that computes beside a Burstable one that copies memory",
        seed: CPU_MANAGER,
        play: Play::Colocated(0),
        form: Form::Boxes,
    },
    Scenario {
        name: "colocated-memory",
        title: "a Guaranteed kernel that copies memory beside a Burstable one that computes",
        seed: CPU_MANAGER,
        play: Play::Colocated(1),
        form: Form::Boxes,
    },
    Scenario {
        name: "alone",
        title: "compute kernels alone",
        seed: CPU_MANAGER,
        play: Play::Alone,
        form: Form::Boxes,
    },
    Scenario {
        name: "nginx-lse",
        title: "nginx beside nginx, LSE with FullPCPUs (A and B)",
        seed: KOORDINATOR,
        play: Play::Web(Orchestration::Lse),
        form: Form::Figures,
    },
    Scenario {
        name: "nginx-lsr",
        title: "nginx beside nginx, LSR with SpreadByPCPUs and PCPULevel (A and C)",
        seed: KOORDINATOR,
        play: Play::Web(Orchestration::Lsr),
        form: Form::Figures,
    },
    Scenario {
        name: "qperf",
        title: "TCP over a veth, alone and beside a hog (figures 8 and 9)",
        seed: CMK,
        play: Play::Network,
        form: Form::Values,
    },
    Scenario {
        name: "testpmd",
        title: "DPDK forwards packets between virtual ports, alone and beside a hog (figure 6)",
        seed: CMK,
        play: Play::Packets,
        form: Form::Values,
    },
    Scenario {
        name: "chain-spread",
        title: "one instance of a chain of services, spread over the machine (configuration 1 of tables 3 and 6)",
        seed: ORCHESTRATION,
        play: Play::Chains(Deployment::Spread),
        form: Form::Values,
    },
    Scenario {
        name: "chain-namespaces",
        title: "an instance in a namespace for each NUMA node, under groups like numa-namespace with Bayplan (configurations 2 to 4)",
        seed: ORCHESTRATION,
        play: Play::Chains(Deployment::Namespaces),
        form: Form::Values,
    },
];

/// A compute kernel: its name, and its arguments for stress-ng, with `N` for the number of processes.
pub(crate) type Kernel = (&'static str, &'static str);

/// In place of six of PARSEC: floating point, memory and integers; each finishes some fifty operations a second or more, so that two seconds tell its rate.
pub(crate) const KERNELS: [Kernel; 6] = [
    ("matrix", "--matrix N"),
    ("matrixprod", "--cpu N --cpu-method matrixprod"),
    ("fft", "--cpu N --cpu-method fft"),
    ("bsearch", "--bsearch N"),
    ("memcpy", "--memcpy N"),
    ("zlib", "--zlib N"),
];

/// In place of Blackscholes and Canneal, and of the two models that run alone: one that computes, one that needs memory.
pub(crate) const PAIR: [Kernel; 2] = [KERNELS[0], KERNELS[4]];

/// The key of what the background has got: shorter waits may be at its expense.
pub(crate) const BACKGROUND: &str = "background";

/// The key of how much of the machine services use.
pub(crate) const CPU_USE: &str = "cpu_use";
/// The key of how much of the services' memory is on NUMA nodes where they run, whether they are kept there or not.
pub(crate) const MEMORY_AT_HAND: &str = "memory_at_hand";

/// Keys of where the measured container runs; see [`placement`].
pub(crate) const CPUS: &str = "cpus";
/// As [`CPUS`].
pub(crate) const CPUS_ALONE: &str = "cpus_alone";
/// As [`CPUS`].
pub(crate) const SWITCHES: &str = "involuntary_switches";
/// As [`CPUS`].
pub(crate) const LOCAL_MEMORY: &str = "local_memory";

/// What is told of the measured container in every scenario: a machine that is busy or slow tells it as well as any other.
pub(crate) fn placement() -> Vec<Metric> {
    let rows = [
        (CPUS, "CPUs", "CPUs", false),
        (CPUS_ALONE, "of them its own", "CPUs", false),
        (SWITCHES, "involuntary switches, 1/s", "1/s", true),
        (LOCAL_MEMORY, "local memory, %", "%", false),
    ];
    let metric = |(key, title, unit, is_cost): (&str, &str, _, _)| Metric {
        key: key.to_owned(),
        title: title.to_owned(),
        unit,
        is_cost,
    };
    rows.map(metric).to_vec()
}

/// Bytes of a message of qperf.
pub(crate) const MESSAGES: [u32; 2] = [64, 1024];

impl Scenario {
    pub(crate) fn by_name(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|it| it.name == name)
    }

    /// Why it cannot be shown on this machine.
    pub(crate) fn left_out(&self, machine: &Machine) -> Option<&'static str> {
        if machine.cpus < 2 {
            return Some("one CPU: nothing can be kept apart");
        }
        match self.play {
            Play::Web(Orchestration::Lsr) if machine.threads_per_core < 2 => Some(
                "one thread per core: SpreadByPCPUs places as FullPCPUs does, so C would be B again",
            ),
            Play::Affinity { .. } if machine.numa_nodes < 2 => {
                Some("one NUMA node: nothing is near or far")
            }
            Play::Chains(_) if machine.numa_nodes < 2 => {
                Some("one NUMA node: no namespace can have one of its own")
            }
            _ => None,
        }
    }

    /// Guests have no drivers for virtual networks, and no programs of DPDK.
    pub(crate) fn is_for_guests(&self) -> bool {
        !matches!(self.play, Play::Network | Play::Packets)
    }

    /// Why it says nothing about a configuration.
    pub(crate) fn leaves_out(&self, configuration: Configuration) -> Option<&'static str> {
        match self.play {
            Play::Redis { server: Qos::Burstable | Qos::BestEffort, .. }
                if configuration.is_static() =>
            {
                Some(STATIC_IS_FOR_GUARANTEED)
            }
            Play::Chains(_) if configuration.is_static() => Some(STATIC_IS_FOR_GUARANTEED),
            Play::Affinity { .. } if !configuration.reads_annotations() => {
                Some("kubelet knows no affinity between containers of a node")
            }
            _ => None,
        }
    }

    /// What differs from the seed on this machine, and is to be said beside its figures.
    pub(crate) fn remarks(&self, machine: &Machine) -> Vec<String> {
        let mut remarks = Vec::new();
        let is_low =
            matches!(self.play, Play::Redis { server: Qos::Burstable | Qos::BestEffort, .. });
        if is_low && machine.numa_nodes < 2 {
            remarks.push("one NUMA node: every configuration lets both run on all CPUs, so equal figures are expected".to_owned());
        }
        let has_clients = matches!(self.play, Play::Redis { .. } | Play::Web(_) | Play::Network);
        if has_clients && machine.cpus < 4 {
            remarks.push("few CPUs: a server that is not pinned also shares a CPU with its clients, which take precedence; with a second machine for clients it would not".to_owned());
        }
        if matches!(self.play, Play::Chains(_)) {
            remarks.push("clients take precedence on an eighth of each NUMA node, which Bayplan keeps free of services (reservedCpus); services that are not pinned run there, too, which a second machine for clients would spare them".to_owned());
        }
        if matches!(self.play, Play::Web(_)) && machine.cpus < 3 {
            let milli = Sizes::of(machine.cpus).second_web_milli;
            remarks.push(format!(
                "two CPUs: the second web server has a limit of {milli}m and no CPU of its own"
            ));
        }
        remarks
    }

    /// What a measurement gives.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let metric =
            |key: String, title: String, unit, is_cost| Metric { key, title, unit, is_cost };
        match self.play {
            Play::Redis { .. } => {
                let percentiles = [("p50", "median"), ("p99", "99 %"), ("p999", "99.9 %")];
                let of = |operation: &'static str| {
                    percentiles.map(|(key, title)| {
                        let key = format!("{operation}_{key}");
                        metric(key, format!("{} {title}", operation.to_uppercase()), "ms", true)
                    })
                };
                let mut metrics: Vec<Metric> = ["get", "set"].into_iter().flat_map(of).collect();
                metrics.push(metric(BACKGROUND.into(), "background".into(), "CPUs", false));
                metrics
            }
            Play::Aggressor => KERNELS.map(|(name, _)| time_of(name)).to_vec(),
            Play::Alone => PAIR.map(|(name, _)| time_of(name)).to_vec(),
            Play::Colocated(first) => pair(first).titles().map(|it| time_of(&it)).to_vec(),
            Play::Web(_) => vec![
                metric("rps".into(), "RPS".into(), "1/s", false),
                metric("mean".into(), "RT-avg".into(), "ms", true),
                metric("p90".into(), "RT-p90".into(), "ms", true),
                metric("p99".into(), "RT-p99".into(), "ms", true),
            ],
            Play::Chains(_) => vec![
                metric("rps".into(), "RPS".into(), "1/s", false),
                metric("mean".into(), "RT-avg".into(), "ms", true),
                metric("p99".into(), "RT-p99".into(), "ms", true),
                metric(CPU_USE.into(), "CPU use".into(), "%", false),
                metric(
                    MEMORY_AT_HAND.into(),
                    "memory on the node where it is used".into(),
                    "%",
                    false,
                ),
            ],
            Play::Packets => ["alone", "noisy"]
                .map(|when| metric(format!("packets_{when}"), when.into(), "millions/s", false))
                .to_vec(),
            Play::Affinity { .. } => vec![
                metric("set_rps".into(), "SET".into(), "1/s", false),
                metric("set_p50".into(), "SET median".into(), "ms", true),
                metric("get_rps".into(), "GET".into(), "1/s", false),
                metric("get_p50".into(), "GET median".into(), "ms", true),
            ],
            Play::Network => {
                let of = |(when, size): (&str, u32)| {
                    let key = |what: &str| format!("{what}_{when}_{size}");
                    [
                        metric(key("bw"), format!("{when}, {size} B"), "MB/s", false),
                        metric(key("latency"), format!("{when}, {size} B"), "us", true),
                    ]
                };
                let cases = ["alone", "noisy"]
                    .into_iter()
                    .flat_map(|when| MESSAGES.map(|size| (when, size)));
                cases.flat_map(of).collect()
            }
        }
    }
}

/// Two kernels side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) guaranteed: Kernel,
    pub(crate) burstable: Kernel,
}

/// That of [`Play::Colocated`].
pub(crate) fn pair(first: usize) -> Pair {
    let [a, b] = PAIR;
    match first {
        0 => Pair { guaranteed: a, burstable: b },
        _ => Pair { guaranteed: b, burstable: a },
    }
}

impl Pair {
    /// The seed's names of the two plots: that of the Guaranteed kernel, and that of the Burstable one.
    pub(crate) fn titles(&self) -> [String; 2] {
        let (gu, bu) = (self.guaranteed.0, self.burstable.0);
        [format!("Gu-{gu}-Bu-{bu}"), format!("Bu-{bu}-Gu-{gu}")]
    }
}

/// The time that one operation takes; normalised to the best run, it is the normalised execution time.
fn time_of(name: &str) -> Metric {
    Metric { key: name.to_owned(), title: name.to_owned(), unit: "ms", is_cost: true }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::reenact::configuration::{CONFIGURATIONS, Given};
    use crate::reenact::test_support::machine;

    #[test]
    fn names_and_keys_are_unique() {
        let names: BTreeSet<&str> = SCENARIOS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        for scenario in &SCENARIOS {
            let metrics = scenario.metrics();
            let keys: BTreeSet<&str> = metrics.iter().map(|it| it.key.as_str()).collect();
            assert_eq!(keys.len(), metrics.len(), "{}", scenario.name);
        }
    }

    #[test]
    fn what_a_machine_cannot_show_has_a_reason() {
        let command = Some("cri-resmgr".to_owned());
        let given = Given { proxy: command.clone(), plugin: command };
        let left = |machine: &Machine| -> Vec<&str> {
            let scenarios = SCENARIOS.iter().filter(|it| it.left_out(machine).is_some());
            let configurations =
                CONFIGURATIONS.into_iter().filter(|it| it.left_out(machine, &given).is_some());
            scenarios.map(|it| it.name).chain(configurations.map(Configuration::name)).collect()
        };
        assert_eq!(
            left(&machine(2, 1, 1)),
            [
                "redis-near",
                "redis-far",
                "nginx-lsr",
                "chain-spread",
                "chain-namespaces",
                "static-topology",
                "static-full-cores",
            ]
        );
        assert_eq!(left(&machine(16, 1, 2)), ["nginx-lsr", "static-full-cores"]);
        assert_eq!(left(&machine(112, 2, 4)), [""; 0]);
        assert_eq!(
            SCENARIOS.iter().filter(|it| it.left_out(&machine(1, 1, 1)).is_some()).count(),
            SCENARIOS.len()
        );
    }
}
