//! Kubernetes Power Manager: profiles are CPU classes, the shared workload says which class shared CPUs have.
//!
//! Frequencies of profiles are in MHz, those of `Uncore` in kHz. A CPU class holds for the CPUs that bayplan gives, so a list of CPUs with a profile is a group with this list. Lists that Power Manager has
//! made for pods have no counterpart: these CPUs are bayplan's to choose.

use bayplan_enforcement::power::{self, PowerClass};

use super::classes::{class_path, is_class, use_class};
use super::document::{Document, PowerKind, entries, find, items, scalar, text_of};
use super::machine::cpu_list;
use super::output::{Item, Step, Yaml};
use super::pools::next_group;
use super::report::Fate;
use super::walk::Does::{Call, Convert, Holds, Lost, Take};
use super::walk::{Place, Rule, Walk, path};
use crate::yaml::{Node, Value};

const SELECTOR: &str = "each node has a configuration of its own";

/// One resource.
pub(super) fn resource(walk: &mut Walk<'_>, kind: PowerKind, document: &Document) {
    match kind {
        PowerKind::Config => walk.document(CONFIG, document),
        PowerKind::Profile => profile(walk, document),
        PowerKind::Workload => workload(walk, document),
        PowerKind::CStates => walk.document(C_STATES, document),
        PowerKind::TimeOfDay => walk.document(TIME_OF_DAY, document),
        PowerKind::Uncore => uncore(walk, document),
    }
}

const CONFIG: &[Rule] = &[
    ("powerNodeSelector", Holds(SELECTOR)),
    ("powerProfiles", Holds("classes of these names are built in")),
    ("powerImage", Holds("nothing is deployed")),
    ("customDevices", Lost("resources of other device plugins are not CPUs")),
];

/// A profile is a class of the same name.
fn profile(walk: &mut Walk<'_>, document: &Document) {
    let root = &document.root;
    let name = scalar(root, "name").unwrap_or_default().to_owned();
    const PROFILE: &[Rule] = &[
        ("name", Call(|walk, place, node| walk.note(place, node, Fate::Taken(CLASSES.to_owned())))),
        ("max", Convert("maxFreq", megahertz)),
        ("min", Convert("minFreq", megahertz)),
        ("epp", Convert("energyPerformancePreference", preference)),
        ("governor", Take("governor")),
        ("shared", Holds("the shared workload says which class shared CPUs have")),
    ];
    let place = Place { key: document.prefix.to_owned(), to: class_path(&name) };
    walk.keys(PROFILE, &place, root);
}

const CLASSES: &str = "cpuClasses.classes";

fn megahertz(node: &Node) -> Result<Yaml, String> {
    match text_of(node).and_then(|text| text.parse::<u64>().ok()) {
        Some(0) => {
            Err("zero stands for what the CPU can do, as does a class without it".to_owned())
        }
        Some(megahertz) => Ok(Yaml::text(format!("{megahertz}MHz"))),
        None => Ok(Yaml::of(node)),
    }
}

fn preference(node: &Node) -> Result<Yaml, String> {
    match text_of(node) {
        None | Some("") => Err("empty: the preference stays as it was".to_owned()),
        Some(text) => Ok(Yaml::text(text)),
    }
}

/// The workload of all cores says what shared and reserved CPUs have; one with containers was made for them.
fn workload(walk: &mut Walk<'_>, document: &Document) {
    const OF_PODS: &str = "made for pods; their CPUs have the class that the pod names";
    const SHARED: &[Rule] = &[
        ("name", Holds("CPUs have classes by what they are used for")),
        ("allCores", Holds("CPUs have classes by what they are used for")),
        ("powerProfile", Call(shared)),
        ("reservedCPUs", Call(reserved)),
        ("powerNodeSelector", Holds(SELECTOR)),
        ("workloadNodes", Holds(OF_PODS)),
    ];
    let node = find(&document.root, "workloadNodes");
    let has_list = |node: &Node| find(node, "cpuIds").is_some_and(|it| !items(it).is_empty());
    let is_of_pods = |node: &Node| find(node, "containers").is_some_and(|it| !items(it).is_empty());
    match node {
        _ if scalar(&document.root, "allCores") == Some("true") => walk.document(SHARED, document),
        Some(node) if has_list(node) && !is_of_pods(node) => cpu_group(walk, document),
        _ => {
            let place = Place { key: document.prefix.to_owned(), to: Vec::new() };
            walk.note(&place, &document.root, Fate::holds(OF_PODS));
        }
    }
}

