//! The configuration file: understood, or all its mistakes in order, each at a place in the file.
#![no_main]

use std::path::Path;

use bayplan_config::parse_config;
use bayplan_fuzz::check_shown;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Err(mistakes) = parse_config(Path::new("config.yaml"), text) else { return };
    assert!(!mistakes.errors.is_empty());
    assert!(mistakes.errors.is_sorted_by_key(|it| it.at));
    for mistake in &mistakes.errors {
        check_shown(&mistake.message);
    }
    check_shown(&mistakes.to_string());
});
