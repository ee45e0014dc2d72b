//! A moment of the past. In: the entries of one segment of the history, which begins with everything that was there. Out: the map
//! after one of them.
//!
//! Entries tell where each container went. What shared containers could run on is no entry's to tell: it is what their pool has, less
//! what others hold, so it is computed by the pools of the machine and the configuration of that time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bayplan_allocator::Pools;
use bayplan_allocator::policy::surviving_pools;
use bayplan_host::history::{Reader, segments};
use bayplan_host::parse_recorded_machine;
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::parse_config;
use crate::live_map::view::{FORMAT, MapContainer, MapGroup, MapPool, MapView};
use bayplan_node::history::{ContainerNames, Entry, Kind, MachineForm, Place, parse_entries};
use bayplan_node::mode::Mode;

/// The pool's name of containers on the reserved CPUs.
const RESERVED: &str = "reserved";

/// An entry by its segment and its place in it: `3.17`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(crate) segment: u64,
    pub(crate) index: usize,
}

impl EntryId {
    /// `None`: it is no such text.
    pub(crate) fn parse(text: &str) -> Option<EntryId> {
        let (segment, index) = text.split_once('.')?;
        Some(EntryId { segment: segment.parse().ok()?, index: index.parse().ok()? })
    }
}

impl Serialize for EntryId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.segment, self.index)
    }
}

/// An entry in short; format `bayplan-past/1` is a list of these, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PastEntry {
    pub(crate) id: EntryId,
    pub(crate) at: Timestamp,
    pub(crate) kind: &'static str,
    /// `namespace/pod/container`; empty where it is about the node.
    pub(crate) name: String,
    pub(crate) why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Place>,
}

/// Some of the history.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PastList {
    pub(crate) format: &'static str,
    /// There are older ones; of those after an entry, some between that and these.
    pub(crate) has_more: bool,
    pub(crate) entries: Vec<PastEntry>,
}

impl PastList {
    /// The last `count` of them that came after an entry. With `after`, there are more where some between that entry and these are left out.
    pub(crate) fn told(&self, after: Option<EntryId>, count: usize, sight: Sight) -> PastList {
        let first = self.entries.partition_point(|it| Some(it.id) <= after);
        let last = self.entries.len().saturating_sub(count);
        let entries = self.entries.iter().skip(first.max(last));
        PastList {
            format: self.format,
            has_more: last > first || (first == 0 && self.has_more),
            entries: entries.map(|it| it.told(sight)).collect(),
        }
    }
}

impl PastEntry {
    fn told(&self, sight: Sight) -> PastEntry {
        let why = match sight {
            Sight::WithoutAnnotations if self.kind == Kind::Refused.name() => {
                "refused; `bayplan explain` on the node says why".to_owned()
            }
            _ => self.why.clone(),
        };
        PastEntry { why, ..self.clone() }
    }
}

/// What a reader may see of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Everything.
    All,
    /// No sentence that may repeat what a pod says in annotations.
    WithoutAnnotations,
}

fn numbered(dir: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
    let paths = segments(dir)?.into_iter();
    Ok(paths.filter_map(|path| Some((number(&path)?, path))).collect())
}

fn read_segment(path: &Path) -> std::io::Result<Vec<Entry>> {
    let pieces = Reader::new(path).read(true)?;
    Ok(pieces.iter().flat_map(|piece| parse_entries(&piece.recovered.records).0).collect())
}

/// At most so many entries before one, or the last ones, with all that they say. Entries that only repeat what holds are left out.
///
/// # Errors
/// The history cannot be read.
pub(crate) fn list(dir: &Path, before: Option<EntryId>, count: usize) -> std::io::Result<PastList> {
    let mut found: Vec<PastEntry> = Vec::new();
    for (segment, path) in numbered(dir)?.into_iter().rev() {
        if before.is_some_and(|before| segment > before.segment) {
            continue;
        }
        let entries = read_segment(&path)?.into_iter().enumerate().rev();
        let entries = entries.map(|(index, entry)| (EntryId { segment, index }, entry));
        let wanted = entries.filter(|(id, entry)| {
            before.is_none_or(|before| *id < before) && !entry.kind.is_bookkeeping()
        });
        found.extend(wanted.map(|(id, entry)| short(id, entry)));
        if found.len() > count {
            break;
        }
    }
    let has_more = found.len() > count;
    found.truncate(count);
    found.reverse();
    Ok(PastList { format: "bayplan-past/1", has_more, entries: found })
}

