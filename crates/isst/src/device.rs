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

use crate::Device;
use crate::names::Domain;
use crate::settings::{ClosLimits, CorePower, Priority, Profile};

/// Below the root, without a slash in front, as other kernel files.
pub const DEVICE: &str = "dev/isst_interface";

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
        let file = OpenOptions::new().read(true).write(true).open(root.join(DEVICE))?;
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

/// `isst_perf_feature_control`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PerfFeatureControl {
    socket_id: u8,
    power_domain_id: u8,
    feature: u8,
}

// As a C compiler lays the header's structures out, so that the driver copies no byte more than there is.
const _: () = {
    assert!(size_of::<PlatformInfo>() == 8 && align_of::<PlatformInfo>() == 2);
    assert!(size_of::<CpuMap>() == 12 && align_of::<CpuMap>() == 4);
    assert!(size_of::<CorePowerState>() == 6 && align_of::<CorePowerState>() == 1);
    assert!(size_of::<ClosParam>() == 10 && align_of::<ClosParam>() == 2);
    assert!(size_of::<ClosAssoc>() == 12 && align_of::<ClosAssoc>() == 2);
    assert!(size_of::<PerfLevelInfo>() == 11 && align_of::<PerfLevelInfo>() == 1);
    assert!(size_of::<PerfFeatureControl>() == 3 && align_of::<PerfFeatureControl>() == 1);
};

/// A structure that belongs to one ioctl. Every bit pattern of it is a value, because it has integers only.
trait Request: Copy {
    /// `_IOR`, `_IOW` or `_IOWR` of the header.
    const NUMBER: c_ulong;
}

/// asm-generic/ioctl.h: direction (1: the kernel reads, 2: it writes), size of a pointer, `ISST_IF_MAGIC`, number.
const fn number(direction: c_ulong, nr: c_ulong) -> c_ulong {
    const MAGIC: c_ulong = 0xfe;
    direction << 30 | (size_of::<*const ()>() as c_ulong) << 16 | MAGIC << 8 | nr
}
const W: c_ulong = 1;
const R: c_ulong = 2;

impl Request for PlatformInfo {
    const NUMBER: c_ulong = number(R, 0);
}
impl Request for CpuMap {
    const NUMBER: c_ulong = number(R | W, 1);
}
impl Request for CorePowerState {
    const NUMBER: c_ulong = number(R | W, 6);
}
impl Request for ClosParam {
    const NUMBER: c_ulong = number(R | W, 7);
}
impl Request for ClosAssoc {
    const NUMBER: c_ulong = number(R | W, 8);
}
impl Request for PerfLevelInfo {
    const NUMBER: c_ulong = number(R | W, 9);
}
impl Request for PerfFeatureControl {
    const NUMBER: c_ulong = number(W, 11);
}

impl IsstDevice {
    /// Asks, and returns the structure as the driver left it.
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
        // MSR 0x54 as the driver passes it on: bits 15 to 11 the domain, 10 to 3 the core, 2 to 0 the thread (tools/power/x86/intel-speed-select).
        let domain = u8::try_from(physical >> 11 & 0x1f).map_err(|_| Errno::EINVAL)?;
        let core = u16::try_from(physical >> 3 & 0xff).map_err(|_| Errno::EINVAL)?;
        Ok((domain, core))
    }

    fn core_power(&mut self, domain: Domain) -> Result<CorePower, Errno> {
        let it = self.ask(CorePowerState::of(domain))?;
        let priority =
            if it.priority_type == 0 { Priority::Proportional } else { Priority::Ordered };
        Ok(CorePower { is_supported: it.supported != 0, is_on: it.enable != 0, priority })
    }

    fn set_core_power(&mut self, domain: Domain, power: CorePower) -> Result<(), Errno> {
        let state = CorePowerState {
            get_set: 1,
            enable: u8::from(power.is_on),
            priority_type: u8::from(power.priority == Priority::Ordered),
            ..CorePowerState::of(domain)
        };
        self.ask(state).map(drop)
    }

    fn limits(&mut self, domain: Domain, clos: u8) -> Result<ClosLimits, Errno> {
        let it = self.ask(ClosParam { clos, ..ClosParam::of(domain) })?;
        Ok(ClosLimits { min_mhz: it.min_freq_mhz, max_mhz: it.max_freq_mhz, weight: it.prop_prio })
    }

    fn set_limits(&mut self, domain: Domain, clos: u8, limits: ClosLimits) -> Result<(), Errno> {
        let param = ClosParam {
            get_set: 1,
            clos,
            min_freq_mhz: limits.min_mhz,
            max_freq_mhz: limits.max_mhz,
            prop_prio: limits.weight,
            ..ClosParam::of(domain)
        };
        self.ask(param).map(drop)
    }

    fn clos(&mut self, domain: Domain, core: u16) -> Result<u8, Errno> {
        let it = self.ask(ClosAssoc { logical_cpu: core, ..ClosAssoc::of(domain) })?;
        u8::try_from(it.clos).map_err(|_| Errno::EINVAL)
    }

    fn set_clos(&mut self, domain: Domain, core: u16, clos: u8) -> Result<(), Errno> {
        // The driver masks what is too large instead of refusing it.
        if clos > 3 {
            return Err(Errno::EINVAL);
        }
        let clos = u16::from(clos);
        let assoc = ClosAssoc { get_set: 1, logical_cpu: core, clos, ..ClosAssoc::of(domain) };
        self.ask(assoc).map(drop)
    }

    fn profile(&mut self, domain: Domain) -> Result<Profile, Errno> {
        let Domain { package: socket_id, number: power_domain_id } = domain;
        let info = PerfLevelInfo { socket_id, power_domain_id, ..PerfLevelInfo::default() };
        let it = self.ask(info)?;
        Ok(Profile {
            level: it.current_level,
            levels: it.level_mask,
            is_locked: it.locked != 0,
            bf: (it.sst_bf_support != 0, it.feature_state & 1 != 0),
            tf: (it.sst_tf_support != 0, it.feature_state & 2 != 0),
        })
    }

    fn set_features(&mut self, domain: Domain, bf: bool, tf: bool) -> Result<(), Errno> {
        let Domain { package: socket_id, number: power_domain_id } = domain;
        let feature = u8::from(bf) | u8::from(tf) << 1;
        self.ask(PerfFeatureControl { socket_id, power_domain_id, feature }).map(drop)
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
            (PerfFeatureControl::NUMBER, 0x4008_fe0b),
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
        assert_eq!(other.version(), Err(Errno::ENOTTY));
    }
}
