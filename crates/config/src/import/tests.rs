//! Every configuration that the other systems ship as a sample, its keys in our own form, and what becomes of it. `samples/` has the inputs, beside each what is written.

use bayplan_topology::{derive, parse_machine};
use expect_test::expect_file;

use super::*;

/// A machine that the lists of all samples exist on.
const MACHINE: &str = "pack:4 numa:1 core:8 pu:2 mem:16";

fn imported(inputs: &[(&str, &str)], machine: Option<&str>) -> Result<Imported, ImportError> {
    let topology = machine.map(|it| derive(&parse_machine(it).unwrap()).unwrap());
    let inputs = inputs
        .iter()
        .map(|(name, text)| Input::Text { name: (*name).to_owned(), text: (*text).to_owned() });
    let target = Target { machine: topology.as_ref(), ..Target::default() };
    import(&inputs.collect::<Vec<_>>(), &target)
}

macro_rules! samples {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                let file = concat!(stringify!($name), ".yaml");
                let text = include_str!(concat!("samples/", stringify!($name), ".yaml"));
                let imported = imported(&[(file, text)], Some(MACHINE)).unwrap();
                expect_file![concat!("samples/", stringify!($name), ".out.yaml")].assert_eq(&imported.text);
                // Every key of the input is in one note, and the output is YAML with each key once.
                assert!(crate::yaml::parse_yaml(&imported.text).is_ok());
                assert!(Counts::of(&imported.notes).taken > 0 || imported.text.contains("Without"));
            }
        )*
    };
}

samples!(
    cmk_config_map,
    cri_rm_adjustment,
    cri_rm_balloons,
    cri_rm_block_io,
    cri_rm_config_maps,
    cri_rm_dynamic_pools,
    cri_rm_flags,
    cri_rm_message_dump,
    cri_rm_pod_pools,
    cri_rm_static_pools_file,
    cri_rm_topology_aware,
    koordinator_controller,
    koordinator_node_slo,
    kubelet_static,
    nri_balloons,
    nri_balloons_file,
    nri_balloons_nested,
    nri_balloons_rich,
    nri_config_maps,
    nri_template,
    nri_topology_aware,
    power_manager,
);

#[test]
fn nothing_known_is_an_error_that_says_what_is() {
    for text in ["", "kind: Pod\napiVersion: v1\n", "socket: /a\n"] {
        let error = imported(&[("a.yaml", text)], None).unwrap_err().to_string();
        assert!(
            error.starts_with("a.yaml: no configuration that `bayplan import` knows"),
            "{error}"
        );
    }
    let error = imported(&[("a.yaml", "a: b\n---\nx: [\n")], None).unwrap_err().to_string();
    assert!(error.starts_with("a.yaml:"), "{error}");
}

#[test]
fn the_configuration_of_this_node_goes_before_that_of_its_group_and_the_default() {
    let one = |name: &str, debug: &str| {
        format!(
            "kind: TopologyAwarePolicy\nmetadata: {{name: {name}}}\nspec: {{colocatePods: {debug}}}\n---\n"
        )
    };
    let text = [one("default", "a"), one("group.g", "b"), one("node.n", "c")].concat();
    for (node, group, expected) in [
        (None, None, "a"),
        (None, Some("g"), "b"),
        (Some("n"), Some("g"), "c"),
        (Some("m"), None, "a"),
    ] {
        let target = Target { node, group, ..Target::default() };
        let input = Input::Text { name: "f".to_owned(), text: text.clone() };
        let imported = import(&[input], &target).unwrap();
        let line = format!("  colocatePods: {expected}\n");
        assert!(imported.text.contains(&line), "{node:?} {group:?}: {}", imported.text);
    }
}

#[test]
fn of_two_files_the_first_decides_and_the_other_is_noted() {
    let kubelet = ("kubelet.yaml", "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n");
    let policy = (
        "policy.yaml",
        "kind: TopologyAwarePolicy\nspec:\n  reservedResources: {cpu: 'cpuset:0-3'}\n",
    );
    let imported = imported(&[kubelet, policy], None).unwrap();
    assert!(imported.text.contains("\nreservedCpus: \"0-1\"\n"), "{}", imported.text);
    let lost = imported.notes.iter().find(|it| it.key == "spec.reservedResources.cpu").unwrap();
    assert_eq!(lost.fate, Fate::lost("`reservedCpus` is set already, to another value"));
    assert_eq!((lost.file.as_str(), lost.at.line), ("policy.yaml", 3));
}

#[test]
fn exclusions_need_the_machine() {
    let text = "kind: TopologyAwarePolicy\nspec:\n  reservedResources: {cpu: \"exclude-cpuset:0-3,6-7\"}\n";
    let with = imported(&[("f", text)], Some("pack:1 core:4 pu:2")).unwrap();
    assert!(with.text.contains("\nreservedCpus: \"4-5\"\n"), "{}", with.text);
    let without = imported(&[("f", text)], None).unwrap();
    assert!(!without.text.contains("\nreservedCpus"), "{}", without.text);
    assert!(without.text.contains("--machine"), "{}", without.text);
}

/// The directory has the same pools as the ConfigMap.
#[test]
fn a_cmk_directory_is_imported() {
    let entries = [
        ("pools/exclusive/exclusive", "1"),
        ("pools/exclusive/0/4,36/tasks", ""),
        ("pools/exclusive/0/5,37/tasks", "77"),
        ("pools/shared/exclusive", "0"),
        ("pools/shared/0/6,38/tasks", ""),
        ("pools/infra/exclusive", "0"),
        ("pools/infra/0/0-3,32-35/tasks", ""),
    ];
    let entries = entries.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec();
    let input = Input::CmkDirectory { name: "/etc/cmk".to_owned(), entries };
    let imported = import(&[input], &Target::default()).unwrap();
    expect_file!["samples/cmk_directory.out.yaml"].assert_eq(&imported.text);
}

/// What is not carried out yet is not written, and the keys that need it are noted.
#[test]
fn a_key_that_is_not_carried_out_is_not_written() {
    let text = include_str!("samples/nri_balloons.yaml").to_owned();
    let input = [Input::Text { name: "f".to_owned(), text }];
    for (refused, gone) in [("groups", "groups:"), ("groups[].shareIdle", "shareIdle: machine")] {
        let all = import(&input, &Target::default()).unwrap();
        let some = import(&input, &Target { refused: &[refused], ..Target::default() }).unwrap();
        let has_line = |it: &Imported| it.text.lines().any(|line| line.trim() == gone);
        assert!(has_line(&all) && !has_line(&some), "{}", some.text);
        let why = Fate::Lost(format!("`{refused}` is not supported yet"));
        assert!(some.notes.iter().any(|note| note.fate == why));
    }
}

/// In a configuration for the cluster.
#[test]
fn a_key_of_the_nodes_own_is_noted() {
    let text = "kind: TopologyAwarePolicy\nspec: {instrumentation: {httpEndpoint: ':8891'}}\n";
    let input = [Input::Text { name: "f".to_owned(), text: text.to_owned() }];
    let target = Target { node_keys: &["metricsAddress"], ..Target::default() };
    let imported = import(&input, &target).unwrap();
    let why = "`metricsAddress` is the node's own: it belongs into its file".to_owned();
    assert_eq!(imported.notes[0].fate, Fate::Lost(why));
    assert!(!imported.text.contains("metricsAddress:"), "{}", imported.text);
}
