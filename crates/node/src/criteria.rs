//! The criteria of a score with their values, kept small. In: names and values. Out: the same, in order.
//!
//! Problem: the last decision about every container is kept, with two dozen criteria for each pool of the machine; as texts of their own they were 9 KiB of each container on two sockets, and
//! 150 pieces of the heap.
//! Approach: one text, a line for each.

use std::fmt::{Display, Write as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names and values, in the order in which they are compared. As JSON it is a list of pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Criteria(Box<str>);

impl Criteria {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once('\t'))
    }
}

impl<N: Display, V: Display> FromIterator<(N, V)> for Criteria {
    /// Neither a name with a tab nor a line break comes from a score. Where a file has them, that pair is not kept.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Criteria {
        let mut text = String::new();
        for (name, value) in pairs {
            let start = text.len();
            let written = write!(text, "{name}\t{value}");
            let line = &text[start..];
            if written.is_err() || line.matches('\t').count() != 1 || line.contains(['\n', '\r']) {
                text.truncate(start);
            } else {
                text.push('\n');
            }
        }
        Criteria(text.into())
    }
}

impl Serialize for Criteria {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Criteria {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Criteria, D::Error> {
        Ok(Vec::<(String, String)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_a_list_of_pairs_as_json_and_come_back_from_it() {
        for (json, expected) in [
            (r#"[["stays","false"],["moved","1 of 250m"]]"#, None),
            (r#"[["affinity",""],["","x"]]"#, None),
            ("[]", None),
            (r#"[["a\tb","1"],["c","2\n3"],["d","4"],["e","5\r"]]"#, Some(r#"[["d","4"]]"#)),
        ] {
            let criteria: Criteria = serde_json::from_str(json).unwrap();
            let text = serde_json::to_string(&criteria).unwrap();
            assert_eq!(text, expected.unwrap_or(json));
            assert_eq!(criteria.is_empty(), text == "[]");
        }
        serde_json::from_str::<Criteria>(r#"[["a"]]"#).unwrap_err();
    }
}
