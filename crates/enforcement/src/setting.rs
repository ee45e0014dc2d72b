//! What kernel files should say, and what they said. In: values and their owners. Out: a comparison that knows each file's way to write.
//!
//! A [`Slot`] is a file, or one line of a file that has keys on its lines. Its [`Form`] says when two texts mean the same: sets of CPUs are the same
//! as lists and as masks, `max` is a number, and a line of limits is right when the limits that are wanted are right.
//!
//! How the kernel writes values: Documentation/admin-guide/cgroup-v2.rst, "Format" and "Conventions"; Documentation/core-api/irq/irq-affinity.rst for masks; Documentation/filesystems/resctrl.rst,
//! "Schemata files - general concepts"; Documentation/filesystems/sysfs.rst, "Attributes", for everything else.

use std::collections::BTreeMap;
use std::fmt;

use bayplan_types::CpuSet;
use serde::{Deserialize, Serialize};

/// Disks by number.
pub(crate) const DISKS: &str = "sys/dev/block";
/// CPUs that are online.
pub(crate) const ONLINE: &str = "sys/devices/system/cpu/online";

/// One value in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The file below the root, without a slash in front: `sys/fs/cgroup/kubepods.slice/memory.high`.
    pub path: String,
    /// The line, in a file that has keys at the beginning of its lines: `8:16` in `io.max`, `L3` in `schemata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl Slot {
    /// A whole file.
    pub fn file(path: impl Into<String>) -> Slot {
        Slot { path: path.into(), key: None }
    }

    /// One line of a file.
    pub fn line(path: impl Into<String>, key: impl Into<String>) -> Slot {
        Slot { path: path.into(), key: Some(key.into()) }
    }

    /// The file's name without its directory.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The CPUs of one interrupt, or of those that come later.
    pub(crate) fn is_of_interrupts(&self) -> bool {
        self.path.starts_with("proc/irq/")
    }

    /// What is there as long as the disk is that the line is about; `None`: it is about none (Documentation/filesystems/sysfs.rst, "Top Level Directory Layout").
    pub(crate) fn disk_file(&self) -> Option<String> {
        let key = self.key.as_ref()?;
        let (major, minor) = key.split_once(':')?;
        let is_number = [major, minor].iter().all(|it| it.parse::<u32>().is_ok());
        is_number.then(|| format!("{DISKS}/{key}/dev"))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.path)?;
        self.key.as_ref().map_or(Ok(()), |key| write!(f, " [{key}]"))
    }
}

/// How a value is read and written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A word or a line, compared without the blanks around it: a partition type, a number that the kernel keeps as it is.
    Text,
    /// A word on which depends what other files take or say: a governor, a switch for turbo. Compared as it is, written before all others.
    Mode,
    /// A word that gives other files their effect, or takes it (Speed Select, `core_power`). Compared as it is, written after all others.
    Gate,
    /// A word that a driver takes under other governors than `performance` only, which sets it itself (intel_pstate, amd-pstate,
    /// `energy_performance_preference`).
    Preference {
        /// The file with the governor.
        governor: String,
    },
    /// The lower end of a range with its upper end in the other file. Numbers.
    Lowest {
        /// The file with the upper end.
        highest: String,
    },
    /// The upper end of a range.
    Highest,
    /// A switch that reads as `true` or `false`, and takes a number on all kernels (`/sys/kernel/mm/numa/demotion_enabled`).
    Switch,
    /// A number of bytes that the kernel rounds down to whole pages of 4, 16 or 64 KiB, or `max` (cgroup v2, `memory.high`).
    Bytes,
    /// A limit of CPU time, `QUOTA PERIOD` (cgroup v2, `cpu.max`); a quota alone leaves the period as it is. The runtime writes a container's own limit,
    /// too, so where that is lifted (`max`), what the runtime has written last is what is given back.
    CpuMax,
    /// A set of CPUs as a list; it shrinks before others grow.
    Cpus,
    /// A set of CPUs as a list that must never overlap that of a neighbour, may be empty, and is let go of before anything is taken (cgroup v2,
    /// `cpuset.cpus.exclusive`).
    OwnCpus,
    /// The type of a partition of CPUs (cgroup v2, `cpuset.cpus.partition`); it is a `member` while its CPUs change.
    Partition {
        /// The file with its CPUs.
        cpus: String,
    },
    /// A set of CPUs as a hexadecimal mask with commas (`/proc/irq/default_smp_affinity`, workqueue `cpumask`).
    CpuMask,
    /// A line `KEY name=value ...` in which names that are not wanted keep what they have (cgroup v2, `io.max`, `io.latency`, `io.cost.qos`). Without a
    /// line, every value is `max`, and `enable` is 0.
    Limits,
    /// A line `KEY value` (cgroup v2, `io.weight`). Without a line, the value is `default`.
    Value,
    /// A line `KEY:id=value;id=value` in which ids that are not wanted keep what they have (resctrl, `schemata`).
    Schemata,
    /// A word that the kernel changes whenever another file is written. Nothing is wanted of it but that it is as it was when the other is (cgroup v2:
    /// `cpu.weight` is the default one after `cpu.idle`).
    Follows {
        /// The other file.
        file: String,
    },
}

