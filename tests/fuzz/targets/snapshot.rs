//! Small machines with files that are damaged edit by edit.
#![no_main]

use bayplan_fuzz::{Damage, check_files};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|damage: Damage| check_files(&damage.files()));
