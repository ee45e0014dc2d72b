//! Which disks the patterns of block I/O classes stand for now. In: paths and patterns such as `/dev/disk/by-id/*SSD*`. Out: disks.
//!
//! A path or link below `/dev` leads to a node with the name that the device has in sysfs (with `!` for `/`, Documentation/ABI/stable/sysfs-block); a
//! directory with a file `partition` is a partition, and its disk is the directory around it. Devices come and go, so this is asked anew whenever
//! settings are made.

use std::fs;
use std::path::{Path, PathBuf};

use bayplan_enforcement::{BlockDevice, ResolvedDevices};

/// What each pattern stands for; `root` holds `dev` and `sys`.
pub fn read_block_devices<'a>(
    root: &Path,
    patterns: impl IntoIterator<Item = &'a str>,
) -> ResolvedDevices {
    let resolve = |pattern: &'a str| (pattern.to_owned(), resolve(root, pattern));
    patterns.into_iter().map(resolve).collect()
}

/// The disks of this machine on which weights do nothing now: their scheduler is not bfq, and `io.cost.qos` is not on for them
/// (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files"). Only those with a device of their own, not what is made of other disks, of memory or of files, for
/// which the kernel has no model of cost; nor what is empty or hidden behind another.
pub fn read_undivided_disks(root: &Path) -> Vec<BlockDevice> {
    let costs = fs::read_to_string(root.join("sys/fs/cgroup/io.cost.qos")).unwrap_or_default();
    let is_on = |number: &str| {
        let mut lines = costs.lines().filter_map(|line| line.split_once(' '));
        lines.any(|(it, rest)| it == number && rest.split(' ').any(|it| it == "enable=1"))
    };
    let entries = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
    let disks = entries.filter_map(|entry| {
        let dir = entry.path();
        let says = |file: &str, text: &str| {
            fs::read_to_string(dir.join(file)).is_ok_and(|it| it.trim() == text)
        };
        let is_own = dir.join("device").exists() && !says("hidden", "1") && !says("size", "0");
        read_disk(&dir).filter(|disk| is_own && !disk.has_bfq && !is_on(&disk.number))
    });
    let mut disks: Vec<BlockDevice> = disks.collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks
}

fn resolve(root: &Path, pattern: &str) -> Result<Vec<BlockDevice>, String> {
    let Some(below) = pattern.strip_prefix("/dev/") else {
        return Err("not a path below /dev".to_owned());
    };
    let base = glob::Pattern::escape(&root.join("dev").to_string_lossy());
    let paths = glob::glob(&format!("{base}/{below}"))
        .map_err(|error| format!("not a pattern: {}", error.msg))?;
    let dev = fs::canonicalize(root.join("dev")).map_err(|error| error.to_string())?;
    let disks = paths.flatten().filter_map(|path| disk_of(root, &dev, &path));
    let mut disks: Vec<BlockDevice> = disks.collect();
    disks.sort();
    disks.dedup();
    if disks.is_empty() { Err("there is no such block device".to_owned()) } else { Ok(disks) }
}

/// The disk that a node, or a link to one, belongs to; `None`: it is no block device.
fn disk_of(root: &Path, dev: &Path, path: &Path) -> Option<BlockDevice> {
    let node = fs::canonicalize(path).ok()?;
    let name = node.strip_prefix(dev).ok()?.to_str()?.replace('/', "!");
    let found = fs::canonicalize(root.join("sys/class/block").join(name)).ok()?;
    read_disk(&whole_disk(found))
}

/// The directory in sysfs of the disk that a block device, by its own directory, is or is a partition of.
pub(crate) fn whole_disk(mut device: PathBuf) -> PathBuf {
    if device.join("partition").exists() {
        device.pop();
    }
    device
}

