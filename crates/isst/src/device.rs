//! The kernel's device. In: what is asked. Out: what the driver answers.
//!
//! Structures and numbers are those of include/uapi/linux/isst_if.h (Linux 6.5). The numbers of its ioctls have the size of a pointer in them, not of the structure: that is how the header defines them. The
//! driver (drivers/platform/x86/intel/speed_select_if) copies exactly one structure in and, where it answers, out.

#![allow(unsafe_code, reason = "ioctl takes a pointer to a structure of the request's own")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{self, c_ulong};

use bayplan_types::{CLOS_COUNT, ClosLimits, CorePower, PerformanceProfile, SPEED_SELECT_DEVICE};

use crate::names::Domain;
use crate::{Device, Levels};

/// `get_set` of a structure: the driver takes what is in it. Otherwise it answers.
const SET: u8 = 1;
/// `priority_type` of `isst_core_power` (tools/power/x86/intel-speed-select, `core-power enable --priority`; Documentation/admin-guide/pm/intel-speed-select.rst).
const PRIORITY_PROPORTIONAL: u8 = 0;
/// The same.
const PRIORITY_ORDERED: u8 = 1;
/// `feature_state` of `isst_perf_level_info`: base frequency is on (isst-core-tpmi.c of the tool, `tpmi_set_pbf_fact_status`).
const FEATURE_BASE_FREQUENCY: u8 = 1 << 0;
/// The same for turbo frequency.
const FEATURE_TURBO_FREQUENCY: u8 = 1 << 1;
/// Bits of `level_mask` of `isst_perf_level_info`.
const LEVELS: u8 = 8;

/// Where `physical_cpu` of `isst_if_cpu_map` has the domain, and how wide: MSR 0x54 as the driver passes it on and tools/power/x86/intel-speed-select takes it apart. Below the core is the thread.
const PHYSICAL_DOMAIN: (u32, u32) = (11, 0x1f);
/// Where it has the core.
const PHYSICAL_CORE: (u32, u32) = (3, 0xff);

/// The kernel's device.
#[derive(Debug)]
pub struct IsstDevice {
    file: File,
}

impl IsstDevice {
    /// Opens it below a root.
    ///
    /// # Errors
    /// `NotFound` where there is none: another processor, or the driver is not loaded.
    pub fn open(root: &Path) -> io::Result<IsstDevice> {
        let file =
            OpenOptions::new().read(true).write(true).open(root.join(SPEED_SELECT_DEVICE))?;
        Ok(IsstDevice { file })
    }
}

/// `isst_if_platform_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PlatformInfo {
    api_version: u16,
    driver_version: u16,
    max_cmds_per_ioctl: u16,
    mbox_supported: u8,
    mmio_supported: u8,
}

/// `isst_if_cpu_maps` with one map.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CpuMap {
    cmd_count: u32,
    logical_cpu: u32,
    physical_cpu: u32,
}

/// `isst_core_power`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CorePowerState {
    get_set: u8,
    socket_id: u8,
    power_domain_id: u8,
    enable: u8,
    supported: u8,
    priority_type: u8,
}

/// `isst_clos_param`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ClosParam {
    get_set: u8,
    socket_id: u8,
    power_domain_id: u8,
    clos: u8,
    min_freq_mhz: u16,
    max_freq_mhz: u16,
    prop_prio: u8,
}

/// `isst_if_clos_assoc_cmds` with one `isst_if_clos_assoc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ClosAssoc {
    cmd_count: u16,
    get_set: u16,
    punit_cpu_map: u16,
    socket_id: u8,
    power_domain_id: u8,
    logical_cpu: u16,
    clos: u16,
}

/// `isst_perf_level_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PerfLevelInfo {
    socket_id: u8,
    power_domain_id: u8,
    max_level: u8,
    feature_rev: u8,
    level_mask: u8,
    current_level: u8,
    feature_state: u8,
    locked: u8,
    enabled: u8,
    sst_tf_support: u8,
    sst_bf_support: u8,
}

// As a C compiler lays the header's structures out, so that the driver copies no byte more than there is.
const _: () = {
    assert!(size_of::<PlatformInfo>() == 8 && align_of::<PlatformInfo>() == 2);
    assert!(size_of::<CpuMap>() == 12 && align_of::<CpuMap>() == 4);
    assert!(size_of::<CorePowerState>() == 6 && align_of::<CorePowerState>() == 1);
    assert!(size_of::<ClosParam>() == 10 && align_of::<ClosParam>() == 2);
    assert!(size_of::<ClosAssoc>() == 12 && align_of::<ClosAssoc>() == 2);
    assert!(size_of::<PerfLevelInfo>() == 11 && align_of::<PerfLevelInfo>() == 1);
};

