//! Kernel files of a node that has none of its own. In: the directory in which the daemon looks for them, its containers. Out: files as the kernel's, of
//! which some count on while a test runs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

const CPUS: &str = "sys/devices/system/cpu";
/// Between two writes of what counts on.
const PERIOD: Duration = Duration::from_millis(20);
/// A number of always the same width: the daemon may read at any moment.
const WIDTH: usize = 16;

/// What counts on, until this is dropped.
pub(crate) struct Counting {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

/// A number in a file, with the text around it, and how much it grows in a second.
struct Counter {
    file: File,
    before: String,
    after: String,
    per_second: f64,
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Counter {
    fn make(path: PathBuf, before: &str, after: &str, per_second: f64) -> Counter {
        write(&path, "");
        let file = File::options().write(true).open(path).unwrap();
        let (before, after) = (before.to_owned(), after.to_owned());
        let counter = Counter { file, before, after, per_second };
        counter.write(0.0);
        counter
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of a test, far below the limits"
    )]
    fn write(&self, seconds: f64) {
        let count = 1_000_000_000 + (self.per_second * seconds) as u64;
        let text = format!("{}{count:0WIDTH$}{}", self.before, self.after);
        self.file.write_all_at(text.as_bytes(), 0).unwrap();
    }
}

/// What there is at a glance: CPU 0 is always busy and CPU 1 never; they run at 2.4 and 3.7 GHz; CPU 0 sleeps deeply and CPU 1 does not.
fn write_node(root: &Path) -> Vec<Counter> {
    for (cpu, khz) in [(0, 2_400_000), (1, 3_700_000)] {
        let dir = root.join(format!("{CPUS}/cpu{cpu}"));
        write(&dir.join("cpufreq/scaling_cur_freq"), &format!("{khz}\n"));
        for (state, (name, latency)) in [("C1", 2), ("C6", 133)].into_iter().enumerate() {
            let dir = dir.join(format!("cpuidle/state{state}"));
            write(&dir.join("name"), &format!("{name}\n"));
            write(&dir.join("latency"), &format!("{latency}\n"));
            write(&dir.join("time"), "7\n");
        }
    }
    write(&root.join("sys/fs/cgroup/cgroup.controllers"), "cpu memory\n");
    // By this the daemon sees that there are files of CPUs now.
    write(&root.join(format!("{CPUS}/online")), "0-1\n");
    let stat = root.join("proc/stat");
    let deep = root.join(format!("{CPUS}/cpu0/cpuidle/state1/time"));
    let shallow = root.join(format!("{CPUS}/cpu1/cpuidle/state0/time"));
    let before = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 9 9 9 9 9 0 0 0 0 0\ncpu1 9 9 9 ";
    // More than there can be, so that what is shown does not depend on when it was read.
    vec![
        Counter::make(stat, before, " 0 0 0 0 0 0\n", 1e4),
        Counter::make(deep, "", "\n", 1e7),
        Counter::make(shallow, "", "\n", 1e7),
    ]
}

/// Of one container: its limit stops it half of the time; a quarter of its memory is on node 1; it has 12 MiB of cache, and moves 3 GB a second.
fn write_container(root: &Path, parent: &str, id: &str) -> Vec<Counter> {
    let group = root.join("sys/fs/cgroup").join(parent.trim_start_matches('/')).join(id);
    write(&group.join("cgroup.type"), "domain\n");
    write(&group.join("memory.numa_stat"), "anon N0=6144 N1=2048\nfile N0=0 N1=0\n");
    let monitor = root.join(format!("sys/fs/resctrl/mon_groups/bayplan.{id}/mon_data/mon_L3_00"));
    write(&monitor.join("llc_occupancy"), &format!("{}\n", 12 << 20));
    vec![
        Counter::make(group.join("cpu.stat"), "usage_usec 5\nthrottled_usec ", "\n", 5e5),
        Counter::make(monitor.join("mbm_total_bytes"), "", "\n", 3e9),
    ]
}

/// Writes files of two CPUs and of one of these containers (of `bayplan-status/1`), and lets them count.
pub(crate) fn count(root: &Path, status: &Value, container: &str) -> Counting {
    let all = status["containers"].as_array().unwrap();
    let it = all.iter().find(|it| it["pod"] == container).unwrap();
    let text = |name: &str| it[name].as_str().unwrap();
    let mut counters = write_container(root, text("cgroup_parent"), text("id"));
    counters.extend(write_node(root));
    let is_over = Arc::<AtomicBool>::default();
    let stop = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        let begun = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            counters.iter().for_each(|it| it.write(begun.elapsed().as_secs_f64()));
            std::thread::sleep(PERIOD);
        }
    });
    Counting { is_over, thread: Some(thread) }
}
