//! Containers that show signs of suffering and for which nothing is proposed. In: a scene, and what the rebalancer remembers. Out: the worst sign of
//! each, and the reason.
//!
//! The reasons are those of [`Rebalancer::look`](crate::Rebalancer::look), asked in its order: for a stalled container
//! without a proposal an operator is told at which of them it stopped.

use std::fmt;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_types::QosClass;

use crate::detect::{Judge, key, value};
use crate::path::{Path, path};
use crate::proposal::Evidence;
use crate::sample::Signal;
use crate::scene::{Mode, Resident, Scene};
use crate::{ladder, render};

/// A container, its worst sign in the last round, and why nothing is proposed for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unhelped {
    /// Which one.
    pub container: ContainerId,
    /// The signal that is furthest above its limit.
    pub signal: Signal,
    /// Its value.
    pub value: f64,
    /// What is too much.
    pub limit: f64,
    /// Why.
    pub reason: Reason,
}

/// Why nothing is proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its mode is off.
    Off,
    /// It asked for nothing, and has what is left.
    BestEffort,
    /// It came or moved less than so long ago.
    New(Duration),
    /// It keeps too few CPUs busy, and would too if it had them.
    Idle,
    /// It wants more than all of its CPUs.
    CrowdsItself,
    /// One sign of waiting, and others that say nothing of it.
    OneSign,
    /// Not in enough rounds.
    Unconfirmed,
    /// Processes outside of containers take the time of its CPUs.
    Outside(Outside),
    /// No other container does what would explain it.
    Blameless,
    /// No knob is for it and may be turned.
    NoKnob,
    /// What could be turned is forbidden, was tried or told lately, or waits for something that is turned to be judged.
    Waiting,
}

/// What is taken from a container by processes and interrupts outside of containers, of the time of its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// By all of them together.
    pub percent: u32,
    /// Name and percentage of the one that takes most; `None` where that is not known, as on shared CPUs.
    pub largest: Option<(String, u32)>,
}

/// From so many percent on, processes outside of containers are the reason.
const OUTSIDE_MIN: u32 = 20;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Off => "its mode is off",
            Reason::BestEffort => "it is BestEffort, and nothing is changed for the sake of those",
            Reason::New(warm_up) => {
                return write!(f, "it came or moved less than {} s ago", warm_up.as_secs());
            }
            Reason::Idle => "it keeps too few CPUs busy to be judged",
            Reason::CrowdsItself => "it wants more CPU time than all CPUs that it may run on have",
            Reason::OneSign => "no other sign of waiting confirms it",
            Reason::Unconfirmed => "it has not been so in enough of the last looks",
            Reason::Outside(outside) => return outside.fmt(f),
            Reason::Blameless => "no other container is known to cause it",
            Reason::NoKnob => {
                "nothing that may be turned here would help: see the modes of the containers that cause it, and `rebalance.forbid`"
            }
            Reason::Waiting => {
                "what could be turned is forbidden, was proposed or tried lately, or waits until another change is judged"
            }
        })
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.percent;
        write!(
            f,
            "pressure comes from outside of containers: {percent} % of the time of its CPUs"
        )?;
        match &self.largest {
            Some((name, percent)) => write!(f, ", {percent} % by {name}"),
            None => Ok(()),
        }
    }
}

impl Unhelped {
    /// `cpu-pressure 89 % > 20 %, and nothing is proposed: it is BestEffort, ...`.
    pub fn render(&self) -> String {
        let Unhelped { signal, value, limit, reason, .. } = self;
        let [value, limit] = [*value, *limit].map(|it| render::render_value(*signal, it));
        format!("{} {value} > {limit}, and nothing is proposed: {reason}", signal.name())
    }
}

impl Judge<'_> {
    /// The signal of the last round that is furthest above its limit.
    fn worst_sign(&self, id: ContainerId, resident: &Resident) -> Option<(Signal, f64, f64)> {
        let sample = self.windows.last(id)?;
        let key = key(self.topology, resident);
        let signs = Signal::ALL.into_iter().filter_map(|signal| {
            let (limit, _) = self.limit(&key, signal)?;
            let value = value(signal, sample)?;
            (value > limit).then_some((signal, value, limit))
        });
        signs.max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))
    }

    /// All containers with a sign of suffering, and why nothing is found or can be done. Those that something is done for are left out by the caller.
    pub(crate) fn unhelped(&self, scene: &Scene) -> Vec<Unhelped> {
        let found = scene.residents.iter().filter_map(|(id, resident)| {
            let (signal, value, limit) = self.worst_sign(*id, resident)?;
            let reason = self.reason(scene, *id, resident);
            Some(Unhelped { container: *id, signal, value, limit, reason })
        });
        found.collect()
    }

    fn reason(&self, scene: &Scene, id: ContainerId, resident: &Resident) -> Reason {
        let warm_up = self.settings.warm_up;
        match () {
            () if resident.mode == Mode::Off => return Reason::Off,
            () if resident.qos == Some(QosClass::BestEffort) => return Reason::BestEffort,
            () if self.now < resident.since + warm_up => return Reason::New(warm_up),
            () if !self.is_active(id) => return Reason::Idle,
            () => {}
        }
        let findings = self.condition(id, resident).unwrap_or_default().findings;
        if findings.is_empty() {
            return self.why_unfound(id, resident);
        }
        let culprits = self.culprits(scene, id, &findings);
        let is_own = findings.iter().all(|it| path(it.signal) == Path::Own);
        if culprits.is_empty() && !is_own {
            let outside = self.taken_outside(scene, id, resident);
            return match outside.percent >= OUTSIDE_MIN {
                true => Reason::Outside(outside),
                false => Reason::Blameless,
            };
        }
        let evidence = Evidence { victim: id, findings, culprits };
        match ladder::candidates(self, scene, &evidence).is_empty() {
            true => Reason::NoKnob,
            false => Reason::Waiting,
        }
    }

    /// What processes of no container take; 0 % where the kernel does not tell.
    fn taken_outside(&self, scene: &Scene, id: ContainerId, resident: &Resident) -> Outside {
        let percent_of = |cpus: f64, limit: u32| {
            let percent = 100.0 * cpus / resident.cpus.len().max(1) as f64;
            (0..=limit).rev().find(|it| f64::from(*it) <= percent).unwrap_or(0)
        };
        let percent = percent_of(self.outside(scene, &resident.cpus), 100);
        let intruder = scene.intruders.get(&id);
        // It is counted by another clock than the whole.
        let largest = intruder.map(|it| (it.name.clone(), percent_of(it.cpus, percent)));
        Outside { percent, largest: largest.filter(|(_, percent)| *percent > 0) }
    }

    fn why_unfound(&self, id: ContainerId, resident: &Resident) -> Reason {
        if self.crowds_itself(id, resident) {
            return Reason::CrowdsItself;
        }
        let key = key(self.topology, resident);
        let signs = Signal::ALL.into_iter().filter(|signal| path(*signal) == Path::Cpu);
        let measured = signs.filter_map(|signal| {
            let limit = self.limit(&key, signal)?.0;
            Some(value(signal, self.windows.last(id)?)? > limit)
        });
        let measured: Vec<bool> = measured.collect();
        match measured.len() > 1 && measured.iter().filter(|is_high| **is_high).count() == 1 {
            true => Reason::OneSign,
            false => Reason::Unconfirmed,
        }
    }
}