fn short(id: EntryId, entry: Entry) -> PastEntry {
    PastEntry {
        id,
        at: entry.at,
        kind: entry.kind.name(),
        name: entry.who.as_ref().map(ContainerNames::full_name).unwrap_or_default(),
        why: entry.why,
        before: entry.before,
        after: entry.after,
    }
}

/// The map after an entry; `None`: there is no such entry any more.
///
/// # Errors
/// The history cannot be read.
pub(crate) fn map_at(dir: &Path, id: EntryId) -> std::io::Result<Option<MapView>> {
    Ok(moment_at(dir, id)?.map(|moment| moment.view(id)))
}

/// The machine after an entry; `None`: there is no such entry any more, or it does not say which machine.
///
/// # Errors
/// The history cannot be read.
pub(crate) fn machine_at(dir: &Path, id: EntryId) -> std::io::Result<Option<Topology>> {
    Ok(moment_at(dir, id)?.and_then(|moment| moment.topology()))
}

fn moment_at(dir: &Path, id: EntryId) -> std::io::Result<Option<Moment>> {
    let found = numbered(dir)?.into_iter().find(|(segment, _)| *segment == id.segment);
    let Some((_, path)) = found else { return Ok(None) };
    let entries = read_segment(&path)?;
    Ok((id.index < entries.len()).then(|| Moment::after(entries.into_iter().take(id.index + 1))))
}

/// A container as entries have told of it.
#[derive(Debug)]
struct Held {
    who: ContainerNames,
    asked: String,
    place: Place,
}

/// What entries have told.
#[derive(Debug, Default)]
struct Moment {
    at: Timestamp,
    machine: Option<MachineForm>,
    /// The configuration, in YAML.
    config: String,
    /// CPUs for system pods as they were in use; `None`: an older history, which does not tell.
    reserved: Option<String>,
    mode: Mode,
    /// By the ledger's id.
    containers: BTreeMap<u64, Held>,
}

impl Moment {
    fn after(entries: impl Iterator<Item = Entry>) -> Moment {
        let mut moment = Moment::default();
        entries.for_each(|entry| moment.learn(entry));
        moment
    }

    fn learn(&mut self, entry: Entry) {
        self.at = entry.at;
        if let Some(mode) = entry.mode() {
            self.mode = mode;
        }
        if let Some(machine) = entry.machine {
            self.reserved.clone_from(&machine.reserved);
            self.machine = Some(*machine);
        }
        if let Some(node) = entry.node {
            self.config = node.config;
            self.reserved = node.reserved;
            self.mode = node.mode;
            self.containers.retain(|id, _| node.live.contains(id));
        }
        let Some((id, who)) = entry.who.and_then(|who| Some((who.id?, who))) else { return };
        if entry.kind == Kind::Ended {
            self.containers.remove(&id);
        } else if let Some(place) = entry.after {
            let before = self.containers.remove(&id).map(|it| it.asked).unwrap_or_default();
            let asked = if entry.asked.is_empty() { before } else { entry.asked };
            self.containers.insert(id, Held { who, asked, place });
        }
    }

    fn topology(&self) -> Option<Topology> {
        parse_recorded_machine(self.machine.as_ref()?.files.as_ref()?).ok()
    }

    /// The pools of the time; `None` where machine or configuration are not known.
    fn pools(&self) -> Option<Pools> {
        let config = parse_config(Path::new("the configuration in the history"), &self.config);
        let config = config.ok()?;
        let (topology, division) = (self.topology()?, config.division());
        let reserved = match &self.reserved {
            Some(cpus) => set(cpus),
            None => division.reserved_on(&topology),
        };
        Some(surviving_pools(&division.machine(&topology), division.policy, &reserved))
    }

