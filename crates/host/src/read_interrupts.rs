//! What interrupts and the kernel's work queues are allowed now. In: `/proc/irq`, `/sys/devices/virtual/workqueue`. Out: sets of CPUs.
//!
//! Documentation/core-api/irq/irq-affinity.rst. An interrupt that goes while it is read is left out. irqbalance listens at a socket in
//! `/run/irqbalance` as long as it runs, which reads as which CPUs it leaves alone (`irqbalance.rs`).

use bayplan_enforcement::{Interrupts, Slot};
use bayplan_types::CpuSet;
use nix::errno::Errno;

use crate::irqbalance::{IRQBALANCE, is_balancer};
use crate::kernel::Kernel;

/// Reads all of them; what a machine does not have is empty.
pub fn read_interrupts(kernel: &mut dyn Kernel) -> Interrupts {
    let list = |text: String| text.trim().parse::<CpuSet>().ok();
    let mask = |text: String| CpuSet::parse_mask(&text).ok();
    let numbers = kernel.list("proc/irq").unwrap_or_default();
    let numbers = numbers.iter().filter_map(|name| name.parse::<u32>().ok());
    let affinity = numbers
        .filter_map(|irq| {
            let Slot { path, .. } = Interrupts::slot(irq);
            Some((irq, kernel.read(&path).ok().and_then(list)?))
        })
        .collect();
    let mut read = |path| kernel.read(path).ok();
    let online = read("sys/devices/system/cpu/online").and_then(list).unwrap_or_default();
    let default = read("proc/irq/default_smp_affinity").and_then(mask);
    let workqueue = read("sys/devices/virtual/workqueue/cpumask").and_then(mask);
    let sockets = kernel.list(IRQBALANCE).unwrap_or_default();
    let sockets = sockets.iter().map(|name| format!("{IRQBALANCE}/{name}"));
    let balancers = sockets.filter(|path| is_balancer(path)).filter_map(|path| {
        match kernel.read(&path) {
            Ok(text) => Some((path, list(text))),
            // It has ended without removing its socket.
            Err(Errno::ENOENT) => None,
            Err(_) => Some((path, None)),
        }
    });
    Interrupts { online, affinity, default, workqueue, balancers: balancers.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::FakeKernel;

    #[test]
    fn what_is_there_is_read_and_the_rest_is_empty() {
        let mut kernel = FakeKernel::new(&[
            ("proc/irq/0/smp_affinity_list", "0-3\n"),
            ("proc/irq/12/smp_affinity_list", "2,3\n"),
            ("proc/irq/13/smp_affinity_list", "?\n"),
            ("proc/irq/14/spurious", "count 0\n"),
            ("proc/irq/default_smp_affinity", "f\n"),
            ("sys/devices/virtual/workqueue/cpumask", "00000000,0000000c\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("run/irqbalance/irqbalance77.sock", "1,3\n"),
            ("run/irqbalance/irqbalance78.sock", "?"),
            ("run/irqbalance/other", "1"),
        ]);
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let expected = Interrupts {
            online: set("0-3"),
            affinity: [(0, set("0-3")), (12, set("2-3"))].into(),
            default: Some(set("0-3")),
            workqueue: Some(set("2-3")),
            balancers: [
                ("run/irqbalance/irqbalance77.sock".to_owned(), Some(set("1,3"))),
                ("run/irqbalance/irqbalance78.sock".to_owned(), None),
            ]
            .into(),
        };
        assert_eq!(read_interrupts(&mut kernel), expected);
        assert_eq!(read_interrupts(&mut FakeKernel::default()), Interrupts::default());
    }
}
