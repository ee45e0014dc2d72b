//! Whether the threads of a container use AVX-512. In: the directories of its cgroup. Out: how many threads were looked at, and how many of them used it lately.
//!
//! Wide vector instructions draw so much power that processors lower the frequency of the core, and some of the whole package, while they run. The kernel notes at each switch
//! away from a task whether the task's registers of AVX-512 held anything, and tells how long ago that was: `AVX512_elapsed_ms` of `/proc/PID/arch_status`, -1 for never
//! (Documentation/filesystems/proc.rst, "arch_status"). It is a hint: a task that has used these registers once and never cleared them counts as long as it runs, which functions of
//! the C library for strings do on processors with AVX-512VL, a task begins with what its parent did last, and one that was not switched away since says nothing new.

use std::time::Duration;

use crate::kernel::Kernel;

/// Threads of a container that are looked at in one reading; of more, others in the next.
const THREADS_MAX: usize = 64;

/// What some threads of a container did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorUse {
    /// Threads that were looked at.
    pub looked_at: usize,
    /// Those of them that used AVX-512 within the time that was asked for.
    pub using: usize,
}

/// Whether the kernel tells of AVX-512 here: of an x86 processor that has it, since Linux 5.2.
pub fn tells_vector_use(kernel: &mut dyn Kernel) -> bool {
    kernel.read("proc/self/arch_status").is_ok_and(|text| text.starts_with(KEY))
}

/// What threads of the group with these directories did within `lately`. At most `THREADS_MAX` are looked at, the `turn`th so many. `None`: it has no threads, or none that the
/// kernel tells of.
pub fn read_vector_use(
    kernel: &mut dyn Kernel,
    dirs: &[String],
    lately: Duration,
    turn: usize,
) -> Option<VectorUse> {
    let texts = dirs.iter().filter_map(|dir| kernel.read(&format!("{dir}/cgroup.threads")).ok());
    let texts: Vec<String> = texts.collect();
    // Threads of a namespace that is not ours are told as 0.
    let ids = texts.iter().flat_map(|text| text.lines()).filter_map(|id| id.trim().parse().ok());
    let ids: Vec<u32> = ids.filter(|id| *id > 0).collect();
    let parts = ids.len().div_ceil(THREADS_MAX).max(1);
    let mut found = VectorUse::default();
    for id in ids.chunks(THREADS_MAX).nth(turn % parts)? {
        // A thread that has ended in between is not looked at.
        let Ok(text) = kernel.read(&format!("proc/{id}/arch_status")) else { continue };
        let Some(elapsed) = parse_elapsed(&text) else { continue };
        found.looked_at += 1;
        found.using += usize::from(elapsed.is_some_and(|it| it <= lately));
    }
    (found.looked_at > 0).then_some(found)
}

const KEY: &str = "AVX512_elapsed_ms:";

/// How long ago a thread used AVX-512, `Some(None)` for never. `None` where the text does not say.
fn parse_elapsed(text: &str) -> Option<Option<Duration>> {
    let value = text.lines().find_map(|line| line.strip_prefix(KEY))?.trim();
    match value.parse::<i64>().ok()? {
        -1 => Some(None),
        millis => Some(Some(Duration::from_millis(millis.try_into().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::FakeKernel;

    #[test]
    fn what_the_kernel_tells_of_a_thread_is_understood() {
        let millis = |it| Some(Some(Duration::from_millis(it)));
        for (text, expected) in [
            ("AVX512_elapsed_ms:\t48\n", millis(48)),
            ("AVX512_elapsed_ms:\t0\n", millis(0)),
            ("AVX512_elapsed_ms:\t-1\n", Some(None)),
            // `x86_Thread_features` stands in it since Linux 6.4.
            ("x86_Thread_features:\t\nAVX512_elapsed_ms:\t7\n", millis(7)),
            ("AVX512_elapsed_ms:\t-2\n", None),
            ("AVX512_elapsed_ms:\tx\n", None),
            ("x86_Thread_features:\t\n", None),
            ("", None),
        ] {
            assert_eq!(parse_elapsed(text), expected, "{text:?}");
        }
    }

    /// Threads as their number and what the kernel tells of each, in two directories; found within two seconds, as looked at and using.
    fn check(threads: &[(u32, &str)], turn: usize, expected: Option<(usize, usize)>) {
        let mut kernel = FakeKernel::new(&[]);
        let (own, inner) = threads.split_at(threads.len() / 2);
        for (dir, threads) in [("g/c", own), ("g/c/container", inner)] {
            let ids: String = threads.iter().map(|(id, _)| format!("{id}\n")).collect();
            kernel.files.insert(format!("{dir}/cgroup.threads"), ids);
            for (id, elapsed) in threads.iter().filter(|(_, elapsed)| !elapsed.is_empty()) {
                let text = format!("AVX512_elapsed_ms:\t{elapsed}\n");
                kernel.files.insert(format!("proc/{id}/arch_status"), text);
            }
        }
        let dirs = ["g/c", "g/c/container"].map(str::to_owned);
        let found = read_vector_use(&mut kernel, &dirs, Duration::from_secs(2), turn);
        assert_eq!(found.map(|it| (it.looked_at, it.using)), expected);
    }

    #[test]
    fn threads_that_used_it_lately_are_counted() {
        check(&[], 0, None);
        check(&[(7, "10"), (8, "-1"), (9, "2000"), (10, "2001")], 0, Some((4, 2)));
        // One has ended, and one is in another namespace.
        check(&[(7, "10"), (8, ""), (0, "10")], 0, Some((1, 1)));
        check(&[(7, ""), (8, "")], 0, None);
    }

    #[test]
    fn of_many_threads_some_are_looked_at_in_turn() {
        let many: Vec<(u32, &str)> =
            (1..=150).map(|id| (id, if id <= 70 { "5" } else { "-1" })).collect();
        check(&many, 0, Some((64, 64)));
        check(&many, 1, Some((64, 6)));
        check(&many, 2, Some((22, 0)));
        check(&many, 3, Some((64, 64)));
    }
}
