//! Tables and colours of what commands print.

use std::io::IsTerminal as _;

use crate::visible::visible;

/// Whether to colour what goes to standard output.
pub(crate) fn has_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// Text in a bold colour of the terminal, by its escape number.
pub(crate) fn paint(text: &str, colour: &str, has_colour: bool) -> String {
    match has_colour {
        true => format!("\u{1b}[1;{colour}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    }
}

/// A table without borders.
pub(crate) fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

/// The table without the blanks at the ends of its lines.
pub(crate) fn render_table(table: &comfy_table::Table) -> String {
    table.lines().map(|line| format!("{}\n", visible(line.trim_end()))).collect()
}
