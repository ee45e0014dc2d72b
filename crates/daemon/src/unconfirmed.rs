//! CPU sets on their way to the runtime, for a front end with calls that must not wait for them. In: plans as they are made, and how each write ends.
//! Out: containers made to leave CPUs by the kernel at once; which updates the daemon itself has caused.
//!
//! Problem: within an NRI event the runtime takes no update, but the CPUs that the event's answer gives away must be free. Approach: the set of each
//! container with an update that is not confirmed is narrowed in its cgroup's file, which only takes CPUs away; the runtime is told the same by the
//! answer, or by the pinning task afterwards. Growing is left to the pinning task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_enforcement::Write;
use bayplan_host::kernel::Kernel;
use bayplan_host::{CgroupError, find_cpuset_group};
use bayplan_nri::front_end::{LetGo, Origin};
use bayplan_types::{CpuSet, Pinning};
use tokio::sync::watch;
use tokio::time::timeout;

/// Updates of one answer beyond those that the kernel could not be told: the runtime makes them one after the other, some 10 ms each, and nothing else meanwhile.
const LISTED_MAX: usize = 16;

/// How long an update waits for events that are answered: one after the other they could hold it up for good.
const YIELD_MAX: Duration = Duration::from_millis(200);

/// Clones share everything. Off (the default) it remembers nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unconfirmed(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// Events that are making containers leave CPUs.
    narrowing: watch::Sender<usize>,
    /// Held from the reading of a file to its writing: two threads narrow containers.
    files: Mutex<()>,
}

/// An event makes containers leave CPUs until this is dropped.
#[derive(Debug)]
pub(crate) struct Narrowing(Option<Arc<Shared>>);

impl Drop for Narrowing {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.narrowing.send_modify(|count| *count = count.saturating_sub(1));
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By the runtime's id.
    sets: BTreeMap<String, Wanted>,
    /// What the runtime is being told, or was without an answer, by its id.
    told: BTreeMap<String, Vec<Pinning>>,
    /// Containers that the last answer has told the runtime of. Whether it has arrived is known when another event comes.
    listed: Vec<String>,
    /// All that were planned and have not ended, by the runtime's id.
    known: BTreeMap<String, Known>,
    /// The last plan.
    plan: PlanNumber,
}

/// Plans are written in the order in which they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlanNumber(u64);

#[derive(Debug)]
struct Known {
    /// Its last plan.
    plan: PlanNumber,
    /// Its pod's cgroup as kubelet names it.
    parent: String,
    /// Its cgroup, once it was found; it stays there as long as it lives.
    dir: Option<String>,
}

/// Where a container is to be in the end.
#[derive(Clone, Debug)]
struct Wanted {
    new: Pinning,
    /// It runs there, and an answer that has been given tells the runtime.
    is_carried: bool,
}

/// What came of narrowing containers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// For the answer.
    pub(crate) let_go: LetGo,
    /// Those of its updates that the kernel has carried out.
    carried: Vec<(String, Pinning)>,
}

/// What became of one container.
#[derive(Debug, PartialEq, Eq)]
enum Narrowed {
    /// It was on none of the CPUs that it has to leave.
    NotNeeded,
    /// It runs there now.
    Done(Box<Pinning>),
    /// It has no cgroup: no process of it runs.
    Absent,
    /// It is on none of the CPUs that it could keep, and stays there.
    Elsewhere,
    /// It runs where it did.
    Failed(String),
}

impl Unconfirmed {
    /// One that remembers.
    pub(crate) fn on() -> Unconfirmed {
        Unconfirmed(Some(Arc::default()))
    }

