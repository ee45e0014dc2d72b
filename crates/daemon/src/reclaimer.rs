//! Reclaims idle memory, each container's in its own time. In: whose and how, as the last look at kernel files has it, and the time. Out: writes to
//! `memory.reclaim`, and how they ended.
//!
//! Beside the enforcer and not in it, because nothing is kept in that file: nothing can be compared, repaired or given back, and a write takes
//! as long as the kernel needs to free what it was asked for. Nothing is written while the enforcer is off, in a dry run, or everything is restored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bayplan_enforcement::{Reclaim, ReclaimTurn, StallSeen};
use bayplan_host::counters::parse_stall;
use bayplan_host::kernel::{DiskKernel, Kernel};
use nix::errno::Errno;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::enforcer::Enforcement;
use crate::metrics::Metrics;
use crate::tasks::blocking;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As much as was asked for.
    Done,
    /// Less: the rest is in use, protected, or has nowhere to go.
    Less,
    /// Nothing was asked for: the container lacks memory as it is.
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
}

/// What is known of one container.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// When it had its last turn, since the start.
    at: Duration,
    /// What was read then; `None` where that failed.
    seen: Option<StallSeen>,
    /// How that ended; `None`: it was the first.
    end: Option<End>,
}

/// Takes turns.
struct Reclaimer {
    kernel: Box<dyn Kernel + Send>,
    /// By the file that is written.
    known: BTreeMap<String, Known>,
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
    let mut reclaimer = Reclaimer { kernel: Box::new(kernel), known: BTreeMap::new() };
    loop {
        let reclaims = enforcement.reclaims();
        let due = reclaimer.next_turn(&reclaims);
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(started + due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            // Who is to be reclaimed of may have changed.
            () = enforcement.looked() => continue,
            () = is_due => {}
        }
        let (stopping, counts) = (stop.clone(), Arc::clone(&metrics));
        let worked = blocking(move || {
            for reclaim in reclaims.iter().take_while(|_| !stopping.is_cancelled()) {
                let end = reclaimer.turn(reclaim, started.elapsed());
                if let Some(name) = end.and_then(End::name) {
                    counts.reclaimed(name);
                }
            }
            reclaimer.forget_others(&reclaims);
            reclaimer
        });
        let Some(back) = worked.await else { return };
        reclaimer = back;
    }
}

impl Reclaimer {
    /// When the first of them is due; `None` where there is nobody.
    fn next_turn(&self, reclaims: &[Reclaim]) -> Option<Duration> {
        reclaims.iter().map(|it| self.due(it)).min()
    }

    fn due(&self, reclaim: &Reclaim) -> Duration {
        let known = self.known.get(&reclaim.path());
        known.map_or(Duration::ZERO, |known| known.at.saturating_add(reclaim.class.every))
    }

    /// `None`: it is not due yet, or was looked at for the first time.
    fn turn(&mut self, reclaim: &Reclaim, now: Duration) -> Option<End> {
        if now < self.due(reclaim) {
            return None;
        }
        let last = self.known.get(&reclaim.path()).copied();
        let (seen, end) = match self.stalled(reclaim) {
            Ok(stalled) => {
                let seen = StallSeen { at: now, stalled };
                let turn = reclaim.class.turn(last.and_then(|it| it.seen), seen);
                (Some(seen), self.carry_out(reclaim, turn))
            }
            Err(errno) => (None, Some(failure(errno))),
        };
        self.known.insert(reclaim.path(), Known { at: now, seen, end });
        if let Some(End::Failed(errno)) = end
            && last.is_none_or(|last| last.end != end)
        {
            let (path, unit) = (reclaim.path(), &reclaim.member.unit);
            tracing::warn!(
                "cannot reclaim memory of {unit} (/{path}): {errno:?}: {}; it is tried again",
                errno.desc()
            );
        }
        end
    }

