//! A number for the shape of a machine, to tell whether saved state belongs to it.

use std::fmt::Write as _;

use crate::topology::{Level, Topology};

impl Topology {
    /// A number that is the same for the same CPUs, NUMA nodes and nesting, in every version of bayplan and on every machine.
    /// Amounts of memory, distances and isolation do not count.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(self)
    }
}

/// FNV-1a, 64 bits (draft-eastlake-fnv): not for secrets, but the same everywhere and for ever, which the hasher of the
/// standard library does not promise.
fn fnv1a(text: &str) -> u64 {
    let offset_basis = 0xcbf2_9ce4_8422_2325_u64;
    let prime = 0x0000_0100_0000_01b3_u64;
    text.bytes().fold(offset_basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(prime))
}

/// Hash of one line per object and per NUMA node. The text must never change, or every journal is of another machine; so levels that
/// were added later do not count.
fn fingerprint(topology: &Topology) -> u64 {
    let mut text = String::new();
    // What each object is numbered as, or, where its level does not count, what is around it.
    let mut numbers: Vec<usize> = Vec::with_capacity(topology.objects().len());
    let mut count = 0;
    for object in topology.objects() {
        let around = object.parent.and_then(|parent| numbers.get(parent.index()).copied());
        let around = around.unwrap_or(0);
        if matches!(object.level, Level::Drawer | Level::Book | Level::Cluster | Level::L2) {
            numbers.push(around);
            continue;
        }
        numbers.push(count);
        count += 1;
        // Not every reading has the kernel's numbers of cores.
        let id = match object.level {
            Level::Core => object.cpus.first().map_or(0, |cpu| cpu.0),
            _ => object.id,
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {id} {around} {}", object.level, object.cpus);
    }
    for node in topology.nodes() {
        let near = node.near.map(|near| near.to_string()).unwrap_or_default();
        let _ = writeln!(text, "node {} {} {near}", node.id, node.cpus);
    }
    fnv1a(&text)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::{derive, parse_machine};

    fn of(spec: &str) -> u64 {
        derive(&parse_machine(spec).unwrap()).unwrap().fingerprint()
    }

    #[test]
    fn the_published_values_of_fnv1a_come_out() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text), hash, "{text:?}");
        }
    }

    #[test]
    fn the_fingerprint_of_a_machine_never_changes() {
        expect!["4e9b44d9f175f3a7"].assert_eq(&format!("{:016x}", of("one-cpu")));
        expect!["274902b523e01830"]
            .assert_eq(&format!("{:016x}", of("pack:2 numa:1 l3:1 core:4 pu:2")));
    }

    #[test]
    fn shape_counts_and_memory_and_isolation_do_not() {
        let plain = of("pack:2 numa:1 core:4 pu:2");
        assert_eq!(plain, of("pack:2 numa:1 core:4 pu:2 mem:1 isolated:3"));
        assert_ne!(plain, of("pack:2 numa:1 core:4 pu:2 offline:3"));
        assert_ne!(plain, of("pack:1 numa:2 core:4 pu:2"));
        assert_ne!(plain, of("pack:2 numa:1 core:8 pu:1"));
        assert_ne!(plain, of("pack:2 numa:1 l3:1 core:4 pu:2"));
    }
}
