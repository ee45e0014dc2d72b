//! Sets of CPUs, to and from the kernel's texts.

use crate::bit_set::BitSet;
use crate::id::CpuId;
use crate::parse_set_error::ParseSetError;

/// Defines a set of one id type over `BitSet`: set algebra, iteration, and the kernel's text forms.
macro_rules! id_set {
    ($(#[$doc:meta])* $name:ident, $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(BitSet);

        impl $name {
            /// The empty set.
            pub fn new() -> $name {
                $name::default()
            }

            /// Adds one member; false when it was already in.
            #[inline]
            pub fn insert(&mut self, member: $id) -> bool {
                self.0.insert(member.0)
            }

            /// Takes one member out; false when it was not in.
            #[inline]
            pub fn remove(&mut self, member: $id) -> bool {
                self.0.remove(member.0)
            }

            /// Whether `member` is in the set.
            #[inline]
            pub fn contains(&self, member: $id) -> bool {
                self.0.contains(member.0)
            }

            /// Number of members.
            #[inline]
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether there is no member.
            #[inline]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// The lowest member.
            #[inline]
            pub fn first(&self) -> Option<$id> {
                self.iter().next()
            }

            /// The highest member.
            pub fn last(&self) -> Option<$id> {
                self.0.last().map($id)
            }

            /// Adds every member of `other`.
            #[inline]
            pub fn union_with(&mut self, other: &$name) {
                self.0.union_with(&other.0);
            }

            /// Keeps only what is also in `other`.
            pub fn intersect_with(&mut self, other: &$name) {
                self.0.intersect_with(&other.0);
            }

            /// Takes out every member of `other`.
            #[inline]
            pub fn subtract(&mut self, other: &$name) {
                self.0.subtract(&other.0);
            }

            /// Members of either.
            pub fn union(&self, other: &$name) -> $name {
                let mut set = self.clone();
                set.union_with(other);
                set
            }

            /// Members of both.
            pub fn intersection(&self, other: &$name) -> $name {
                let mut set = self.clone();
                set.intersect_with(other);
                set
            }

            /// Members of this set that are not in `other`.
            pub fn difference(&self, other: &$name) -> $name {
                let mut set = self.clone();
                set.subtract(other);
                set
            }

            /// Number of members of both, without building the set.
            pub fn intersection_len(&self, other: &$name) -> usize {
                self.0.intersection_len(&other.0)
            }

            /// Whether every member is also in `other`.
            #[inline]
            pub fn is_subset(&self, other: &$name) -> bool {
                self.0.is_subset(&other.0)
            }

            /// Whether no member is in `other`.
            #[inline]
            pub fn is_disjoint(&self, other: &$name) -> bool {
                !self.intersects(other)
            }

            /// Whether some member is in `other`.
            #[inline]
            pub fn intersects(&self, other: &$name) -> bool {
                self.0.intersects(&other.0)
            }

            /// Members in ascending order.
            #[inline]
            pub fn iter(&self) -> impl Iterator<Item = $id> + Clone + '_ {
                self.0.iter().map($id)
            }

            /// Maximal runs of consecutive members, lowest first, both ends included.
            pub fn ranges(&self) -> impl Iterator<Item = ($id, $id)> + '_ {
                self.0.ranges().map(|(first, last)| ($id(first), $id(last)))
            }

            /// Parses the kernel's mask form (`ffffffff,0000ffff`, most significant word first).
            ///
            /// # Errors
            /// [`ParseSetError`] names the word that is not hexadecimal.
            pub fn parse_mask(text: &str) -> Result<$name, ParseSetError> {
                BitSet::parse_mask(text).map($name)
            }

            /// The kernel's mask form, in words of eight digits.
            pub fn render_mask(&self) -> String {
                self.0.render_mask()
            }
        }

        /// Parses the kernel's list form (`0-3,8`, `0-30:2/8`); an empty text is the empty set.
        impl std::str::FromStr for $name {
            type Err = ParseSetError;

            fn from_str(text: &str) -> Result<$name, ParseSetError> {
                BitSet::parse_list(text).map($name)
            }
        }

        /// The kernel's list form; the empty set is the empty text.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut text = String::new();
                for (first, last) in self.ranges() {
                    let comma = if text.is_empty() { "" } else { "," };
                    if first == last {
                        text.push_str(&format!("{comma}{first}"));
                    } else {
                        text.push_str(&format!("{comma}{first}-{last}"));
                    }
                }
                f.pad(&text)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromIterator<$id> for $name {
            fn from_iter<I: IntoIterator<Item = $id>>(members: I) -> $name {
                $name(members.into_iter().map(|id| id.0).collect())
            }
        }

        impl Extend<$id> for $name {
            fn extend<I: IntoIterator<Item = $id>>(&mut self, members: I) {
                for member in members {
                    self.insert(member);
                }
            }
        }

        impl From<$id> for $name {
            fn from(member: $id) -> $name {
                std::iter::once(member).collect()
            }
        }
    };
}
pub(crate) use id_set;

