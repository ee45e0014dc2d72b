//! The line, word by word.

use std::fmt;

use bayplan_types::{Bytes, CpuSet};

use super::limits::{CPUS_MAX, SyntheticError, wrong};
use super::presets::PRESETS;

/// What a level is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pack,
    Die,
    Numa,
    L3,
    Cluster,
    L2,
    Core,
    Pu,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Pack,
        Kind::Die,
        Kind::Numa,
        Kind::L3,
        Kind::Cluster,
        Kind::L2,
        Kind::Core,
        Kind::Pu,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Pack => "pack",
            Kind::Die => "die",
            Kind::Numa => "numa",
            Kind::L3 => "l3",
            Kind::Cluster => "cluster",
            Kind::L2 => "l2",
            Kind::Core => "core",
            Kind::Pu => "pu",
        }
    }

    /// Levels that must not stand outside of this one.
    fn must_not_follow(self) -> &'static [Kind] {
        match self {
            Kind::Pack => &[Kind::Die, Kind::Cluster, Kind::L2, Kind::Core, Kind::Pu],
            Kind::Die | Kind::Numa | Kind::L3 => &[Kind::Cluster, Kind::L2, Kind::Core, Kind::Pu],
            Kind::Cluster => &[Kind::L2, Kind::Core, Kind::Pu],
            Kind::L2 => &[Kind::Core, Kind::Pu],
            Kind::Core => &[Kind::Pu],
            Kind::Pu => &[],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// CPUs, and the word that names them.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) word: String,
    pub(super) cpus: CpuSet,
}

/// What has one of something: memory nodes and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    Machine,
    Pack,
    Numa,
}

/// How many devices, and per what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Devices {
    pub(super) count: u32,
    pub(super) per: Per,
}

/// The line, understood word by word.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// From the outside in. Several counts are for one parent after the other.
    pub(super) levels: Vec<(Kind, Vec<u32>)>,
    pub(super) efficient: Option<u32>,
    pub(super) caches: Option<[Bytes; 3]>,
    pub(super) memory: Option<Bytes>,
    pub(super) hbm: Option<(Bytes, Per)>,
    pub(super) pmem: Option<(Bytes, Per)>,
    pub(super) cxl: Option<(Bytes, Per)>,
    /// The kernel may use PMEM and CXL nodes for itself.
    pub(super) is_online_kernel: bool,
    pub(super) huge_pages: Option<(Bytes, u64)>,
    pub(super) isolated: Option<Listed>,
    pub(super) nohz_full: Option<Listed>,
    pub(super) offline: Option<Listed>,
    pub(super) fast: Option<Listed>,
    pub(super) nics: Option<Devices>,
    pub(super) gpus: Option<Devices>,
    pub(super) nvmes: Option<Devices>,
    pub(super) functions: Option<u32>,
}

/// Understands a line.
pub(super) fn parse_words(spec: &str) -> Result<Words, SyntheticError> {
    let line: Vec<&str> = spec.split_whitespace().collect();
    let (first, rest) = line.split_first().ok_or(SyntheticError::Empty)?;
    let mut words = Words::default();
    match PRESETS.iter().find(|(name, _)| name == first) {
        Some((_, preset)) => {
            for word in preset.split_whitespace() {
                words.add(word)?;
            }
            words.add_all(rest.iter().copied())?;
        }
        None => words.add_all(line.iter().copied())?,
    }
    words.check(spec)?;
    Ok(words)
}

impl Words {
    /// Adds the words as written: each once, where those of a preset may be replaced.
    fn add_all<'a>(&mut self, line: impl Iterator<Item = &'a str>) -> Result<(), SyntheticError> {
        let mut keys: Vec<&str> = Vec::new();
        for word in line {
            let key = word.split_once(':').map_or(word, |(key, _)| key);
            let is_level = Kind::ALL.into_iter().any(|kind| kind.name() == key);
            if keys.contains(&key) && !is_level {
                return Err(wrong(word, "this option only once"));
            }
            keys.push(key);
            self.add(word)?;
        }
        Ok(())
    }

    fn add(&mut self, word: &str) -> Result<(), SyntheticError> {
        let Some((key, value)) = word.split_once(':') else {
            return Err(wrong(word, expected_word()));
        };
        let listed = || parse_list(word, value).map(Some);
        match key {
            "ecore" => self.efficient = Some(parse_count(word, key, value)?),
            "cache" => self.caches = Some(parse_caches(word, value)?),
            "mem" => self.memory = Some(parse_memory(word, key, value)?),
            "hbm" => self.hbm = Some(parse_node(word, key, value, Per::Numa)?),
            "pmem" => self.pmem = Some(parse_node(word, key, value, Per::Pack)?),
            "cxl" => self.cxl = Some(parse_node(word, key, value, Per::Pack)?),
            "online" => self.is_online_kernel = parse_online(word, value)?,
            "huge" => self.huge_pages = Some(parse_huge_pages(word, value)?),
            "isolated" => self.isolated = listed()?,
            "nohz_full" => self.nohz_full = listed()?,
            "offline" => self.offline = listed()?,
            "fast" => self.fast = listed()?,
            "nic" => self.nics = Some(parse_devices(word, key, value)?),
            "gpu" => self.gpus = Some(parse_devices(word, key, value)?),
            "nvme" => self.nvmes = Some(parse_devices(word, key, value)?),
            "vf" => self.functions = Some(parse_count(word, key, value)?),
            _ => self.add_level(word, key, value)?,
        }
        Ok(())
    }

    fn add_level(&mut self, word: &str, key: &str, value: &str) -> Result<(), SyntheticError> {
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == key) else {
            return Err(wrong(word, expected_word()));
        };
        let counts: Result<Vec<u32>, _> =
            value.split(',').map(|count| parse_count(word, key, count)).collect();
        let counts = counts?;
        if kind == Kind::Pu && counts.len() > 1 {
            return Err(wrong(word, "pu: with one count for all cores"));
        }
        if self.levels.iter().any(|(other, _)| *other == kind) {
            return Err(wrong(word, "each level only once"));
        }
        let outer = self.levels.iter().find(|(other, _)| kind.must_not_follow().contains(other));
        if let Some((outer, _)) = outer {
            return Err(wrong(word, format!("{kind} to stand before {outer}")));
        }
        self.levels.push((kind, counts));
        Ok(())
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.levels.iter().any(|(other, _)| *other == kind)
    }

    /// What one word cannot tell.
    fn check(&self, spec: &str) -> Result<(), SyntheticError> {
        if self.levels.is_empty() {
            return Err(wrong(spec.trim(), "at least one level, such as core:8"));
        }
        if self.functions.is_some() && self.nics.is_none() {
            return Err(wrong("vf", "nic:N as well, because virtual functions belong to one"));
        }
        if self.has(Kind::Numa) {
            return Ok(());
        }
        let memory = [
            ("mem", self.memory.is_some()),
            ("hbm", self.hbm.is_some()),
            ("pmem", self.pmem.is_some()),
            ("cxl", self.cxl.is_some()),
            ("huge", self.huge_pages.is_some()),
        ];
        match memory.iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => {
                let expected = "a level numa:N as well, because memory belongs to NUMA nodes";
                Err(wrong(key, expected))
            }
            None => Ok(()),
        }
    }
}

