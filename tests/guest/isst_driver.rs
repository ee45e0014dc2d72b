//! The driver of Speed Select as its callers meet it (drivers/platform/x86/intel/speed_select_if: isst_if_common.c, isst_tpmi_core.c). In: ioctls on `/dev/isst_interface`. Out: what a [`FakeDevice`] says, in
//! the structures of include/uapi/linux/isst_if.h.
//!
//! Numbers, sizes and places of fields are written down here once more, as a C compiler for x86-64 makes them of that header: the crate's own are what is tested. What one side takes for the lowest frequency and the other
//! for the highest would show.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bayplan_isst::{Device as _, Domain, FakeDevice};
use bayplan_types::{ClosLimits, CorePower};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cuse::{Call, Copies, Device, Driver};

const GET_PLATFORM_INFO: u32 = 0x8008_fe00;
const GET_PHY_ID: u32 = 0xc008_fe01;
const CORE_POWER_STATE: u32 = 0xc008_fe06;
const CLOS_PARAM: u32 = 0xc008_fe07;
const CLOS_ASSOC: u32 = 0xc008_fe08;
const PERF_LEVELS: u32 = 0xc008_fe09;

/// `CAP_SYS_ADMIN` in `CapEff` of `/proc/PID/status` (capabilities(7)).
const SYS_ADMIN: u32 = 21;
/// `ISST_IF_CMD_LIMIT`.
const COMMANDS_MAX: u16 = 64;

/// A driver and its processor.
pub(crate) struct State {
    /// Its version is the driver's, too: below 2 it speaks of mailboxes only.
    pub(crate) device: FakeDevice,
    /// Firmware has hardware-controlled performance states off, without which core power is not asked for (`disable_dynamic_sst_features`).
    pub(crate) has_no_hwp: bool,
    /// What was set so far.
    pub(crate) sets: usize,
    /// The process that is killed by the next set, which is not made, once so many were.
    pub(crate) kill_after: Option<(usize, Pid)>,
    /// How often each number was asked.
    pub(crate) asked: BTreeMap<u32, usize>,
}

/// The same for the device and the test.
#[derive(Clone)]
pub(crate) struct Isst(Arc<Mutex<State>>);

