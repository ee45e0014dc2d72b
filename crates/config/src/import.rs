//! Configurations of other systems to one of bayplan. In: texts of files, and what is known of the node. Out: our configuration, with a comment
//! above each key that says where it comes from, and a [`Note`] for every key of the other system.
//!
//! A file holds one or several YAML documents, each a custom resource, a ConfigMap or a bare configuration file (`document.rs` tells which). One file per
//! system lists its keys as `walk::Rule`s: each key is carried over, holds without a key, or has no counterpart, and a key that no rule names is
//! reported, never dropped. What needs more than a rule is a function of the same file. `output.rs` is the tree that they write.
//!
//! Guarantees: no I/O; same input, same text; every key of the input is in exactly one note; the text has no key twice.

mod balloons;
mod classes;
mod composites;
mod cri_rm;
mod document;
mod input;
mod koordinator;
mod kubelet;
mod machine;
mod nri_plugins;
mod output;
mod pools;
mod power_manager;
mod report;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::document::{Document, Origin, Scope, split};
pub use self::input::{ImportError, Input, Target};
pub use self::report::{Counts, Fate, Imported, Note};
use self::walk::Walk;

/// Keys that are not carried out yet.
pub const REFUSED: &[&str] = &[];

/// Imports all files into one configuration. Of two files that say the same key, the first decides.
///
/// # Errors
/// A file is no YAML, or none is known.
pub fn import(inputs: &[Input], target: &Target<'_>) -> Result<Imported, ImportError> {
    let mut documents = Vec::new();
    for input in inputs {
        documents.extend(split(input)?);
    }
    let chosen = chosen(&documents, target);
    let mut walk = Walk::new(target);
    let mut origins = Vec::new();
    let mut ordered: Vec<(usize, &Document)> = documents.iter().enumerate().collect();
    ordered.sort_by_key(|(_, document)| document.order());
    for (idx, document) in ordered {
        walk.begin(document);
        match &document.origin {
            None => walk.leave(document, "no configuration of a system that is known here"),
            Some(_) if !chosen.contains(&idx) => {
                let why = "for other nodes: another one names this node more exactly; --node and --group choose";
                walk.leave(document, why);
            }
            Some(origin) => {
                origins.push(format!("{} ({})", document.file, origin.name()));
                carry_over(&mut walk, origin, document);
            }
        }
    }
    if origins.is_empty() {
        let names: Vec<&str> = inputs.iter().map(Input::name).collect();
        return Err(ImportError::NothingKnown { files: names.join(", ") });
    }
    origins.dedup();
    Ok(walk.finish(&origins))
}

fn carry_over(walk: &mut Walk<'_>, origin: &Origin, document: &Document) {
    match origin {
        Origin::TopologyAware | Origin::Template => nri_plugins::topology_aware(walk, document),
        Origin::Balloons => balloons::nri_plugins(walk, document),
        Origin::CriRm => cri_rm::file(walk, document),
        Origin::CriRmFlags => cri_rm::flags(walk, document),
        Origin::CriRmAdjustment => cri_rm::adjustment(walk, document),
        Origin::Kubelet => kubelet::kubelet(walk, document),
        Origin::NodeSlo => koordinator::node_slo(walk, document),
        Origin::SloController => koordinator::controller(walk, document),
        Origin::Power(kind) => power_manager::resource(walk, *kind, document),
        Origin::Cmk(pools) => pools::cmk(walk, pools),
        Origin::StaticPools => pools::static_pools_file(walk, document),
    }
}

/// Of the documents of one system that are for different nodes, the one that names this node most exactly: its own, its group's, the default. A
/// document that does not say is for every node.
fn chosen(documents: &[Document], target: &Target<'_>) -> BTreeSet<usize> {
    let rank = |scope: &Scope| match scope {
        Scope::All => Some(0),
        Scope::Node(name) => (target.node == Some(name.as_str())).then_some(3),
        Scope::Group(name) => (target.group == Some(name.as_str())).then_some(2),
        Scope::Default => Some(1),
    };
    let mut chosen = BTreeSet::new();
    for (idx, document) in documents.iter().enumerate() {
        let Some(family) = document.family() else { continue };
        let peers = || documents.iter().filter(|it| it.family() == Some(family));
        let scoped = || peers().filter(|it| it.scope != Scope::All);
        let best = scoped().filter_map(|it| rank(&it.scope)).max();
        // One configuration alone is meant, whatever it is called.
        let is_alone = scoped().count() == 1;
        let is_best = best.is_some() && rank(&document.scope) == best;
        if document.scope == Scope::All || is_alone || is_best {
            chosen.insert(idx);
        }
    }
    chosen
}
