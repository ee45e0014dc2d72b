//! The topology for programs. A format of its own with a version, so that the types inside may change.

use serde::Serialize;

use bayplan_types::{CorePower, CpuPriority, CpuSet, PowerDomain};

use crate::device::Device;
use crate::snapshot::{KernelFacts, ResctrlFacts};
use crate::topology::{Cache, FrequencyPolicy, NumaNode, Object, Topology};

/// Value of `format`. Readers must accept fields and levels that they do not know; a change that breaks even them gets a new number.
pub const JSON_FORMAT: &str = "bayplan-topology/2";

/// What the fields mean, for `--help`.
pub const JSON_HELP: &str = "\
Fields of -o json (sets of CPUs and nodes are texts such as \"0-3,8\"; null: the kernel does not say):

  format        bayplan-topology/2; readers must accept fields and levels that they do not know
  fingerprint   the same for the same CPUs, nodes and nesting
  cpus, isolated, partitioned, nohz_full, offline
                sets of CPUs: online; isolcpus; in isolated cpuset partitions; tickless; present but offline
  allowed_cpus, allowed_mems
                what the cgroup of this process allows, or null
  pods_cpus, pods_mems
                what the groups around all pods allow; absent where that is everything
  objects[]     the tree, parents first: idx, level (Machine, Package, Die, NumaNode, L3, Cluster, L2, Core), id (the
                kernel's), parent (an idx or null), cpus, mems
  cores[]       the CPUs of each core
  caches[]      level, id, size_bytes, cpus
  core_kinds[]  of a hybrid machine: kind (Performance, Efficient), cpus
  priorities    cpus with High, Normal and Low priority
  frequencies[] per policy: id, cpus, base_khz, min_khz, max_khz, preference
  nodes[]       id, cpus, memory_bytes, kind (Dram, Hbm, Pmem, Cxl, Gpu), evidence (what told the kind), movable_only, near (for a
                node without CPUs), tier, read_bandwidth_mbps, read_latency_ns, side_cache_bytes[], huge_pages[] (size_bytes,
                total, free), distances[] (in the order of nodes)
  devices[]     address, kind, class, vendor, device, node, cpus, physical (of a virtual function), driver, interfaces[],
                dev_nodes[], memory_node (of a GPU with memory that is a NUMA node)
  kernel        release, cpu_options[], controllers[], psi, btf, resctrl, cpufreq_driver, cpuidle_driver, idle_states[],
                uncores[], speed_select; where its device was asked also power_domains[]: name (package and number), core_power (off,
                proportional, ordered), level, levels[], locked, base_frequency and turbo_frequency (on or not), classes[]: min_mhz,
                max_mhz, weight, cpus; power_domains_unread[], what of it could not be read; or power_domains_refused, why it says nothing
  oddities[]    path, found, assumed";

/// A machine. Sets are texts in the kernel's list form. [`JSON_HELP`] tells what the fields mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct TopologyJson {
    pub format: &'static str,
    pub fingerprint: String,
    pub cpus: String,
    pub isolated: String,
    pub partitioned: String,
    pub nohz_full: String,
    pub offline: String,
    pub allowed_cpus: Option<String>,
    pub allowed_mems: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_cpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_mems: Option<String>,
    pub objects: Vec<ObjectJson>,
    pub cores: Vec<String>,
    pub caches: Vec<CacheJson>,
    pub core_kinds: Vec<KindJson>,
    pub priorities: PrioritiesJson,
    pub frequencies: Vec<FrequencyJson>,
    pub nodes: Vec<NodeJson>,
    pub devices: Vec<DeviceJson>,
    pub kernel: KernelJson,
    pub oddities: Vec<OddityJson>,
}

