//! The table of keys for people. In: [`KEYS`] and [`FOREIGN`]. Out: Markdown for `docs/annotations.md`, text for terminals.

use super::koordinator::FOREIGN;
use super::table::KEYS;

/// Markdown: one table of keys, one of what other systems say.
pub fn render_page() -> String {
    let mut text =
        "| Annotation | Values | Default | Meaning | On shared containers | Older names |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for key in KEYS {
        let older: Vec<String> = key.older_names().iter().map(|it| format!("`{it}`")).collect();
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            key.annotation(),
            key.values.text(),
            key.default,
            key.meaning,
            key.on_shared(),
            older.join(", "),
        ));
    }
    text.push_str("\n| Of other systems | Values that count | Meaning |\n|---|---|---|\n");
    for foreign in FOREIGN {
        text.push_str(&format!(
            "| `{}` | {} | {} |\n",
            foreign.name, foreign.values, foreign.meaning
        ));
    }
    text
}

/// The same as blocks of lines.
pub fn render_text() -> String {
    let line = |name: &str, value: &str| match value {
        "" => String::new(),
        value => format!("  {name:<8} {value}\n"),
    };
    let mut text = String::new();
    for key in KEYS {
        text.push_str(&format!("{}\n", key.annotation()));
        for (name, value) in [
            ("values", key.values.text().as_str()),
            ("default", key.default),
            ("meaning", key.meaning),
            ("shared", key.on_shared()),
            ("older", &key.older_names().join(", ")),
        ] {
            text.push_str(&line(name, value));
        }
    }
    for foreign in FOREIGN {
        text.push_str(&format!("{}\n", foreign.name));
        for (name, value) in [("values", foreign.values), ("meaning", foreign.meaning)] {
            text.push_str(&line(name, value));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    const BEGIN: &str = "<!-- made from the table in crates/workload/src/annotations/table.rs; UPDATE_EXPECT=1 rewrites it -->\n\n";
    const END: &str = "\n<!-- end of the table -->";

    #[test]
    fn the_page_has_this_table() {
        let page = include_str!("../../../../docs/annotations.md");
        let (before, rest) =
            page.split_once(BEGIN).expect("docs/annotations.md has the mark at the beginning");
        let (_, after) = rest.split_once(END).expect("docs/annotations.md has the mark at the end");
        let page = format!("{before}{BEGIN}{}{END}{after}", render_page());
        expect_file!["../../../../docs/annotations.md"].assert_eq(&page);
    }

    #[test]
    fn nothing_in_the_table_breaks_a_table() {
        for line in render_page().lines().filter(|line| line.starts_with("| `")) {
            assert!([4, 7].contains(&line.matches('|').count()), "{line}");
        }
        assert!(render_text().lines().all(|line| line.len() < 200));
    }
}
