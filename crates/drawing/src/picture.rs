//! The machine as a picture: one sheet of A4 in landscape, as SVG. In: a [`Topology`] and what runs on which CPU. Out: a text.
//!
//! Problem: to show a machine with 2 or 8,192 CPUs, whatever nests in whatever, so that it can be read when it is printed, also in
//! grey. Approach: three steps, each a value.
//!
//! 1. `machine`, `cells`, `memory`, `devices`, `legend` and `page` turn the tree into boxes in boxes without places ([`block`]).
//! 2. Every box says which sizes it can take, the sheet takes the one that fits it best, and everything gets its place
//!    ([`layout`]). There is no font to measure with; [`text`] estimates.
//! 3. [`svg`] writes it out.
//!
//! Guarantees: the same topology and seats give the same text; every online CPU is in it by number or in a range; nothing overlaps
//! and nothing is cut off. Texts are texts, foreign ones escaped; there are no scripts and nothing is fetched.

mod block;
mod cells;
pub(crate) mod devices;
mod layout;
mod legend;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod page;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod samples;
mod seating;
mod style;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use bayplan_types::CpuId;

pub use seating::Seat;

use crate::picture::layout::{Layout, lay_out};
use crate::picture::seating::Seating;
use bayplan_topology::Topology;

/// The machine as SVG, with what `seat_of` says of each online CPU; `&|_| None` shows the bare machine.
///
/// Exclusive CPUs have one colour and one capital letter per container, shared ones a quiet colour and a small letter per pool,
/// reserved ones are grey; isolated ones are hatched. A legend at the bottom has the names.
pub fn render_svg(topology: &Topology, seat_of: &dyn Fn(CpuId) -> Option<Seat>) -> String {
    render_titled_svg(topology, "", seat_of)
}

/// As [`render_svg`], below a title such as the host's name and the time.
pub fn render_titled_svg(
    topology: &Topology,
    title: &str,
    seat_of: &dyn Fn(CpuId) -> Option<Seat>,
) -> String {
    svg::render(&layout(topology, title, seat_of))
}

fn layout(topology: &Topology, title: &str, seat_of: &dyn Fn(CpuId) -> Option<Seat>) -> Layout {
    let seating = Seating::new(topology.cpus(), seat_of);
    lay_out(page::page_block(topology, title, &seating))
}
