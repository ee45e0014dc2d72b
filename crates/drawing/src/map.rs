//! The map of the machine for terminals: a block per NUMA node, in it a cell per core, in it a symbol per CPU.
//!
//! ```text
//! NumaNode 0 (Package 0): 8 CPUs 0-3,8-11
//!      0  .. .. ## ##
//! ```
//!
//! The number before a row is the lowest CPU of its first core. Where a block has several L3s, ` | ` stands between them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bayplan_types::{CpuId, CpuSet};

use bayplan_topology::{Level, Object, ObjectIdx, Topology, index_cpus};
use bayplan_types::fold::count_and_list;

/// Columns for the cells of a row; with the number before it a row has at most 100.
const COLUMNS: usize = 92;
/// The number before a row, and two spaces.
pub const LABEL_COLUMNS: usize = 8;
const BETWEEN_L3S: &str = " | ";

/// Draws the machine with what `cell` says about each CPU: one visible column, which may be wrapped in colour escapes. The threads
/// of a core stand side by side. Rows have at most 100 columns as long as a core has at most 92 threads.
pub fn render_map(topology: &Topology, cell: &dyn Fn(CpuId) -> String) -> String {
    let mut text = String::new();
    for line in map_lines(topology, COLUMNS + LABEL_COLUMNS) {
        // Writing to a String cannot fail.
        let _ = match line {
            MapLine::Title(title) => writeln!(text, "{title}"),
            MapLine::Cores(groups) => {
                let first = groups.first().and_then(|cores| cores.first()).and_then(CpuSet::first);
                let label = first.map(|cpu| cpu.to_string()).unwrap_or_default();
                let groups = groups.iter().map(|cores| {
                    let cells = cores.iter().map(|core| core.iter().map(cell).collect::<String>());
                    cells.collect::<Vec<_>>().join(" ")
                });
                writeln!(text, "{label:>6}  {}", groups.collect::<Vec<_>>().join(BETWEEN_L3S))
            }
        };
    }
    text
}

/// A line of the map, for drawing it in another way than [`render_map`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapLine {
    /// The beginning of a block, or the CPUs that are offline.
    Title(String),
    /// Cores, in groups of those that share an L3.
    Cores(Vec<Vec<CpuSet>>),
}

/// The map in rows of at most so many columns, a label of [`LABEL_COLUMNS`], a column for each CPU, one between cores and three between
/// groups among them. A row has one core at least.
pub fn map_lines(topology: &Topology, columns: usize) -> Vec<MapLine> {
    let l3_at = index_cpus(of_level(topology, Level::L3).map(|l3| (l3.idx, &l3.cpus)));
    let mut lines = Vec::new();
    for block in blocks(topology) {
        lines.push(MapLine::Title(format!("{}: {}", block.title, count_and_list(&block.cpus))));
        let rows =
            rows(&groups(topology, &l3_at, &block.cpus), columns.saturating_sub(LABEL_COLUMNS));
        lines.extend(rows.into_iter().map(MapLine::Cores));
    }
    if !topology.offline().is_empty() {
        lines.push(MapLine::Title(format!("offline: {}", count_and_list(topology.offline()))));
    }
    lines
}

struct Block {
    title: String,
    cpus: CpuSet,
}

/// NUMA nodes with CPUs, or packages, or the machine; then the CPUs that are in none of them.
fn blocks(topology: &Topology) -> Vec<Block> {
    let package_around = |cpus: &CpuSet| {
        let mut packages = of_level(topology, Level::Package);
        packages.find(|package| cpus.is_subset(&package.cpus))
    };
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
    let mut blocks: Vec<Block> = nodes
        .map(|node| {
            let package = package_around(&node.cpus);
            let package = package.map(|package| format!(" (Package {})", package.id));
            let title = format!("NumaNode {}{}", node.id, package.unwrap_or_default());
            Block { title, cpus: node.cpus.clone() }
        })
        .collect();
    if blocks.is_empty() {
        let packages = of_level(topology, Level::Package);
        blocks.extend(packages.map(|package| Block {
            title: format!("Package {}", package.id),
            cpus: package.cpus.clone(),
        }));
    }
    let mut rest = topology.cpus().clone();
    for block in &blocks {
        rest.subtract(&block.cpus);
    }
    if !rest.is_empty() {
        let title = if blocks.is_empty() { "Machine" } else { "elsewhere" };
        blocks.push(Block { title: title.to_owned(), cpus: rest });
    }
    blocks
}

fn of_level(topology: &Topology, level: Level) -> impl Iterator<Item = &Object> {
    topology.objects().iter().filter(move |object| object.level == level)
}

