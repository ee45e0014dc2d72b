//! Pictures of machines at random: nothing overlaps, nothing is cut off, every CPU is there, and the text is XML.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::{Bytes, CpuClass, CpuId, CpuSet, Khz, NodeId};
use proptest::prelude::*;

use crate::picture::layout;
use crate::picture::layout::{Area, Layout, Rect, Text};
use crate::picture::samples::{across, hbm_and_cxl, hybrid, pmem_and_devices};
use crate::picture::samples::{device, machine, seat, set};
use crate::picture::style::Style;
use crate::picture::text::width;
use bayplan_topology::*;

use crate::*;

/// What is drawn of a text: from the top of its line to the bottom.
fn rect_of(text: &Text) -> Rect {
    let width = width(&text.text, text.font);
    let left = if text.is_centered { width.div_ceil(2) } else { 0 };
    Rect {
        x: text.x.checked_sub(left).expect("the text begins left of the sheet"),
        y: text.y - text.font.ascent(),
        width,
        height: text.font.line_height(),
    }
}

fn is_inside(inner: Rect, outer: Rect) -> bool {
    inner.x >= outer.x
        && inner.y >= outer.y
        && inner.x + inner.width <= outer.x + outer.width
        && inner.y + inner.height <= outer.y + outer.height
}

fn overlap(a: Rect, b: Rect) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

/// Every breach of what a layout promises.
fn check_area(area: &Area, breaches: &mut Vec<String>) {
    let texts = area.texts.iter().map(rect_of);
    let inside: Vec<Rect> = texts.chain(area.areas.iter().map(|inner| inner.rect)).collect();
    for (at, one) in inside.iter().enumerate() {
        let name =
            || format!("{at} ({one:?}) of {:?} {:?} {:?}", area.style, area.rect, area.texts);
        if !is_inside(*one, area.rect) {
            breaches.push(format!("{} leaves it", name()));
        }
        let overlapped = inside.iter().skip(at + 1).find(|other| overlap(*one, **other));
        breaches.extend(overlapped.map(|other| format!("{} overlaps {other:?}", name())));
    }
    area.areas.iter().for_each(|inner| check_area(inner, breaches));
}

fn areas_of(area: &Area) -> Vec<&Area> {
    let mut all = vec![area];
    all.extend(area.areas.iter().flat_map(areas_of));
    all
}

/// Every online CPU is drawn once, and its number stands somewhere, by itself or in a range.
fn check_cpus(topology: &Topology, layout: &Layout) -> Result<(), TestCaseError> {
    let all = areas_of(&layout.sheet);
    let board = all.iter().find(|area| area.style == Style::Machine).expect("a machine");
    let inside = areas_of(board);
    let cpus: Vec<&&Area> =
        inside.iter().filter(|area| matches!(area.style, Style::Cpu(_))).collect();
    prop_assert_eq!(cpus.len(), topology.cpus().len());
    let numbers = cpus.iter().filter_map(|area| area.texts.first());
    let mut numbers: Vec<u32> = numbers.map(|text| text.text.parse().unwrap()).collect();
    numbers.sort_unstable();
    if !numbers.is_empty() {
        let online: Vec<u32> = topology.cpus().iter().map(|cpu| cpu.0).collect();
        prop_assert_eq!(numbers, online);
        return Ok(());
    }
    let texts = inside.iter().flat_map(|area| &area.texts);
    let lists = texts.filter_map(|text| {
        let list = text.text.trim_start_matches("CPUs ").trim_start_matches("CPU ");
        list.trim_end_matches(',').parse::<CpuSet>().ok()
    });
    let listed: CpuSet = lists.flat_map(|list| list.iter().collect::<Vec<_>>()).collect();
    prop_assert!(topology.cpus().is_subset(&listed), "{} of {}", listed, topology.cpus());
    Ok(())
}

