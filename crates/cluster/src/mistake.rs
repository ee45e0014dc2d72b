//! Mistakes of a configuration as readers of its object see them. In: the daemon's lines `NAME:LINE:COLUMN: message`, and the text that they are
//! about. Out: the same with the line itself, because no file with these numbers lies anywhere. Of an object of another system the text is what
//! `bayplan import` makes of it.

/// Bytes of a condition's message; the API server takes 32 KiB.
const MESSAGE_MAX: usize = 4096;

/// Lines for a condition. A line of another form stays as it is.
pub fn locate(name: &str, text: &str, mistakes: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let located = mistakes
        .lines()
        .map(|mistake| locate_one(name, &lines, mistake).unwrap_or_else(|| mistake.to_owned()));
    bounded(&located.collect::<Vec<_>>().join("\n"))
}

fn locate_one(name: &str, lines: &[&str], mistake: &str) -> Option<String> {
    let rest = mistake.strip_prefix(name)?.strip_prefix(':')?;
    let (line, rest) = rest.split_once(':')?;
    let (column, message) = rest.split_once(": ")?;
    let number: usize = line.parse().ok()?;
    let said = lines.get(number.checked_sub(1)?).map_or("", |line| line.trim());
    let of = if name.starts_with("BayplanConfig/") { "spec.config" } else { "as imported," };
    Some(format!("{of} line {line}, column {column} ({said}): {message}"))
}

/// Cut at a border of characters, with a mark.
pub(crate) fn bounded(text: &str) -> String {
    if text.len() <= MESSAGE_MAX {
        return text.to_owned();
    }
    let end = (0..=MESSAGE_MAX).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
    format!("{} ...", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_beside_their_numbers() {
        let text = "policy: none\nreservedCpus: \"0\"\n";
        for (mistake, expected) in [
            (
                "BayplanConfig/a:1:9: `policy`: no",
                "spec.config line 1, column 9 (policy: none): `policy`: no",
            ),
            ("BayplanConfig/a:9:1: x", "spec.config line 9, column 1 (): x"),
            ("BayplanConfig/a:0:1: x", "BayplanConfig/a:0:1: x"),
            ("the daemon is stopping", "the daemon is stopping"),
            ("BayplanConfig/b:1:9: x", "BayplanConfig/b:1:9: x"),
        ] {
            assert_eq!(locate("BayplanConfig/a", text, mistake), expected);
        }
        assert_eq!(
            locate("ConfigMap/n/a", text, "ConfigMap/n/a:1:9: `policy`: no"),
            "as imported, line 1, column 9 (policy: none): `policy`: no"
        );
        let long = "ä".repeat(MESSAGE_MAX);
        assert!(locate("a", "", &long).len() <= MESSAGE_MAX + 4);
    }
}