/// A structure that belongs to one ioctl. Every bit pattern of it is a value, because it has integers only.
trait Request: Copy {
    /// `_IOR`, `_IOW` or `_IOWR` of the header.
    const NUMBER: c_ulong;
}

/// asm-generic/ioctl.h: direction, size of a pointer, `ISST_IF_MAGIC`, number.
const fn number(direction: c_ulong, nr: c_ulong) -> c_ulong {
    direction << IOC_DIRSHIFT
        | (size_of::<*const ()>() as c_ulong) << IOC_SIZESHIFT
        | ISST_IF_MAGIC << IOC_TYPESHIFT
        | nr
}
const IOC_TYPESHIFT: c_ulong = 8;
const IOC_SIZESHIFT: c_ulong = 16;
const IOC_DIRSHIFT: c_ulong = 30;
/// The kernel reads the structure.
const IOC_WRITE: c_ulong = 1;
/// The kernel writes it.
const IOC_READ: c_ulong = 2;

/// include/uapi/linux/isst_if.h, as the names below.
const ISST_IF_MAGIC: c_ulong = 0xfe;
const ISST_IF_GET_PLATFORM_INFO: c_ulong = number(IOC_READ, 0);
const ISST_IF_GET_PHY_ID: c_ulong = number(IOC_READ | IOC_WRITE, 1);
const ISST_IF_CORE_POWER_STATE: c_ulong = number(IOC_READ | IOC_WRITE, 6);
const ISST_IF_CLOS_PARAM: c_ulong = number(IOC_READ | IOC_WRITE, 7);
const ISST_IF_CLOS_ASSOC: c_ulong = number(IOC_READ | IOC_WRITE, 8);
const ISST_IF_PERF_LEVELS: c_ulong = number(IOC_READ | IOC_WRITE, 9);

impl Request for PlatformInfo {
    const NUMBER: c_ulong = ISST_IF_GET_PLATFORM_INFO;
}
impl Request for CpuMap {
    const NUMBER: c_ulong = ISST_IF_GET_PHY_ID;
}
impl Request for CorePowerState {
    const NUMBER: c_ulong = ISST_IF_CORE_POWER_STATE;
}
impl Request for ClosParam {
    const NUMBER: c_ulong = ISST_IF_CLOS_PARAM;
}
impl Request for ClosAssoc {
    const NUMBER: c_ulong = ISST_IF_CLOS_ASSOC;
}
impl Request for PerfLevelInfo {
    const NUMBER: c_ulong = ISST_IF_PERF_LEVELS;
}

impl IsstDevice {
    /// Asks, and returns the structure as the driver left it. The only ioctl.
    fn ask<T: Request>(&self, mut request: T) -> Result<T, Errno> {
        // SAFETY: the descriptor is open as long as `self.file` lives. `T::NUMBER` belongs to `T` alone, and for it the driver copies one structure of the size and layout of `T` from and to the
        // address, which is that of a local variable that nothing else refers to during the call. Whatever the driver leaves there is a value of `T`. A device of another driver, should one be at this
        // path, answers ENOTTY to a number that is not its own; only root can put one there.
        let answer = unsafe {
            libc::ioctl(self.file.as_raw_fd(), T::NUMBER, std::ptr::from_mut(&mut request))
        };
        Errno::result(answer).map(|_| request)
    }
}

impl Device for IsstDevice {
    fn version(&mut self) -> Result<u16, Errno> {
        self.ask(PlatformInfo::default()).map(|it| it.api_version)
    }

    fn core_of(&mut self, cpu: u32) -> Result<(u8, u16), Errno> {
        let map = CpuMap { cmd_count: 1, logical_cpu: cpu, ..CpuMap::default() };
        let physical = self.ask(map)?.physical_cpu;
        let bits = |(place, mask): (u32, u32)| physical >> place & mask;
        let domain = u8::try_from(bits(PHYSICAL_DOMAIN)).map_err(|_| Errno::EPROTO)?;
        let core = u16::try_from(bits(PHYSICAL_CORE)).map_err(|_| Errno::EPROTO)?;
        Ok((domain, core))
    }

    fn core_power(&mut self, domain: Domain) -> Result<Option<CorePower>, Errno> {
        let it = self.ask(CorePowerState::of(domain))?;
        Ok((it.supported != 0).then_some(match (it.enable, it.priority_type) {
            (0, _) => CorePower::Off,
            (_, PRIORITY_PROPORTIONAL) => CorePower::Proportional,
            _ => CorePower::Ordered,
        }))
    }

    fn set_core_power(&mut self, domain: Domain, power: CorePower) -> Result<(), Errno> {
        let priority_type = match power {
            // The driver writes both; what has no effect stays.
            CorePower::Off => self.ask(CorePowerState::of(domain))?.priority_type,
            CorePower::Proportional => PRIORITY_PROPORTIONAL,
            CorePower::Ordered => PRIORITY_ORDERED,
        };
        let enable = u8::from(power != CorePower::Off);
        let state =
            CorePowerState { get_set: SET, enable, priority_type, ..CorePowerState::of(domain) };
        self.ask(state).map(drop)
    }

