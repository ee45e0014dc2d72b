//! Loads the probes, tells them which cgroups to watch, and reads what they have counted.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Read as _;
use std::time::Instant;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::{Btf, BtfError, Ebpf, EbpfLoader, include_bytes_aligned};
use bayplan_topology::Topology;
use bayplan_types::{CpuId, CpuSet};

use crate::audit::Audit;
use crate::counting::Counting;
use crate::places::derive_places;
use crate::pmu::{Absence, Pmu};
use crate::programs::Programs;
use crate::records::{
    CountersRecord, IntruderRecord, IntrusionRecord, PlaceRecord, SLOT_OUTSIDE, SettingsRecord,
    UnnamedRecord,
};
use crate::refusal::{Surroundings, judge};
use crate::{
    CgroupId, Cost, CounterChoice, CounterStream, Counters, EventCounts, Intrusion, Intrusions,
    Refusal,
};

/// The compiled probes, see `bpf/build`.
static OBJECT: &[u8] = include_bytes_aligned!(env!("BAYPLAN_BPF_OBJECT"));

/// The name of the probe that reads processors' counters.
const COUNTERS: &str = "counters";
/// Containers that can be watched, and one slot for all other tasks (`bpf/maps.h`).
const SLOTS: u32 = 1024;
/// Intruders that the kernel's map has room for at least (`bpf/maps.h`), and for each CPU: softirqs, timers, a kernel thread of each kind and some processes,
/// until they are taken out.
const INTRUDERS: u32 = 4096;
const INTRUDERS_PER_CPU: u32 = 64;

/// Probes that count.
pub struct Probes {
    programs: Programs,
    maps: Maps,
    /// `None` where no events are counted.
    counting: Option<Counting>,
    /// The counter probe's row of the table; `None` where it is not wanted.
    counter_row: Option<Probe>,
    /// Possible CPUs of the machine, online or not.
    cpus: u32,
    watched: BTreeMap<CgroupId, Watched>,
    owners: BTreeMap<CpuId, CgroupId>,
    generation: u64,
    outside: Counters,
    audit: Audit,
    /// CPUs that have an owner or had one.
    audited: BTreeSet<CpuId>,
}

/// A container.
struct Watched {
    slot: u32,
    /// At the last drain.
    counters: Counters,
    /// What the kernel has counted.
    stream: CounterStream,
}

/// Everything that was counted, since each container is watched.
#[derive(Clone, Debug)]
pub struct Drain {
    /// When it was read.
    pub at: Instant,
    /// By the cgroup that is watched.
    pub containers: BTreeMap<CgroupId, Counters>,
    /// Events by the cgroup that is watched; empty where none are counted.
    pub events: BTreeMap<CgroupId, EventCounts>,
    /// Those of all other tasks. [`crate::Preempter::Itself`] is another of them there.
    pub outside: Counters,
    /// What else ran on CPUs that a container owns.
    pub intrusions: Intrusions,
    /// Of them the intruders that the kernel had no room to name, on all CPUs together since the probes were attached. On a CPU that changes hands
    /// they are in no owner's sum for the time since the last reading.
    pub unnamed: Intrusion,
}

/// One row of the probe table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `scheduler`, `migrations`, `interrupts`, `vectors`, `counters`.
    pub name: &'static str,
    /// What it counts.
    pub counts: &'static str,
    /// Whether it does.
    pub state: ProbeState,
}

/// Whether a probe counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// It does.
    Attached,
    /// It will, as soon as a container owns CPUs.
    Waiting,
    /// The machine has nothing that it could count.
    Unsupported(Refusal),
    /// It cannot.
    Refused(Refusal),
}

impl ProbeState {
    /// Every name that [`ProbeState::name`] gives.
    pub const NAMES: [&str; 4] = ["attached", "waiting", "unsupported", "refused"];

    /// As it stands in labels.
    pub fn name(&self) -> &'static str {
        match self {
            ProbeState::Attached => "attached",
            ProbeState::Waiting => "waiting",
            ProbeState::Unsupported(_) => "unsupported",
            ProbeState::Refused(_) => "refused",
        }
    }

    /// Why it does not count, of one that cannot.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            ProbeState::Attached | ProbeState::Waiting => None,
            ProbeState::Unsupported(refusal) | ProbeState::Refused(refusal) => Some(refusal),
        }
    }
}

/// A conversation with the kernel that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
pub struct ProbeError {
    /// What was tried, such as `read the counters of cgroup 12`.
    pub doing: String,
    #[source]
    source: Box<dyn Error + Send + Sync>,
}

