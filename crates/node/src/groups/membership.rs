//! Which type of groups a container belongs to, and with which others it is in one group. In: types, and a container. Out: a type, or why there is none; a key.

use bayplan_workload::annotations::{
    Field, Warning, WarningKind, Wish, allowed, matches_glob, read_annotations, shown, value_of,
};
use bayplan_workload::cmk::{INFRA, Isolate};
use bayplan_workload::{NewContainer, RequestRules};

use super::kind::{GroupType, InstanceKey, Members};

/// What a pod says that is in no group.
pub(crate) const NO_GROUP: &str = "none";

/// The type that takes a container, and whether its pod names it.
///
/// # Errors
/// The pod names a type that is not there, or that pods may not name.
pub(super) fn type_of<'a>(
    types: &'a [GroupType],
    spec: &NewContainer,
    rules: &RequestRules,
) -> Result<Option<(&'a GroupType, bool)>, String> {
    if types.is_empty() {
        return Ok(None);
    }
    let named = read_annotations(spec, rules).0.group;
    if named.as_deref() == Some(NO_GROUP) {
        return Ok(None);
    }
    if let Some(Err(why)) =
        spec.cmk.as_ref().filter(|it| it.as_ref().is_err_and(|it| it.is_refusal()))
    {
        return Err(why.to_string());
    }
    if let Some(name) = named {
        let is_infra = name == INFRA && spec.cmk.is_some();
        let found = types.iter().find(|it| it.name == name && it.members.by_annotation);
        return match found {
            Some(found) => Ok(Some((found, true))),
            // The reserved CPUs are this pool.
            None if is_infra => Ok(None),
            None => {
                let open = types.iter().filter(|it| it.members.by_annotation);
                let open: Vec<&str> = open.map(|it| it.name.as_str()).collect();
                let open = open.join(", ");
                Err(format!(
                    "its pod names the group `{name}`; groups that pods may name are {open}, or `{NO_GROUP}`"
                ))
            }
        };
    }
    Ok(types.iter().find(|it| takes(&it.members, spec)).map(|it| (it, false)))
}

/// Whether a member of a group has its place there and no CPU set, by `cmk isolate --no-affinity`. That is the wish of `cpu.preserve`, under the same permission.
///
/// # Errors
/// Pods of its namespace may not ask for it.
pub(crate) fn has_no_affinity(spec: &NewContainer, rules: &RequestRules) -> Result<bool, Warning> {
    let wish = Wish { field: Field::PreserveCpus, value: None, is_harmful: true };
    let namespace = &spec.pod.namespace;
    match &spec.cmk {
        Some(Ok(Isolate { no_affinity: true, .. })) if allowed(&wish, namespace, rules) => Ok(true),
        Some(Ok(Isolate { no_affinity: true, .. })) => Err(Warning {
            kind: WarningKind::NotAllowed,
            text: format!(
                "`cmk isolate --no-affinity` (STP_NO_AFFINITY) is not allowed in namespace `{}` (`preserve` of `permissions` in the configuration); it has the CPUs of its group",
                shown(namespace, 40)
            ),
        }),
        _ => Ok(false),
    }
}

fn takes(members: &Members, spec: &NewContainer) -> bool {
    members.all
        || members.conditions.iter().any(|it| it.holds(spec))
        || members.namespaces.iter().any(|it| matches_glob(it, &spec.pod.namespace))
}

/// Containers of a type with equal keys are in one group.
pub(super) fn key_of(key: &InstanceKey, spec: &NewContainer) -> String {
    match key {
        InstanceKey::Type => String::new(),
        InstanceKey::Pod => format!("{}/{}", spec.pod.namespace, spec.pod.name),
        InstanceKey::Namespace => spec.pod.namespace.clone(),
        InstanceKey::Template(template) => filled(template, spec),
    }
}

/// A key that the container does not have is empty.
fn filled(template: &str, spec: &NewContainer) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((key, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        text.push_str(value_of(spec, key).unwrap_or_default());
        rest = behind;
    }
    text.push_str(rest);
    text
}