/// Of its directory in sysfs.
fn read_disk(disk: &Path) -> Option<BlockDevice> {
    let read = |file: &str| fs::read_to_string(disk.join(file)).ok();
    let number = read("dev")?.trim().to_owned();
    // The scheduler in use is the one in brackets (Documentation/block/switching-sched.rst).
    let has_bfq = read("queue/scheduler").is_some_and(|text| text.contains("[bfq]"));
    let is_number = number
        .split_once(':')
        .is_some_and(|(major, minor)| [major, minor].iter().all(|it| it.parse::<u32>().is_ok()));
    let name = disk.file_name()?.to_str()?.replace('!', "/");
    is_number.then_some(BlockDevice { number, name, has_bfq })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with a SCSI disk with a partition, a disk with a slash in its name, and links to them.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/devices/pci/block/sda/dev", "8:0\n");
        put("sys/devices/pci/block/sda/queue/scheduler", "none [bfq] mq-deadline\n");
        put("sys/devices/pci/block/sda/sda1/dev", "8:1\n");
        put("sys/devices/pci/block/sda/sda1/partition", "1\n");
        put("sys/devices/raid/block/cciss!c0d0/dev", "104:0\n");
        put("sys/devices/raid/block/cciss!c0d0/queue/scheduler", "[none] bfq\n");
        put("sys/devices/odd/block/sdz/dev", "none\n");
        for node in ["sda", "sda1", "sdz", "cciss/c0d0", "null"] {
            put(&format!("dev/{node}"), "");
        }
        put("etc/sda", "");
        fs::create_dir_all(root.path().join("sys/class/block")).unwrap();
        fs::create_dir_all(root.path().join("dev/disk/by-id")).unwrap();
        for (link, target) in [
            ("sys/class/block/sda", "../../devices/pci/block/sda"),
            ("sys/class/block/sda1", "../../devices/pci/block/sda/sda1"),
            ("sys/class/block/sdz", "../../devices/odd/block/sdz"),
            ("sys/class/block/cciss!c0d0", "../../devices/raid/block/cciss!c0d0"),
            ("dev/disk/by-id/ata-SSD_1", "../../sda"),
            ("dev/disk/by-id/ata-SSD_1-part1", "../../sda1"),
            ("dev/disk/by-id/raid", "../../cciss/c0d0"),
            ("dev/out", "../etc/sda"),
            ("dev/broken", "nothing"),
        ] {
            symlink(target, root.path().join(link)).unwrap();
        }
        root
    }

    #[test]
    fn patterns_stand_for_whole_disks() {
        let root = machine();
        let none = "there is no such block device";
        for (pattern, expected) in [
            ("/dev/sda", "sda 8:0 bfq"),
            ("/dev/sd[a-c]1", "sda 8:0 bfq"),
            ("/dev/disk/by-id/*SSD*", "sda 8:0 bfq"),
            ("/dev/disk/by-id/*", "cciss/c0d0 104:0, sda 8:0 bfq"),
            ("/dev/cciss/c0d0", "cciss/c0d0 104:0"),
            ("/dev/s*", "sda 8:0 bfq"),
            ("/dev/sdz", none),
            ("/dev/null", none),
            ("/dev/out", none),
            ("/dev/broken", none),
            ("/dev/sdq", none),
            ("/etc/sda", "not a path below /dev"),
            ("sda", "not a path below /dev"),
            ("/dev/[", "not a pattern: invalid range pattern"),
        ] {
            let found = read_block_devices(root.path(), [pattern]).remove(pattern).unwrap();
            let found = found.map_or_else(
                |why| why,
                |disks| {
                    let shown = disks.iter().map(|it| {
                        let scheduler = if it.has_bfq { " bfq" } else { "" };
                        format!("{} {}{scheduler}", it.name, it.number)
                    });
                    shown.collect::<Vec<_>>().join(", ")
                },
            );
            assert_eq!(found, expected, "{pattern}");
        }
        let gone = read_block_devices(&root.path().join("none"), ["/dev/sda"]);
        assert!(gone.values().all(Result::is_err));
    }

    #[test]
    fn disks_are_undivided_that_have_neither_bfq_nor_a_model_of_cost() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let own =
            ["sda 8:0", "vda 254:0", "vdb 254:16", "nvme0n1 259:0", "nvme0c0n1 259:1", "sr0 11:0"];
        for row in own.into_iter().chain(["dm-0 253:0", "loop0 7:0"]) {
            let (name, number) = row.split_once(' ').unwrap();
            put(&format!("sys/block/{name}/dev"), &format!("{number}\n"));
            put(&format!("sys/block/{name}/size"), if name == "sr0" { "0\n" } else { "1000\n" });
            put(&format!("sys/block/{name}/queue/scheduler"), "[none] bfq\n");
            if own.contains(&row) {
                put(&format!("sys/block/{name}/device/type"), "0\n");
            }
        }
        put("sys/block/sda/queue/scheduler", "none [bfq]\n");
        put("sys/block/nvme0c0n1/hidden", "1\n");
        put("sys/fs/cgroup/io.cost.qos", "254:0 enable=1 ctrl=auto\n254:16 enable=0 ctrl=auto\n");
        let names: Vec<String> =
            read_undivided_disks(root.path()).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["nvme0n1", "vdb"]);
        assert!(read_undivided_disks(&root.path().join("none")).is_empty());
    }
}
