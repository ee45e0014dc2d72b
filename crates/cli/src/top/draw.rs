//! The screen of `bayplan top`. In: a [`Model`] and a frame of any size. Out: the frame filled: titles, the map where there is room, the
//! table, a pane about one container, and the keys.

use bayplan_drawing::{LABEL_COLUMNS, MapLine, map_lines};
use bayplan_types::CpuSet;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

use super::columns::{cut, headlines, sort_name, table_lines};
use super::model::{Detail, Model, TableArea};
use super::reader::Row;
use crate::seats::{Colour, Seats};
use crate::visible::{visible, visible_cell};

/// The map has at most this part of the height.
const MAP_PART: u16 = 2;
/// The pane stands beside the table from this width on, below it otherwise.
const BESIDE_FROM: u16 = 140;
/// Rows that are always left to the table: titles and some containers.
const TABLE_MIN: u16 = 5;

const HELP: &str = "\
up down   choose a container      Enter  details        Esc  close, clear the search
/         search by name          s      sort by next   r    reverse
m         map on or off           space  scroll details q    quit
[ ]       an event back, forward  l      back to now
mouse: click a title to sort, a container to choose, again for details";

/// Draws everything, and notes where the table is.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let area = frame.area();
    let titles = titles(model, usize::from(area.width));
    let map = map(model, area.width);
    let map_rows = map_height(&map, area.height, titles.len());
    let rows = Layout::vertical([
        Constraint::Length(u16::try_from(titles.len()).unwrap_or(1)),
        Constraint::Length(map_rows),
        Constraint::Min(TABLE_MIN.min(area.height)),
        Constraint::Length(1),
    ])
    .split(area);
    let [titles_area, map_area, rest, keys_area] = [rows[0], rows[1], rows[2], rows[3]];
    frame.render_widget(Paragraph::new(titles), titles_area);
    frame.render_widget(Paragraph::new(map), map_area);
    let (table_area, pane) = match &model.detail {
        None => (rest, None),
        Some(_) if area.width >= BESIDE_FROM => halves(rest, true),
        Some(_) => halves(rest, false),
    };
    draw_table(frame, model, table_area);
    if let (Some(detail), Some(pane)) = (&model.detail, pane) {
        draw_detail(frame, detail, pane);
    }
    frame.render_widget(Paragraph::new(keys_line(model, usize::from(area.width))), keys_area);
    if model.is_help_shown {
        draw_help(frame, area);
    }
}

fn halves(area: Rect, is_beside: bool) -> (Rect, Option<Rect>) {
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let layout = if is_beside { Layout::horizontal(halves) } else { Layout::vertical(halves) };
    let both = layout.split(area);
    (both[0], Some(both[1]))
}

fn titles(model: &Model, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = match &model.reading {
        Some(reading) => headlines(reading).iter().map(|it| Line::from(cut(it, width))).collect(),
        None => vec![Line::from("waiting for the daemon")],
    };
    if let Some(title) = model.past.title() {
        let parts = title.map(|it| visible_cell(&it));
        let whole = parts.join(": ");
        let rows = if whole.chars().count() <= width { vec![whole] } else { parts.into() };
        lines.extend(rows.iter().map(|it| Line::styled(cut(it, width), Modifier::REVERSED)));
    }
    let unread = model.reading.as_ref().and_then(|it| it.unread.as_ref());
    let unread = unread.map(|why| format!("not all could be read: {why}"));
    for text in [model.trouble.clone(), unread].into_iter().flatten() {
        let text = cut(&visible_cell(&text), width);
        lines.push(Line::styled(text, Style::default().fg(Color::Red)));
    }
    lines
}

/// The whole map if it leaves enough for the table, and nothing of it otherwise: half a machine misleads.
fn map_height(map: &[Line<'_>], height: u16, titles: usize) -> u16 {
    let rows = u16::try_from(map.len()).unwrap_or(u16::MAX);
    let titles = u16::try_from(titles).unwrap_or(u16::MAX);
    let left = height.saturating_sub(titles).saturating_sub(rows).saturating_sub(1);
    if rows <= height / MAP_PART && left >= TABLE_MIN { rows } else { 0 }
}

fn map(model: &Model, width: u16) -> Vec<Line<'static>> {
    let (Some(machine), Some(seats), true) = (&model.machine, model.seats(), model.is_map_shown)
    else {
        return Vec::new();
    };
    let width = usize::from(width);
    let line = |line| match line {
        MapLine::Title(title) => Line::from(cut(&title, width)),
        MapLine::Cores(groups) => Line::from(cells(&groups, seats, model.chosen.as_deref())),
    };
    map_lines(machine, width).into_iter().map(line).collect()
}

