//! Reclaims idle memory, each container's in its own time. In: from which containers and how, as the last look at kernel files has it, and the time.
//! Out: writes to `memory.reclaim`, and how they ended.
//!
//! Beside the enforcer and not in it, because nothing is kept in that file: nothing can be compared, repaired or given back, and a write takes
//! as long as the kernel needs to free what it was asked for. So a turn is many small writes, and before each of them it is asked anew whether it is still wanted, whether the container
//! lacks memory, and how much of it is protected. Nothing is written while the enforcer is off, in a dry run, or everything is restored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bayplan_enforcement::{Reclaim, ReclaimClass, ReclaimTurn, StallSeen, next_slice};
use bayplan_host::counters::parse_stall;
use bayplan_host::kernel::{DiskKernel, Kernel};
use bayplan_types::Bytes;
use nix::errno::Errno;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::enforcer::Enforcement;
use crate::metrics::Metrics;
use crate::tasks::blocking;

/// The longest pause after turns that have found less than was asked for: the kernel looks for it on every CPU.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As much as was asked for.
    Done,
    /// Less: the rest is in use, protected, or has nowhere to go.
    Less,
    /// No more was asked for: the container lacks memory as it is.
    Stalled,
    /// The container or its group has gone.
    Gone,
    /// The kernel refused.
    Failed(Errno),
}

impl End {
    /// As metrics call it; `None` is not counted.
    fn name(self) -> Option<&'static str> {
        match self {
            End::Done => Some("done"),
            End::Less => Some("less"),
            End::Stalled => Some("stalled"),
            End::Gone => None,
            End::Failed(_) => Some("failed"),
        }
    }

    fn why(self) -> Option<String> {
        match self {
            End::Failed(errno) => Some(format!("{errno:?}: {}", errno.desc())),
            _ => None,
        }
    }
}

/// What is known of one container.
#[derive(Clone, Copy, Debug)]
struct Known {
    class: ReclaimClass,
    /// When its next write is due, since the start.
    due: Duration,
    /// What was read when its last turn ended; `None` where that failed, or there was none.
    seen: Option<StallSeen>,
    /// What is still to be asked for in the turn that is under way.
    left: Option<Bytes>,
    /// From its last turn to its next.
    pause: Duration,
    /// How its last turn ended.
    end: Option<End>,
}

/// Takes turns.
struct Reclaimer {
    kernel: Box<dyn Kernel + Send>,
    /// By the file that is written.
    known: BTreeMap<String, Known>,
    /// How many were looked at for the first time.
    firsts: u32,
}

/// Reclaims until `stop`. A write that is under way then comes to its end by itself.
pub(crate) async fn run_reclaimer(
    root: PathBuf,
    mut enforcement: Enforcement,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    // Without it the daemon does not start.
    let Ok(kernel) = DiskKernel::open(&root) else { return };
    let started = Instant::now();
    let mut reclaimer = Reclaimer::new(Box::new(kernel));
    loop {
        let reclaims = enforcement.reclaims();
        reclaimer.forget_others(&reclaims);
        let next = reclaimer.next(&reclaims);
        let is_due = async {
            match next {
                Some((due, reclaim)) => {
                    tokio::time::sleep_until(started + due).await;
                    reclaim
                }
                None => std::future::pending().await,
            }
        };
        let reclaim = tokio::select! {
            () = stop.cancelled() => return,
            // The containers to reclaim from may have changed.
            () = enforcement.looked() => continue,
            reclaim = is_due => reclaim,
        };
        // A caller that waits until nothing is reclaimed has ended what wants it before.
        let under_way = enforcement.begin_reclaim().await;
        if !enforcement.reclaims().contains(reclaim) {
            continue;
        }
        let reclaim = reclaim.clone();
        let worked = blocking(move || {
            let end = reclaimer.write_slice(&reclaim, started.elapsed());
            drop(under_way);
            (reclaimer, end)
        });
        let back = tokio::select! {
            () = stop.cancelled() => return,
            back = worked => back,
        };
        let Some((back, end)) = back else { return };
        reclaimer = back;
        if let Some(end) = end {
            end.name().into_iter().for_each(|name| metrics.reclaimed(name));
            enforcement.note_reclaim_failures(reclaimer.failures());
        }
    }
}

