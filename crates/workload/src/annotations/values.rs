//! Values of annotations. In: untrusted text. Out: what it means, or why it means nothing.

use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuPriority, MemoryKind};

use bayplan_allocator::{Packing, Siblings, Strictness, Within};

/// A value longer than this is not read, so that annotations cannot fill memory and journal.
pub(super) const VALUE_MAX: usize = 16 << 10;

/// A value that means nothing; what the key expects is known elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misread {
    /// What exactly is wrong, where that helps.
    pub(super) detail: Option<String>,
}

impl Misread {
    pub(super) fn because(detail: impl Into<String>) -> Misread {
        Misread { detail: Some(detail.into()) }
    }
}

/// A value, and the container for which it is read.
pub(super) struct Said<'a> {
    pub(super) value: &'a str,
    pub(super) container: &'a str,
}

impl Said<'_> {
    pub(super) fn flag(&self) -> Result<bool, Misread> {
        word(self.value, FLAG)
    }
}

/// Whether a value is short enough to be read.
pub(super) fn check_length(value: &str) -> Result<(), Misread> {
    match value.len() > VALUE_MAX {
        true => Err(Misread::because(format!("longer than {} KiB", VALUE_MAX >> 10))),
        false => Ok(()),
    }
}

/// A class's name; what it stands for is the configuration's to say.
pub(super) fn class_name(value: &str) -> Result<String, Misread> {
    let name = value.trim();
    let is_name = !name.is_empty() && !name.contains(char::is_control);
    is_name.then(|| name.to_owned()).ok_or_else(Misread::default)
}

/// Words and what they mean.
pub type Words<T> = [(&'static str, T)];

/// Yes and no.
pub const FLAG: &Words<bool> = &[("true", true), ("false", false)];

/// As annotation and configuration write them.
pub const SIBLINGS: &Words<Siblings> =
    &[("pair", Siblings::Pair), ("shared", Siblings::Shared), ("idle", Siblings::Idle)];

pub(super) const PACKING: &Words<Packing> = &[
    ("packed", Packing::Packed),
    ("spread", Packing::Spread),
    ("one-per-core", Packing::OnePerCore),
];

/// `none` undoes what the configuration says.
pub const PRIORITY: &Words<Option<CpuPriority>> = &[
    ("high", Some(CpuPriority::High)),
    ("normal", Some(CpuPriority::Normal)),
    ("low", Some(CpuPriority::Low)),
    ("none", None),
];

pub(super) const CORE_KIND: &Words<Option<CoreKind>> = &[
    ("performance", Some(CoreKind::Performance)),
    ("efficient", Some(CoreKind::Efficient)),
    ("none", None),
];

pub(super) const APART: &Words<Option<Level>> = &[
    ("core", Some(Level::Core)),
    ("l3", Some(Level::L3)),
    ("numa", Some(Level::NumaNode)),
    ("none", None),
];

pub(super) const WITHIN: &Words<Option<Within>> = &[
    ("numa", Some(Within::One(Level::NumaNode))),
    ("package", Some(Within::One(Level::Package))),
    ("fewest-numa", Some(Within::Fewest(Level::NumaNode))),
    ("fewest-package", Some(Within::Fewest(Level::Package))),
    ("none", None),
];

/// The words of nri-plugins.
pub const BURST: &Words<Option<Level>> = &[
    ("system", Some(Level::Machine)),
    ("package", Some(Level::Package)),
    ("die", Some(Level::Die)),
    ("numa", Some(Level::NumaNode)),
    ("l3cache", Some(Level::L3)),
    ("none", None),
];

const MEMORY: &Words<MemoryKind> = &[
    ("dram", MemoryKind::Dram),
    ("hbm", MemoryKind::Hbm),
    ("pmem", MemoryKind::Pmem),
    ("cxl", MemoryKind::Cxl),
    ("gpu", MemoryKind::Gpu),
];

/// What Bayplan calls a package, others call a socket.
pub fn known_as(word: &str) -> &str {
    match word {
        "socket" => "package",
        "fewest-socket" => "fewest-package",
        other => other,
    }
}

/// The meaning of one of these words, in any case.
pub(super) fn word<T: Clone>(value: &str, words: &Words<T>) -> Result<T, Misread> {
    let value = known_as(value.trim());
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(value));
    found.map(|(_, meaning)| meaning.clone()).ok_or_else(Misread::default)
}

/// What stands between commas and blanks.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty())
}