/// What both sides share, see `bpf/maps.h`.
struct Maps {
    containers: HashMap<MapData, u64, u32>,
    slots: PerCpuArray<MapData, CountersRecord>,
    settings: Array<MapData, SettingsRecord>,
    places: Array<MapData, PlaceRecord>,
    owners: Array<MapData, u64>,
    intrusions: HashMap<MapData, IntruderRecord, IntrusionRecord>,
    unnamed: Array<MapData, UnnamedRecord>,
}

/// A loader, and the kernel's types, which are some 20 MiB in many pieces. They are read on a thread of its own, because the allocator keeps what a thread allocates
/// together: when they are dropped nothing that stays lies among them, and the memory goes back to the kernel.
fn read_types() -> (EbpfLoader<'static>, Result<Btf, BtfError>) {
    let read = || {
        let mut loader = EbpfLoader::new();
        // It has read them, too. Twice at the same time is not needed.
        loader.btf(None);
        (loader, Btf::from_sys_fs())
    };
    // Where there is no thread, they are read here.
    std::thread::Builder::new()
        .name("probes-types".to_owned())
        .spawn(read)
        .ok()
        .and_then(|thread| thread.join().ok())
        .unwrap_or_else(read)
}

impl Probes {
    /// Loads and attaches the probes, with the places of `topology` and the counters of `choice` where they can be had. No cgroup is watched yet.
    ///
    /// # Errors
    /// A [`Refusal`] when switches cannot be counted. What else cannot is in [`Probes::table`].
    pub fn attach(topology: &Topology, choice: CounterChoice) -> Result<Probes, Refusal> {
        let row = |state| Probe { name: COUNTERS, counts: choice.counts(), state };
        let counted = match choice {
            CounterChoice::Off => None,
            wanted => Some(match Pmu::find(wanted, &read_online()) {
                Ok(pmu) => Probes::load(topology, Some(pmu)).map_err(Absence::Refused),
                Err(absence) => Err(absence),
            }),
        };
        match counted {
            Some(Ok(mut probes)) => {
                probes.counter_row = Some(row(ProbeState::Attached));
                Ok(probes)
            }
            // The others do without.
            counted => {
                let mut probes = Probes::load(topology, None)?;
                let absence = counted.and_then(Result::err);
                probes.counter_row = absence.map(|absence| {
                    row(match absence {
                        Absence::Unsupported(refusal) => ProbeState::Unsupported(refusal),
                        Absence::Refused(refusal) => ProbeState::Refused(refusal),
                    })
                });
                Ok(probes)
            }
        }
    }

