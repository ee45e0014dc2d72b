//! Boxes that have a place. In: a tree of [`Shape`]s. Out: a [`Layout`], every box and every line of text with its coordinates.
//!
//! Guarantees, property-tested: boxes lie inside the box around them, siblings do not overlap, a text lies inside its box and on no
//! other box or text.

use crate::picture::block::{
    Block, Growth, ICON_GAP, SectionShape, Shape, Size, row_height, shape,
};
use crate::picture::style::Style;
use crate::picture::text::Font;

/// A4 in points: a sheet that is not smaller prints without being enlarged.
const SHEET: Size = Size { width: 842, height: 595 };
/// Small machines are drawn at most so many times larger.
const ENLARGED_MAX: usize = 3;
/// Cells that get more room become at most so much wider and higher.
const WIDER_MAX: usize = 2;
/// More than any sheet has.
const HEIGHT_ANY: usize = 1 << 24;
const HIGHER_MAX_PERCENT: usize = 220;

/// The picture: everything with its place, the sheet around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) sheet: Area,
}

/// A box with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) rect: Rect,
    pub(crate) style: Style,
    pub(crate) hover: String,
    pub(crate) texts: Vec<Text>,
    pub(crate) areas: Vec<Area>,
}

/// Left upper corner and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rect {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// A line of text. `x` is its left end, or its middle when it is centered; `y` is the line that the letters stand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) is_centered: bool,
    pub(crate) font: Font,
    pub(crate) text: String,
}

/// Puts everything on a sheet of A4 proportions in landscape.
pub(crate) fn lay_out(page: Block) -> Layout {
    let page = shape(page);
    let best = page.sizes.iter().map(|size| sheet_around(*size)).min_by_key(|size| size.width);
    let sheet = best.unwrap_or(SHEET);
    let rect = Rect { x: 0, y: 0, width: sheet.width, height: sheet.height };
    Layout { sheet: place(&page, rect) }
}

/// The smallest sheet of the right proportions.
fn sheet_around(size: Size) -> Size {
    let Size { width, height } = SHEET;
    let needed = size.width.max((size.height * width).div_ceil(height));
    let sheet_width = needed.max(width / ENLARGED_MAX);
    Size { width: sheet_width, height: (sheet_width * height).div_ceil(width) }
}

fn place(shape: &Shape, rect: Rect) -> Area {
    let block = &shape.block;
    let padding = block.style.padding();
    let mut areas = Vec::new();
    let mut inside = Rect {
        x: rect.x + padding,
        y: rect.y + padding,
        width: rect.width.saturating_sub(2 * padding),
        height: rect.height.saturating_sub(2 * padding),
    };
    if let Some(icon) = &shape.icon {
        let width = icon.width_min();
        let height = icon.height_at(width);
        areas.push(place(icon, Rect { width, height, ..inside }));
        inside.x += width + ICON_GAP;
        inside.width = inside.width.saturating_sub(width + ICON_GAP);
        let texts: usize = block.texts.iter().map(|text| text.height(inside.width)).sum();
        inside.y += height.saturating_sub(texts) / 2;
    }
    let (texts, below) = place_texts(block, inside);
    areas.extend(place_sections(&shape.sections, block.style.gap(), below));
    Area { rect, style: block.style, hover: block.hover.clone(), texts, areas }
}

/// The lines of a box, and what is left of it below them.
fn place_texts(block: &Block, inside: Rect) -> (Vec<Text>, Rect) {
    let height: usize = block.texts.iter().map(|text| text.height(inside.width)).sum();
    let free = inside.height.saturating_sub(height);
    let mut y = if block.is_centered { inside.y + free / 2 } else { inside.y };
    let x = if block.is_centered { inside.x + inside.width / 2 } else { inside.x };
    let mut texts = Vec::new();
    for paragraph in &block.texts {
        let font = paragraph.font;
        for text in paragraph.lines(inside.width) {
            let is_centered = block.is_centered;
            texts.push(Text { x, y: y + font.ascent(), is_centered, font, text });
            y += font.line_height();
        }
    }
    let used = if texts.is_empty() { 0 } else { height + block.style.gap() };
    let height = inside.height.saturating_sub(used);
    (texts, Rect { y: inside.y + used, height, ..inside })
}

/// A section with its columns and the heights of its rows.
struct Rows<'a> {
    section: &'a SectionShape,
    columns: usize,
    column_width: usize,
    heights: Vec<usize>,
    /// Height that goes between the rows beyond the usual gaps.
    spread: usize,
}

