//! Speed Select by real ioctls: the crate `isst` and the daemon at a character device, behind which is a driver that refuses what the kernel's refuses. No processor is behind it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bayplan_isst::{
    Device as _, Domain, FakeDevice, IsstDevice, Levels, NodeDevice, SpeedSelect, answer,
};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_tests::speed_select::{AS_IT_WAS, AS_WANTED, CLASSES, Cores, Shown, shown};
use bayplan_types::{ClosLimits, CpuSet, PerformanceProfile};
use nix::errno::Errno;
use nix::unistd::Pid;

use crate::cuse::{Call, Copies, Device, Driver, has_cuse};
use crate::exclusive::own;
use crate::hardware::Hardware;
use crate::isst_driver::Isst;
use crate::killed;
use crate::units::Edited;
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "ioctls_of_speed_select_carry_every_setting_there_and_back",
        needs: |_| has_cuse(),
        config: "",
        run: |_, _| ioctls_carry_every_setting(),
    },
    Test {
        name: "what_the_driver_of_speed_select_refuses_comes_back_as_its_errno",
        needs: |_| has_cuse(),
        config: "",
        run: |_, _| refusals_come_back(),
    },
    Test {
        name: "the_daemon_sets_speed_select_by_ioctl_and_gives_it_back",
        needs: has_cuse_and_cores,
        config: "",
        run: the_daemon_sets_and_gives_back,
    },
    Test {
        name: "a_daemon_killed_between_two_ioctls_leaves_a_way_on_and_a_way_back",
        needs: has_cuse_and_cores,
        config: "",
        run: kills_between_two_ioctls,
    },
];

fn has_cuse_and_cores(hardware: &Hardware) -> Needs {
    match hardware.isolated.is_empty() {
        true => has_cuse().and(hardware.has_cpus(8)),
        false => Err("CPUs isolated at boot"),
    }
}

/// An argument of this program, with a question to the device as [`answer`] takes it.
pub(crate) const ASK: &str = "--ask-isst";

/// Answers one question.
pub(crate) fn ask(question: &str) -> anyhow::Result<()> {
    let mut settings = open()?;
    println!("{}", answer(&mut settings, question));
    Ok(())
}

fn open() -> anyhow::Result<SpeedSelect<IsstDevice>> {
    Ok(SpeedSelect::new(IsstDevice::open(Path::new("/"))?)?)
}

const fn domain(package: u8, number: u8) -> Domain {
    Domain { package, number }
}

/// Two packages of two domains of four cores. Every field has a value of its own somewhere.
fn processor() -> FakeDevice {
    let profile = PerformanceProfile {
        level: 3,
        levels: vec![0, 3, 7],
        is_locked: true,
        has_base_frequency: false,
        has_turbo_frequency: true,
    };
    let levels = Levels { profile, is_base_frequency_on: false, is_turbo_frequency_on: true };
    let other = Levels {
        profile: PerformanceProfile {
            level: 1,
            levels: vec![0, 1],
            is_locked: false,
            has_base_frequency: true,
            has_turbo_frequency: false,
        },
        is_base_frequency_on: true,
        is_turbo_frequency_on: false,
    };
    let device = FakeDevice::new(2, 2, 8).without_core_power(domain(1, 1));
    device.with_levels(domain(0, 1), levels).with_levels(domain(1, 0), other)
}

/// All names of settings of [`processor`], and some that it does not have.
fn names() -> Vec<String> {
    let mut names: Vec<String> = (0..33).map(|cpu| format!("cpu{cpu}@{}/core", cpu / 16)).collect();
    for domain in ["0.0", "0.1", "1.0", "1.1", "0.2", "2.0"] {
        let cores = (0..4).map(|core| format!("core{core}/clos"));
        let limits = (0..5).flat_map(|clos| {
            ["min_mhz", "max_mhz", "weight"].map(|limit| format!("clos{clos}/{limit}"))
        });
        let whole = ["core_power", "profile", "features", "none"].map(str::to_owned);
        let all = whole.into_iter().chain(cores).chain(limits);
        names.extend(all.map(|setting| format!("{domain}/{setting}")));
    }
    names
}