/// Whether tags are balanced, attributes quoted and special characters escaped; the texts between tags.
fn check_xml(xml: &str) -> Result<Vec<String>, String> {
    let is_plain = |text: &str| {
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        let stripped =
            entities.iter().fold(text.to_owned(), |text, entity| text.replace(entity, ""));
        let allowed =
            |c: char| (c >= ' ' || c == '\n') && !matches!(c, '&' | '>' | '\u{fffe}' | '\u{ffff}');
        stripped.chars().all(allowed)
    };
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    for piece in xml.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').ok_or_else(|| format!("<{piece} has no end"))?;
        if !is_plain(text) {
            return Err(format!("`{text}` is not escaped"));
        }
        texts.push(text.to_owned());
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes something else"));
            }
            continue;
        }
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let quotes: Vec<&str> = attributes.trim_end_matches('/').split('"').collect();
        let names = quotes.iter().step_by(2).map(|name| name.trim());
        let is_name = |name: &str| name.strip_suffix('=').is_some_and(|name| !name.contains('='));
        if quotes.len().is_multiple_of(2)
            || names.clone().any(|name| !name.is_empty() && !is_name(name))
        {
            return Err(format!("<{tag}> has odd attributes"));
        }
        let distinct: BTreeSet<&str> = names.clone().collect();
        if distinct.len() != names.count() || quotes.iter().any(|text| !is_plain(text)) {
            return Err(format!("<{tag}> has an attribute twice or unescaped"));
        }
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(texts) } else { Err(format!("never closed: {open:?}")) }
}

fn check(
    topology: &Topology,
    seat_of: &dyn Fn(CpuId) -> Option<Seat>,
) -> Result<(), TestCaseError> {
    let layout = layout(topology, "", seat_of);
    let mut breaches = Vec::new();
    check_area(&layout.sheet, &mut breaches);
    prop_assert_eq!(breaches, Vec::<String>::new());
    check_cpus(topology, &layout)?;
    let svg = render_svg(topology, seat_of);
    let texts = check_xml(&svg).map_err(TestCaseError::fail)?;
    prop_assert!(texts.len() > topology.cpus().len());
    prop_assert_eq!(&svg, &render_svg(topology, seat_of));
    prop_assert!(!svg.contains("<script") && !svg.contains("href"));
    Ok(())
}

/// Names that others may give.
fn foreign() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{2,8}[0-9]{1,3}",
        "\\PC{0,30}",
        ".{0,20}",
        Just("</text><script>alert(1)</script>".to_owned()),
        Just("&amp;\"'\u{0}\u{202e}\u{ffff}".to_owned()),
        "[W@\u{4e00}\u{1f600} ]{50,300}",
    ]
}

/// Something that the synthetic line does not have; numbers are taken modulo what is there.
#[derive(Clone, Debug)]
enum Change {
    Efficient(CpuSet),
    SharedL2(u32, Option<u64>),
    Cluster(u32),
    MemoryAlone { gib: Option<u64>, near: usize, origin: DaxOrigin },
    NodeCpus(usize, CpuSet),
    NoPackage(usize),
    Siblings(usize, CpuSet),
    Base(u32, u64),
    Partitioned(CpuSet),
    Device { class: u32, node: Option<usize>, names: Vec<String> },
    Functions { of: usize, count: u8 },
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    let members = prop::collection::vec(0_u32..80, 0..12);
    members.prop_map(|members| members.into_iter().map(CpuId).collect())
}

fn change() -> impl Strategy<Value = Change> {
    let origin = prop::sample::select(DaxOrigin::ALL.to_vec());
    let classes = vec![0x02_0000, 0x0c_0600, 0x01_0802, 0x03_0200, 0x08_8000, 0x05_0210, 0x11_8000];
    let names = prop::collection::vec(foreign(), 0..4);
    prop_oneof![
        cpus().prop_map(Change::Efficient),
        (1_u32..6, prop::option::of(1_u64..99)).prop_map(|(cpus, mib)| Change::SharedL2(cpus, mib)),
        (1_u32..9).prop_map(Change::Cluster),
        (prop::option::of(0_u64..9999), 0_usize..9, origin)
            .prop_map(|(gib, near, origin)| Change::MemoryAlone { gib, near, origin }),
        (0_usize..9, cpus()).prop_map(|(at, cpus)| Change::NodeCpus(at, cpus)),
        (0_usize..99).prop_map(Change::NoPackage),
        (0_usize..99, cpus()).prop_map(|(at, cpus)| Change::Siblings(at, cpus)),
        (0_u32..99, 1_u64..3).prop_map(|(cpu, ghz)| Change::Base(cpu, ghz)),
        cpus().prop_map(Change::Partitioned),
        (prop::sample::select(classes), prop::option::of(0_usize..9), names)
            .prop_map(|(class, node, names)| Change::Device { class, node, names }),
        (0_usize..9, 1_u8..20).prop_map(|(of, count)| Change::Functions { of, count }),
    ]
}

