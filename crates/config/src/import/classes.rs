//! Classes that several systems have in one form: CPU classes, resctrl partitions, block I/O.

use bayplan_enforcement::power::profile;

use super::document::{entries, find, items, scalar, text_of};
use super::output::{Step, Yaml};
use super::report::Fate;
use super::walk::{Place, Walk, path};
use crate::cpu_classes::trees::INSTEAD_OF_SPEED_SELECT;
use crate::groups::scheduling::{DEADLINE, FLAGS};
use crate::yaml::{Node, Value};

/// Fields of a CPU class that we have, under their names, and what we call them.
const FIELDS: [(&str, &str); 12] = [
    ("minFreq", "minFreq"),
    ("maxFreq", "maxFreq"),
    ("uncoreMinFreq", "uncoreMinFreq"),
    ("uncoreMaxFreq", "uncoreMaxFreq"),
    ("energyPerformancePreference", "energyPerformancePreference"),
    ("freqGovernor", "governor"),
    ("governor", "governor"),
    ("disabledCstates", "disabledCstates"),
    ("turbo", "turbo"),
    ("turboPriority", "turboPriority"),
    ("maxLatency", "maxLatency"),
    ("sstClosID", "clos"),
];

const PUBLISHED: &str =
    "`bayplan agent --publish power-classes` offers every class as `power.intel.com/CLASS`";

/// Why a field has no counterpart.
fn why_lost(field: &str) -> &'static str {
    match field.to_ascii_lowercase().as_str() {
        "pctpriority" | "pctminfreq" | "pctmaxfreq" => INSTEAD_OF_SPEED_SELECT,
        _ => "no field of a CPU class that is known here",
    }
}

/// CPU classes, as a mapping by name or as a list with `name`. Takes frequencies without a unit as kHz, as these systems do.
pub(super) fn cpu_classes(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (idx, item) in items(node).iter().enumerate() {
        let Some(name) = scalar(item, "name").map(str::to_owned) else {
            walk.note(&place.item(idx), item, Fate::lost("a class without a name"));
            continue;
        };
        cpu_class(walk, &place.item(idx), &name, item);
    }
    for (_, name, class) in entries(node) {
        cpu_class(walk, &place.below(name), name, class);
    }
}

/// One CPU class.
pub(super) fn cpu_class(walk: &mut Walk<'_>, place: &Place, name: &str, class: &Node) {
    let to = class_path(name);
    if entries(class).iter().all(|(_, key, _)| key == "name") {
        walk.take(place, class, to, Yaml::Map(Vec::new()));
        return;
    }
    for (_, field, value) in entries(class) {
        let below = place.below(field);
        let known = FIELDS.iter().find(|(theirs, _)| theirs.eq_ignore_ascii_case(field));
        match known {
            _ if field.eq_ignore_ascii_case("name") => {
                walk.note(&below, value, Fate::Taken(format!("cpuClasses.classes.{name}")));
            }
            _ if field.eq_ignore_ascii_case("publishExtendedResource") => {
                walk.note(&below, value, Fate::holds(PUBLISHED));
            }
            // Zero is Go's word for a frequency that is not set.
            Some((_, ours)) if is_unset(ours, value) => {
                walk.note(&below, value, Fate::holds("what a class does not name stays as it was"));
            }
            Some((_, ours)) => {
                let mut to = to.clone();
                to.push(Step::Key((*ours).to_owned()));
                walk.take(&below, value, to, Yaml::of(value));
            }
            None => walk.note(&below, value, Fate::lost(why_lost(field))),
        }
    }
}

/// Zero is a class of service, though.
fn is_unset(field: &str, value: &Node) -> bool {
    let text = text_of(value);
    text == Some("") || text == Some("0") && field != "clos"
}

/// Where a class of this name is.
pub(super) fn class_path(name: &str) -> Vec<Step> {
    let mut to = path("cpuClasses.classes");
    to.push(Step::Key(name.to_owned()));
    to
}

