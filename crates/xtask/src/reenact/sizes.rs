//! How large a scenario is on a machine: the seeds' proportions, scaled to its CPUs. Pure.

/// Sizes on a machine of any number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Processes of stress-ng in each of two background pods: 256 on 112 CPUs in the seed.
    pub(crate) noise_workers: usize,
    /// What each background pod requests where it is Burstable, in thousandths of a CPU.
    pub(crate) noise_milli: usize,
    /// CPUs of a Guaranteed compute kernel: half of the machine, a package of two in the seed.
    pub(crate) half: usize,
    /// What the Burstable pod beside it requests, in thousandths: half of the machine less one CPU.
    pub(crate) beside_milli: usize,
    /// Processes of the aggressor: one for each CPU.
    pub(crate) aggressors: usize,
    /// CPUs of each of two web servers: four in the seed, as far as one CPU stays shared.
    pub(crate) web: usize,
    /// What the second web server has, in thousandths; a fraction where two CPUs are all there are.
    pub(crate) second_web_milli: usize,
}

impl Sizes {
    pub(crate) fn of(cpus: usize) -> Sizes {
        let web = (cpus.saturating_sub(1) / 2).clamp(1, 4);
        Sizes {
            noise_workers: (cpus * 128).div_ceil(112).max(1),
            noise_milli: 100,
            half: (cpus / 2).max(1),
            beside_milli: ((cpus / 2).saturating_sub(1) * 1000).max(500),
            aggressors: cpus,
            web,
            second_web_milli: if cpus < 3 { 500 } else { web * 1000 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_machines_have_the_seeds_sizes() {
        let seed = Sizes::of(112);
        assert_eq!((seed.noise_workers, seed.web), (128, 4));
        let seed = Sizes::of(48);
        assert_eq!((seed.half, seed.beside_milli, seed.aggressors), (24, 23_000, 48));
    }

    /// Kubelet keeps a tenth of a CPU for the system in every configuration.
    #[test]
    fn what_is_requested_fits_into_every_machine() {
        for cpus in 2..=500 {
            let sizes = Sizes::of(cpus);
            let room = cpus * 1000 - 100;
            assert!(1000 + 2 * sizes.noise_milli <= room, "{cpus}: redis and its background");
            assert!(sizes.half * 1000 + sizes.beside_milli <= room, "{cpus}: compute kernels");
            assert!(sizes.web * 1000 + sizes.second_web_milli <= room, "{cpus}: web servers");
            assert!(sizes.half < cpus && sizes.web < cpus, "{cpus}: one CPU stays shared");
        }
    }
}
