//! Carries plans out at the runtime. In: batches, each a plan and perhaps an answer that must wait for it. Out: updates, and events
//! about those that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bayplan_enforcement::{Pass, Plan, Write};
use bayplan_host::kernel::DiskKernel;
use bayplan_node::event::{Answer, Event, FailedWrite, WriteEnd};
use bayplan_node::resources_file::FileNews;
use bayplan_types::CpuSet;
use bayplan_workload::runtime::RuntimeError;
use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::config::LiveConfig;
use crate::enforcer::RuntimeCalls;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::resources_dir::SharedResourcesDir;
use crate::runtime::SharedRuntime;
use crate::tasks::blocking;
use crate::unconfirmed::{Begin, PlanNumber, Unconfirmed};

/// Updates that one group of a plan has in flight at the runtime, at most.
const WRITES_IN_FLIGHT_MAX: usize = 16;
/// The same for each CPU where no call waits for updates: the usual runtimes start a process for each, and more of them only hold up each other until they take too long. Where a call
/// waits, some that hang must not hold up the others.
const WRITES_PER_CPU: usize = 2;
/// Failures that are reported together.
const FAILURES_MAX: usize = 64;

/// A plan on its way to the runtime.
pub(crate) struct Batch {
    pub(crate) plan: Plan,
    pub(crate) number: PlanNumber,
    pub(crate) then: AfterPlan,
    /// Containers with failed writes that no longer count.
    pub(crate) forgiven: Vec<String>,
    /// What containers are told of their CPUs, once they have them.
    pub(crate) files: FileNews,
}

/// What follows the end of a plan.
pub(crate) enum AfterPlan {
    Nothing,
    /// The answer to a caller that waits for it.
    Answer(Box<(oneshot::Sender<Answer>, Answer)>),
    /// Word that it has ended, for one that waits for the kernel first.
    Word(oneshot::Sender<()>),
}

impl AfterPlan {
    /// A caller may have given up.
    fn follow(self, are_all_made: bool) {
        match self {
            AfterPlan::Nothing => {}
            AfterPlan::Answer(answer) => {
                let (answer, content) = *answer;
                let _gave_up = answer.send(content.after_writes(are_all_made));
            }
            AfterPlan::Word(ended) => {
                let _gave_up = ended.send(());
            }
        }
    }
}

/// What the writer works with.
pub(crate) struct RuntimeWriter {
    pub(crate) runtime: SharedRuntime,
    pub(crate) failures: mpsc::UnboundedSender<WriteEnd>,
    pub(crate) config: LiveConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) calls: RuntimeCalls,
    pub(crate) unconfirmed: Unconfirmed,
    pub(crate) resources: SharedResourcesDir,
    /// Where the kernel's files are, below `sys`.
    pub(crate) host_root: PathBuf,
}

