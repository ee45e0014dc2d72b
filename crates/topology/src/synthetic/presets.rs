//! Machines that have names.

pub(super) const PRESETS: [(&str, &str); 9] = [
    ("xeon-8480", "pack:2 numa:1 l3:1 core:56 pu:2 cache:48K,2M,105M mem:256"),
    ("xeon-8480-snc4", "pack:2 l3:1 numa:4 core:14 pu:2 cache:48K,2M,105M mem:64"),
    (
        "xeon-8280l-pmem",
        "pack:2 numa:1 l3:1 core:28 pu:2 cache:32K,1M,39424K mem:192 pmem:1536/pack",
    ),
    ("granite-rapids-6980p", "pack:2 numa:3 l3:1 core:43,43,42 pu:2 cache:48K,2M,168M mem:128"),
    ("epyc-9654", "pack:2 numa:1 l3:12 core:8 pu:2 cache:32K,1M,32M mem:384"),
    ("epyc-7763-nps4", "pack:2 numa:4 l3:2 core:8 pu:2 cache:32K,512K,32M mem:64"),
    ("grace", "pack:2 numa:1 l3:1 core:72 pu:1 cache:64K,1M,114M mem:240"),
    ("core-hybrid", "pack:1 numa:1 l3:1 core:8 pu:2 ecore:16 cache:48K,2M,36M mem:64"),
    ("one-cpu", "pack:1 numa:1 l3:1 core:1 pu:1"),
];

/// Machines that can be named in place of a description.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.into_iter().map(|(name, _)| name)
}