/// CPUs by number with a profile: a group of these, for containers that name it.
fn cpu_group(walk: &mut Walk<'_>, document: &Document) {
    const NAMED: &[Rule] = &[
        ("name", Take("name")),
        ("allCores", Holds("the list says which CPUs")),
        (
            "powerProfile",
            Call(|walk, place, node| use_class(walk, place, node, place.target("cpuClass"))),
        ),
        ("reservedCPUs", Call(reserved)),
        ("powerNodeSelector", Holds(SELECTOR)),
        ("workloadNodes.node", Holds(SELECTOR)),
        ("workloadNodes.name", Holds(SELECTOR)),
        ("workloadNodes.containers", Holds("there are none")),
        ("workloadNodes.cpuIds", Convert("size.list", one_list)),
    ];
    let to = next_group(walk);
    let place = Place { key: document.prefix.to_owned(), to };
    walk.keys(NAMED, &place, &document.root);
    let name = scalar(&document.root, "name").unwrap_or_default().to_owned();
    let why = "only containers that name the group (`bayplan.dev/group`) run on these CPUs";
    walk.note_text(&format!("{}.cpuIds, for all containers", place.key), &name, Fate::lost(why));
}

/// `[2, 3]`.
fn one_list(node: &Node) -> Result<Yaml, String> {
    let cpus: Vec<&str> = items(node).iter().filter_map(text_of).collect();
    Ok(Yaml::texts([cpu_list(&cpus.join(","))?.to_string()]))
}

fn shared(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    use_class(walk, place, node, path("cpuClasses.shared"));
}

/// `[0, 1]`, or `[{cores: [0, 1], powerProfile: performance}]`.
fn reserved(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let mut cpus: Vec<String> = Vec::new();
    for (idx, item) in items(node).iter().enumerate() {
        match &item.value {
            Value::Map(_) => {
                let cores = entries(item).iter().find(|(_, key, _)| key == "cores");
                let cores = cores.map_or(&[][..], |(.., it)| items(it));
                cpus.extend(cores.iter().filter_map(text_of).map(str::to_owned));
                let profile = entries(item).iter().find(|(_, key, _)| key == "powerProfile");
                if let Some((_, key, profile)) = profile {
                    let place = place.item(idx).below(key);
                    use_class(walk, &place, profile, path("cpuClasses.reserved"));
                }
            }
            _ => cpus.extend(text_of(item).map(str::to_owned)),
        }
    }
    walk.take(place, node, path("reservedCpus"), Yaml::text(cpus.join(",")));
}

const C_STATES: &[Rule] = &[
    ("sharedPoolCStates", Call(|walk, place, node| pool_states(walk, place, node, "shared"))),
    ("exclusivePoolCStates", Call(profile_states)),
    (
        "individualCoreCStates",
        Lost("sleep states are those of a class; which CPUs have it follows the containers"),
    ),
];

/// States that are switched off (`C6: false`).
fn disabled(node: &Node) -> Vec<String> {
    let off = entries(node).iter().filter(|(.., value)| text_of(value) == Some("false"));
    off.map(|(_, state, _)| state.clone()).collect()
}

/// Of the class of some CPUs; one is made where they have none.
fn pool_states(walk: &mut Walk<'_>, place: &Place, node: &Node, of: &str) {
    let states = disabled(node);
    if states.is_empty() {
        walk.note(place, node, Fate::holds("no state is switched off"));
        return;
    }
    let class = class_in_use(walk, of);
    let mut to = class_path(&class);
    to.push(Step::Key("disabledCstates".to_owned()));
    walk.take(place, node, to, Yaml::texts(states));
}

/// The class that these CPUs have. Where it is none of the file, they get one of their own.
fn class_in_use(walk: &mut Walk<'_>, of: &str) -> String {
    let to = path(&format!("cpuClasses.{of}"));
    let named = match walk.out.get(&to) {
        Some(Yaml::Scalar(name)) => name.clone(),
        _ => format!("{of}-cpus"),
    };
    define_built_in(walk, &named);
    walk.put(to, Yaml::text(named.clone()), "So that these CPUs have the class above.");
    named
}

