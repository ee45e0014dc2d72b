//! The shapes that a guest can have. In: a row of the table. Out: what QEMU and the kernel are told, and what the guest must find.
//!
//! To add a machine, add a row; the guest test `the_machine_is_what_its_name_says` compares it with what the kernel shows.

use anyhow::Context as _;

/// CPUs are numbered package by package, die by die, core by core, so the threads of a core are neighbours.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    packages: u32,
    /// Per package; each has an L3 of its own.
    dies: u32,
    /// Per die.
    cores: u32,
    /// Per core.
    threads: u32,
    nodes: &'static [Node],
    /// From the first node to each, as in `numactl --hardware`; the other rows follow from `far`.
    distances: &'static [[u32; 4]],
    /// Whether the firmware tells how fast memory is (ACPI, HMAT): that of nodes without CPUs is slow.
    tells_speeds: bool,
    /// More for the kernel's command line.
    append: &'static str,
    isolated: &'static str,
}

#[derive(Debug)]
struct Node {
    /// Empty: memory only.
    cpus: &'static str,
    mib: u32,
}

const fn node(cpus: &'static str, mib: u32) -> Node {
    Node { cpus, mib }
}

pub(crate) const DEFAULT: &str = "2s-snc2-smt2";

pub(crate) const MACHINES: [Machine; 6] = [
    Machine {
        name: DEFAULT,
        what: "2 packages of 2 NUMA nodes under one L3 (sub-NUMA clusters), 2 cores of 2 threads in each node",
        packages: 2,
        dies: 1,
        cores: 4,
        threads: 2,
        nodes: &[node("0-3", 1024), node("4-7", 512), node("8-11", 512), node("12-15", 512)],
        distances: &[[10, 12, 21, 21], [12, 10, 21, 21], [21, 21, 10, 12], [21, 21, 12, 10]],
        tells_speeds: false,
        append: "",
        isolated: "",
    },
    Machine {
        name: "4s-smt2",
        what: "4 packages, a NUMA node each, with 2 cores of 2 threads",
        packages: 4,
        dies: 1,
        cores: 2,
        threads: 2,
        nodes: &[node("0-3", 1024), node("4-7", 512), node("8-11", 512), node("12-15", 512)],
        distances: &[[10, 16, 16, 22], [16, 10, 22, 16], [16, 22, 10, 16], [22, 16, 16, 10]],
        tells_speeds: false,
        append: "",
        isolated: "",
    },
    Machine {
        name: "2s-die4-l3x4",
        what: "2 packages, a NUMA node each, of 4 dies with an L3 each and 2 cores of 1 thread, as chiplets have it",
        packages: 2,
        dies: 4,
        cores: 2,
        threads: 1,
        nodes: &[node("0-7", 1024), node("8-15", 1024)],
        distances: &[[10, 32, 0, 0], [32, 10, 0, 0]],
        tells_speeds: false,
        append: "",
        isolated: "",
    },
    Machine {
        name: "2s-smt2-mem",
        what: "2 packages, a NUMA node each, with 2 cores of 2 threads; a third, larger node without CPUs and with slow memory",
        packages: 2,
        dies: 1,
        cores: 2,
        threads: 2,
        nodes: &[node("0-3", 1024), node("4-7", 512), node("", 2048)],
        distances: &[[10, 21, 17, 0], [21, 10, 28, 0], [17, 28, 10, 0]],
        tells_speeds: true,
        append: "",
        isolated: "",
    },
    Machine {
        name: "2s-smt2-isolcpus",
        what: "2 packages, a NUMA node each, with 4 cores of 2 threads; one core of each isolated at boot",
        packages: 2,
        dies: 1,
        cores: 4,
        threads: 2,
        nodes: &[node("0-7", 1024), node("8-15", 1024)],
        distances: &[[10, 21, 0, 0], [21, 10, 0, 0]],
        tells_speeds: false,
        append: "isolcpus=6-7,14-15",
        isolated: "6-7,14-15",
    },
    Machine {
        name: "1cpu",
        what: "one CPU",
        packages: 1,
        dies: 1,
        cores: 1,
        threads: 1,
        nodes: &[node("0", 1536)],
        distances: &[[10, 0, 0, 0]],
        tells_speeds: false,
        append: "",
        isolated: "",
    },
];

pub(crate) fn find(name: &str) -> anyhow::Result<&'static Machine> {
    let found = MACHINES.iter().find(|machine| machine.name == name);
    found.with_context(|| format!("there is no machine {name}; see `cargo xtask lab list`"))
}

impl Machine {
    fn n_cpus(&self) -> u32 {
        self.packages * self.dies * self.cores * self.threads
    }

    pub(crate) fn qemu_args(&self) -> Vec<String> {
        let (cpus, packages) = (self.n_cpus(), self.packages);
        let (dies, cores, threads) = (self.dies, self.cores, self.threads);
        let smp = format!("{cpus},sockets={packages},dies={dies},cores={cores},threads={threads}");
        let mib: u32 = self.nodes.iter().map(|node| node.mib).sum();
        let mut args = vec!["-smp".to_owned(), smp, "-m".to_owned(), format!("{mib}M")];
        for (id, node) in self.nodes.iter().enumerate() {
            let cpus = match node.cpus {
                "" if self.tells_speeds => ",initiator=0".to_owned(),
                "" => String::new(),
                cpus => format!(",cpus={cpus}"),
            };
            let memory = format!("memory-backend-ram,id=m{id},size={}M", node.mib);
            args.extend(["-object".to_owned(), memory]);
            args.extend(["-numa".to_owned(), format!("node,nodeid={id},memdev=m{id}{cpus}")]);
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to < self.nodes.len()) {
                let distance = format!("dist,src={from},dst={to},val={distance}");
                args.extend(["-numa".to_owned(), distance]);
            }
        }
        if self.tells_speeds {
            args.extend(["-machine".to_owned(), "hmat=on".to_owned()]);
            args.extend(self.speeds().flat_map(|speed| ["-numa".to_owned(), speed]));
        }
        args
    }

    /// Latency in ns and bandwidth of each node's memory, from each node with CPUs.
    fn speeds(&self) -> impl Iterator<Item = String> {
        let has_cpus = |node: &Node| !node.cpus.is_empty();
        let nodes = || self.nodes.iter().enumerate();
        let pairs = nodes()
            .filter(move |(_, it)| has_cpus(it))
            .flat_map(move |(from, _)| nodes().map(move |(to, node)| (from, to, has_cpus(node))));
        pairs.flat_map(|(from, to, is_fast)| {
            let (latency, bandwidth) = match (is_fast, from == to) {
                (true, true) => (100, "20G"),
                (true, false) => (150, "10G"),
                (false, _) => (400, "5G"),
            };
            let line = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
            [
                format!("{line},data-type=access-latency,latency={latency}"),
                format!("{line},data-type=access-bandwidth,bandwidth={bandwidth}"),
            ]
        })
    }

    pub(crate) fn kernel_args(&self) -> &'static str {
        self.append
    }

    /// What a guest test compares with the kernel's files.
    pub(crate) fn expectation(&self) -> String {
        let l3s = self.packages * self.dies;
        let cores = l3s * self.cores;
        let nodes: Vec<&str> = self.nodes.iter().map(|node| node.cpus).collect();
        format!(
            "packages {}; l3s {l3s}; cores {cores}; cpus {}; isolated {}; nodes {}",
            self.packages,
            self.n_cpus(),
            self.isolated,
            nodes.join(" | "),
        )
    }
}
