//! Indented lines of limited width.

/// What fits a terminal and a mail.
const COLUMNS: usize = 100;
const INDENT: usize = 2;

/// Text that grows line by line.
#[derive(Default)]
pub(super) struct Lines {
    text: String,
}

impl Lines {
    /// Adds a line; what does not fit goes on below, four columns further in. Breaks come after a blank or a comma.
    pub(super) fn add(&mut self, depth: usize, line: &str) {
        let mut indent = depth * INDENT;
        let mut rest = line;
        loop {
            let (head, tail) = split(rest, COLUMNS.saturating_sub(indent));
            self.text.extend(std::iter::repeat_n(' ', indent));
            self.text.push_str(head.trim_end());
            self.text.push('\n');
            if tail.is_empty() {
                return;
            }
            indent = depth * INDENT + 2 * INDENT;
            rest = tail;
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// The part that fits, and the rest; a word that is too long stays whole.
fn split(line: &str, columns: usize) -> (&str, &str) {
    if line.chars().count() <= columns {
        return (line, "");
    }
    let breaks = line.match_indices([' ', ',']).map(|(at, _)| at + 1);
    let mut last = None;
    for at in breaks {
        let Some((head, tail)) = line.split_at_checked(at) else { continue };
        let fits = head.trim_end().chars().count() <= columns;
        if (!fits && last.is_some()) || tail.is_empty() {
            break;
        }
        // `0-3, ` breaks after the blank.
        last = Some(at + tail.len() - tail.trim_start().len());
        if !fits {
            break;
        }
    }
    last.and_then(|at| line.split_at_checked(at)).unwrap_or((line, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_after_blanks_and_commas() {
        let mut lines = Lines::default();
        let cpus: Vec<String> = (0..60).map(|n| (n * 7 % 300).to_string()).collect();
        lines.add(1, &format!("cores: {}", cpus.join(",")));
        lines.add(0, &"x".repeat(120));
        lines.add(0, "");
        for line in lines.text.lines() {
            assert!(line.len() <= 100 || !line.contains(','), "{line}");
        }
        assert!(lines.text.contains("\n      "));
        assert_eq!(lines.text.lines().last(), Some(""));
        let joined: String = lines.text.split_whitespace().collect();
        assert!(joined.starts_with(&format!("cores:{}", cpus.join(","))));
    }
}