    /// Whether calls of the front end must not wait for the runtime.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn table(&self) -> Option<MutexGuard<'_, Table>> {
        Some(self.0.as_ref()?.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The runtime waits for the answer to an event, and what it does for updates, a process for each, is in the way of that.
    pub(crate) fn narrowing(&self) -> Narrowing {
        if let Some(shared) = &self.0 {
            shared.narrowing.send_modify(|count| *count += 1);
        }
        Narrowing(self.0.clone())
    }

    /// Until no event makes containers leave CPUs, but not for ever.
    pub(crate) async fn yield_to_events(&self) {
        let Some(shared) = &self.0 else { return };
        let mut narrowing = shared.narrowing.subscribe();
        let _elapsed = timeout(YIELD_MAX, narrowing.wait_for(|count| *count == 0)).await;
    }

    /// These are about to be written; the last one of a container says where it is to be in the end.
    pub(crate) fn plan(&self, writes: &[Write], parent: impl Fn(&str) -> String) -> PlanNumber {
        let Some(mut table) = self.table() else { return PlanNumber::default() };
        table.plan.0 += 1;
        let plan = table.plan;
        for Write { container, new, .. } in writes {
            let known = || Known { plan, parent: parent(container), dir: None };
            table.known.entry(container.clone()).or_insert_with(known).plan = plan;
            let wanted = Wanted { new: new.clone(), is_carried: false };
            table.sets.insert(container.clone(), wanted);
        }
        plan
    }

    /// These are gone.
    pub(crate) fn forget(&self, containers: &[String]) {
        let Some(mut table) = self.table() else { return };
        for container in containers {
            table.sets.remove(container);
            table.told.remove(container);
            table.known.remove(container);
        }
    }

    /// A later plan than this one, which is still to be written, says where this container is to be in the end.
    pub(crate) fn is_overtaken(&self, write: &Write, plan: PlanNumber) -> bool {
        let Some(table) = self.table() else { return false };
        table.known.get(&write.container).is_some_and(|known| known.plan > plan)
    }

    /// Takes the CPUs away from a container that it has to leave by this write, in the kernel, without a word to the runtime. True: it has left them. An overtaken write gives no CPUs:
    /// since then they may have been given to another container. Reads and writes files, so it is for a thread that may block.
    pub(crate) fn leave(&self, kernel: &mut dyn Kernel, write: &Write) -> bool {
        let narrowed = self.narrow(kernel, &write.container, &write.new, |there, new| {
            Some(there.intersection(new)).filter(|kept| !kept.is_empty())
        });
        matches!(narrowed, Narrowed::NotNeeded | Narrowed::Done(_))
    }

    /// The runtime is about to be told; false: an answer has told it already.
    pub(crate) fn begin(&self, write: &Write) -> bool {
        let Some(mut table) = self.table() else { return true };
        let wanted = table.sets.get(&write.container);
        if wanted.is_some_and(|it| it.is_carried && it.new == write.new) {
            table.sets.remove(&write.container);
            return false;
        }
        let told = table.told.entry(write.container.clone()).or_default();
        // A runtime that hangs is told the same again and again.
        if !told.contains(&write.new) {
            told.push(write.new.clone());
        }
        true
    }

    /// What became of a write; `None`: the runtime may still be at it. A failed one stays unconfirmed until it is planned anew or its container has ended.
    pub(crate) fn end(&self, write: &Write, is_done: Option<bool>) {
        let Some(mut table) = self.table() else { return };
        if is_done.is_some() {
            table.told.remove(&write.container);
        }
        let wanted = table.sets.get(&write.container);
        if is_done == Some(true) && wanted.is_some_and(|it| it.new == write.new) {
            table.sets.remove(&write.container);
        }
    }

    /// Where the update comes from that moves this container there.
    pub(crate) fn origin(&self, container: &str, asked: &Pinning) -> Origin {
        let Some(table) = self.table() else { return Origin::Other };
        let is_own = table.told.get(container).is_some_and(|told| told.contains(asked));
        match table.sets.get(container) {
            _ if !is_own => Origin::Other,
            Some(wanted) if !asked.cpus.is_subset(&wanted.new.cpus) => {
                let cpus = narrow(&asked.cpus, &wanted.new.cpus);
                Origin::Overtaken(Box::new(Pinning { cpus, mems: wanted.new.mems.clone() }))
            }
            _ => Origin::Own,
        }
    }

    /// Takes CPUs that containers should have left away from them, all but `except`, in the kernel. Reads and writes files, so it is for a thread that may block.
    pub(crate) fn let_go(&self, kernel: &mut dyn Kernel, except: &str) -> Freed {
        let Some(sets) = self.table().map(|table| table.sets.clone()) else {
            return Freed::default();
        };
        let (mut listed, mut stuck, mut carried) = (Vec::new(), Vec::new(), Vec::new());
        for (container, wanted) in sets.iter().filter(|(id, _)| *id != except) {
            match self.narrow(kernel, container, &wanted.new, |there, new| Some(narrow(there, new)))
            {
                Narrowed::NotNeeded | Narrowed::Elsewhere => {}
                Narrowed::Absent => listed.push((container.clone(), wanted.new.clone())),
                Narrowed::Failed(why) => {
                    tracing::warn!(container, why, "the kernel does not take CPUs away from it");
                    stuck.push(container.clone());
                    listed.push((container.clone(), wanted.new.clone()));
                }
                Narrowed::Done(there) => carried.push((container.clone(), *there)),
            }
        }
        carried.truncate(LISTED_MAX.saturating_sub(listed.len()));
        listed.extend(carried.iter().cloned());
        Freed { let_go: LetGo { updates: listed, stuck }, carried }
    }

    /// Where the container's cgroup is, if it has one.
    fn dir_of(&self, kernel: &mut dyn Kernel, id: &str) -> Result<Option<String>, CgroupError> {
        let known = |known: &Known| (known.dir.clone(), known.parent.clone());
        let known = self.table().and_then(|table| table.known.get(id).map(known));
        let Some((None, parent)) = known else { return Ok(known.and_then(|(dir, _)| dir)) };
        let found = find_cpuset_group(kernel, &parent, id)?;
        if let Some(mut table) = self.table()
            && let Some(known) = table.known.get_mut(id)
        {
            known.dir.clone_from(&found);
        }
        Ok(found)
    }

    /// Sets the CPUs of a container in the kernel to what `choose` makes of those that it has and those of `new`; `None`: they stay.
    fn narrow(
        &self,
        kernel: &mut dyn Kernel,
        id: &str,
        new: &Pinning,
        choose: fn(&CpuSet, &CpuSet) -> Option<CpuSet>,
    ) -> Narrowed {
        if new.cpus.is_empty() {
            return Narrowed::NotNeeded;
        }
        let dir = match self.dir_of(kernel, id) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Narrowed::Absent,
            Err(why) => return Narrowed::Failed(why.to_string()),
        };
        let _files =
            self.0.as_ref().map(|it| it.files.lock().unwrap_or_else(PoisonError::into_inner));
        let file = format!("{dir}/cpuset.cpus");
        let Some(there) = read_cpus(kernel, &dir) else {
            return match kernel.is_there(&file) {
                true => Narrowed::Failed(format!("{file} cannot be read")),
                false => Narrowed::Absent,
            };
        };
        // Empty: it may run wherever the group around it may.
        if !there.is_empty() && there.is_subset(&new.cpus) {
            return Narrowed::NotNeeded;
        }
        let Some(cpus) = choose(&there, &new.cpus) else { return Narrowed::Elsewhere };
        if let Err(errno) = kernel.write(&file, &cpus.to_string()) {
            return Narrowed::Failed(format!("{file} to {cpus}: {errno}"));
        }
        match read_cpus(kernel, &dir) {
            Some(read) if read == cpus => {
                Narrowed::Done(Box::new(Pinning { cpus, mems: new.mems.clone() }))
            }
            read => {
                let read = read.map_or("no list".to_owned(), |it| it.to_string());
                Narrowed::Failed(format!("{file} is {read} after {cpus} was written"))
            }
        }
    }

