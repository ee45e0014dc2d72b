//! Small machines as kernel files, and edits of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bayplan_host::kernel_files::{Entry, KernelFiles};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// What is damaged. They are the seeds of the target `files`, too.
static MACHINES: LazyLock<Vec<Paths>> = LazyLock::new(|| {
    let texts = [
        include_str!("../seeds/files/server.txt"),
        include_str!("../seeds/files/hybrid.txt"),
        include_str!("../seeds/files/old.txt"),
    ];
    let parse = |text| KernelFiles::parse(text).expect("a seed is in the text form");
    let paths = |files: KernelFiles| {
        files.iter().map(|(path, entry)| (path.to_owned(), entry.clone())).collect()
    };
    texts.into_iter().map(parse).map(paths).collect()
});

const CPU_DIR: &str = "sys/devices/system/cpu";
const NODE_DIR: &str = "sys/devices/system/node";

type Paths = BTreeMap<String, Entry>;

/// A machine and what happens to its files, in order.
#[derive(Clone, Debug, Arbitrary)]
pub struct Damage {
    machine: u8,
    edits: Vec<Edit>,
}

/// One edit. Positions count the paths that are there, modulo their number.
#[derive(Clone, Debug, Arbitrary)]
pub enum Edit {
    /// A file is gone.
    Delete(u16),
    /// A directory is gone: what begins like the path, cut after so many names.
    DeleteBelow(u16, u8),
    /// A text ends early.
    Truncate(u16, u8),
    /// A text is another one.
    Replace(u16, String),
    /// A text is a number.
    Number(u16, u32),
    /// A text is a list: first, count, step, in how many pieces.
    List(u16, u16, u8, u8, u8),
    /// A text is a row of numbers.
    Row(u16, Vec<u8>),
    /// A text stands in another file as well.
    Copy(u16, u16),
    /// Two files change places.
    Swap(u16, u16),
    /// A CPU or node has another number, or is there under two.
    Renumber {
        /// Of a node, not of a CPU.
        is_node: bool,
        /// The number that it has.
        from: u8,
        /// The number that it gets.
        to: u16,
        /// Whether the old directory stays.
        is_copy: bool,
    },
    /// A link where something else was.
    Link(u16, String),
    /// A link to another path.
    LinkTo(u16, u16),
    /// A directory where a file was.
    Dir(u16),
    /// A file where a directory was: the path, cut after so many names.
    File(u16, u8, String),
    /// Something new beside a path.
    New(u16, String, String),
}

impl Damage {
    /// The machine after all edits.
    pub fn files(self) -> KernelFiles {
        let machine = usize::from(self.machine) % MACHINES.len();
        let mut paths = MACHINES[machine].clone();
        for edit in self.edits {
            edit.apply(&mut paths);
        }
        let mut files = KernelFiles::default();
        for (path, entry) in paths {
            files.insert(path, entry);
        }
        files
    }
}

fn nth(paths: &Paths, at: u16) -> Option<String> {
    let at = usize::from(at) % paths.len().max(1);
    paths.keys().nth(at).cloned()
}

/// The first names of the path at a position.
fn cut(paths: &Paths, at: u16, names: u8) -> Option<String> {
    let path = nth(paths, at)?;
    let names = 1 + usize::from(names) % path.split('/').count();
    Some(path.split('/').take(names).collect::<Vec<_>>().join("/"))
}

fn delete_below(paths: &mut Paths, dir: &str) {
    let inside = format!("{dir}/");
    paths.retain(|path, _| path != dir && !path.starts_with(&inside));
}

fn put(paths: &mut Paths, at: u16, entry: Entry) {
    if let Some(path) = nth(paths, at) {
        paths.insert(path, entry);
    }
}

impl Edit {
    fn apply(self, paths: &mut Paths) {
        match self {
            Edit::Delete(at) => {
                nth(paths, at).and_then(|path| paths.remove(&path));
            }
            Edit::DeleteBelow(at, names) => {
                if let Some(dir) = cut(paths, at, names) {
                    delete_below(paths, &dir);
                }
            }
            Edit::Truncate(at, len) => {
                let path = nth(paths, at);
                if let Some(Entry::Text(text)) = path.and_then(|path| paths.get_mut(&path)) {
                    *text = text.chars().take(usize::from(len)).collect();
                }
            }
            Edit::Replace(at, text) => put(paths, at, Entry::Text(text)),
            Edit::Number(at, number) => put(paths, at, Entry::Text(number.to_string())),
            Edit::List(at, first, count, step, pieces) => {
                put(paths, at, Entry::Text(list(first, count, step, pieces)));
            }
            Edit::Row(at, numbers) => {
                let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                put(paths, at, Entry::Text(texts.join(" ")));
            }
            Edit::Copy(from, to) => {
                let entry = nth(paths, from).and_then(|path| paths.get(&path).cloned());
                if let Some(entry) = entry {
                    put(paths, to, entry);
                }
            }
            Edit::Swap(a, b) => {
                let (Some(a), Some(b)) = (nth(paths, a), nth(paths, b)) else { return };
                if let (Some(one), Some(other)) = (paths.get(&a).cloned(), paths.get(&b).cloned()) {
                    paths.insert(a, other);
                    paths.insert(b, one);
                }
            }
            Edit::Renumber { is_node, from, to, is_copy } => {
                let dir =
                    if is_node { format!("{NODE_DIR}/node") } else { format!("{CPU_DIR}/cpu") };
                renumber(paths, &dir, from, to, is_copy);
            }
            Edit::Link(at, target) => put(paths, at, Entry::Link(target)),
            Edit::LinkTo(at, to) => {
                if let (Some(path), Some(to)) = (nth(paths, at), nth(paths, to)) {
                    let up = "../".repeat(path.split('/').count() - 1);
                    paths.insert(path, Entry::Link(format!("{up}{to}")));
                }
            }
            Edit::Dir(at) => put(paths, at, Entry::Dir),
            Edit::File(at, names, text) => {
                if let Some(dir) = cut(paths, at, names) {
                    delete_below(paths, &dir);
                    paths.insert(dir, Entry::Text(text));
                }
            }
            Edit::New(at, name, text) => {
                let parent =
                    nth(paths, at).and_then(|path| Some(path.rsplit_once('/')?.0.to_owned()));
                let is_name =
                    !name.is_empty() && name != "." && name != ".." && !name.contains('/');
                if let Some(parent) = parent.filter(|_| is_name) {
                    paths.insert(format!("{parent}/{name}"), Entry::Text(text));
                }
            }
        }
    }
}

fn list(first: u16, count: u8, step: u8, pieces: u8) -> String {
    let piece = |at: u32| {
        let first = u32::from(first) + at * u32::from(step);
        format!("{first}-{}", first + u32::from(count))
    };
    (0..u32::from(pieces) % 8).map(piece).collect::<Vec<_>>().join(",")
}

fn renumber(paths: &mut Paths, prefix: &str, from: u8, to: u16, is_copy: bool) {
    let (from, to) = (format!("{prefix}{from}/"), format!("{prefix}{to}/"));
    let moved: Vec<(String, Entry)> = paths
        .range(from.clone()..)
        .take_while(|(path, _)| path.starts_with(&from))
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect();
    for (path, entry) in moved {
        let end = path[from.len()..].to_owned();
        if !is_copy {
            paths.remove(&path);
        }
        paths.insert(format!("{to}{end}"), entry);
    }
}
