//! What proposals in force do to the containers of the model.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::ContainerId;
use bayplan_types::{CpuClass, CpuSet, QosClass};

use super::layout::Layout;
use super::tenant::Tenant;
use bayplan_rebalance::Knob;
use bayplan_rebalance::Proposal;

/// Clock of all CPUs, in GHz: the base frequency of many servers.
pub(super) const CLOCK_GHZ: f64 = 2.4;
/// Steps after which a knob is turned as far as it goes.
const STEPS_MAX: u32 = 3;

/// A proposal that was carried out.
#[derive(Clone, Debug)]
pub(super) struct Turned {
    pub(super) proposal: Proposal,
    /// Where its target runs because of it.
    pub(super) cpus: Option<CpuSet>,
}

/// Where a container sits at the moment, with everything that is turned.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) cpus: CpuSet,
    pub(super) weight: f64,
    pub(super) is_idle: bool,
    /// CPUs of its own limit.
    pub(super) limit: Option<f64>,
    /// CPUs that may be overdrawn for a moment.
    pub(super) banked: f64,
    /// Share of the CPU time of the machine that BestEffort containers may have together.
    pub(super) suppressed: Option<f64>,
    pub(super) ways: f64,
    pub(super) delay: f64,
    /// Its memory is brought to where it runs.
    pub(super) comes_home: bool,
}

impl Seat {
    fn new(tenant: &Tenant) -> Seat {
        Seat {
            cpus: tenant.cpus.clone(),
            weight: tenant.weight,
            is_idle: false,
            limit: tenant.limit,
            banked: 0.0,
            suppressed: None,
            ways: 1.0,
            delay: 1.0,
            comes_home: false,
        }
    }

    /// The seat of `id` with all that is in force, in the order in which it came, except for knobs that do nothing here.
    pub(super) fn with(
        id: ContainerId,
        tenant: &Tenant,
        in_force: &BTreeMap<u64, Turned>,
        useless: &BTreeSet<Knob>,
    ) -> Seat {
        let mut seat = Seat::new(tenant);
        for turned in in_force.values().filter(|turned| !useless.contains(&turned.proposal.knob)) {
            let is_suppression = turned.proposal.knob == Knob::Suppress;
            let concerns_all = is_suppression && tenant.qos == QosClass::BestEffort;
            if turned.proposal.target == id || concerns_all {
                seat.turn(turned, tenant);
            }
        }
        seat
    }

    fn turn(&mut self, turned: &Turned, tenant: &Tenant) {
        let step = turned.proposal.step.clamp(1, STEPS_MAX);
        let steps = f64::from(step);
        match turned.proposal.knob {
            Knob::Idle => self.is_idle = true,
            // Of several the others stay when one is taken back.
            Knob::Siblings | Knob::Gather => {
                let rest = self.cpus.difference(&turned.proposal.leave);
                self.cpus = if rest.is_empty() { self.cpus.clone() } else { rest };
            }
            Knob::Move | Knob::MoveOwner => {
                self.cpus = turned.cpus.clone().unwrap_or_else(|| self.cpus.clone());
            }
            Knob::Suppress => {
                let share = 0.5_f64.powf(steps);
                self.suppressed = Some(self.suppressed.map_or(share, |other| other.min(share)));
            }
            Knob::Burst => self.banked = tenant.limit.unwrap_or(0.0),
            // Shares of the classes that resctrl's users make; ways go in whole bits, which is left out.
            Knob::Bandwidth => self.delay = self.delay.max(2_f64.powf(steps)),
            Knob::Cache => self.ways = self.ways.min([0.5, 0.25, 0.1][step as usize - 1]),
            Knob::Memory => self.comes_home = true,
            Knob::Clock | Knob::Evict => {}
        }
    }
}

/// Knobs that can still be turned for `id`.
pub(super) fn knobs_left(
    id: ContainerId,
    tenant: &Tenant,
    in_force: &BTreeMap<u64, Turned>,
) -> BTreeSet<Knob> {
    let steps = |knob| match knob {
        Knob::Suppress | Knob::Bandwidth | Knob::Cache => STEPS_MAX,
        Knob::Siblings
        | Knob::Gather
        | Knob::Move
        | Knob::Clock
        | Knob::MoveOwner
        | Knob::Evict => u32::MAX,
        Knob::Idle | Knob::Burst | Knob::Memory => 1,
    };
    let turned = |knob: Knob| {
        let mine = in_force.values().map(|turned| &turned.proposal);
        let mine = mine.filter(|proposal| proposal.target == id && proposal.knob == knob);
        mine.map(|proposal| proposal.step).max().unwrap_or(0)
    };
    tenant.knobs.iter().copied().filter(|knob| turned(*knob) < steps(*knob)).collect()
}

/// Where the target of a proposal goes; `None` where it stays.
///
/// # Errors
/// Why there is no such place.
pub(super) fn new_cpus(
    proposal: &Proposal,
    tenant: &Tenant,
    seat: &Seat,
    layout: &Layout,
    shared: &CpuSet,
    loads: &[f64],
) -> Result<Option<CpuSet>, String> {
    let place = match proposal.knob {
        Knob::Siblings | Knob::Gather => seat.cpus.difference(&proposal.leave),
        Knob::Move => roomiest(layout, &shared.difference(&proposal.leave), loads)
            .filter(|_| tenant.class != CpuClass::Exclusive)
            .ok_or("there is no other cache or node with shared CPUs")?,
        Knob::MoveOwner => {
            let free = shared.difference(&proposal.leave);
            let place = layout.cache_cpus.iter().map(|cache| cache.intersection(&free));
            // The machine keeps one shared CPU.
            let place = place.filter(|free| free.len() > tenant.cpus.len()).max_by_key(CpuSet::len);
            let place = place.ok_or("no other cache has as many CPUs to give")?;
            place.iter().take(tenant.cpus.len()).collect()
        }
        _ => return Ok(None),
    };
    if place.is_empty() {
        return Err(format!("{} would have no CPU left", tenant.name));
    }
    Ok(Some(place))
}

/// Of the caches that have CPUs in `free`, those CPUs of the one with the most time left.
fn roomiest(layout: &Layout, free: &CpuSet, loads: &[f64]) -> Option<CpuSet> {
    let idle = |cpus: &CpuSet| {
        layout
            .positions(cpus)
            .into_iter()
            .map(|cpu| 1.0 - loads.get(cpu).unwrap_or(&0.0))
            .sum::<f64>()
    };
    layout
        .cache_cpus
        .iter()
        .map(|cache| cache.intersection(free))
        .filter(|cpus| !cpus.is_empty())
        .max_by(|a, b| idle(a).total_cmp(&idle(b)))
}
