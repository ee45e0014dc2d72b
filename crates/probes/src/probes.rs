//! Loads the probes, tells them whom to watch, and reads what they have counted.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Read as _;
use std::time::Instant;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};
use bayplan_topology::Topology;
use bayplan_types::{CpuId, CpuSet};

use crate::audit::Audit;
use crate::places::derive_places;
use crate::programs::Programs;
use crate::records::{
    CountersRecord, IntruderRecord, IntrusionRecord, PlaceRecord, SettingsRecord,
};
use crate::refusal::{Surroundings, judge};
use crate::{CgroupId, Counters, Intrusion, Intrusions, Refusal};

/// The compiled probes, see `bpf/build`.
static OBJECT: &[u8] = include_bytes_aligned!(env!("BAYPLAN_BPF_OBJECT"));

/// Probes that count.
pub struct Probes {
    programs: Programs,
    maps: Maps,
    /// Possible CPUs of the machine, online or not.
    cpus: u32,
    /// What every container had at the last drain. A counter that the kernel has corrected downwards stands still meanwhile.
    watched: BTreeMap<CgroupId, Counters>,
    owners: BTreeMap<CpuId, CgroupId>,
    generation: u64,
    outside: Counters,
    audit: Audit,
}

/// Everything that was counted, since each container is watched.
#[derive(Clone, Debug)]
pub struct Drain {
    /// When it was read.
    pub at: Instant,
    /// By the cgroup that is watched.
    pub containers: BTreeMap<CgroupId, Counters>,
    /// Everybody else's. [`crate::Preempter::Itself`] is another of them there.
    pub outside: Counters,
    /// Who ran on CPUs that a container owns.
    pub intrusions: Intrusions,
    /// Intruders that the kernel had no room to name, on all CPUs together.
    pub unnamed: Intrusion,
}

/// One row of the probe table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `scheduler`, `migrations`, `interrupts`, `vectors`.
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
    /// It cannot.
    Refused(Refusal),
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
    containers: PerCpuHashMap<MapData, u64, CountersRecord>,
    outside: PerCpuArray<MapData, CountersRecord>,
    settings: Array<MapData, SettingsRecord>,
    places: Array<MapData, PlaceRecord>,
    owners: Array<MapData, u64>,
    intrusions: HashMap<MapData, IntruderRecord, IntrusionRecord>,
    unnamed: PerCpuArray<MapData, IntrusionRecord>,
}

impl Probes {
    /// Loads and attaches the probes, on a machine whose places are those of `topology`. Nobody is watched yet.
    ///
    /// # Errors
    /// A [`Refusal`] when switches cannot be counted. What else cannot is in [`Probes::table`].
    pub fn attach(topology: &Topology) -> Result<Probes, Refusal> {
        let surroundings = Surroundings::read();
        let refuse =
            |doing: &str, error: &(dyn Error + 'static)| judge(doing, error, &surroundings);
        let btf = Btf::from_sys_fs()
            .map_err(|error| refuse("reading /sys/kernel/btf/vmlinux", &error))?;
        let cpus = aya::util::nr_cpus()
            .map_err(|(path, error)| refuse(&format!("reading {path}"), &error))?;
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&btf)).allow_unsupported_maps();
        for by_cpu in ["places", "owners"] {
            loader.map_max_entries(by_cpu, cpus);
        }
        let mut object = loader.load(OBJECT).map_err(|error| refuse("making the maps", &error))?;
        let maps = Maps::take(&mut object).map_err(|error| refuse("opening the maps", &error))?;
        let programs = Programs::attach(object, &btf, &surroundings)?;
        let mut probes = Probes {
            programs,
            maps,
            cpus,
            watched: BTreeMap::new(),
            owners: BTreeMap::new(),
            generation: 0,
            outside: Counters::default(),
            audit: Audit::default(),
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
        Ok(())
    }

