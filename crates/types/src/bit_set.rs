//! The words behind `CpuSet` and `NodeSet`. In: numbers and kernel texts. Out: sets and kernel texts.
//!
//! Invariant: no trailing zero word, so equal sets are equal words and derived comparison and hashing are right.

use smallvec::SmallVec;

use crate::parse_set_error::ParseSetError;

const BITS: u32 = u64::BITS;
/// Words kept inline: 16 words are 1,024 members without heap allocation.
const INLINE: usize = 16;
/// The largest member that a text may name; beyond it a typo would ask for gigabytes. Linux allows 8,192 CPUs
/// (`CONFIG_NR_CPUS`); we leave room for eight times that.
pub(crate) const MEMBER_MAX: u32 = 65_535;

/// How many members a text may name before it repeats itself for no purpose but to take long.
const NAMED_MAX: u32 = 8 * (MEMBER_MAX + 1);

#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BitSet {
    words: SmallVec<[u64; INLINE]>,
}

fn position(member: u32) -> (usize, u64) {
    ((member / BITS) as usize, 1 << (member % BITS))
}

impl BitSet {
    #[inline]
    pub(crate) fn insert(&mut self, member: u32) -> bool {
        let (word, bit) = position(member);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let Some(slot) = self.words.get_mut(word) else { return false };
        let is_new = *slot & bit == 0;
        *slot |= bit;
        is_new
    }

    #[inline]
    pub(crate) fn remove(&mut self, member: u32) -> bool {
        let (word, bit) = position(member);
        let Some(slot) = self.words.get_mut(word) else { return false };
        let was_in = *slot & bit != 0;
        *slot &= !bit;
        self.trim();
        was_in
    }

    #[inline]
    pub(crate) fn contains(&self, member: u32) -> bool {
        let (word, bit) = position(member);
        self.words.get(word).is_some_and(|slot| slot & bit != 0)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    #[inline]
    pub(crate) fn union_with(&mut self, other: &BitSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    pub(crate) fn intersect_with(&mut self, other: &BitSet) {
        self.words.truncate(other.words.len());
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= theirs;
        }
        self.trim();
    }

    #[inline]
    pub(crate) fn subtract(&mut self, other: &BitSet) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
        self.trim();
    }

    pub(crate) fn intersection_len(&self, other: &BitSet) -> usize {
        let pairs = self.words.iter().zip(&other.words);
        pairs.map(|(mine, theirs)| (mine & theirs).count_ones() as usize).sum()
    }

