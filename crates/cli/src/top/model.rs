//! What the screen of `bayplan top` shows. In: readings, explanations, keys, clicks. Out: what is to be drawn, and what the edge is to do.
//!
//! Pure: the terminal and the daemon are elsewhere, so every key can be tested without either.

use bayplan_node::status::Status;
use bayplan_topology::Topology;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::columns::{next_sort, sort_at};
use super::past::{Past, PastList, Question};
use super::reader::{Reading, Row};
use crate::args::Sort;
use crate::seats::Seats;

/// Rows that a page key or the wheel passes.
const PAGE: usize = 10;
const WHEEL: usize = 3;

/// Everything that the screen shows.
pub(super) struct Model {
    pub(super) reading: Option<Reading>,
    pub(super) seats: Option<Seats>,
    pub(super) machine: Option<Topology>,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    /// Containers are shown that have this in their names.
    pub(super) find: String,
    pub(super) is_finding: bool,
    /// At most so many are shown.
    pub(super) rows_max: usize,
    /// The container on which the cursor is.
    pub(super) chosen: Option<String>,
    pub(super) is_map_shown: bool,
    pub(super) is_help_shown: bool,
    pub(super) detail: Option<Detail>,
    pub(super) past: Past,
    /// Where the last drawing has put the table; for clicks.
    pub(super) table: TableArea,
}

/// What is told of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) name: String,
    /// Empty until the daemon has told.
    pub(super) lines: Vec<String>,
    /// Lines that are scrolled away.
    pub(super) top: usize,
}

/// The table on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableArea {
    /// Row of the titles.
    pub(super) y: u16,
    pub(super) titles: String,
    /// Containers that are scrolled away, and those that can be seen.
    pub(super) top: usize,
    pub(super) rows: usize,
}

/// What the edge is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Quit,
    /// Ask why this container is where it is.
    Explain(String),
    /// Ask about the past.
    Past(Question),
}

fn ask(question: Option<Question>) -> Action {
    question.map_or(Action::None, Action::Past)
}

impl Model {
    pub(super) fn new(sort: Sort, rows_max: usize) -> Model {
        Model {
            reading: None,
            seats: None,
            machine: None,
            trouble: None,
            sort,
            is_reversed: false,
            find: String::new(),
            is_finding: false,
            rows_max,
            chosen: None,
            is_map_shown: true,
            is_help_shown: false,
            detail: None,
            past: Past::default(),
            table: TableArea::default(),
        }
    }

    /// A new reading.
    pub(super) fn learn(&mut self, status: &Status, reading: Reading) {
        (self.seats, self.trouble) = (Some(Seats::new(status)), None);
        self.reading = Some(reading);
        self.arrange();
    }

    /// What was asked about a container.
    pub(super) fn learn_why(&mut self, name: &str, lines: Vec<String>) {
        if let Some(detail) = self.detail.as_mut().filter(|detail| detail.name == name) {
            detail.lines = lines;
        }
    }

    /// What holds each CPU at the moment that is shown.
    pub(super) fn seats(&self) -> Option<&Seats> {
        self.past.moment.as_ref().map(|it| &it.seats).or(self.seats.as_ref())
    }

    /// Events that were asked for.
    pub(super) fn learn_events(&mut self, before: Option<String>, list: PastList) -> Action {
        ask(self.past.learn_events(before, list))
    }

    fn arrange(&mut self) {
        let Some(reading) = &mut self.reading else { return };
        self.sort.sort(&mut reading.containers);
        if self.is_reversed {
            reading.containers.reverse();
        }
    }