    fn stalled(&mut self, reclaim: &Reclaim) -> Result<Duration, Errno> {
        let text = self.kernel.read(&reclaim.pressure_path())?;
        let stall = parse_stall(&text).ok_or(Errno::ENODATA)?;
        Ok(Duration::from_micros(stall.some_usec))
    }

    fn carry_out(&mut self, reclaim: &Reclaim, turn: ReclaimTurn) -> Option<End> {
        match turn {
            ReclaimTurn::First => None,
            ReclaimTurn::Stalled => Some(End::Stalled),
            ReclaimTurn::Reclaim => {
                Some(match self.kernel.write(&reclaim.path(), &reclaim.text()) {
                    Ok(()) => End::Done,
                    Err(Errno::EAGAIN) => End::Less,
                    Err(errno) => failure(errno),
                })
            }
        }
    }

    /// Containers that have gone, or are in no class any more.
    fn forget_others(&mut self, reclaims: &[Reclaim]) {
        let paths: BTreeSet<String> = reclaims.iter().map(Reclaim::path).collect();
        self.known.retain(|path, _| paths.contains(path));
    }
}

fn failure(errno: Errno) -> End {
    // A group that is removed while its files are open answers ENODEV.
    match errno {
        Errno::ENOENT | Errno::ENODEV => End::Gone,
        errno => End::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bayplan_enforcement::{ReclaimClass, ReclaimMember};
    use bayplan_host::fake_kernel::FakeKernel;
    use bayplan_types::Bytes;

    use super::*;

    const PRESSURE: &str = "sys/fs/cgroup/p/c/memory.pressure";
    const RECLAIM: &str = "sys/fs/cgroup/p/c/memory.reclaim";

    fn reclaim() -> Reclaim {
        let class = ReclaimClass {
            every: Duration::from_secs(10),
            bytes: Bytes(1 << 20),
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
            let files = [(PRESSURE, pressure(0)), (RECLAIM, String::new())];
            let files: Vec<(&str, &str)> =
                files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let kernel = Arc::new(Mutex::new(FakeKernel::new(&files)));
            let reclaimer =
                Reclaimer { kernel: Box::new(Arc::clone(&kernel)), known: BTreeMap::new() };
            Scene { kernel, reclaimer }
        }

        /// After so many seconds, when it has stalled for so many milliseconds in all.
        fn turn(&mut self, secs: u64, stalled: u64) -> Option<End> {
            let mut kernel = self.kernel.lock().unwrap();
            kernel.files.insert(PRESSURE.to_owned(), pressure(stalled));
            drop(kernel);
            self.reclaimer.turn(&reclaim(), Duration::from_secs(secs))
        }

        fn fail_next(&self, errno: Errno) {
            self.kernel.lock().unwrap().fail_next(RECLAIM, errno);
        }
    }

    #[test]
    fn memory_is_reclaimed_in_its_time_and_not_of_who_lacks_it() {
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
        assert_eq!(scene.reclaimer.next_turn(&[reclaim()]), Some(Duration::from_secs(40)));
        assert_eq!(scene.reclaimer.next_turn(&[]), None);
        scene.reclaimer.forget_others(&[]);
        assert_eq!(scene.reclaimer.next_turn(&[reclaim()]), Some(Duration::ZERO));
    }

    #[test]
    fn whatever_the_kernel_answers_the_next_turn_comes_in_its_time() {
        let rows = [
            (Errno::EAGAIN, End::Less),
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
        scene.kernel.lock().unwrap().files.insert(PRESSURE.to_owned(), "nonsense\n".to_owned());
        let turn = |scene: &mut Scene| scene.reclaimer.turn(&reclaim(), Duration::from_secs(10));
        assert_eq!(turn(&mut scene), Some(End::Failed(Errno::ENODATA)));
        // Nothing is known of the time before.
        assert_eq!(scene.turn(20, 0), None);
        assert_eq!(scene.turn(30, 0), Some(End::Done));
    }
}
