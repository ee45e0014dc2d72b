//! How pools are stored. In: the files of CMK's directory, in either layout, or the document of its ConfigMap. Out: [`Pools`], and back to files.
//!
//! `pools/POOL/exclusive` holds 0 or 1. `pools/POOL/LIST/tasks` (first release) or `pools/POOL/SOCKET/LIST/tasks` holds the process ids of a list, separated by commas.
//! The ConfigMap's document is a mapping of pool, socket, list, and process ids.

use bayplan_types::CpuSet;

use super::{Pool, Pools, Slot};
use crate::yaml::{Node, Value};

/// A list of CPUs as CMK writes it: `4,12`, never a range.
pub fn render_cpu_list(cpus: &CpuSet) -> String {
    cpus.iter().map(|cpu| cpu.0.to_string()).collect::<Vec<_>>().join(",")
}

/// A list of CPUs, ranges or not.
pub fn parse_cpu_list(text: &str) -> Option<CpuSet> {
    // CMK keeps the order of threads, in which our lists are sorted.
    let parts = text.trim().split(',').map(|part| part.trim().parse::<CpuSet>().ok());
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let mut cpus = CpuSet::new();
    parts.iter().for_each(|part| cpus.union_with(part));
    (!cpus.is_empty()).then_some(cpus)
}

/// Whether a pool of this name has one user per list, where the form does not say.
fn is_exclusive_name(name: &str) -> bool {
    name == "dataplane" || name.starts_with("exclusive")
}

impl Pools {
    /// The pools of a directory: paths below it, and what the files hold.
    pub fn from_directory<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Pools {
        let mut pools = Pools::default();
        for (path, text) in entries {
            let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
            let ["pools", name, rest @ ..] = parts.as_slice() else { continue };
            let pool = pools.pools.entry((*name).to_owned()).or_insert_with(|| Pool {
                is_exclusive: is_exclusive_name(name),
                slots: Vec::new(),
            });
            let (socket, list) = match rest {
                ["exclusive"] => {
                    pool.is_exclusive = text.trim() == "1";
                    continue;
                }
                [list, "tasks"] => (None, *list),
                [socket, list, "tasks"] => (socket.parse().ok(), *list),
                _ => continue,
            };
            if let Some(cpus) = parse_cpu_list(list) {
                pool.slots.push(Slot { socket, cpus, tasks: parse_tasks(text) });
            }
        }
        pools.pools.values_mut().for_each(Pool::sort);
        pools
    }

    /// The pools of the ConfigMap's document.
    pub fn from_tree(root: &Node) -> Pools {
        let mut pools = Pools::default();
        for (name, sockets) in map(root) {
            let mut pool = Pool { is_exclusive: is_exclusive_name(name), slots: Vec::new() };
            for (socket, lists) in map(sockets) {
                for (list, tasks) in map(lists) {
                    let Some(cpus) = parse_cpu_list(list) else { continue };
                    let tasks = match &tasks.value {
                        Value::List(items) => items.iter().filter_map(process).collect(),
                        _ => Vec::new(),
                    };
                    pool.slots.push(Slot { socket: socket.parse().ok(), cpus, tasks });
                }
            }
            pool.sort();
            pools.pools.insert(name.to_owned(), pool);
        }
        pools
    }
}

/// Whether a path below the directory is that of processes on a list that cannot be read.
pub fn is_stray(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["pools", _, list, "tasks"] => parse_cpu_list(list).is_none(),
        ["pools", _, socket, list, "tasks"] => {
            socket.parse::<u32>().is_err() || parse_cpu_list(list).is_none()
        }
        _ => false,
    }
}

/// The files of a directory: paths below it, and what they hold. A slot without a socket has the first layout.
pub fn directory(pools: &Pools) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (name, pool) in &pools.pools {
        let exclusive = if pool.is_exclusive { "1" } else { "0" };
        files.push((format!("pools/{name}/exclusive"), exclusive.to_owned()));
        for slot in &pool.slots {
            let socket = slot.socket.map(|it| format!("{it}/")).unwrap_or_default();
            let list = render_cpu_list(&slot.cpus);
            let tasks: Vec<String> = slot.tasks.iter().map(u32::to_string).collect();
            files.push((format!("pools/{name}/{socket}{list}/tasks"), tasks.join(",")));
        }
    }
    files
}

fn parse_tasks(text: &str) -> Vec<u32> {
    text.split(',').filter_map(|it| it.trim().parse().ok()).collect()
}

fn process(node: &Node) -> Option<u32> {
    match &node.value {
        Value::Scalar(text) => text.parse().ok(),
        _ => None,
    }
}

fn map(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = match &node.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    entries.iter().map(|(_, key, value)| (key.as_str(), value))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::yaml::parse_yaml;

    fn check(pools: &Pools, expected: Expect) {
        let lines = directory(pools).into_iter().map(|(path, text)| format!("{path} {text}\n"));
        expected.assert_eq(&lines.collect::<String>());
        let files = directory(pools);
        let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        assert_eq!(Pools::from_directory(files), *pools);
    }

    #[test]
    fn both_layouts_of_the_directory_are_read_and_written() {
        let first = [
            ("lock", ""),
            ("pools/dataplane/exclusive", "1"),
            ("pools/dataplane/4,12/tasks", "2000"),
            ("pools/infra/exclusive", "0\n"),
            ("pools/infra/0-2,8-10/tasks", "3000,3001\n"),
        ];
        check(
            &Pools::from_directory(first),
            expect![[r#"
                pools/dataplane/exclusive 1
                pools/dataplane/4,12/tasks 2000
                pools/infra/exclusive 0
                pools/infra/0,1,2,8,9,10/tasks 3000,3001
            "#]],
        );
        let second = [
            ("pools/exclusive/exclusive", "1"),
            ("pools/exclusive/1/6,14/tasks", ""),
            ("pools/exclusive/0/4,12/tasks", "7"),
            ("pools/shared/0/", ""),
        ];
        check(
            &Pools::from_directory(second),
            expect![[r#"
                pools/exclusive/exclusive 1
                pools/exclusive/0/4,12/tasks 7
                pools/exclusive/1/6,14/tasks 
                pools/shared/exclusive 0
            "#]],
        );
    }

    #[test]
    fn processes_are_on_lists_of_sockets() {
        for (path, expected) in [
            ("lock", false),
            ("pools/exclusive/exclusive", false),
            ("pools/exclusive/4,12/tasks", false),
            ("pools/exclusive/0/4-5,12/tasks", false),
            ("pools/exclusive/four/tasks", true),
            ("pools/exclusive/0/4-/tasks", true),
            ("pools/exclusive/zero/4/tasks", true),
        ] {
            assert_eq!(is_stray(path), expected, "{path}");
        }
    }

    #[test]
    fn the_document_of_the_config_map_is_read() {
        let text = "exclusive:\n  0:\n    4,12: [1, 2]\n  1: {}\nshared:\n  0:\n    5,13: []\n";
        check(
            &Pools::from_tree(&parse_yaml(text).unwrap()),
            expect![[r#"
                pools/exclusive/exclusive 1
                pools/exclusive/0/4,12/tasks 1,2
                pools/shared/exclusive 0
                pools/shared/0/5,13/tasks 
            "#]],
        );
    }
}