    /// The containers that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let find = self.find.to_lowercase();
        let is_found =
            |row: &&Row| format!("{} {}", row.container, row.class).to_lowercase().contains(&find);
        let now = self.reading.iter().flat_map(|it| &it.containers);
        let all: Vec<&Row> = match &self.past.moment {
            Some(moment) => moment.rows.iter().collect(),
            None => now.collect(),
        };
        all.into_iter().filter(is_found).take(self.rows_max).collect()
    }

    /// Where the cursor is among [`Model::rows`].
    pub(super) fn cursor(&self) -> usize {
        let chosen = self.chosen.as_deref();
        let at = self.rows().iter().position(|row| Some(row.container.as_str()) == chosen);
        at.unwrap_or(0)
    }

    /// A key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd' | '\\') if is_control => return Action::Quit,
            code if self.is_finding => self.find_key(code),
            KeyCode::Char('q' | 'Q') => return Action::Quit,
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            KeyCode::Char('/') => self.is_finding = true,
            KeyCode::Char('m') => self.is_map_shown = !self.is_map_shown,
            KeyCode::Char('?' | 'h') => self.is_help_shown = !self.is_help_shown,
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            KeyCode::Up | KeyCode::Char('k') => return self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => return self.step(1),
            KeyCode::PageUp => return self.step(-distance(PAGE)),
            KeyCode::PageDown => return self.step(distance(PAGE)),
            KeyCode::Home => return self.step(isize::MIN / 2),
            KeyCode::End => return self.step(isize::MAX / 2),
            KeyCode::Char(' ') => self.scroll(distance(PAGE)),
            KeyCode::Enter => return self.open(),
            KeyCode::Char('[') => return ask(self.past.back()),
            KeyCode::Char(']') => return ask(self.past.forward()),
            KeyCode::Char('l') => self.past.live(),
            _ => {}
        }
        Action::None
    }

    fn find_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) => self.find.push(c),
            KeyCode::Backspace => drop(self.find.pop()),
            KeyCode::Enter | KeyCode::Down => self.is_finding = false,
            KeyCode::Esc => (self.is_finding, self.find) = (false, String::new()),
            _ => {}
        }
    }

    /// Closes what was opened last.
    fn back(&mut self) {
        match () {
            () if self.is_help_shown => self.is_help_shown = false,
            () if self.detail.is_some() => self.detail = None,
            () => self.find.clear(),
        }
    }

    fn sort_by_next(&mut self) {
        if let Some(reading) = &self.reading {
            (self.sort, self.is_reversed) = (next_sort(reading, self.sort), false);
            self.arrange();
        }
    }

    /// Moves the cursor; an open pane follows it.
    fn step(&mut self, by: isize) -> Action {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let to = self.cursor().saturating_add_signed(by).min(last);
        self.chosen = rows.get(to).map(|row| row.container.clone());
        if self.detail.is_some() { self.open() } else { Action::None }
    }

    fn open(&mut self) -> Action {
        let Some(name) = self.rows().get(self.cursor()).map(|row| row.container.clone()) else {
            return Action::None;
        };
        self.chosen = Some(name.clone());
        if self.detail.as_ref().is_some_and(|detail| detail.name == name) {
            return Action::None;
        }
        self.detail = Some(Detail { name: name.clone(), ..Detail::default() });
        Action::Explain(name)
    }

    fn scroll(&mut self, by: isize) {
        if let Some(detail) = &mut self.detail {
            let last = detail.lines.len().saturating_sub(1);
            detail.top = detail.top.saturating_add_signed(by).min(last);
        }
    }

    /// A click or a turn of the wheel: a title sorts, a row is chosen, a chosen one is opened.
    pub(super) fn mouse(&mut self, mouse: MouseEvent) -> Action {
        let TableArea { y, titles, top, rows } = &self.table;
        match mouse.kind {
            MouseEventKind::ScrollUp => return self.step(-distance(WHEEL)),
            MouseEventKind::ScrollDown => return self.step(distance(WHEEL)),
            MouseEventKind::Down(MouseButton::Left) => {}
            _ => return Action::None,
        }
        if mouse.row == *y {
            if let Some(sort) = sort_at(titles, usize::from(mouse.column)) {
                self.is_reversed = sort == self.sort && !self.is_reversed;
                self.sort = sort;
                self.arrange();
            }
            return Action::None;
        }
        let Some(below) = mouse.row.checked_sub(y + 1).map(usize::from) else {
            return Action::None;
        };
        let (at, rows) = (top + below, *rows);
        let clicked = self.rows().get(at).map(|row| row.container.clone());
        if below >= rows || clicked.is_none() {
            return Action::None;
        }
        let is_again = clicked == self.chosen;
        self.chosen = clicked;
        if is_again || self.detail.is_some() { self.open() } else { Action::None }
    }
}