fn cells(groups: &[Vec<CpuSet>], seats: &Seats, chosen: Option<&str>) -> Vec<Span<'static>> {
    let first = groups.first().and_then(|cores| cores.first()).and_then(CpuSet::first);
    let label = first.map(|cpu| cpu.to_string()).unwrap_or_default();
    let mut spans = vec![Span::raw(format!("{label:>width$}  ", width = LABEL_COLUMNS - 2))];
    let chosen = chosen.and_then(|name| seats.mark_of(name));
    for (at, cores) in groups.iter().enumerate() {
        if at > 0 {
            spans.push(Span::raw(" | "));
        }
        for (at, core) in cores.iter().enumerate() {
            if at > 0 {
                spans.push(Span::raw(" "));
            }
            for cpu in core.iter() {
                let mark = seats.mark(cpu);
                let style = if Some(mark) == chosen { reversed(mark.1) } else { style(mark.1) };
                spans.push(Span::styled(mark.0.to_string(), style));
            }
        }
    }
    spans
}

fn style(colour: Colour) -> Style {
    const OWNERS: [Color; 6] =
        [Color::Red, Color::Green, Color::Yellow, Color::Blue, Color::Magenta, Color::Cyan];
    match colour {
        Colour::None => Style::default(),
        Colour::Grey => Style::default().fg(Color::DarkGray),
        Colour::Owner(at) => {
            let color = OWNERS.get(usize::from(at)).copied().unwrap_or(Color::Reset);
            Style::default().fg(color).add_modifier(Modifier::BOLD)
        }
    }
}

fn reversed(colour: Colour) -> Style {
    style(colour).add_modifier(Modifier::REVERSED)
}

fn draw_table(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    let Some(reading) = &model.reading else { return };
    let rows: Vec<Row> = model.rows().into_iter().map(named_for_screen).collect();
    let height = usize::from(area.height.saturating_sub(1));
    let cursor = model.cursor();
    // The cursor stays in sight, and the table does not move as long as it does.
    let top = model.table.top.min(rows.len().saturating_sub(height)).min(cursor);
    let top = top.max((cursor + 1).saturating_sub(height.max(1))).min(rows.len());
    let shown = &rows[top..rows.len().min(top + height)];
    let marks = model.seats();
    // A letter and a space stand before each row.
    let width = usize::from(area.width).saturating_sub(2);
    let lines = table_lines(reading, shown, model.sort, width);
    let mut drawn = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let text = cut(line, width);
        let Some(row) = at.checked_sub(1).and_then(|at| shown.get(at)) else {
            drawn.push(Line::styled(format!("  {text}"), Modifier::BOLD));
            continue;
        };
        let mark = marks.and_then(|seats| seats.mark_of(&row.container));
        let letter = match mark {
            Some((letter, colour)) => Span::styled(format!("{letter} "), style(colour)),
            None => Span::raw("  "),
        };
        let is_chosen = top + at - 1 == cursor;
        let look = if is_chosen { Modifier::REVERSED } else { Modifier::empty() };
        drawn.push(Line::from(vec![letter, Span::styled(format!("{text:width$}"), look)]));
    }
    if rows.is_empty() {
        drawn.push(Line::from("  no container is called so"));
    }
    frame.render_widget(Paragraph::new(drawn), area);
    let titles = lines.first().map(|it| format!("  {it}")).unwrap_or_default();
    model.table = TableArea { y: area.y, titles, top, rows: height };
}

/// Without anything that a terminal acts on.
fn named_for_screen(row: &Row) -> Row {
    Row { container: visible_cell(&row.container), ..row.clone() }
}

fn draw_detail(frame: &mut Frame<'_>, detail: &Detail, area: Rect) {
    let block =
        Block::default().borders(Borders::TOP | Borders::LEFT).title(visible_cell(&detail.name));
    let text = match detail.lines.is_empty() {
        true => "asking the daemon".to_owned(),
        false => detail.lines.iter().skip(detail.top).map(|it| visible(it) + "\n").collect(),
    };
    let paragraph = Paragraph::new(Text::from(text)).wrap(Wrap { trim: false }).block(block);
    frame.render_widget(paragraph, area);
}

fn keys_line(model: &Model, width: usize) -> Line<'static> {
    let find = visible_cell(&model.find);
    let text = match () {
        () if model.is_finding => format!("search: {find}_   Enter done  Esc clear"),
        () => {
            let by = sort_name(model.sort);
            let found = if find.is_empty() { String::new() } else { format!("  only `{find}`") };
            format!("q quit  / search  s sort ({by})  Enter details  m map  ? keys{found}")
        }
    };
    Line::styled(cut(&text, width), Modifier::DIM)
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let rows = u16::try_from(HELP.lines().count()).unwrap_or(4) + 2;
    let widest = HELP.lines().map(|line| line.len()).max().unwrap_or(0);
    let width = (u16::try_from(widest).unwrap_or(80) + 2).min(area.width);
    let height = if width < u16::try_from(widest).unwrap_or(80) + 2 { rows * 2 } else { rows };
    let height = height.min(area.height);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let area = Rect { x, y, width, height };
    frame.render_widget(Clear, area);
    let block = Block::default().borders(Borders::ALL).title("Keys");
    frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }).block(block), area);
}

#[cfg(test)]
mod tests {
    use bayplan_node::status::{ClassedCpus, ContainerStatus, Status};
    use bayplan_topology::{derive, parse_machine};
    use expect_test::expect_file;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::{model, press};
    use super::super::past::tests::{list, map};
    use super::*;