/// One object of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectJson {
    /// Position in the list.
    pub idx: u32,
    /// `Machine`, `Package`, `Die`, `NumaNode`, `L3`, `Cluster`, `L2` or `Core`.
    pub level: &'static str,
    /// The kernel's number.
    pub id: u32,
    /// Position of the parent; `null` for the machine.
    pub parent: Option<u32>,
    /// Its online CPUs.
    pub cpus: String,
    /// Its memory nodes.
    pub mems: String,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct CacheJson {
    pub level: u32,
    pub id: u32,
    pub size_bytes: Option<u64>,
    pub cpus: String,
}

/// One kind of core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct KindJson {
    pub kind: &'static str,
    pub cpus: String,
}

/// CPUs by priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
#[serde(rename_all = "PascalCase")]
pub struct PrioritiesJson {
    pub high: String,
    pub normal: String,
    pub low: String,
}

/// One frequency policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct FrequencyJson {
    pub id: u32,
    pub cpus: String,
    pub base_khz: Option<u64>,
    pub min_khz: Option<u64>,
    pub max_khz: Option<u64>,
    pub preference: Option<String>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct NodeJson {
    pub id: u32,
    pub cpus: String,
    pub memory_bytes: Option<u64>,
    pub kind: &'static str,
    pub evidence: &'static str,
    pub movable_only: bool,
    pub near: Option<u32>,
    pub tier: Option<u32>,
    pub read_bandwidth_mbps: Option<u32>,
    pub read_latency_ns: Option<u32>,
    pub side_cache_bytes: Vec<u64>,
    pub huge_pages: Vec<HugePagesJson>,
    pub distances: Vec<Option<u32>>,
}

/// Huge pages of one size in one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct HugePagesJson {
    pub size_bytes: u64,
    pub total: u64,
    pub free: u64,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct DeviceJson {
    pub address: String,
    pub kind: &'static str,
    pub class: String,
    pub vendor: Option<String>,
    pub device: Option<String>,
    pub node: Option<u32>,
    pub cpus: String,
    pub physical: Option<String>,
    pub driver: Option<String>,
    pub interfaces: Vec<String>,
    pub dev_nodes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_node: Option<u32>,
}

/// What the kernel can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct KernelJson {
    pub release: Option<String>,
    pub cpu_options: Vec<String>,
    pub controllers: Option<Vec<String>>,
    pub psi: bool,
    pub btf: bool,
    pub resctrl: Option<ResctrlJson>,
    pub cpufreq_driver: Option<String>,
    pub cpuidle_driver: Option<String>,
    pub idle_states: Vec<String>,
    pub uncores: Vec<String>,
    pub speed_select: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub power_domains: Vec<PowerDomainJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub power_domains_unread: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_domains_refused: Option<String>,
}

/// What Speed Select says of a part of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct PowerDomainJson {
    pub name: String,
    pub core_power: Option<&'static str>,
    pub level: Option<u8>,
    pub levels: Vec<u8>,
    pub locked: Option<bool>,
    pub base_frequency: bool,
    pub turbo_frequency: bool,
    pub classes: Vec<ClosJson>,
}

/// A class of service of a power domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "JSON_HELP describes every field, for programs as for people")]
pub struct ClosJson {
    pub min_mhz: u32,
    pub max_mhz: u32,
    pub weight: u8,
    pub cpus: String,
}

/// What cache and bandwidth control can do, with the names and values of the kernel's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the kernel's files in resctrl's info directory")]
pub struct ResctrlJson {
    pub caches: Vec<CacheControlJson>,
    pub bandwidths: Vec<BandwidthJson>,
    pub mon_features: Option<Vec<String>>,
    pub num_rmids: Option<u32>,
}

/// One kind of cache that can be divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the kernel's files in resctrl's info directory")]
pub struct CacheControlJson {
    pub name: String,
    pub cbm_mask: Option<String>,
    pub min_cbm_bits: Option<u32>,
    pub num_closids: Option<u32>,
    pub shareable_bits: Option<String>,
    pub sparse_masks: Option<bool>,
}