id_set!(
    /// A set of CPUs. Up to 1,024 CPUs it lies on the stack; larger machines use one heap block. Numbers to 65,535.
    CpuSet,
    CpuId
);

impl CpuSet {
    /// The first CPUs of a machine that numbers them from 0.
    pub fn first_n(n: u32) -> CpuSet {
        (0..n).map(CpuId).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn list_form_round_trips() {
        for (text, shown) in [
            ("", ""),
            ("\n", ""),
            ("0", "0"),
            ("0-3,8\n", "0-3,8"),
            ("8,0-3", "0-3,8"),
            ("0-2,1-5", "0-5"),
            ("0-31:2/8", "0-1,8-9,16-17,24-25"),
            ("1023,1024,8191", "1023-1024,8191"),
        ] {
            assert_eq!(set(text).to_string(), shown, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_a_list_is_refused_with_the_offending_part() {
        for (text, message) in [
            ("0-", "`0-` is not a number or a range such as 0-3"),
            ("3-1", "`3-1` is not a number or a range such as 0-3"),
            ("0,,2", "`` is not a number or a range such as 0-3"),
            ("a", "`a` is not a number or a range such as 0-3"),
            ("-1", "`-1` is not a number or a range such as 0-3"),
            ("0-3:1", "`0-3:1` is not a number or a range such as 0-3"),
            ("0-3:2/0", "`0-3:2/0` is not a number or a range such as 0-3"),
            ("0-4294967295", "`0-4294967295` is above 65535, the largest number accepted"),
            ("99999999999999", "`99999999999999` is above 65535, the largest number accepted"),
        ] {
            assert_eq!(text.parse::<CpuSet>().unwrap_err().to_string(), message, "{text:?}");
        }
    }

    #[test]
    fn a_list_that_repeats_itself_does_not_take_long() {
        let list = ["0-65535:1/2"; 8].join(",");
        assert_eq!(set(&list).len(), 32_768);
        let error = format!("{list},5").parse::<CpuSet>().unwrap_err();
        assert_eq!(error.to_string(), "at `5` the list has named every number several times");
    }

    #[test]
    fn mask_form_round_trips() {
        for (text, list) in [
            ("0", ""),
            ("1", "0"),
            ("ffffffff,0000ffff", "0-15,32-63"),
            ("00000001,00000000,00000000", "64"),
            ("f\n", "0-3"),
        ] {
            let parsed = CpuSet::parse_mask(text).unwrap();
            assert_eq!(parsed.to_string(), list, "{text:?}");
            assert_eq!(CpuSet::parse_mask(&parsed.render_mask()).unwrap(), parsed);
        }
        for text in ["", "xyz", "1,,2", "123456789", "-1"] {
            assert!(CpuSet::parse_mask(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn algebra_agrees_with_a_plain_set(
            a in prop::collection::btree_set(0u32..9000, 0..60),
            b in prop::collection::btree_set(0u32..9000, 0..60),
        ) {
            let of = |s: &BTreeSet<u32>| s.iter().copied().map(CpuId).collect::<CpuSet>();
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.union(&y), of(&(&a | &b)));
            prop_assert_eq!(x.intersection(&y), of(&(&a & &b)));
            prop_assert_eq!(x.difference(&y), of(&(&a - &b)));
            prop_assert_eq!(x.intersection_len(&y), (&a & &b).len());
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.first(), a.first().copied().map(CpuId));
            prop_assert_eq!(x.last(), a.last().copied().map(CpuId));
            prop_assert_eq!(x.iter().map(|c| c.0).collect::<BTreeSet<_>>(), a);
            prop_assert_eq!(x.to_string().parse::<CpuSet>().unwrap(), x.clone());
            prop_assert_eq!(CpuSet::parse_mask(&x.render_mask()).unwrap(), x);
        }

        #[test]
        fn ranges_and_groups_have_the_members_that_they_name(
            ranges in prop::collection::vec((0_u32..300, 0_u32..300, 0_u32..80, 1_u32..80), 1..4),
        ) {
            let mut plain = BTreeSet::new();
            let parts = ranges.into_iter().map(|(first, len, used, every)| {
                let used = used.min(every);
                plain.extend((first..=first + len).filter(|n| (n - first) % every < used));
                format!("{first}-{}:{used}/{every}", first + len)
            });
            let set: CpuSet = parts.collect::<Vec<_>>().join(",").parse().unwrap();
            prop_assert_eq!(set.last().map(|cpu| cpu.0), plain.last().copied());
            prop_assert_eq!(set.iter().map(|cpu| cpu.0).collect::<BTreeSet<_>>(), plain);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "[0-9,:/x\\- ]{0,20}") {
            let _either = text.parse::<CpuSet>();
            let _either = CpuSet::parse_mask(&text);
        }
    }
}
