//! Machines that need not exist. In: one line of text. Out: the [`Snapshot`] that a real machine of that shape would give.
//!
//! CPUs are numbered as Linux does on Intel servers: the first thread of every core, package by package, then the second threads;
//! efficient cores come last.

mod devices;
mod limits;
mod memory;
mod presets;
mod shape;
mod words;

use bayplan_types::{CpuId, CpuSet, Khz, NodeSet};

use crate::snapshot::{KernelFacts, KindFacts, PolicyFacts, Snapshot};
pub use limits::SyntheticError;
pub use presets::preset_names;
use shape::Shape;
use words::{Listed, parse_words};

/// What [`parse_machine`] understands, for `--help`.
pub const SYNTHETIC_HELP: &str = "\
A synthetic machine is one line of words: levels from the outside in, each with its count per parent, then options.

  pack:N     packages                    numa:N     NUMA nodes (left out: a kernel without NUMA)
  die:N      dies of a package           l3:N       level 3 caches (left out: none)
  cluster:N  clusters of cores           l2:N       level 2 caches that several cores share
  core:N     cores                       pu:N       CPUs (hardware threads) per core

  `numa` and `l3` stand in either order: `numa:1 l3:4` is four L3s in a node, `l3:1 numa:4` is four nodes under one L3.
  Counts may differ from parent to parent: `numa:3 core:43,43,42`.

  ecore:N          efficient cores beside each group of cores, four to an L2: a hybrid machine
  cache:L1,L2,L3   sizes of the caches with a suffix K or M (default 48K,2M,32M)
  mem:SIZE         memory per NUMA node, in GiB or with a suffix M, G or T (default 16)
  hbm:SIZE[/LEVEL] pmem:SIZE[/LEVEL] cxl:SIZE[/LEVEL]
                   a memory node without CPUs per machine, pack or numa (default numa for hbm, else pack)
  online:WAY       kernel or movable: what the kernel may put into pmem and cxl nodes (default movable: only what it can move)
  huge:SIZE=COUNT  huge pages per node, such as 2M=1024
  isolated:LIST    CPUs outside the scheduler's load balancing, such as 2-3,8
  nohz_full:LIST   CPUs without a timer tick
  offline:LIST     CPUs that are switched off
  fast:LIST        CPUs with a higher base frequency than the others (SST-BF)
  nic:N[/LEVEL] gpu:N[/LEVEL] nvme:N[/LEVEL]
                   devices per machine, pack or numa (default pack)
  vf:N             SR-IOV virtual functions of each network device

Example:  pack:2 die:1 numa:2 l3:1 core:14 pu:2 mem:64 pmem:256 nic:1 isolated:2-3
Presets:  xeon-8480  xeon-8480-snc4  xeon-8280l-pmem  granite-rapids-6980p  epyc-9654  epyc-7763-nps4
          grace  core-hybrid  one-cpu  (options may follow, and replace those of the preset)";

/// Frequencies of CPUs that are `fast:` and of the others; the lowest and the highest of all.
const BASE_FAST: Khz = Khz(2_600_000);
const BASE: Khz = Khz(2_000_000);
const FREQUENCY_MIN: Khz = Khz(800_000);
const FREQUENCY_MAX: Khz = Khz(3_800_000);
const FREQUENCY_MAX_EFFICIENT: Khz = Khz(3_000_000);

/// The snapshot of the machine that `spec` describes; see [`SYNTHETIC_HELP`].
///
/// # Errors
/// [`SyntheticError`] names the word that is wrong and what was expected.
pub fn parse_machine(spec: &str) -> Result<Snapshot, SyntheticError> {
    let words = parse_words(spec)?;
    let shape = Shape::new(&words)?;
    let all = CpuSet::first_n(shape.cpu_count());
    let isolated = known(&words.isolated, &all)?;
    let nohz_full = known(&words.nohz_full, &all)?;
    let fast = known(&words.fast, &all)?;
    let offline = known(&words.offline, &all)?;
    let online = all.difference(&offline);
    let memory = memory::nodes(&words, &shape, &online)?;
    let online_nodes: NodeSet = memory.nodes.iter().map(|node| node.id).collect();
    let devices = devices::devices(&words, &shape, &online)?;
    let has_fast = words.fast.is_some();
    let policies = |cpu| policy(cpu, &shape, has_fast.then(|| fast.contains(cpu)));
    let is_timed = has_fast || shape.is_hybrid();
    Ok(Snapshot {
        cpus: all.iter().map(|cpu| shape.cpu(cpu, &online)).collect(),
        kinds: kinds(&shape, &online),
        policies: if is_timed { online.iter().map(policies).collect() } else { Vec::new() },
        online_nodes: (!online_nodes.is_empty()).then_some(online_nodes),
        normal_memory: memory.normal,
        nodes: memory.nodes,
        tiers: memory.tiers,
        dax: memory.dax,
        devices,
        kernel: KernelFacts {
            cpufreq_driver: is_timed.then(|| "intel_pstate".to_owned()),
            ..KernelFacts::default()
        },
        present: Some(all.clone()),
        possible: Some(all),
        online: Some(online),
        isolated: Some(isolated),
        nohz_full: Some(nohz_full),
        ..Snapshot::default()
    })
}

