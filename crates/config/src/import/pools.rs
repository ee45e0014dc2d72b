//! Pools to groups: podpools, dynamic-pools and static-pools of CRI Resource Manager, and those of CMK.
//!
//! A pool of pods is a group of a fixed size with room for a number of pods. A dynamic pool is a group with a size that follows use. CMK's exclusive
//! pools are groups of one slot per list of CPUs; CPUs of its pool `infra` are the reserved ones.

use bayplan_types::CpuSet;

use super::balloons::{priority, type_class};
use super::classes::use_class;
use super::document::{Document, entries, items, scalar, text_of};
use super::machine::cpu_list;
use super::nri_plugins::{is_true, reserve_namespaces};
use super::output::{Step, Yaml};
use super::report::Fate;
use super::walk::Does::{Call, Convert, Holds, Judge, Lost, Take};
use super::walk::{Place, Rule, Walk, path};
use crate::cmk::{Pool, Pools, Slot};
use crate::yaml::Node;

/// Keys of the policy podpools.
pub(super) const POD_POOLS: &[Rule] = &[
    ("pinCPU", Take("requests.pinCpu")),
    ("pinMemory", Take("requests.pinMemory")),
    ("Pools", Call(pod_pools)),
];

/// Keys of a pool of pods.
const POD_POOL: &[Rule] = &[
    ("Name", Take("name")),
    ("CPU", Take("size.fixed")),
    ("MaxPods", Convert("capacity.pods", super::balloons::unlimited)),
    ("Instances", Call(instances)),
    ("FillOrder", Convert("instances.fill", fill_order)),
];

/// Keys of the policy dynamic-pools.
pub(super) const DYNAMIC_POOLS: &[Rule] = &[
    ("pinCPU", Take("requests.pinCpu")),
    ("pinMemory", Take("requests.pinMemory")),
    (
        "idleCPUClass",
        Call(|walk, place, node| use_class(walk, place, node, path("cpuClasses.idle"))),
    ),
    ("reservedPoolNamespaces", Call(reserve_namespaces)),
    ("DynamicPoolTypes", Call(dynamic_pools)),
];

/// Keys of a dynamic pool.
const DYNAMIC_POOL: &[Rule] = &[
    ("Name", Take("name")),
    ("Namespaces", Take("members.namespaces")),
    ("CpuClass", Call(type_class)),
    ("AllocatorPriority", Convert("priority", priority)),
];

/// Keys of the policy static-pools.
pub(super) const STATIC_POOLS: &[Rule] = &[
    ("pools", Call(static_pools)),
    ("ConfFilePath", Lost("name that file to `bayplan import`")),
    ("ConfDirPath", Lost("name that directory to `bayplan import`")),
    ("ConfFileDir", Lost("name that directory to `bayplan import`")),
    ("LabelNode", Judge(no_label)),
    ("TaintNode", Judge(no_label)),
];

/// Where the next group of the list stands.
pub(super) fn next_group(walk: &Walk<'_>) -> Vec<Step> {
    vec![Step::Key("groups".to_owned()), Step::Index(walk.list_len("groups"))]
}

/// `default` takes the pods of no other pool, and comes last.
fn sorted(node: &Node) -> Vec<(usize, &Node)> {
    let mut pools: Vec<(usize, &Node)> = items(node).iter().enumerate().collect();
    pools.sort_by_key(|(_, item)| scalar(item, "name") == Some("default"));
    pools
}

fn pod_pools(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (idx, item) in sorted(node) {
        let place = place.item(idx);
        if scalar(item, "name") == Some("reserved") {
            walk.note(&place, item, Fate::lost("its CPUs are those of `reservedCpus`"));
            continue;
        }
        let place = place.writing(next_group(walk));
        walk.keys(POD_POOL, &place, item);
        if is_made_late(item) && is_balanced(item) {
            let why =
                "Pods are rather in different pools: with podpools all are there from the start.";
            walk.put(place.target("instances.preferNew"), Yaml::text("true"), why);
        }
        if let Some(most) = scalar(item, "MaxPods").filter(|it| *it != "0") {
            let why = "a pod for which no pool has room is refused, and not put into `default`";
            walk.note_text(&format!("{}.MaxPods, all full", place.key), most, Fate::lost(why));
        }
        if scalar(item, "name") == Some("default") {
            let why = "The pool `default` takes the pods of no other pool.";
            walk.put(place.target("members.all"), Yaml::text("true"), why);
        }
    }
}

/// Whether the number of pools is one that is known only on the machine, so that they are made when pods come.
fn is_made_late(pool: &Node) -> bool {
    scalar(pool, "Instances").is_some_and(|it| it.trim().parse::<u32>().is_err())
}

/// Whether the next pod goes into the pool with fewest, which is so where nothing else is said.
fn is_balanced(pool: &Node) -> bool {
    scalar(pool, "FillOrder").is_none_or(|it| it.eq_ignore_ascii_case("balanced"))
}

/// A number of instances, of CPUs (`8 CPUs`), or a part of the CPUs that are not reserved (`95 %`). They are there from the start.
fn instances(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let text = text_of(node).unwrap_or_default().trim();
    let value = match text.strip_suffix('%') {
        Some(percent) => format!("{}%", percent.trim()),
        None => text.to_owned(),
    };
    walk.take(place, node, place.target("instances.max"), Yaml::text(value));
    if text.parse::<u32>().is_ok() {
        let why = "All instances of a pool are there from the start.";
        walk.put(place.target("instances.min"), Yaml::text(text), why);
    } else {
        let why = "they are made when pods come; `min` in `instances` makes a number of them at the start";
        walk.note_text(&format!("{}, from the start", place.key), text, Fate::lost(why));
    }
}

