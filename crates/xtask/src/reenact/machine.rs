//! The machine that a run is on, as its report names it. In: files of the kernel. Out: what scenarios are sized by.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use bayplan_types::CpuSet;
use serde::Serialize;

/// What decides which scenarios can be shown, and how large they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Machine {
    /// `model name` of /proc/cpuinfo.
    pub(crate) model: String,
    /// Online logical CPUs.
    pub(crate) cpus: usize,
    /// Threads of the first core.
    pub(crate) threads_per_core: usize,
    /// NUMA nodes with CPUs.
    pub(crate) numa_nodes: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
    pub(crate) memory_gib: u64,
    /// Load averages when it was read; other work spoils figures.
    pub(crate) load: String,
}

impl Machine {
    /// Reads it below `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Machine> {
        let read = |path: &str| {
            let path = root.join(path);
            let text = fs::read_to_string(&path);
            text.with_context(|| format!("cannot read {}", path.display()))
        };
        let online: CpuSet = read("sys/devices/system/cpu/online")?.trim().parse()?;
        let first = online.first().context("no CPU is online")?.0;
        let threads =
            read(&format!("sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list"))?;
        // A kernel without NUMA has no such directory.
        let nodes = read("sys/devices/system/node/has_cpu").unwrap_or_else(|_| "0".to_owned());
        let nodes: CpuSet = nodes.trim().parse()?;
        Ok(Machine {
            model: parse_model(&read("proc/cpuinfo")?),
            cpus: online.len(),
            threads_per_core: threads.trim().parse::<CpuSet>()?.len(),
            numa_nodes: nodes.len(),
            kernel: read("proc/sys/kernel/osrelease")?.trim().to_owned(),
            memory_gib: parse_memory_gib(&read("proc/meminfo")?).context("no MemTotal")?,
            load: parse_load(&read("proc/loadavg")?),
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { model, cpus, threads_per_core, numa_nodes, kernel, memory_gib, load } = self;
        write!(f, "{model}, CPUs {cpus}, threads of a core {threads_per_core}, ")?;
        write!(f, "NUMA nodes {numa_nodes}, memory {memory_gib} GiB, ")?;
        write!(f, "Linux {kernel}, load {load} at the beginning")
    }
}

fn parse_model(text: &str) -> String {
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find_map(|(key, value)| (key.trim() == name).then(|| value.trim().to_owned()))
    };
    // Arm has numbers only.
    field("model name")
        .or_else(|| Some(format!("CPU part {}", field("CPU part")?)))
        .unwrap_or_else(|| "unknown processor".to_owned())
}

fn parse_memory_gib(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib + 512 * 1024) / (1024 * 1024))
}

fn parse_load(text: &str) -> String {
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,4\n"),
            ("sys/devices/system/node/has_cpu", "0-1\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor @ 2.1GHz\n"),
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/meminfo", "MemTotal:       24731708 kB\n"),
            ("proc/loadavg", "0.10 0.89 1.55 2/345 678\n"),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let told = Machine::read(root.path()).unwrap().to_string();
        assert_eq!(
            told,
            "A Processor @ 2.1GHz, CPUs 8, threads of a core 2, NUMA nodes 2, memory 24 GiB, Linux 6.12.1, load 0.10 0.89 1.55 at the beginning"
        );
    }
}
