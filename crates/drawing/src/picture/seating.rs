//! What runs on which CPU. In: what a caller says of each CPU. Out: groups of CPUs that look alike, each with a colour and a letter.

use std::collections::BTreeMap;

use bayplan_types::{CpuClass, CpuId, CpuSet};

use crate::picture::style::Fill;

/// What runs on a CPU. CPUs with equal class and label get one colour and one entry in the legend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// What the CPU is used for.
    pub class: CpuClass,
    /// The owner: for an exclusive CPU its container, such as `default/web/app`, and also for an isolated one that is given to
    /// a container; for a shared one its pool. It may be empty.
    pub label: String,
    /// What else runs there: of a shared pool, the containers. That of the lowest CPU of a group counts.
    pub guests: Vec<String>,
}

/// CPUs with equal seats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) seat: Seat,
    pub(crate) cpus: CpuSet,
    pub(crate) fill: Fill,
    /// Tells groups apart where colours do not; may be empty.
    pub(crate) letter: String,
}

/// Every group, and the group of each CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seating {
    groups: Vec<Group>,
    group_at: BTreeMap<CpuId, usize>,
}

impl Seating {
    pub(crate) fn new(cpus: &CpuSet, seat_of: &dyn Fn(CpuId) -> Option<Seat>) -> Seating {
        let mut seating = Seating::default();
        let mut known: BTreeMap<(CpuClass, String), usize> = BTreeMap::new();
        for cpu in cpus.iter() {
            let Some(seat) = seat_of(cpu) else { continue };
            let key = (seat.class, seat.label.clone());
            let at = *known.entry(key).or_insert(seating.groups.len());
            seating.group_at.insert(cpu, at);
            match seating.groups.get_mut(at) {
                Some(group) => drop(group.cpus.insert(cpu)),
                None => seating.groups.push(Group {
                    seat,
                    cpus: CpuSet::from(cpu),
                    fill: Fill::Empty,
                    letter: String::new(),
                }),
            }
        }
        seating.dress();
        seating
    }

    /// Gives out colours and letters, by lowest CPU.
    fn dress(&mut self) {
        let (mut owners, mut pools) = (0, 0);
        for group in &mut self.groups {
            let is_owned = !group.seat.label.is_empty();
            (group.fill, group.letter) = match group.seat.class {
                CpuClass::Exclusive => (Fill::Exclusive(owners), letters(owners, 'A')),
                CpuClass::Isolated if is_owned => (Fill::Exclusive(owners), letters(owners, 'A')),
                CpuClass::Isolated => (Fill::Empty, String::new()),
                CpuClass::Shared => (Fill::Shared(pools), letters(pools, 'a')),
                CpuClass::Reserved => (Fill::Reserved, String::new()),
            };
            match group.fill {
                Fill::Exclusive(_) => owners += 1,
                Fill::Shared(_) => pools += 1,
                Fill::Empty | Fill::Reserved => {}
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Every group, by lowest CPU.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(crate) fn group_of(&self, cpu: CpuId) -> Option<&Group> {
        self.groups.get(*self.group_at.get(&cpu)?)
    }
}

/// `A` to `Z`, then `AA`, `AB`.
fn letters(number: usize, first: char) -> String {
    let mut text = String::new();
    let mut rest = number + 1;
    while rest > 0 {
        let digit = u8::try_from((rest - 1) % 26).unwrap_or(0);
        let letter = u32::from(first) + u32::from(digit);
        text.insert(0, char::from_u32(letter).unwrap_or(first));
        rest = (rest - 1) / 26;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_on_after_the_last_one() {
        let names = [0, 1, 25, 26, 27, 51, 52, 701, 702].map(|number| letters(number, 'A'));
        assert_eq!(names, ["A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]);
    }
}
