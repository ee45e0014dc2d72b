//! A layout as SVG.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::picture::layout::{Area, Layout, Rect, Text};
use crate::picture::style::{Bar, CpuLook, Fill, Hatch, Style};
use crate::picture::text::{Font, printable};

/// Thickness of the bar that shows a priority. Mostly few CPUs are better and all others are worse, so the good ones stand out.
const BAR_HIGH: usize = 2;
const BAR_LOW: usize = 1;

/// Names are scoped by a class of our own, so that the picture can stand inside another document.
const SHAPES: &str = "\
.bayplan text{font-family:sans-serif;fill:#000}
.bayplan rect{stroke:#333;stroke-width:.6}
.bayplan .c{text-anchor:middle}
.bayplan .page,.bayplan .bar{stroke:none}
.bayplan .machine,.bayplan .package{stroke:#222;stroke-width:1}
.bayplan .frame{stroke:#666;stroke-width:.5}
.bayplan .large{stroke:#000;stroke-width:1.3}
.bayplan .cpu{stroke:#888;stroke-width:.4}
.bayplan .offline{stroke:#666;stroke-dasharray:3 2}
";

/// Behind coloured CPUs the boxes step back.
const SHAPES_SEATED: &str = "\
.bayplan .package{fill:#f4f5f6}
.bayplan .node{fill:#f8faf7}
.bayplan .l3{fill:#fdfbf5}
";

/// The picture as a text.
pub(crate) fn render(layout: &Layout) -> String {
    let Rect { width, height, .. } = layout.sheet.rect;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bayplan\" width=\"297mm\" height=\"210mm\" \
         viewBox=\"0 0 {width} {height}\">\n"
    );
    // Directly below the root a title is that of the document.
    let _ = writeln!(text, "<title>{}</title>", escaped(&layout.sheet.hover));
    let mut used = Used::default();
    used.collect(&layout.sheet);
    used.write(&mut text);
    contents(&mut text, &layout.sheet);
    text.push_str("\n</svg>\n");
    text
}

/// Colours and patterns that occur.
#[derive(Default)]
struct Used {
    fills: BTreeSet<Fill>,
    hatches: BTreeSet<Hatch>,
}

impl Used {
    fn collect(&mut self, area: &Area) {
        if let Style::Cpu(CpuLook { fill, hatch, .. }) = area.style {
            self.fills.insert(fill);
            self.hatches.extend(hatch);
        }
        for area in &area.areas {
            self.collect(area);
        }
    }

    fn write(&self, text: &mut String) {
        text.push_str("<style>\n");
        text.push_str(SHAPES);
        for style in Style::COLORED {
            let class = style.class().unwrap_or_default();
            let _ = writeln!(text, ".bayplan .{class}{{fill:{}}}", style.color());
        }
        if self.fills.iter().any(|fill| *fill != Fill::Empty) {
            text.push_str(SHAPES_SEATED);
        }
        for font in Font::ALL {
            let bold = if font.is_bold() { ";font-weight:bold" } else { "" };
            let _ =
                writeln!(text, ".bayplan .{}{{font-size:{}px{bold}}}", class(font), font.size());
        }
        text.push_str("</style>\n");
        if self.hatches.is_empty() {
            return;
        }
        text.push_str("<defs>\n");
        for hatch in &self.hatches {
            let lines = match hatch {
                Hatch::Isolated => "M-1 1L1-1M0 4L4 0M3 5L5 3",
                Hatch::Partitioned => "M0 2H4",
                Hatch::Reserved => "M2 1.5V2.5",
            };
            let _ = writeln!(
                text,
                "<pattern id=\"{}\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">\
                 <path d=\"{lines}\" stroke=\"#999\" stroke-width=\".7\"/></pattern>",
                hatch.pattern()
            );
        }
        text.push_str("</defs>\n");
    }
}

fn class(font: Font) -> &'static str {
    match font {
        Font::Headline => "f1",
        Font::Name => "f2",
        Font::Plain => "f3",
        Font::Small => "f4",
        Font::Tiny => "f5",
    }
}

/// Writing to a String cannot fail, so results are dropped here and below.
fn area(text: &mut String, of: &Area) {
    let has_line_of_its_own = !matches!(of.style, Style::Cpu(_));
    if has_line_of_its_own && !text.ends_with('\n') {
        text.push('\n');
    }
    if !of.hover.is_empty() {
        let _ = write!(text, "<g><title>{}</title>", escaped(&of.hover));
    }
    contents(text, of);
    if !of.hover.is_empty() {
        text.push_str("</g>");
    }
}

fn contents(text: &mut String, of: &Area) {
    rect(text, of);
    for line in &of.texts {
        line_of_text(text, line);
    }
    for inner in &of.areas {
        area(text, inner);
    }
}

fn rect(text: &mut String, area: &Area) {
    let Some(class) = area.style.class() else { return };
    let _ = write!(text, "<rect class=\"{class}\"{}", position(area.rect));
    if area.style.radius() > 0 {
        let _ = write!(text, " rx=\"{}\"", area.style.radius());
    }
    let Style::Cpu(look) = area.style else {
        text.push_str("/>");
        return;
    };
    let _ = write!(text, " fill=\"{}\"/>", look.fill.color());
    if let Some(hatch) = look.hatch {
        let (at, pattern) = (position(area.rect), hatch.pattern());
        let _ = write!(text, "<rect class=\"cpu\"{at} fill=\"url(#{pattern})\"/>");
    }
    if let Some(bar) = look.bar {
        let _ = write!(text, "<rect class=\"bar\"{}/>", position(bar_rect(bar, area.rect)));
    }
}

fn bar_rect(bar: Bar, cpu: Rect) -> Rect {
    match bar {
        Bar::High => Rect { height: BAR_HIGH.min(cpu.height), ..cpu },
        Bar::Low => {
            let height = BAR_LOW.min(cpu.height);
            Rect { y: cpu.y + cpu.height - height, height, ..cpu }
        }
    }
}

fn position(rect: Rect) -> String {
    let Rect { x, y, width, height } = rect;
    format!(" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
}

fn line_of_text(text: &mut String, line: &Text) {
    let center = if line.is_centered { " c" } else { "" };
    let (x, y, class) = (line.x, line.y, class(line.font));
    let shown = escaped(&line.text);
    let _ = write!(text, "<text class=\"{class}{center}\" x=\"{x}\" y=\"{y}\">{shown}</text>");
}

/// Names of interfaces and containers are foreign; they must not become markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars().map(printable) {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}