    /// An answer with these updates is given. Those that the kernel has carried out are not told again; the runtime may fail to make the others, and does not say so.
    pub(crate) fn note_answer(&self, Freed { let_go, carried }: &Freed) {
        let Some(mut table) = self.table() else { return };
        table.listed = let_go.updates.iter().map(|(container, _)| container.clone()).collect();
        for (container, there) in carried {
            if let Some(wanted) = table.sets.get_mut(container) {
                wanted.is_carried = wanted.new == *there;
            }
        }
    }

    /// The last answer may not have arrived: the containers that it has told of are told again, unless their writes are still to come.
    pub(crate) fn doubt_answer(&self) -> Vec<String> {
        let Some(mut table) = self.table() else { return Vec::new() };
        let mut listed = std::mem::take(&mut table.listed);
        listed.retain(|container| {
            let wanted = table.sets.get_mut(container);
            let is_to_come = wanted.is_some();
            wanted.into_iter().for_each(|it| it.is_carried = false);
            !is_to_come
        });
        listed
    }

    /// Containers that run on CPUs of this place although they should not; as after [`Self::let_go`].
    pub(crate) fn overlapping(
        &self,
        kernel: &mut dyn Kernel,
        stuck: &[String],
        place: &CpuSet,
    ) -> Vec<String> {
        let Some(sets) = self.table().map(|table| table.sets.clone()) else { return Vec::new() };
        let mut found = Vec::new();
        for id in stuck {
            let dir = self.dir_of(kernel, id).ok().flatten();
            let there = dir.and_then(|dir| read_cpus(kernel, &dir));
            let new = sets.get(id).map(|it| it.new.cpus.clone()).unwrap_or_default();
            // CPUs that it may keep are no reason. Where it is not known where it runs, or everywhere, it may run there.
            let is_there =
                |cpus: CpuSet| cpus.is_empty() || cpus.difference(&new).intersects(place);
            if there.is_none_or(is_there) {
                found.push(id.clone());
            }
        }
        found
    }
}

