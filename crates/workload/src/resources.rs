//! Cgroup settings as kubelet writes them, and what it made them of. In: shares, quota, limit, OOM score. Out: requests and limits.
//! Pure.

use bayplan_types::{Bytes, MilliCpu, QosClass};

/// Cgroup settings as CRI carries them; zero is "not set" for every field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// `cpu.shares` of cgroup v1; 1024 per CPU requested.
    pub cpu_shares: i64,
    /// Microseconds of CPU time per period; -1 is no limit.
    pub cpu_quota: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory_limit: i64,
    /// How soon the kernel kills it when memory is short, -1000 to 1000.
    pub oom_score_adj: i64,
}

impl Resources {
    /// These settings after an update: what the update leaves out stays.
    pub fn updated_by(self, update: Resources) -> Resources {
        let pick = |new: i64, old: i64| if new == 0 { old } else { new };
        Resources {
            cpu_shares: pick(update.cpu_shares, self.cpu_shares),
            cpu_quota: pick(update.cpu_quota, self.cpu_quota),
            cpu_period: pick(update.cpu_period, self.cpu_period),
            memory_limit: pick(update.memory_limit, self.memory_limit),
            oom_score_adj: pick(update.oom_score_adj, self.oom_score_adj),
        }
    }

    /// The CPU limit; `None` is no limit.
    pub fn cpu_limit(self) -> Option<MilliCpu> {
        let (quota, period) = (positive(self.cpu_quota)?, positive(self.cpu_period)?);
        Some(MilliCpu(quota.saturating_mul(1000).div_ceil(period)))
    }

    /// The CPU request. Kubelet writes `floor(milli * 1024 / 1000)` shares, at least 2 and at most 262,144 (kubelet's
    /// `MilliCPUToShares`); rounding up gives the request back exactly. At the upper end only the limit can tell.
    pub fn cpu_request(self, qos: Option<QosClass>) -> MilliCpu {
        match positive(self.cpu_shares) {
            Some(shares) if shares >= SHARES_MAX && qos == Some(QosClass::Guaranteed) => {
                self.cpu_limit().unwrap_or(MilliCpu((SHARES_MAX * 1000).div_ceil(1024)))
            }
            Some(shares) if shares > SHARES_MIN => {
                MilliCpu(shares.min(SHARES_MAX).saturating_mul(1000).div_ceil(1024))
            }
            Some(_) => MilliCpu::ZERO,
            None if qos == Some(QosClass::Guaranteed) => self.cpu_limit().unwrap_or_default(),
            None => MilliCpu::ZERO,
        }
    }

    /// The least memory request that leads to this OOM score; zero where the score says nothing. Kubelet writes for Burstable containers
    /// `1000 - 1000 * request / memory of the machine`, not below 3 and not above 999 (kubelet's `GetContainerOOMScoreAdjust`), so this is
    /// exact to a thousandth of the machine. A restartable init container has the score of the container of its pod that requests most.
    fn memory_request(self, memory: Bytes) -> Bytes {
        let limit = positive(self.memory_limit).map_or(Bytes(u64::MAX), Bytes);
        match u64::try_from(self.oom_score_adj) {
            Ok(score) if (3..999).contains(&score) => {
                let bytes = u128::from(memory.0) * u128::from(1000 - score);
                Bytes(u64::try_from(bytes.div_ceil(1000)).unwrap_or(u64::MAX)).min(limit)
            }
            _ => Bytes::ZERO,
        }
    }

    /// Whether requests equal limits, for CPUs exactly, for memory as well as the OOM score tells; `memory` is that of the machine.
    pub fn are_guaranteed(self, memory: Option<Bytes>) -> bool {
        let Some(cpu) = self.cpu_limit() else { return false };
        let Some(limit) = positive(self.memory_limit) else { return false };
        let score = memory.and_then(|memory| score_of(limit, memory));
        let has_score = score.is_none_or(|score| self.oom_score_adj == score);
        positive(self.cpu_shares) == Some(shares_of(cpu)) && has_score
    }

    /// Where requests equal limits, the OOM score that kubelet would compute for another limit; `self` otherwise. NRI tells no score with an update, and the old
    /// one says nothing of the new limit.
    pub(crate) fn with_score_for(self, limit: i64, memory: Option<Bytes>) -> Resources {
        let score = positive(limit).zip(memory).and_then(|(limit, it)| score_of(limit, it));
        match score.filter(|_| self.are_guaranteed(memory)) {
            Some(score) => Resources { oom_score_adj: score, ..self },
            None => self,
        }
    }

