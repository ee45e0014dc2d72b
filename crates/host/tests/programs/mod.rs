//! Two programs of a few instructions: one that uses AVX-512 every millisecond, and one that does not.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// `1: nanosleep(1 ms); goto 1`, with the time behind it.
pub(crate) const WITHOUT: &[u8] = &[
    0x48, 0x8d, 0x3d, 0x0b, 0x00, 0x00, 0x00, 0x31, 0xf6, // lea ts(%rip),%rdi; xor %esi,%esi
    0xb8, 0x23, 0x00, 0x00, 0x00, 0x0f, 0x05, // mov $35,%eax; syscall
    0xeb, 0xf7, // jmp
    0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x42, 0x0f, 0, 0, 0, 0, 0,
];

/// The same with `vpternlogd $0xff,%zmm16,%zmm16,%zmm16` in the loop: all bits of the register are ones.
pub(crate) const WITH: &[u8] = &[
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

/// As a file that can be run.
pub(crate) fn write(dir: &Path, name: &str, code: &[u8]) -> io::Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, elf_of(code))?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}