fn apply(snapshot: &mut Snapshot, change: Change) {
    let cpu_count = snapshot.cpus.len();
    let node_count = snapshot.nodes.len();
    let groups = |size: u32, cpu: CpuId| -> CpuSet {
        let first = cpu.0 / size * size;
        (first..first + size).map(CpuId).collect()
    };
    match change {
        Change::Efficient(cpus) => {
            let all = CpuSet::first_n(u32::try_from(cpu_count).unwrap());
            let kind = |name: &str, cpus| KindFacts { name: name.to_owned(), cpus };
            snapshot.kinds = vec![kind("cpu_core", all.difference(&cpus)), kind("cpu_atom", cpus)];
        }
        Change::SharedL2(size, mib) => {
            for cpu in &mut snapshot.cpus {
                cpu.caches.push(CacheFacts {
                    level: Some(2),
                    shared_cpus: Some(groups(size, cpu.id)),
                    size: mib.map(|mib| Bytes(mib << 20)),
                    ..CacheFacts::default()
                });
            }
        }
        Change::Cluster(size) => {
            snapshot.cpus.iter_mut().for_each(|cpu| cpu.cluster_cpus = Some(groups(size, cpu.id)));
        }
        Change::MemoryAlone { gib, near, origin } if node_count > 0 => {
            let id = NodeId(u32::try_from(node_count).unwrap());
            let distance = |other: usize| if other == near % node_count { 17 } else { 28 };
            let distances = (0..node_count).map(distance).chain([10]).collect();
            let mem_total = gib.map(Bytes::gib);
            snapshot.nodes.push(NodeFacts {
                cpus: Some(CpuSet::new()),
                mem_total,
                distances,
                side_caches: gib.map(Bytes::gib).into_iter().collect(),
                ..NodeFacts::new(id)
            });
            snapshot.online_nodes = None;
            snapshot.dax.push(DaxFacts { name: format!("dax{id}"), node: Some(id), origin });
        }
        Change::NodeCpus(at, cpus) if node_count > 0 => {
            snapshot.nodes[at % node_count].cpus = Some(cpus);
        }
        Change::MemoryAlone { .. } | Change::NodeCpus(..) => {}
        Change::NoPackage(at) => snapshot.cpus[at % cpu_count].package_id = None,
        Change::Siblings(at, cpus) => snapshot.cpus[at % cpu_count].thread_siblings = Some(cpus),
        Change::Base(id, ghz) => snapshot.policies.push(PolicyFacts {
            id,
            base: Some(Khz(ghz * 1_000_000)),
            ..PolicyFacts::default()
        }),
        Change::Partitioned(cpus) => snapshot.partitioned = Some(cpus),
        Change::Device { class, node, names } => {
            let address = format!("0000:{:02x}:00.0", snapshot.devices.len());
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let node = node.map(|node| u32::try_from(node).unwrap());
            snapshot.devices.push(device(&address, class, node, &names));
        }
        Change::Functions { of, count } if !snapshot.devices.is_empty() => {
            let of = snapshot.devices[of % snapshot.devices.len()].clone();
            for function in 0..count {
                let mut vf = of.clone();
                vf.physical = Some(of.address);
                vf.address.device = 1 + function / 8;
                vf.address.function = function % 8;
                snapshot.devices.push(vf);
            }
        }
        Change::Functions { .. } => {}
    }
}

/// A machine of any shape, with and without NUMA, packages, dies and L3s.
fn spec() -> impl Strategy<Value = String> {
    let level = |name: &'static str, max: u32| {
        prop::option::of(1..=max)
            .prop_map(move |count| count.map(|count| format!("{name}:{count}")))
    };
    let inner = (level("numa", 3), level("l3", 3), any::<bool>())
        .prop_map(|(numa, l3, swap)| if swap { [l3, numa] } else { [numa, l3] });
    let threads = prop::sample::select(vec![1, 1, 2, 2, 3, 4, 8]);
    (level("pack", 3), level("die", 2), inner, 1_u32..9, threads).prop_map(
        |(pack, die, inner, core, pu)| {
            let levels = [pack, die].into_iter().chain(inner).flatten();
            let words = levels.chain([format!("core:{core}"), format!("pu:{pu}")]);
            words.collect::<Vec<_>>().join(" ")
        },
    )
}

/// A machine of which anything may be odd.
#[derive(Clone, Debug)]
struct Odd {
    spec: String,
    offline: CpuSet,
    isolated: CpuSet,
    changes: Vec<Change>,
}

