//! What was said last, so that a problem that goes on is logged once. Two problems that come in turn are two subjects.

use std::collections::BTreeMap;

/// The last message by subject.
#[derive(Debug, Default)]
pub(crate) struct Said(BTreeMap<&'static str, String>);

impl Said {
    /// Whether this is to be logged: it is another message than the last one of its subject.
    pub(crate) fn is_news(&mut self, subject: &'static str, text: &str) -> bool {
        self.0.insert(subject, text.to_owned()).as_deref() != Some(text)
    }

    /// The problem of this subject is over, and is logged again when it comes back.
    pub(crate) fn is_over(&mut self, subject: &'static str) {
        self.0.remove(subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_says_a_thing_once() {
        let mut said = Said::default();
        for (subject, text, expected) in [
            ("a", "x", true),
            ("b", "y", true),
            ("a", "x", false),
            ("b", "y", false),
            ("a", "z", true),
            ("a", "x", true),
        ] {
            assert_eq!(said.is_news(subject, text), expected, "{subject} {text}");
        }
        said.is_over("b");
        assert!(said.is_news("b", "y"));
        assert!(!said.is_news("a", "x"));
    }
}