/// One after the other; some are refused.
const WRITES: [(&str, &str); 20] = [
    ("0.0/core1/clos", "2"),
    ("1.0/core3/clos", "3"),
    ("1.1/core0/clos", "1"),
    ("0.0/core1/clos", "4"),
    ("0.1/core_power", "ordered"),
    ("1.0/core_power", "proportional"),
    ("0.1/core_power", "proportional"),
    ("0.1/core_power", "off"),
    ("1.1/core_power", "ordered"),
    ("0.0/clos1/max_mhz", "3600"),
    ("0.0/clos1/min_mhz", "800"),
    ("0.0/clos1/weight", "7"),
    ("1.0/clos3/max_mhz", "2050"),
    ("1.0/clos2/weight", "15"),
    ("0.0/clos1/min_mhz", "3700"),
    ("0.0/clos3/max_mhz", "25600"),
    ("0.0/clos3/max_mhz", "70000"),
    ("2.0/core_power", "ordered"),
    ("0.0/profile", "level=3"),
    ("cpu3@0/core", "0.0/core0"),
];

/// The device by ioctl, the fake behind its driver, and another fake that is asked without any ioctl say the same, before and after each write.
fn ioctls_carry_every_setting() -> anyhow::Result<()> {
    let mut twin = SpeedSelect::new(processor())?;
    let (isst, _device) = Isst::make(processor())?;
    let mut real = open()?;
    let names = names();
    let compare = |real: &mut SpeedSelect<IsstDevice>, twin: &mut SpeedSelect<FakeDevice>| {
        let mut behind = SpeedSelect::new(isst.state().device.clone())?;
        for name in &names {
            let (found, held, due) = (real.read(name), behind.read(name), twin.read(name));
            ensure!(found == due && held == due, "{name}: {found:?}, behind {held:?}, not {due:?}");
        }
        anyhow::Ok(())
    };
    compare(&mut real, &mut twin)?;
    for (name, text) in WRITES {
        let (found, due) = (real.write(name, text), twin.write(name, text));
        ensure!(found == due, "{name} becomes {text}: {found:?}, not {due:?}");
        compare(&mut real, &mut twin).with_context(|| format!("after {name} became {text}"))?;
    }
    let state = isst.state();
    let (asked, sets) = (&state.asked, state.sets);
    println!("  {} settings; ioctls by number {asked:x?}, of them {sets} sets", names.len());
    ensure!(asked.len() == 6, "not every ioctl was asked");
    Ok(())
}

/// Every way to change something.
const CHANGES: [(&str, &str); 5] = [
    ("0.0/core0/clos", "1"),
    ("0.0/core_power", "ordered"),
    ("0.0/clos0/max_mhz", "2000"),
    ("0.0/clos0/min_mhz", "1000"),
    ("0.0/clos0/weight", "9"),
];

/// Each is refused so, and changes nothing.
fn check_refused(
    isst: &Isst,
    due: Errno,
    mut write: impl FnMut(&str, &str) -> anyhow::Result<Result<(), Errno>>,
) -> anyhow::Result<()> {
    for (name, text) in CHANGES {
        let held = || anyhow::Ok(SpeedSelect::new(isst.state().device.clone())?.read(name));
        let before = held()?;
        let found = write(name, text)?;
        ensure!(found == Err(due), "{name} becomes {text}: {found:?}, not {due:?}");
        ensure!(held()? == before, "{name} was refused, and is {:?}, not {before:?}", held()?);
    }
    Ok(())
}

