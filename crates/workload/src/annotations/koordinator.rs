//! What Koordinator's and Katalyst's schedulers are told by a pod, as far as it maps to wishes. In: a label and JSON annotations. Out: the
//! same as if our own keys said it.

use bayplan_allocator::{Packing, Siblings, Strictness, Within};
use bayplan_topology::Level;
use bayplan_types::{CpuSet, NodeId, NodeSet, ParseSetError, QosClass};
use serde_json::{Map, Value};

use super::asked::Asked;
use super::field::Field;
use super::values::{FLAG, Misread, check_length, shown, word};
use super::warnings::{SHOWN_MAX, Warnings};
use super::yaml::string;
use super::{gas, runtimes, webhook};
use crate::container::Pod;

/// A name of another system, for the reference page.
#[derive(Debug)]
pub struct Foreign {
    /// The annotation or label.
    pub name: &'static str,
    /// Which system it belongs to, and which values count.
    pub values: &'static str,
    /// What they do.
    pub meaning: &'static str,
    /// What they fill.
    pub fills: &'static [Field],
}

const QOS: &str = "koordinator.sh/qosClass";
const RESOURCE_SPEC: &str = "scheduling.koordinator.sh/resource-spec";
const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";
const NUMA_SPEC: &str = "scheduling.koordinator.sh/numa-topology-spec";
const ENHANCEMENT: &str = "katalyst.kubewharf.io/cpu_enhancement";
const MEMORY_ENHANCEMENT: &str = "katalyst.kubewharf.io/memory_enhancement";
const QOS_LEVEL: &str = "katalyst.kubewharf.io/qos_level";

/// What is shown of why a list of CPUs cannot be read.
const DETAIL_MAX: usize = 100;

