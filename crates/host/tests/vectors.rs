//! Whether the kernel's word about AVX-512 tells a program that uses it from one that does not, on the processor that runs this test. Processors without AVX-512 have nothing to tell:
//! there the test only shows that this is found out.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bayplan_host::kernel::DiskKernel;
use bayplan_host::{VectorUse, read_vector_use, tells_vector_use};

/// `1: nanosleep(1 ms); goto 1`, with the time behind it.
const WITHOUT: &[u8] = &[
    0x48, 0x8d, 0x3d, 0x0b, 0x00, 0x00, 0x00, 0x31, 0xf6, // lea ts(%rip),%rdi; xor %esi,%esi
    0xb8, 0x23, 0x00, 0x00, 0x00, 0x0f, 0x05, // mov $35,%eax; syscall
    0xeb, 0xf7, // jmp
    0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x42, 0x0f, 0, 0, 0, 0, 0,
];

/// The same with `vpternlogd $0xff,%zmm16,%zmm16,%zmm16` in the loop: all bits of the register are ones.
const WITH: &[u8] = &[
    0x48, 0x8d, 0x3d, 0x12, 0x00, 0x00, 0x00, 0x31, 0xf6, //
    0x62, 0xa3, 0x7d, 0x40, 0x25, 0xc0, 0xff, // vpternlogd
    0xb8, 0x23, 0x00, 0x00, 0x00, 0x0f, 0x05, //
    0xeb, 0xf0, //
    0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x42, 0x0f, 0, 0, 0, 0, 0,
];

/// A program without any library, as those of C use AVX-512 for strings (elf(5)).
fn elf_of(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |bytes: &[u8]| elf.extend_from_slice(bytes);
    let length = HEADERS + code.len() as u64;
    // An executable for x86-64 with one segment, and no sections.
    [2_u16, 62].iter().for_each(|it| put(&it.to_le_bytes()));
    put(&1_u32.to_le_bytes());
    [BASE + HEADERS, 64, 0].iter().for_each(|it| put(&it.to_le_bytes()));
    put(&0_u32.to_le_bytes());
    [64_u16, 56, 1, 64, 0, 0].iter().for_each(|it| put(&it.to_le_bytes()));
    // Loaded, to be read and run.
    [1_u32, 5].iter().for_each(|it| put(&it.to_le_bytes()));
    [0, BASE, BASE, length, length, 0x1000].iter().for_each(|it| put(&it.to_le_bytes()));
    put(code);
    elf
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(dir: &Path, name: &str, code: &[u8]) -> Running {
    let path = dir.join(name);
    fs::write(&path, elf_of(code)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
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
    let mut await_use = |group: &String, using: usize| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while look(group) != Some(VectorUse { looked_at: 1, using }) {
            assert!(Instant::now() < deadline, "{using} thread is never seen to use it");
            sleep(Duration::from_millis(10));
        }
    };
    await_use(&groups[0], 1);
    // A process begins with what its parent did, which is over two seconds later.
    await_use(&groups[1], 0);
    await_use(&groups[0], 1);
}
