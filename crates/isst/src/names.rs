//! Names of settings. In: text. Out: what it names.

use crate::settings::Domain;

/// Classes of service of a domain.
const CLASSES: u8 = 4;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `cpu3@0/clos`: of CPU 3, which is in package 0.
    CpuClos {
        /// The kernel's number.
        cpu: u32,
        /// Its package, which the driver does not find by itself.
        package: u8,
    },
    /// `0.1/core-power`.
    CorePower(Domain),
    /// `0.1/clos2`.
    Limits(Domain, u8),
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
            return (setting == "clos").then_some(Name::CpuClos { cpu, package });
        }
        let (package, number) = of.split_once('.')?;
        let domain = Domain { package: package.parse().ok()?, number: number.parse().ok()? };
        match setting {
            "core-power" => Some(Name::CorePower(domain)),
            "profile" => Some(Name::Profile(domain)),
            "features" => Some(Name::Features(domain)),
            other => {
                let clos: u8 = other.strip_prefix("clos")?.parse().ok()?;
                (clos < CLASSES).then_some(Name::Limits(domain, clos))
            }
        }
    }
}