    fn load(topology: &Topology, pmu: Option<Pmu>) -> Result<Probes, Refusal> {
        let surroundings = Surroundings::read();
        let refuse =
            |doing: &str, error: &(dyn Error + 'static)| judge(doing, error, &surroundings);
        let wanted = pmu.as_ref().map_or(0, |pmu| u32::try_from(pmu.events.len()).unwrap_or(0));
        let (mut loader, btf) = read_types();
        let btf = btf.map_err(|error| refuse("reading /sys/kernel/btf/vmlinux", &error))?;
        let cpus = aya::util::nr_cpus()
            .map_err(|(path, error)| refuse(&format!("reading {path}"), &error))?;
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        loader.btf(Some(&btf)).allow_unsupported_maps();
        for by_cpu in ["places", "owners", "unnamed"] {
            loader.map_max_entries(by_cpu, cpus);
        }
        loader.map_max_entries("intrusions", INTRUDERS.max(cpus.saturating_mul(INTRUDERS_PER_CPU)));
        if wanted > 0 {
            loader.map_max_entries("events", SLOTS);
        }
        loader.override_global("events_wanted", &wanted, true);
        let mut object = loader.load(OBJECT).map_err(|error| refuse("making the maps", &error))?;
        let maps = Maps::take(&mut object).map_err(|error| refuse("opening the maps", &error))?;
        let counting = pmu.map(|pmu| Counting::take(&mut object, pmu, cpus)).transpose();
        let mut counting = counting.map_err(|error| refuse("opening the maps", &error))?;
        if let Some(counting) = &mut counting {
            // Before the counters are read.
            counting
                .follow(&read_online())
                .map_err(|error| refuse("handing over counters", &error))?;
        }
        let mut programs = Programs::attach(object, &btf, &surroundings)?;
        if counting.is_some() {
            programs.load_look_at_events()?;
        }
        let mut probes = Probes {
            programs,
            maps,
            counting,
            counter_row: None,
            cpus,
            watched: BTreeMap::new(),
            owners: BTreeMap::new(),
            generation: 0,
            outside: Counters::default(),
            audit: Audit::default(),
            audited: BTreeSet::new(),
        };
        probes.place(topology).map_err(|error| refuse("filling the table of places", &error))?;
        Ok(probes)
    }

    /// The machine has changed: distances are told by `topology` from now on.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel does not take it.
    pub fn place(&mut self, topology: &Topology) -> Result<(), ProbeError> {
        for (cpu, place) in (0..).zip(derive_places(topology, self.cpus)) {
            let set = self.maps.places.set(cpu, place, 0);
            set.map_err(failed(|| format!("write the place of CPU {cpu}")))?;
        }
        if let Some(counting) = &mut self.counting {
            let followed = counting.follow(&read_online());
            followed.map_err(failed(|| "open counters on CPUs that came online".to_owned()))?;
        }
        Ok(())
    }

    /// Watches these cgroups from now on, with those below them, and no others; of more than 1,023 the rest is left out; with each the CPUs that it owns. What is not watched any more
    /// is forgotten; what goes on being watched goes on to count.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel does not take it; calling again tries again what is missing.
    pub fn watch(&mut self, containers: &BTreeMap<CgroupId, CpuSet>) -> Result<(), ProbeError> {
        let mut owners = BTreeMap::new();
        for (id, cpus) in containers {
            owners.extend(cpus.iter().map(|cpu| (cpu, *id)));
        }
        owners.retain(|cpu, _| cpu.0 < self.cpus);
        if owners != self.owners {
            self.change_owners(owners)?;
        }
        let gone: Vec<CgroupId> =
            self.watched.keys().filter(|id| !containers.contains_key(id)).copied().collect();
        let new: Vec<CgroupId> =
            containers.keys().filter(|id| !self.watched.contains_key(id)).copied().collect();
        if !(gone.is_empty() && new.is_empty()) {
            // What has come so far is for the containers that have the slots now.
            self.look_at_events()?;
        }
        // Slots are used again only when no task is charged to them any more.
        for id in &gone {
            self.forget(*id)?;
        }
        if !gone.is_empty() {
            self.have_containers_found_anew()?;
        }
        self.audit.retain(|owner| containers.contains_key(&owner));
        if new.is_empty() {
            return Ok(());
        }
        // A container for which there is no slot is not watched; the others are.
        let room = (self.maps.slots.len() as usize).saturating_sub(self.watched.len() + 1);
        let begun = new.iter().take(room).try_for_each(|id| self.begin(*id));
        begun.and(self.have_containers_found_anew())
    }

    /// Reads everything that was counted, tasks that are running at this moment included. `now` is the moment.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel does not answer.
    pub fn drain(&mut self, now: Instant) -> Result<Drain, ProbeError> {
        self.look_at_tasks()?;
        let slots = self.watched.values_mut().map(|it| (it.slot, &mut it.counters));
        for (slot, counters) in slots.chain([(SLOT_OUTSIDE, &mut self.outside)]) {
            let read = self.maps.slots.get(&slot, 0);
            let cpus = read.map_err(failed(|| format!("read the counters of slot {slot}")))?;
            counters.rise_to(Counters::sum(cpus.iter()));
        }
        self.absorb_events()?;
        self.absorb_intrusions()?;
        Ok(Drain {
            at: now,
            containers: self.watched.iter().map(|(id, it)| (*id, it.counters.clone())).collect(),
            events: match self.counting {
                Some(_) => {
                    self.watched.iter().map(|(id, it)| (*id, it.stream.counts().clone())).collect()
                }
                None => BTreeMap::new(),
            },
            outside: self.outside.clone(),
            intrusions: self.audit.intrusions(),
            unnamed: self.audit.unnamed(),
        })
    }

    /// What counts, and what does not and why.
    pub fn table(&self) -> Vec<Probe> {
        self.programs.table().into_iter().chain(self.counter_row.clone()).collect()
    }

    /// The table where nothing could be attached.
    pub fn table_of_refused(refusal: &Refusal, choice: CounterChoice) -> Vec<Probe> {
        let mut table = Programs::table_of_refused(refusal);
        if choice != CounterChoice::Off {
            let state = ProbeState::Refused(refusal.clone());
            table.push(Probe { name: COUNTERS, counts: choice.counts(), state });
        }
        table
    }

    /// What each program has cost while a [`crate::Meter`] was there.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel does not answer.
    pub fn costs(&self) -> Result<Vec<Cost>, ProbeError> {
        self.programs.costs().map_err(failed(|| "read what programs cost".to_owned()))
    }

    /// Attaches a program that does nothing at every switch, called `nothing`, so that [`Probes::costs`] tells what being called costs.
    ///
    /// # Errors
    /// A [`Refusal`] when the kernel does not take it.
    pub fn attach_nothing(&mut self) -> Result<(), Refusal> {
        let refuse = |error: &(dyn Error + 'static)| {
            judge("attaching nothing", error, &Surroundings::read())
        };
        let (_, btf) = read_types();
        let btf = btf.map_err(|error| refuse(&error))?;
        self.programs.attach_nothing(&btf).map_err(|error| refuse(&*error))
    }

    /// How many cgroups and intruders the kernel's maps hold.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel does not answer.
    pub fn entries(&self) -> Result<(usize, usize), ProbeError> {
        let containers = self.maps.containers.keys().collect::<Result<BTreeSet<_>, _>>();
        let intruders = self.maps.intrusions.keys().collect::<Result<BTreeSet<_>, _>>();
        let count = || "count entries".to_owned();
        Ok((containers.map_err(failed(count))?.len(), intruders.map_err(failed(count))?.len()))
    }

    /// Charges what was counted so far to the containers that owned the CPUs and go on to do so, and then changes the owners. What was counted on
    /// CPUs that change hands is charged to no container: the next owner may have been there already, and rightly.
    fn change_owners(&mut self, owners: BTreeMap<CpuId, CgroupId>) -> Result<(), ProbeError> {
        let had = self.owners.clone();
        if !had.is_empty() {
            self.look_at_tasks()?;
            self.owners.retain(|cpu, owner| owners.get(cpu) == Some(owner));
            self.absorb_intrusions()?;
        }
        let cpus: BTreeSet<CpuId> = had.keys().chain(owners.keys()).copied().collect();
        for cpu in cpus {
            if had.get(&cpu) != owners.get(&cpu) {
                let owner = owners.get(&cpu).map_or(0, |id| id.0);
                let set = self.maps.owners.set(cpu.0, owner, 0);
                set.map_err(failed(|| format!("write the owner of CPU {}", cpu.0)))?;
            }
        }
        self.audited.extend(owners.keys());
        self.owners = owners;
        self.programs.watch_interrupts(!self.owners.is_empty());
        Ok(())
    }

    fn begin(&mut self, id: CgroupId) -> Result<(), ProbeError> {
        let taken: BTreeSet<u32> = self.watched.values().map(|it| it.slot).collect();
        let free = (SLOT_OUTSIDE + 1..self.maps.slots.len()).find(|slot| !taken.contains(slot));
        let full = || failed(|| format!("watch cgroup {}", id.0))("as many as can be are watched");
        let slot = free.ok_or_else(full)?;
        let zero = PerCpuValues::try_from(vec![[0; 32]; self.cpus as usize]);
        let zero = zero.map_err(failed(|| "make counters".to_owned()))?;
        let cleared = self.maps.slots.set(slot, zero, 0);
        cleared.map_err(failed(|| format!("clear slot {slot}")))?;
        if let Some(counting) = &mut self.counting {
            counting.clear(slot).map_err(failed(|| format!("clear the events of slot {slot}")))?;
        }
        let put = self.maps.containers.insert(id.0, slot, 0);
        put.map_err(failed(|| format!("watch cgroup {}", id.0)))?;
        let events = self.counting.as_ref().map_or(&[][..], Counting::events);
        let (counters, stream) = (Counters::default(), CounterStream::new(events));
        self.watched.insert(id, Watched { slot, counters, stream });
        Ok(())
    }

    fn forget(&mut self, id: CgroupId) -> Result<(), ProbeError> {
        match self.maps.containers.remove(&id.0) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(failed(|| format!("forget cgroup {}", id.0))(error)),
        }
        self.watched.remove(&id);
        Ok(())
    }