/// Groups of cores in rows: a row is a list of chunks, a chunk is a list of cores under one L3.
fn rows(groups: &[Vec<CpuSet>], columns: usize) -> Vec<Vec<Vec<CpuSet>>> {
    let mut rows: Vec<Vec<Vec<CpuSet>>> = Vec::new();
    let mut width = 0;
    for group in groups {
        let threads = group.iter().map(CpuSet::len).max().unwrap_or(1);
        let per_row = ((columns + 1) / (threads + 1)).max(1);
        // Rows of equal length look like hardware, a long and a short one do not.
        let per_row = group.len().div_ceil(group.len().div_ceil(per_row).max(1)).max(1);
        for chunk in group.chunks(per_row) {
            let chunk_width = chunk.iter().map(|core| core.len() + 1).sum::<usize>() - 1;
            let joined_width = width + BETWEEN_L3S.len() + chunk_width;
            match rows.last_mut() {
                Some(row) if joined_width <= columns => {
                    row.push(chunk.to_vec());
                    width = joined_width;
                }
                _ => {
                    rows.push(vec![chunk.to_vec()]);
                    width = chunk_width;
                }
            }
        }
    }
    rows
}

/// The cores of some CPUs, one group per L3; what has no L3 is a group, too, the last one.
fn groups(topology: &Topology, l3_at: &[Option<ObjectIdx>], cpus: &CpuSet) -> Vec<Vec<CpuSet>> {
    let mut groups: BTreeMap<ObjectIdx, BTreeMap<Option<CpuId>, CpuSet>> = BTreeMap::new();
    for cpu in cpus.iter() {
        let l3 = l3_at.get(cpu.0 as usize).copied().flatten().unwrap_or(ObjectIdx(u32::MAX));
        let core = topology.core_of(cpu).and_then(CpuSet::first);
        groups.entry(l3).or_default().entry(core).or_default().insert(cpu);
    }
    groups.into_values().map(|cores| cores.into_values().collect()).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use bayplan_topology::{derive, parse_machine};

    fn draw(spec: &str) -> String {
        let topology = derive(&parse_machine(spec).unwrap()).unwrap();
        render_map(&topology, &|cpu| {
            if topology.isolated().contains(cpu) { "#" } else { "." }.into()
        })
    }

    fn check(spec: &str, expected: Expect) {
        expected.assert_eq(&draw(spec));
    }

    #[test]
    fn a_block_per_node_a_cell_per_core_a_symbol_per_thread() {
        check(
            "pack:2 numa:1 l3:1 core:4 pu:2 isolated:2-3,10-11",
            expect![[r#"
            NumaNode 0 (Package 0): 8 CPUs 0-3,8-11
                 0  .. .. ## ##
            NumaNode 1 (Package 1): 8 CPUs 4-7,12-15
                 4  .. .. .. ..
        "#]],
        );
        check(
            "pack:2 core:2 offline:3",
            expect![[r#"
            Package 0: 2 CPUs 0-1
                 0  . .
            Package 1: 1 CPU 2
                 2  .
            offline: 1 CPU 3
        "#]],
        );
        check(
            "pack:1 numa:2 l3:3 core:4 pu:2",
            expect![[r#"
            NumaNode 0 (Package 0): 24 CPUs 0-11,24-35
                 0  .. .. .. .. | .. .. .. .. | .. .. .. ..
            NumaNode 1 (Package 0): 24 CPUs 12-23,36-47
                12  .. .. .. .. | .. .. .. .. | .. .. .. ..
        "#]],
        );
        check(
            "core:2 pu:8",
            expect![[r#"
            Package 0: 16 CPUs 0-15
                 0  ........ ........
        "#]],
        );
    }

    #[test]
    fn big_machines_fit_in_a_hundred_columns() {
        check(
            "xeon-8480",
            expect![[r#"
            NumaNode 0 (Package 0): 112 CPUs 0-55,112-167
                 0  .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..
                28  .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..
            NumaNode 1 (Package 1): 112 CPUs 56-111,168-223
                56  .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..
                84  .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..
        "#]],
        );
        check(
            "epyc-9654",
            expect![[r#"
            NumaNode 0 (Package 0): 192 CPUs 0-95,192-287
                 0  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
                24  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
                48  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
                72  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
            NumaNode 1 (Package 1): 192 CPUs 96-191,288-383
                96  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
               120  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
               144  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
               168  .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. .. | .. .. .. .. .. .. .. ..
        "#]],
        );
        let narrow = derive(&parse_machine("xeon-8480").unwrap()).unwrap();
        for line in map_lines(&narrow, 60) {
            let MapLine::Cores(groups) = line else { continue };
            let cores = groups.iter().flatten().map(|core| core.len() + 1).sum::<usize>() - 1;
            assert!(LABEL_COLUMNS + cores + 2 * (groups.len() - 1) <= 60, "{groups:?}");
        }
        for spec in ["xeon-8480", "xeon-8480-snc4", "epyc-9654", "numa:1 core:1024 pu:8"] {
            let widest = draw(spec).lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 100, "{spec}: {widest}");
        }
    }
}
