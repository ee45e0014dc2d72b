//! The counter probe's user side: puts open counters where the kernel side reads them, and reads what it has charged.

use std::os::fd::AsRawFd as _;

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, PerCpuValues};
use bayplan_types::CpuSet;

use crate::Event;
use crate::pmu::Pmu;
use crate::records::EventsRecord;

/// The maps of `bpf/events.h`, in the order of the events.
const COUNTERS: [&str; 5] = ["event_0", "event_1", "event_2", "event_3", "event_4"];

/// Counters that count, on every CPU.
pub(crate) struct Counting {
    pmu: Pmu,
    /// By event and CPU a counter. The maps keep counters open, so no files of this process are needed for them.
    counters: Vec<Array<MapData, u32>>,
    charged: PerCpuArray<MapData, EventsRecord>,
    /// Possible CPUs.
    cpus: u32,
    open: CpuSet,
}

impl Counting {
    /// Takes the maps out of the object, which was loaded for as many events as `pmu` has.
    pub(crate) fn take(object: &mut Ebpf, pmu: Pmu, cpus: u32) -> Result<Counting, MapError> {
        let counters =
            COUNTERS.iter().take(pmu.events.len()).map(|name| match take(object, name)? {
                // The library's own type for such a map is for messages only; to the kernel it is an array of open files.
                Map::PerfEventArray(data) => Array::try_from(Map::Array(data)),
                other => Array::try_from(other),
            });
        let counters = counters.collect::<Result<Vec<_>, _>>()?;
        let charged = PerCpuArray::try_from(take(object, "events")?)?;
        Ok(Counting { pmu, counters, charged, cpus, open: CpuSet::new() })
    }

    /// What is counted.
    pub(crate) fn events(&self) -> &[Event] {
        &self.pmu.events
    }

    /// CPUs on which something is.
    pub(crate) fn cpus(&self) -> &CpuSet {
        &self.open
    }

    /// Opens counters on CPUs that have come online. Those of a CPU that has gone are dead, and are opened anew when it is back. Where not all events can be counted
    /// none is, and it is tried again with the next CPU that comes or goes.
    pub(crate) fn follow(&mut self, online: &CpuSet) -> Result<(), MapError> {
        let cpus = self.cpus;
        self.open.intersect_with(online);
        for cpu in online.difference(&self.open).iter().filter(|cpu| cpu.0 < cpus) {
            let Some(group) = self.pmu.open(cpu) else { continue };
            for (map, counter) in self.counters.iter_mut().zip(&group) {
                map.set(cpu.0, counter.as_raw_fd().cast_unsigned(), 0)?;
            }
            self.open.insert(cpu);
        }
        Ok(())
    }

    /// Begins anew for the next user of a slot.
    pub(crate) fn clear(&mut self, slot: u32) -> Result<(), MapError> {
        let zero =
            PerCpuValues::try_from(vec![[0; 8]; self.cpus as usize]).map_err(MapError::IoError)?;
        self.charged.set(slot, zero, 0)
    }

    /// What was charged to a slot on all CPUs together.
    pub(crate) fn read(&self, slot: u32) -> Result<EventsRecord, MapError> {
        let mut sum: EventsRecord = [0; 8];
        for cpu in self.charged.get(&slot, 0)?.iter() {
            sum.iter_mut().zip(cpu).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        Ok(sum)
    }
}

fn take(object: &mut Ebpf, name: &str) -> Result<Map, MapError> {
    object.take_map(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
}
