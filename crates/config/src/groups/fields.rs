//! Reads the fields of a type of groups. In: a mapping of the file. Out: values; every mistake with its place.

use bayplan_allocator::{CpuWishes, Packing, Siblings, Strictness, Within};
use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuPriority, CpuSet, MemoryKind};
use bayplan_workload::annotations::{Words, is_key};

use crate::fields::{Fields, one_of};
use crate::yaml::{Node, Value};
use bayplan_node::groups::{
    Capacity, Creation, Fill, Follow, GroupPlace, Inside, InstanceKey, Instances, Load, Most,
    Priority, Size,
};

pub(super) const PRIORITIES: &Words<Priority> = &[
    ("high", Priority::High),
    ("normal", Priority::Normal),
    ("low", Priority::Low),
    ("none", Priority::None),
];
pub(super) const INSIDE: &[(&str, Inside)] = &[
    ("share", Inside::Share),
    ("slots", Inside::Slots),
    ("guaranteed-exclusive", Inside::GuaranteedExclusive),
];
pub(super) const FILLS: &Words<Fill> =
    &[("balanced", Fill::Balanced), ("packed", Fill::Packed), ("first", Fill::First)];
pub(super) const CREATIONS: &Words<Creation> =
    &[("all", Creation::All), ("balance", Creation::Balance)];
pub(super) const LEVELS: &Words<Level> = &[
    ("l3", Level::L3),
    ("numa", Level::NumaNode),
    ("die", Level::Die),
    ("package", Level::Package),
    ("machine", Level::Machine),
];
pub(super) const IDLE_LEVELS: &Words<Level> = &[
    ("core", Level::Core),
    ("l2", Level::L2),
    ("l3", Level::L3),
    ("numa", Level::NumaNode),
    ("die", Level::Die),
    ("package", Level::Package),
    ("machine", Level::Machine),
];
pub(super) const PACKINGS: &Words<Packing> = &[
    ("packed", Packing::Packed),
    ("spread", Packing::Spread),
    ("one-per-core", Packing::OnePerCore),
];
pub(super) const SIBLINGS: &Words<Siblings> =
    &[("pair", Siblings::Pair), ("shared", Siblings::Shared), ("idle", Siblings::Idle)];
pub(super) const ISOLATED: &Words<Option<Strictness>> = &[
    ("no", None),
    ("prefer", Some(Strictness::Preferred)),
    ("require", Some(Strictness::Required)),
];
pub(super) const CORE_TYPES: &Words<CoreKind> =
    &[("performance", CoreKind::Performance), ("efficient", CoreKind::Efficient)];
pub(super) const CPU_PRIORITIES: &Words<CpuPriority> =
    &[("high", CpuPriority::High), ("normal", CpuPriority::Normal), ("low", CpuPriority::Low)];
pub(super) const MEMORY: &Words<MemoryKind> = &[
    ("dram", MemoryKind::Dram),
    ("pmem", MemoryKind::Pmem),
    ("hbm", MemoryKind::Hbm),
    ("cxl", MemoryKind::Cxl),
];
/// More CPUs than any machine has.
const CPUS_MAX: usize = 65_536;

impl Fields<'_> {
    pub(super) fn name(&mut self, value: &Node) -> String {
        let Some(name) = self.text("name", value) else { return String::new() };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(is_plain) || name.starts_with(['.', '_', '-']) || name == "none" {
            self.wrong(
                value.at,
                format!(
                    "`{name}` is no name: expected letters, digits, `.`, `_`, `-`, and not `none`"
                ),
            );
        }
        name.to_owned()
    }

    /// `Some(None)`: unlimited.
    fn bound(&mut self, key: &str, value: &Node, min: usize) -> Option<Option<usize>> {
        if self.text(key, value)? == "unlimited" {
            return Some(None);
        }
        let expected = format!("{min} to {CPUS_MAX} or unlimited");
        self.number(key, value, min..=CPUS_MAX, &expected).map(Some)
    }

    fn count(&mut self, key: &str, value: &Node, min: usize) -> Option<usize> {
        self.number(key, value, min..=CPUS_MAX, &format!("{min} to {CPUS_MAX}"))
    }

    pub(super) fn memory_kinds(&mut self, value: &Node) -> Vec<MemoryKind> {
        let names = texts(self, "memoryTypes", value);
        let mut kinds = Vec::new();
        for name in names {
            match one_of(&name.to_lowercase(), MEMORY) {
                Some(kind) => kinds.push(kind),
                None => {
                    self.wrong(value.at, format!("`{name}` is none of dram, pmem, hbm, cxl"));
                }
            }
        }
        kinds
    }
}

