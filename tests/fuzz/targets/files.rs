//! The text form of kernel files, and what is read from them. The header need not be hit by chance.
#![no_main]

use bayplan_fuzz::{HEADER, check_files};
use bayplan_host::kernel_files::KernelFiles;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = text.strip_prefix(HEADER).unwrap_or(text);
    let Ok(files) = KernelFiles::parse(&format!("{HEADER}{lines}")) else { return };
    assert_eq!(KernelFiles::parse(&files.render()).as_ref(), Ok(&files));
    check_files(&files);
});