impl Isst {
    /// Makes `/dev/isst_interface`.
    pub(crate) fn make(device: FakeDevice) -> anyhow::Result<(Isst, Device)> {
        let (asked, has_no_hwp) = (BTreeMap::new(), false);
        let state = State { device, has_no_hwp, sets: 0, kill_after: None, asked };
        let isst = Isst(Arc::new(Mutex::new(state)));
        let device = Device::make("isst_interface", isst.clone())?;
        Ok((isst, device))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Isst {
    fn copies(&self, number: u32) -> Result<Copies, Errno> {
        let is_mailbox = self.state().device.version < 2;
        let both = |bytes| Copies { from: bytes, back: bytes };
        match number {
            GET_PLATFORM_INFO => Ok(Copies { from: 0, back: 8 }),
            GET_PHY_ID => Ok(both(12)),
            CORE_POWER_STATE if !is_mailbox => Ok(both(6)),
            CLOS_PARAM if !is_mailbox => Ok(both(10)),
            CLOS_ASSOC if !is_mailbox => Ok(both(12)),
            PERF_LEVELS if !is_mailbox => Ok(both(11)),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn ioctl(&mut self, call: Call<'_>) -> Result<(i32, Vec<u8>), Errno> {
        let mut state = self.state();
        *state.asked.entry(call.number).or_default() += 1;
        let fields = Fields(call.bytes);
        match call.number {
            GET_PLATFORM_INFO => state.platform_info(),
            GET_PHY_ID => state.physical_id(fields),
            CORE_POWER_STATE => state.core_power(call, fields),
            CLOS_PARAM => state.clos_param(call, fields),
            CLOS_ASSOC => state.clos_assoc(call, fields),
            PERF_LEVELS => state.perf_levels(fields),
            _ => Err(Errno::ENOTTY),
        }
    }
}

type Answer = Result<(i32, Vec<u8>), Errno>;

/// A structure by the places of its fields.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn half(self, at: usize) -> u16 {
        u16::from_ne_bytes([self.byte(at), self.byte(at + 1)])
    }

    fn word(self, at: usize) -> u32 {
        u32::from_ne_bytes([0, 1, 2, 3].map(|it| self.byte(at + it)))
    }

    /// `socket_id` and `power_domain_id`, which are neighbours.
    fn domain(self, at: usize) -> Domain {
        Domain { package: self.byte(at), number: self.byte(at + 1) }
    }

    /// With other bytes from a place on.
    fn with(self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut all = self.0.to_vec();
        all.iter_mut().skip(at).zip(bytes).for_each(|(to, byte)| *to = *byte);
        all
    }
}

impl State {
    /// `isst_if_platform_info`: version of the interface, of the driver, commands at a time, mailboxes and registers.
    fn platform_info(&self) -> Answer {
        let halves = [self.device.version, 1, COMMANDS_MAX];
        let mut bytes: Vec<u8> = halves.into_iter().flat_map(u16::to_ne_bytes).collect();
        bytes.extend([u8::from(self.device.version < 2), 0]);
        Ok((0, bytes))
    }

    /// `isst_if_cpu_maps`: count, then the kernel's number of a CPU and, answered, the power unit's: domain from bit 11 on, core from bit 3. The value is how many were answered (`isst_if_exec_multi_cmd`).
    fn physical_id(&mut self, fields: Fields<'_>) -> Answer {
        if fields.word(0) != 1 {
            return Err(Errno::EINVAL);
        }
        let (domain, core) = self.device.core_of(fields.word(4))?;
        let physical = u32::from(domain) << 11 | u32::from(core) << 3;
        Ok((1, fields.with(8, &physical.to_ne_bytes())))
    }

    /// `isst_core_power`: get or set, package, domain, enable, supported, priority type.
    fn core_power(&mut self, call: Call<'_>, fields: Fields<'_>) -> Answer {
        if self.has_no_hwp {
            return Err(Errno::EFAULT);
        }
        let domain = fields.domain(1);
        let power = self.device.core_power(domain)?;
        if fields.byte(0) != 0 {
            let power = match (fields.byte(3), fields.byte(5)) {
                (0, _) => CorePower::Off,
                (1, 0) => CorePower::Proportional,
                (1, 1) => CorePower::Ordered,
                // The driver would write it into the bits beside.
                _ => return Err(Errno::EINVAL),
            };
            return self.set(call, domain, |device| device.set_core_power(domain, power));
        }
        let [enable, kind] = match power.unwrap_or(CorePower::Off) {
            CorePower::Off => [0, 0],
            CorePower::Proportional => [1, 0],
            CorePower::Ordered => [1, 1],
        };
        Ok((0, fields.with(3, &[enable, u8::from(power.is_some()), kind])))
    }

    /// `isst_clos_param`: get or set, package, domain, class, lowest and highest MHz, weight, and a byte that fills up.
    fn clos_param(&mut self, call: Call<'_>, fields: Fields<'_>) -> Answer {
        let (domain, clos) = (fields.domain(1), fields.byte(3));
        if fields.byte(0) != 0 {
            let [min_mhz, max_mhz] = [fields.half(4), fields.half(6)].map(u32::from);
            let limits = ClosLimits { min_mhz, max_mhz, weight: fields.byte(8) };
            return self.set(call, domain, |device| device.set_limits(domain, clos, limits));
        }
        let ClosLimits { min_mhz, max_mhz, weight } = self.device.limits(domain, clos)?;
        let mhz = |mhz: u32| u16::try_from(mhz).map_err(|_| Errno::EOVERFLOW);
        let [[a, b], [c, d]] = [mhz(min_mhz)?, mhz(max_mhz)?].map(u16::to_ne_bytes);
        Ok((0, fields.with(4, &[a, b, c, d, weight])))
    }

    /// `isst_if_clos_assoc_cmds`: count, get or set, which numbers of cores, then package, domain, core, class.
    fn clos_assoc(&mut self, call: Call<'_>, fields: Fields<'_>) -> Answer {
        if fields.half(0) != 1 {
            return Err(Errno::EINVAL);
        }
        if fields.half(4) == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (domain, core) = (fields.domain(6), fields.half(8));
        if fields.half(2) != 0 {
            let clos = u8::try_from(fields.half(10)).map_err(|_| Errno::EINVAL)?;
            return self.set(call, domain, |device| device.set_clos(domain, core, clos));
        }
        let clos = u16::from(self.device.clos(domain, core)?);
        Ok((0, fields.with(10, &clos.to_ne_bytes())))
    }

    /// `isst_perf_level_info`: package, domain, highest level, revision, levels, level, features, locked, enabled, turbo frequency, base frequency.
    fn perf_levels(&mut self, fields: Fields<'_>) -> Answer {
        let it = self.device.levels(fields.domain(0))?;
        let profile = it.profile;
        let levels = profile.levels.iter().fold(0, |mask, level| mask | 1 << level);
        let features = u8::from(it.is_base_frequency_on) | u8::from(it.is_turbo_frequency_on) << 1;
        let bytes = [
            profile.levels.iter().max().copied().unwrap_or_default(),
            0,
            levels,
            profile.level,
            features,
            u8::from(profile.is_locked),
            1,
            u8::from(profile.has_turbo_frequency),
            u8::from(profile.has_base_frequency),
        ];
        Ok((0, fields.with(2, &bytes)))
    }

    /// Of what is set nothing is copied back.
    fn set(
        &mut self,
        call: Call<'_>,
        domain: Domain,
        set: impl FnOnce(&mut FakeDevice) -> Result<(), Errno>,
    ) -> Answer {
        self.device.levels(domain)?;
        if !may_set(call.thread) {
            return Err(Errno::EPERM);
        }
        if let Some((_, pid)) = self.kill_after.filter(|(after, _)| *after <= self.sets) {
            self.kill_after = None;
            // It waits for this answer before it ends.
            return kill(pid, Signal::SIGKILL).and(Err(Errno::EINTR));
        }
        set(&mut self.device)?;
        self.sets += 1;
        Ok((0, Vec::new()))
    }
}

/// `capable(CAP_SYS_ADMIN)` of the caller.
fn may_set(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    held.is_some_and(|it| it & 1 << SYS_ADMIN != 0)
}
