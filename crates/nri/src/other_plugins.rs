//! Which other plugins there are, and what they set. In: the request in which a runtime has a creation approved (`ValidateContainerAdjustment`, NRI 0.10 and newer). Out: plugins with the
//! settings of the container that are theirs. Pure.
//!
//! A runtime refuses a creation for which two plugins set the same; then there is nothing to approve, and only the runtime's own message names both. So what is seen of other plugins
//! while creations succeed is all that is known of them when one fails.

use std::collections::BTreeSet;

use crate::api;

/// Settings that Bayplan makes, too, by the names of the kernel's files.
const SETTINGS: [(api::Field, &str); 2] =
    [(api::Field::CpuSetCpUs, "cpuset.cpus"), (api::Field::CpuSetMems, "cpuset.mems")];

/// Another plugin of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPlugin {
    /// Its index and its name, for example `10-device-injector`.
    pub name: String,
    /// What it has set of the container's CPU set.
    pub sets: BTreeSet<&'static str>,
}

/// All but the plugin that is called `own`.
pub(crate) fn other_plugins(
    request: &api::ValidateContainerAdjustmentRequest,
    own: &str,
) -> Vec<OtherPlugin> {
    let id = request.container.as_ref().map(|it| it.id.as_str()).unwrap_or_default();
    let owners = request.owners.as_ref().and_then(|it| it.owners.get(id));
    let owner = |field: api::Field| owners.and_then(|it| it.simple.get(&field.into()));
    let names = request.plugins.iter().map(|it| format!("{}-{}", it.index, it.name));
    let others = names.filter(|name| name != own).map(|name| {
        let is_its = |field| owner(field) == Some(&name);
        let sets = SETTINGS.iter().filter(|(field, _)| is_its(*field));
        OtherPlugin { sets: sets.map(|(_, file)| *file).collect(), name }
    });
    others.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_plugins_are_told_with_what_they_set() {
        let plugin = |index: &str, name: &str| api::PluginInstance {
            index: index.to_owned(),
            name: name.to_owned(),
        };
        let set_by = |name: &str| api::FieldOwners {
            simple: [(api::Field::CpuSetCpUs.into(), name.to_owned())].into(),
            ..Default::default()
        };
        let request = |by: &str| api::ValidateContainerAdjustmentRequest {
            container: Some(api::Container { id: "c".to_owned(), ..Default::default() }),
            owners: Some(api::OwningPlugins { owners: [("c".to_owned(), set_by(by))].into() }),
            plugins: vec![plugin("10", "a"), plugin("90", "bayplan")],
            ..Default::default()
        };
        for (by, sets) in [("10-a", &["cpuset.cpus"][..]), ("90-bayplan", &[])] {
            let expected =
                OtherPlugin { name: "10-a".to_owned(), sets: sets.iter().copied().collect() };
            assert_eq!(other_plugins(&request(by), "90-bayplan"), [expected], "{by}");
        }
        let nothing = api::ValidateContainerAdjustmentRequest::default();
        assert_eq!(other_plugins(&nothing, "90-bayplan"), []);
    }
}