/// Whether there is a class of this name, in the file or built in.
pub(super) fn is_class(walk: &Walk<'_>, name: &str) -> bool {
    let is_built_in = profile(name).is_some() && (name != "default" || walk.has_default_class());
    is_built_in || walk.out.get(&class_path(name)).is_some()
}

/// The name of a class for some CPUs. Where no class has it, other systems leave these CPUs alone.
pub(super) fn use_class(walk: &mut Walk<'_>, place: &Place, node: &Node, to: Vec<Step>) {
    let name = text_of(node).unwrap_or_default().to_owned();
    match name.as_str() {
        "" => walk.note(place, node, Fate::holds("CPUs without a class stay as they are")),
        _ if is_class(walk, &name) => walk.take(place, node, to, Yaml::text(name)),
        _ => {
            let why = format!("no class `{name}` is defined, so these CPUs stay as they are");
            walk.note(place, node, Fate::Lost(why));
        }
    }
}

/// Partitions and classes of resctrl, in goresctrl's form, which is ours.
pub(super) fn rdt(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        match key.to_ascii_lowercase().as_str() {
            "partitions" => walk.take(&below, value, path("resctrl.partitions"), Yaml::of(value)),
            "options" => rdt_options(walk, &below, value),
            "enable" => match text_of(value) {
                Some("false") => walk.note(
                    &below,
                    value,
                    Fate::lost(
                        "classes count where they are defined; leave `resctrl.partitions` out",
                    ),
                ),
                _ => walk.note(&below, value, Fate::holds("classes count where they are defined")),
            },
            "usepodqosasdefaultclass" => walk.note(
                &below,
                value,
                Fate::holds("a class named like a QoS class is for all of that QoS class"),
            ),
            "mode" => walk.note(&below, value, rdt_mode(value)),
            "force" => walk.note(&below, value, Fate::lost("groups of others are never removed")),
            _ => walk.note(&below, value, Fate::lost("no key of goresctrl that is known here")),
        }
    }
}

fn rdt_mode(node: &Node) -> Fate {
    match text_of(node).unwrap_or_default().to_ascii_lowercase().as_str() {
        "full" | "" => Fate::holds("full where resctrl is mounted"),
        _ => Fate::lost("classes count where they are defined; leave `resctrl.partitions` out"),
    }
}

fn rdt_options(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        match key.to_ascii_lowercase().as_str() {
            level @ ("l2" | "l3" | "mb") => {
                let to = path(&format!("resctrl.options.{level}"));
                walk.take(&below, value, to, Yaml::of(value));
            }
            "monitoringdisabled" => {
                let word = if text_of(value) == Some("true") { "off" } else { "auto" };
                walk.take(&below, value, path("resctrl.monitor"), Yaml::text(word));
            }
            "mode" => walk.note(&below, value, rdt_mode(value)),
            _ => walk.note(&below, value, Fate::lost("no option of goresctrl that is known here")),
        }
    }
}

/// Classes of block I/O, in goresctrl's form, which is ours.
pub(super) fn block_io(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (_, name, class) in entries(node) {
        let mut to = path("blockIo.classes");
        to.push(Step::Key(name.clone()));
        walk.take(&place.below(name), class, to, Yaml::of(class));
    }
    if let Value::List(_) | Value::Scalar(_) = node.value {
        walk.note(place, node, Fate::lost("classes of block I/O are a mapping by name"));
    }
}

const EMPTY: &str = "nothing of the class has a counterpart";