/// A value that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// How it is compared and written.
    pub form: Form,
    /// The text that is to be written, without the key of its line.
    pub value: String,
    /// What it is for: a container's full name, `cpu 3`, `package 0 die 1`.
    pub unit: String,
    /// Why, in a few words: `class "latency": governor`.
    pub reason: String,
}

/// All values that are wanted.
pub type Settings = BTreeMap<Slot, Setting>;

/// What stands for the text of a file that is not there: its container or device has gone.
pub const GONE: &str = "no such file";

/// The text of every file that was read, by its path; or what the kernel answered instead ([`GONE`]).
pub type Observed = BTreeMap<String, Result<String, String>>;

/// A value from before the first write, with which the machine is given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// How it is compared and written.
    pub form: Form,
    /// The text, without the key of its line.
    pub value: String,
}

/// The value of a slot in the text of its file. Where a keyed file has no such line, what the kernel then assumes; `None` where nothing is assumed.
pub fn value_in<'a>(text: &'a str, slot: &Slot, form: &Form) -> Option<&'a str> {
    let Some(key) = &slot.key else { return Some(text.trim()) };
    let separator = if *form == Form::Schemata { ':' } else { ' ' };
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(separator));
    match lines.find(|(it, _)| it.trim() == key) {
        Some((_, value)) => Some(value.trim()),
        None if *form == Form::Value => Some("default"),
        None if *form == Form::Limits => Some(""),
        None => None,
    }
}

/// The text to write so that the slot has this value.
pub fn text_of(value: &str, slot: &Slot, form: &Form) -> String {
    match (&slot.key, form) {
        (None, Form::Switch) => u8::from(value.trim() == "true").to_string(),
        // A write of no bytes is none.
        (None, _) if value.is_empty() => "\n".to_owned(),
        (None, _) => value.to_owned(),
        (Some(key), Form::Schemata) => format!("{key}:{value}\n"),
        (Some(key), _) => format!("{key} {value}"),
    }
}

/// Whether the kernel has what is wanted.
pub fn is_same(form: &Form, wanted: &str, found: &str) -> bool {
    let (wanted, found) = (wanted.trim(), found.trim());
    if wanted == found {
        return true;
    }
    match form {
        Form::Text
        | Form::Mode
        | Form::Gate
        | Form::Switch
        | Form::Preference { .. }
        | Form::Value
        | Form::Follows { .. }
        | Form::Partition { .. } => false,
        Form::Lowest { .. } | Form::Highest => {
            number(wanted).is_some_and(|it| Some(it) == number(found))
        }
        Form::Bytes => {
            // mm/page_counter.c, `page_counter_memparse`; page sizes of arch/arm64/Kconfig and arch/powerpc/Kconfig.
            const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
            let is_rounded = |(a, b): (u64, u64)| PAGES.iter().any(|page| a / page * page == b);
            number(wanted).zip(number(found)).is_some_and(is_rounded)
        }
        Form::CpuMax => {
            let mut found = found.split_ascii_whitespace();
            wanted.split_ascii_whitespace().all(|it| Some(it) == found.next())
        }
        Form::Cpus | Form::OwnCpus => cpus(wanted).is_some_and(|it| Some(it) == cpus(found)),
        Form::CpuMask => mask_words(wanted).is_some_and(|it| Some(it) == mask_words(found)),
        Form::Limits => pairs(wanted, ' ').all(|(name, value)| {
            let has = pairs(found, ' ').find(|(it, _)| *it == name).map(|(_, it)| it);
            has.unwrap_or(unwritten(name)) == value
        }),
        Form::Schemata => pairs(wanted, ';').all(|(id, value)| {
            let has = pairs(found, ';').find(|(it, _)| *it == id).map(|(_, it)| it);
            has.is_some_and(|has| same_schema_value(value, has))
        }),
    }
}

fn pairs(text: &str, separator: char) -> impl Iterator<Item = (&str, &str)> {
    text.split(separator).filter_map(|pair| pair.trim().split_once('='))
}

/// What the kernel has where a line of limits does not name one.
pub(crate) fn unwritten(name: &str) -> &'static str {
    if name == "enable" { "0" } else { "max" }
}