/// A list of texts.
pub(super) fn texts(fields: &mut Fields<'_>, key: &str, value: &Node) -> Vec<String> {
    let Value::List(items) = &value.value else {
        fields.wrong(value.at, format!("`{key}` is no list"));
        return Vec::new();
    };
    items.iter().filter_map(|item| fields.text(key, item).map(str::to_owned)).collect()
}

/// A mapping, or a word for the key `by`, or a number or a percentage for `max`.
pub(super) fn instances(fields: &mut Fields<'_>, value: &Node) -> Instances {
    const KEYS: [&str; 7] = ["by", "min", "max", "fill", "preferNew", "spreadPods", "perNamespace"];
    let mut read = Instances::default();
    if let Value::Scalar(_) = &value.value {
        match most(fields, value) {
            Some(most) => read.max = most,
            None => read.by = key(fields, value),
        }
        return read;
    }
    for (at, name, value) in fields.entries() {
        match name.as_str() {
            "by" => read.by = key(fields, value),
            "min" => read.min = fields.count(&name, value, 0).unwrap_or(0),
            "max" => match most(fields, value) {
                Some(most) => read.max = most,
                None => fields.wrong(
                    value.at,
                    "`max` is no number, percentage (`50%`), amount (`8 CPUs`) or `unlimited`"
                        .to_owned(),
                ),
            },
            "fill" => read.fill = fields.word(&name, value, FILLS).unwrap_or_default(),
            "preferNew" => read.prefers_new = fields.flag(&name, value).unwrap_or(false),
            "spreadPods" => read.spreads_pods = fields.flag(&name, value).unwrap_or(false),
            "perNamespace" => read.per_namespace = fields.flag(&name, value).unwrap_or(false),
            other => fields.unknown(at, other, &KEYS),
        }
    }
    read
}

fn most(fields: &mut Fields<'_>, value: &Node) -> Option<Most> {
    let text = fields.text("max", value)?;
    if text == "unlimited" {
        return Some(Most::Unlimited);
    }
    let number = |text: &str| text.trim().parse().ok().filter(|it| (1..=CPUS_MAX).contains(it));
    if let Some(percent) = text.strip_suffix('%') {
        return number(percent).filter(|it| *it <= 100).map(Most::Percent);
    }
    if let Some(cpus) = text.strip_suffix("CPUs").or_else(|| text.strip_suffix("CPU")) {
        return number(cpus).map(Most::Cpus);
    }
    number(text).map(Most::Count)
}

fn key(fields: &mut Fields<'_>, value: &Node) -> InstanceKey {
    let Some(text) = fields.text("by", value).map(str::to_owned) else {
        return InstanceKey::default();
    };
    let by = match text.as_str() {
        "type" => Some(InstanceKey::Type),
        "pod" => Some(InstanceKey::Pod),
        "namespace" => Some(InstanceKey::Namespace),
        other => is_template(other).then(|| InstanceKey::Template(other.to_owned())),
    };
    if by.is_none() {
        fields.wrong(
            value.at,
            format!("`by` is `{text}`, expected type, pod, namespace, or a text with keys such as `${{pod/labels/app}}`"),
        );
    }
    by.unwrap_or_default()
}

/// It has at least one key, and all of its keys are known.
fn is_template(text: &str) -> bool {
    let mut keys = text.split("${").skip(1).peekable();
    keys.peek().is_some() && keys.all(|it| it.split_once('}').is_some_and(|(key, _)| is_key(key)))
}

/// Its size, and how that follows what members use.
pub(super) fn size(fields: &mut Fields<'_>) -> (Size, Option<Follow>) {
    const KEYS: [&str; 5] = ["requests", "usage", "fixed", "list", "domain"];
    let entries = fields.entries();
    let [(at, key, value)] = &entries[..] else {
        let at = fields.at();
        fields.wrong(at, format!("expected one of {}", KEYS.join(", ")));
        return (Size::default(), None);
    };
    let size = match key.as_str() {
        "requests" => requests(&mut fields.inner(key, value), None),
        "usage" => {
            let mut follow = Follow::default();
            let size = requests(&mut fields.inner(key, value), Some(&mut follow));
            return (size, Some(follow));
        }
        "fixed" => fields.count(key, value, 1).map_or_else(Size::default, Size::Fixed),
        "list" => Size::List(list(fields, value)),
        "domain" => fields.word(key, value, LEVELS).map_or_else(Size::default, Size::Domain),
        other => {
            fields.unknown(*at, other, &KEYS);
            Size::default()
        }
    };
    (size, None)
}

