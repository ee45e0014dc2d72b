//! Which container runs where, for pictures. In: the daemon's status, or a ledger. Out: a seat for each CPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bayplan_allocator::{ContainerId, Ledger};
use bayplan_drawing::{Seat, render_map};
use bayplan_node::status::Status;
use bayplan_topology::Topology;
use bayplan_types::{CpuClass, CpuId, CpuSet};

use crate::text::paint;
use crate::visible::visible_cell;

/// The texts of a status as sets.
pub(crate) struct Seats {
    /// CPUs of one container each.
    owners: Vec<Holder>,
    /// Containers that share, or that run on the reserved CPUs.
    guests: Vec<Holder>,
    /// Pools, the narrowest first.
    pools: Vec<Holder>,
    reserved: CpuSet,
    isolated: CpuSet,
}

struct Holder {
    name: String,
    cpus: CpuSet,
}

/// A colour of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// That of other text.
    None,
    /// For what is not given to containers.
    Grey,
    /// 0 to 5: red, green, yellow, blue, magenta, cyan.
    Owner(u8),
}

/// The letter and the colour of an exclusive container, by its place in the status.
fn owner_mark(position: usize) -> (char, Colour) {
    let letters = (b'A'..=b'Z').chain(b'a'..=b'q');
    let letter = letters.cycle().nth(position).map_or('?', char::from);
    (letter, Colour::Owner(u8::try_from(position % 6).unwrap_or(0)))
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

fn narrowest_first(pools: impl Iterator<Item = Holder>) -> Vec<Holder> {
    let mut pools: Vec<Holder> = pools.filter(|pool| !pool.cpus.is_empty()).collect();
    pools.sort_by_key(|pool| pool.cpus.len());
    pools
}

impl Seats {
    /// The seats that a status tells of.
    pub(crate) fn new(status: &Status) -> Seats {
        let holder = |name: String, cpus: &str| Holder { name, cpus: set(cpus) };
        let containers = || status.containers.iter();
        let (owners, others): (Vec<_>, Vec<_>) =
            containers().partition(|container| !container.exclusive.is_empty());
        let pools = status.pools.iter().map(|pool| holder(pool.name.clone(), &pool.shared_cpus));
        let groups = status.groups.iter();
        let groups = groups.map(|it| holder(format!("group {}", it.name), &it.shared_cpus));
        let owners = owners.iter().map(|it| holder(it.full_name(), &it.exclusive));
        Seats {
            owners: owners.chain(groups).collect(),
            guests: others.iter().map(|it| holder(it.full_name(), &it.cpus)).collect(),
            pools: narrowest_first(pools),
            reserved: set(&status.cpus.reserved),
            isolated: set(&status.cpus.isolated),
        }
    }

    /// The seats of a ledger of containers with these names.
    pub(crate) fn of_ledger(ledger: &Ledger, names: &BTreeMap<ContainerId, &str>) -> Seats {
        let (mut owners, mut guests) = (Vec::new(), Vec::new());
        for (id, allocation) in ledger.allocations() {
            let name = names.get(&id).map_or_else(|| id.to_string(), ToString::to_string);
            match allocation.exclusive.is_empty() {
                false => owners.push(Holder { name, cpus: allocation.exclusive.clone() }),
                true => guests.push(Holder { name, cpus: ledger.cpus_of(allocation) }),
            }
        }
        let pools = ledger.pools();
        let shared = pools
            .iter()
            .map(|pool| Holder { name: pool.name.clone(), cpus: ledger.shared_cpus(pool.id) });
        Seats {
            owners,
            guests,
            pools: narrowest_first(shared),
            reserved: pools.reserved().clone(),
            isolated: pools.isolated().clone(),
        }
    }

    /// What runs on a CPU. A shared one belongs to the narrowest pool around it that is not inside a NUMA node's.
    pub(crate) fn seat(&self, cpu: CpuId) -> Option<Seat> {
        let names = |holders: &[Holder]| -> Vec<String> {
            let here = holders.iter().filter(|holder| holder.cpus.contains(cpu));
            here.map(|holder| holder.name.clone()).collect()
        };
        let is_isolated = self.isolated.contains(cpu);
        let seat = |class, label: String, guests| Some(Seat { class, label, guests });
        if let Some(owner) = names(&self.owners).into_iter().next() {
            let class = if is_isolated { CpuClass::Isolated } else { CpuClass::Exclusive };
            return seat(class, owner, Vec::new());
        }
        match () {
            () if self.reserved.contains(cpu) => {
                seat(CpuClass::Reserved, String::new(), names(&self.guests))
            }
            () if is_isolated => seat(CpuClass::Isolated, String::new(), Vec::new()),
            () => {
                let guests = names(&self.guests);
                let pool = self.pool_of(cpu)?.name.clone();
                seat(CpuClass::Shared, pool, guests)
            }
        }
    }

    fn pool_of(&self, cpu: CpuId) -> Option<&Holder> {
        let around = || self.pools.iter().filter(|pool| pool.cpus.contains(cpu));
        // Shared parts get whole NUMA nodes.
        around().find(|pool| pool.name.starts_with("numa ")).or_else(|| around().next_back())
    }

    /// What stands for a CPU in a map, and its colour.
    pub(crate) fn mark(&self, cpu: CpuId) -> (char, Colour) {
        let owner = self.owners.iter().position(|owner| owner.cpus.contains(cpu));
        match owner {
            Some(position) => owner_mark(position),
            None if self.reserved.contains(cpu) => ('r', Colour::Grey),
            None if self.isolated.contains(cpu) => ('i', Colour::Grey),
            None => ('\u{b7}', Colour::None),
        }
    }

    /// What stands for CPUs of this container's own; `None`: it has none.
    pub(crate) fn mark_of(&self, name: &str) -> Option<(char, Colour)> {
        self.owners.iter().position(|owner| owner.name == name).map(owner_mark)
    }

    /// The map of the machine, with a letter per owner, and the owners below.
    pub(crate) fn render_map(&self, topology: &Topology, has_colour: bool) -> String {
        let painted = |(letter, colour): (char, Colour)| match colour {
            Colour::None => letter.to_string(),
            Colour::Grey => paint(&letter.to_string(), "90", has_colour),
            Colour::Owner(at) => paint(&letter.to_string(), &(31 + at).to_string(), has_colour),
        };
        let letter = |position: usize| painted(owner_mark(position));
        let cell = |cpu: CpuId| painted(self.mark(cpu));
        let mut text = render_map(topology, &cell);
        // Writing to a String cannot fail.
        for (position, owner) in self.owners.iter().enumerate() {
            let name = visible_cell(&owner.name);
            let _ = writeln!(text, "  {} {name} {}", letter(position), owner.cpus);
        }
        for guest in &self.guests {
            let _ = writeln!(text, "    {} {}", visible_cell(&guest.name), guest.cpus);
        }
        text.push_str("  \u{b7} shared  r reserved  i isolated\n");
        text
    }
}
