//! A kernel that remembers what its files said, as long as they cannot have been changed unheard. In: whether anything was heard. Out: texts, known
//! or read.
//!
//! Every write of a process to a file of a cgroup is heard (`watcher.rs`), and most of these files are changed by no other program. So a sweep before
//! which nothing was heard takes them as they were read last, and reads all others. Everything is forgotten before any other look, before one sweep
//! in [`SWEEPS`], when there are other disks than before, and with a write of our own: what is read then owes nothing to listening. What could not be
//! read is not known.

use std::collections::{HashMap, HashSet};

use bayplan_host::kernel::Kernel;
use nix::errno::Errno;

/// One sweep of so many reads everything.
const SWEEPS: u32 = 4;
/// Disks by number (Documentation/filesystems/sysfs.rst, "Top Level Directory Layout").
const DISKS: &str = "sys/dev/block";

/// A kernel, and what its files said.
pub(super) struct HeardKernel {
    kernel: Box<dyn Kernel + Send>,
    texts: HashMap<String, String>,
    /// Files of cgroups that are there; that they go is heard, too.
    there: HashSet<String>,
    /// When the look began.
    disks: Result<Vec<String>, Errno>,
    /// Sweeps since everything was read.
    sweeps: u32,
}

/// Only processes change these as long as the disks are the same (Documentation/admin-guide/cgroup-v2.rst, "CPU", "Memory", "IO" and "Cpuset Interface Files"; `cpu.weight`
/// changes with `cpu.idle`, which is heard, too). The kernel itself makes partitions invalid, adapts the model of cost of the root, takes lines out of `io.*` with
/// their disk, and with cgroup v1 takes CPUs out of sets.
fn is_left_to_processes(path: &str) -> bool {
    let Some(below) = path.strip_prefix("sys/fs/cgroup/") else { return false };
    let Some((dir, name)) = below.rsplit_once('/') else { return false };
    let is_v1 = dir.starts_with("cpuset/");
    let is_set = ["cpuset.cpus", "cpuset.mems"].contains(&name) && !is_v1;
    is_set || ["cpu.", "io.", "memory."].iter().any(|it| name.starts_with(it))
}

impl HeardKernel {
    pub(super) fn new(kernel: Box<dyn Kernel + Send>) -> HeardKernel {
        let (texts, there) = (HashMap::new(), HashSet::new());
        HeardKernel { kernel, texts, there, disks: Ok(Vec::new()), sweeps: 0 }
    }

    /// A look begins. `is_calm`: it is a sweep, and since the one before nothing was written by others and everything was listened to.
    pub(super) fn begin_look(&mut self, is_calm: bool) {
        // Before anything is read: what goes later is missed the next time.
        let disks = self.kernel.list(DISKS);
        let are_same = disks == std::mem::replace(&mut self.disks, disks.clone());
        self.sweeps = if is_calm && are_same { (self.sweeps + 1) % SWEEPS } else { 0 };
        if self.sweeps == 0 {
            self.forget();
        }
    }

    /// Everything is read again.
    pub(super) fn forget(&mut self) {
        self.texts.clear();
        self.there.clear();
    }
}