    /// Tasks remember in which container they are until this number changes.
    fn have_containers_found_anew(&mut self) -> Result<(), ProbeError> {
        self.generation += 1;
        let read = self.maps.settings.get(&0, 0);
        let [since, _] = read.map_err(failed(|| "read the settings".to_owned()))?;
        let set = self.maps.settings.set(0, [since, self.generation], 0);
        set.map_err(failed(|| "write the settings".to_owned()))
    }

    fn absorb_intrusions(&mut self) -> Result<(), ProbeError> {
        let read = self.maps.intrusions.iter().collect::<Result<Vec<_>, _>>();
        let read = read.map_err(failed(|| "read intruders".to_owned()))?;
        for idle in self.audit.absorb(&read, &self.owners) {
            match self.maps.intrusions.remove(&idle) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(failed(|| "forget an intruder".to_owned())(error)),
            }
        }
        for cpu in &self.audited {
            let read = self.maps.unnamed.get(&cpu.0, 0);
            let read =
                read.map_err(failed(|| format!("read the unnamed intruders of CPU {}", cpu.0)))?;
            self.audit.absorb_unnamed(*cpu, read, self.owners.get(cpu).copied());
        }
        Ok(())
    }

    /// Has every CPU charge what it has counted so far.
    fn look_at_events(&mut self) -> Result<(), ProbeError> {
        let Some(counting) = &self.counting else { return Ok(()) };
        counting.cpus().iter().try_for_each(|cpu| {
            let look = self.programs.look_at_events(cpu);
            look.map_err(failed(|| format!("look at the counters of CPU {}", cpu.0)))
        })
    }

    /// Takes over what has come to the counters, on CPUs that are busy all the time, too.
    fn absorb_events(&mut self) -> Result<(), ProbeError> {
        self.look_at_events()?;
        let Some(counting) = &self.counting else { return Ok(()) };
        for watched in self.watched.values_mut() {
            let slot = watched.slot;
            let now = counting.read(slot);
            let now = now.map_err(failed(|| format!("read the events of slot {slot}")))?;
            watched.stream.take(now);
        }
        Ok(())
    }

    /// Has the kernel charge every task for what was not charged at a switch: those that are on a CPU right now, above all.
    fn look_at_tasks(&mut self) -> Result<(), ProbeError> {
        let mut look = || -> Result<(), Box<dyn Error + Send + Sync>> {
            let mut nothing = Vec::new();
            self.programs.open_look()?.read_to_end(&mut nothing)?;
            Ok(())
        };
        look().map_err(|source| ProbeError { doing: "look at running tasks".to_owned(), source })
    }
}

