//! What is wanted of containers' cgroups, and of interrupts on their CPUs. In: which container runs where and what it asks for, the configuration.
//! Out: settings. Needs cgroup v2; where cgroups are of version 1 only interrupts are kept away.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::ContainerId;
use bayplan_enforcement::{
    BatchWants, BlockIoClass, BlockIoMember, CgroupFiles, CgroupWants, CpuQuota, MemoryWants,
    NO_RECLAIM_CLASS, PartitionKind, PartitionOffer, PartitionWants, ReclaimMember,
    demotion_setting, partition_slot, plan_reclaims, settings_for_block_io, settings_for_cgroups,
    settings_for_interrupts, settings_for_partitions,
};
use bayplan_host::kernel::Kernel;
use bayplan_host::{
    ContainerCgroup, has_cgroup_v2, read_block_devices, read_capability, read_cgroup_files,
    read_interrupts, read_undivided_disks,
};
use bayplan_node::occupancy::{Occupancy, Occupant, tuning_of};
use bayplan_node::turned::Turned;
use bayplan_rebalance::Knob;
use bayplan_types::{Bytes, CpuClass, CpuSet, QosClass};
use bayplan_workload::annotations::{CpuPartition, InterruptRule, Tuning, matches_glob};
use bayplan_workload::{NewContainer, Resources};

use super::family::{Context, Family};
use super::gathered::Gathered;
use super::isolation::{Isolation, isolated_at_boot};
use crate::config::{Config, EnforcementMode};

/// linux/capability.h
const CAP_SYS_ADMIN: u32 = 21;

/// A container, and what it asks for or else gets by configuration.
struct Member<'a> {
    occupant: &'a Occupant,
    /// Whether all CPUs that it may run on are its own.
    owns_all: bool,
    is_quota_lifted: bool,
    is_pod_quota_lifted: bool,
    burst_percent: u64,
    memory: MemoryWants,
    partition: CpuPartition,
    block_io_class: Option<String>,
    reclaim_class: Option<String>,
    batch: BatchWants,
}

/// Which files cgroups have here. All of them are listed once, and again when other controllers are switched on for the groups below the root
/// (Documentation/admin-guide/cgroup-v2.rst, "Enabling and Disabling").
#[derive(Debug, Default)]
struct KnownFiles {
    control: Option<String>,
    files: CgroupFiles,
}

impl KnownFiles {
    fn read(&mut self, kernel: &mut dyn Kernel) -> &CgroupFiles {
        let control = kernel.read("sys/fs/cgroup/cgroup.subtree_control").ok();
        if control.is_none() || control != self.control || self.files.is_empty() {
            *self = KnownFiles { control, files: read_cgroup_files(kernel) };
        }
        &self.files
    }
}

/// Limits of CPU time, protected memory, partitions, block I/O.
#[derive(Debug, Default)]
pub(super) struct Cgroups(KnownFiles);

impl Family for Cgroups {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let Context { kernel, config, occupancy, .. } = context;
        gather_cgroups(&mut **kernel, &mut self.0, config, occupancy, gathered);
    }
}