    /// Watches these cgroups from now on, with those below them, and no others; with each the CPUs that it owns. What is not watched any more
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
        for id in &gone {
            match self.maps.containers.remove(&id.0) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(failed(|| format!("forget cgroup {}", id.0))(error)),
            }
            self.watched.remove(id);
        }
        for id in &new {
            let zero = PerCpuValues::try_from(vec![[0; 32]; self.cpus as usize]);
            let zero = zero.map_err(failed(|| "make counters".to_owned()))?;
            let put = self.maps.containers.insert(id.0, zero, 0);
            put.map_err(failed(|| format!("watch cgroup {}", id.0)))?;
            self.watched.insert(*id, Counters::default());
        }
        self.audit.retain(|owner| containers.contains_key(&owner));
        if gone.is_empty() && new.is_empty() {
            return Ok(());
        }
        // Tasks remember in which container they are until this number changes.
        self.generation += 1;
        let read = self.maps.settings.get(&0, 0);
        let [since, _] = read.map_err(failed(|| "read the settings".to_owned()))?;
        let set = self.maps.settings.set(0, [since, self.generation], 0);
        set.map_err(failed(|| "write the settings".to_owned()))
    }

    /// Reads everything that was counted, tasks that are running at this moment included. `now` is the moment.
    ///
    /// # Errors
    /// [`ProbeError`] when the kernel does not answer.
    pub fn drain(&mut self, now: Instant) -> Result<Drain, ProbeError> {
        self.look_at_running()?;
        for (id, last) in &mut self.watched {
            let read = self.maps.containers.get(&id.0, 0);
            let cpus = read.map_err(failed(|| format!("read the counters of cgroup {}", id.0)))?;
            last.rise_to(Counters::sum(cpus.iter()));
        }
        let outside = self.maps.outside.get(&0, 0);
        let outside = outside.map_err(failed(|| "read the counters of the system".to_owned()))?;
        self.outside.rise_to(Counters::sum(outside.iter()));
        self.absorb_intrusions()?;
        let unnamed = self.maps.unnamed.get(&0, 0);
        let unnamed = unnamed.map_err(failed(|| "read unnamed intruders".to_owned()))?;
        let mut sum = Intrusion::default();
        unnamed.iter().for_each(|cpu| sum.add(Intrusion::from(cpu)));
        Ok(Drain {
            at: now,
            containers: self.watched.clone(),
            outside: self.outside.clone(),
            intrusions: self.audit.intrusions(),
            unnamed: sum,
        })
    }

    /// What counts, and what does not and why.
    pub fn table(&self) -> Vec<Probe> {
        self.programs.table()
    }

    /// The table where nothing could be attached.
    pub fn table_of_refused(refusal: &Refusal) -> Vec<Probe> {
        Programs::table_of_refused(refusal)
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

    /// Charges what was counted so far to those who owned the CPUs, and only then changes the owners.
    fn change_owners(&mut self, owners: BTreeMap<CpuId, CgroupId>) -> Result<(), ProbeError> {
        if !self.owners.is_empty() {
            self.look_at_running()?;
            self.absorb_intrusions()?;
        }
        let cpus: BTreeSet<CpuId> = self.owners.keys().chain(owners.keys()).copied().collect();
        for cpu in cpus {
            if self.owners.get(&cpu) != owners.get(&cpu) {
                let owner = owners.get(&cpu).map_or(0, |id| id.0);
                let set = self.maps.owners.set(cpu.0, owner, 0);
                set.map_err(failed(|| format!("write the owner of CPU {}", cpu.0)))?;
            }
        }
        self.owners = owners;
        self.programs.watch_interrupts(!self.owners.is_empty());
        Ok(())
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
        Ok(())
    }

    /// Has the kernel charge those who are on a CPU right now.
    fn look_at_running(&mut self) -> Result<(), ProbeError> {
        let mut look = || -> Result<(), Box<dyn Error + Send + Sync>> {
            let mut nothing = Vec::new();
            self.programs.open_look()?.read_to_end(&mut nothing)?;
            Ok(())
        };
        look().map_err(|source| ProbeError { doing: "look at running tasks".to_owned(), source })
    }
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
            containers: PerCpuHashMap::try_from(take("containers")?)?,
            outside: PerCpuArray::try_from(take("outside")?)?,
            settings: Array::try_from(take("settings")?)?,
            places: Array::try_from(take("places")?)?,
            owners: Array::try_from(take("owners")?)?,
            intrusions: HashMap::try_from(take("intrusions")?)?,
            unnamed: PerCpuArray::try_from(take("unnamed")?)?,
        })
    }
}

fn failed<E: Into<Box<dyn Error + Send + Sync>>>(
    doing: impl FnOnce() -> String,
) -> impl FnOnce(E) -> ProbeError {
    move |error| ProbeError { doing: doing(), source: error.into() }
}