/// Bounds of a size; where it follows use, how.
fn requests(fields: &mut Fields<'_>, mut follow: Option<&mut Follow>) -> Size {
    const KEYS: [&str; 5] = ["min", "max", "headroomPercent", "deadband", "changesPerMinute"];
    let (mut min, mut max) = (1, None);
    for (at, key, value) in fields.entries() {
        match (key.as_str(), &mut follow) {
            ("min", _) => min = fields.count(&key, value, 0).unwrap_or(1),
            // Balloons have it that zero is no bound.
            ("max", _) => max = fields.bound(&key, value, 0).flatten().filter(|it| *it > 0),
            ("headroomPercent", Some(follow)) => {
                follow.headroom_percent = fields.count(&key, value, 0).unwrap_or(0);
            }
            ("deadband", Some(follow)) => {
                follow.deadband = fields.count(&key, value, 0).unwrap_or(0);
            }
            ("changesPerMinute", Some(follow)) => {
                follow.changes_per_minute = fields.count(&key, value, 1).unwrap_or(1);
            }
            (other, Some(_)) => fields.unknown(at, other, &KEYS),
            (other, None) => fields.unknown(at, other, &["min", "max"]),
        }
    }
    if max.is_some_and(|max| max < min) {
        let at = fields.at();
        fields.wrong(at, format!("`max` is less than `min`, which is {min}"));
    }
    Size::Requests { min, max }
}

fn list(fields: &mut Fields<'_>, value: &Node) -> Vec<CpuSet> {
    let mut lists = Vec::new();
    for text in texts(fields, "list", value) {
        match text.parse::<CpuSet>() {
            Ok(cpus) if !cpus.is_empty() => lists.push(cpus),
            _ => fields.wrong(value.at, format!("`{text}` is no list of CPUs such as 4-7,12")),
        }
    }
    if lists.is_empty() {
        fields.wrong(value.at, "`list` has no CPUs".to_owned());
    }
    lists
}

pub(super) fn capacity(fields: &mut Fields<'_>) -> Capacity {
    let mut read = Capacity::default();
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "pods" => read.pods = fields.bound(&key, value, 1).flatten(),
            "containers" => read.containers = fields.bound(&key, value, 1).flatten(),
            other => fields.unknown(at, other, &["pods", "containers"]),
        }
    }
    read
}

/// Names of kinds of load; what they are is `groupLoads` to say.
pub(super) fn loads(fields: &mut Fields<'_>, value: &Node) -> Vec<Load> {
    let names = texts(fields, "loads", value).into_iter();
    names.map(|name| Load { name, level: Level::Core, overloads: false }).collect()
}

/// Wishes about CPUs, and about their place.
pub(super) fn cpus(fields: &mut Fields<'_>) -> (CpuWishes, GroupPlace) {
    const KEYS: [&str; 10] = [
        "packing",
        "siblings",
        "isolated",
        "coreType",
        "priority",
        "within",
        "hideHyperthreads",
        "near",
        "far",
        "balance",
    ];
    let (mut read, mut place) = (CpuWishes::default(), GroupPlace::default());
    let preferred = Strictness::Preferred;
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "packing" => read.packing = fields.word(&key, value, PACKINGS).unwrap_or_default(),
            "siblings" => read.siblings = fields.word(&key, value, SIBLINGS).unwrap_or_default(),
            "isolated" => read.isolated = fields.word(&key, value, ISOLATED).flatten(),
            "coreType" => {
                read.core_kind = fields.word(&key, value, CORE_TYPES).map(|it| (it, preferred));
            }
            "priority" => {
                read.priority = fields.word(&key, value, CPU_PRIORITIES).map(|it| (it, preferred));
            }
            "within" => read.within = fields.word(&key, value, LEVELS).map(Within::One),
            "hideHyperthreads" => {
                read.hides_hyperthreads = fields.flag(&key, value).unwrap_or(false);
            }
            "near" => place.near = texts(fields, &key, value),
            "far" => place.far = texts(fields, &key, value),
            "balance" => place.is_balanced = fields.flag(&key, value).unwrap_or(false),
            other => fields.unknown(at, other, &KEYS),
        }
    }
    (read, place)
}