fn gather_cgroups(
    kernel: &mut dyn Kernel,
    known: &mut KnownFiles,
    config: &Config,
    occupancy: &Occupancy,
    gathered: &mut Gathered,
) {
    let pods = pod_limits(occupancy);
    let memory = if config.memory_qos.high_percent > 0 { read_memory(kernel) } else { Bytes::ZERO };
    let members = occupancy
        .occupants
        .iter()
        .map(|it| Member::of(it, config, memory, &pods, &occupancy.turned));
    let members: Vec<Member<'_>> = members.filter(Member::wants_something).collect();
    if members.is_empty() {
        return;
    }
    let files = known.read(kernel);
    if files.is_empty() {
        // Otherwise there is no group yet that could have these files.
        gathered.lacks_groups = true;
        members.iter().for_each(|it| gathered.arrivals.note_wanted(it.occupant));
        if !has_cgroup_v2(kernel) && members.iter().any(Member::wants_by_itself) {
            gathered.problems.push(
                "cgroups are of version 1: their limits, memory and disks are left alone"
                    .to_owned(),
            );
        }
        return;
    }
    let (mut cgroups, mut partitions) = (Vec::new(), Vec::new());
    let (mut disks, mut reclaimed) = (Vec::new(), Vec::new());
    for member in &members {
        let Occupant { name, runtime_id, .. } = member.occupant;
        let group = match gathered.arrivals.find_group(kernel, member.occupant) {
            Ok(Some(group)) => group,
            // Before the start there is none, with some runtimes, and then one that is not filled.
            Ok(None) => {
                gathered.lacks_groups = true;
                continue;
            }
            Err(error) => {
                gathered
                    .problems
                    .push(format!("the cgroup of {name}: {:#}", anyhow::Error::new(error)));
                continue;
            }
        };
        let mut wants = member.cgroup(&group);
        gathered.problems.extend(spare_batch_memory(kernel, &mut wants));
        cgroups.push(wants);
        partitions.extend(member.partition(&group));
        disks.extend(member.block_io(&group));
        reclaimed.extend(member.reclaim(&group));
        gathered.cgroups.insert(runtime_id.clone(), group);
    }
    let (settings, problems) = settings_for_cgroups(&cgroups);
    gathered.add(settings, problems);
    if !partitions.is_empty() {
        let offer = read_partition_offer(kernel, files);
        let (settings, given, problems) = settings_for_partitions(&partitions, &offer);
        gathered.add(settings, problems);
        for (wants, given) in partitions.iter().zip(given) {
            let slot = Some(partition_slot(&wants.dir));
            let isolation = Isolation { given, is_asked: true, slot };
            gathered.isolations.insert(wants.unit.clone(), isolation);
        }
    }
    gather_block_io(config, &disks, files, gathered);
    gather_reclaims(kernel, config, reclaimed, files, gathered);
}

/// A limit below what a container uses already would have the kernel reclaim, or kill, what runs well: it waits until less is used. One that is in force
/// stays, which usage passes by a little when the kernel cannot wait (mm/memcontrol.c, `try_charge_memcg`).
fn spare_batch_memory(kernel: &mut dyn Kernel, wants: &mut CgroupWants) -> Option<String> {
    let (limit, dir) = (wants.batch.memory?, wants.dirs.first()?);
    let used = kernel.read(&format!("{dir}/memory.current")).ok()?;
    if used.trim().parse::<u64>().ok()? <= limit.0 {
        return None;
    }
    let has = kernel.read(&format!("{dir}/memory.max")).ok();
    let has = has.and_then(|text| text.trim().parse::<u64>().ok()).map(Bytes);
    if has.is_some_and(|has| has <= limit) {
        return None;
    }
    wants.batch.memory = has;
    let (unit, limit) = (&wants.unit, limit.0);
    Some(format!(
        "{unit}: it uses more than its batch memory of {limit} bytes, which becomes its limit only when it uses less"
    ))
}

fn gather_reclaims(
    kernel: &mut dyn Kernel,
    config: &Config,
    members: Vec<ReclaimMember>,
    files: &CgroupFiles,
    gathered: &mut Gathered,
) {
    if members.is_empty() {
        return;
    }
    let linux = read_linux_version(kernel);
    let (reclaims, problems) = plan_reclaims(&config.reclaim_classes, members, files, linux);
    gathered.problems.extend(problems);
    if config.demotes && !reclaims.is_empty() && has_slower_memory(kernel) {
        gathered.settings.extend([demotion_setting()]);
    }
    gathered.reclaims = reclaims;
}