/// Carries plans out, one after the other, until the loop is gone.
pub(crate) async fn run_runtime_writer(
    mut batches: mpsc::UnboundedReceiver<Batch>,
    writer: RuntimeWriter,
) {
    let RuntimeWriter { runtime, failures, config, metrics, calls, unconfirmed, .. } = writer;
    let RuntimeWriter { host_root, resources, .. } = writer;
    let mut stuck = Stuck::default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // Containers with a last write that failed.
    let mut failing = BTreeSet::new();
    while let Some(batch) = batches.recv().await {
        let Batch { plan, number, then, forgiven, files } = batch;
        let in_flight = writes_in_flight(cpus, matches!(then, AfterPlan::Answer(..)));
        let limit = config.borrow().write_limit();
        stuck.forget(&forgiven);
        let mut elsewhere = BTreeSet::new();
        for group in plan.groups() {
            let (withheld, writes): (Vec<Write>, Vec<Write>) =
                group.into_iter().cloned().partition(|write| stuck.withholds(write));
            for write in withheld {
                calls.end(&write.container, Instant::now());
                elsewhere.insert(write.container.clone());
                failing.insert(write.container.clone());
                let failed = FailedWrite {
                    container: write.container.clone(),
                    is_gone: false,
                    withheld: Some(Box::new(write)),
                };
                report(&failures, failed, "another container did not let go");
            }
            let (overtaken, mut writes): (Vec<Write>, Vec<Write>) = writes
                .into_iter()
                .partition(|write| unconfirmed.stand(write, number) == Begin::Overtaken);
            let (left, to_tell) = leave_without_runtime(&unconfirmed, &host_root, overtaken).await;
            for container in left {
                calls.end(&container, Instant::now());
                elsewhere.insert(container);
            }
            writes.extend(to_tell);
            let updates = writes.into_iter().map(|write| {
                let told = Told { runtime: Arc::clone(&runtime), unconfirmed: unconfirmed.clone() };
                let root = &host_root;
                async move { told.apply(root, write, number, limit).await }
            });
            let mut updates = futures::stream::iter(updates).buffer_unordered(in_flight);
            while let Some((write, result)) = updates.next().await {
                calls.end(&write.container, Instant::now());
                metrics.update_ended(result.as_ref().err());
                let is_gone = matches!(result, Err(RuntimeError::Gone { .. }));
                stuck.note(&write, result.is_err() && !is_gone);
                if result.is_ok() && failing.remove(&write.container) {
                    let _gone = failures.send(WriteEnd::Landed(write.container.clone()));
                }
                if let Err(error) = result {
                    elsewhere.insert(write.container.clone());
                    match is_gone {
                        true => failing.remove(&write.container),
                        false => failing.insert(write.container.clone()),
                    };
                    let failed =
                        FailedWrite { container: write.container, is_gone, withheld: None };
                    report(&failures, failed, &error.to_string());
                }
            }
        }
        tell_in_files(&resources, files, &elsewhere, &metrics);
        if !stuck.0.is_empty() && !matches!(then, AfterPlan::Nothing) {
            metrics.failed("not_let_go");
        }
        then.follow(failing.is_empty());
    }
}

/// What containers read of their CPUs, but for those that are elsewhere. In place: files are small, and in memory where `/run` is.
fn tell_in_files(
    resources: &SharedResourcesDir,
    files: FileNews,
    elsewhere: &BTreeSet<String>,
    metrics: &Metrics,
) {
    let wrong = resources.lock().unwrap_or_else(PoisonError::into_inner).keep(files, elsewhere);
    for why in wrong {
        metrics.failed("resources_file");
        tracing::warn!("cannot write the file that names a container's CPUs: {why}");
    }
}

/// A later batch tells the runtime of these containers. Until then none of them gets CPUs, and the kernel takes away those that it has to leave: the runtime is told once, however
/// many batches wait. Gives the containers of which that is all, and writes that the kernel did not make.
async fn leave_without_runtime(
    unconfirmed: &Unconfirmed,
    root: &Path,
    overtaken: Vec<Write>,
) -> (Vec<String>, Vec<Write>) {
    if overtaken.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let (unconfirmed, root, all) = (unconfirmed.clone(), root.to_owned(), overtaken.clone());
    let left = blocking(move || {
        let mut kernel = DiskKernel::open(&root).ok()?;
        let has_left =
            |write: &Write| write.pass == Pass::Grow || unconfirmed.leave(&mut kernel, write);
        Some(all.into_iter().partition(has_left))
    });
    let Some(Some((left, to_tell))) = left.await else { return (Vec::new(), overtaken) };
    let left: Vec<Write> = left;
    (left.into_iter().map(|write| write.container).collect(), to_tell)
}

fn writes_in_flight(cpus: usize, does_call_wait: bool) -> usize {
    match does_call_wait {
        true => WRITES_IN_FLIGHT_MAX,
        false => cpus.saturating_mul(WRITES_PER_CPU).clamp(WRITES_PER_CPU, WRITES_IN_FLIGHT_MAX),
    }
}