/// `schedulingClasses`. Policies of threads have their numbers with them: a priority without a real-time policy says nothing.
pub(super) fn scheduling_classes(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (idx, item) in items(node).iter().enumerate() {
        let place = place.item(idx);
        let policy = scalar(item, "policy").unwrap_or_default();
        if policy == "deadline" && find(item, "ioClass").is_none() {
            walk.note(&place, item, Fate::lost(DEADLINE));
            continue;
        }
        let at = walk.list_len("schedulingClasses");
        let place = place.writing(vec![Step::Key("schedulingClasses".to_owned()), Step::Index(at)]);
        let is_plain = matches!(policy, "" | "none" | "other" | "batch");
        let is_realtime = matches!(policy, "fifo" | "rr") && find(item, "priority").is_some();
        let has_io_priority = matches!(scalar(item, "ioClass"), Some("rt" | "be"));
        for (_, key, value) in entries(item) {
            let below = place.below(key);
            match (key.to_ascii_lowercase().as_str(), text_of(value)) {
                ("name", Some(name)) => {
                    walk.take(&below, value, place.target("name"), Yaml::text(name));
                }
                ("policy", Some("fifo" | "rr")) if !is_realtime => {
                    walk.note(&below, value, Fate::lost("a real-time policy has a priority"));
                }
                ("policy", Some(policy @ ("idle" | "batch" | "fifo" | "rr"))) => {
                    walk.take(&below, value, place.target("policy"), Yaml::text(policy));
                }
                ("policy", Some("other" | "none" | "")) => {
                    walk.note(&below, value, Fate::holds("threads are as their program has them"));
                }
                ("nice", Some(nice)) if is_plain => {
                    walk.take(&below, value, place.target("nice"), Yaml::text(nice));
                }
                ("priority", Some(priority)) if is_realtime => {
                    walk.take(&below, value, place.target("priority"), Yaml::text(priority));
                }
                ("ioclass", Some(io @ ("rt" | "be" | "idle" | "none"))) => {
                    walk.take(&below, value, place.target("ioClass"), Yaml::text(io));
                }
                ("iopriority", Some(priority)) if has_io_priority => {
                    walk.take(&below, value, place.target("ioPriority"), Yaml::text(priority));
                }
                ("policy" | "runtime" | "deadline" | "period", _) => {
                    walk.note(&below, value, Fate::lost(DEADLINE));
                }
                ("flags", _) => {
                    walk.note(&below, value, Fate::lost(FLAGS));
                }
                _ => walk.note(&below, value, Fate::lost("the policy or class of I/O has none")),
            }
        }
    }
}

/// `namespaceSchedulingClasses`: a class by namespace.
pub(super) fn scheduling_of_namespaces(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    add_to_classes(walk, place, node, "namespaces");
}

/// `podQoSSchedulingClasses`: a class by QoS class.
pub(super) fn scheduling_of_qos(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    add_to_classes(walk, place, node, "qosClasses");
}

fn add_to_classes(walk: &mut Walk<'_>, place: &Place, node: &Node, key: &str) {
    for (_, name, value) in entries(node) {
        let place = place.below(name);
        match scheduling_position(walk, text_of(value).unwrap_or_default()) {
            Some(at) => {
                let mut to = vec![Step::Key("schedulingClasses".to_owned()), Step::Index(at)];
                to.extend(path(key));
                let name = match key {
                    "qosClasses" => qos_name(name),
                    _ => name.clone(),
                };
                walk.add(&place, value, to, vec![Yaml::text(name)]);
            }
            None => walk.note(&place, value, Fate::lost(EMPTY)),
        }
    }
}

/// QoS classes are written in small letters, too.
fn qos_name(name: &str) -> String {
    let names = ["Guaranteed", "Burstable", "BestEffort"];
    let found = names.iter().find(|it| it.eq_ignore_ascii_case(name));
    found.map_or_else(|| name.to_owned(), |it| (*it).to_owned())
}

/// `schedulingClass` of a balloon type.
pub(super) fn scheduling_of_type(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let name = text_of(node).unwrap_or_default().to_owned();
    match scheduling_position(walk, &name) {
        Some(_) => walk.take(place, node, place.target("schedulingClass"), Yaml::text(name)),
        None => walk.note(place, node, Fate::lost(EMPTY)),
    }
}

/// Where a class stands among ours.
fn scheduling_position(walk: &Walk<'_>, name: &str) -> Option<usize> {
    let at = |idx: usize| {
        let mut to = vec![Step::Key("schedulingClasses".to_owned()), Step::Index(idx)];
        to.extend(path("name"));
        to
    };
    let named = Yaml::text(name);
    (0..walk.list_len("schedulingClasses")).find(|idx| walk.out.get(&at(*idx)) == Some(&named))
}
