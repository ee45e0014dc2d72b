//! What each CPU belongs to, for the kernel side. In: the topology. Out: a record per CPU.

use bayplan_topology::{Level, Topology};
use bayplan_types::{CpuId, CpuSet};

use crate::records::PlaceRecord;

/// Objects that a distance is told by, in the order of the record.
const LEVELS: [Level; 4] = [Level::Core, Level::L3, Level::NumaNode, Level::Package];

/// A record per CPU below `cpus`, by number. A CPU that is not online belongs to nothing.
pub(crate) fn derive_places(topology: &Topology, cpus: u32) -> Vec<PlaceRecord> {
    let mut places = vec![PlaceRecord::default(); cpus as usize];
    let mut mark = |at: usize, set: &CpuSet| {
        let Some(first) = set.first() else { return };
        for CpuId(cpu) in set.iter() {
            if let Some(field) = places.get_mut(cpu as usize).and_then(|place| place.get_mut(at)) {
                *field = first.0 + 1;
            }
        }
    };
    for object in topology.objects() {
        if let Some(at) = LEVELS.iter().position(|level| *level == object.level) {
            mark(at, &object.cpus);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(machine: &str, cpus: u32, expected: Expect) {
        let topology = derive(&parse_machine(machine).unwrap()).unwrap();
        let lines = derive_places(&topology, cpus).into_iter().enumerate();
        let lines = lines.map(|(cpu, place)| format!("{cpu}: {place:?}\n"));
        expected.assert_eq(&lines.collect::<String>());
    }

    #[test]
    fn objects_are_named_by_their_lowest_cpu() {
        check(
            "pack:2 numa:1 l3:2 core:1 pu:2",
            8,
            expect![[r#"
            0: [1, 1, 1, 1]
            1: [2, 2, 1, 1]
            2: [3, 3, 3, 3]
            3: [4, 4, 3, 3]
            4: [1, 1, 1, 1]
            5: [2, 2, 1, 1]
            6: [3, 3, 3, 3]
            7: [4, 4, 3, 3]
        "#]],
        );
    }

    #[test]
    fn a_cpu_that_is_not_there_belongs_to_nothing() {
        check(
            "pack:1 core:1 pu:1",
            3,
            expect![[r#"
            0: [1, 0, 0, 1]
            1: [0, 0, 0, 0]
            2: [0, 0, 0, 0]
        "#]],
        );
    }
}