/// The CPUs of an option, all of which the machine must have.
fn known(option: &Option<Listed>, all: &CpuSet) -> Result<CpuSet, SyntheticError> {
    match option {
        None => Ok(CpuSet::new()),
        Some(Listed { cpus, .. }) if cpus.is_subset(all) => Ok(cpus.clone()),
        Some(Listed { word, cpus }) => {
            let missing = Box::new(cpus.difference(all));
            let last = all.last().map_or(0, |cpu| cpu.0);
            Err(SyntheticError::NoSuchCpu { word: word.clone(), missing, last })
        }
    }
}

/// `is_fast`: `None` where base frequencies do not differ.
fn policy(cpu: CpuId, shape: &Shape, is_fast: Option<bool>) -> PolicyFacts {
    let is_efficient = shape.is_efficient(cpu);
    PolicyFacts {
        id: cpu.0,
        base: is_fast.map(|is_fast| if is_fast { BASE_FAST } else { BASE }),
        min: Some(FREQUENCY_MIN),
        max: Some(if is_efficient { FREQUENCY_MAX_EFFICIENT } else { FREQUENCY_MAX }),
        ..PolicyFacts::default()
    }
}

fn kinds(shape: &Shape, online: &CpuSet) -> Vec<KindFacts> {
    if !shape.is_hybrid() {
        return Vec::new();
    }
    let (efficient, performance): (Vec<CpuId>, Vec<CpuId>) =
        online.iter().partition(|cpu| shape.is_efficient(*cpu));
    let kind = |name: &str, cpus: Vec<CpuId>| KindFacts {
        name: name.to_owned(),
        cpus: cpus.into_iter().collect(),
    };
    vec![kind("cpu_core", performance), kind("cpu_atom", efficient)]
}

#[cfg(test)]
mod tests {
    use bayplan_types::Bytes;
    use expect_test::{Expect, expect};

    use super::*;

    fn check(specs: &[&str], expected: Expect) {
        let errors = specs.iter().map(|spec| match parse_machine(spec) {
            Ok(_) => format!("{spec}\n    accepted\n"),
            Err(error) => format!("{spec}\n    {error}\n"),
        });
        expected.assert_eq(&errors.collect::<String>());
    }

