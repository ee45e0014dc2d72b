//! What is shown of a reading, in which order. In: rows. Out: a table with the columns that have a value.

use super::reader::{Reading, Row};
use crate::args::Sort;
use crate::audit::delay;
use crate::text::{render_table, table};

/// A number of each row.
struct Column {
    sort: Sort,
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
    text: fn(f64) -> String,
}

const COLUMNS: [Column; 17] = [
    Column { sort: Sort::Cpu, title: "CPU", value: |it| it.cpu_usage, text: two_digits },
    Column { sort: Sort::Throttled, title: "THROTTLED", value: |it| it.throttled, text: percent },
    Column { sort: Sort::Waiting, title: "WAITING", value: |it| it.waiting, text: two_digits },
    Column {
        sort: Sort::Delay,
        title: "DELAY P99",
        value: |it| it.run_delay_p99_seconds,
        text: |seconds| delay(Some(seconds), true),
    },
    Column {
        sort: Sort::Taken,
        title: "TAKEN",
        value: |it| it.taken,
        text: |share| format!("{:.1}%", share * 100.0),
    },
    Column {
        sort: Sort::Preempted,
        title: "PREEMPTED/s",
        value: |it| it.preemptions,
        text: |value| format!("{value:.0}"),
    },
    Column {
        sort: Sort::Moves,
        title: "MOVES/s",
        value: |it| it.migrations,
        text: |value| format!("{value:.0}"),
    },
    Column {
        sort: Sort::Cpi,
        title: "CPI",
        value: |it| it.cycles_per_instruction,
        text: two_digits,
    },
    Column { sort: Sort::Misses, title: "MISSES", value: |it| it.cache_misses, text: two_digits },
    Column { sort: Sort::StallCpu, title: "CPU STALL", value: |it| it.stalled.cpu, text: percent },
    Column {
        sort: Sort::StallMemory,
        title: "MEM STALL",
        value: |it| it.stalled.memory,
        text: percent,
    },
    Column { sort: Sort::StallIo, title: "IO STALL", value: |it| it.stalled.io, text: percent },
    Column { sort: Sort::Io, title: "IO MB/s", value: |it| it.io_bytes, text: megabytes },
    Column { sort: Sort::Cache, title: "CACHE MB", value: |it| it.cache_bytes, text: megabytes },
    Column {
        sort: Sort::Traffic,
        title: "MEM MB/s",
        value: |it| it.memory_traffic,
        text: megabytes,
    },
    Column { sort: Sort::Far, title: "FAR", value: |it| it.memory_far, text: percent },
    Column { sort: Sort::Avx512, title: "AVX-512", value: |it| it.avx512, text: percent },
];

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

impl Sort {
    /// The largest first, what is not known last, and then by name.
    pub(super) fn sort(self, rows: &mut [Row]) {
        let column = COLUMNS.iter().find(|column| column.sort == self);
        rows.sort_by(|a, b| {
            let value = |row| column.and_then(|column| (column.value)(row));
            let by_value = match (value(a), value(b)) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
            by_value.then_with(|| a.container.cmp(&b.container))
        });
    }
}

/// A title, and so many rows, in lines of at most so many characters.
pub(super) fn render(reading: &Reading, rows: usize, sort: Sort, width: usize) -> String {
    let shown = &reading.containers[..rows.min(reading.containers.len())];
    let mut lines = headlines(reading);
    lines.extend(table_lines(reading, shown, sort, width));
    lines.extend(reading.unread.as_ref().map(|why| format!("not all could be read: {why}")));
    lines.iter().map(|line| cut(line, width) + "\n").collect()
}

/// What all containers use, and what the node does where that is known.
pub(super) fn headlines(reading: &Reading) -> Vec<String> {
    let count = reading.containers.len();
    let known = || reading.containers.iter().filter_map(|row| row.cpu_usage);
    let use_of_all = match known().next() {
        Some(_) => format!("use {:.2} CPUs", known().sum::<f64>()),
        None => "of unknown usage".to_owned(),
    };
    let title =
        format!("{count} containers {use_of_all}; {}; {:.0}", reading.mode.name(), reading.at);
    [title].into_iter().chain(reading.node.render()).collect()
}