    /// CPUs of groups by name, as their members were told; those of a group without members are not known.
    fn groups(&self) -> BTreeMap<String, CpuSet> {
        let mut groups = BTreeMap::<String, CpuSet>::new();
        for place in self.containers.values().map(|it| &it.place).filter(|it| it.is_in_group()) {
            let cpus = set(&place.cpus).union(&set(&place.own));
            let group = groups.entry(place.group.clone()).or_default();
            *group = group.union(&cpus);
        }
        groups
    }

    fn view(&self, id: EntryId) -> MapView {
        let pools = self.pools();
        let owns = self.containers.values().map(|held| set(&held.place.own));
        let groups = self.groups();
        let taken = owns.chain(groups.values().cloned());
        let taken = taken.fold(CpuSet::new(), |all, own| all.union(&own));
        let shared_of = |cpus: &CpuSet| match &pools {
            Some(pools) => {
                cpus.difference(pools.reserved()).difference(pools.isolated()).difference(&taken)
            }
            None => cpus.difference(&taken),
        };
        let map_pool = |pool: &bayplan_allocator::Pool| MapPool {
            name: pool.name.clone(),
            cpus: pool.cpus.to_string(),
            shared: shared_of(&pool.cpus).to_string(),
        };
        let mut containers: Vec<MapContainer> =
            self.containers.values().map(|held| held.view(pools.as_ref(), &shared_of)).collect();
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        MapView {
            format: FORMAT,
            at: self.at,
            entry: Some(id.to_string()),
            what_if: None,
            what_if_at: None,
            mode: self.mode.name().to_owned(),
            fingerprint: self.machine.as_ref().map(|it| it.fingerprint.clone()),
            reserved: pools.as_ref().map(|it| it.reserved().to_string()).unwrap_or_default(),
            isolated: pools.as_ref().map(|it| it.isolated().to_string()).unwrap_or_default(),
            idle: String::new(),
            closed: String::new(),
            lent: String::new(),
            pools: pools.iter().flat_map(Pools::iter).map(map_pool).collect(),
            groups: groups.into_iter().map(map_group).collect(),
            containers,
        }
    }
}

fn map_group((name, cpus): (String, CpuSet)) -> MapGroup {
    MapGroup { name, cpus: cpus.to_string(), shared: cpus.to_string() }
}

impl Held {
    fn view(&self, pools: Option<&Pools>, shared_of: &dyn Fn(&CpuSet) -> CpuSet) -> MapContainer {
        let place = &self.place;
        let is_reserved = place.pool == RESERVED;
        let is_exclusive = !place.own.is_empty();
        let pool = pools.and_then(|pools| pools.named(&place.pool));
        let cpus = match (pools, pool) {
            (Some(pools), _) if is_reserved => pools.reserved().to_string(),
            (_, Some(pool)) if !is_exclusive && !place.is_in_group() => {
                shared_of(&pool.cpus).to_string()
            }
            _ => place.cpus.clone(),
        };
        let class = match (is_exclusive, is_reserved) {
            (true, _) => "exclusive",
            (false, true) => RESERVED,
            (false, false) => "shared",
        };
        MapContainer {
            name: self.who.full_name(),
            qos: self.who.qos.clone().unwrap_or_default(),
            class: class.to_owned(),
            asked: self.asked.clone(),
            own: place.own.clone(),
            cpus,
            mems: place.mems.clone(),
            pool: place.pool.clone(),
            group: place.group.clone(),
            ..MapContainer::default()
        }
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};
    use tempfile::TempDir;

    use super::*;
    use bayplan_host::render_machine;