fn fill_order(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default().to_ascii_lowercase().as_str() {
        "balanced" => Ok(Yaml::text("balanced")),
        "packed" => Ok(Yaml::text("packed")),
        "firstfree" => Ok(Yaml::text("first")),
        other => Err(format!("`{other}` is no order in which pools are filled")),
    }
}

fn dynamic_pools(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (idx, item) in sorted(node) {
        let place = place.item(idx).writing(next_group(walk));
        walk.keys(DYNAMIC_POOL, &place, item);
        let why = "A dynamic pool follows the CPU time that it uses.";
        let least = Yaml::map([("min".to_owned(), Yaml::text("1"))]);
        walk.put(place.target("size.usage"), least, why);
        walk.put(place.target("instances.max"), Yaml::text("1"), "There is one pool of a type.");
        if scalar(item, "name") == Some("default") {
            let why = "The pool `default` takes the containers of no other pool.";
            walk.put(place.target("members.all"), Yaml::text("true"), why);
        }
    }
}

fn no_label(node: &Node) -> Fate {
    match text_of(node) {
        Some("true") => {
            Fate::lost("`bayplan agent --publish cmk` sets label and taint of the node")
        }
        _ => Fate::holds("nodes get no label and no taint"),
    }
}

/// The file `ConfFilePath`.
pub(super) fn static_pools_file(walk: &mut Walk<'_>, document: &Document) {
    const FILE: &[Rule] = &[
        ("pools", Call(static_pools)),
        ("labelNode", Judge(no_label)),
        ("taintNode", Judge(no_label)),
        ("legacyMode", Holds("either form is read")),
    ];
    walk.document(FILE, document);
}

/// Pools with `exclusive` and `cpuLists`.
fn static_pools(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let mut infra = None;
    let mut pools = Vec::new();
    for (_, name, pool) in entries(node) {
        let place = place.below(name);
        let lists = entries(pool).iter().find(|(_, key, _)| key.eq_ignore_ascii_case("cpuLists"));
        let lists = lists.map_or(&[][..], |(.., it)| items(it));
        let parsed: Result<Vec<Slot>, String> = lists
            .iter()
            .map(|list| {
                let cpus = cpu_list(scalar(list, "Cpuset").unwrap_or_default())?;
                let socket = scalar(list, "Socket").and_then(|it| it.parse().ok());
                Ok(Slot { socket, cpus, tasks: Vec::new() })
            })
            .collect();
        match parsed {
            Ok(slots) => {
                let pool_value = Pool { is_exclusive: is_true(pool, "exclusive"), slots };
                let keys = (place, pool.clone());
                match name.as_str() {
                    "infra" => infra = Some((keys, pool_value)),
                    _ => pools.push((name.clone(), keys, pool_value)),
                }
            }
            Err(why) => walk.note(&place, pool, Fate::Lost(why)),
        }
    }
    if let Some(((place, node), pool)) = infra {
        let cpus = Yaml::text(pool.cpus().to_string());
        walk.take(&place, &node, path("reservedCpus"), cpus);
    }
    for (name, (place, node), pool) in pools {
        let to = group(walk, &name, &pool);
        walk.note(&place, &node, Fate::Taken(to));
        if name == "shared" && !pool.is_exclusive {
            let last = walk.list_len("groups").saturating_sub(1);
            let to = vec![Step::Key("groups".to_owned()), Step::Index(last)];
            let place = place.writing(to);
            let why = "Containers that name no pool are in `shared`.";
            walk.put(place.target("members.all"), Yaml::text("true"), why);
        }
    }
}

/// A group of a pool with lists of CPUs; returns its place.
fn group(walk: &mut Walk<'_>, name: &str, pool: &Pool) -> String {
    let place = Place::default().writing(next_group(walk));
    let comment = format!("pool {name}");
    walk.put(place.target("name"), Yaml::text(name), &comment);
    let lists = pool.slots.iter().map(|slot| slot.cpus.to_string());
    walk.put(place.target("size.list"), Yaml::texts(lists), "One entry per list of CPUs.");
    if pool.is_exclusive {
        let why = "A container gets as many slots as it asks for, and no other container is there.";
        walk.put(place.target("inside"), Yaml::text("slots"), why);
    }
    format!("groups[{}]", walk.list_len("groups").saturating_sub(1))
}

/// CMK's pools; their processes are not carried over.
pub(super) fn cmk(walk: &mut Walk<'_>, pools: &Pools) {
    for (name, pool) in &pools.pools {
        let key = format!("pools.{name}");
        let lists: Vec<String> = pool.slots.iter().map(|slot| slot.cpus.to_string()).collect();
        let value = lists.join(" ");
        if name == "infra" {
            let cpus: CpuSet = pool.cpus();
            let why = "Pool infra.";
            walk.put(path("reservedCpus"), Yaml::text(cpus.to_string()), why);
            walk.note_text(&key, &value, Fate::Taken("reservedCpus".to_owned()));
            continue;
        }
        let to = group(walk, name, pool);
        walk.note_text(&key, &value, Fate::Taken(to));
        for slot in pool.slots.iter().filter(|slot| !slot.tasks.is_empty()) {
            let tasks: Vec<String> = slot.tasks.iter().map(u32::to_string).collect();
            let why = "slots belong to containers, not to processes";
            walk.note_text(&format!("{key}.{}", slot.cpus), &tasks.join(","), Fate::lost(why));
        }
    }
    let why = "On a node with CMK, Guaranteed pods have no exclusive CPUs outside its pools.";
    walk.put(path("onNoCapacity"), Yaml::text("share"), why);
}