/// One kind of bandwidth that can be limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named after the kernel's files in resctrl's info directory")]
pub struct BandwidthJson {
    pub name: String,
    pub min_bandwidth: Option<u32>,
    pub bandwidth_gran: Option<u32>,
    pub num_closids: Option<u32>,
}

/// Something odd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OddityJson {
    /// The kernel file.
    pub path: String,
    /// What it holds.
    pub found: String,
    /// What was assumed.
    pub assumed: String,
}

/// The machine as a value that serializes to JSON.
pub fn to_json(topology: &Topology) -> TopologyJson {
    let oddities = topology.oddities().iter().map(|oddity| OddityJson {
        path: oddity.path.clone(),
        found: oddity.found.clone(),
        assumed: oddity.assumed.clone(),
    });
    let of_priority = |priority| topology.cpus_of_priority(priority).to_string();
    let kinds = topology
        .core_kinds()
        .iter()
        .map(|(kind, cpus)| KindJson { kind: kind.name(), cpus: cpus.to_string() });
    TopologyJson {
        format: JSON_FORMAT,
        fingerprint: format!("{:016x}", topology.fingerprint()),
        cpus: topology.cpus().to_string(),
        isolated: topology.isolated().to_string(),
        partitioned: topology.partitioned().to_string(),
        nohz_full: topology.nohz_full().to_string(),
        offline: topology.offline().to_string(),
        allowed_cpus: topology.allowed_cpus().map(CpuSet::to_string),
        allowed_mems: topology.allowed_mems().map(ToString::to_string),
        pods_cpus: topology.pods_cpus().map(CpuSet::to_string),
        pods_mems: topology.pods_mems().map(ToString::to_string),
        objects: topology.objects().iter().map(object).collect(),
        cores: topology.cores().iter().map(ToString::to_string).collect(),
        caches: topology.caches().iter().map(cache).collect(),
        core_kinds: kinds.collect(),
        priorities: PrioritiesJson {
            high: of_priority(CpuPriority::High),
            normal: of_priority(CpuPriority::Normal),
            low: of_priority(CpuPriority::Low),
        },
        frequencies: topology.policies().iter().map(frequency).collect(),
        nodes: topology.nodes().iter().map(|from| node(topology, from)).collect(),
        devices: topology.devices().iter().map(device).collect(),
        kernel: kernel(topology.kernel()),
        oddities: oddities.collect(),
    }
}

fn object(object: &Object) -> ObjectJson {
    ObjectJson {
        idx: object.idx.0,
        level: object.level.name(),
        id: object.id,
        parent: object.parent.map(|parent| parent.0),
        cpus: object.cpus.to_string(),
        mems: object.mems.to_string(),
    }
}

fn cache(cache: &Cache) -> CacheJson {
    CacheJson {
        level: cache.level,
        id: cache.id,
        size_bytes: cache.size.map(|size| size.0),
        cpus: cache.cpus.to_string(),
    }
}

fn frequency(policy: &FrequencyPolicy) -> FrequencyJson {
    FrequencyJson {
        id: policy.id,
        cpus: policy.cpus.to_string(),
        base_khz: policy.base.map(|khz| khz.0),
        min_khz: policy.min.map(|khz| khz.0),
        max_khz: policy.max.map(|khz| khz.0),
        preference: policy.preference.clone(),
    }
}

fn node(topology: &Topology, node: &NumaNode) -> NodeJson {
    let distances = topology.nodes().iter().map(|to| topology.distance(node.id, to.id));
    let huge_pages = node.huge_pages.iter().map(|pages| HugePagesJson {
        size_bytes: pages.size.0,
        total: pages.total,
        free: pages.free,
    });
    NodeJson {
        id: node.id.0,
        cpus: node.cpus.to_string(),
        memory_bytes: node.memory.map(|memory| memory.0),
        kind: node.kind.name(),
        evidence: node.evidence.name(),
        movable_only: node.is_movable_only,
        near: node.near.map(|near| near.0),
        tier: node.tier,
        read_bandwidth_mbps: node.speed.bandwidth,
        read_latency_ns: node.speed.latency,
        side_cache_bytes: node.side_caches.iter().map(|size| size.0).collect(),
        huge_pages: huge_pages.collect(),
        distances: distances.collect(),
    }
}