fn refusals_come_back() -> anyhow::Result<()> {
    let missing = IsstDevice::open(Path::new("/")).err().map(|it| it.kind());
    ensure!(missing == Some(std::io::ErrorKind::NotFound), "{missing:?}");
    let (isst, device) = Isst::make(processor())?;
    let mut real = open()?;
    isst.state().device.is_write_blocked = true;
    check_refused(&isst, Errno::EPERM, |name, text| Ok(real.write(name, text)))?;
    isst.state().device.is_write_blocked = false;
    isst.state().device.writes_left = Some(0);
    check_refused(&isst, Errno::EIO, |name, text| Ok(real.write(name, text)))?;
    isst.state().device.writes_left = None;
    a_process_without_rights_reads_only(&isst)?;

    isst.state().has_no_hwp = true;
    let found = real.read("0.0/core_power");
    ensure!(found == Err(Errno::EFAULT), "without HWP: {found:?}");
    ensure!(real.read("0.0/core1/clos")? == "0\n", "without HWP");
    isst.state().has_no_hwp = false;

    isst.state().device.version = 1;
    let mut mailbox = IsstDevice::open(Path::new("/"))?;
    let found = (mailbox.version(), mailbox.core_power(domain(0, 0)), mailbox.levels(domain(0, 0)));
    ensure!(found == (Ok(1), Err(Errno::ENOTTY), Err(Errno::ENOTTY)), "mailboxes: {found:?}");
    let found = NodeDevice::open(Path::new("/")).err();
    ensure!(found == Some(Errno::EOPNOTSUPP), "mailboxes: {found:?}");
    isst.state().device.version = 2;

    // Open, and its driver is gone.
    device.remove()?;
    let found = (real.read("0.0/core_power"), real.write("0.0/core_power", "off"));
    ensure!(found == (Err(Errno::ENOTCONN), Err(Errno::ENOTCONN)), "gone: {found:?}");
    let found = NodeDevice::open(Path::new("/")).err();
    ensure!(found == Some(Errno::ENOENT), "gone: {found:?}");

    let _other = Device::make("isst_interface", Other)?;
    let found = NodeDevice::open(Path::new("/")).err();
    ensure!(found == Some(Errno::ENOTTY), "another driver: {found:?}");
    Ok(())
}

/// A driver that knows none of these numbers.
struct Other;

impl Driver for Other {
    fn copies(&self, _: u32) -> Result<Copies, Errno> {
        Err(Errno::ENOTTY)
    }

    fn ioctl(&mut self, _: Call<'_>) -> Result<(i32, Vec<u8>), Errno> {
        Err(Errno::ENOTTY)
    }
}

/// One that may open the device, and has not `CAP_SYS_ADMIN`.
fn a_process_without_rights_reads_only(isst: &Isst) -> anyhow::Result<()> {
    fs::set_permissions("/dev/isst_interface", Permissions::from_mode(0o666))?;
    let ask = |question: String| {
        let mut command = Command::new(std::env::current_exe()?);
        let done = command.args([ASK, &question]).uid(65534).gid(65534).output()?;
        let told = String::from_utf8(done.stdout)?;
        ensure!(done.status.success(), "{question}: {told}");
        anyhow::Ok(told.trim().to_owned())
    };
    let read = ask("read 0.0/core_power".to_owned())?;
    ensure!(read == "ok off", "{read}");
    check_refused(isst, Errno::EPERM, |name, text| {
        let told = ask(format!("write {name} {text}"))?;
        let errno = told.strip_prefix("errno ").and_then(|it| it.parse().ok());
        Ok(errno.map_or(Ok(()), |it| Err(Errno::from_raw(it))))
    })
}

/// Two power domains in each package, of half of its cores each; the power unit counts cores in steps of two.
fn cores(hardware: &Hardware) -> anyhow::Result<Cores> {
    let mut cores = Cores::new();
    for (package, cpus) in (0..).zip(&hardware.packages) {
        let here: Vec<&CpuSet> = hardware.cores.iter().filter(|it| it.is_subset(cpus)).collect();
        for (at, core) in here.iter().enumerate() {
            let half = here.len().div_ceil(2);
            let number = u8::try_from(at / half)?;
            let core_number = u16::try_from(at % half * 2)?;
            cores.extend(core.iter().map(|cpu| (cpu.0, (domain(package, number), core_number))));
        }
    }
    Ok(cores)
}

/// A daemon before which all was as it is on a machine that was just started.
struct Machine<'a> {
    hardware: &'a Hardware,
    cores: Cores,
    isst: Isst,
    _device: Device,
    _edited: Edited,
}

impl Machine<'_> {
    fn make(hardware: &Hardware) -> anyhow::Result<Machine<'_>> {
        let cores = cores(hardware)?;
        let (isst, device) = Isst::make(FakeDevice::of_cores(cores.clone()))?;
        Ok(Machine { hardware, cores, isst, _device: device, _edited: Edited::with_admin()? })
    }

    fn shown(&self) -> anyhow::Result<Shown> {
        let device = self.isst.state().device.clone();
        Ok(shown(&mut SpeedSelect::new(device)?, &self.cores))
    }

    /// All CPUs of the cores of these.
    fn whole(&self, cpus: &CpuSet) -> CpuSet {
        let mut whole = CpuSet::new();
        let near = self.hardware.cores.iter().filter(|it| it.intersects(cpus));
        near.for_each(|core| whole.union_with(core));
        whole
    }

    /// As configured, while these CPUs are exclusive.
    fn wanted(&self, own: &CpuSet) -> anyhow::Result<Shown> {
        let reserved: CpuSet = "0".parse()?;
        let shared = self.hardware.cpus.difference(&reserved).difference(own);
        let fast = self.whole(own);
        let slow = self.whole(&shared).difference(&fast);
        Ok((AS_WANTED.to_owned(), [fast, CpuSet::new(), slow]))
    }

    fn becomes(&self, due: &Shown) -> anyhow::Result<()> {
        let reached = wait_for("the device", LIMIT, || Ok((self.shown()? == *due).then_some(())));
        reached.with_context(|| format!("it has {:?}, not {due:?}", self.shown()))
    }
}