fn expected_word() -> String {
    let presets: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    let levels: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    format!(
        "a level ({}) with a count, an option (ecore, cache, mem, hbm, pmem, cxl, online, huge, isolated, nohz_full, offline, fast, nic, \
         gpu, nvme, vf), or as the first word one of the presets {}",
        levels.join(", "),
        presets.join(", ")
    )
}

fn parse_online(word: &str, value: &str) -> Result<bool, SyntheticError> {
    match value {
        "kernel" => Ok(true),
        "movable" => Ok(false),
        _ => Err(wrong(word, "online:kernel or online:movable")),
    }
}

fn parse_count(word: &str, key: &str, value: &str) -> Result<u32, SyntheticError> {
    match value.parse::<u32>() {
        Ok(count) if (1..=CPUS_MAX).contains(&count) => Ok(count),
        _ => Err(wrong(word, format!("{key}: with a count from 1 to {CPUS_MAX}"))),
    }
}

fn parse_per(word: &str, value: &str) -> Result<Per, SyntheticError> {
    match value {
        "machine" => Ok(Per::Machine),
        "pack" => Ok(Per::Pack),
        "numa" => Ok(Per::Numa),
        _ => Err(wrong(word, "machine, pack or numa after the /")),
    }
}

fn parse_devices(word: &str, key: &str, value: &str) -> Result<Devices, SyntheticError> {
    let (count, per) = value.split_once('/').unwrap_or((value, "pack"));
    Ok(Devices { count: parse_count(word, key, count)?, per: parse_per(word, per)? })
}

fn parse_node(
    word: &str,
    key: &str,
    value: &str,
    default: Per,
) -> Result<(Bytes, Per), SyntheticError> {
    let (size, per) = match value.split_once('/') {
        Some((size, per)) => (size, parse_per(word, per)?),
        None => (value, default),
    };
    Ok((parse_memory(word, key, size)?, per))
}

fn parse_memory(word: &str, key: &str, value: &str) -> Result<Bytes, SyntheticError> {
    let expected = || format!("{key}: with a number of GiB, or one with a suffix M, G or T");
    parse_size(value, 30).ok_or_else(|| wrong(word, expected()))
}

fn parse_caches(word: &str, value: &str) -> Result<[Bytes; 3], SyntheticError> {
    let sizes: Option<Vec<Bytes>> =
        value.split(',').map(|size| parse_size(size, 10).filter(|size| size.0 > 0)).collect();
    let sizes = sizes.and_then(|sizes| <[Bytes; 3]>::try_from(sizes).ok());
    sizes.ok_or_else(|| wrong(word, "cache: with three sizes such as 48K,2M,32M"))
}

fn parse_huge_pages(word: &str, value: &str) -> Result<(Bytes, u64), SyntheticError> {
    let parsed = value.split_once('=').and_then(|(size, count)| {
        let size = parse_size(size, 30).filter(|size| size.0 >= 1024)?;
        Some((size, count.parse().ok()?))
    });
    parsed.ok_or_else(|| wrong(word, "huge: with a size and a count, such as 2M=1024"))
}

/// A number with a suffix, or without one in units of 2^`shift` bytes. Kernel files have KiB.
fn parse_size(value: &str, shift: u32) -> Option<Bytes> {
    let suffixes = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let suffixed =
        suffixes.iter().find_map(|(suffix, shift)| Some((value.strip_suffix(*suffix)?, *shift)));
    let (number, shift) = suffixed.unwrap_or((value, shift));
    let number = number.parse::<u64>().ok().filter(|number| *number <= u64::MAX >> shift)?;
    Some(Bytes(number << shift))
}

fn parse_list(word: &str, value: &str) -> Result<Listed, SyntheticError> {
    let cpus = value
        .parse()
        .map_err(|error| wrong(word, format!("a list of CPUs such as 2-3,8 ({error})")))?;
    Ok(Listed { word: word.to_owned(), cpus })
}
