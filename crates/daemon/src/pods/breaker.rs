//! Keeps questions from a socket that does not answer. In: how questions ended, and when. Out: whether the next may be asked. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// So many questions in a row without an answer, and it is left alone.
const SILENT_MAX: u32 = 3;
/// For so long.
const PAUSE: Duration = Duration::from_secs(30);

/// After the pause one question without an answer is enough for the next pause.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    silent: u32,
    closed_until: Option<Instant>,
}

impl Breaker {
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.closed_until.is_none_or(|until| now >= until)
    }

    pub(super) fn note(&mut self, is_answered: bool, now: Instant) {
        if is_answered {
            *self = Breaker::default();
            return;
        }
        self.silent = self.silent.saturating_add(1);
        if self.silent >= SILENT_MAX {
            self.closed_until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds, and how a question at that time ended: `+` answered, `-` not, `.` it was not asked.
    #[test]
    fn a_socket_without_answers_is_asked_now_and_then() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        for (second, end) in [
            (0, '-'),
            (1, '-'),
            (2, '+'),
            (3, '-'),
            (4, '-'),
            (5, '-'),
            (6, '.'),
            (34, '.'),
            (35, '-'),
            (36, '.'),
            (64, '.'),
            (65, '+'),
            (66, '-'),
            (67, '+'),
        ] {
            let now = start + Duration::from_secs(second);
            let asked = breaker.may_ask(now);
            assert_eq!(asked, end != '.', "at {second}");
            if asked {
                breaker.note(end == '+', now);
            }
        }
    }
}
