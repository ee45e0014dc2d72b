//! Objects of other systems in the cluster as configurations, for the agent: what `bayplan import` does, for one object and without the node's own keys.

use bayplan_cluster::{Converted, Question};
use bayplan_config::import::{Fate, Input, Note, REFUSED, Target, import};
use bayplan_daemon::MachineView;
use bayplan_daemon::config::node_key_names;
use bayplan_host::parse_recorded_machine;
use bayplan_topology::Topology;

/// The configuration that an object means; the error says why there is none.
pub(crate) fn convert(asked: &Question<'_>) -> Result<Converted, String> {
    let machine = asked.machine.map(parse_machine).transpose()?;
    let node_keys: Vec<&str> = node_key_names().collect();
    let target = Target {
        node: Some(asked.node),
        group: asked.group,
        machine: machine.as_ref(),
        refused: REFUSED,
        node_keys: &node_keys,
    };
    let input = Input::Text { name: asked.name.to_owned(), text: asked.text.to_owned() };
    let imported = import(&[input], &target).map_err(|error| error.to_string())?;
    let lost = |note: &Note| match &note.fate {
        Fate::Lost(why) => Some(format!("{} ({why})", note.key)),
        Fate::Taken(_) | Fate::Holds(_) => None,
    };
    let lost = imported.notes.iter().filter_map(lost).collect();
    Ok(Converted { text: imported.text, lost })
}

/// Of the daemon's `bayplan-machine/1`.
fn parse_machine(text: &str) -> Result<Topology, String> {
    let view: MachineView = serde_json::from_str(text)
        .map_err(|error| format!("the daemon's machine cannot be read: {error}"))?;
    parse_recorded_machine(&view.files)
        .map_err(|error| format!("the daemon's machine cannot be read: {error:#}"))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        let asked = Question { name: "o", text, node: "n1", group: None, machine: None };
        let shown = match convert(&asked) {
            Ok(converted) => {
                let lines = converted.text.lines().filter(|it| !it.trim_start().starts_with('#'));
                let text: Vec<&str> = lines.filter(|it| !it.is_empty()).collect();
                format!("{}\nlost: {:?}\n", text.join("\n"), converted.lost)
            }
            Err(error) => format!("{error}\n"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn objects_become_configurations_without_the_nodes_own_keys() {
        check(
            "apiVersion: config.nri/v1alpha1\nkind: TopologyAwarePolicy\nmetadata: {name: default}\nspec: {preferSharedCPUs: true, instrumentation: {httpEndpoint: ':8891'}}\n",
            expect![[r#"
                requests:
                  preferSharedCpus: true
                  preferIsolatedCpus: true
                  unlimitedBurstable: package
                policy: topology-aware
                lost: ["spec.instrumentation.httpEndpoint (`metricsAddress` is the node's own: it belongs into its file)"]
            "#]],
        );
        check(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cri-resmgr-config.default}\ndata: {policy: \"Active: topology-aware\\nReservedResources: {CPU: 'cpuset:0'}\\n\"}\n",
            expect![[r#"
                reservedCpus: 0
                policy: topology-aware
                requests:
                  preferIsolatedCpus: true
                lost: []
            "#]],
        );
        check(
            "kind: Pod\n",
            expect![[r#"
            o: no configuration that `bayplan import` knows; it reads TopologyAwarePolicy and BalloonsPolicy of nri-plugins, the file and the ConfigMaps of CRI Resource Manager, the directory and the ConfigMap of CMK, KubeletConfiguration, NodeSLO and slo-controller-config of Koordinator, and the resources of Kubernetes Power Manager
        "#]],
        );
    }
}
