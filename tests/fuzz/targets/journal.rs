//! The journal: whatever lies there, every line is a record or is dropped, and a daemon starts with what they say.
//!
//! The bytes are read twice: as a file, and as records, each of which is given its checksum.
#![no_main]

use bayplan_allocator::check_ledger;
use bayplan_fuzz::fresh_node;
use bayplan_host::journal::parse_journal;
use bayplan_node::record::replay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let recovered = parse_journal(bytes);
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').count();
    let told = recovered.records.len() + recovered.dropped.len();
    assert!(told == lines || told + 1 == lines, "{told} of {lines} lines"); // one may be the header
    start_with(&recovered.records);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    start_with(&text.lines().map(str::to_owned).collect::<Vec<_>>());
});

fn start_with(records: &[String]) {
    let mut node = fresh_node();
    let live = replay(records);
    let count = live.containers.len();
    node.restore(live, jiff::Timestamp::UNIX_EPOCH);
    assert!(node.ledger().allocations().count() <= count);
    let breaches = check_ledger(node.ledger());
    assert!(breaches.is_empty(), "{breaches:#?}");
}
