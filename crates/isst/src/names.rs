//! Names of settings. In: text. Out: what it names.

use bayplan_types::{CLOS_COUNT, CORE_POWER};

/// A part of a package with limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain {
    /// The package.
    pub package: u8,
    /// Its number there.
    pub number: u8,
}

/// One of the limits of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `min_mhz`.
    Min,
    /// `max_mhz`.
    Max,
    /// `weight`.
    Weight,
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `cpu3@0/core`: of CPU 3, which is in package 0.
    CpuCore {
        /// The kernel's number.
        cpu: u32,
        /// Its package, which the driver does not find by itself.
        package: u8,
    },
    /// `0.1/core7/clos`, by the power unit's number of the core.
    CoreClos(Domain, u16),
    /// `0.1/core_power`.
    CorePower(Domain),
    /// `0.1/clos2/min_mhz`.
    Limit(Domain, u8, Limit),
    /// `0.1/profile`.
    Profile(Domain),
    /// `0.1/features`.
    Features(Domain),
}

impl Name {
    /// `None`: it names nothing.
    pub(crate) fn parse(text: &str) -> Option<Name> {
        let (of, setting) = text.split_once('/')?;
        if let Some(cpu) = of.strip_prefix("cpu") {
            let (cpu, package) = cpu.split_once('@')?;
            let (cpu, package) = (cpu.parse().ok()?, package.parse().ok()?);
            return (setting == "core").then_some(Name::CpuCore { cpu, package });
        }
        let (package, number) = of.split_once('.')?;
        let domain = Domain { package: package.parse().ok()?, number: number.parse().ok()? };
        match setting {
            CORE_POWER => Some(Name::CorePower(domain)),
            "profile" => Some(Name::Profile(domain)),
            "features" => Some(Name::Features(domain)),
            other => Name::in_domain(domain, other),
        }
    }

    /// Those of a core and of a class.
    fn in_domain(domain: Domain, setting: &str) -> Option<Name> {
        let (of, setting) = setting.split_once('/')?;
        if let Some(core) = of.strip_prefix("core") {
            let core = core.parse().ok()?;
            return (setting == "clos").then_some(Name::CoreClos(domain, core));
        }
        let clos = of.strip_prefix("clos")?.parse().ok().filter(|it| *it < CLOS_COUNT)?;
        let limit = match setting {
            "min_mhz" => Limit::Min,
            "max_mhz" => Limit::Max,
            "weight" => Limit::Weight,
            _ => return None,
        };
        Some(Name::Limit(domain, clos, limit))
    }
}