    /// What the container requests, as well as it can be told; `memory` is that of the machine.
    pub fn requests(self, qos: Option<QosClass>, memory: Option<Bytes>) -> Requests {
        let limit = positive(self.memory_limit).map_or(Bytes::ZERO, Bytes);
        let memory = match (qos, memory) {
            (Some(QosClass::Guaranteed), _) => limit,
            (Some(QosClass::Burstable), Some(memory)) => self.memory_request(memory),
            _ => Bytes::ZERO,
        };
        Requests { cpu: self.cpu_request(qos), memory }
    }

    /// The same with what the pod's specification says, which counts as far as kubelet could have made these settings of it: an annotation proves
    /// nothing, and a change in place does not change it. `has_own_score`: the OOM score was made of this container's own request, so it says how little
    /// that can be, too.
    ///
    /// # Errors
    /// What does not agree, in words.
    pub fn exact_requests(
        self,
        qos: Option<QosClass>,
        memory: Option<Bytes>,
        said: &ExactRequests,
        has_own_score: bool,
    ) -> Result<Requests, String> {
        let found = self.requests(qos, memory);
        let mut exact = found;
        if let Some(cpu) = said.cpu {
            let shares = positive(self.cpu_shares).unwrap_or(SHARES_MIN);
            if shares != shares_of(cpu) {
                return Err(format!("says {cpu} CPUs, cpu.shares of {shares} say {}", found.cpu));
            }
            exact.cpu = cpu;
        }
        if let Some(request) = said.memory.filter(|_| qos == Some(QosClass::Burstable)) {
            let limit = positive(self.memory_limit).map_or(Bytes(u64::MAX), Bytes);
            let most = match (memory, positive(self.oom_score_adj)) {
                (Some(memory), Some(4..)) => {
                    // The next score begins a thousandth further up; what is below 2 thousandths has 999.
                    let step = Bytes(memory.0.div_ceil(1000));
                    limit.min(found.memory.max(step) + step)
                }
                _ => limit,
            };
            if request > most {
                let score = self.oom_score_adj;
                return Err(format!(
                    "says {request} of memory, its limit and its OOM score of {score} say {most} at most"
                ));
            }
            let step = memory.map_or(Bytes::ZERO, |it| Bytes(it.0.div_ceil(1000)));
            if has_own_score && request + step < found.memory {
                let (score, least) = (self.oom_score_adj, found.memory);
                return Err(format!(
                    "says {request} of memory, its OOM score of {score} says {least} at least"
                ));
            }
            exact.memory = request;
        }
        Ok(exact)
    }
}

/// What a container requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// CPU time.
    pub cpu: MilliCpu,
    /// Memory: all that a Guaranteed container may use, what others are expected to use at least.
    pub memory: Bytes,
}

/// What a source that knows the pod's specification says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactRequests {
    /// CPU time.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Bytes>,
}

impl ExactRequests {
    /// Whether it has any amount.
    pub fn says_something(&self) -> bool {
        self.cpu.is_some() || self.memory.is_some()
    }
}

/// `MinShares` and `MaxShares` of kubelet's cgroup manager.
const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 262_144;

/// As kubelet computes the OOM score of a Burstable container that requests all of its limit; `None` on a machine without memory.
fn score_of(limit: u64, memory: Bytes) -> Option<i64> {
    let part = (u128::from(limit) * 1000).checked_div(u128::from(memory.0))?;
    i64::try_from(1000u128.saturating_sub(part).clamp(3, 999)).ok()
}

