//! What the fuzz targets share: what must hold for everything that is read, machines that are damaged edit by edit, and a small node
//! with what kubelet says to it.

mod call;
mod damage;
mod node;

use bayplan_host::kernel_files::KernelFiles;
use bayplan_host::{Depth, read_files};
use bayplan_drawing::{render_map, render_tree};
use bayplan_topology::{Snapshot, check_topology, derive, to_json};

pub use call::Call;
pub use damage::{Damage, Edit};
pub use node::{check_request, check_shown, container, fresh_node, rules};

/// First line of the text form of kernel files.
pub const HEADER: &str = "bayplan-files/1\n";

/// Reads the files in both depths. A machine without CPUs is a refusal, not a breach.
pub fn check_files(files: &KernelFiles) {
    for depth in [Depth::Cores, Depth::Cpus] {
        if let Ok(snapshot) = read_files(files.clone(), depth) {
            check_snapshot(&snapshot);
        }
    }
}

/// Whatever was read is refused or makes a sound topology that can be shown.
pub fn check_snapshot(snapshot: &Snapshot) {
    let Ok(topology) = derive(snapshot) else { return };
    let breaches = check_topology(&topology);
    assert!(breaches.is_empty(), "{breaches:#?}");
    assert!(topology.oddities().len() >= snapshot.oddities.len(), "an oddity was lost");
    for text in [render_tree(&topology), render_map(&topology, &|_| ".".to_owned())] {
        let obeyed = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(obeyed, None, "a terminal would obey\n{text}");
    }
    let _text = serde_json::to_string(&to_json(&topology)).expect("texts and numbers");
    let _number = topology.fingerprint();
}
