//! Frequency and sleep of CPUs.

use bayplan_enforcement::power::TurboDomain;
use bayplan_workload::annotations::Words;

use super::key::{Key, When};
use crate::cpu_classes::CpuUse;
use crate::cpu_classes::speed_select::SpeedSelectTree;
use crate::cpu_classes::trees::{ClassOf, Classes, Schedule, Zone};
use crate::kind::{Kind, OneOf};

const TURBO_DOMAINS: &Words<TurboDomain> =
    &[("package", TurboDomain::Package), ("machine", TurboDomain::Machine)];

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "cpuClasses",
        when: When::Now,
        kind: Kind::Section,
        text: "Frequency and sleep of CPUs. Annotation: bayplan.dev/cpu-class. Beside the classes here there are performance, balance-performance, \
               balance-power and power: the 200 MHz below 100, 75, 50 and 25 percent of what the CPU can do, with that energy preference; and default, which is power.",
    },
    Key {
        name: "cpuClasses.classes",
        when: When::Now,
        kind: Kind::Tree(&Classes),
        text: "By name, each with some of governor, minFreq and maxFreq (2.4GHz, kHz, 75%, min, base, turbo), energyPerformancePreference, turbo, maxLatency \
               (to wake up: 10us), disabledCstates ([C6]), turboPriority (0, ..., see turboDomain), uncoreMinFreq, uncoreMaxFreq, clos (class of service of Speed Select, 0 to 3). What a class does not name stays as it was.",
    },
    Key {
        name: "cpuClasses.turboDomain",
        when: When::Now,
        kind: Kind::Word(&OneOf(TURBO_DOMAINS, |it| &mut it.cpu_classes.turbo_domain)),
        text: "Where classes compete for turbo: in each package, or in the machine. Only those with the highest turboPriority among classes of CPUs on which containers \
               may run have it there; CPUs of all others with a class stay at or below the base frequency.",
    },
    Key {
        name: "cpuClasses.speedSelect",
        when: When::Now,
        kind: Kind::Tree(&SpeedSelectTree),
        text: "Intel Speed Select: corePower (off, proportional, ordered) says how power that is short is divided between classes of service, and clos what each \
               of them, 0 to 3, has: minFreq, maxFreq (2.4GHz), weight (0 to 15, the lower the more). What is not named stays as it was.",
    },
    Key {
        name: "cpuClasses.exclusive",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Exclusive)),
        text: "The class of CPUs that containers own, unless an annotation names another; none leaves them as they are.",
    },
    Key {
        name: "cpuClasses.shared",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Shared)),
        text: "The class of CPUs that containers share.",
    },
    Key {
        name: "cpuClasses.reserved",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Reserved)),
        text: "The class of the reserved CPUs.",
    },
    Key {
        name: "cpuClasses.idle",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Idle)),
        text: "The class of shared CPUs that no container may run on now; none: that of shared ones.",
    },
    Key {
        name: "cpuClasses.schedule",
        when: When::Now,
        kind: Kind::Tree(&Schedule),
        text: "From a time of the day on other classes: {at: \"22:00\", exclusive: power, shared: none}. What a line does not name is as the line before says.",
    },
    Key {
        name: "cpuClasses.timeZone",
        when: When::Now,
        kind: Kind::Tree(&Zone),
        text: "Time zone of the schedule: a name such as Europe/Berlin, or local.",
    },
];