/// Kubelet's `MilliCPUToShares`.
pub(crate) fn shares_of(cpu: MilliCpu) -> u64 {
    (cpu.0.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

pub(crate) fn positive(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_request_survives_the_way_through_shares() {
        for milli in 2u64..=256_000 {
            let shares = i64::try_from((milli * 1024 / 1000).max(2)).unwrap();
            let resources = Resources { cpu_shares: shares, ..Resources::default() };
            let back = resources.cpu_request(Some(QosClass::Burstable));
            let expected = if shares == 2 { 0 } else { milli };
            assert_eq!(back, MilliCpu(expected), "{milli}");
        }
    }

    const GIB: i64 = 1 << 30;

    #[test]
    fn a_container_with_requests_equal_to_its_limits_is_guaranteed() {
        let memory = Some(Bytes(64 << 30));
        for (shares, quota, limit, score, expected) in [
            (2048, 200_000, 4 * GIB, 938, true),
            (1536, 150_000, 4 * GIB, 938, true),
            (1024, 200_000, 4 * GIB, 938, false),
            (2048, -1, 4 * GIB, 938, false),
            (2048, 200_000, 0, 938, false),
            (2048, 200_000, 4 * GIB, 969, false),
        ] {
            let resources = Resources {
                cpu_shares: shares,
                cpu_quota: quota,
                cpu_period: 100_000,
                memory_limit: limit,
                oom_score_adj: score,
            };
            assert_eq!(resources.are_guaranteed(memory), expected, "{resources:?}");
            assert_eq!(resources.are_guaranteed(None), expected || score == 969, "{resources:?}");
        }
    }

    /// As kubelet computes it on a machine with so much memory.
    fn oom_score(request: u64, memory: u64) -> i64 {
        i64::try_from((1000 - 1000 * request / memory).clamp(3, 999)).unwrap()
    }

    #[test]
    fn a_memory_request_is_found_to_a_thousandth_of_the_machine() {
        let memory = 500 << 30;
        for request in (0..=memory).step_by(7 << 26).chain([1, memory / 1000, memory]) {
            let oom_score_adj = oom_score(request, memory);
            let found = Resources { oom_score_adj, ..Resources::default() }
                .requests(Some(QosClass::Burstable), Some(Bytes(memory)))
                .memory;
            let near = request.saturating_sub(memory / 500)..=request;
            assert!(near.contains(&found.0) || request > memory / 1000 * 997, "{request} {found}");
            assert!(found.0 <= request, "{request} {found}");
        }
    }

    #[test]
    fn only_burstable_containers_have_a_telling_score() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let memory = Some(Bytes::gib(100));
        for (qos, oom_score_adj, memory_limit, memory, expected) in [
            (Some(Guaranteed), -997, GIB, memory, Bytes::gib(1)),
            (Some(Burstable), 900, 0, memory, Bytes::gib(10)),
            (Some(Burstable), 900, GIB, memory, Bytes::gib(1)),
            (Some(Burstable), 900, 0, None, Bytes::ZERO),
            (Some(Burstable), 999, 0, memory, Bytes::ZERO),
            (Some(Burstable), 0, 0, memory, Bytes::ZERO),
            (Some(Burstable), -997, 0, memory, Bytes::ZERO),
            (Some(Burstable), 1001, 0, memory, Bytes::ZERO),
            (Some(Burstable), i64::MIN, 0, memory, Bytes::ZERO),
            (Some(Burstable), 500, 0, Some(Bytes(u64::MAX)), Bytes(1 << 63)),
            (Some(BestEffort), 1000, 0, memory, Bytes::ZERO),
            (None, 900, 0, memory, Bytes::ZERO),
        ] {
            let resources = Resources { oom_score_adj, memory_limit, ..Resources::default() };
            assert_eq!(resources.requests(qos, memory).memory, expected, "{qos:?} {resources:?}");
        }
    }

    #[test]
    fn what_the_specification_says_counts_where_kubelet_agrees() {
        let qos = Some(QosClass::Burstable);
        let resources = Resources {
            cpu_shares: 1536,
            memory_limit: 20 * GIB,
            oom_score_adj: 900,
            ..Resources::default()
        };
        let say_of = |has_own_score: bool, cpu: u64, memory: u64| {
            let said = ExactRequests {
                cpu: (cpu > 0).then_some(MilliCpu(cpu)),
                memory: (memory > 0).then_some(Bytes(memory << 20)),
            };
            match resources.exact_requests(qos, Some(Bytes::gib(100)), &said, has_own_score) {
                Ok(Requests { cpu, memory }) => format!("{cpu}, {} MiB", memory.0 >> 20),
                Err(why) => why,
            }
        };
        let say = |cpu, memory| say_of(false, cpu, memory);
        assert_eq!(say(0, 0), "1500m, 10240 MiB");
        assert_eq!(say(1500, 10_300), "1500m, 10300 MiB");
        assert_eq!(say(4000, 0), "says 4 CPUs, cpu.shares of 1536 say 1500m");
        let much = "says 11 GiB of memory, its limit and its OOM score of 900 say 10.1 GiB at most";
        assert_eq!(say(0, 11 << 10), much);
        // A restartable init container has another's score.
        assert_eq!(say(1500, 100), "1500m, 100 MiB");
        let little = "says 100 MiB of memory, its OOM score of 900 says 10 GiB at least";
        assert_eq!(say_of(true, 1500, 100), little);
        assert_eq!(say_of(true, 1500, 10_200), "1500m, 10200 MiB");
    }
}