fn place_sections(sections: &[SectionShape], gap: usize, inside: Rect) -> Vec<Area> {
    let mut all: Vec<Rows<'_>> =
        sections.iter().map(|section| Rows::new(section, inside.width)).collect();
    let needed: usize = all.iter().map(Rows::height).sum();
    let needed = needed + gap * all.len().saturating_sub(1);
    grow(&mut all, inside.height.saturating_sub(needed));
    let mut areas = Vec::new();
    let mut y = inside.y;
    for rows in &all {
        areas.extend(rows.place(inside.x, y, inside.width));
        y += rows.height() + gap;
    }
    areas
}

/// Gives height that is left over to the rows that can use it, in equal shares. What does not divide goes between rows.
fn grow(all: &mut [Rows<'_>], mut free: usize) {
    let mut wishes: Vec<(&mut usize, usize)> = Vec::new();
    for rows in all.iter_mut() {
        let wished = rows.heights_max();
        wishes.extend(rows.heights.iter_mut().zip(wished));
    }
    loop {
        wishes.retain(|(height, wished)| *wished > **height);
        let share = free / wishes.len().max(1);
        if share == 0 || wishes.is_empty() {
            break;
        }
        for (height, wished) in &mut wishes {
            let more = share.min(*wished - **height);
            **height += more;
            free -= more;
        }
    }
    let is_wanted = !wishes.is_empty();
    let growing = all.iter_mut().filter(|rows| rows.section.growth != Growth::None);
    if let Some(rows) = growing.max_by_key(|rows| rows.heights.len()).filter(|_| is_wanted) {
        rows.spread = free;
    }
}

impl Rows<'_> {
    fn new(section: &SectionShape, room: usize) -> Rows<'_> {
        let grid = section.grid_at(room);
        let columns = grid.columns.max(1);
        let share = room.saturating_sub(section.gap * (columns - 1)) / columns;
        let column_width = match section.growth {
            Growth::None => grid.column_width,
            Growth::Some => share.min(grid.column_width * WIDER_MAX),
            Growth::Any | Growth::Width | Growth::All => share,
        };
        let rows = section.shapes.chunks(columns);
        let heights = rows.map(|row| row_height(row, column_width)).collect();
        Rows { section, columns, column_width, heights, spread: 0 }
    }

    fn height(&self) -> usize {
        let gaps = self.section.gap * self.heights.len().saturating_sub(1);
        self.heights.iter().sum::<usize>() + gaps + self.spread
    }

    /// The heights up to which the rows can use what they get.
    fn heights_max(&self) -> Vec<usize> {
        let rows = self.section.shapes.chunks(self.columns).zip(&self.heights);
        let heights = rows.map(|(row, height)| match self.section.growth {
            Growth::None | Growth::Width => *height,
            Growth::Some => height * HIGHER_MAX_PERCENT / 100,
            Growth::Any => height + HEIGHT_ANY,
            Growth::All => {
                let wished = row.iter().map(|shape| height_max(shape, self.column_width));
                wished.max().unwrap_or(0).max(*height)
            }
        });
        heights.collect()
    }

    fn place(&self, x: usize, y: usize, room: usize) -> Vec<Area> {
        let (gap, columns) = (self.section.gap, self.columns);
        let width = columns * (self.column_width + gap) - gap;
        let free = room.saturating_sub(width);
        // What fills the width goes to its very end. Columns stay equal, so that equal boxes look equal; the gaps take the rest.
        let (left, spread) = match self.section.growth {
            Growth::None => (x, 0),
            Growth::Some => (x + free / 2, 0),
            Growth::Any | Growth::Width | Growth::All => (x, free),
        };
        let mut areas = Vec::new();
        let mut row_y = y;
        let rows = self.section.shapes.chunks(columns).zip(&self.heights);
        for (number, (row, height)) in rows.enumerate() {
            let y = row_y + self.spread * number / (self.heights.len() - 1).max(1);
            for (column, shape) in row.iter().enumerate() {
                let x = left
                    + column * (self.column_width + gap)
                    + spread * column / (columns - 1).max(1);
                let rect = Rect { x, y, width: self.column_width, height: *height };
                areas.push(place(shape, rect));
            }
            row_y += height + gap;
        }
        areas
    }
}

/// The height up to which a box of this width can use what it gets.
fn height_max(shape: &Shape, width: usize) -> usize {
    let natural = shape.height_at(width);
    let inside = width.saturating_sub(shape.width_around());
    let rows = shape.sections.iter().map(|section| Rows::new(section, inside));
    let more = rows
        .map(|rows| rows.heights_max().iter().sum::<usize>() - rows.heights.iter().sum::<usize>());
    natural + more.sum::<usize>()
}
