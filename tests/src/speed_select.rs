//! Speed Select under a daemon. In: a device by its settings. Out: what it has of what [`CLASSES`] wants, to be compared with [`AS_IT_WAS`] and [`AS_WANTED`].

use std::collections::{BTreeMap, BTreeSet};

use bayplan_isst::{Device, Domain, SpeedSelect};
use bayplan_types::{CpuId, CpuSet};

/// A configuration that wants core power, limits, and a class of every core but those of reserved CPUs.
pub const CLASSES: &str = "\
reservedCpus: 0,8
sweepInterval: 100ms
cpuClasses:
  classes:
    fast: {clos: 1}
    slow: {clos: 3}
  exclusive: fast
  shared: slow
  speedSelect:
    corePower: ordered
    clos:
      1: {minFreq: 2.4GHz}
      3: {maxFreq: 2GHz, weight: 15}
";
/// One that wants nothing of it.
pub const NOTHING: &str = "reservedCpus: 0,8\n";

/// Core power, then the limits of classes 1 and 3.
pub const AS_IT_WAS: &str = "off 0-25500/0 0-25500/0";
/// As [`AS_IT_WAS`], as [`CLASSES`] wants it.
pub const AS_WANTED: &str = "ordered 2400-25500/0 0-2000/15";

/// Domain and core of each CPU.
pub type Cores = BTreeMap<u32, (Domain, u16)>;

/// Core power and limits of all domains, once where they have the same; and the CPUs of each class of service but the first.
pub type Shown = (String, [CpuSet; 3]);

/// What the device has.
pub fn shown<D: Device>(settings: &mut SpeedSelect<D>, cores: &Cores) -> Shown {
    let mut read = |name: String| match settings.read(&name) {
        Ok(text) => text.trim().to_owned(),
        Err(errno) => errno.to_string(),
    };
    let mut of = |Domain { package, number }: Domain| {
        let mut limits = |clos: u8| {
            let mut limit = |it: &str| read(format!("{package}.{number}/clos{clos}/{it}"));
            format!("{}-{}/{}", limit("min_mhz"), limit("max_mhz"), limit("weight"))
        };
        let limits = [limits(1), limits(3)].join(" ");
        format!("{} {limits}", read(format!("{package}.{number}/core_power")))
    };
    let domains: BTreeSet<Domain> = cores.values().map(|(domain, _)| *domain).collect();
    let texts: BTreeSet<String> = domains.into_iter().map(&mut of).collect();
    let mut classes = [CpuSet::new(), CpuSet::new(), CpuSet::new()];
    for (cpu, (Domain { package, number }, core)) in cores {
        let clos = read(format!("{package}.{number}/core{core}/clos")).parse().unwrap_or(0_usize);
        if let Some(class) = clos.checked_sub(1).and_then(|it| classes.get_mut(it)) {
            class.insert(CpuId(*cpu));
        }
    }
    (texts.into_iter().collect::<Vec<_>>().join("; "), classes)
}