/// CPUs that containers still run on although they should not, because a write failed.
#[derive(Default)]
struct Stuck(BTreeMap<String, CpuSet>);

impl Stuck {
    /// A container holds what it has not let go of since its last write that did not fail, less what it may have now. One that was only to get CPUs
    /// holds up nothing. What a container that may run everywhere holds is not counted: no container could be given anything.
    fn note(&mut self, write: &Write, has_failed: bool) {
        let held = self.0.remove(&write.container).unwrap_or_default();
        if has_failed {
            let old = write.old.as_ref().map(|old| old.cpus.clone()).unwrap_or_default();
            let held = held.union(&old).difference(&write.new.cpus);
            if !held.is_empty() {
                self.0.insert(write.container.clone(), held);
            }
        }
    }

    /// A container that has ended runs nowhere; it may have failed to shrink for just that reason, and is never told anything again. Where it was
    /// read back where a container runs, what it still has to let go of is written again.
    fn forget(&mut self, forgiven: &[String]) {
        for container in forgiven {
            self.0.remove(container);
        }
    }

    /// No container grows onto CPUs that another has not let go of. A container that keeps no CPU is moved all the same: where it is, it is surely
    /// wrong.
    fn withholds(&self, write: &Write) -> bool {
        let is_held = || {
            let mut others = self.0.iter().filter(|(id, _)| **id != write.container);
            others.any(|(_, held)| held.intersects(&write.new.cpus))
        };
        write.pass == Pass::Grow && is_held()
    }
}

/// Fails when the loop is gone, and then the result is not wanted.
fn report(failures: &mpsc::UnboundedSender<WriteEnd>, failed: FailedWrite, why: &str) {
    match failed.is_gone {
        // It has ended just now, which is ordinary.
        true => tracing::debug!(container = failed.container, why, "not updated"),
        false => tracing::warn!(container = failed.container, why, "not updated"),
    }
    let _gone = failures.send(WriteEnd::Failed(failed));
}

/// How the runtime is told of one write.
struct Told {
    runtime: SharedRuntime,
    unconfirmed: Unconfirmed,
}

impl Told {
    /// `limit` is less than a decision may take, so that one container that hangs does not hold up all decisions.
    async fn apply(
        self,
        root: &Path,
        write: Write,
        plan: PlanNumber,
        limit: Duration,
    ) -> (Write, Result<(), RuntimeError>) {
        let Told { runtime, unconfirmed } = self;
        unconfirmed.yield_to_events().await;
        unconfirmed.until_told(&write.container, limit).await;
        let is_to_tell = match unconfirmed.begin(&write, Some(plan)) {
            Begin::Tell => true,
            Begin::Known => false,
            // Since the writes of its group were begun.
            Begin::Overtaken => {
                let (_, to_tell) =
                    leave_without_runtime(&unconfirmed, root, vec![write.clone()]).await;
                !to_tell.is_empty() && unconfirmed.begin(&write, None) == Begin::Tell
            }
        };
        if !is_to_tell {
            return (write, Ok(()));
        }
        tracing::debug!(
            container = write.container,
            pass = %write.pass,
            cpus = %write.new.cpus,
            mems = %write.new.mems,
            "update"
        );
        let updated = timeout(limit, runtime.update(&write.container, &write.new)).await;
        let result = updated.unwrap_or_else(|_| {
            let socket = runtime.socket();
            Err(RuntimeError::TimedOut { call: "UpdateContainerResources", socket, limit })
        });
        let is_over = !matches!(result, Err(RuntimeError::TimedOut { .. }));
        unconfirmed.end(&write, is_over.then_some(result.is_ok()));
        (write, result)
    }
}

