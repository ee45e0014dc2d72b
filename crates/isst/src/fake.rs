//! A device that refuses what the driver refuses (drivers/platform/x86/intel/speed_select_if/isst_tpmi_core.c): packages and domains that are not there, values that do not fit, and writes that firmware or rights forbid.

use std::collections::BTreeMap;

use bayplan_types::{
    CLOS_COUNT, CLOS_MHZ_MAX, CLOS_MHZ_STEP, ClosLimits, CorePower, PerformanceProfile,
};
use nix::errno::Errno;

use crate::names::Domain;
use crate::{Device, Levels, TPMI_VERSION};

/// A processor with core power, and base and turbo frequency at every level.
#[derive(Clone, Debug)]
pub struct FakeDevice {
    /// Of the driver's interface.
    pub version: u16,
    /// Firmware, or a lack of `CAP_SYS_ADMIN`, forbids every write.
    pub is_write_blocked: bool,
    /// Every write counts down; at 0 the next ones are not made (`EIO`).
    pub writes_left: Option<usize>,
    domains: BTreeMap<Domain, DomainState>,
    /// Domain and core of each CPU.
    cores: BTreeMap<u32, (Domain, u16)>,
}

#[derive(Clone, Debug)]
struct DomainState {
    /// `None`: there is none.
    power: Option<CorePower>,
    limits: [ClosLimits; CLOS_COUNT as usize],
    /// By core.
    clos: BTreeMap<u16, u8>,
    levels: Levels,
}

impl FakeDevice {
    /// So many packages with so many domains of so many CPUs, each two the threads of a core; CPUs are numbered through.
    pub fn new(packages: u8, domains: u8, cpus: u32) -> FakeDevice {
        let all = (0..packages)
            .flat_map(|package| (0..domains).map(move |number| Domain { package, number }));
        let cpus = cpus.max(1);
        let first = |place: usize| u32::try_from(place).unwrap_or(u32::MAX).saturating_mul(cpus);
        let cores = all.enumerate().flat_map(|(place, domain)| {
            (0..cpus).map(move |cpu| {
                let core = u16::try_from(cpu / 2).unwrap_or(u16::MAX);
                (first(place) + cpu, (domain, core))
            })
        });
        FakeDevice::of_cores(cores.collect())
    }

    /// With the domain and the core of each CPU.
    pub fn of_cores(cores: BTreeMap<u32, (Domain, u16)>) -> FakeDevice {
        let limits = ClosLimits { min_mhz: 0, max_mhz: CLOS_MHZ_MAX, weight: 0 };
        let state = DomainState {
            power: Some(CorePower::Off),
            limits: [limits; CLOS_COUNT as usize],
            clos: BTreeMap::new(),
            levels: Levels {
                profile: PerformanceProfile {
                    level: 0,
                    levels: vec![0, 3, 4],
                    is_locked: false,
                    has_base_frequency: true,
                    has_turbo_frequency: true,
                },
                is_base_frequency_on: false,
                is_turbo_frequency_on: false,
            },
        };
        FakeDevice {
            version: TPMI_VERSION,
            is_write_blocked: false,
            writes_left: None,
            domains: cores.values().map(|(domain, _)| (*domain, state.clone())).collect(),
            cores,
        }
    }

    /// This domain has no core power.
    pub fn without_core_power(mut self, domain: Domain) -> FakeDevice {
        if let Some(state) = self.domains.get_mut(&domain) {
            state.power = None;
        }
        self
    }

    /// This domain has these levels and features.
    pub fn with_levels(mut self, domain: Domain, levels: Levels) -> FakeDevice {
        if let Some(state) = self.domains.get_mut(&domain) {
            state.levels = levels;
        }
        self
    }

    fn domain(&mut self, domain: Domain) -> Result<&mut DomainState, Errno> {
        self.domains.get_mut(&domain).ok_or(Errno::EINVAL)
    }

    fn writable(&mut self, domain: Domain) -> Result<&mut DomainState, Errno> {
        self.domain(domain)?;
        if self.is_write_blocked {
            return Err(Errno::EPERM);
        }
        match &mut self.writes_left {
            Some(0) => return Err(Errno::EIO),
            Some(left) => *left -= 1,
            None => {}
        }
        self.domain(domain)
    }
}

impl Device for FakeDevice {
    fn version(&mut self) -> Result<u16, Errno> {
        Ok(self.version)
    }

    fn core_of(&mut self, cpu: u32) -> Result<(u8, u16), Errno> {
        let (domain, core) = self.cores.get(&cpu).ok_or(Errno::EINVAL)?;
        Ok((domain.number, *core))
    }

    fn core_power(&mut self, domain: Domain) -> Result<Option<CorePower>, Errno> {
        self.domain(domain).map(|it| it.power)
    }

    fn set_core_power(&mut self, domain: Domain, power: CorePower) -> Result<(), Errno> {
        // The driver writes a register that has no effect.
        self.writable(domain)?.power.iter_mut().for_each(|it| *it = power);
        Ok(())
    }

    fn limits(&mut self, domain: Domain, clos: u8) -> Result<ClosLimits, Errno> {
        let state = self.domain(domain)?;
        state.limits.get(usize::from(clos)).copied().ok_or(Errno::EINVAL)
    }

    fn set_limits(&mut self, domain: Domain, clos: u8, limits: ClosLimits) -> Result<(), Errno> {
        let of = self.writable(domain)?.limits.get_mut(usize::from(clos));
        let of = of.filter(|_| limits.max_mhz <= CLOS_MHZ_MAX).ok_or(Errno::EINVAL)?;
        let whole = |mhz: u32| mhz / CLOS_MHZ_STEP * CLOS_MHZ_STEP;
        *of =
            ClosLimits { min_mhz: whole(limits.min_mhz), max_mhz: whole(limits.max_mhz), ..limits };
        Ok(())
    }

    fn clos(&mut self, domain: Domain, core: u16) -> Result<u8, Errno> {
        Ok(self.domain(domain)?.clos.get(&core).copied().unwrap_or(0))
    }

    fn set_clos(&mut self, domain: Domain, core: u16, clos: u8) -> Result<(), Errno> {
        if clos >= CLOS_COUNT {
            return Err(Errno::EINVAL);
        }
        self.writable(domain)?.clos.insert(core, clos);
        Ok(())
    }

    fn levels(&mut self, domain: Domain) -> Result<Levels, Errno> {
        self.domain(domain).map(|it| it.levels.clone())
    }
}
