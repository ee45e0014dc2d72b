//! The values of goresctrl's configuration: parts of a cache, parts of the memory bandwidth, cache ids. In: their texts. Out: what they mean
//! (goresctrl's doc/rdt.md).

use std::fmt;
use std::str::FromStr;

use super::bitmask::CapacityBitmask;

/// Why a text is no such value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseShareError {
    /// Neither a percentage nor bits.
    #[error(
        "`{0}` is not a part of a cache, expected a percentage (\"60%\"), a range of it (\"20-50%\"), a bit mask (\"0xff0\") or bit numbers (\"4-11\")"
    )]
    NotACacheShare(String),
    /// Above 100, or a range that ends before it begins.
    #[error("`{0}` is not within 0% to 100%")]
    NotAPercentage(String),
    /// No bits, or more of them than a mask has.
    #[error("`{0}` has no bits, or some above bit 31 (a hexadecimal mask stands in quotes)")]
    NoBits(String),
    /// Neither `all` nor numbers.
    #[error("`{0}` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3")]
    NotCacheIds(String),
}

/// A part of a cache, or of what a partition has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheShare {
    /// So much of it, from its lowest bit on.
    Percent(u8),
    /// From one hundredth to another.
    Range(u8, u8),
    /// These bits. For a class counted from the lowest bit of its partition.
    Bits(CapacityBitmask),
}

impl FromStr for CacheShare {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<CacheShare, ParseShareError> {
        let no_share = || ParseShareError::NotACacheShare(text.to_owned());
        let percent = |number: &str| match number.parse::<u8>() {
            Ok(number) if number <= 100 => Ok(number),
            Ok(_) => Err(ParseShareError::NotAPercentage(text.to_owned())),
            Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => {
                Err(ParseShareError::NotAPercentage(text.to_owned()))
            }
            Err(_) => Err(no_share()),
        };
        if let Some(number) = text.strip_suffix('%') {
            return match number.split_once('-') {
                None => Ok(CacheShare::Percent(percent(number)?)),
                Some((low, high)) => match (percent(low)?, percent(high)?) {
                    (low, high) if low <= high => Ok(CacheShare::Range(low, high)),
                    _ => Err(ParseShareError::NotAPercentage(text.to_owned())),
                },
            };
        }
        let bits = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| no_share())?,
            None => ranges(text).ok_or_else(no_share)?.iter().fold(0, |bits, (low, high)| {
                (*low..=(*high).min(63)).fold(bits, |bits, bit| bits | 1_u64 << bit)
            }),
        };
        let bits = u32::try_from(bits).ok().and_then(CapacityBitmask::new);
        bits.map(CacheShare::Bits).ok_or_else(|| ParseShareError::NoBits(text.to_owned()))
    }
}

impl fmt::Display for CacheShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheShare::Percent(percent) => write!(f, "{percent}%"),
            CacheShare::Range(low, high) => write!(f, "{low}-{high}%"),
            CacheShare::Bits(bits) => write!(f, "0x{bits}"),
        }
    }
}

/// A bound on memory bandwidth; of several the first counts that the machine can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// A part of the machine's, or of what the partition may use.
    Percent(u8),
    /// So many million bytes a second.
    MegabytesPerSecond(u32),
    /// Anything else: goresctrl passes over it.
    Unknown(String),
}

impl From<&str> for Bandwidth {
    fn from(text: &str) -> Bandwidth {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let rate = || text.strip_suffix("MBps").and_then(|number| number.parse().ok());
        match percent.filter(|percent| *percent <= 100) {
            Some(percent) => Bandwidth::Percent(percent),
            None => rate()
                .map_or_else(|| Bandwidth::Unknown(text.to_owned()), Bandwidth::MegabytesPerSecond),
        }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bandwidth::Percent(percent) => write!(f, "{percent}%"),
            Bandwidth::MegabytesPerSecond(rate) => write!(f, "{rate}MBps"),
            Bandwidth::Unknown(text) => f.write_str(text),
        }
    }
}

/// Some caches of one level, by the kernel's ids (`/sys/devices/system/cpu/cpu*/cache/index*/id`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheIds(Vec<(u32, u32)>);

impl CacheIds {
    /// Whether the cache is among them.
    pub fn contains(&self, id: u32) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&id))
    }

    /// How many ids it names; one that stands in two ranges counts twice.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(low, high)| u64::from(*high) - u64::from(*low) + 1).sum()
    }

    /// Whether it names none, which no text can say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both name the same cache.
    pub fn overlaps(&self, other: &CacheIds) -> bool {
        let overlaps = |a: &(u32, u32), b: &(u32, u32)| a.0 <= b.1 && b.0 <= a.1;
        self.0.iter().any(|mine| other.0.iter().any(|it| overlaps(mine, it)))
    }
}