/// Bit masks without regard to leading zeros, which the kernel pads with.
fn same_schema_value(wanted: &str, found: &str) -> bool {
    let strip = |text: &str| text.trim().trim_start_matches('0').to_ascii_lowercase();
    strip(wanted) == strip(found)
}

/// `max` is larger than every number.
pub(crate) fn number(text: &str) -> Option<u64> {
    if text == "max" { Some(u64::MAX) } else { text.parse().ok() }
}

pub(crate) fn cpus(text: &str) -> Option<CpuSet> {
    text.parse().ok()
}

/// The words of a mask, lowest first, without the empty ones at its upper end.
fn mask_words(text: &str) -> Option<Vec<u32>> {
    let words = text.split(',').rev().map(|word| u32::from_str_radix(word.trim(), 16).ok());
    let mut words: Vec<u32> = words.collect::<Option<_>>()?;
    while words.last() == Some(&0) {
        words.pop();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_mean_the_same_are_the_same() {
        let lowest = Form::Lowest { highest: "max".to_owned() };
        let rows = [
            (Form::Text, "performance", "performance\n", true),
            (Form::Text, "powersave", "performance", false),
            (lowest, "800000", "0800000", true),
            (Form::Highest, "x", "y", false),
            (Form::Bytes, "1000000", "999424", true),
            // Kernels with pages of 16 and 64 KiB.
            (Form::Bytes, "50196480", "50184192", true),
            (Form::Bytes, "50196480", "50135040", true),
            (Form::Bytes, "50196480", "50192384", false),
            (Form::Bytes, "50196480", "50200576", false),
            (Form::Bytes, "50196480", "50069504", false),
            (Form::Bytes, "max", "max", true),
            (Form::Bytes, "max", "50135040", false),
            (Form::Bytes, "4096", "max", false),
            (Form::CpuMax, "max", "max 100000\n", true),
            (Form::CpuMax, "max", "50000 100000", false),
            (Form::CpuMax, "50000 100000", "50000 20000", false),
            (Form::CpuMax, "max", "", false),
            (Form::Cpus, "0,1,2", "0-2", true),
            (Form::Cpus, "", "0-2", false),
            (Form::Cpus, "0-", "0-2", false),
            (Form::CpuMask, "f", "00000000,0000000f", true),
            (Form::CpuMask, "1,00000000", "00000001", false),
            (Form::CpuMask, "z", "0", false),
            (Form::Limits, "rbps=1000 wbps=max", "rbps=1000 wbps=max riops=7 wiops=max", true),
            (Form::Limits, "rbps=max", "", true),
            (Form::Limits, "rbps=1000", "", false),
            (Form::Limits, "enable=0", "", true),
            (Form::Limits, "enable=1", "enable=0 ctrl=auto", false),
            (Form::Value, "200", "default", false),
            (Form::Schemata, "0=f;1=f0", "0=0000f;1=000f0;2=fffff", true),
            (Form::Schemata, "0=f;3=f0", "0=0000f;1=000f0", false),
            (Form::Schemata, "0=10", "0= 10", true),
        ];
        for (form, wanted, found, expected) in rows {
            assert_eq!(is_same(&form, wanted, found), expected, "{form:?}: {wanted:?}, {found:?}");
        }
    }

    #[test]
    fn a_line_is_found_by_its_key() {
        let limits = "8:0 rbps=1 wbps=max riops=max wiops=max\n8:16 rbps=2\n";
        let rows = [
            (limits, "8:16", Form::Limits, Some("rbps=2")),
            (limits, "8:1", Form::Limits, Some("")),
            ("default 100\n8:16 200\n", "8:16", Form::Value, Some("200")),
            ("default 100\n", "8:16", Form::Value, Some("default")),
            ("default 100\n", "default", Form::Value, Some("100")),
            ("    L3:0=fffff;1=fffff\n    MB:0=100\n", "MB", Form::Schemata, Some("0=100")),
            ("L3:0=fffff\n", "L2", Form::Schemata, None),
        ];
        for (text, key, form, expected) in rows {
            assert_eq!(value_in(text, &Slot::line("f", key), &form), expected, "{key} {form:?}");
        }
        assert_eq!(value_in(" a b\n", &Slot::file("f"), &Form::Text), Some("a b"));
    }

    #[test]
    fn a_switch_is_read_as_a_word_and_written_as_a_number() {
        let text = |value| text_of(value, &Slot::file("f"), &Form::Switch);
        assert_eq!([text("true"), text("false")], ["1", "0"]);
        assert!(is_same(&Form::Switch, "true", "true\n"));
        assert!(!is_same(&Form::Switch, "true", "false\n"));
    }
}