    #[test]
    fn a_wrong_level_is_named_with_what_was_expected() {
        check(
            &[
                "",
                "sockets:2",
                "8",
                "core:0",
                "core:x",
                "core:4 core:4",
                "pu:2 core:4",
                "core:4 numa:2",
                "mem:4",
                "core:4 mem:4",
                "pack:128 core:128",
                "pack:8192 core:8192 pu:8192",
                "numa:2048",
            ],
            expect![[r#"

                    the machine is empty; expected words such as `pack:2 numa:1 l3:1 core:8 pu:2`, or a preset such as xeon-8480
                sockets:2
                    `sockets:2`: expected a level (pack, die, numa, l3, cluster, l2, core, pu) with a count, an option (ecore, cache, mem, hbm, pmem, cxl, online, huge, isolated, nohz_full, offline, fast, nic, gpu, nvme, vf), or as the first word one of the presets xeon-8480, xeon-8480-snc4, xeon-8280l-pmem, granite-rapids-6980p, epyc-9654, epyc-7763-nps4, grace, core-hybrid, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                8
                    `8`: expected a level (pack, die, numa, l3, cluster, l2, core, pu) with a count, an option (ecore, cache, mem, hbm, pmem, cxl, online, huge, isolated, nohz_full, offline, fast, nic, gpu, nvme, vf), or as the first word one of the presets xeon-8480, xeon-8480-snc4, xeon-8280l-pmem, granite-rapids-6980p, epyc-9654, epyc-7763-nps4, grace, core-hybrid, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:0
                    `core:0`: expected core: with a count from 1 to 8192; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:x
                    `core:x`: expected core: with a count from 1 to 8192; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 core:4
                    `core:4`: expected each level only once; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                pu:2 core:4
                    `core:4`: expected core to stand before pu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 numa:2
                    `numa:2`: expected numa to stand before core; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                mem:4
                    `mem:4`: expected at least one level, such as core:8; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 mem:4
                    `mem`: expected a level numa:N as well, because memory belongs to NUMA nodes; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                pack:128 core:128
                    the machine has more than 8192 CPUs; make one of the counts smaller
                pack:8192 core:8192 pu:8192
                    the machine has more than 8192 CPUs; make one of the counts smaller
                numa:2048
                    the machine has more than 1024 NUMA nodes; make one of the counts smaller
            "#]],
        );
    }

    #[test]
    fn a_wrong_option_is_named_with_what_was_expected() {
        check(
            &[
                "numa:1 core:4 mem:4T",
                "numa:1 core:4 mem:1 mem:2",
                "core:4 offline:3-1",
                "core:4 isolated:4-5,9",
                "core:4 xeon-8480",
                "xeon-8480 core:4",
                "pu:2,4 core:4",
                "core:4 nic:1/rack",
                "core:4 vf:8",
                "core:4 nic:1 vf:300",
                "core:4 nvme:1000",
                "numa:1 core:4 hbm:x/numa",
                "numa:1 core:4 cache:1K,2K",
                "numa:1 core:4 huge:2M",
                "core:4 pmem:16",
            ],
            expect![[r#"
                numa:1 core:4 mem:4T
                    accepted
                numa:1 core:4 mem:1 mem:2
                    `mem:2`: expected this option only once; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 offline:3-1
                    `offline:3-1`: expected a list of CPUs such as 2-3,8 (`3-1` is not a number or a range such as 0-3); an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 isolated:4-5,9
                    `isolated:4-5,9`: this machine has CPUs 0-3, not 4-5,9
                core:4 xeon-8480
                    `xeon-8480`: expected a level (pack, die, numa, l3, cluster, l2, core, pu) with a count, an option (ecore, cache, mem, hbm, pmem, cxl, online, huge, isolated, nohz_full, offline, fast, nic, gpu, nvme, vf), or as the first word one of the presets xeon-8480, xeon-8480-snc4, xeon-8280l-pmem, granite-rapids-6980p, epyc-9654, epyc-7763-nps4, grace, core-hybrid, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                xeon-8480 core:4
                    `core:4`: expected each level only once; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                pu:2,4 core:4
                    `pu:2,4`: expected pu: with one count for all cores; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 nic:1/rack
                    `nic:1/rack`: expected machine, pack or numa after the /; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 vf:8
                    `vf`: expected nic:N as well, because virtual functions belong to one; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 nic:1 vf:300
                    the machine has more than 255 virtual functions per device; make one of the counts smaller
                core:4 nvme:1000
                    the machine has more than 240 devices; make one of the counts smaller
                numa:1 core:4 hbm:x/numa
                    `hbm:x/numa`: expected hbm: with a number of GiB, or one with a suffix M, G or T; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                numa:1 core:4 cache:1K,2K
                    `cache:1K,2K`: expected cache: with three sizes such as 48K,2M,32M; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                numa:1 core:4 huge:2M
                    `huge:2M`: expected huge: with a size and a count, such as 2M=1024; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 pmem:16
                    `pmem`: expected a level numa:N as well, because memory belongs to NUMA nodes; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
            "#]],
        );
    }

    #[test]
    fn help_shows_machines_that_exist() {
        let (_, example) = SYNTHETIC_HELP.split_once("Example:").unwrap();
        let (example, presets) = example.split_once("Presets:").unwrap();
        assert!(parse_machine(example).is_ok());
        let (presets, _) = presets.split_once('(').unwrap();
        assert!(presets.split_whitespace().eq(presets::PRESETS.iter().map(|(name, _)| *name)));
        for (preset, _) in presets::PRESETS {
            assert!(parse_machine(&format!("{preset} mem:128G")).is_ok());
        }
        assert!(parse_machine(limits::EXAMPLE).is_ok());
    }

    #[test]
    fn cpus_are_numbered_first_threads_first() {
        let snapshot = parse_machine("pack:2 die:2 numa:1 l3:1 core:2 pu:2 mem:512M").unwrap();
        let cpu = |at: usize| {
            let cpu = &snapshot.cpus[at];
            let l3 = &cpu.caches[2];
            format!(
                "{} package {} die {} core {} siblings {} l3 {} of {}",
                cpu.id,
                cpu.package_id.unwrap(),
                cpu.die_id.unwrap(),
                cpu.core_id.unwrap(),
                cpu.thread_siblings.as_ref().unwrap(),
                l3.id.unwrap(),
                l3.shared_cpus.as_ref().unwrap(),
            )
        };
        assert_eq!(cpu(6), "6 package 1 die 1 core 2 siblings 6,14 l3 3 of 6-7,14-15");
        assert_eq!(cpu(14), "14 package 1 die 1 core 2 siblings 6,14 l3 3 of 6-7,14-15");
        assert_eq!(snapshot.nodes[1].mem_total, Some(Bytes(512 << 20)));
        assert_eq!(snapshot.nodes[1].distances, [12, 10, 21, 21]);
    }
}
