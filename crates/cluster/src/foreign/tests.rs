use expect_test::{Expect, expect};

use super::*;
use crate::chosen::{Chosen, choose_source};
use crate::precedence::GROUP_LABEL;

/// Words of the form `key=value`.
fn node(labels: &str) -> NodeObject {
    let pairs = labels.split_whitespace().filter_map(|it| it.split_once('='));
    let labels = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    NodeObject { name: "n1".to_owned(), labels, ..NodeObject::default() }
}

fn accepted(text: &str) -> Vec<Accepted> {
    text.split_whitespace().map(|it| it.parse().unwrap()).collect()
}

fn object(kind: ForeignKind, name: &str) -> ForeignObject {
    ForeignObject::read(&json!({ "metadata": { "name": name, "generation": 7 } }), kind)
}

/// Objects as `b:NAME`, `t:NAME` (policies of nri-plugins) and `c:NAME` (ConfigMaps without the beginning of their names), all in `kube-system`.
fn found(accepted: &[Accepted], node: &NodeObject, objects: &str) -> Found {
    let is_there = |it: &ForeignName| {
        objects.split_whitespace().any(|word| {
            let (kind, name) = word.split_once(':').unwrap();
            let kind = match kind {
                "b" => ForeignKind::Balloons,
                "t" => ForeignKind::TopologyAware,
                _ => ForeignKind::ConfigMap,
            };
            it.kind == kind && it.name == kind.object_name(name) && it.namespace == "kube-system"
        })
    };
    let names = candidates(accepted, node).into_iter();
    names.map(|it| (it.clone(), is_there(&it).then(|| object(it.kind, &it.name)))).collect()
}

fn configs(names: &str) -> Vec<ConfigObject> {
    names.split_whitespace().map(|it| ConfigObject::empty(it, 1)).collect()
}

fn shown(chosen: &Chosen<'_>) -> String {
    match chosen {
        Chosen::Unknown => "unknown".to_owned(),
        Chosen::File => "file".to_owned(),
        Chosen::Object(object) => object.full_name(),
        Chosen::Foreign(name, _) => name.full_name(),
        Chosen::Missing { object, label } => format!("{label} misses {object}"),
        Chosen::Several(names) => format!("several: {names}"),
    }
}

#[test]
fn of_all_sources_one_object_counts() {
    let (both, nri, cri) = ("nri-plugins cri-resmgr", "nri-plugins", "cri-resmgr");
    let (balloons, topology, map) = (
        "BalloonsPolicy/kube-system",
        "TopologyAwarePolicy/kube-system",
        "ConfigMap/kube-system/cri-resmgr-config",
    );
    let check = |takes: &str, labels: &str, own: &str, foreign: &str, expected: &str| {
        let (accepted, node, own) = (accepted(takes), node(labels), configs(own));
        let found = found(&accepted, &node, foreign);
        let chosen = choose_source(&node, &own, &accepted, &found);
        assert_eq!(shown(&chosen), expected, "{takes}; {labels}; {own:?}; {foreign}");
    };
    for (takes, labels, own, foreign, expected) in [
        ("", "", "", "", "file"),
        (both, "", "", "", "file"),
        // What is not accepted does not count.
        ("", "", "", "b:default c:default", "file"),
        (cri, "", "", "b:default c:default", &format!("{map}.default")),
        (nri, "", "", "b:default c:default", &format!("{balloons}/default")),
        // Bayplan's own objects go before nri-plugins, those before CRI Resource Manager, all before the file.
        (both, "", "default", "b:node.n1 c:node.n1", "BayplanConfig/default"),
        (both, "", "node.n2", "b:default c:node.n1", &format!("{balloons}/default")),
        (both, "", "", "b:node.n2 c:node.n1", &format!("{map}.node.n1")),
        // Within a system the most exact name counts.
        (nri, "", "", "b:default t:node.n1", &format!("{topology}/node.n1")),
        (nri, "config.nri/group=a", "", "b:group.a b:default", &format!("{balloons}/group.a")),
        (nri, "config.nri/group=a", "", "b:group.a b:node.n1", &format!("{balloons}/node.n1")),
        (nri, "group.config.nri=a", "", "b:group.a b:default", &format!("{balloons}/group.a")),
        (nri, "resource-policy.nri.io/group=a", "", "t:group.a", &format!("{topology}/group.a")),
        // The first label counts, and that of another system does not.
        (
            nri,
            "config.nri/group=b group.config.nri=a",
            "",
            "b:group.a b:group.b",
            &format!("{balloons}/group.b"),
        ),
        (cri, "config.nri/group=a", "", "c:group.a c:default", &format!("{map}.default")),
        (
            cri,
            "cri-resource-manager.intel.com/group=a",
            "",
            "c:group.a c:default",
            &format!("{map}.group.a"),
        ),
        // A group without its object has no default one.
        (
            both,
            "config.nri/group=a",
            "",
            "b:default c:node.n1",
            &format!("config.nri/group misses {balloons}/group.a or {topology}/group.a"),
        ),
        (
            cri,
            "cri-resource-manager.intel.com/group=a",
            "",
            "c:default",
            &format!("cri-resource-manager.intel.com/group misses {map}.group.a"),
        ),
        // A system without any object for this node is as one that is not accepted.
        (both, "config.nri/group=a", "", "c:default", &format!("{map}.default")),
        (both, "config.nri/group=a", "", "", "file"),
        (
            nri,
            "",
            "",
            "b:default t:default",
            &format!("several: {balloons}/default and {topology}/default"),
        ),
    ] {
        check(takes, labels, own, foreign, expected);
    }
    let group = format!("{GROUP_LABEL}=a");
    check(both, &group, "group.b", "b:default", "bayplan.dev/group misses BayplanConfig/group.a");
}

