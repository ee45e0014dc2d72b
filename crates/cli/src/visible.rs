//! Text from pods, files and other programs as a terminal may show it. In: any text. Out: the same, with every character that moves the
//! cursor, changes the terminal or the direction of writing shown as its code. In JSON the code is JSON's own, so that programs read the
//! text as it is.

use std::io;

use serde::Serialize;

/// As [`visible_cell`], with line breaks, tabs and the colours of [`crate::text::paint`].
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\u{1b}' => colour_len(rest),
            '\n' | '\t' => Some(1),
            _ => None,
        };
        let len = len.unwrap_or_else(|| {
            push_visible(&mut shown, first);
            0
        });
        let (kept, after) = rest.split_at(len);
        shown.push_str(kept);
        rest = if len == 0 { &rest[first.len_utf8()..] } else { after };
    }
    shown
}

/// One line of text, without anything that a terminal acts on.
pub(crate) fn visible_cell(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(&mut shown, c));
    shown
}

/// Standard error for log lines. Their layer escapes what controls a terminal, and makes colours; here what is invisible or turns the direction of
/// writing is shown as its code, too.
#[derive(Debug)]
pub(crate) struct LogLines;

impl io::Write for LogLines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let shown = visible_lines(&String::from_utf8_lossy(lines));
        io::stderr().lock().write_all(shown.as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Log lines with their colours, and without anything else that a terminal acts on.
fn visible_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| match c {
        '\n' | '\t' | '\u{1b}' => shown.push(c),
        c => push_visible(&mut shown, c),
    });
    shown
}

/// Prints a value for programs, pretty, with a line end.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    out!("{}", to_visible_json(value)?)
}

/// A value for programs, pretty, with a line end; a terminal shows it as it is.
///
/// # Errors
/// A map has keys that are no texts.
pub(crate) fn to_visible_json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(visible_json(&serde_json::to_string_pretty(value)?) + "\n")
}

/// JSON of the same value in which what a terminal acts on is written as an escape. Such characters are only inside of texts, where JSON
/// allows to escape any character (RFC 8259, section 7); line breaks between values stay.
pub(crate) fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_harmful(c) {
            shown.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    }
    shown
}

fn push_visible(shown: &mut String, c: char) {
    match is_harmful(c) {
        true => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        false => shown.push(c),
    }
}

/// Controls (C0, DEL, C1), separators of lines, what has no width or changes the direction (UAX #9, and what Unicode calls ignorable).
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Length of a colour as [`crate::text::paint`] makes it, at the beginning of a text.
fn colour_len(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("\u{1b}[")?;
    let (number, _) = inside.split_once('m')?;
    let is_colour = matches!(number.as_bytes(), b"0" | b"1;90" | [b'1', b';', b'3', b'0'..=b'7']);
    is_colour.then_some(number.len() + 3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_has_its_own_escapes() {
        for (text, expected) in [
            ("plain, ümlaut, 数", "plain, ümlaut, 数"),
            ("a\u{202e}txt\u{7f}", "a\\u202etxt\\u007f"),
            ("\u{1b}[2J\n\u{9b}", "\\u001b[2J\\n\\u009b"),
            ("tag\u{e0041}", "tag\\udb40\\udc41"),
        ] {
            let shown = to_visible_json(&[text]).unwrap();
            assert_eq!(shown, format!("[\n  \"{expected}\"\n]\n"));
        }
    }

    #[test]
    fn what_a_terminal_acts_on_is_shown_as_its_code() {
        for (text, expected) in [
            ("plain, ümlaut, 数", "plain, ümlaut, 数"),
            ("two\nlines\tand a tab", "two\nlines\tand a tab"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m"),
            ("\u{1b}[8mhidden", "\\u{1b}[8mhidden"),
            ("\u{1b}[1;31;8mhidden", "\\u{1b}[1;31;8mhidden"),
            ("over\rwritten\u{8}", "over\\u{d}written\\u{8}"),
            ("\u{9b}31mC1", "\\u{9b}31mC1"),
            ("abc\u{202e}txt.exe", "abc\\u{202e}txt.exe"),
            ("\u{2066}isolate\u{2069}", "\\u{2066}isolate\\u{2069}"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("line\u{2028}break\u{85}", "line\\u{2028}break\\u{85}"),
            ("\u{1b}", "\\u{1b}"),
            ("\u{1b}[", "\\u{1b}["),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
        assert_eq!(visible_cell("a\nb\u{1b}[0m"), "a\\u{a}b\\u{1b}[0m");
    }

    #[test]
    fn log_lines_keep_their_colours_and_hide_nothing() {
        let line = "\u{1b}[33m WARN\u{1b}[0m default/a\u{202e}b: \u{9b}x\u{200b}\r\n";
        let shown = "\u{1b}[33m WARN\u{1b}[0m default/a\\u{202e}b: \\u{9b}x\\u{200b}\\u{d}\n";
        assert_eq!(visible_lines(line), shown);
    }

    proptest! {
        #[test]
        fn json_reads_as_the_same_text_and_has_nothing_that_a_terminal_acts_on(text in "(?s).*") {
            let shown = to_visible_json(&[&text]).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Vec<String>>(&shown).unwrap(), &[text]);
            prop_assert!(!shown.chars().any(|c| c != '\n' && is_harmful(c)), "{shown:?}");
        }

        #[test]
        fn a_cell_has_nothing_that_a_terminal_acts_on(text in ".*") {
            let shown = visible_cell(&text);
            prop_assert!(!shown.chars().any(is_harmful), "{shown:?}");
            prop_assert_eq!(visible_cell(&shown), shown);
        }

        #[test]
        fn a_text_keeps_its_lines_and_nothing_else(text in "(?s).*") {
            let shown = visible(&text);
            prop_assert_eq!(shown.matches('\n').count(), text.matches('\n').count());
            let rest = shown.replace(['\n', '\t'], "");
            prop_assert!(!rest.chars().any(|c| c != '\u{1b}' && is_harmful(c)), "{rest:?}");
        }
    }
}