/// Everything that is read here.
pub static FOREIGN: &[Foreign] = &[
    Foreign {
        name: QOS,
        values: "label; LSE, LSR, LS, BE, SYSTEM",
        meaning: "LSE, LSR: exclusive CPUs, also in Burstable pods for whole CPUs as request and limit; LSE: idle siblings; LSR: lent; LS, BE: shared; SYSTEM: reserved, where `permissions` allow it",
        fills: &[Field::PreferSharedCpus, Field::Siblings, Field::IsReserved, Field::Lends],
    },
    Foreign {
        name: RESOURCE_SPEC,
        values: "JSON; requiredCPUBindPolicy, preferredCPUBindPolicy: FullPCPUs, SpreadByPCPUs; preferredCPUExclusivePolicy: PCPULevel, \
                 NUMANodeLevel",
        meaning: "as packing (required SpreadByPCPUs: one-per-core), whole-cores-only (required FullPCPUs) and apart (of all other exclusive containers)",
        fills: &[Field::Packing, Field::OnlyWholeCores, Field::Apart],
    },
    Foreign {
        name: RESOURCE_STATUS,
        values: "JSON, written by Koordinator's scheduler; cpuset: a list such as 0-3; numaNodeResources: NUMA nodes",
        meaning: "every container of a Guaranteed, LSE or LSR pod runs on these CPUs, and no other pod does, where `permissions` allow it; or it is refused. NUMA nodes without CPUs: rather there",
        fills: &[Field::Claimed],
    },
    Foreign {
        name: webhook::BATCH,
        values: "JSON, written by Koordinator's webhook; limits of kubernetes.io/batch-cpu and kubernetes.io/batch-memory by container",
        meaning: "what a container of a BestEffort pod may use at most, where kernel files are written",
        fills: &[Field::Batch],
    },
    Foreign {
        name: NUMA_SPEC,
        values: "JSON; numaTopologyPolicy: SingleNUMANode, Restricted, BestEffort",
        meaning: "SingleNUMANode, Restricted: as within numa, fewest-numa; BestEffort: what holds without it",
        fills: &[Field::Within],
    },
    Foreign {
        name: ENHANCEMENT,
        values: "JSON; full_pcpus_pairing, distribute_evenly_across_numa",
        meaning: "as whole-cores-only and even-across-numa",
        fills: &[Field::OnlyWholeCores, Field::IsEven],
    },
    Foreign {
        name: MEMORY_ENHANCEMENT,
        values: "JSON; numa_binding, numa_exclusive",
        meaning: "numa_binding: as within fewest-numa and memory-bound; numa_exclusive: as apart numa",
        fills: &[Field::Within, Field::MemoryIsBound, Field::Apart],
    },
    Foreign {
        name: QOS_LEVEL,
        values: "dedicated_cores, shared_cores, reclaimed_cores, system_cores",
        meaning: "dedicated_cores: exclusive CPUs; shared_cores, reclaimed_cores: shared CPUs; system_cores: reserved CPUs, where `permissions` allow it",
        fills: &[Field::PreferSharedCpus, Field::IsReserved],
    },
    Foreign {
        name: webhook::NAMES[0],
        values: WEBHOOK_VALUES,
        meaning: "the exact requests, written by nri-plugins' resource annotator; what kubelet's cgroup settings contradict does not count",
        fills: &[Field::Requests, Field::CpuClass],
    },
    Foreign {
        name: webhook::NAMES[1],
        values: WEBHOOK_VALUES,
        meaning: "the same, written by CRI Resource Manager's webhook",
        fills: &[Field::Requests, Field::CpuClass],
    },
    Foreign {
        name: runtimes::CRIO_BALANCING,
        values: "disable, enable; with /CONTAINER for one",
        meaning: "disable: as cpu-partition isolated",
        fills: &[Field::Partition],
    },
    Foreign {
        name: runtimes::CRIO_QUOTA,
        values: "disable, enable; with /CONTAINER for one",
        meaning: "as cpu-quota",
        fills: &[Field::Quota],
    },
    Foreign {
        name: runtimes::CRIO_INTERRUPTS,
        values: "disable, enable, housekeeping; with /CONTAINER for one",
        meaning: "as irq-load-balancing",
        fills: &[Field::Interrupts],
    },
    Foreign {
        name: runtimes::CRIO_C_STATES,
        values: "disable, enable, max_latency:MICROSECONDS; with /CONTAINER for one",
        meaning: "how long its exclusive CPUs may take to wake up: not at all, any time, so long",
        fills: &[Field::WakeUp],
    },
    Foreign {
        name: runtimes::CRIO_GOVERNOR,
        values: "a governor such as performance; with /CONTAINER for one",
        meaning: "what picks the frequency of its exclusive CPUs",
        fills: &[Field::CpuGovernor],
    },
    Foreign {
        name: runtimes::BLOCK_IO,
        values: "/pod or /container.NAME; the name of a class",
        meaning: "as blockioclass",
        fills: &[Field::BlockIoClass],
    },
    Foreign {
        name: runtimes::RESCTRL,
        values: "/pod or /container.NAME; the name of a class",
        meaning: "as rdtclass",
        fills: &[Field::ResctrlClass],
    },
    // Before the others, so that a refusal names it.
    Foreign {
        name: gas::SINGLE_NUMA,
        values: "true or false",
        meaning: "true: on the NUMA node of its GPUs, or refused",
        fills: &[Field::Near],
    },
    Foreign {
        name: gas::CARDS,
        values: "cards of containers, written by GPU Aware Scheduling: card0,card1, with a vertical line between containers",
        meaning: "near these cards, as if they were its devices already, where it is told which are its own",
        fills: &[Field::Near],
    },
    Foreign {
        name: gas::SAME_GPU,
        values: "names of containers, with commas between them",
        meaning: "tells which of gas-container-cards are those of these containers, where no other cards stand there as often",
        fills: &[Field::Near],
    },
];

const WEBHOOK_VALUES: &str =
    "JSON; requests of cpu and memory, and of power.intel.com/CLASS, by container";

/// Whether it is an annotation that is read here.
pub(super) fn is_known(name: &str) -> bool {
    let json = [RESOURCE_SPEC, RESOURCE_STATUS, NUMA_SPEC, ENHANCEMENT, MEMORY_ENHANCEMENT];
    json.contains(&name)
        || name == QOS_LEVEL
        || name == webhook::BATCH
        || webhook::NAMES.contains(&name)
}

/// What became of one field of one of these.
enum Outcome {
    /// It holds.
    Done,
    /// Understood, and without effect.
    NoEffect,
}

type Reader = fn(&mut Asked, &str, &str) -> Result<Outcome, &'static str>;

