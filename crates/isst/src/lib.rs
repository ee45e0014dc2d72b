//! The edge to Intel Speed Select. In: the kernel's device. Out: its settings as texts with names, so that they are planned, written, read back, watched and given back as kernel files are.
//!
//! Intel Speed Select (SST) has four parts (Documentation/admin-guide/pm/intel-speed-select.rst). *Performance profiles* (SST-PP) are points of operation, each with a set of cores and frequencies; *base frequency* (SST-BF) and
//! *turbo frequency* (SST-TF) give some cores more at the cost of the others; *core power* (SST-CP) divides power that is short between four classes of service. All but base frequencies are asked for by ioctl
//! at `/dev/isst_interface` (include/uapi/linux/isst_if.h); here by the interface for TPMI, which processors have since Granite Rapids and Sierra Forest (version 2 of the driver's interface). Older processors
//! with mailboxes are told as unsupported.
//!
//! | Name | Text | Written |
//! |---|---|---|
//! | `cpu3@0/core` | `0.1/core7`, the power unit's number of the core of CPU 3, which is in package 0 | no |
//! | `0.1/core7/clos` | `0` to `3`, the class of that core | yes |
//! | `0.1/core_power` | of domain 1 of package 0: `off`, `proportional` or `ordered` | yes |
//! | `0.1/clos2/min_mhz`, `0.1/clos2/max_mhz` | limits of a class | yes |
//! | `0.1/clos2/weight` | 0 to 15; the lower, the more it gets where power is divided in proportion | yes |
//! | `0.1/profile` | `level=0 of=0,3,4 locked=0 bf=1 tf=1`: the level that holds, all that there are, and what this one has | no |
//! | `0.1/features` | what is on at this level of `bf` and `tf`, or `none` | no |
//!
//! The device is a seam ([`Device`]): the kernel's ([`IsstDevice`]), and one that refuses what the driver refuses ([`FakeDevice`]). A node's ([`NodeDevice`]) is the kernel's; in a tree for tests
//! a socket stands in its place, behind which a program answers for a fake one ([`answer`]).

mod device;
mod fake;
mod names;
mod node_device;
mod settings;

pub use device::IsstDevice;
pub use fake::FakeDevice;
pub use names::Domain;
pub use node_device::{NodeDevice, answer};
pub use settings::SpeedSelect;

use bayplan_types::{ClosLimits, CorePower, PerformanceProfile};
use nix::errno::Errno;

/// `api_version` of a driver that speaks TPMI (`isst_if_platform_info`; tools/power/x86/intel-speed-select asks so, too). Below it there are mailboxes only.
pub const TPMI_VERSION: u16 = 2;

/// Where a domain is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The level that holds, and which there are.
    pub profile: PerformanceProfile,
    /// Base frequency is on at this level.
    pub is_base_frequency_on: bool,
    /// Turbo frequency is on at this level.
    pub is_turbo_frequency_on: bool,
}

/// What the driver can be asked. All of a core's threads have one class.
pub trait Device {
    /// Version of the interface; below [`TPMI_VERSION`] nothing else is here.
    ///
    /// # Errors
    /// What the kernel answers.
    fn version(&mut self) -> Result<u16, Errno>;
    /// The power unit's number of a CPU: `(domain, core)`.
    ///
    /// # Errors
    /// What the kernel answers.
    fn core_of(&mut self, cpu: u32) -> Result<(u8, u16), Errno>;
    /// Whether and how core power divides; `None`: the domain has none.
    ///
    /// # Errors
    /// What the kernel answers.
    fn core_power(&mut self, domain: Domain) -> Result<Option<CorePower>, Errno>;
    /// Sets that.
    ///
    /// # Errors
    /// What the kernel answers: `EPERM` where firmware or a lack of rights forbids it.
    fn set_core_power(&mut self, domain: Domain, power: CorePower) -> Result<(), Errno>;
    /// Limits of a class.
    ///
    /// # Errors
    /// What the kernel answers.
    fn limits(&mut self, domain: Domain, clos: u8) -> Result<ClosLimits, Errno>;
    /// Sets these.
    ///
    /// # Errors
    /// What the kernel answers.
    fn set_limits(&mut self, domain: Domain, clos: u8, limits: ClosLimits) -> Result<(), Errno>;
    /// The class of a core.
    ///
    /// # Errors
    /// What the kernel answers.
    fn clos(&mut self, domain: Domain, core: u16) -> Result<u8, Errno>;
    /// Sets that.
    ///
    /// # Errors
    /// What the kernel answers.
    fn set_clos(&mut self, domain: Domain, core: u16, clos: u8) -> Result<(), Errno>;
    /// Levels and features.
    ///
    /// # Errors
    /// What the kernel answers.
    fn levels(&mut self, domain: Domain) -> Result<Levels, Errno>;
}