fn distance(rows: usize) -> isize {
    isize::try_from(rows).unwrap_or(isize::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use bayplan_node::mode::Mode;
    use jiff::Timestamp;
    use proptest::prelude::*;
    use ratatui::crossterm::event::KeyEventKind;

    use super::super::node::NodeRow;
    use super::super::past::tests::{list, map};
    use super::*;

    fn row(name: &str, cpu: f64) -> Row {
        Row {
            container: name.to_owned(),
            class: "shared".to_owned(),
            cpus: "0-3".to_owned(),
            cpu_usage: Some(cpu),
            throttled: Some(cpu / 10.0),
            ..Row::default()
        }
    }

    /// Three containers.
    pub(in crate::top) fn model() -> Model {
        let mut model = Model::new(Sort::Cpu, usize::MAX);
        model.reading = Some(Reading {
            format: "bayplan-top/1",
            at: Timestamp::UNIX_EPOCH,
            mode: Mode::Placing,
            node: NodeRow::default(),
            containers: vec![row("n/log/c", 0.1), row("n/web/c", 2.0), row("n/db/c", 1.0)],
            unread: None,
        });
        model.arrange();
        model
    }

    pub(in crate::top) fn press(model: &mut Model, keys: &str) -> Action {
        let code = |c| match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        let mut last = Action::None;
        for key in keys.chars() {
            last = model.key(KeyEvent::new(code(key), KeyModifiers::NONE));
        }
        last
    }

    fn names(model: &Model) -> String {
        let rows = model.rows();
        let marked = rows.iter().enumerate().map(|(at, row)| {
            format!("{}{}", if at == model.cursor() { ">" } else { "" }, row.container)
        });
        marked.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_move_sort_search_and_open() {
        for (keys, expected, action) in [
            ("", ">n/web/c n/db/c n/log/c", Action::None),
            ("j", "n/web/c >n/db/c n/log/c", Action::None),
            ("jjjjj", "n/web/c n/db/c >n/log/c", Action::None),
            ("kk", ">n/web/c n/db/c n/log/c", Action::None),
            ("r", ">n/log/c n/db/c n/web/c", Action::None),
            // After CPU comes throttling, then the name.
            ("ss", ">n/db/c n/log/c n/web/c", Action::None),
            ("/db\n", ">n/db/c", Action::None),
            ("/db\u{1b}", ">n/web/c n/db/c n/log/c", Action::None),
            ("/q", "", Action::None),
            ("j\n", "n/web/c >n/db/c n/log/c", Action::Explain("n/db/c".into())),
            ("\nj", "n/web/c >n/db/c n/log/c", Action::Explain("n/db/c".into())),
            ("q", ">n/web/c n/db/c n/log/c", Action::Quit),
        ] {
            let mut model = model();
            let last = press(&mut model, keys);
            assert_eq!((names(&model).as_str(), last), (expected, action), "{keys:?}");
        }
    }

    #[test]
    fn the_past_is_shown_event_by_event() {
        let mut model = model();
        assert_eq!(press(&mut model, "["), Action::Past(Question::Events(None)));
        let asked = model.learn_events(None, list(&["1.3"], false));
        assert_eq!(asked, Action::Past(Question::Map("1.3".into())));
        model.past.learn_map("1.3", map());
        assert_eq!(names(&model), ">n/old/c");
        assert_eq!(press(&mut model, "]"), Action::None);
        assert_eq!(names(&model), ">n/web/c n/db/c n/log/c");
        press(&mut model, "[");
        model.learn_events(None, list(&["1.3"], false));
        model.past.learn_map("1.3", map());
        assert_eq!(press(&mut model, "l"), Action::None);
        assert_eq!(names(&model), ">n/web/c n/db/c n/log/c");
    }

    #[test]
    fn the_cursor_stays_on_its_container_when_the_order_changes() {
        let mut model = model();
        press(&mut model, "jr");
        assert_eq!(names(&model), "n/log/c >n/db/c n/web/c");
    }

    #[test]
    fn an_answer_about_another_container_is_not_shown() {
        let mut model = model();
        press(&mut model, "\nj");
        model.learn_why("n/web/c", vec!["late".to_owned()]);
        assert_eq!(model.detail.as_ref().map(|it| it.lines.len()), Some(0));
        model.learn_why("n/db/c", vec!["why".to_owned()]);
        assert_eq!(model.detail.as_ref().map(|it| it.lines.len()), Some(1));
    }

    #[test]
    fn control_c_ends_it_whatever_is_open() {
        for keys in ["", "/we", "?", "\n"] {
            let mut model = model();
            press(&mut model, keys);
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(model.key(key), Action::Quit, "{keys:?}");
        }
    }

    #[test]
    fn clicks_sort_choose_and_open() {
        let mut model = model();
        let titles = "CONTAINER  CPU  THROTTLED".to_owned();
        model.table = TableArea { y: 2, titles, top: 0, rows: 3 };
        let mut click = |column, row| {
            let kind = MouseEventKind::Down(MouseButton::Left);
            let modifiers = KeyModifiers::NONE;
            let action = model.mouse(MouseEvent { kind, column, row, modifiers });
            (names(&model), action)
        };
        let explain = Action::Explain("n/db/c".to_owned());
        assert_eq!(click(0, 4), ("n/web/c >n/db/c n/log/c".to_owned(), Action::None));
        assert_eq!(click(3, 2), (">n/db/c n/log/c n/web/c".to_owned(), Action::None));
        assert_eq!(click(0, 3), (">n/db/c n/log/c n/web/c".to_owned(), explain));
        assert_eq!(click(70, 90).1, Action::None);
    }

    proptest! {
        #[test]
        fn whatever_is_pressed_the_cursor_is_on_a_row(codes in prop::collection::vec(0_u8..128, 0..40)) {
            let mut model = model();
            for code in codes {
                let key = KeyEvent::new_with_kind(KeyCode::Char(char::from(code)), KeyModifiers::NONE, KeyEventKind::Press);
                model.key(key);
                prop_assert!(model.cursor() < model.rows().len().max(1));
            }
        }
    }
}