/// Applies all of it; Koordinator's word counts more than Katalyst's.
pub(super) fn read(pod: &Pod, lse_uses_siblings: bool, asked: &mut Asked, warnings: &mut Warnings) {
    let readers: [(&str, Reader); 4] = [
        (ENHANCEMENT, enhance),
        (MEMORY_ENHANCEMENT, enhance_memory),
        (NUMA_SPEC, set_numa_policy),
        (RESOURCE_SPEC, set_cpu_policy),
    ];
    if let Some(value) = pod.annotations.get(QOS_LEVEL) {
        let what = format!("annotation `{QOS_LEVEL}`");
        warn(&what, "", value, set_qos_level(asked, value), warnings);
    }
    for (name, reader) in readers {
        if let Some(value) = pod.annotations.get(name) {
            read_json(name, value, reader, asked, warnings);
        }
    }
    if let Some(value) = pod.annotations.get(RESOURCE_STATUS) {
        set_claimed(pod, value, asked, warnings);
    }
    if let Some(value) = pod.labels.get(QOS) {
        let what = format!("label `{QOS}`");
        let outcome = set_qos(asked, value, lse_uses_siblings);
        warn(&what, "", value, outcome, warnings);
    }
}

/// Whether a scheduler has written what it has decided for the pod.
pub fn may_claim(pod: &Pod) -> bool {
    pod.annotations.contains_key(RESOURCE_STATUS)
}

/// The CPUs that count as chosen for a pod, where its namespace may have such; none where nothing was chosen.
pub fn chosen_for(pod: &Pod) -> CpuSet {
    let text = pod.annotations.get(RESOURCE_STATUS).filter(|_| has_chosen(pod));
    text.and_then(|text| read_claimed(text).ok()).unwrap_or_default()
}

/// Whether Koordinator's scheduler gives CPUs to pods of this class.
fn has_chosen(pod: &Pod) -> bool {
    let class = pod.labels.get(QOS).map(String::as_str);
    pod.qos == Some(QosClass::Guaranteed) || matches!(class, Some("LSE" | "LSR"))
}

/// An annotation proves nothing: it counts for pods to which Koordinator's scheduler gives CPUs, and which pay for them.
fn set_claimed(pod: &Pod, text: &str, asked: &mut Asked, warnings: &mut Warnings) {
    let what = format!("annotation `{RESOURCE_STATUS}`");
    let is_guaranteed = pod.qos == Some(QosClass::Guaranteed);
    match read_claimed(text) {
        Ok(none) if none.is_empty() => asked.numa_nodes = named_nodes(text),
        Ok(cpus) if has_chosen(pod) => asked.wishes.claimed = cpus,
        Ok(cpus) => {
            let cpus = shown(&cpus.to_string(), SHOWN_MAX);
            warnings.no_effect(&format!(
                "{what}: cpuset {cpus} of a pod that is neither Guaranteed nor LSE or LSR"
            ));
        }
        Err(misread) => {
            let expected = "JSON with a list of CPUs as cpuset";
            match is_guaranteed {
                true => warnings.misread_requirement(&what, text, expected, &misread),
                false => warnings.misread(&what, text, expected, &misread),
            }
        }
    }
}

/// `cpuset` of what Koordinator's scheduler has decided for a pod, for all of its containers together (koordinator,
/// `apis/extension/resource.go`, `ResourceStatus`). The NUMA nodes beside it (`numaNodeResources`) are those of the CPUs; without CPUs they say
/// where the pod is to be.
fn read_claimed(text: &str) -> Result<CpuSet, Misread> {
    check_length(text)?;
    let json = serde_json::from_str::<Map<String, Value>>(text);
    let fields = json.map_err(|error| {
        Misread::because(format!("line {}, column {}", error.line(), error.column()))
    })?;
    match fields.get("cpuset") {
        None | Some(Value::Null) => Ok(CpuSet::new()),
        Some(Value::String(list)) => {
            let misread = |error: ParseSetError| {
                Misread::because(format!("cpuset: {}", shown(&error.to_string(), DETAIL_MAX)))
            };
            list.parse().map_err(misread)
        }
        Some(_) => Err(Misread::because("cpuset is no text")),
    }
}

/// The NUMA nodes that a value which can be read lists.
fn named_nodes(text: &str) -> NodeSet {
    let fields = serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let listed = fields.get("numaNodeResources").and_then(Value::as_array);
    let number = |it: &Value| it.get("node")?.as_u64()?.try_into().ok().map(NodeId);
    listed.into_iter().flatten().filter_map(number).collect()
}

