//! The programs of the object, by probe. In: the loaded object. Out: which of them are attached, and why others are not.

use std::error::Error;
use std::fs::File;

use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{
    BtfTracePoint, Iter, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _,
};
use aya::{Btf, Ebpf};
use bayplan_types::CpuId;
use nix::errno::Errno;

use crate::refusal::{Surroundings, errno_of, judge};
use crate::{Cost, Probe, ProbeState, Refusal};

/// One probe: programs, each with its tracepoint, that make sense only together.
struct Description {
    name: &'static str,
    counts: &'static str,
    programs: &'static [(&'static str, &'static str)],
    /// Attached only while there are exclusive CPUs.
    is_for_owned_cpus: bool,
}

/// The one that walks over all tasks.
const LOOK: &str = "look_at_tasks";
/// The one that reads a CPU's counters; run by us, and attached to nothing.
const LOOK_AT_EVENTS: &str = "look_at_events";
/// The empty one, and where it is attached.
const NOTHING: (&str, &str) = ("nothing", "sched_switch");
/// The one without which nothing else makes sense.
const SCHEDULER: &str = "scheduler";

const DESCRIPTIONS: [Description; 4] = [
    Description {
        name: SCHEDULER,
        counts: "CPU time, run-queue delay, preemptions, intruders on owned CPUs",
        programs: &[("switched", "sched_switch")],
        is_for_owned_cpus: false,
    },
    Description {
        name: "migrations",
        counts: "moves between CPUs, by distance",
        programs: &[("migrated", "sched_migrate_task")],
        is_for_owned_cpus: false,
    },
    Description {
        name: "interrupts",
        counts: "interrupts and softirqs on owned CPUs",
        programs: &[
            ("irq_entered", "irq_handler_entry"),
            ("irq_left", "irq_handler_exit"),
            ("softirq_entered", "softirq_entry"),
            ("softirq_left", "softirq_exit"),
        ],
        is_for_owned_cpus: true,
    },
    Description {
        name: "vectors",
        counts: "timer and inter-processor interrupts on owned CPUs (x86)",
        programs: &[
            ("local_timer_entered", "local_timer_entry"),
            ("local_timer_left", "local_timer_exit"),
            ("reschedule_entered", "reschedule_entry"),
            ("reschedule_left", "reschedule_exit"),
            ("call_function_entered", "call_function_entry"),
            ("call_function_left", "call_function_exit"),
            ("call_function_single_entered", "call_function_single_entry"),
            ("call_function_single_left", "call_function_single_exit"),
            ("irq_work_entered", "irq_work_entry"),
            ("irq_work_left", "irq_work_exit"),
        ],
        is_for_owned_cpus: true,
    },
];

/// Programs in the kernel. They go with this value.
#[derive(Debug)]
pub(crate) struct Programs {
    object: Ebpf,
    surroundings: Surroundings,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    refusal: Option<Refusal>,
}

impl Programs {
    /// Loads all programs, so that the kernel has judged them, and attaches those that always count.
    ///
    /// # Errors
    /// The [`Refusal`] of the scheduler probe.
    pub(crate) fn attach(
        object: Ebpf,
        btf: &Btf,
        surroundings: &Surroundings,
    ) -> Result<Programs, Refusal> {
        let mut programs =
            Programs { object, surroundings: surroundings.clone(), rows: Vec::new() };
        programs
            .load_look(btf)
            .map_err(|error| judge("loading look_at_tasks", &*error, surroundings))?;
        // Before any task is charged, so that what tasks have run before does not count.
        programs
            .look_once()
            .map_err(|error| judge("looking at running tasks", &*error, surroundings))?;
        for description in &DESCRIPTIONS {
            let loaded = description.programs.iter().try_for_each(|(name, tracepoint)| {
                programs.load(name, tracepoint, btf).map_err(|error| {
                    judge(&format!("loading {name} for {tracepoint}"), &*error, surroundings)
                })
            });
            programs.rows.push(Row { links: Vec::new(), refusal: loaded.err() });
        }
        programs.set_attached(|description| !description.is_for_owned_cpus);
        let rows = DESCRIPTIONS.iter().zip(&programs.rows);
        let scheduler = rows.into_iter().find(|(description, _)| description.name == SCHEDULER);
        match scheduler.and_then(|(_, row)| row.refusal.clone()) {
            Some(refusal) => Err(refusal),
            None => Ok(programs),
        }
    }

    /// Attaches or detaches what is only for owned CPUs.
    pub(crate) fn watch_interrupts(&mut self, is_wanted: bool) {
        self.set_attached(|description| !description.is_for_owned_cpus || is_wanted);
    }

    /// A file; reading it to its end has the running tasks charged.
    pub(crate) fn open_look(&mut self) -> Result<File, Box<dyn Error + Send + Sync>> {
        let look: &mut Iter = self.object.program_mut(LOOK).ok_or(MISSING)?.try_into()?;
        let link = look.attach()?;
        Ok(look.take_link(link)?.into_file()?)
    }