/// A built-in class is written out before something is added to it.
fn define_built_in(walk: &mut Walk<'_>, name: &str) {
    let Some(PowerClass { min, max, preference, .. }) = power::profile(name) else { return };
    if walk.out.get(&class_path(name)).is_none() {
        let fields = [
            ("minFreq", min.map(|it| it.to_string())),
            ("maxFreq", max.map(|it| it.to_string())),
            ("energyPerformancePreference", preference.map(|it| it.to_string())),
        ];
        let fields = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let fields = fields.map(|(key, value)| (key.to_owned(), Yaml::text(value)));
        walk.put(class_path(name), Yaml::map(fields), "The class of this name that is built in.");
    }
}

fn profile_states(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (_, profile, states) in entries(node) {
        let below = place.below(profile);
        let off = disabled(states);
        if off.is_empty() {
            walk.note(&below, states, Fate::holds("no state is switched off"));
        } else if is_class(walk, profile) {
            define_built_in(walk, profile);
            let mut to = class_path(profile);
            to.push(Step::Key("disabledCstates".to_owned()));
            walk.take(&below, states, to, Yaml::texts(off));
        } else {
            walk.note(&below, states, Fate::Lost(format!("no profile `{profile}` is defined")));
        }
    }
}

/// `sysMin` and `sysMax` hold for every class, as there is no limit of the machine.
fn uncore(walk: &mut Walk<'_>, document: &Document) {
    const UNCORE: &[Rule] = &[
        ("sysMax", Call(|walk, place, node| limit(walk, place, node, "uncoreMaxFreq"))),
        ("sysMin", Call(|walk, place, node| limit(walk, place, node, "uncoreMinFreq"))),
        ("dieSelector", Lost("limits of a die are those of the classes of its CPUs")),
    ];
    walk.document(UNCORE, document);
}

fn limit(walk: &mut Walk<'_>, place: &Place, node: &Node, key: &str) {
    for of in ["exclusive", "shared"] {
        let class = class_in_use(walk, of);
        let mut to = class_path(&class);
        to.push(Step::Key(key.to_owned()));
        if walk.out.get(&to).is_none() {
            walk.out.set(&to, Yaml::of(node), Some(place.key.clone()));
        }
    }
    walk.note(place, node, Fate::Taken(format!("cpuClasses.classes.*.{key}")));
}

const TIME_OF_DAY: &[Rule] = &[
    ("timeZone", Take("cpuClasses.timeZone")),
    ("schedule", Call(schedule)),
    ("reservedCPUs", Call(reserved)),
];

/// From a time on another class for shared CPUs.
fn schedule(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let mut lines = Vec::new();
    for (idx, item) in items(node).iter().enumerate() {
        let place = place.item(idx);
        let mut line = Vec::new();
        for (_, key, value) in entries(item) {
            let below = place.below(key);
            let to = |ours: &str| Fate::Taken(format!("cpuClasses.schedule[{idx}].{ours}"));
            match (key.as_str(), text_of(value)) {
                ("time", Some(time)) => {
                    line.push(("at".to_owned(), Yaml::text(time)));
                    walk.note(&below, value, to("at"));
                }
                ("powerProfile", Some(profile)) if is_class(walk, profile) => {
                    line.push(("shared".to_owned(), Yaml::text(profile)));
                    walk.note(&below, value, to("shared"));
                }
                ("powerProfile", _) => walk.note(&below, value, Fate::lost("no profile of this name is defined")),
                ("pods", _) => walk.note(
                    &below,
                    value,
                    Fate::lost("the class of a pod does not follow the clock; `exclusive` of a line does, for all others"),
                ),
                ("cState", _) => walk.note(
                    &below,
                    value,
                    Fate::lost("make a class with `disabledCstates`, and name it in this line"),
                ),
                _ => walk.note(&below, value, Fate::lost("no key of a schedule that is known here")),
            }
        }
        let has_class = line.iter().any(|(key, _)| key == "shared");
        let has_time = line.iter().any(|(key, _)| key == "at");
        if has_class && has_time {
            lines.push(Yaml::map(line));
        }
    }
    if !lines.is_empty() {
        let lines = Yaml::List(lines.into_iter().map(Item::from).collect());
        walk.put(path("cpuClasses.schedule"), lines, &place.key);
    }
}
