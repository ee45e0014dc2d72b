//! Whether the kernel's word about AVX-512 tells a program that uses it from one that does not, on the processor that runs this test. Processors without AVX-512 have nothing to tell:
//! there the test only shows that this is found out.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

mod programs;

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bayplan_host::kernel::DiskKernel;
use bayplan_host::{VectorUse, read_vector_use, tells_vector_use};
use programs::{WITH, WITHOUT};

/// Seconds in which use shows.
const SEEN_WITHIN: u64 = 2;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(dir: &Path, name: &str, code: &[u8]) -> Running {
    let path = programs::write(dir, name, code).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Command::new(&path).spawn() {
            Ok(child) => return Running(child),
            // Another thread has forked while the file was open to be written.
            Err(error) if error.raw_os_error() == Some(26) && Instant::now() < deadline => {
                sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

#[test]
fn a_program_that_uses_avx512_is_told_from_one_that_does_not() {
    let mut kernel = DiskKernel::open(Path::new("/")).unwrap();
    let has_it =
        fs::read_to_string("/proc/cpuinfo").unwrap().split_whitespace().any(|it| it == "avx512f");
    assert_eq!(tells_vector_use(&mut kernel), has_it);
    if !has_it {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let programs = [("with", WITH), ("without", WITHOUT)];
    let running = programs.map(|(name, code)| run(dir.path(), name, code));
    // Groups with these processes, as far as this looks at them; the processes are those of this machine.
    let groups = running.each_ref().map(|it| {
        let group = dir.path().join(format!("group-{}", it.0.id()));
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cgroup.threads"), format!("{}\n", it.0.id())).unwrap();
        group.to_str().unwrap().trim_start_matches('/').to_owned()
    });
    let mut look = |group: &String| {
        read_vector_use(&mut kernel, std::slice::from_ref(group), Duration::from_secs(2), 0)
    };
    let mut await_use = |group: &String, using: usize, seconds: u64| {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while look(group) != Some(VectorUse { looked_at: 1, using }) {
            assert!(Instant::now() < deadline, "{using} thread is never seen to use it");
            sleep(Duration::from_millis(10));
        }
    };
    await_use(&groups[0], 1, SEEN_WITHIN);
    // A process begins with what its parent did, which is over two seconds later.
    await_use(&groups[1], 0, 20);
    await_use(&groups[0], 1, SEEN_WITHIN);
}