/// `core`, or `core required`.
pub(super) fn parse_apart(value: &str) -> Result<Option<(Level, Strictness)>, Misread> {
    let parts: Vec<&str> = parts(value).take(3).collect();
    let (level, strictness) = match parts[..] {
        [level] => (level, Strictness::Preferred),
        [level, required] if required.eq_ignore_ascii_case("required") => {
            (level, Strictness::Required)
        }
        _ => return Err(Misread::default()),
    };
    Ok(word(level, APART)?.map(|level| (level, strictness)))
}

/// Kinds of memory in the order of [`MemoryKind`]; `mixed` is all of them but the memory of devices.
pub(super) fn parse_memory_kinds(value: &str) -> Result<Vec<MemoryKind>, Misread> {
    let mut kinds = Vec::new();
    for part in parts(value) {
        match part.eq_ignore_ascii_case("mixed") {
            true => kinds.extend(MemoryKind::ALL.into_iter().filter(|kind| !kind.is_of_device())),
            false => kinds.push(word(part, MEMORY)?),
        }
    }
    if kinds.is_empty() {
        return Err(Misread::default());
    }
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// Whether `text` matches a pattern of letters, `*` (any text) and `?` (any character).
pub fn matches_glob(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to go on when the latest `*` has to take one character more.
    let mut retry = None;
    loop {
        let tail = text.clone();
        match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((pattern.clone(), tail.clone()));
                text = tail;
            }
            (Some('?'), Some(_)) => {}
            (Some(expected), Some(found)) if expected == found => {}
            _ => {
                let Some((after, mut from)) = retry.take() else { return false };
                if from.next().is_none() {
                    return false;
                }
                (pattern, text) = (after.clone(), from.clone());
                retry = Some((after, from));
            }
        }
    }
}

/// A name or value for a message: what a terminal would obey is escaped, what is long is cut.
pub fn shown(text: &str, chars_max: usize) -> String {
    let cut: String = text.trim().chars().take(chars_max).collect();
    let more = if text.trim().chars().nth(chars_max).is_some() { "..." } else { "" };
    // What is invisible or turns the direction of a text.
    let is_hidden = |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let escape = |c: char| match c.is_control() || is_hidden(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    cut.chars().map(escape).collect::<String>() + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_a_shell_would() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "kube-system", true),
            ("kube-*", "kube-system", true),
            ("kube-*", "kube", false),
            ("*-system", "kube-system", true),
            ("*-system", "kube-systems", false),
            ("k*b*m", "kube-system-b-m", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "ä", true),
            ("a", "", false),
            ("", "a", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(matches_glob(pattern, text), expected, "{pattern:?} {text:?}");
        }
        let (pattern, text) = ("*a".repeat(4000) + "b", "a".repeat(8000));
        assert!(!matches_glob(&pattern, &text));
    }

    #[test]
    fn what_is_shown_neither_rings_nor_runs_over() {
        assert_eq!(shown(" maybe\n", 40), "maybe");
        assert_eq!(shown("a\u{1b}[2Jb\nc\0", 40), "a\\u{1b}[2Jb\\nc\\u{0}");
        assert_eq!(shown("\u{202e}elbi", 40), "\\u{202e}elbi");
        assert_eq!(shown("aaaa", 3), "aaa...");
    }

    fn check<T: std::fmt::Debug>(read: Result<T, Misread>, expected: &str) {
        assert_eq!(format!("{:?}", read.map_err(|_| ())), expected);
    }

    #[test]
    fn lists_are_read_and_nonsense_is_not() {
        check(parse_memory_kinds("pmem,dram"), "Ok([Dram, Pmem])");
        check(parse_memory_kinds(" HBM , hbm"), "Ok([Hbm])");
        check(parse_memory_kinds("mixed"), "Ok([Dram, Hbm, Pmem, Cxl])");
        for nonsense in ["", ",", "ram", "dram,", "dram;pmem", "\0"] {
            let read = parse_memory_kinds(nonsense);
            assert!(read.is_err() || nonsense == "dram,", "{nonsense:?}");
        }
        check(parse_apart("core"), "Ok(Some((Core, Preferred)))");
        check(parse_apart("numa, required"), "Ok(Some((NumaNode, Required)))");
        check(parse_apart("none"), "Ok(None)");
        for nonsense in ["", "cores", "core optional", "core required please", "required"] {
            check(parse_apart(nonsense), "Err(())");
        }
    }
}