/// What is left of `there` in `new`; all of `new` where that is nothing.
fn narrow(there: &CpuSet, new: &CpuSet) -> CpuSet {
    let kept = there.intersection(new);
    if kept.is_empty() { new.clone() } else { kept }
}

/// `None`: the file cannot be read, or is no list.
fn read_cpus(kernel: &mut dyn Kernel, dir: &str) -> Option<CpuSet> {
    kernel.read(&format!("{dir}/cpuset.cpus")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bayplan_enforcement::Pass;
    use futures::FutureExt as _;
    use nix::errno::Errno;

    use super::*;

    /// Only what is to be in the end counts, whichever pass writes it.
    fn write(container: &str, new: &str) -> Write {
        let new = Pinning { cpus: new.parse().unwrap(), ..Pinning::default() };
        Write { pass: Pass::Shrink, container: container.to_owned(), old: None, new }
    }

    /// Files by their paths; one with a text that begins with `!` cannot be written.
    #[derive(Default)]
    struct Files(BTreeMap<String, String>);

    impl Kernel for Files {
        fn read(&mut self, path: &str) -> Result<String, Errno> {
            let text = self.0.get(path).ok_or(Errno::ENOENT)?;
            Ok(text.trim_start_matches('!').to_owned())
        }

        fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
            let old = self.0.get_mut(path).ok_or(Errno::ENOENT)?;
            if old.starts_with('!') {
                return Err(Errno::EBUSY);
            }
            text.clone_into(old);
            Ok(())
        }

        fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
            let below = self.0.keys().filter_map(|it| it.strip_prefix(dir)?.strip_prefix('/'));
            let names = below.filter_map(|it| it.split('/').next()).map(str::to_owned);
            Ok(names.collect())
        }

        fn make_dir(&mut self, _dir: &str) -> Result<(), Errno> {
            Err(Errno::EPERM)
        }

        fn remove_dir(&mut self, _dir: &str) -> Result<(), Errno> {
            Err(Errno::EPERM)
        }
    }

    const POD: &str = "sys/fs/cgroup/kubepods/podu";
    const POD_PARENT: &str = "/kubepods/podu";

    fn files(sets: &[(&str, &str)]) -> Files {
        let files = sets.iter().flat_map(|(id, cpus)| {
            let file = |name: &str, text: &str| (format!("{POD}/{id}/{name}"), text.to_owned());
            [file("cgroup.type", "domain"), file("cpuset.cpus", cpus)]
        });
        Files(files.collect())
    }

    fn planned(writes: &[(&str, &str)]) -> Unconfirmed {
        let unconfirmed = Unconfirmed::on();
        let writes: Vec<Write> = writes.iter().map(|(id, new)| write(id, new)).collect();
        unconfirmed.plan(&writes, |_| POD_PARENT.to_owned());
        unconfirmed
    }

    #[test]
    fn containers_are_narrowed_in_the_kernel_and_never_widened() {
        // There, wanted: what is in the file then, what the answer lists, whether it is stuck.
        for (there, wanted, file, listed, is_stuck) in [
            ("0-3", "0-1", "0-1", "0-1", false),
            ("0-1", "0-3", "0-1", "", false),
            ("0-3", "2-5", "2-3", "2-3", false),
            ("0-1", "4-5", "4-5", "4-5", false),
            ("", "0-1", "0-1", "0-1", false),
            ("0-1", "0-1", "0-1", "", false),
            ("!0-3", "0-1", "!0-3", "0-1", true),
            ("0-3", "", "0-3", "", false),
        ] {
            let mut kernel = files(&[("c", there), ("new", "0-7")]);
            let unconfirmed = planned(&[("c", wanted), ("new", "6")]);
            let LetGo { updates, stuck } = unconfirmed.let_go(&mut kernel, "new").let_go;
            let told: Vec<String> = updates.iter().map(|(_, it)| it.cpus.to_string()).collect();
            let case = format!("{there} to {wanted}");
            assert_eq!(kernel.0[&format!("{POD}/c/cpuset.cpus")], file, "{case}");
            assert_eq!((told.concat().as_str(), !stuck.is_empty()), (listed, is_stuck), "{case}");
            assert_eq!(kernel.0[&format!("{POD}/new/cpuset.cpus")], "0-7", "{case}");
        }
    }

    #[test]
    fn a_write_that_a_later_plan_overtakes_is_left_to_the_kernel() {
        // There, an earlier write: what is in the file then, and whether the container has left.
        for (there, earlier, file, has_left) in [
            ("0-3", "0-1", "0-1", true),
            ("0", "0-1", "0", true),
            ("0-2", "2-5", "2", true),
            // Another container may have them by now.
            ("2-3", "4-5", "2-3", false),
            ("", "0-1", "", false),
            ("!0-3", "0-1", "!0-3", false),
        ] {
            let mut kernel = files(&[("c", there)]);
            let unconfirmed = Unconfirmed::on();
            let plan = |new: &str| unconfirmed.plan(&[write("c", new)], |_| POD_PARENT.to_owned());
            let first = plan(earlier);
            assert!(!unconfirmed.is_overtaken(&write("c", earlier), first));
            // The same in the end, with another plan in between.
            let last = [plan("0-7"), plan(earlier)][1];
            assert!(unconfirmed.is_overtaken(&write("c", earlier), first));
            assert!(!unconfirmed.is_overtaken(&write("c", earlier), last));
            for _ in 0..2 {
                assert_eq!(unconfirmed.leave(&mut kernel, &write("c", earlier)), has_left);
            }
            assert_eq!(kernel.0[&format!("{POD}/c/cpuset.cpus")], file, "{there} to {earlier}");
        }
        // It has no cgroup yet: the runtime is told. It is unknown: nothing overtakes.
        let unconfirmed = planned(&[("c", "0-7")]);
        assert!(!unconfirmed.leave(&mut Files::default(), &write("c", "0-1")));
        let first = PlanNumber::default();
        assert!(!unconfirmed.is_overtaken(&write("other", "0-1"), first));
        assert!(!Unconfirmed::default().is_overtaken(&write("c", "0-1"), first));
        unconfirmed.forget(&["c".to_owned()]);
        assert!(!unconfirmed.is_overtaken(&write("c", "0-1"), first));
    }

    #[tokio::test]
    async fn an_update_waits_while_an_event_is_answered_but_not_for_ever() {
        let unconfirmed = Unconfirmed::on();
        unconfirmed.yield_to_events().await;
        let (first, second) = (unconfirmed.narrowing(), unconfirmed.narrowing());
        let mut waiting = Box::pin(unconfirmed.yield_to_events());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(second);
        waiting.await;
        let _narrowing = unconfirmed.narrowing();
        unconfirmed.yield_to_events().await;
        Unconfirmed::default().yield_to_events().await;
    }

    #[test]
    fn a_container_without_a_cgroup_is_listed_and_not_stuck() {
        let found = planned(&[("c", "0-1")]).let_go(&mut Files::default(), "new").let_go;
        let there = write("c", "0-1").new;
        assert_eq!(found, LetGo { updates: vec![("c".to_owned(), there)], stuck: Vec::new() });
    }

    #[test]
    fn what_an_answer_has_told_is_not_told_again_unless_it_is_another_set() {
        let unconfirmed = planned(&[("shrinks", "0-1"), ("both", "2-5")]);
        let there = || files(&[("shrinks", "0-3"), ("both", "0-3")]);
        let freed = unconfirmed.let_go(&mut there(), "");
        unconfirmed.note_answer(&freed);
        assert!(!unconfirmed.begin(&write("shrinks", "0-1")));
        assert!(unconfirmed.begin(&write("both", "2-5")));
        unconfirmed.plan(&[write("shrinks", "0")], |_| String::new());
        assert!(unconfirmed.begin(&write("shrinks", "0")));
    }

    #[test]
    fn what_a_runtime_that_hangs_is_told_again_and_again_is_kept_once() {
        let unconfirmed = planned(&[("c", "0-1")]);
        for cpus in ["0-1", "0-1", "0", "0-1"] {
            assert!(unconfirmed.begin(&write("c", cpus)));
            unconfirmed.end(&write("c", cpus), None);
        }
        assert_eq!(unconfirmed.table().unwrap().told["c"].len(), 2);
    }

    /// Issue 35: an answer to `StartContainer` lists no updates, so what was narrowed there counted as told.
    #[test]
    fn what_is_narrowed_without_an_answer_that_tells_it_is_still_told() {
        let unconfirmed = planned(&[("c", "0-1")]);
        unconfirmed.let_go(&mut files(&[("c", "0-3")]), "");
        assert!(unconfirmed.begin(&write("c", "0-1")));
        assert_eq!(unconfirmed.doubt_answer(), Vec::<String>::new());
    }

    /// Issue 35: the connection has ended before the runtime could read the answer.
    #[test]
    fn what_an_answer_in_doubt_has_told_is_told_again() {
        for was_skipped in [false, true] {
            let unconfirmed = planned(&[("c", "0-1")]);
            let freed = unconfirmed.let_go(&mut files(&[("c", "0-3")]), "");
            unconfirmed.note_answer(&freed);
            if was_skipped {
                assert!(!unconfirmed.begin(&write("c", "0-1")));
            }
            let expected: &[&str] = if was_skipped { &["c"] } else { &[] };
            assert_eq!(unconfirmed.doubt_answer(), expected, "{was_skipped}");
            assert!(unconfirmed.begin(&write("c", "0-1")));
            assert_eq!(unconfirmed.doubt_answer(), Vec::<String>::new());
        }
        // Another event has come: that answer has arrived.
        let unconfirmed = planned(&[("c", "0-1")]);
        let mut kernel = files(&[("c", "0-3")]);
        for _ in 0..2 {
            let freed = unconfirmed.let_go(&mut kernel, "");
            unconfirmed.note_answer(&freed);
        }
        assert_eq!(unconfirmed.doubt_answer(), Vec::<String>::new());
        assert!(!unconfirmed.begin(&write("c", "0-1")));
    }

    #[test]
    fn answers_do_not_grow_with_the_node() {
        let ids: Vec<String> = (0..40).map(|at| format!("c{at}")).collect();
        let there: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "0-3")).collect();
        let new: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "0-1")).collect();
        let mut kernel = files(&there);
        let found = planned(&new).let_go(&mut kernel, "").let_go;
        assert_eq!((found.updates.len(), found.stuck.len()), (LISTED_MAX, 0));
        assert!(kernel.0.iter().all(|(path, text)| !path.ends_with("cpus") || text == "0-1"));
    }

    #[test]
    fn an_update_of_our_own_is_known_until_it_has_ended() {
        let unconfirmed = planned(&[("c", "0-3")]);
        let set = |cpus: &str| write("c", cpus).new;
        let grow = write("c", "0-3");
        assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Other);
        assert!(unconfirmed.begin(&grow));
        assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Own);
        assert_eq!(unconfirmed.origin("c", &set("0-2")), Origin::Other);
        unconfirmed.plan(&[write("c", "0-1")], |_| String::new());
        assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Overtaken(Box::new(set("0-1"))));
        // Without an answer the runtime may still come to it.
        unconfirmed.end(&grow, None);
        assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Overtaken(Box::new(set("0-1"))));
        unconfirmed.end(&write("c", "0-1"), Some(true));
        assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Other);
        assert_eq!(unconfirmed.let_go(&mut files(&[("c", "0-7")]), ""), Freed::default());
    }

    #[test]
    fn off_nothing_is_kept() {
        let off = Unconfirmed::default();
        off.plan(&[write("c", "0")], |_| String::new());
        assert!(!off.is_on() && off.begin(&write("c", "0")));
        assert_eq!(off.let_go(&mut files(&[("c", "0-7")]), ""), Freed::default());
        assert_eq!(off.origin("c", &write("c", "0").new), Origin::Other);
    }
}