/// `6.12` of `6.12.43+deb13-amd64`.
fn read_linux_version(kernel: &mut dyn Kernel) -> Option<(u32, u32)> {
    let text = kernel.read("proc/sys/kernel/osrelease").ok()?;
    let mut numbers = text.split(|it: char| !it.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the kernel has ranked memory nodes as slower than others (Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers; Linux 6.1).
fn has_slower_memory(kernel: &mut dyn Kernel) -> bool {
    const TIERS: &str = "sys/devices/virtual/memory_tiering";
    let names = kernel.list(TIERS).unwrap_or_default();
    names.iter().filter(|name| name.starts_with("memory_tier")).count() > 1
}

fn gather_block_io(
    config: &Config,
    members: &[BlockIoMember],
    files: &CgroupFiles,
    gathered: &mut Gathered,
) {
    if members.is_empty() {
        return;
    }
    let used = members.iter().filter_map(|member| config.block_io_classes.get(&member.class));
    let devices = read_block_devices(&config.host_root, patterns_of(used.clone()));
    let undivided = match used.flat_map(|class| &class.rules).any(|rule| rule.devices.is_empty()) {
        true => read_undivided_disks(&config.host_root),
        false => Vec::new(),
    };
    let (settings, problems) =
        settings_for_block_io(&config.block_io_classes, &devices, &undivided, files, members);
    gathered.add(settings, problems);
}

/// Everything that these classes call a device.
pub(crate) fn patterns_of<'a>(
    classes: impl IntoIterator<Item = &'a BlockIoClass>,
) -> BTreeSet<&'a str> {
    let rules = classes.into_iter().flat_map(|class| &class.rules);
    rules.flat_map(|rule| rule.devices.iter().map(String::as_str)).collect()
}

/// Whether the container asks for a partition, by itself or by configuration.
pub(super) fn asks_for_partition(config: &Config, occupant: &Occupant) -> bool {
    occupant.tuning.partition.unwrap_or(config.partition) != CpuPartition::None
}

/// Interrupts and work queues away from CPUs of containers that do not want them.
#[derive(Debug)]
pub(super) struct Interrupts;

impl Family for Interrupts {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let Context { kernel, config, occupancy, originals, unmovable, .. } = context;
        let mut away = CpuSet::new();
        for occupant in occupancy.occupants.iter().filter(|it| !it.exclusive.is_empty()) {
            let rule = occupant.tuning.interrupts.unwrap_or(config.interrupts);
            let kept = match rule {
                InterruptRule::Allowed => continue,
                InterruptRule::Away => CpuSet::new(),
                InterruptRule::Housekeeping => first_core(&mut **kernel, &occupant.exclusive),
            };
            away.union_with(&occupant.exclusive.difference(&kept));
        }
        if !away.is_empty() {
            let now = read_interrupts(&mut **kernel);
            let (settings, problems) = settings_for_interrupts(&away, &now, originals, unmovable);
            gathered.add(settings, problems);
        }
    }
}

/// Documentation/admin-guide/cputopology.rst, `thread_siblings_list`.
fn first_core(kernel: &mut dyn Kernel, cpus: &CpuSet) -> CpuSet {
    let Some(first) = cpus.first() else { return CpuSet::new() };
    let path = format!("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", first.0);
    let core: Option<CpuSet> = kernel.read(&path).ok().and_then(|text| text.trim().parse().ok());
    core.map_or_else(|| CpuSet::from(first), |core| core.intersection(cpus))
}

/// Whether a container asks by itself to be kept from all others, and that its threads are not moved among its CPUs; CPUs that are isolated at boot
/// are so, too. What the configuration gives all containers (`isolation.partition`) is no such wish: it would use up these CPUs.
pub(crate) fn asks_for_isolation(config: &Config, container: &NewContainer) -> bool {
    let asked = tuning_of(container, &config.rules()).partition;
    config.enforcement != EnforcementMode::Off && asked == Some(CpuPartition::Isolated)
}

/// Whether there are CPUs that are isolated at boot, and no partition can be had instead.
pub(crate) fn has_isolcpus_only(kernel: &mut dyn Kernel) -> bool {
    let files = read_cgroup_files(kernel);
    let offer = read_partition_offer(kernel, &files);
    let can_have_partitions = offer.has_remote_partitions && offer.is_permitted;
    !can_have_partitions && !offer.isolated_at_boot.is_empty()
}