    fn limits(&mut self, domain: Domain, clos: u8) -> Result<ClosLimits, Errno> {
        let it = self.ask(ClosParam { clos, ..ClosParam::of(domain) })?;
        let [min_mhz, max_mhz] = [it.min_freq_mhz, it.max_freq_mhz].map(u32::from);
        Ok(ClosLimits { min_mhz, max_mhz, weight: it.prop_prio })
    }

    fn set_limits(&mut self, domain: Domain, clos: u8, limits: ClosLimits) -> Result<(), Errno> {
        let mhz = |mhz: u32| u16::try_from(mhz).map_err(|_| Errno::EINVAL);
        let param = ClosParam {
            get_set: SET,
            clos,
            min_freq_mhz: mhz(limits.min_mhz)?,
            max_freq_mhz: mhz(limits.max_mhz)?,
            prop_prio: limits.weight,
            ..ClosParam::of(domain)
        };
        self.ask(param).map(drop)
    }

    fn clos(&mut self, domain: Domain, core: u16) -> Result<u8, Errno> {
        let it = self.ask(ClosAssoc { logical_cpu: core, ..ClosAssoc::of(domain) })?;
        u8::try_from(it.clos).map_err(|_| Errno::EPROTO)
    }

    fn set_clos(&mut self, domain: Domain, core: u16, clos: u8) -> Result<(), Errno> {
        // The driver masks what is too large instead of refusing it.
        if clos >= CLOS_COUNT {
            return Err(Errno::EINVAL);
        }
        let (get_set, clos) = (u16::from(SET), u16::from(clos));
        let assoc = ClosAssoc { get_set, logical_cpu: core, clos, ..ClosAssoc::of(domain) };
        self.ask(assoc).map(drop)
    }

    fn levels(&mut self, domain: Domain) -> Result<Levels, Errno> {
        let Domain { package: socket_id, number: power_domain_id } = domain;
        let info = PerfLevelInfo { socket_id, power_domain_id, ..PerfLevelInfo::default() };
        let it = self.ask(info)?;
        let profile = PerformanceProfile {
            level: it.current_level,
            levels: (0..LEVELS).filter(|level| it.level_mask & (1 << level) != 0).collect(),
            is_locked: it.locked != 0,
            has_base_frequency: it.sst_bf_support != 0,
            has_turbo_frequency: it.sst_tf_support != 0,
        };
        Ok(Levels {
            profile,
            is_base_frequency_on: it.feature_state & FEATURE_BASE_FREQUENCY != 0,
            is_turbo_frequency_on: it.feature_state & FEATURE_TURBO_FREQUENCY != 0,
        })
    }
}

impl CorePowerState {
    fn of(Domain { package, number }: Domain) -> CorePowerState {
        CorePowerState { socket_id: package, power_domain_id: number, ..CorePowerState::default() }
    }
}

impl ClosParam {
    fn of(Domain { package, number }: Domain) -> ClosParam {
        ClosParam { socket_id: package, power_domain_id: number, ..ClosParam::default() }
    }
}

impl ClosAssoc {
    /// Cores by the power unit's numbers: the driver answers EOPNOTSUPP to the kernel's.
    fn of(Domain { package, number }: Domain) -> ClosAssoc {
        ClosAssoc {
            cmd_count: 1,
            punit_cpu_map: 1,
            socket_id: package,
            power_domain_id: number,
            ..ClosAssoc::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
mod tests {
    use super::*;

    /// As a C compiler makes them of the header, on a machine with pointers of 8 bytes.
    #[test]
    fn numbers_are_those_of_the_header() {
        let numbers = [
            (PlatformInfo::NUMBER, 0x8008_fe00),
            (CpuMap::NUMBER, 0xc008_fe01),
            (CorePowerState::NUMBER, 0xc008_fe06),
            (ClosParam::NUMBER, 0xc008_fe07),
            (ClosAssoc::NUMBER, 0xc008_fe08),
            (PerfLevelInfo::NUMBER, 0xc008_fe09),
        ];
        for (number, expected) in numbers {
            assert_eq!(number, expected, "{number:#x}");
        }
    }

    #[test]
    fn where_there_is_no_device_that_is_told_and_another_file_is_not_asked_in_vain() {
        let missing = IsstDevice::open(Path::new("/nowhere"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut other = IsstDevice { file: File::open("/dev/null").unwrap() };
        let refused = other.version().unwrap_err();
        // An emulator of system calls does not know the number.
        assert!(matches!(refused, Errno::ENOTTY | Errno::ENOSYS), "{refused}");
    }
}