/// Each field counts by itself, so that one that is wrong does not take the others with it.
fn read_json(name: &str, text: &str, reader: Reader, asked: &mut Asked, warnings: &mut Warnings) {
    let what = format!("annotation `{name}`");
    let fields = check_length(text).and_then(|()| {
        let json = serde_json::from_str::<Map<String, Value>>(text);
        json.map_err(|error| {
            Misread::because(format!("line {}, column {}", error.line(), error.column()))
        })
    });
    let fields = match fields {
        Ok(fields) => fields,
        Err(misread) => return warnings.misread(&what, text, "a JSON object", &misread),
    };
    let mut sorted: Vec<_> = fields.iter().collect();
    // `preferred...` before `required...`, which then wins.
    sorted.sort_by_key(|(field, _)| field.as_str());
    for (field, value) in sorted {
        let value = string(value).unwrap_or_else(|| value.to_string());
        let outcome = reader(asked, field, &value);
        warn(&what, field, &value, outcome, warnings);
    }
}

fn warn(
    what: &str,
    field: &str,
    value: &str,
    outcome: Result<Outcome, &'static str>,
    warnings: &mut Warnings,
) {
    let part = shown(field, SHOWN_MAX);
    match outcome {
        Ok(Outcome::Done) => {}
        Ok(Outcome::NoEffect) => {
            let value = shown(value, SHOWN_MAX);
            let part = if part.is_empty() { value } else { format!("{part} {value}") };
            warnings.no_effect(&format!("{what}: {part}"));
        }
        Err(expected) => {
            let what = if part.is_empty() { what.to_owned() } else { format!("{what}: {part}") };
            warnings.misread(&what, value, expected, &Misread::default());
        }
    }
}

/// Exclusive CPUs are the default for pods that request whole ones; the label counts more than the configuration.
fn set_qos(
    asked: &mut Asked,
    value: &str,
    lse_uses_siblings: bool,
) -> Result<Outcome, &'static str> {
    match value {
        "LSE" => {
            (asked.prefer_shared_cpus, asked.owns_requested) = (Some(false), true);
            if !lse_uses_siblings {
                asked.wishes.cpus.siblings = Siblings::Idle;
            }
        }
        "LSR" => {
            (asked.prefer_shared_cpus, asked.owns_requested) = (Some(false), true);
            asked.tuning.lends = Some(true);
        }
        "LS" | "BE" => asked.prefer_shared_cpus = Some(true),
        "SYSTEM" => asked.prefer_reserved_cpus = Some(true),
        "" => {}
        _ => return Err("LSE, LSR, LS, BE or SYSTEM"),
    }
    Ok(Outcome::Done)
}

/// Katalyst's levels (katalyst-api, `pkg/consts/qos.go`); an exclusive CPU is for a whole one that is requested, as with Koordinator.
fn set_qos_level(asked: &mut Asked, value: &str) -> Result<Outcome, &'static str> {
    match value.trim() {
        "dedicated_cores" => asked.prefer_shared_cpus = Some(false),
        "shared_cores" | "reclaimed_cores" => asked.prefer_shared_cpus = Some(true),
        "system_cores" => asked.prefer_reserved_cpus = Some(true),
        "" => {}
        _ => return Err("dedicated_cores, shared_cores, reclaimed_cores or system_cores"),
    }
    Ok(Outcome::Done)
}