/// Passes failures of the writer on as events, so that the writer never waits for the loop.
pub(crate) async fn report_failures(mut failures: mpsc::UnboundedReceiver<WriteEnd>, inbox: Inbox) {
    let mut ends = Vec::new();
    while failures.recv_many(&mut ends, FAILURES_MAX).await > 0 {
        let (mut failed, mut landed) = (Vec::new(), Vec::new());
        for end in ends.drain(..) {
            match end {
                WriteEnd::Failed(write) => {
                    landed.retain(|container| *container != write.container);
                    failed.push(write);
                }
                WriteEnd::Landed(container) => landed.push(container),
            }
        }
        for event in [Event::WritesFailed(failed), Event::WritesLanded(landed)] {
            let is_empty = match &event {
                Event::WritesFailed(failed) => failed.is_empty(),
                Event::WritesLanded(landed) => landed.is_empty(),
                _ => true,
            };
            if !is_empty && inbox.ask(event).await.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bayplan_types::Pinning;
    use bayplan_workload::runtime::ContainerState;
    use tokio::sync::watch;

    use super::*;
    use crate::resources_dir::ResourcesDir;
    use crate::runtime::model::ModelRuntime;

    fn write(pass: Pass, container: &str, old: &str, new: &str) -> Write {
        let pinning = |cpus: &str| Pinning { cpus: cpus.parse().unwrap(), ..Pinning::default() };
        let old = (old != "?").then(|| pinning(old));
        Write { pass, container: container.to_owned(), old, new: pinning(new) }
    }

    /// A container on `there` in the kernel, one plan after the other that the writer finds all at once, and where the runtime and the kernel have it in the end.
    async fn check_waiting(there: &str, plans: &[(Pass, &str)], told: &[&str], file: &str) {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/kubepods/podu/c");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.type"), "domain\n").unwrap();
        std::fs::write(group.join("cpuset.cpus"), format!("{there}\n")).unwrap();
        let runtime = ModelRuntime::with(&[("c", ContainerState::Running)]);
        let (unconfirmed, updates) = (Unconfirmed::for_events(), Arc::clone(&runtime.told));
        let (batches, waiting) = mpsc::unbounded_channel();
        let mut old = there;
        for (pass, new) in plans {
            let plan = Plan { writes: vec![write(*pass, "c", old, new)] };
            let number = unconfirmed.plan(&plan.writes, |_| "/kubepods/podu".to_owned());
            let (forgiven, files) = (Vec::new(), FileNews::default());
            batches
                .send(Batch { plan, number, then: AfterPlan::Nothing, forgiven, files })
                .unwrap();
            old = new;
        }
        drop(batches);
        let (_config, config) = watch::channel(Arc::default());
        let writer = RuntimeWriter {
            runtime: Arc::new(runtime),
            failures: mpsc::unbounded_channel().0,
            config,
            metrics: Arc::default(),
            calls: RuntimeCalls::default(),
            unconfirmed,
            resources: Arc::new(Mutex::new(ResourcesDir::new(root.path().join("resources")))),
            host_root: root.path().to_owned(),
        };
        run_runtime_writer(waiting, writer).await;
        let updates = updates.lock().unwrap().clone();
        let updates: Vec<String> = updates.iter().map(|(_, it)| it.cpus.to_string()).collect();
        assert_eq!(updates, told, "{plans:?}");
        let found = std::fs::read_to_string(group.join("cpuset.cpus")).unwrap();
        assert_eq!(found.trim(), file, "{plans:?}");
    }

    /// Issue 35: while exclusive containers came and went, more updates were planned than the runtime made, and each of them was told.
    #[tokio::test]
    async fn of_plans_that_wait_only_the_last_one_of_a_container_is_told() {
        use Pass::{Grow, Move, Shrink};
        check_waiting("0-3", &[(Shrink, "0-1"), (Grow, "0-3"), (Shrink, "0")], &["0"], "0-1").await;
        check_waiting("0-1", &[(Grow, "0-3"), (Shrink, "0-1"), (Grow, "0-2")], &["0-2"], "0-1")
            .await;
        // The CPUs of an earlier move may be another container's by now: the runtime asks before it makes the update.
        check_waiting("0-1", &[(Move, "2-3"), (Move, "0")], &["2-3", "0"], "0-1").await;
        check_waiting("0-1", &[(Shrink, "0")], &["0"], "0-1").await;
    }

    #[test]
    fn as_many_updates_are_in_flight_as_cpus_can_carry_out() {
        for (cpus, expected) in [(0, 2), (1, 2), (2, 4), (8, 16), (64, 16), (usize::MAX, 16)] {
            assert_eq!(writes_in_flight(cpus, false), expected, "{cpus}");
            assert_eq!(writes_in_flight(cpus, true), WRITES_IN_FLIGHT_MAX, "{cpus}");
        }
    }

    #[test]
    fn no_container_grows_onto_cpus_that_another_has_not_let_go_of() {
        let mut stuck = Stuck::default();
        stuck.note(&write(Pass::Shrink, "a", "0-3", "0-1"), true);
        stuck.note(&write(Pass::Shrink, "unknown", "?", "0-1"), true);
        for (pass, container, old, new, expected) in [
            (Pass::Grow, "b", "4", "2-4", true),
            (Pass::Grow, "b", "4", "4-5", false),
            // A move off CPUs that it must not have, and its own way out.
            (Pass::Move, "b", "7", "2-4", false),
            (Pass::Grow, "a", "0-1", "0-3", false),
            (Pass::Shrink, "b", "2-4", "2-3", false),
        ] {
            let asked = stuck.withholds(&write(pass, container, old, new));
            assert_eq!(asked, expected, "{pass} {container} {old} {new}");
        }
        stuck.note(&write(Pass::Shrink, "a", "0-3", "0-1"), false);
        assert!(!stuck.withholds(&write(Pass::Grow, "b", "4", "2-4")));
    }

    #[test]
    fn a_container_that_could_not_be_given_cpus_holds_none_up() {
        for (pass, old, new, expected) in [
            (Pass::Grow, "0-1", "0-3", 0),
            (Pass::Shrink, "", "0-3", 0),
            (Pass::Shrink, "0-3", "0-1", 1),
            (Pass::Move, "0-1", "2-3", 1),
        ] {
            let mut stuck = Stuck::default();
            stuck.note(&write(pass, "a", old, new), true);
            assert_eq!(stuck.0.len(), expected, "{pass} from `{old}` to `{new}`");
        }
    }

    #[test]
    fn a_container_holds_what_none_of_its_failed_writes_has_made_it_let_go_of() {
        let mut stuck = Stuck::default();
        for (old, new, expected) in [
            ("0-3", "0-1", "2-3"),
            // The state does not know where it is, or takes it to be where it was told to be.
            ("0-1", "0", "1-3"),
            ("?", "0", "1-3"),
            // It may have some of them again.
            ("0", "0-2", "3"),
            ("0-2", "0-3", ""),
        ] {
            stuck.note(&write(Pass::Shrink, "a", old, new), true);
            let held = stuck.0.get("a").map(CpuSet::to_string).unwrap_or_default();
            assert_eq!(held, expected, "from `{old}` to `{new}`");
        }
    }

    #[test]
    fn a_container_that_ended_while_told_to_let_go_holds_none_up() {
        let mut stuck = Stuck::default();
        stuck.note(&write(Pass::Shrink, "a", "0-3", "0-1"), true);
        stuck.note(&write(Pass::Shrink, "c", "5-6", "5"), true);
        stuck.forget(&["a".to_owned(), "never written".to_owned()]);
        assert!(!stuck.withholds(&write(Pass::Grow, "b", "4", "2-4")));
        assert!(stuck.withholds(&write(Pass::Grow, "b", "4", "4-6")));
    }
}