fn as_it_was() -> Shown {
    (AS_IT_WAS.to_owned(), [CpuSet::new(), CpuSet::new(), CpuSet::new()])
}

/// Emulated CPUs have other things to do than to look ten times a second.
fn classes() -> String {
    CLASSES.replace("reservedCpus: 0,8", "reservedCpus: 0").replace("100ms", "1s")
}

const NOTHING: &str = "reservedCpus: 0\n";

fn the_daemon_sets_and_gives_back(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let machine = Machine::make(hardware)?;
    let isst = machine.isst.clone();
    isst.state().device.is_write_blocked = true;
    node.reconfigure(&classes())?;
    wait_for("refusals to be counted", LIMIT, || {
        let is_refused = |line: &str| {
            line.starts_with("bayplan_file_writes_total{")
                && line.contains("\"refused\"")
                && !line.ends_with(" 0")
        };
        Ok(node.metrics()?.lines().any(is_refused).then_some(()))
    })?;
    ensure!(machine.shown()? == as_it_was(), "what was refused holds: {:?}", machine.shown());
    isst.state().device.is_write_blocked = false;

    let shared = machine.wanted(&CpuSet::new())?;
    machine.becomes(&shared)?;
    println!("  {} sets", isst.state().sets);
    let owner = own(node, "owner", 2)?;
    let owned = machine.wanted(&owner.cpus)?;
    machine.becomes(&owned)?;
    // Another program changes a setting.
    let foreign = ClosLimits { min_mhz: 0, max_mhz: 3000, weight: 15 };
    isst.state().device.set_limits(domain(0, 1), 3, foreign)?;
    machine.becomes(&owned)?;
    for (verb, due) in [("restore", as_it_was()), ("resume", owned)] {
        let done = killed::ask(node, verb).output()?;
        ensure!(done.status.success(), "{verb}: {done:?}");
        machine.becomes(&due).context(verb)?;
    }
    // What a killed daemon has set the next one gives back, which wants nothing of it.
    node.kill()?;
    node.write_config(NOTHING)?;
    node.start_again()?;
    machine.becomes(&as_it_was())
}

fn kills_between_two_ioctls(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let machine = Machine::make(hardware)?;
    let isst = machine.isst.clone();
    let wanted = machine.wanted(&CpuSet::new())?;
    node.reconfigure(&classes())?;
    machine.becomes(&wanted)?;
    let count = isst.state().sets;
    ensure!(count >= 8, "{count} sets are no large plan");
    for sets in [1, count / 2, count - 1] {
        for (next, due) in [(classes(), &wanted), (NOTHING.to_owned(), &as_it_was())] {
            node.write_config(NOTHING)?;
            machine.becomes(&as_it_was())?;
            let pid = node.daemon_pid()?;
            {
                let mut state = isst.state();
                state.sets = 0;
                state.kill_after = Some((sets, Pid::from_raw(i32::try_from(pid)?)));
            }
            node.write_config(&classes())?;
            wait_for("the moment", LIMIT, || Ok(isst.state().kill_after.is_none().then_some(())))?;
            node.write_config(&next)?;
            node.await_death(pid)?;
            let found = machine.shown()?;
            ensure!(found != as_it_was() && found != wanted, "killed after {sets}: {found:?}");
            node.start_again()?;
            let reached = machine.becomes(due);
            reached.with_context(|| format!("killed after {sets} of {count} sets"))?;
            println!("  killed after {sets} of {count} sets, {} by then", found.0);
        }
    }
    // Nothing of it is left for others.
    node.reconfigure(NOTHING)?;
    machine.becomes(&as_it_was())
}