impl Reclaimer {
    fn new(kernel: Box<dyn Kernel + Send>) -> Reclaimer {
        Reclaimer { kernel, known: BTreeMap::new(), firsts: 0 }
    }

    /// Which container is due first, and when; `None` where there is none.
    fn next<'a>(&self, reclaims: &'a [Reclaim]) -> Option<(Duration, &'a Reclaim)> {
        reclaims.iter().map(|it| (self.due(it), it)).min_by_key(|(due, _)| *due)
    }

    fn due(&self, reclaim: &Reclaim) -> Duration {
        self.known.get(&reclaim.path()).map_or(Duration::ZERO, |known| known.due)
    }

    /// One write at most. How the turn ended; `None`: it goes on, or the container was looked at for the first time.
    fn write_slice(&mut self, reclaim: &Reclaim, now: Duration) -> Option<End> {
        let (path, class) = (reclaim.path(), reclaim.class);
        let (due, pause) = (Duration::ZERO, class.every);
        let fresh = Known { class, due, seen: None, left: None, pause, end: None };
        let mut known = self.known.get(&path).copied().unwrap_or(fresh);
        let stalled = self.stalled(reclaim);
        let seen = stalled.ok().map(|stalled| StallSeen { at: now, stalled });
        let left = known.left.unwrap_or(class.bytes);
        let asked = match (stalled, seen.map(|seen| class.turn(known.seen, seen))) {
            (Ok(_), Some(ReclaimTurn::Reclaim)) => self.ask(reclaim, left),
            (Ok(_), Some(ReclaimTurn::Stalled)) => Err(End::Stalled),
            (Ok(_), _) => {
                known.due = now + class.every + self.spread(class.every);
                self.known.insert(path, Known { seen, ..known });
                return None;
            }
            (Err(errno), _) => Err(self.failure(reclaim, errno)),
        };
        let end = match asked {
            Ok(asked) if asked < left => {
                // Others that are due come first.
                let left = Some(left.saturating_sub(asked));
                self.known.insert(path, Known { due: now, left, ..known });
                return None;
            }
            Ok(_) => End::Done,
            Err(end) => end,
        };
        let pause = match end {
            End::Less => {
                known.pause.saturating_mul(2).clamp(class.every, PAUSE_MAX.max(class.every))
            }
            // It still has as little to give.
            End::Stalled => known.pause,
            _ => class.every,
        };
        if known.end != Some(end)
            && let Some(why) = end.why()
        {
            let unit = &reclaim.member.unit;
            tracing::warn!("cannot reclaim memory of {unit} (/{path}): {why}; it is tried again");
        }
        let due = now + pause;
        self.known.insert(path, Known { class, due, seen, left: None, pause, end: Some(end) });
        Some(end)
    }

    /// So that containers that came together are not due together.
    fn spread(&mut self, every: Duration) -> Duration {
        let percent = self.firsts.wrapping_mul(61) % 100;
        self.firsts = self.firsts.wrapping_add(1);
        every * percent / 100
    }

    fn stalled(&mut self, reclaim: &Reclaim) -> Result<Duration, Errno> {
        let text = self.kernel.read(&reclaim.pressure_path())?;
        let stall = parse_stall(&text).ok_or(Errno::ENODATA)?;
        Ok(Duration::from_micros(stall.some_usec))
    }

    /// What was asked for and given, or why the turn ends.
    fn ask(&mut self, reclaim: &Reclaim, left: Bytes) -> Result<Bytes, End> {
        let slice = self.slice(reclaim, left).map_err(|errno| self.failure(reclaim, errno))?;
        let slice = slice.ok_or(End::Less)?;
        match self.kernel.write(&reclaim.path(), &reclaim.text(slice)) {
            Ok(()) => Ok(slice),
            Err(Errno::EAGAIN) => Err(End::Less),
            Err(errno) => Err(self.failure(reclaim, errno)),
        }
    }

    fn slice(&mut self, reclaim: &Reclaim, left: Bytes) -> Result<Option<Bytes>, Errno> {
        let mut read = |name| {
            let text = self.kernel.read(&reclaim.file(name))?;
            match text.trim() {
                "max" => Ok(Bytes(u64::MAX)),
                number => number.parse().map(Bytes).map_err(|_| Errno::ENODATA),
            }
        };
        let (current, min, low) =
            (read("memory.current")?, read("memory.min")?, read("memory.low")?);
        Ok(next_slice(left, current, min.max(low)))
    }

    /// A group that is removed while its files are open answers ENODEV. Pressure may be hidden in a group that is there (`cgroup.pressure`).
    fn failure(&mut self, reclaim: &Reclaim, errno: Errno) -> End {
        match errno {
            Errno::ENODEV => End::Gone,
            Errno::ENOENT if self.kernel.read(&reclaim.file("cgroup.type")).is_err() => End::Gone,
            errno => End::Failed(errno),
        }
    }

    /// Why the last turns of containers failed, by the files that are written.
    fn failures(&self) -> BTreeMap<String, String> {
        let failures = self.known.iter();
        failures.filter_map(|(path, known)| Some((path.clone(), known.end?.why()?))).collect()
    }

    /// Containers that have gone, or are in another class, or in none any more.
    fn forget_others(&mut self, reclaims: &[Reclaim]) {
        if self.known.is_empty() {
            return;
        }
        let there: BTreeMap<String, ReclaimClass> =
            reclaims.iter().map(|it| (it.path(), it.class)).collect();
        self.known.retain(|path, known| there.get(path) == Some(&known.class));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::sync::Mutex;

    use bayplan_enforcement::ReclaimMember;
    use bayplan_host::fake_kernel::FakeKernel;

    use super::*;
    use crate::enforcer::RuntimeCalls;

    const PRESSURE: &str = "sys/fs/cgroup/p/c/memory.pressure";
    const RECLAIM: &str = "sys/fs/cgroup/p/c/memory.reclaim";
    const CURRENT: &str = "sys/fs/cgroup/p/c/memory.current";
    const MIN: &str = "sys/fs/cgroup/p/c/memory.min";
    const LOW: &str = "sys/fs/cgroup/p/c/memory.low";
    const TYPE: &str = "sys/fs/cgroup/p/c/cgroup.type";
    const MIB: u64 = 1 << 20;

    fn reclaim() -> Reclaim {
        reclaim_of(MIB)
    }

    fn reclaim_of(bytes: u64) -> Reclaim {
        let class = ReclaimClass {
            every: Duration::from_secs(10),
            bytes: Bytes(bytes),
            stalled_percent_max: 1,
            swappiness: None,
        };
        let member = ReclaimMember {
            unit: "n/p/c".to_owned(),
            dir: "sys/fs/cgroup/p/c".to_owned(),
            class: "idle".to_owned(),
        };
        Reclaim { member, class }
    }

    fn pressure(millis: u64) -> String {
        format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            millis * 1000
        )
    }

    struct Scene {
        kernel: Arc<Mutex<FakeKernel>>,
        reclaimer: Reclaimer,
    }

    impl Scene {
        fn new() -> Scene {
            let kernel = FakeKernel::new(&[
                (RECLAIM, ""),
                (CURRENT, "1073741824\n"),
                (MIN, "0\n"),
                (LOW, "0\n"),
            ]);
            let kernel = Arc::new(Mutex::new(kernel));
            let reclaimer = Reclaimer::new(Box::new(Arc::clone(&kernel)));
            Scene { kernel, reclaimer }
        }

        fn put(&self, path: &str, text: impl Into<String>) {
            self.kernel.lock().unwrap().files.insert(path.to_owned(), text.into());
        }

        /// What was asked for, in MiB.
        fn asked(&self) -> Vec<u64> {
            let kernel = self.kernel.lock().unwrap();
            kernel.written.iter().map(|(_, text)| text.parse::<u64>().unwrap() / MIB).collect()
        }

        /// After so many seconds, when it has stalled for so many milliseconds in all.
        fn turn(&mut self, secs: u64, stalled: u64) -> Option<End> {
            self.put(PRESSURE, pressure(stalled));
            self.slice(&reclaim(), secs)
        }

        /// If it is due.
        fn slice(&mut self, reclaim: &Reclaim, secs: u64) -> Option<End> {
            let now = Duration::from_secs(secs);
            let is_due = self.reclaimer.due(reclaim) <= now;
            is_due.then(|| self.reclaimer.write_slice(reclaim, now)).flatten()
        }

        fn fail_next(&self, errno: Errno) {
            self.kernel.lock().unwrap().fail_next(RECLAIM, errno);
        }
    }

    #[test]
    fn memory_is_reclaimed_in_its_time_and_not_of_containers_that_lack_it() {
        let mut scene = Scene::new();
        let rows = [
            (0, 0, None),
            (9, 0, None),
            (10, 100, Some(End::Done)),
            (19, 100, None),
            (20, 201, Some(End::Stalled)),
            (30, 301, Some(End::Done)),
        ];
        for (secs, stalled, expected) in rows {
            assert_eq!(scene.turn(secs, stalled), expected, "after {secs} s");
        }
        let write = (RECLAIM.to_owned(), "1048576".to_owned());
        assert_eq!(scene.kernel.lock().unwrap().written, [write.clone(), write]);
        let reclaims = [reclaim()];
        let due = |scene: &Scene, reclaims| scene.reclaimer.next(reclaims).map(|(due, _)| due);
        assert_eq!(due(&scene, &reclaims), Some(Duration::from_secs(40)));
        assert_eq!(due(&scene, &[]), None);
        scene.reclaimer.forget_others(&[]);
        assert_eq!(due(&scene, &reclaims), Some(Duration::ZERO));
    }

    #[test]
    fn a_turn_is_many_small_writes_and_ends_when_the_container_stalls() {
        let mut scene = Scene::new();
        let large = reclaim_of(10 * MIB);
        scene.put(PRESSURE, pressure(0));
        assert_eq!(scene.slice(&large, 0), None);
        assert_eq!(
            [10, 11, 12].map(|secs| scene.slice(&large, secs)),
            [None, None, Some(End::Done)]
        );
        assert_eq!(scene.asked(), [4, 4, 2]);
        assert_eq!(scene.slice(&large, 22), None);
        scene.put(PRESSURE, pressure(2000));
        assert_eq!(scene.slice(&large, 23), Some(End::Stalled));
        assert_eq!(scene.slice(&large, 32), None);
        assert_eq!(scene.asked(), [4, 4, 2, 4]);
    }

    /// As it is switched off, in a dry run, and when everything is restored.
    #[tokio::test]
    async fn a_turn_ends_in_its_middle_when_nothing_is_to_be_reclaimed_any_more() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(PRESSURE, &pressure(0));
        for (path, text) in [(CURRENT, "1073741824\n"), (LOW, "0\n"), (MIN, "0\n")] {
            put(path, text);
        }
        let is_asked = || fs::read_to_string(root.path().join(RECLAIM)).unwrap() == "4194304";
        let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
        let (metrics, stop) = (Arc::<Metrics>::default(), CancellationToken::new());
        let counts = Arc::clone(&metrics);
        let host = root.path().to_owned();
        tokio::spawn(run_reclaimer(host, enforcement.clone(), counts, stop.clone()));
        // Two hundred and fifty-six writes, of which each lets another caller in before the next.
        let mut long = reclaim_of(1 << 30);
        long.class.every = Duration::from_millis(10);
        for _ in 0..2 {
            put(RECLAIM, "");
            questions.note_reclaims(std::slice::from_ref(&long));
            let under_way = loop {
                let between = enforcement.begin_reclaim().await;
                if is_asked() {
                    break between;
                }
                drop(between);
                tokio::time::sleep(Duration::from_millis(1)).await;
            };
            put(RECLAIM, "");
            questions.note_reclaims(&[]);
            drop(under_way);
            tokio::time::sleep(long.class.every * 20).await;
            assert!(!is_asked());
        }
        let text = metrics.render(false);
        let ended = text.lines().filter(|line| line.starts_with("bayplan_memory_reclaims_total{"));
        assert!(ended.clone().count() > 0 && ended.into_iter().all(|line| line.ends_with(" 0")));
        stop.cancel();
    }

    #[test]
    fn protected_memory_is_not_asked_for() {
        let mut scene = Scene::new();
        let large = reclaim_of(10 * MIB);
        scene.put(PRESSURE, pressure(0));
        scene.put(CURRENT, format!("{}\n", 100 * MIB));
        scene.put(LOW, format!("{}\n", 90 * MIB));
        assert_eq!(scene.slice(&large, 0), None);
        assert_eq!(scene.slice(&large, 10), None);
        scene.put(CURRENT, format!("{}\n", 96 * MIB));
        assert_eq!(scene.slice(&large, 10), None);
        scene.put(CURRENT, format!("{}\n", 94 * MIB));
        assert_eq!(scene.slice(&large, 10), Some(End::Less));
        scene.put(LOW, "max\n");
        scene.put(CURRENT, format!("{}\n", 1000 * MIB));
        assert_eq!(scene.slice(&large, 30), Some(End::Less));
        assert_eq!(scene.asked(), [4, 2]);
    }

    #[test]
    fn a_container_that_has_less_than_was_asked_for_is_left_alone_for_longer_and_longer() {
        let mut scene = Scene::new();
        assert_eq!(scene.turn(0, 0), None);
        let mut secs = 10;
        for pause in [20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600] {
            scene.fail_next(Errno::EAGAIN);
            assert_eq!(scene.turn(secs, 0), Some(End::Less));
            secs += pause;
            assert_eq!(scene.turn(secs - 1, 0), None);
        }
        assert_eq!(scene.turn(secs, 0), Some(End::Done));
        assert_eq!(scene.turn(secs + 10, 0), Some(End::Done));
    }

    #[test]
    fn containers_that_came_together_are_not_due_together() {
        let mut scene = Scene::new();
        let of = |name: u32| {
            let mut it = reclaim();
            it.member.dir = format!("sys/fs/cgroup/p/{name}");
            it
        };
        let all: Vec<Reclaim> = (0..100).map(of).collect();
        for reclaim in &all {
            scene.put(&reclaim.pressure_path(), pressure(0));
            assert_eq!(scene.slice(reclaim, 0), None);
        }
        let dues: BTreeSet<Duration> = all.iter().map(|it| scene.reclaimer.due(it)).collect();
        assert_eq!(dues.len(), 100);
        assert_eq!(dues.first(), Some(&Duration::from_secs(10)));
        assert!(dues.last().is_some_and(|it| *it < Duration::from_secs(20)));
    }

    #[test]
    fn a_container_in_another_class_is_looked_at_anew() {
        let mut scene = Scene::new();
        assert_eq!(scene.turn(0, 0), None);
        scene.reclaimer.forget_others(&[reclaim()]);
        assert_eq!(scene.reclaimer.due(&reclaim()), Duration::from_secs(10));
        scene.reclaimer.forget_others(&[reclaim_of(2 * MIB)]);
        assert_eq!(scene.reclaimer.due(&reclaim()), Duration::ZERO);
    }

    #[test]
    fn pressure_that_is_hidden_in_a_group_that_is_there_is_told() {
        for (is_there, expected) in [(false, End::Gone), (true, End::Failed(Errno::ENOENT))] {
            let mut scene = Scene::new();
            if is_there {
                scene.put(TYPE, "domain\n");
            }
            assert_eq!(scene.slice(&reclaim(), 0), Some(expected));
            assert_eq!(scene.reclaimer.failures().len(), usize::from(is_there));
        }
    }

    #[test]
    fn whatever_the_kernel_answers_the_next_turn_comes_in_its_time() {
        let rows = [
            (Errno::ENOENT, End::Gone),
            (Errno::ENODEV, End::Gone),
            (Errno::EINVAL, End::Failed(Errno::EINVAL)),
            (Errno::EINTR, End::Failed(Errno::EINTR)),
            (Errno::EACCES, End::Failed(Errno::EACCES)),
            (Errno::EBUSY, End::Failed(Errno::EBUSY)),
            (Errno::ENOMEM, End::Failed(Errno::ENOMEM)),
        ];
        for (errno, expected) in rows {
            let mut scene = Scene::new();
            assert_eq!(scene.turn(0, 0), None);
            scene.fail_next(errno);
            assert_eq!(scene.turn(10, 0), Some(expected));
            assert_eq!(scene.turn(11, 0), None);
            assert_eq!(scene.turn(20, 0), Some(End::Done));
        }
    }

    #[test]
    fn pressure_that_cannot_be_read_is_no_leave_to_reclaim() {
        let mut scene = Scene::new();
        assert_eq!(scene.turn(0, 0), None);
        scene.put(PRESSURE, "nonsense\n");
        assert_eq!(scene.slice(&reclaim(), 10), Some(End::Failed(Errno::ENODATA)));
        // Nothing is known of the time before.
        assert_eq!(scene.turn(20, 0), None);
        assert_eq!(scene.turn(36, 0), None);
        assert_eq!(scene.turn(37, 0), Some(End::Done));
    }
}