/// CPUs that are online; none where the kernel does not say.
fn read_online() -> CpuSet {
    let cpus = aya::util::online_cpus().unwrap_or_default();
    cpus.into_iter().map(CpuId).collect()
}

impl Counters {
    /// Takes over a newer reading. The time on CPUs stands still where the kernel has corrected it downwards for the moment.
    fn rise_to(&mut self, now: Counters) {
        let corrected = now.exec_ns.wrapping_sub(self.exec_ns).cast_signed() < 0;
        let exec_ns = if corrected { self.exec_ns } else { now.exec_ns };
        *self = Counters { exec_ns, ..now };
    }
}

impl Maps {
    fn take(object: &mut Ebpf) -> Result<Maps, MapError> {
        let mut take = |name: &str| {
            let missing = || MapError::InvalidName { name: name.to_owned() };
            object.take_map(name).ok_or_else(missing)
        };
        Ok(Maps {
            containers: HashMap::try_from(take("containers")?)?,
            slots: PerCpuArray::try_from(take("slots")?)?,
            settings: Array::try_from(take("settings")?)?,
            places: Array::try_from(take("places")?)?,
            owners: Array::try_from(take("owners")?)?,
            intrusions: HashMap::try_from(take("intrusions")?)?,
            unnamed: Array::try_from(take("unnamed")?)?,
        })
    }
}

fn failed<E: Into<Box<dyn Error + Send + Sync>>>(
    doing: impl FnOnce() -> String,
) -> impl FnOnce(E) -> ProbeError {
    move |error| ProbeError { doing: doing(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sha2::{Digest as _, Sha256};

    /// `bpf/build` writes `bpf/prebuilt/BUILD` with the object, and this fails when a source was changed without it.
    #[test]
    fn the_compiled_probes_are_those_of_the_sources() {
        let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
        let build = std::fs::read_to_string(bpf.join("prebuilt/BUILD")).unwrap();
        let listed: Vec<(&str, &str)> =
            build.lines().filter_map(|line| line.split_once("  ")).collect();
        for (sum, file) in &listed {
            let found = Sha256::digest(std::fs::read(bpf.join(file)).unwrap());
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, *sum, "{file} has changed; run bpf/build");
        }
        let sources = std::fs::read_dir(&bpf).unwrap().map(|entry| entry.unwrap().path());
        let sources = sources.filter(|path| path.is_file()).count();
        assert_eq!(
            listed.len(),
            sources + 1,
            "a source or the object is not in BUILD; run bpf/build"
        );
    }
}
