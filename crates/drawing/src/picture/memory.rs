//! What is said of the memory of a NUMA node.

use std::fmt::Write as _;

use crate::picture::text::{Font, Paragraph};
use bayplan_topology::NumaNode;
use bayplan_types::fold::name_cpus;

/// Name, size and kind.
pub(crate) fn memory_texts(node: &NumaNode) -> Vec<Paragraph> {
    let mut texts = vec![
        Paragraph::of_name(Font::Name, &format!("NumaNode {}", node.id)),
        Paragraph::of_name(Font::Plain, &size_and_kind(node)),
    ];
    let caches = node.side_caches.iter().map(|cache| format!("behind a cache of {cache}"));
    texts.extend(caches.map(|text| Paragraph::of_words(Font::Small, &text)));
    texts
}

/// `96 GiB Dram`.
pub(crate) fn size_and_kind(node: &NumaNode) -> String {
    match node.memory {
        None => "memory of unknown size".to_owned(),
        Some(_) if !node.has_memory() => "no memory".to_owned(),
        Some(bytes) => format!("{bytes} {}", node.kind),
    }
}

/// The rest of what is known, shown on request.
pub(crate) fn memory_hover(node: &NumaNode) -> String {
    let mut text = format!("NumaNode {}", node.id);
    let mut add = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = write!(text, "; {what}{value}");
        }
    };
    add("", Some(size_and_kind(node)));
    add("", (!node.cpus.is_empty()).then(|| name_cpus(&node.cpus)));
    add("kind known by: ", (node.cpus.is_empty()).then(|| node.evidence.name().to_owned()));
    add("near node ", node.near.map(|near| near.to_string()));
    add("memory tier ", node.tier.map(|tier| tier.to_string()));
    add("read bandwidth in MB/s: ", node.speed.bandwidth.map(|mbps| mbps.to_string()));
    add("read latency in ns: ", node.speed.latency.map(|ns| ns.to_string()));
    add("", node.is_movable_only.then(|| "movable memory only".to_owned()));
    for pages in node.huge_pages.iter().filter(|pages| pages.total > 0) {
        add("huge pages: ", Some(format!("{} of {}", pages.total, pages.size)));
    }
    text
}
