//! How far a long replay is, on standard error. Only on a terminal, and only when it takes longer than people like to wait.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A command that takes longer than this says how long still.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN_DRAWINGS: Duration = Duration::from_millis(200);
const WIDTH: usize = 40;

/// A bar; it vanishes when it is dropped.
pub(crate) struct Progress {
    total: usize,
    done: usize,
    next: Instant,
    is_drawn: bool,
    is_terminal: bool,
}

impl Progress {
    /// Nothing of `total` is done.
    pub(crate) fn new(total: usize) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { total, done: 0, next: Instant::now() + PATIENCE, is_drawn: false, is_terminal }
    }

    /// One more is done.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.is_terminal && Instant::now() >= self.next {
            self.next = Instant::now() + BETWEEN_DRAWINGS;
            self.is_drawn = true;
            err!("{}", render(self.done, self.total));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_drawn {
            err!("\r\u{1b}[K");
            // There is nothing left to tell it to.
            let _ = std::io::stderr().flush();
        }
    }
}

fn render(done: usize, total: usize) -> String {
    let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled));
    format!("\r[{bar}] {done} of {total} events")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_never_changes_its_width() {
        for (done, total) in [(0, 8), (3, 8), (8, 8), (9, 8), (0, 0)] {
            let bar = render(done, total);
            assert_eq!(bar.find(']'), Some(WIDTH + 2), "{bar}");
        }
    }
}
