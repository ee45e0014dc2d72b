//! Boxes that have no place yet, and the sizes they can take. In: a tree of [`Block`]s. Out: a tree of [`Shape`]s, each with the sizes
//! among which the one around it can choose: the wider, the lower.
//!
//! At the start it is not known how wide a box should be: fourteen cores stand in one row of fourteen or two of seven, four NUMA nodes in a row or in
//! a square. So each box first says which sizes it can take, from the innermost outwards, and the sheet of paper then takes the size that fits it
//! best. What stands in a box follows from that.

use std::collections::BTreeSet;

use crate::picture::style::Style;
use crate::picture::text::Paragraph;

/// Room between an icon and what it explains.
pub(crate) const ICON_GAP: usize = 4;
/// So many sizes per box are enough to choose from.
const SIZES_MAX: usize = 24;

/// A box that has no place yet.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) style: Style,
    /// What a pointer that rests on it is told; may be empty.
    pub(crate) hover: String,
    /// Stands to the left of everything else.
    pub(crate) icon: Option<Box<Block>>,
    pub(crate) is_centered: bool,
    pub(crate) texts: Vec<Paragraph>,
    pub(crate) sections: Vec<Section>,
    /// At least so large, outline included.
    pub(crate) at_least: Size,
}

/// Boxes that stand in a grid.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) blocks: Vec<Block>,
    pub(crate) gap: usize,
    /// How many stand in a row; `None`: whatever fits best.
    pub(crate) columns: Option<usize>,
    pub(crate) growth: Growth,
}

/// What boxes do with room that is left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Keeps its size.
    None,
    /// Becomes larger, but not much.
    Some,
    /// Fills whatever it gets.
    Any,
    /// Fills the width.
    Width,
    /// Fills the width, and as much of the height as what is inside can use.
    All,
}

/// Width and height.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Block {
    /// An empty box.
    pub(crate) fn new(style: Style, hover: impl Into<String>) -> Block {
        Block {
            style,
            hover: hover.into(),
            icon: None,
            is_centered: false,
            texts: Vec::new(),
            sections: Vec::new(),
            at_least: Size::default(),
        }
    }

    /// Puts boxes below what is there; nothing, where there are none.
    pub(crate) fn push(&mut self, section: Section) {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
    }
}

impl Section {
    /// Boxes that fill the width they get.
    pub(crate) fn of_boxes(blocks: Vec<Block>, gap: usize) -> Section {
        Section { blocks, gap, columns: None, growth: Growth::All }
    }

    /// Boxes that keep their size, as many in a row as there is room for.
    pub(crate) fn of_chips(blocks: Vec<Block>, gap: usize) -> Section {
        Section { blocks, gap, columns: None, growth: Growth::None }
    }

    /// Boxes that fill the width they get and keep their height.
    pub(crate) fn of_strips(blocks: Vec<Block>, gap: usize) -> Section {
        Section { blocks, gap, columns: None, growth: Growth::Width }
    }

    /// Small things in rows.
    pub(crate) fn of_cells(blocks: Vec<Block>, gap: usize) -> Section {
        Section { blocks, gap, columns: None, growth: Growth::Some }
    }
}

/// A box and the sizes it can take.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Without its icon and its sections, which are shapes here.
    pub(crate) block: Block,
    pub(crate) icon: Option<Box<Shape>>,
    pub(crate) sections: Vec<SectionShape>,
    /// At least one; each wider and lower than the one before.
    pub(crate) sizes: Vec<Size>,
}

/// A grid and the sizes it can take.
#[derive(Clone, Debug)]
pub(crate) struct SectionShape {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) gap: usize,
    pub(crate) growth: Growth,
    /// At least one; each wider and lower than the one before.
    grids: Vec<Grid>,
}

/// One way to fill a grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    size: Size,
    pub(crate) columns: usize,
    pub(crate) column_width: usize,
}

/// The sizes of a box and of everything in it.
pub(crate) fn shape(mut block: Block) -> Shape {
    let icon = block.icon.take().map(|icon| Box::new(shape(*icon)));
    let sections = std::mem::take(&mut block.sections).into_iter().map(shape_section).collect();
    let mut shape = Shape { block, icon, sections, sizes: Vec::new() };
    shape.sizes = sizes(&shape);
    shape
}

fn sizes(shape: &Shape) -> Vec<Size> {
    let around = shape.width_around();
    let narrowest = shape.sections.iter().map(|section| section.width_min());
    let parts = shape.block.texts.iter().map(Paragraph::width_min);
    let floor = narrowest.chain(parts).max().unwrap_or(0);
    let floor = floor.max(shape.block.at_least.width.saturating_sub(around));
    let grids = shape.sections.iter().flat_map(|section| &section.grids);
    let whole = shape.block.texts.iter().map(Paragraph::width_max);
    let mut widths: BTreeSet<usize> = grids.map(|grid| grid.size.width).chain(whole).collect();
    widths.insert(floor);
    let sizes = widths.range(floor..).map(|inside| Size {
        width: inside + around,
        height: shape.needed_height(*inside).max(shape.block.at_least.height),
    });
    thin(lower_when_wider(sizes))
}