    /// `placed 1 web numa 0 4-5` and so on: what happened, the ledger's id, a name, the pool, its own CPUs.
    fn entry(line: &str) -> Entry {
        let words: Vec<&str> = line.split(' ').collect();
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == words[0]).unwrap();
        let who = serde_json::from_value(serde_json::json!({
            "id": words[1].parse::<u64>().unwrap(), "namespace": "n", "pod": words[2], "container": "c", "attempt": 0,
        }));
        let place = |own: &&str| Place {
            pool: words[3].replace('_', " "),
            own: (*own).to_owned(),
            cpus: (*own).to_owned(),
            ..Place::default()
        };
        let after = words.get(4).map(place);
        Entry { who: Some(who.unwrap()), after, why: "told".to_owned(), ..Entry::new(kind) }
    }

    fn opening(spec: &str) -> Vec<Entry> {
        let snapshot = parse_machine(spec).unwrap();
        let machine = MachineForm {
            fingerprint: format!("{:016x}", derive(&snapshot).unwrap().fingerprint()),
            cpus: String::new(),
            files: Some(render_machine(&snapshot)),
            reserved: None,
        };
        let node = serde_json::json!({"version": "1", "config": "reservedCpus: 0", "live": []});
        let node = Some(serde_json::from_value(node).unwrap());
        vec![
            Entry { machine: Some(Box::new(machine)), ..Entry::new(Kind::Machine) },
            Entry { node, ..Entry::new(Kind::Started) },
        ]
    }

    fn written(lines: &[&str]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let entries = opening("pack:1 numa:2 core:4 mem:16").into_iter();
        let entries = entries.chain(lines.iter().map(|line| entry(line)));
        let records: Vec<String> =
            entries.map(|entry| serde_json::to_string(&entry).unwrap()).collect();
        let (mut history, _) = bayplan_host::history::History::open(dir.path(), 1 << 20);
        history.begin(&records).unwrap();
        dir
    }

    /// What is where after the last of these.
    #[track_caller]
    fn check(lines: &[&str], expected: Expect) {
        let dir = written(lines);
        let id = EntryId { segment: 1, index: lines.len() + 1 };
        let map = map_at(dir.path(), id).unwrap().unwrap();
        let mut text = format!("reserved {}\n", map.reserved);
        for it in &map.containers {
            text.push_str(&format!(
                "{} {} own {} runs on {}\n",
                it.name, it.class, it.own, it.cpus
            ));
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn what_was_where_is_told_by_entries_and_pools() {
        check(
            &[],
            expect![[r#"
                reserved 0
            "#]],
        );
        check(
            &["placed 1 web numa_0 2-3", "placed 2 log numa_0 ", "placed 3 dns reserved "],
            expect![[r#"
                reserved 0
                n/dns/c reserved own  runs on 0
                n/log/c shared own  runs on 1
                n/web/c exclusive own 2-3 runs on 2-3
            "#]],
        );
        // What an exclusive container gives back is shared again.
        check(
            &["placed 1 web numa_0 2-3", "placed 2 log numa_0 ", "ended 1 web"],
            expect![[r#"
                reserved 0
                n/log/c shared own  runs on 1-3
            "#]],
        );
        check(
            &["placed 1 web numa_0 2-3", "moved 1 web numa_1 6-7"],
            expect![[r#"
                reserved 0
                n/web/c exclusive own 6-7 runs on 6-7
            "#]],
        );
    }

    /// Issue 34: those of an amount were the lowest, whichever had been chosen.
    #[test]
    fn reserved_cpus_of_the_past_are_those_that_were_in_use() {
        let line = "pack:1 numa:2 core:4 mem:16";
        let node = |cpus: Option<&str>| {
            let node = serde_json::json!({
                "version": "1", "config": "reservedCpus: 2 CPUs", "live": [], "reserved": cpus,
            });
            let node = Some(serde_json::from_value(node).unwrap());
            Entry { node, ..Entry::new(Kind::Configured) }
        };
        let machine = |cpus: &str| {
            let mut entry = opening(line).swap_remove(0);
            entry.machine.as_mut().unwrap().reserved = Some(cpus.to_owned());
            entry
        };
        for (last, expected) in [
            (vec![node(None)], "0-1"),
            (vec![node(Some("2-3"))], "2-3"),
            (vec![node(Some("2-3")), machine("3-4")], "3-4"),
        ] {
            let entries = opening(line).into_iter().chain(last);
            let view = Moment::after(entries).view(EntryId { segment: 1, index: 4 });
            assert_eq!(view.reserved, expected);
        }
    }

    #[test]
    fn groups_have_the_cpus_of_their_members() {
        let member = |line: &str, cpus: &str| {
            let mut entry = entry(line);
            let after = entry.after.as_mut().unwrap();
            (after.group, after.cpus) = ("web[0]".to_owned(), cpus.to_owned());
            entry
        };
        let entries = opening("pack:1 numa:2 core:4 mem:16").into_iter();
        let entries = entries.chain([
            member("placed 1 a numa_0 ", "2"),
            entry("placed 2 log numa_0 "),
            member("moved 1 a numa_0 ", "2-3"),
        ]);
        let view = Moment::after(entries).view(EntryId { segment: 1, index: 4 });
        let groups: Vec<(&str, &str)> =
            view.groups.iter().map(|it| (it.name.as_str(), it.cpus.as_str())).collect();
        assert_eq!(groups, [("web[0]", "2-3")]);
        let cpus: Vec<(&str, &str)> =
            view.containers.iter().map(|it| (it.name.as_str(), it.cpus.as_str())).collect();
        assert_eq!(cpus, [("n/a/c", "2-3"), ("n/log/c", "1")]);
    }

    #[test]
    fn entries_are_listed_from_the_newest_back() {
        let dir = written(&["placed 1 a numa_0 2", "placed 2 b numa_0 3", "refused 3 c machine"]);
        let ids = |list: &PastList| -> Vec<String> {
            list.entries.iter().map(|it| format!("{} {}", it.id, it.name)).collect()
        };
        let told = |before, count, sight| {
            let found = list(dir.path(), before, count).unwrap();
            found.told(None, count, sight)
        };
        let last = told(None, 2, Sight::All);
        assert_eq!(
            (ids(&last), last.has_more),
            (vec!["1.3 n/b/c".into(), "1.4 n/c/c".into()], true)
        );
        assert_eq!(last.entries[1].why, "told");
        let rest = told(Some(last.entries[0].id), 9, Sight::WithoutAnnotations);
        assert_eq!(ids(&rest), ["1.0 ", "1.1 ", "1.2 n/a/c"]);
        assert!(!rest.has_more);
        let last = told(None, 1, Sight::WithoutAnnotations);
        assert_ne!(last.entries[0].why, "told");
    }

    /// Of entries 1.1 to 1.4, before which there may be more: those after one, at most so many, and whether some in between are left out.
    #[test]
    fn a_page_is_told_what_came_after_the_entry_that_it_has() {
        let entry = |index| PastEntry { id: EntryId { segment: 1, index }, ..PastEntry::default() };
        for (after, count, has_older, expected) in [
            (None, 9, false, (vec![1, 2, 3, 4], false)),
            (None, 9, true, (vec![1, 2, 3, 4], true)),
            (None, 2, false, (vec![3, 4], true)),
            (Some("1.2"), 9, true, (vec![3, 4], false)),
            (Some("1.2"), 1, true, (vec![4], true)),
            (Some("1.4"), 9, true, (vec![], false)),
            (Some("2.0"), 9, true, (vec![], false)),
            (Some("1.0"), 9, false, (vec![1, 2, 3, 4], false)),
            (Some("1.0"), 9, true, (vec![1, 2, 3, 4], true)),
        ] {
            let entries = (1..=4).map(entry).collect();
            let all = PastList { format: "", has_more: has_older, entries };
            let after = after.map(|text| EntryId::parse(text).unwrap());
            let found = all.told(after, count, Sight::All);
            let ids: Vec<usize> = found.entries.iter().map(|it| it.id.index).collect();
            assert_eq!((ids, found.has_more), expected, "{after:?} {count} {has_older}");
        }
    }

    #[test]
    fn what_is_no_entry_is_not_found() {
        let dir = written(&[]);
        for (text, is_there) in [("1.0", true), ("1.1", true), ("1.2", false), ("2.0", false)] {
            let id = EntryId::parse(text).unwrap();
            assert_eq!(map_at(dir.path(), id).unwrap().is_some(), is_there, "{text}");
        }
        for text in ["", "1", "1.x", "-1.0", "1.2.3"] {
            assert_eq!(EntryId::parse(text), None, "{text}");
        }
    }
}