    #[inline]
    pub(crate) fn is_subset(&self, other: &BitSet) -> bool {
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&other.words).all(|(mine, theirs)| mine & !theirs == 0)
    }

    #[inline]
    pub(crate) fn intersects(&self, other: &BitSet) -> bool {
        self.words.iter().zip(&other.words).any(|(mine, theirs)| mine & theirs != 0)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        let (at, word) = (self.words.len().checked_sub(1)?, *self.words.last()?);
        Some(u32::try_from(at).ok()? * BITS + word.checked_ilog2()?)
    }

    #[inline]
    pub(crate) fn iter(&self) -> Members<'_> {
        Members { words: &self.words, base: 0, rest: self.words.first().copied().unwrap_or(0) }
    }

    /// Maximal runs of consecutive members, lowest first, both ends included.
    pub(crate) fn ranges(&self) -> Ranges<'_> {
        Ranges { members: self.iter(), held: None }
    }

    #[inline]
    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Kernel list form (`Documentation/admin-guide/cgroup-v2.rst`, "cpuset.cpus"): `0-3,8`, also the grouped form
    /// `0-30:2/8` of `bitmap_parselist`. White space around the text is ignored, an empty text is the empty set.
    pub(crate) fn parse_list(text: &str) -> Result<BitSet, ParseSetError> {
        let mut set = BitSet::default();
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
        if trimmed.is_empty() {
            return Ok(set);
        }
        let mut named = 0;
        for part in trimmed.split(',') {
            named += set.insert_part(part.trim())?;
            if named > NAMED_MAX {
                return Err(ParseSetError::Repeated { part: part.to_owned() });
            }
        }
        Ok(set)
    }

    /// Says how long the range is.
    fn insert_part(&mut self, part: &str) -> Result<u32, ParseSetError> {
        let malformed = || ParseSetError::Malformed { part: part.to_owned() };
        let (range, group) = match part.split_once(':') {
            Some((range, group)) => (range, Some(group.split_once('/').ok_or_else(malformed)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (parse_member(first, part)?, parse_member(last, part)?),
            None => (parse_member(range, part)?, parse_member(range, part)?),
        };
        let (used, every) = match group {
            Some((used, every)) => (parse_member(used, part)?, parse_member(every, part)?),
            None => (1, 1),
        };
        if first > last || every == 0 || used > every {
            return Err(malformed());
        }
        if used == every {
            self.insert_range(first, last);
        } else if used > 0 {
            for first in (first..=last).step_by(every as usize) {
                self.insert_range(first, last.min(first + used - 1));
            }
        }
        Ok(last - first + 1)
    }

    /// Word by word: a text may name thousands of members over and over.
    fn insert_range(&mut self, first: u32, last: u32) {
        let ((first_word, first_bit), (last_word, last_bit)) = (position(first), position(last));
        if self.words.len() <= last_word {
            self.words.resize(last_word + 1, 0);
        }
        for (at, word) in self.words.iter_mut().enumerate().take(last_word + 1).skip(first_word) {
            let from = if at == first_word { first_bit } else { 1 };
            let to = if at == last_word { last_bit } else { 1 << (BITS - 1) };
            // All bits from `from` to `to`.
            *word |= (to | (to - 1)) & !(from - 1);
        }
    }

    /// Kernel mask form: comma-separated 32-bit hexadecimal words, most significant first (`ffffffff,0000ffff`).
    pub(crate) fn parse_mask(text: &str) -> Result<BitSet, ParseSetError> {
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
        let trimmed = trimmed.strip_prefix("0x").unwrap_or(trimmed);
        let mut set = BitSet::default();
        let mut base = 0;
        for part in trimmed.rsplit(',') {
            let malformed = || ParseSetError::Malformed { part: part.to_owned() };
            if part.is_empty() || part.len() > 8 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(malformed());
            }
            let word = u32::from_str_radix(part, 16).map_err(|_| malformed())?;
            if base + 31 > MEMBER_MAX {
                return Err(ParseSetError::TooLarge { part: part.to_owned() });
            }
            for bit in (0..32).filter(|bit| word & (1 << bit) != 0) {
                set.insert(base + bit);
            }
            base += 32;
        }
        Ok(set)
    }

    pub(crate) fn render_mask(&self) -> String {
        let mut halves: Vec<u64> = Vec::with_capacity(self.words.len() * 2);
        for word in &self.words {
            halves.push(word & u64::from(u32::MAX));
            halves.push(word >> 32);
        }
        while halves.len() > 1 && halves.last() == Some(&0) {
            halves.pop();
        }
        if halves.is_empty() {
            halves.push(0);
        }
        let groups: Vec<String> = halves.iter().rev().map(|half| format!("{half:08x}")).collect();
        groups.join(",")
    }
}

fn parse_member(text: &str, part: &str) -> Result<u32, ParseSetError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseSetError::Malformed { part: part.to_owned() });
    }
    match text.parse::<u32>() {
        Ok(member) if member <= MEMBER_MAX => Ok(member),
        _ => Err(ParseSetError::TooLarge { part: part.to_owned() }),
    }
}

impl FromIterator<u32> for BitSet {
    fn from_iter<I: IntoIterator<Item = u32>>(members: I) -> BitSet {
        let mut set = BitSet::default();
        for member in members {
            set.insert(member);
        }
        set
    }
}

/// Members in ascending order.
#[derive(Clone)]
pub(crate) struct Members<'a> {
    words: &'a [u64],
    base: u32,
    rest: u64,
}

impl Iterator for Members<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.rest == 0 {
            self.words = self.words.get(1..)?;
            self.rest = *self.words.first()?;
            self.base += BITS;
        }
        let bit = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(self.base + bit)
    }
}

pub(crate) struct Ranges<'a> {
    members: Members<'a>,
    held: Option<u32>,
}

impl Iterator for Ranges<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let first = self.held.take().or_else(|| self.members.next())?;
        let mut last = first;
        for member in self.members.by_ref() {
            if member != last + 1 {
                self.held = Some(member);
                break;
            }
            last = member;
        }
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_and_24_members_need_no_heap_and_more_do() {
        let inline: BitSet = (0..1024).collect();
        assert!(!inline.words.spilled());
        let mut larger = inline.clone();
        larger.insert(1024);
        assert!(larger.words.spilled());
        larger.intersect_with(&inline);
        assert!(larger == inline);
    }
}
