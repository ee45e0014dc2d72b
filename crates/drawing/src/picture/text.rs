//! Texts and how much room they take. There is no font to ask, so widths are estimated by classes of characters, after DejaVu Sans,
//! the widest of the fonts that usually stand behind `sans-serif`.

/// A part of a line that is longer is broken inside, because a name may be as long as its owner likes.
const PART_CHARS_MAX: usize = 40;

/// A size and a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Font {
    Headline,
    /// Names of objects.
    Name,
    Plain,
    /// Less than the rest.
    Small,
    /// CPU numbers of machines with very many CPUs.
    Tiny,
}

impl Font {
    pub(crate) const ALL: [Font; 5] =
        [Font::Headline, Font::Name, Font::Plain, Font::Small, Font::Tiny];

    pub(crate) fn size(self) -> usize {
        match self {
            Font::Headline => 15,
            Font::Name => 9,
            Font::Plain => 8,
            Font::Small => 7,
            Font::Tiny => 6,
        }
    }

    pub(crate) fn is_bold(self) -> bool {
        matches!(self, Font::Headline | Font::Name)
    }

    /// From the top of a line to the top of the next one.
    pub(crate) fn line_height(self) -> usize {
        self.size() + self.size().div_ceil(4)
    }

    /// From the top of a line down to the line on which the letters stand.
    pub(crate) fn ascent(self) -> usize {
        self.size()
    }
}

/// The width of a text, rather too large than too small.
pub(crate) fn width(text: &str, font: Font) -> usize {
    scaled(hundredths(text), font)
}

fn scaled(hundredths: usize, font: Font) -> usize {
    let bold = if font.is_bold() { 110 } else { 100 };
    (hundredths * font.size() * bold).div_ceil(10_000)
}

fn hundredths(text: &str) -> usize {
    text.chars().map(hundredths_of_em).sum()
}

fn hundredths_of_em(c: char) -> usize {
    match c {
        ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | 'i' | 'l' | 'j' | 'I' | 'J' | 'f' | 't'
        | 'r' | '/' | '-' | '(' | ')' | '[' | ']' | '!' => 43,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '&' | '+' | '=' | '<' | '>' | '#' | '~' | '^' => 101,
        'A'..='Z' => 79,
        ' '..='~' => 65,
        '\u{b7}' => 43,
        // Beyond ASCII anything may come, also a glyph as wide as high, and wider ones where no font has it.
        _ => 130,
    }
}

/// One or more lines of text: parts that stay whole, and may be put on as many lines as the width asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    pub(crate) font: Font,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    text: String,
    /// What stands between it and the part before it, when both are on one line.
    before: &'static str,
}

impl Paragraph {
    /// A text that stays on one line.
    pub(crate) fn of_name(font: Font, name: &str) -> Paragraph {
        Paragraph::new(font, "", [name.to_owned()])
    }

    /// Parts with a dot between them.
    pub(crate) fn of_parts(font: Font, parts: impl IntoIterator<Item = String>) -> Paragraph {
        Paragraph::new(font, " \u{b7} ", parts)
    }

    /// Facts with commas between them.
    pub(crate) fn of_facts(font: Font, facts: &[String]) -> Paragraph {
        let last = facts.len().saturating_sub(1);
        let comma = |at| if at == last { "" } else { "," };
        Paragraph::new(
            font,
            " ",
            facts.iter().enumerate().map(|(at, fact)| format!("{fact}{}", comma(at))),
        )
    }

    /// A text that is broken at its spaces.
    pub(crate) fn of_words(font: Font, text: &str) -> Paragraph {
        Paragraph::new(font, " ", text.split(' ').map(str::to_owned))
    }

    /// A text that is broken after its commas, such as a list of CPUs.
    pub(crate) fn of_list(font: Font, text: &str) -> Paragraph {
        Paragraph::new(font, "", text.split_inclusive(',').map(str::to_owned))
    }

    fn new(
        font: Font,
        between: &'static str,
        texts: impl IntoIterator<Item = String>,
    ) -> Paragraph {
        let mut parts = Vec::new();
        for text in texts {
            let chars: Vec<char> = text.chars().map(printable).collect();
            // The pieces of a part that is too long stay one word.
            let pieces = chars.chunks(PART_CHARS_MAX).enumerate();
            parts.extend(pieces.map(|(at, piece)| Part {
                text: piece.iter().collect(),
                before: if at == 0 { between } else { "" },
            }));
        }
        Paragraph { font, parts }
    }

    /// The width of the widest part.
    pub(crate) fn width_min(&self) -> usize {
        self.parts.iter().map(|part| width(&part.text, self.font)).max().unwrap_or(0)
    }

    /// The width on one line.
    pub(crate) fn width_max(&self) -> usize {
        self.lines(usize::MAX).iter().map(|line| width(line, self.font)).max().unwrap_or(0)
    }

    /// The height when it has `room` in width.
    pub(crate) fn height(&self, room: usize) -> usize {
        self.lines(room).len() * self.font.line_height()
    }

    /// As much as fits on each line; at least one part.
    pub(crate) fn lines(&self, room: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut used = 0;
        for part in &self.parts {
            let own = hundredths(&part.text);
            let joined = used + hundredths(part.before) + own;
            match lines.last_mut() {
                Some(line) if scaled(joined, self.font) <= room => {
                    line.push_str(part.before);
                    line.push_str(&part.text);
                    used = joined;
                }
                _ => {
                    lines.push(part.text.clone());
                    used = own;
                }
            }
        }
        lines
    }
}

/// Control characters have no picture, and XML cannot hold most of them even when they are escaped.
pub(crate) fn printable(c: char) -> char {
    let is_no_character = matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff);
    // Marks that turn the direction of a text would turn that of its neighbours, too.
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || is_no_character || turns { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_breaks_between_parts_and_inside_very_long_ones() {
        let words = Paragraph::of_words(Font::Plain, "default/web/app and  others");
        assert_eq!(words.lines(usize::MAX), ["default/web/app and others"]);
        let facts = Paragraph::of_facts(Font::Plain, &["2 CPUs".to_owned(), "1 core".to_owned()]);
        assert_eq!(facts.lines(0), ["2 CPUs,", "1 core"]);
        let parts = Paragraph::of_parts(Font::Plain, ["L3 0".to_owned(), "2 MiB".to_owned()]);
        assert_eq!(parts.lines(usize::MAX), ["L3 0 \u{b7} 2 MiB"]);
        assert_eq!(words.lines(0), ["default/web/app", "and", "others"]);
        let list = Paragraph::of_list(Font::Plain, "0-3,8,10-12");
        assert_eq!(list.lines(width("0-3,8,", Font::Plain)), ["0-3,8,", "10-12"]);
        let long = Paragraph::of_words(Font::Plain, &"x".repeat(100));
        assert_eq!(long.lines(0).iter().map(String::len).collect::<Vec<_>>(), [40, 40, 20]);
        assert_eq!(long.lines(usize::MAX), ["x".repeat(100)]);
        assert_eq!(Paragraph::of_words(Font::Plain, "").height(10), 0);
    }

    #[test]
    fn what_has_no_picture_gets_one() {
        let odd = Paragraph::of_words(Font::Plain, "a\u{1}b\u{ffff}\n\u{202e}");
        assert_eq!(odd.lines(0), ["a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}"]);
    }
}