    /// Loads what reads counters.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub(crate) fn load_look_at_events(&mut self) -> Result<(), Refusal> {
        let look: Result<&mut RawTracePoint, ProgramError> =
            self.object.program_mut(LOOK_AT_EVENTS).ok_or(MISSING).and_then(|it| it.try_into());
        look.and_then(RawTracePoint::load)
            .map_err(|error| judge("loading look_at_events", &error, &self.surroundings))
    }

    /// Has a CPU's counters read and charged to the task that is running there. One that has just gone offline has nothing to tell.
    pub(crate) fn look_at_events(
        &self,
        CpuId(cpu): CpuId,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let look: &RawTracePoint =
            self.object.program(LOOK_AT_EVENTS).ok_or(MISSING)?.try_into()?;
        let mut options = RawTracePointRunOptions::new();
        options.cpu = Some(cpu);
        match look.test_run(options) {
            Err(error) if errno_of(&error) != Some(Errno::ENXIO) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Attaches the empty program; it goes with the others.
    pub(crate) fn attach_nothing(&mut self, btf: &Btf) -> Result<(), Box<dyn Error>> {
        let (name, tracepoint) = NOTHING;
        self.load(name, tracepoint, btf)?;
        program(&mut self.object, name)?.attach()?;
        Ok(())
    }

    /// What the loaded programs have cost while their costs were asked for.
    pub(crate) fn costs(&self) -> Result<Vec<Cost>, ProgramError> {
        let of_probes = DESCRIPTIONS.iter().flat_map(|it| it.programs).map(|(name, _)| *name);
        let others = [LOOK, LOOK_AT_EVENTS, NOTHING.0];
        let mut costs = Vec::new();
        for name in of_probes.chain(others) {
            match self.object.program(name).ok_or(MISSING)?.info() {
                Ok(info) => costs.push(Cost {
                    program: name,
                    runs: info.run_count(),
                    time: info.run_time(),
                }),
                Err(ProgramError::NotLoaded) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(costs)
    }

    pub(crate) fn table(&self) -> Vec<Probe> {
        let rows = DESCRIPTIONS.iter().zip(&self.rows);
        let row = |(description, row): (&Description, &Row)| Probe {
            name: description.name,
            counts: description.counts,
            state: match &row.refusal {
                Some(refusal) => ProbeState::Refused(refusal.clone()),
                None if row.links.is_empty() => ProbeState::Waiting,
                None => ProbeState::Attached,
            },
        };
        rows.map(row).collect()
    }

    pub(crate) fn table_of_refused(refusal: &Refusal) -> Vec<Probe> {
        let row = |description: &Description| Probe {
            name: description.name,
            counts: description.counts,
            state: ProbeState::Refused(refusal.clone()),
        };
        DESCRIPTIONS.iter().map(row).collect()
    }

    fn load_look(&mut self, btf: &Btf) -> Result<(), Box<dyn Error>> {
        let look: &mut Iter = self.object.program_mut(LOOK).ok_or(MISSING)?.try_into()?;
        Ok(look.load("task", btf)?)
    }

    fn look_once(&mut self) -> Result<(), Box<dyn Error>> {
        let mut file = self.open_look().map_err(|error| -> Box<dyn Error> { error })?;
        std::io::copy(&mut file, &mut std::io::sink())?;
        Ok(())
    }

    fn load(&mut self, name: &str, tracepoint: &str, btf: &Btf) -> Result<(), Box<dyn Error>> {
        Ok(program(&mut self.object, name)?.load(tracepoint, btf)?)
    }

    /// Attaches the probes that are wanted and detaches the others. One that fails is refused from then on.
    fn set_attached(&mut self, is_wanted: impl Fn(&Description) -> bool) {
        for (description, row) in DESCRIPTIONS.iter().zip(&mut self.rows) {
            let is_attached = !row.links.is_empty();
            if row.refusal.is_some() || is_attached == is_wanted(description) {
                continue;
            }
            if is_attached {
                detach(&mut self.object, row);
                continue;
            }
            for (name, tracepoint) in description.programs {
                match program(&mut self.object, name).and_then(|it| Ok(it.attach()?)) {
                    Ok(link) => row.links.push((name, link)),
                    Err(error) => {
                        let doing = format!("attaching {name} to {tracepoint}");
                        row.refusal = Some(judge(&doing, &*error, &self.surroundings));
                        detach(&mut self.object, row);
                        break;
                    }
                }
            }
        }
    }
}

const MISSING: ProgramError = ProgramError::UnexpectedProgramType;

fn program<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, Box<dyn Error>> {
    Ok(object.program_mut(name).ok_or(MISSING)?.try_into()?)
}

/// Takes a probe's programs off their tracepoints. The kernel forgets the links in any case when their files are closed.
fn detach(object: &mut Ebpf, row: &mut Row) {
    for (name, link) in row.links.drain(..) {
        if let Ok(program) = program(object, name) {
            let _ = program.detach(link);
        }
    }
}
