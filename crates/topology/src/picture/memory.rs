//! The memory of a NUMA node as a box.

use std::fmt::Write as _;

use crate::fold::name_cpus;
use crate::picture::block::Block;
use crate::picture::style::Style;
use crate::picture::text::{Font, Paragraph};
use crate::topology::NumaNode;

/// Name, size and kind. The rest of what is known shows when a pointer rests on it.
pub(crate) fn memory_block(node: &NumaNode) -> Block {
    let mut block = Block::new(Style::Memory(node.kind), hover(node));
    block.texts.push(Paragraph::of_name(Font::Name, &format!("NumaNode {}", node.id)));
    block.texts.push(Paragraph::of_name(Font::Plain, &size_and_kind(node)));
    for cache in &node.side_caches {
        block.texts.push(Paragraph::of_words(Font::Small, &format!("behind a cache of {cache}")));
    }
    block
}

/// `96 GiB Dram`.
pub(crate) fn size_and_kind(node: &NumaNode) -> String {
    match node.memory {
        None => "memory of unknown size".to_owned(),
        Some(_) if !node.has_memory() => "no memory".to_owned(),
        Some(bytes) => format!("{bytes} {}", node.kind),
    }
}

fn hover(node: &NumaNode) -> String {
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
