//! What a machine and its kernel can do, beside what placement depends on. In: kernel files, and the kernel's configuration where it can be read. Out: [`FeatureFacts`], as the files
//! have it, without judgement.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bayplan_enforcement::power::TurboSwitch;
use flate2::read::GzDecoder;

use crate::kernel::Kernel;

const CPUS: &str = "sys/devices/system/cpu";
/// A configuration of the kernel is some 300 KB.
const CONFIG_MAX: u64 = 4 << 20;

/// Facts; what was not found is empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureFacts {
    /// `flags` of the first CPU in `/proc/cpuinfo`, `Features` on Arm.
    pub cpu_flags: Vec<String>,
    /// `vendor_id`, `cpu family`, `model` and `model name` of the first CPU.
    pub cpu_model: BTreeMap<String, String>,
    /// `intel_pstate/status`.
    pub pstate: Option<String>,
    /// Turbo is on, by `intel_pstate/no_turbo`.
    pub turbo: Option<bool>,
    /// `scaling_governor` of the first policy.
    pub governor: Option<String>,
    /// `max_cstate` of `intel_idle`.
    pub cstate_max: Option<u32>,
    /// `/proc/swaps` has an area.
    pub has_swap: bool,
    /// SELinux refuses, by `/sys/fs/selinux/enforce`.
    pub has_selinux: bool,
    /// `/proc/sys/kernel/osrelease`.
    pub release: String,
    /// Names in `/proc/modules`.
    pub modules: Vec<String>,
    /// Options of the kernel without `CONFIG_`, with their values.
    pub config: BTreeMap<String, String>,
    /// `/etc/os-release`.
    pub os: BTreeMap<String, String>,
    /// Network interfaces of devices.
    pub interfaces: Vec<InterfaceFacts>,
    /// Disks, and whether they rotate.
    pub disks: Vec<(String, bool)>,
    /// `sriov_totalvfs` by PCI address, of those that have it.
    pub virtual_functions: BTreeMap<String, u32>,
}

/// A network interface of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// `sriov_totalvfs`: virtual functions that it can have; 0 without SR-IOV.
    pub functions_max: u32,
    /// `sriov_numvfs`: those that it has.
    pub functions: u32,
}

/// Reads all of it.
pub fn read_features(root: &Path, kernel: &mut dyn Kernel) -> FeatureFacts {
    let mut reader = Reader { kernel };
    let (cpu_flags, cpu_model) = reader.cpu();
    let release = reader.text("proc/sys/kernel/osrelease").unwrap_or_default();
    FeatureFacts {
        cpu_flags,
        cpu_model,
        pstate: reader.text(&format!("{CPUS}/intel_pstate/status")),
        turbo: reader.number(TurboSwitch::NoTurbo.path()).map(|it| it == 0),
        governor: reader.text(&format!("{CPUS}/cpufreq/policy0/scaling_governor")),
        cstate_max: reader.number("sys/module/intel_idle/parameters/max_cstate"),
        has_swap: reader.text("proc/swaps").is_some_and(|it| it.lines().count() > 1),
        has_selinux: reader.number("sys/fs/selinux/enforce") == Some(1),
        modules: reader.modules(),
        config: read_config(root, &release),
        os: reader.os_release(),
        interfaces: reader.interfaces(),
        disks: reader.disks(),
        virtual_functions: reader.virtual_functions(),
        release,
    }
}

struct Reader<'a> {
    kernel: &'a mut dyn Kernel,
}