fn device(device: &Device) -> DeviceJson {
    let hex = |number: u16| format!("{number:04x}");
    DeviceJson {
        address: device.address.to_string(),
        kind: device.kind.name(),
        class: format!("{:06x}", device.class),
        vendor: device.vendor.map(hex),
        device: device.device.map(hex),
        node: device.node.map(|node| node.0),
        cpus: device.cpus.to_string(),
        physical: device.physical.map(|address| address.to_string()),
        driver: device.driver.clone(),
        interfaces: device.interfaces.clone(),
        dev_nodes: device.dev_nodes.clone(),
        memory_node: device.memory_node.map(|node| node.0),
    }
}

fn kernel(kernel: &KernelFacts) -> KernelJson {
    KernelJson {
        release: kernel.release.clone(),
        cpu_options: kernel.cpu_options.clone(),
        controllers: kernel.controllers.clone(),
        psi: kernel.has_psi,
        btf: kernel.has_btf,
        resctrl: kernel.resctrl.as_ref().map(resctrl),
        cpufreq_driver: kernel.cpufreq_driver.clone(),
        cpuidle_driver: kernel.cpuidle_driver.clone(),
        idle_states: kernel.idle_states.clone(),
        uncores: kernel.uncores.iter().map(|uncore| uncore.name.clone()).collect(),
        speed_select: kernel.has_speed_select,
        power_domains: match &kernel.speed_select {
            Some(Ok(facts)) => facts.domains.iter().map(power_domain).collect(),
            _ => Vec::new(),
        },
        power_domains_unread: match &kernel.speed_select {
            Some(Ok(facts)) => facts.unread_in_words(),
            _ => Vec::new(),
        },
        power_domains_refused: match &kernel.speed_select {
            Some(Err(why)) => Some(why.clone()),
            _ => None,
        },
    }
}

fn power_domain(domain: &PowerDomain) -> PowerDomainJson {
    let profile = domain.profile.as_ref();
    let classes = (0..).zip(&domain.clos).map(|(number, limits)| ClosJson {
        min_mhz: limits.min_mhz,
        max_mhz: limits.max_mhz,
        weight: limits.weight,
        cpus: domain.cpus_of_class(number).to_string(),
    });
    PowerDomainJson {
        name: domain.name.clone(),
        core_power: domain.core_power.map(CorePower::name),
        level: profile.map(|it| it.level),
        levels: profile.map(|it| it.levels.clone()).unwrap_or_default(),
        locked: profile.map(|it| it.is_locked),
        base_frequency: domain.is_base_frequency_on,
        turbo_frequency: domain.is_turbo_frequency_on,
        classes: classes.collect(),
    }
}

fn resctrl(facts: &ResctrlFacts) -> ResctrlJson {
    let hex = |bits: u64| format!("{bits:x}");
    let caches = facts.caches.iter().map(|cache| CacheControlJson {
        name: cache.name.clone(),
        cbm_mask: cache.mask.map(hex),
        min_cbm_bits: cache.bits_min,
        num_closids: cache.groups,
        shareable_bits: cache.shareable.map(hex),
        sparse_masks: cache.is_sparse,
    });
    let bandwidths = facts.bandwidths.iter().map(|control| BandwidthJson {
        name: control.name.clone(),
        min_bandwidth: control.min,
        bandwidth_gran: control.step,
        num_closids: control.groups,
    });
    ResctrlJson {
        caches: caches.collect(),
        bandwidths: bandwidths.collect(),
        mon_features: facts.monitoring.as_ref().map(|monitoring| monitoring.features.clone()),
        num_rmids: facts.monitoring.as_ref().and_then(|monitoring| monitoring.groups),
    }
}
