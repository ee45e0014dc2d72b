//! One machine for people. In: a [`bayplan_topology::Topology`], and what holds each CPU. Out: a tree or a map for terminals, a sheet
//! of paper as SVG, or boxes with places and numbers for the live page.
//!
//! Pure: no file, clock or environment. The same machine and the same containers give the same text.

mod map;
mod outline;
mod picture;
#[cfg(test)]
mod tests;
mod tree;

pub use map::{LABEL_COLUMNS, MapLine, map_lines, render_map};
pub use outline::{
    Distances, Outline, OutlineBox, OutlineCore, OutlineDevice, OutlineMark, OutlineMemory, outline,
};
pub use picture::{Seat, render_svg, render_titled_svg};
pub use tree::render_tree;