fn set_cpu_policy(asked: &mut Asked, field: &str, value: &str) -> Result<Outcome, &'static str> {
    let cpus = &mut asked.wishes.cpus;
    match (field, value) {
        ("requiredCPUBindPolicy" | "preferredCPUBindPolicy", "" | "Default")
        | ("preferredCPUExclusivePolicy", "" | "None") => {}
        ("requiredCPUBindPolicy", "FullPCPUs") => {
            (cpus.packing, cpus.only_whole_cores) = (Packing::Packed, true);
        }
        // What is required goes before what is preferred, whichever comes first.
        ("preferredCPUBindPolicy", "FullPCPUs" | "SpreadByPCPUs")
            if cpus.only_whole_cores || cpus.packing == Packing::OnePerCore => {}
        ("preferredCPUBindPolicy", "FullPCPUs") => {
            cpus.packing = Packing::Packed;
        }
        ("requiredCPUBindPolicy", "SpreadByPCPUs") => {
            cpus.packing = Packing::OnePerCore;
        }
        ("preferredCPUBindPolicy", "SpreadByPCPUs") => {
            cpus.packing = Packing::Spread;
        }
        ("requiredCPUBindPolicy" | "preferredCPUBindPolicy", "ConstrainedBurst") => {
            return Ok(Outcome::NoEffect);
        }
        ("requiredCPUBindPolicy" | "preferredCPUBindPolicy", _) => {
            return Err("Default, FullPCPUs or SpreadByPCPUs");
        }
        ("preferredCPUExclusivePolicy", "PCPULevel") => {
            cpus.apart = Some((Level::Core, Strictness::Preferred));
        }
        ("preferredCPUExclusivePolicy", "NUMANodeLevel") => {
            cpus.apart = Some((Level::NumaNode, Strictness::Preferred));
        }
        ("preferredCPUExclusivePolicy", _) => return Err("None, PCPULevel or NUMANodeLevel"),
        _ => {
            return Err(
                "one of requiredCPUBindPolicy, preferredCPUBindPolicy and preferredCPUExclusivePolicy",
            );
        }
    }
    Ok(Outcome::Done)
}

fn set_numa_policy(asked: &mut Asked, field: &str, value: &str) -> Result<Outcome, &'static str> {
    match (field, value) {
        // A container that can have one NUMA node is always preferred there.
        ("numaTopologyPolicy", "" | "BestEffort") => Ok(Outcome::Done),
        ("numaTopologyPolicy", "SingleNUMANode") => {
            asked.wishes.cpus.within = Some(Within::One(Level::NumaNode));
            Ok(Outcome::Done)
        }
        ("numaTopologyPolicy", "Restricted") => {
            asked.wishes.cpus.within = Some(Within::Fewest(Level::NumaNode));
            Ok(Outcome::Done)
        }
        ("singleNUMANodeExclusive", "Preferred" | "Required") => Ok(Outcome::NoEffect),
        ("numaTopologyPolicy", _) => Err("BestEffort, Restricted or SingleNUMANode"),
        ("singleNUMANodeExclusive", "") => Ok(Outcome::Done),
        ("singleNUMANodeExclusive", _) => Err("Preferred or Required"),
        _ => Err("one of numaTopologyPolicy and singleNUMANodeExclusive"),
    }
}

/// Katalyst writes its values as text.
fn enhance(asked: &mut Asked, field: &str, value: &str) -> Result<Outcome, &'static str> {
    let flag = || word(value, FLAG).map_err(|_| "true or false");
    match field {
        "full_pcpus_pairing" => {
            asked.wishes.cpus.only_whole_cores = flag()?;
            Ok(Outcome::Done)
        }
        "distribute_evenly_across_numa" => {
            asked.wishes.cpus.is_even = flag()?;
            Ok(Outcome::Done)
        }
        "cpuset_pool"
        | "numa_share"
        | "suppression_tolerance_rate"
        | "cpu_burst_policy"
        | "cpu_burst_threshold"
        | "cpu_burst_percent"
        | "align_by_socket"
        | "numa_number"
        | "numa_ids" => Ok(Outcome::NoEffect),
        _ => Err("a field of Katalyst's cpu_enhancement"),
    }
}

/// Katalyst binds a container to one NUMA node, or to as few as hold it, and may keep others from these nodes.
fn enhance_memory(asked: &mut Asked, field: &str, value: &str) -> Result<Outcome, &'static str> {
    let flag = || word(value, FLAG).map_err(|_| "true or false");
    let wishes = &mut asked.wishes;
    match field {
        "numa_binding" if flag()? => {
            wishes.cpus.within = Some(Within::Fewest(Level::NumaNode));
            wishes.memory.is_bound = true;
        }
        "numa_exclusive" if flag()? => {
            wishes.cpus.apart = Some((Level::NumaNode, Strictness::Preferred));
        }
        "numa_binding" | "numa_exclusive" => {}
        "rss_overuse_threshold" | "oom_priority" => return Ok(Outcome::NoEffect),
        _ => return Err("a field of Katalyst's memory_enhancement"),
    }
    Ok(Outcome::Done)
}