/// A line of titles, and one for each of these rows of the reading. Columns in which no row of the reading has a value are left out, and
/// so are whole ones from the right as far as the width needs it, but the one that rows are sorted by last.
pub(super) fn table_lines(
    reading: &Reading,
    shown: &[Row],
    sort: Sort,
    width: usize,
) -> Vec<String> {
    let is_there =
        |column: &&Column| reading.containers.iter().any(|row| (column.value)(row).is_some());
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(is_there).collect();
    let mut texts = TEXTS.to_vec();
    let mut lines = render_rows(shown, &columns, &texts);
    while lines.lines().any(|line| line.chars().count() > width) {
        let last = columns.iter().rposition(|column| column.sort != sort);
        match (last, texts.len()) {
            (Some(last), _) if last > 0 || columns.len() == 1 => drop(columns.remove(last)),
            (_, 2..) => drop(texts.pop()),
            (Some(last), _) => drop(columns.remove(last)),
            (None, _) => break,
        }
        lines = render_rows(shown, &columns, &texts);
    }
    lines.lines().map(str::to_owned).collect()
}

/// By what rows are sorted where the title at this column of the line of titles is clicked.
pub(super) fn sort_at(titles: &str, column: usize) -> Option<Sort> {
    let named = COLUMNS.iter().map(|it| (it.title, it.sort)).chain([("CONTAINER", Sort::Name)]);
    let mut under = named.filter(|(title, _)| {
        titles.match_indices(title).any(|(at, _)| (at..at + title.len()).contains(&column))
    });
    // `CPU` is a part of `CPU STALL`; the longest is meant.
    let first = under.next()?;
    Some(under.fold(first, |best, it| if it.0.len() > best.0.len() { it } else { best }).1)
}

/// The sort after this one, of those that have a value in this reading.
pub(super) fn next_sort(reading: &Reading, sort: Sort) -> Sort {
    let is_there =
        |column: &&Column| reading.containers.iter().any(|row| (column.value)(row).is_some());
    let mut sorts: Vec<Sort> = COLUMNS.iter().filter(is_there).map(|it| it.sort).collect();
    sorts.push(Sort::Name);
    let at = sorts.iter().position(|it| *it == sort).map_or(0, |at| at + 1);
    sorts.get(at).or(sorts.first()).copied().unwrap_or(Sort::Name)
}

/// For people.
pub(super) fn sort_name(sort: Sort) -> String {
    let column = COLUMNS.iter().find(|column| column.sort == sort);
    column.map_or_else(|| "name".to_owned(), |it| it.title.to_lowercase())
}

/// A column of text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Container,
    Cpus,
    Class,
}

/// Those that are left out first come last.
const TEXTS: [Text; 3] = [Text::Container, Text::Cpus, Text::Class];

fn render_rows(rows: &[Row], columns: &[&Column], texts: &[Text]) -> String {
    let has = |text: Text| texts.contains(&text);
    let mut titles = vec!["CONTAINER"];
    titles.extend(has(Text::Class).then_some("CLASS"));
    titles.extend(columns.iter().map(|column| column.title));
    titles.extend(has(Text::Cpus).then_some("CPUS"));
    let mut lines = table(&titles);
    for row in rows {
        let number =
            |column: &&Column| (column.value)(row).map_or_else(|| "-".to_owned(), column.text);
        let mut cells = vec![row.container.clone()];
        cells.extend(has(Text::Class).then(|| row.class.clone()));
        cells.extend(columns.iter().map(number));
        cells.extend(has(Text::Cpus).then(|| row.cpus.clone()));
        lines.add_row(cells);
    }
    render_table(&lines)
}

/// A line that is too long ends with a whole word, if it has several.
pub(super) fn cut(line: &str, width: usize) -> String {
    let Some((end, _)) = line.char_indices().nth(width) else { return line.to_owned() };
    let kept: String = line[..end].chars().take(width.saturating_sub(1)).collect();
    let is_word_end = line[kept.len()..].starts_with(' ');
    let whole =
        if is_word_end { Some(kept.as_str()) } else { kept.rsplit_once(' ').map(|it| it.0) };
    let whole = whole.map(str::trim_end).filter(|whole| !whole.trim().is_empty());
    let whole = whole.unwrap_or(&kept).trim_end_matches([',', ';', ':']);
    format!("{whole}\u{2026}")
}

#[cfg(test)]
mod tests {
    use bayplan_node::mode::Mode;
    use expect_test::{Expect, expect};
    use jiff::Timestamp;

    use super::super::node::NodeRow;
    use super::super::rates::Stalled;
    use super::*;

    fn row(name: &str, cpu_usage: Option<f64>) -> Row {
        Row {
            container: name.to_owned(),
            class: "shared".to_owned(),
            cpus: "0-3".to_owned(),
            cpu_usage,
            ..Row::default()
        }
    }