impl FromStr for CacheIds {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<CacheIds, ParseShareError> {
        ranges(text).map(CacheIds).ok_or_else(|| ParseShareError::NotCacheIds(text.to_owned()))
    }
}

impl fmt::Display for CacheIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (low, high)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match low == high {
                true => write!(f, "{comma}{low}")?,
                false => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

/// `0,2,4-7`; `None` for anything else.
fn ranges(text: &str) -> Option<Vec<(u32, u32)>> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let range = |part: &str| match part.split_once('-') {
        None => number(part).map(|it| (it, it)),
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high)?);
            (low <= high).then_some((low, high))
        }
    };
    text.split(',').map(|part| range(part.trim())).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check<T: FromStr + fmt::Debug>(texts: &[&str], expected: Expect)
    where
        T::Err: fmt::Display,
    {
        let lines = texts.iter().map(|text| match text.parse::<T>() {
            Ok(value) => format!("{text}: {value:?}\n"),
            Err(error) => format!("{error}\n"),
        });
        expected.assert_eq(&lines.collect::<String>());
    }

    #[test]
    fn parts_of_a_cache_are_percentages_masks_and_bit_numbers() {
        check::<CacheShare>(
            &["60%", "0%", "20-50%", "0xff0", "0-3", "3,4,5-7,8", "31", "5"],
            expect![[r#"
                60%: Percent(60)
                0%: Percent(0)
                20-50%: Range(20, 50)
                0xff0: Bits(CapacityBitmask(4080))
                0-3: Bits(CapacityBitmask(15))
                3,4,5-7,8: Bits(CapacityBitmask(504))
                31: Bits(CapacityBitmask(2147483648))
                5: Bits(CapacityBitmask(32))
            "#]],
        );
    }

    #[test]
    fn what_is_no_part_of_a_cache_is_refused() {
        check::<CacheShare>(
            &[
                "",
                "%",
                "1f%",
                "101%",
                "999%",
                "50-20%",
                "a-100%",
                "-5%",
                "0xg",
                "0x",
                "0x0",
                "0x1ffffffff",
                "32",
                "1-",
                "-4",
                ",",
                "4-3",
                "1,,2",
                "+3",
                "0-99999999",
            ],
            expect![[r#"
                `` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `%` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `1f%` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `101%` is not within 0% to 100%
                `999%` is not within 0% to 100%
                `50-20%` is not within 0% to 100%
                `a-100%` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `-5%` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `0xg` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `0x` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `0x0` has no bits, or some above bit 31 (a hexadecimal mask stands in quotes)
                `0x1ffffffff` has no bits, or some above bit 31 (a hexadecimal mask stands in quotes)
                `32` has no bits, or some above bit 31 (a hexadecimal mask stands in quotes)
                `1-` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `-4` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `,` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `4-3` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `1,,2` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `+3` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
                `0-99999999` has no bits, or some above bit 31 (a hexadecimal mask stands in quotes)
            "#]],
        );
    }

    #[test]
    fn cache_ids_are_numbers_and_ranges() {
        check::<CacheIds>(
            &["0", "0-1", "1,3-4,10-12,8", "", "a", "4-2", "0x1", "4294967295", "4294967296"],
            expect![[r#"
                0: CacheIds([(0, 0)])
                0-1: CacheIds([(0, 1)])
                1,3-4,10-12,8: CacheIds([(1, 1), (3, 4), (10, 12), (8, 8)])
                `` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3
                `a` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3
                `4-2` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3
                `0x1` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3
                4294967295: CacheIds([(4294967295, 4294967295)])
                `4294967296` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3
            "#]],
        );
        assert_eq!("8,0-3".parse::<CacheIds>().unwrap().to_string(), "8,0-3");
    }

    #[test]
    fn bandwidth_is_in_percent_or_megabytes() {
        let rows = [
            ("50%", Bandwidth::Percent(50)),
            ("101%", Bandwidth::Unknown("101%".to_owned())),
            ("1500MBps", Bandwidth::MegabytesPerSecond(1500)),
            ("0xffMBps", Bandwidth::Unknown("0xffMBps".to_owned())),
            ("1GBps", Bandwidth::Unknown("1GBps".to_owned())),
        ];
        for (text, expected) in rows {
            assert_eq!(Bandwidth::from(text), expected);
        }
    }
}