impl Reader<'_> {
    fn text(&mut self, path: &str) -> Option<String> {
        let text = self.kernel.read(path).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn number(&mut self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    fn names(&mut self, dir: &str) -> Vec<String> {
        let mut names = self.kernel.list(dir).unwrap_or_default();
        names.sort();
        names
    }

    /// Flags and model of the first CPU.
    fn cpu(&mut self) -> (Vec<String>, BTreeMap<String, String>) {
        let text = self.text("proc/cpuinfo").unwrap_or_default();
        let first = text.lines().take_while(|line| !line.trim().is_empty());
        let pairs = first.filter_map(|line| line.split_once(':'));
        let (mut flags, mut model) = (Vec::new(), BTreeMap::new());
        for (key, value) in pairs.map(|(key, value)| (key.trim(), value.trim())) {
            match key {
                "flags" | "Features" => {
                    flags = value.split_ascii_whitespace().map(str::to_owned).collect();
                }
                "vendor_id" | "cpu family" | "model" | "model name" => {
                    model.insert(key.to_owned(), value.to_owned());
                }
                _ => {}
            }
        }
        (flags, model)
    }

    fn modules(&mut self) -> Vec<String> {
        let text = self.text("proc/modules").unwrap_or_default();
        let names = text.lines().filter_map(|it| it.split_ascii_whitespace().next());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    fn os_release(&mut self) -> BTreeMap<String, String> {
        let text = self.text("etc/os-release").unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let plain = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
        pairs.map(|(key, value)| (plain(key), plain(value))).collect()
    }

    fn interfaces(&mut self) -> Vec<InterfaceFacts> {
        let dir = |name: &str| format!("sys/class/net/{name}/device");
        let names = self.names("sys/class/net").into_iter();
        let names: Vec<String> = names.filter(|name| self.kernel.is_there(&dir(name))).collect();
        let facts = |name: String| {
            let [functions_max, functions] = ["sriov_totalvfs", "sriov_numvfs"]
                .map(|file| self.number(&format!("{}/{file}", dir(&name))).unwrap_or(0));
            InterfaceFacts { name, functions_max, functions }
        };
        names.into_iter().map(facts).collect()
    }

    fn disks(&mut self) -> Vec<(String, bool)> {
        let names = self.names("sys/block");
        let rotates = |name: String| {
            let is_disk = self.kernel.is_there(&format!("sys/block/{name}/device"));
            let rotates = self.number(&format!("sys/block/{name}/queue/rotational"))?;
            is_disk.then_some((name, rotates == 1))
        };
        names.into_iter().filter_map(rotates).collect()
    }

    fn virtual_functions(&mut self) -> BTreeMap<String, u32> {
        let names = self.names("sys/bus/pci/devices");
        let total = |name: String| {
            let path = format!("sys/bus/pci/devices/{name}/sriov_totalvfs");
            Some((name, self.number(&path).filter(|it| *it > 0)?))
        };
        names.into_iter().filter_map(total).collect()
    }
}

/// The kernel's configuration: from the kernel itself, or as distributions keep it.
fn read_config(root: &Path, release: &str) -> BTreeMap<String, String> {
    let open = |path: &str| File::open(root.join(path)).ok();
    let mut text = String::new();
    let plain = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    let is_read = match open("proc/config.gz") {
        Some(file) => GzDecoder::new(file).take(CONFIG_MAX).read_to_string(&mut text).is_ok(),
        None => plain
            .iter()
            .find_map(|path| open(path))
            .is_some_and(|file| file.take(CONFIG_MAX).read_to_string(&mut text).is_ok()),
    };
    if is_read { parse_config(&text) } else { BTreeMap::new() }
}

fn parse_config(text: &str) -> BTreeMap<String, String> {
    let options = text.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
    options.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::fake_kernel::FakeKernel;
    use crate::kernel::DiskKernel;

    const FILES: &[(&str, &str)] = &[
        (
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\nflags\t\t: fma avx512bw\n\nprocessor : 1\nflags : sse\n",
        ),
        ("sys/devices/system/cpu/intel_pstate/status", "active\n"),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
        ("sys/module/intel_idle/parameters/max_cstate", "9\n"),
        ("proc/swaps", "Filename Type\n/dev/sda2 partition\n"),
        ("proc/sys/kernel/osrelease", "6.12.1-test\n"),
        ("proc/modules", "vfio 1 0 - Live 0x0\nkvm 2 1 vfio, Live 0x0\n"),
        ("etc/os-release", "ID=debian\nVERSION_ID=\"13\"\n"),
        ("sys/class/net/eth0/device/sriov_totalvfs", "8\n"),
        ("sys/class/net/eth0/device/sriov_numvfs", "0\n"),
        (
            "boot/config-6.12.1-test",
            "# CONFIG_NO_HZ is not set\nCONFIG_PREEMPT=y\nCONFIG_LOCALVERSION=\"-test\"\n",
        ),
        ("sys/class/net/lo/mtu", "65536\n"),
        ("sys/block/nvme0n1/queue/rotational", "0\n"),
        ("sys/block/nvme0n1/device/model", "x\n"),
        ("sys/block/loop0/queue/rotational", "0\n"),
        ("sys/bus/pci/devices/0000:17:00.0/sriov_totalvfs", "8\n"),
    ];

    #[test]
    fn facts_are_as_the_files_have_them() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in FILES {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        expect![[r#"
            FeatureFacts {
                cpu_flags: [
                    "fma",
                    "avx512bw",
                ],
                cpu_model: {
                    "cpu family": "6",
                    "model": "143",
                    "model name": "Xeon",
                    "vendor_id": "GenuineIntel",
                },
                pstate: Some(
                    "active",
                ),
                turbo: Some(
                    true,
                ),
                governor: Some(
                    "powersave",
                ),
                cstate_max: Some(
                    9,
                ),
                has_swap: true,
                has_selinux: false,
                release: "6.12.1-test",
                modules: [
                    "kvm",
                    "vfio",
                ],
                config: {
                    "LOCALVERSION": "-test",
                    "PREEMPT": "y",
                },
                os: {
                    "ID": "debian",
                    "VERSION_ID": "13",
                },
                interfaces: [
                    InterfaceFacts {
                        name: "eth0",
                        functions_max: 8,
                        functions: 0,
                    },
                ],
                disks: [
                    (
                        "nvme0n1",
                        false,
                    ),
                ],
                virtual_functions: {
                    "0000:17:00.0": 8,
                },
            }
        "#]]
        .assert_debug_eq(&read_features(root.path(), &mut kernel));
    }

    #[test]
    fn without_files_there_are_no_facts() {
        let facts = read_features(Path::new("/nonexistent"), &mut FakeKernel::new(&[]));
        assert_eq!(facts, FeatureFacts::default());
    }
}