    fn check(sort: Sort, mut containers: Vec<Row>, rows: usize, expected: Expect) {
        sort.sort(&mut containers);
        let reading = Reading {
            format: "",
            at: Timestamp::UNIX_EPOCH,
            mode: Mode::Placing,
            node: NodeRow { watts: Some(41.6), ..NodeRow::default() },
            containers,
            unread: Some("cannot read /a: denied".to_owned()),
        };
        expected.assert_eq(&render(&reading, rows, sort, usize::MAX));
        for width in 1..=200 {
            check_width(&reading, rows, sort, width);
        }
    }

    /// No line is longer, and every title is whole.
    fn check_width(reading: &Reading, rows: usize, sort: Sort, width: usize) {
        let text = render(reading, rows, sort, width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        let known: Vec<&str> = COLUMNS.iter().map(|column| column.title).collect();
        let header = text.lines().find(|line| line.trim_start().starts_with("CONTAINER "));
        let words = header.iter().flat_map(|it| it.split("  ")).map(str::trim);
        for word in words.filter(|it| !it.is_empty()) {
            let word = word.trim_end_matches('\u{2026}');
            let is_whole =
                ["CONTAINER", "CLASS", "CPUS", ""].contains(&word) || known.contains(&word);
            assert!(is_whole, "{width}: `{word}` in\n{text}");
        }
    }

    #[test]
    fn rows_that_use_most_come_first_and_columns_without_values_are_absent() {
        let busy = Row { throttled: Some(0.25), ..row("n/p/busy", Some(1.504)) };
        let rows = vec![row("n/p/new", None), row("n/p/idle", Some(0.0)), busy];
        check(
            Sort::Cpu,
            rows.clone(),
            2,
            expect![[r#"
                3 containers use 1.50 CPUs; placing; 1970-01-01T00:00:00Z
                node: 42 W
                 CONTAINER  CLASS   CPU   THROTTLED  CPUS
                 n/p/busy   shared  1.50  25%        0-3
                 n/p/idle   shared  0.00  -          0-3
                not all could be read: cannot read /a: denied
            "#]],
        );
        check(
            Sort::Name,
            vec![row("n/p/new", None)],
            1,
            expect![[r#"
                1 containers of unknown usage; placing; 1970-01-01T00:00:00Z
                node: 42 W
                 CONTAINER  CLASS   CPUS
                 n/p/new    shared  0-3
                not all could be read: cannot read /a: denied
            "#]],
        );
    }

    #[test]
    fn everything_that_is_known_has_a_column_to_sort_by() {
        let stalled = Stalled { cpu: Some(0.5), memory: Some(0.0), io: Some(0.01) };
        let all = Row {
            throttled: Some(1.0),
            waiting: Some(0.7),
            run_delay_p99_seconds: Some(0.0021),
            taken: Some(0.0123),
            preemptions: Some(41.6),
            io_bytes: Some(2_340_000.0),
            cache_bytes: Some(12_582_912.0),
            memory_traffic: Some(1_234_560_000.0),
            migrations: Some(130.0),
            cycles_per_instruction: Some(1.234),
            cache_misses: Some(12.5),
            stalled,
            memory_far: Some(0.33),
            avx512: Some(0.25),
            ..row("n/p/all", Some(0.5))
        };
        let far = Row { memory_far: Some(1.0), ..row("n/p/far", Some(0.1)) };
        check(
            Sort::Far,
            vec![row("n/p/a", Some(3.0)), all, far],
            3,
            expect![[r#"
                3 containers use 3.60 CPUs; placing; 1970-01-01T00:00:00Z
                node: 42 W
                 CONTAINER  CLASS   CPU   THROTTLED  WAITING  DELAY P99  TAKEN  PREEMPTED/s  MOVES/s  CPI   MISSES  CPU STALL  MEM STALL  IO STALL  IO MB/s  CACHE MB  MEM MB/s  FAR   AVX-512  CPUS
                 n/p/far    shared  0.10  -          -        -          -      -            -        -     -       -          -          -         -        -         -         100%  -        0-3
                 n/p/all    shared  0.50  100%       0.70     2.1 ms     1.2%   42           130      1.23  12.50   50%        0%         1%        2.3      12.6      1234.6    33%   25%      0-3
                 n/p/a      shared  3.00  -          -        -          -      -            -        -     -       -          -          -         -        -         -         -     -        0-3
                not all could be read: cannot read /a: denied
            "#]],
        );
    }
}
