//! A configuration for many nodes. In: the text that the cluster has for this node, and the node's own file. Out: one configuration, or every
//! mistake with its line and column.
//!
//! A text of the cluster counts as a whole: what it leaves out has its default, whatever the node's file says. The exception is the node's own
//! keys, which are those that only a start can change: sockets, directories, addresses and groups differ from node to node, and an object in the
//! cluster must not open a socket or move a directory. They always come from the file, and are mistakes in a text of the cluster.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::errors::{ConfigError, ConfigErrors};
use super::read::ConfigFile;
use super::schema::schema;
use super::table::{Key, When, keys};
use crate::config::Config;

/// The node's own keys.
fn node_keys() -> impl Iterator<Item = &'static Key> {
    keys().filter(|key| key.when == When::Restart)
}

/// Whole names of the keys that only a node's own file may have.
pub fn node_key_names() -> impl Iterator<Item = &'static str> {
    node_keys().map(|key| key.name)
}

impl ConfigFile {
    /// Parses a text of the cluster; `path` is its name in messages.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every mistake at once, the node's own keys among them.
    pub fn parse_shared(path: &Path, text: &str) -> Result<ConfigFile, ConfigErrors> {
        let (file, mut errors) = ConfigFile::read_text(text);
        for (name, at) in &file.stands {
            if node_keys().any(|key| key.name == *name) {
                let message = format!(
                    "`{name}` is the node's own: it counts in the configuration file of each node only; remove it here"
                );
                errors.push(ConfigError { at: *at, message });
            }
        }
        ConfigErrors::none_of(path, errors).map(|()| file)
    }

    /// What this text of the cluster means on a node with this file.
    pub fn on_node(&self, node: &Config) -> Config {
        let node = node.clone();
        Config {
            front_end: node.front_end,
            nri_socket: node.nri_socket,
            nri_index: node.nri_index,
            has_map: node.has_map,
            kubelet_pods_socket: node.kubelet_pods_socket,
            pod_resources_socket: node.pod_resources_socket,
            socket: node.socket,
            runtime_socket: node.runtime_socket,
            image_socket: node.image_socket,
            control_socket: node.control_socket,
            control_group: node.control_group,
            state_dir: node.state_dir,
            history_max: node.history_max,
            metrics_address: node.metrics_address,
            waiting_max: node.waiting_max,
            resources_directories: node.resources_directories,
            host_root: node.host_root,
            ..self.config.clone()
        }
    }
}

/// The [`schema`] of a text of the cluster: without the node's own keys.
pub fn shared_schema() -> Json {
    let mut schema = schema();
    if let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) {
        remove_node_keys(properties);
    }
    schema
}

fn remove_node_keys(properties: &mut Map<String, Json>) {
    for key in node_keys() {
        let (section, _) = key.split();
        let holder = match section {
            "" => Some(&mut *properties),
            _ => properties
                .get_mut(section)
                .and_then(|it| it.get_mut("properties"))
                .and_then(Json::as_object_mut),
        };
        if let Some(holder) = holder {
            for spelling in key.spellings() {
                holder.remove(&spelling);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::{Settings, parse_config};

    fn check(text: &str, expected: Expect) {
        let parsed = ConfigFile::parse_shared(Path::new("BayplanConfig/default"), text);
        let shown = match parsed {
            Ok(file) => file.config.differences(),
            Err(errors) => errors.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn node_keys_are_mistakes_beside_all_others() {
        check("reservedCpus: \"0\"\n", expect![[r#"{"reservedCpus":"0"}"#]]);
        check(
            "policy: none\nstateDir: /tmp\nhostRoot: /x\n",
            expect![[r#"
                BayplanConfig/default:1:9: `policy` is `none`, expected one of topology-aware, one-shared-pool
                BayplanConfig/default:2:11: `stateDir` is the node's own: it counts in the configuration file of each node only; remove it here
                BayplanConfig/default:3:11: `hostRoot` is the node's own: it counts in the configuration file of each node only; remove it here"#]],
        );
        check(
            "a: [",
            expect![
                "BayplanConfig/default:1:4: not YAML: unclosed bracket '[' at line 1, column 4"
            ],
        );
    }

    /// A new key that needs a restart has to be added to [`ConfigFile::on_node`].
    #[test]
    fn node_keys_come_from_the_file_and_all_others_do_not() {
        let text = "frontEnd: nri\nnri:\n  socket: /n\n  index: 7\nkubelet:\n  podsSocket: off\n  podResourcesSocket: /p\nmap: off\nsocket: /a\nruntimeSocket: /b\nimageSocket: /i\ncontrolSocket: /c\ncontrolGroup: 27\nstateDir: /d\nhistorySize: 3Mi\n\
                    metricsAddress: off\nmaxWaitingCalls: 7\nresourcesDirectories: [/r]\nhostRoot: /h\npolicy: one-shared-pool\nlog: debug\n";
        let node = parse_config(Path::new("node"), text).unwrap();
        let merged = Settings::of(&ConfigFile::default().on_node(&node), &[]);
        let of_node = Settings::of(&node, &[]);
        let defaults = Settings::of(&Config::default(), &[]);
        for ((merged, of_node), default) in merged.iter().zip(of_node.iter()).zip(defaults.iter()) {
            let expected = if merged.needs_restart { of_node } else { default };
            assert_eq!(merged.value, expected.value, "{}", merged.key);
            assert!(!merged.needs_restart || of_node.value != default.value, "{}", merged.key);
        }
    }

    #[test]
    fn the_schema_lacks_node_keys_only() {
        let (whole, shared) = (schema(), shared_schema());
        let names = |schema: &Json| -> Vec<String> {
            schema["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let missing: Vec<String> =
            names(&whole).into_iter().filter(|it| !names(&shared).contains(it)).collect();
        let mut of_node: Vec<String> =
            node_keys().filter(|it| !it.name.contains('.')).map(|it| it.name.to_owned()).collect();
        of_node.sort();
        assert_eq!(missing, of_node);
    }
}
