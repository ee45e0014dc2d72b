//! Which parts of the processors outside of their cores have a frequency of their own (`Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst`).
//!
//! Older processors have one per die (`package_00_die_01`). Newer ones have several in a package (`uncore03`), and a directory that stands for
//! all of them, which is left out.

use crate::kernel::Kernel;

const DIR: &str = "sys/devices/system/cpu/intel_uncore_frequency";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UncoreDomain {
    /// The directory's name.
    pub(crate) name: String,
    /// Its path below the root.
    pub(crate) dir: String,
    /// Its package.
    pub(crate) package: u32,
    /// Its die, where it belongs to one.
    pub(crate) die: Option<u32>,
}

/// All of them; none on other processors, and without the driver.
pub(crate) fn uncore_domains(kernel: &mut dyn Kernel) -> Vec<UncoreDomain> {
    let mut domains = Vec::new();
    let mut whole = Vec::new();
    for name in kernel.list(DIR).unwrap_or_default() {
        let dir = format!("{DIR}/{name}");
        let mut value = |file: &str| -> Option<u32> {
            kernel.read(&format!("{dir}/{file}")).ok()?.trim().parse().ok()
        };
        if name.strip_prefix("uncore").and_then(number).is_some() {
            let Some(package) = value("package_id") else { continue };
            let die = value("die_id");
            domains.push(UncoreDomain { name, dir, package, die });
        } else if let Some((package, die)) = package_and_die(&name) {
            whole.push(UncoreDomain { name, dir, package, die: Some(die) });
        }
    }
    let has_domains = |package: u32| domains.iter().any(|it: &UncoreDomain| it.package == package);
    whole.retain(|it| !has_domains(it.package));
    domains.append(&mut whole);
    domains
}

/// With leading zeros, as in `uncore03`.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// `package_00_die_01`.
fn package_and_die(name: &str) -> Option<(u32, u32)> {
    let (package, die) = name.strip_prefix("package_")?.split_once("_die_")?;
    number(package).zip(number(die))
}
