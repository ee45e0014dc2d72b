//! Texts of kernel files.

use bayplan_types::{Bytes, CpuSet, Khz};

/// A number, or -1 where the kernel does not know (`cputopology.rst`).
pub(super) fn number_or_unknown(text: &str) -> Option<Option<u32>> {
    if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
}

/// A list, or `(null)`, which kernels without `nohz_full=` print for a mask that was never made.
pub(super) fn list_or_null(text: &str) -> Option<CpuSet> {
    if text == "(null)" { Some(CpuSet::new()) } else { text.parse().ok() }
}

/// `0` or `1`.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// `39424K`; some firmware tables give megabytes.
pub(super) fn size(text: &str) -> Option<Bytes> {
    let (number, factor) = match (text.strip_suffix('K'), text.strip_suffix('M')) {
        (Some(number), _) => (number, 1 << 10),
        (_, Some(number)) => (number, 1 << 20),
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).map(Bytes)
}

/// `MemTotal:       98304000 kB`, with or without `Node 0` before it.
pub(super) fn mem_total(line: &str) -> Option<Option<Bytes>> {
    let (_, amount) = line.split_once("MemTotal:")?;
    let number = amount.trim().strip_suffix(" kB");
    let number = number.and_then(|number| number.trim().parse::<u64>().ok());
    Some(number.and_then(|number| number.checked_mul(1024)).map(Bytes))
}

/// Numbers with blanks between them.
pub(super) fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
}

/// `3800000`; 0 is what drivers say that do not know.
pub(super) fn frequency(text: &str) -> Option<Option<Khz>> {
    let number = text.parse::<u64>().ok()?;
    Some((number > 0).then_some(Khz(number)))
}

/// `0x8086`, as much as fits the type.
pub(super) fn hex<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    T::try_from(u64::from_str_radix(digits, 16).ok()?).ok()
}

/// One word.
pub(super) fn word(text: &str) -> Option<String> {
    let is_word = !text.is_empty() && text.len() <= 64 && !text.contains(char::is_whitespace);
    is_word.then(|| text.to_owned())
}

/// Some words on one line.
pub(super) fn phrase(text: &str) -> Option<String> {
    let is_phrase = !text.is_empty() && text.len() <= 64 && !text.contains(char::is_control);
    is_phrase.then(|| text.to_owned())
}