impl Kernel for HeardKernel {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        self.kernel.read(path)
    }

    fn read_all(&mut self, paths: &[&str]) -> Vec<Result<String, Errno>> {
        let known: Vec<Option<String>> =
            paths.iter().map(|path| self.texts.get(*path).cloned()).collect();
        let unknown = paths.iter().zip(&known).filter(|(_, text)| text.is_none());
        let unknown: Vec<&str> = unknown.map(|(path, _)| *path).collect();
        let read = self.kernel.read_all(&unknown);
        for (path, text) in unknown.iter().zip(&read) {
            if let (Ok(text), true) = (text, is_left_to_processes(path)) {
                self.texts.insert((*path).to_owned(), text.clone());
            }
        }
        let mut read = read.into_iter();
        // There is one for each that is not known.
        let mut next = || read.next().unwrap_or(Err(Errno::EIO));
        known.into_iter().map(|known| known.map_or_else(&mut next, Ok)).collect()
    }

    fn is_there(&mut self, path: &str) -> bool {
        let is_known = self.there.contains(path);
        let is_there = is_known || self.kernel.is_there(path);
        if is_there && !is_known && path.starts_with("sys/fs/cgroup/") {
            self.there.insert(path.to_owned());
        }
        is_there
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        self.forget();
        self.kernel.write(path, text)
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        self.kernel.list(dir)
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.kernel.make_dir(dir)
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.kernel.remove_dir(dir)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bayplan_host::fake_kernel::FakeKernel;
    use proptest::prelude::*;

    use super::*;

    type Shared = Arc<Mutex<FakeKernel>>;

    const POD: &str = "sys/fs/cgroup/kubepods/pod1";
    const OTHERS: &str = "sys/fs/cgroup/kubepods/pod2";
    /// Those that only processes change come first.
    const FILES: [&str; 7] = [
        "cpu.max",
        "cpuset.cpus",
        "cpuset.mems",
        "memory.low",
        "io.max",
        "cgroup.threads",
        "cpuset.cpus.partition",
    ];
    const WRITTEN: usize = 5;

    fn paths() -> Vec<String> {
        let in_dir = |dir: &str| FILES.map(|file| format!("{dir}/{file}"));
        let mut paths: Vec<String> = [POD, OTHERS].into_iter().flat_map(in_dir).collect();
        paths.push("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq".to_owned());
        paths
    }

    fn new() -> (Shared, HeardKernel) {
        let paths = paths();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "0")).collect();
        let fake = Arc::new(Mutex::new(FakeKernel::new(&files)));
        let kernel = HeardKernel::new(Box::new(Arc::clone(&fake)));
        (fake, kernel)
    }

    #[test]
    fn what_is_not_heard_is_found_by_one_sweep_of_four() {
        let (fake, mut kernel) = new();
        let path = format!("{POD}/memory.low");
        let set = |text: &str| {
            fake.lock().unwrap().files.insert(path.clone(), text.to_owned());
        };
        let mut look = |is_calm| {
            kernel.begin_look(is_calm);
            kernel.read_all(&[&path]).remove(0).unwrap()
        };
        assert_eq!(look(false), "0");
        set("1");
        assert_eq!([true; 6].map(&mut look), ["0", "0", "0", "1", "1", "1"]);
        set("2");
        assert_eq!([true, false, true].map(look), ["1", "2", "2"]);
    }

    #[test]
    fn only_what_the_kernel_leaves_to_processes_is_taken_as_it_was() {
        for path in paths() {
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(is_left_to_processes(&path), FILES[..WRITTEN].contains(&name), "{path}");
        }
        let v1 = "sys/fs/cgroup/cpuset/kubepods/pod1/cpuset.cpus";
        let root = "sys/fs/cgroup/io.cost.qos";
        for path in [v1, root, "sys/fs/cgroup", "sys/fs/resctrl/a/schemata", "cpu.max", ""] {
            assert!(!is_left_to_processes(path), "{path}");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A process writes a file, which is heard.
        Process(usize, u8),
        /// The kernel changes a file by itself.
        Kernel(usize, u8),
        /// We do.
        Own(usize, u8),
        /// A group goes, which is heard, too.
        Gone(bool),
        /// Another disk is there, and the kernel changes what is said of it.
        Disk,
        /// Or a sweep.
        Look(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let any_file = 0..FILES.len() * 2 + 1;
        let step = prop_oneof![
            2 => (any_file.clone(), any::<u8>()).prop_map(|(file, text)| Step::Process(file, text)),
            2 => (any_file.clone(), any::<u8>()).prop_map(|(file, text)| Step::Kernel(file, text)),
            1 => (any_file, any::<u8>()).prop_map(|(file, text)| Step::Own(file, text)),
            1 => any::<bool>().prop_map(Step::Gone),
            1 => Just(Step::Disk),
            6 => any::<bool>().prop_map(Step::Look),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_the_files_say(steps in steps()) {
            let (fake, mut kernel) = new();
            let paths = paths();
            let all: Vec<&str> = paths.iter().map(String::as_str).collect();
            let (mut was_heard, mut disk) = (true, 0);
            for step in steps {
                let files = |change: &dyn Fn(&mut FakeKernel)| change(&mut fake.lock().unwrap());
                let put = |file: usize, text: u8| files(&|fake| {
                    fake.files.insert(paths[file].clone(), text.to_string());
                });
                match step {
                    Step::Process(file, text) => {
                        put(file, text);
                        was_heard = true;
                    }
                    Step::Kernel(file, _) if is_left_to_processes(&paths[file]) => {}
                    Step::Kernel(file, text) => put(file, text),
                    Step::Own(file, text) => {
                        let _gone = kernel.write(&paths[file], &text.to_string());
                    }
                    Step::Gone(is_first) => {
                        let dir = if is_first { POD } else { OTHERS };
                        files(&|fake| fake.files.retain(|path, _| !path.starts_with(dir)));
                        was_heard = true;
                    }
                    Step::Disk => {
                        disk += 1;
                        files(&|fake| {
                            fake.files.retain(|path, _| !path.starts_with(DISKS));
                            fake.files.insert(format!("{DISKS}/8:{disk}/dev"), String::new());
                            let lines = fake.files.iter_mut().filter(|(it, _)| it.ends_with("io.max"));
                            lines.for_each(|(_, text)| *text = format!("8:{disk}"));
                        });
                    }
                    Step::Look(is_sweep) => {
                        kernel.begin_look(is_sweep && !was_heard);
                        was_heard = false;
                        let told = kernel.read_all(&all);
                        let read: Vec<_> = all.iter().map(|path| kernel.read(path)).collect();
                        prop_assert_eq!(told, read);
                        for path in &all {
                            prop_assert_eq!(kernel.is_there(path), kernel.read(path).is_ok());
                        }
                    }
                }
            }
        }
    }
}
