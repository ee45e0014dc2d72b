//! What types of groups name in the rest of the configuration: kinds of load, and types that they are made of. In: a configuration that was read. Out: the same with each
//! load as it is defined, and every name that means nothing.

use bayplan_node::groups::{Creation, GroupPlace, GroupType, Inside, Load, Most, Size};

use crate::config::Config;

/// Gives the types of groups the loads that they name, and what is wrong with their names.
pub(crate) fn link(config: &mut Config) -> Vec<String> {
    let mut types: Vec<GroupType> = config.groups.to_vec();
    let mut mistakes = Vec::new();
    for kind in &mut types {
        for load in &mut kind.loads {
            match config.group_loads.iter().find(|it| it.name == load.name) {
                Some(defined) => load.clone_from(defined),
                None => mistakes.push(unknown(kind.name.as_str(), load, &config.group_loads)),
            }
        }
    }
    mistakes.extend(types.iter().flat_map(|kind| components(kind, &types)));
    for (kind, name) in
        types.iter().filter_map(|it| Some((&it.name, it.scheduling_class.as_ref()?)))
    {
        if !config.scheduling_classes.iter().any(|it| it.name == *name) {
            mistakes.push(format!(
                "`groups`: `{kind}` has the class `{name}`, which `schedulingClasses` does not define"
            ));
        }
    }
    mistakes.extend(types.iter().filter_map(|kind| no_cpu_class(kind, config)));
    mistakes.extend(types.iter().filter_map(too_many_from_the_start));
    config.groups = types.into();
    mistakes
}

fn no_cpu_class(kind: &GroupType, config: &Config) -> Option<String> {
    let (name, class) = (&kind.name, kind.cpu_class.as_ref()?);
    let known = config.cpu_classes.known();
    config.cpu_classes.class(class).is_none().then(|| {
        format!(
            "`groups`: `{name}` has the `cpuClass` `{class}`, which is no class; known are {known}"
        )
    })
}

fn too_many_from_the_start(kind: &GroupType) -> Option<String> {
    let (name, min) = (&kind.name, kind.instances.min);
    match kind.instances.max {
        Most::Count(max) if max < min => Some(format!(
            "`groups`: `{name}`: `max` of `instances` is {max}, less than `min`, which is {min}"
        )),
        _ => None,
    }
}

fn unknown(kind: &str, load: &Load, known: &[Load]) -> String {
    let known = known.iter().map(|it| it.name.as_str()).filter(|name| !name.is_empty());
    let known: Vec<&str> = known.collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let name = &load.name;
    format!(
        "`groups`: `{kind}` has the load `{name}`, which `groupLoads` does not define; it has {known}"
    )
}

/// What is wrong with the components of a type.
fn components(kind: &GroupType, types: &[GroupType]) -> Vec<String> {
    let name = &kind.name;
    if kind.components.is_empty() {
        return Vec::new();
    }
    let is_sized = |size: &Size| matches!(size, Size::Requests { .. } | Size::Fixed(_));
    let mut mistakes = Vec::new();
    if !is_sized(&kind.size) || kind.inside != Inside::Share {
        mistakes.push(format!(
            "`groups`: `{name}` has components, so its size is one of requests and fixed, and its members share"
        ));
    }
    // `balance` is what files of balloons say of all types at once.
    let GroupPlace { near, far, .. } = &kind.place;
    if !kind.loads.is_empty() || !near.is_empty() || !far.is_empty() {
        mistakes.push(format!(
            "`groups`: `{name}` has components, so `loads`, `near` and `far` are for these to say"
        ));
    }
    let count = kind.components.len();
    let most = match kind.size {
        Size::Fixed(size) => Some(size),
        Size::Requests { max, .. } => max,
        Size::List(_) | Size::Domain(_) => None,
    };
    if kind.creation == Creation::All && most.is_some_and(|most| most < count) {
        mistakes.push(format!("`groups`: `{name}` has fewer CPUs than its {count} components"));
    }
    for component in &kind.components {
        let wrong = match types.iter().find(|it| it.name == *component) {
            None => "there is no such type",
            Some(it) if !it.components.is_empty() => {
                "that has components itself; name these instead, and others several times where their shares are larger"
            }
            Some(it) if !is_sized(&it.size) => "the size of that is neither requests nor fixed",
            Some(_) => continue,
        };
        mistakes.push(format!("`groups`: `{name}` has the component `{component}`: {wrong}"));
    }
    mistakes
}