impl Shape {
    /// What outline, padding and icon take of the width.
    pub(crate) fn width_around(&self) -> usize {
        let icon = self.icon.as_ref().map_or(0, |icon| icon.width_min() + ICON_GAP);
        2 * self.block.style.padding() + icon
    }

    pub(crate) fn width_min(&self) -> usize {
        self.sizes.first().map_or(0, |size| size.width)
    }

    /// The height that it needs when it is so wide.
    pub(crate) fn height_at(&self, width: usize) -> usize {
        let wider = self.sizes.partition_point(|size| size.width <= width);
        let size = self.sizes.get(wider.saturating_sub(1));
        size.map_or(0, |size| size.height)
    }

    /// The height with padding, when there is `inside` room in width.
    fn needed_height(&self, inside: usize) -> usize {
        let texts: usize = self.block.texts.iter().map(|text| text.height(inside)).sum();
        let sections = self.sections.iter().map(|section| section.grid_at(inside).size.height);
        let stacked = sections.chain((texts > 0).then_some(texts));
        let (count, height) =
            stacked.fold((0, 0), |(count, sum), height| (count + 1, sum + height));
        let content = height + self.block.style.gap() * usize::saturating_sub(count, 1);
        let icon = self.icon.as_ref().map_or(0, |icon| icon.height_at(icon.width_min()));
        content.max(icon) + 2 * self.block.style.padding()
    }
}

impl SectionShape {
    fn width_min(&self) -> usize {
        self.grids.first().map_or(0, |grid| grid.size.width)
    }

    /// The lowest grid that is not wider than `width`.
    pub(crate) fn grid_at(&self, width: usize) -> Grid {
        let wider = self.grids.partition_point(|grid| grid.size.width <= width);
        let empty = Grid { size: Size::default(), columns: 1, column_width: 0 };
        self.grids.get(wider.saturating_sub(1)).copied().unwrap_or(empty)
    }
}

fn shape_section(section: Section) -> SectionShape {
    let Section { blocks, gap, columns, growth } = section;
    let shapes: Vec<Shape> = blocks.into_iter().map(shape).collect();
    let columns = match columns {
        Some(columns) => vec![columns.clamp(1, shapes.len().max(1))],
        None => column_counts(shapes.len(), growth == Growth::None),
    };
    let floor = shapes.iter().map(Shape::width_min).max().unwrap_or(0);
    let sizes = shapes.iter().flat_map(|shape| &shape.sizes);
    let widths: BTreeSet<usize> = sizes.map(|size| size.width.max(floor)).collect();
    let mut grids: Vec<Grid> = Vec::new();
    for column_width in thin(widths) {
        for columns in &columns {
            let rows = shapes.chunks(*columns).map(|row| row_height(row, column_width));
            let (count, height) = rows.fold((0, 0), |(count, sum), row| (count + 1, sum + row));
            let size = Size {
                width: columns * column_width + gap * columns.saturating_sub(1),
                height: height + gap * usize::saturating_sub(count, 1),
            };
            grids.push(Grid { size, columns: *columns, column_width });
        }
    }
    grids.sort_by_key(|grid| (grid.size.width, grid.size.height, grid.columns));
    let mut lowest = usize::MAX;
    grids.retain(|grid| {
        let is_lower = grid.size.height < lowest;
        lowest = lowest.min(grid.size.height);
        is_lower
    });
    SectionShape { shapes, gap, growth, grids: thin(grids) }
}

/// The height of boxes that stand side by side.
pub(crate) fn row_height(row: &[Shape], column_width: usize) -> usize {
    row.iter().map(|shape| shape.height_at(column_width)).max().unwrap_or(0)
}

/// How many boxes may stand in a row. Full rows look like hardware; where the number has no divisor that makes a decent rectangle,
/// some may be missing in the last row. Things that keep their size need no full rows.
fn column_counts(count: usize, may_be_ragged: bool) -> Vec<usize> {
    let count = count.max(1);
    let all: BTreeSet<usize> = (1..=count).map(|rows| count.div_ceil(rows)).collect();
    let is_decent = |columns: &usize| {
        let rows = count / columns;
        columns * rows == count && rows.max(*columns) <= 4 * rows.min(*columns)
    };
    let missing_max = match () {
        () if may_be_ragged => count,
        () if all.iter().any(is_decent) => 0,
        () => (count / 8).max(1),
    };
    let is_even = |columns: &usize| columns * count.div_ceil(*columns) - count <= missing_max;
    all.into_iter().filter(is_even).collect()
}

/// Sizes by width without those that are wider, but not lower than another one.
fn lower_when_wider(sizes: impl Iterator<Item = Size>) -> Vec<Size> {
    let mut kept: Vec<Size> = Vec::new();
    for size in sizes {
        if kept.last().is_none_or(|last| size.height < last.height) {
            kept.push(size);
        }
    }
    kept
}

/// At most [`SIZES_MAX`] of the items, evenly, the first and the last among them.
fn thin<T>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let items: Vec<T> = items.into_iter().collect();
    let last = items.len().saturating_sub(1);
    if last < SIZES_MAX {
        return items;
    }
    let kept: BTreeSet<usize> = (0..SIZES_MAX).map(|n| n * last / (SIZES_MAX - 1)).collect();
    let numbered = items.into_iter().enumerate();
    numbered.filter(|(at, _)| kept.contains(at)).map(|(_, item)| item).collect()
}