fn read_memory(kernel: &mut dyn Kernel) -> Bytes {
    let text = kernel.read("proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Bytes(number.unwrap_or_default().saturating_mul(1024))
}

fn read_partition_offer(kernel: &mut dyn Kernel, files: &CgroupFiles) -> PartitionOffer {
    PartitionOffer {
        has_remote_partitions: files.contains("cpuset.cpus.exclusive"),
        // Where that is not told, trying it will show.
        is_permitted: read_capability(kernel, CAP_SYS_ADMIN).unwrap_or(true),
        isolated_at_boot: isolated_at_boot(kernel),
    }
}

/// Limits of CPU time in a pod.
#[derive(Clone, Copy, Debug, Default)]
struct PodLimits {
    /// Of its containers together, in thousandths of a CPU.
    milli: u64,
    /// Each container has one, and together they are not more than the pod's.
    is_within_pod: bool,
}

fn pod_limits(occupancy: &Occupancy) -> BTreeMap<&str, PodLimits> {
    let milli = |it: CpuQuota| it.quota_us.saturating_mul(1000) / it.period_us;
    let mut pods = BTreeMap::<&str, PodLimits>::new();
    for Occupant { spec, .. } in &occupancy.occupants {
        let before = pods.get(spec.pod.id.as_str()).copied();
        let before = before.unwrap_or(PodLimits { milli: 0, is_within_pod: true });
        let own = quota(&spec.resources).map(milli);
        let all = before.milli.saturating_add(own.unwrap_or(0));
        // Where kubelet does not say, the pod's is the sum of its containers'.
        let fits = quota(&spec.pod.resources).is_none_or(|pod| all <= milli(pod));
        let is_within_pod = before.is_within_pod && own.is_some() && fits;
        pods.insert(&spec.pod.id, PodLimits { milli: all, is_within_pod });
    }
    pods
}

/// The node needs it, so what is for all of a QoS class is not for it.
fn is_system(occupant: &Occupant, config: &Config) -> bool {
    let namespace = &occupant.spec.pod.namespace;
    occupant.class == CpuClass::Reserved
        || config.reserved_namespaces.iter().any(|it| matches_glob(it, namespace))
}

/// What the rebalancer lets a container save up, in percent of its limit: half after one step, all of it after two.
fn turned_burst(id: ContainerId, turned: &Turned) -> u64 {
    match turned.step(Knob::Burst, id) {
        0 => 0,
        1 => 50,
        _ => 100,
    }
}

/// A limit that kubelet gives counts.
fn batch_wants(tuning: &Tuning, memory_limit: Option<Bytes>) -> BatchWants {
    let batch = tuning.batch.unwrap_or_default();
    let memory = batch.memory.filter(|_| memory_limit.is_none());
    BatchWants { quota: batch.cpu.map(CpuQuota::of), memory }
}

fn quota(resources: &Resources) -> Option<CpuQuota> {
    let quota_us = u64::try_from(resources.cpu_quota).ok().filter(|it| *it > 0)?;
    let period_us = u64::try_from(resources.cpu_period).ok().filter(|it| *it > 0)?;
    Some(CpuQuota { quota_us, period_us })
}

impl<'a> Member<'a> {
    fn of(
        occupant: &'a Occupant,
        config: &Config,
        memory: Bytes,
        pods: &BTreeMap<&str, PodLimits>,
        turned: &Turned,
    ) -> Member<'a> {
        let tuning = &*occupant.tuning;
        let Occupant { spec, cpus, exclusive, is_left_alone, is_together, .. } = occupant;
        // In a partition of one container no other could run.
        let owns_all = !exclusive.is_empty() && exclusive == cpus && !is_left_alone && !is_together;
        let qos = spec.pod.qos;
        let burst = u64::try_from(config.burst_percent).unwrap_or_default();
        // A class for all is no mistake where there is none.
        let name = qos.map(QosClass::name).unwrap_or_default();
        let of_qos = |is_class: bool| is_class.then(|| name.to_owned());
        let burst = tuning.burst_percent.unwrap_or(burst);
        let requests = spec.resources.requests(qos, Some(memory).filter(|it| *it > Bytes::ZERO));
        let limit = u64::try_from(spec.resources.memory_limit).ok().filter(|it| *it > 0);
        Member {
            occupant,
            owns_all,
            is_quota_lifted: owns_all && tuning.is_quota_lifted.unwrap_or(config.lifts_quota),
            is_pod_quota_lifted: pods.get(spec.pod.id.as_str()).is_some_and(|it| it.is_within_pod),
            burst_percent: burst.max(turned_burst(occupant.id, turned)),
            memory: config.memory_qos.wants(requests.memory, limit.map(Bytes), memory),
            // By configuration it is for containers that own their CPUs; one that asks for it is told.
            partition: match tuning.partition {
                None if !owns_all => CpuPartition::None,
                asked => asked.unwrap_or(config.partition),
            },
            block_io_class: tuning
                .block_io_class
                .clone()
                .or_else(|| of_qos(config.block_io_classes.contains_key(name))),
            reclaim_class: match tuning.reclaim_class.clone() {
                None if is_system(occupant, config) => None,
                None => of_qos(config.reclaim_classes.contains_key(name)),
                asked => asked.filter(|class| class != NO_RECLAIM_CLASS),
            },
            batch: batch_wants(tuning, limit.map(Bytes)),
        }
    }

    fn wants_something(&self) -> bool {
        let has_quota = quota(&self.occupant.spec.resources).is_some();
        (has_quota && self.is_quota_lifted) || self.wants_by_itself()
    }

    /// Not only because of a default.
    fn wants_by_itself(&self) -> bool {
        let has_quota = quota(&self.occupant.spec.resources).is_some();
        (has_quota && self.burst_percent > 0)
            || self.memory != MemoryWants::default()
            || self.partition != CpuPartition::None
            || self.block_io_class.is_some()
            || self.reclaim_class.is_some()
            || self.batch != BatchWants::default()
    }

    fn cgroup(&self, group: &ContainerCgroup) -> CgroupWants {
        let spec = &self.occupant.spec;
        CgroupWants {
            unit: self.occupant.name.clone(),
            pod: group.pod.clone(),
            dirs: group.dirs.clone(),
            quota: quota(&spec.resources),
            pod_quota: quota(&spec.pod.resources),
            is_quota_lifted: self.is_quota_lifted,
            is_pod_quota_lifted: self.is_pod_quota_lifted,
            burst_percent: self.burst_percent,
            memory: self.memory,
            batch: self.batch,
        }
    }

    fn partition(&self, group: &ContainerCgroup) -> Option<PartitionWants> {
        let kind = match self.partition {
            CpuPartition::None => return None,
            CpuPartition::Root => PartitionKind::Root,
            CpuPartition::Isolated => PartitionKind::Isolated,
        };
        let cpus = if self.owns_all { self.occupant.exclusive.clone() } else { CpuSet::new() };
        Some(PartitionWants {
            unit: self.occupant.name.clone(),
            dir: group.dirs.first()?.clone(),
            cpus,
            kind,
        })
    }

    fn block_io(&self, group: &ContainerCgroup) -> Option<BlockIoMember> {
        Some(BlockIoMember {
            unit: self.occupant.name.clone(),
            dir: group.dirs.first()?.clone(),
            pod: group.pod.clone(),
            class: self.block_io_class.clone()?,
        })
    }

    fn reclaim(&self, group: &ContainerCgroup) -> Option<ReclaimMember> {
        Some(ReclaimMember {
            unit: self.occupant.name.clone(),
            dir: group.dirs.first()?.clone(),
            class: self.reclaim_class.clone()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