#[test]
fn nothing_is_chosen_before_all_is_known() {
    let (accepted, node) = (accepted("nri-plugins"), node(""));
    let mut found = found(&accepted, &node, "b:default");
    found.pop_first();
    assert_eq!(shown(&choose_source(&node, &[], &accepted, &found)), "unknown");
    // An object of Bayplan's own counts whatever the others are.
    let own = configs("default");
    assert_eq!(shown(&choose_source(&node, &own, &accepted, &found)), "BayplanConfig/default");
}

#[test]
fn what_is_accepted_is_a_system_and_a_namespace() {
    let shown = |text: &str| match text.parse::<Accepted>() {
        Ok(it) => format!("{} in {}", it.system.name(), it.namespace),
        Err(error) => error,
    };
    for (text, expected) in [
        ("nri-plugins", "nri-plugins in kube-system"),
        ("cri-resmgr=infra", "cri-resmgr in infra"),
        ("cri-rm", "objects of `cri-rm` cannot be accepted, expected nri-plugins, cri-resmgr"),
        ("cri-resmgr=", "`cri-resmgr=` names no namespace, expected cri-resmgr=NAMESPACE"),
    ] {
        assert_eq!(shown(text), expected);
    }
}

fn check(convert: Convert, object: Json, expected: Expect) {
    let (node, accepted) = (node("config.nri/group=a"), accepted("nri-plugins"));
    let name = candidates(&accepted, &node).into_iter().find(|it| it.step == Step::Group).unwrap();
    let object = ForeignObject::read(&object, name.kind);
    let made = convert_foreign(&name, &object, &node, "m", convert);
    let said = made.problem.as_ref().or(made.note.as_ref());
    expected.assert_eq(&format!(
        "{} generation {} allowed {:?}: {:?} {said:?}",
        made.full_name(),
        made.generation,
        made.allowed,
        made.text
    ));
}

#[test]
fn an_object_becomes_a_configuration_or_says_why_not() {
    let policy = json!({
        "metadata": { "name": "group.a", "generation": 3, "annotations": { "bayplan.dev/allow-moves": "2" }, "managedFields": [] },
        "spec": { "a": 1 }, "status": { "nodes": {} },
    });
    let echo: Convert = |asked| {
        let Question { name, text, node, group, machine } = asked;
        let lost = (0..12).map(|it| format!("k{it}")).collect();
        Ok(Converted { text: format!("{name} {node} {group:?} {machine:?}\n{text}"), lost })
    };
    check(
        echo,
        policy.clone(),
        expect![[
            r#"BalloonsPolicy/kube-system/group.a generation 3 allowed Some(2): "BalloonsPolicy/kube-system/group.a n1 Some(\"a\") Some(\"m\")\napiVersion: config.nri/v1alpha1\nkind: BalloonsPolicy\nmetadata:\n  name: group.a\nspec:\n  a: 1\n" Some("without counterpart, see `bayplan import`: k0, k1, k2, k3, k4, k5, k6, k7, k8, k9 and 2 more")"#
        ]],
    );
    check(
        |_| Err("no YAML".to_owned()),
        policy,
        expect![[
            r#"BalloonsPolicy/kube-system/group.a generation 3 allowed Some(2): "" Some("no YAML")"#
        ]],
    );
    let nonsense = json!({ "metadata": { "annotations": { "bayplan.dev/allow-moves": "all" } } });
    check(
        |_| Ok(Converted::default()),
        nonsense,
        expect![[
            r#"BalloonsPolicy/kube-system/group.a generation 0 allowed None: "" Some("annotation bayplan.dev/allow-moves is `all`, expected a number or any")"#
        ]],
    );
}

#[test]
fn a_config_map_has_a_version_instead_of_a_generation() {
    let map =
        json!({ "metadata": { "name": "m", "resourceVersion": "41" }, "data": { "policy": "" } });
    let read = ForeignObject::read(&map, ForeignKind::ConfigMap);
    assert_eq!((read.generation, &read.text["apiVersion"]), (41, &json!("v1")));
}