    fn status() -> Status {
        let container: ContainerStatus = serde_json::from_value(serde_json::json!({
            "id": null, "namespace": "n", "pod": "web", "container": "c", "qos": null, "class": "exclusive", "phase": "running",
            "asked": "", "exclusive": "2-3", "cpus": "2-3", "mems": "0", "pool": "numa 0",
        }))
        .unwrap();
        let cpus = ClassedCpus {
            exclusive: "2-3".to_owned(),
            shared: "1,4-7".to_owned(),
            reserved: "0".to_owned(),
            isolated: String::new(),
            idle: String::new(),
            closed: String::new(),
            lent: String::new(),
        };
        Status {
            format: String::new(),
            mode: bayplan_node::mode::Mode::Placing,
            mode_since: None,
            cpus,
            pools: Vec::new(),
            containers: vec![container],
            clocks: Vec::new(),
            config: None,
            front_end: None,
            groups: Vec::new(),
            version: String::new(),
        }
    }

    fn screen(width: u16, height: u16, keys: &str) -> String {
        let mut model = model();
        model.seats = Some(Seats::new(&status()));
        model.machine = Some(derive(&parse_machine("pack:1 numa:2 core:4").unwrap()).unwrap());
        press(&mut model, keys);
        model.learn_why("n/web/c", vec!["n/web/c: placed in numa 0".to_owned()]);
        drawn(&mut model, (width, height))
    }

    fn drawn(model: &mut Model, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let text = terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// What is on the screen after these keys, and what is not.
    #[track_caller]
    fn check(size: (u16, u16), keys: &str, there: &[&str], absent: &[&str]) {
        let text = screen(size.0, size.1, keys);
        let wrong = there.iter().filter(|it| !text.contains(**it));
        let wrong: Vec<&&str> =
            wrong.chain(absent.iter().filter(|it| text.contains(**it))).collect();
        assert!(wrong.is_empty(), "{wrong:?} of\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(size.0)), "{text}");
    }

    #[test]
    fn map_table_and_keys_in_an_ordinary_terminal() {
        let map = ["NumaNode 0 (Package 0): 4 CPUs 0-3", "     0  r \u{b7} A A"];
        check((80, 16), "", &map, &[]);
        check(
            (80, 16),
            "",
            &["3 containers", "CONTAINER", "A  n/web/c", "   n/db/c", "q quit"],
            &[],
        );
        check((80, 16), "m", &["A  n/web/c"], &["NumaNode"]);
        check((80, 16), "?", &["sort by next"], &[]);
    }

    #[test]
    fn three_sizes_are_as_they_were() {
        for (size, file) in [
            ((200, 50), expect_file!["screens/200x50.txt"]),
            ((80, 24), expect_file!["screens/80x24.txt"]),
            ((60, 20), expect_file!["screens/60x20.txt"]),
        ] {
            file.assert_eq(&screen(size.0, size.1, "\n"));
        }
    }

    const BEGIN: &str = "<!-- a screen of 80 columns; UPDATE_EXPECT=1 rewrites it -->\n\n```text\n";
    const END: &str = "```\n\n<!-- end of the screen -->";

    #[test]
    fn the_screen_in_the_documents_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/map.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) =
            page.split_once(BEGIN).expect("docs/map.md has the mark at the beginning");
        let (shown, after) = rest.split_once(END).expect("docs/map.md has the mark at the end");
        let screen = screen(80, 24, "\n");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{screen}{END}{after}")).unwrap();
        } else {
            assert_eq!(shown, screen, "run with UPDATE_EXPECT=1 to rewrite docs/map.md");
        }
    }

    #[test]
    fn the_past_stands_in_the_titles() {
        let mut model = model();
        model.machine = Some(derive(&parse_machine("pack:1 numa:2 core:4").unwrap()).unwrap());
        press(&mut model, "[");
        model.learn_events(None, list(&["1.3"], false));
        model.past.learn_map("1.3", map());
        for size in [(80, 16), (60, 20)] {
            let text = drawn(&mut model, size);
            for there in [
                "THE PAST, after event 1 of 1",
                "A  n/old/c",
                "\u{b7} A A \u{b7}",
                "placed in numa 0",
            ] {
                assert!(text.contains(there), "{there} of\n{text}");
            }
        }
    }

    #[test]
    fn the_pane_stands_below_or_beside() {
        for size in [(80, 20), (150, 16)] {
            check(size, "\n", &["n/web/c: placed in numa 0", "n/db/c"], &[]);
            check(size, "\n\u{1b}", &["n/db/c"], &["placed in"]);
        }
    }

    #[test]
    fn a_narrow_terminal_has_the_table_and_no_half_of_a_map() {
        check((60, 10), "", &["CONTAINER", "n/web/c", "n/log/c"], &["NumaNode"]);
        check((60, 14), "/we", &["NumaNode 1", "n/web/c", "search: we_"], &["n/db/c"]);
        check((60, 10), "/nothing\n", &["no container is called so"], &["n/web/c"]);
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (3, 2), (10, 4), (300, 3), (2, 100)] {
            for keys in ["", "\n", "?", "/x"] {
                screen(width, height, keys);
            }
        }
    }
}