impl Odd {
    /// `None` when no CPU is online.
    fn topology(self) -> Option<Topology> {
        let mut snapshot = machine(&self.spec);
        snapshot.isolated = Some(self.isolated);
        snapshot.online = snapshot.online.map(|online| online.difference(&self.offline));
        for facts in &mut snapshot.cpus {
            facts.online = Some(!self.offline.contains(facts.id));
        }
        self.changes.into_iter().for_each(|change| apply(&mut snapshot, change));
        derive(&snapshot).ok()
    }
}

fn odd() -> impl Strategy<Value = Odd> {
    let changes = prop::collection::vec(change(), 0..10);
    (spec(), cpus(), cpus(), changes).prop_map(|(spec, offline, isolated, changes)| Odd {
        spec,
        offline,
        isolated,
        changes,
    })
}

fn seats() -> impl Strategy<Value = BTreeMap<CpuId, Seat>> {
    let class = prop::sample::select(CpuClass::ALL.to_vec());
    let guests = prop::collection::vec(foreign(), 0..4);
    let seat =
        (class, foreign(), guests).prop_map(|(class, label, guests)| Seat { class, label, guests });
    (prop::collection::vec(seat, 1..8), prop::collection::btree_map(0_u32..99, 0_usize..8, 0..60))
        .prop_map(|(seats, taken)| {
            let seat = |at: usize| seats[at % seats.len()].clone();
            taken.into_iter().map(|(cpu, at)| (CpuId(cpu), seat(at))).collect()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_overlaps_and_nothing_is_cut_off(odd in odd(), seats in seats()) {
        let Some(topology) = odd.topology() else { return Ok(()) };
        check(&topology, &|_| None)?;
        check(&topology, &|cpu| seats.get(&cpu).cloned())?;
    }

    #[test]
    fn every_container_is_in_the_legend(labels in prop::collection::btree_set("[a-z]{3,9}/[a-z0-9-]{1,35}", 1..40)) {
        let labels: Vec<String> = labels.into_iter().collect();
        let topology = derive(&machine("pack:2 numa:1 l3:1 core:20 pu:2")).unwrap();
        let seat = |cpu: CpuId| Some(Seat {
            class: CpuClass::Exclusive,
            label: labels.get(cpu.0 as usize)?.clone(),
            guests: Vec::new(),
        });
        check(&topology, &seat)?;
        let texts = check_xml(&render_svg(&topology, &seat)).map_err(TestCaseError::fail)?;
        for label in &labels {
            // A long label may be broken after 40 characters.
            let head: String = label.chars().take(40).collect();
            prop_assert!(texts.iter().any(|text| text == label || *text == head), "{}", label);
        }
    }
}

#[test]
fn machines_by_hand_are_sound_too() {
    for snapshot in [hybrid(), pmem_and_devices(), hbm_and_cxl(), across()] {
        let topology = derive(&snapshot).unwrap();
        check(&topology, &|_| None).unwrap();
        check(&topology, &seat).unwrap();
    }
}

#[test]
fn machines_from_one_cpu_to_the_most_that_linux_can_have() {
    for (spec, kib_max) in [
        ("one-cpu", 4),
        ("core:3", 4),
        ("xeon-8480-snc4", 64),
        ("epyc-9654", 96),
        ("pack:4 numa:2 l3:1 core:64 pu:2", 250),
        ("numa:1 core:128 pu:8", 250),
        ("core:1024", 250),
        ("core:1537", 350),
        ("pack:8 numa:1 l3:8 core:4 pu:8", 400),
        ("pack:16 numa:4 core:64 pu:2", 1500),
    ] {
        let topology = derive(&machine(spec)).unwrap();
        check(&topology, &|_| None).unwrap();
        let len = render_svg(&topology, &|_| None).len();
        assert!(len < kib_max * 1024, "{spec}: {len} bytes");
    }
}

#[test]
fn cpus_in_no_order_at_all_are_listed_where_there_are_no_numbers() {
    let mut snapshot = machine("pack:2 numa:2 core:256 pu:2");
    let scatter = |cpu: u32| (cpu * 7919) % 2048;
    for facts in &mut snapshot.cpus {
        facts.id = CpuId(scatter(facts.id.0));
        let siblings = facts.thread_siblings.take().unwrap();
        facts.thread_siblings = Some(siblings.iter().map(|cpu| CpuId(scatter(cpu.0))).collect());
    }
    for node in &mut snapshot.nodes {
        let cpus = node.cpus.take().unwrap();
        node.cpus = Some(cpus.iter().map(|cpu| CpuId(scatter(cpu.0))).collect());
    }
    let topology = derive(&snapshot).unwrap();
    assert_eq!(topology.cpus(), &set("0-2047"));
    check(&topology, &|_| None).unwrap();
}
