//! Which disks are below directories and files, so that containers that use them can be near them. In: paths. Out: disks, by path.
//!
//! No path is followed, because a file system of the network may hang, but for kubelet's links to devices on the system's own disk. The table of
//! mounts says what is mounted where (proc_pid_mountinfo(5); that of process 1, which is the host's), and sysfs which disks that consists of
//! (Documentation/ABI/stable/sysfs-block; `slaves` of what device mapper and md have made). The disk of the system itself says nothing: every process
//! uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::read_block_devices::whole_disk;

/// Where the system and kubelet keep their files.
const SYSTEM_DIRS: [&str; 2] = ["/", "/var/lib/kubelet"];
/// Device mapper on device mapper on md is rare; what is deeper is taken for a loop.
const DEPTH_MAX: usize = 4;

/// The disks, as paths below `/dev`, of those paths that are on a disk other than the system's; `root` holds `proc` and `sys`. Paths of which
/// nothing is known are left out.
pub fn read_volumes<'a>(
    root: &Path,
    paths: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<String, Vec<String>> {
    let table = fs::read(root.join("proc/1/mountinfo")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let mounts: Vec<Mount<'_>> = table.lines().filter_map(Mount::parse).collect();
    let system: Vec<&str> =
        SYSTEM_DIRS.iter().filter_map(|dir| Some(mount_of(&mounts, dir)?.number)).collect();
    let disks_of = |number: &str| {
        let mut disks = BTreeSet::new();
        add_disks(&root.join("sys/dev/block").join(number), DEPTH_MAX, &mut disks);
        disks
    };
    let of_system: BTreeSet<String> = system.iter().flat_map(|number| disks_of(number)).collect();
    let on_disks = |path: &'a str| {
        let mut disks = disks_of(&number_below(root, &mounts, &system, path)?);
        disks.retain(|disk| !of_system.contains(disk));
        (!disks.is_empty()).then(|| (path.to_owned(), disks.into_iter().collect()))
    };
    paths.into_iter().filter_map(on_disks).collect()
}

/// A line of the table.
struct Mount<'a> {
    /// `MAJOR:MINOR`.
    number: &'a str,
    /// What of the file system is mounted.
    inside: String,
    at: PathBuf,
    kind: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(2);
        let (number, inside, at) = (fields.next()?, fields.next()?, fields.next()?);
        let kind = kind.split(' ').next()?;
        Some(Mount { number, inside: unescape(inside), at: unescape(at).into(), kind })
    }
}

/// Spaces, tabs, line ends and backslashes stand as `\` and three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => text.push(char::from(code)),
            None => text.push('\\'),
        }
        text.push_str(if code.is_some() { part.get(3..).unwrap_or_default() } else { part });
    }
    text
}

/// What is mounted at the path or nearest above it; the last of several, which hides the others.
fn mount_of<'m, 'a>(mounts: &'m [Mount<'a>], path: &str) -> Option<&'m Mount<'a>> {
    let above = mounts.iter().filter(|it| Path::new(path).starts_with(&it.at));
    above.max_by_key(|it| it.at.components().count())
}

/// The number of the device below a path. A device is below itself: that of a raw block volume kubelet links into the pod's directory, directly or by way of
/// where a CSI driver has mounted it.
fn number_below(root: &Path, mounts: &[Mount<'_>], system: &[&str], path: &str) -> Option<String> {
    let mount = mount_of(mounts, path)?;
    let device = match mount.kind {
        "devtmpfs" => mounted_device(mount)?,
        _ if system.contains(&mount.number) && path.contains("/volumeDevices/") => {
            let target = fs::read_link(root.join(path.strip_prefix('/')?)).ok()?;
            match target.strip_prefix("/dev") {
                Ok(device) => device.to_str()?.to_owned(),
                Err(_) => mounted_device(mount_of(mounts, target.to_str()?)?)?,
            }
        }
        _ => return Some(mount.number.to_owned()),
    };
    let dir = root.join("sys/class/block").join(device.replace('/', "!"));
    Some(fs::read_to_string(dir.join("dev")).ok()?.trim().to_owned())
}

/// The name of the device that is mounted at a file.
fn mounted_device(mount: &Mount<'_>) -> Option<String> {
    let device = mount.inside.strip_prefix('/').filter(|_| mount.kind == "devtmpfs");
    device.map(str::to_owned)
}

/// Adds the disks of which a block device consists.
fn add_disks(device: &Path, depth: usize, disks: &mut BTreeSet<String>) {
    let Ok(device) = fs::canonicalize(device).map(whole_disk) else { return };
    let slaves = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let slaves: Vec<PathBuf> = slaves.map(|entry| entry.path()).collect();
    if let (true, Some(name)) = (slaves.is_empty(), device.file_name()) {
        disks.insert(format!("/dev/{}", name.to_string_lossy().replace('!', "/")));
    }
    if depth > 0 {
        slaves.iter().for_each(|slave| add_disks(slave, depth - 1, disks));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The system is on `sda1`; `nvme0n1` and `nvme1n1` are disks, and `dm-0` is made of partitions of both.
    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw
30 22 259:0 / /data rw shared:5 - xfs /dev/nvme0n1 rw
31 22 253:0 / /both\\040of\\040them rw shared:6 - ext4 /dev/mapper/both rw
32 22 0:44 / /far rw shared:7 - nfs4 server:/far rw
33 22 8:1 / /hidden rw shared:8 - ext4 /dev/root rw
34 33 259:2 / /hidden rw shared:9 - ext4 /dev/nvme1n1p1 rw
35 22 259:0 /sub /var/lib/kubelet/pods/1/volumes/kubernetes.io~local-volume/pv rw - xfs /dev/nvme0n1 rw
36 22 8:1 /var/x /var/lib/kubelet/pods/1/volume-subpaths/y rw - ext4 /dev/root rw
37 22 0:5 /nvme1n1 /var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/1 rw - devtmpfs udev rw
40 22 8:2 / /log rw - ext4 /dev/sda2 rw
38 22 253:9 / /ring rw - ext4 /dev/mapper/ring rw
39 22 7:0 / /gone rw - ext4 /dev/loop0 rw
torn line
";

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/1/mountinfo", TABLE);
        let disks = "sys/devices";
        for (device, number) in [
            ("pci0/ata1/sda", "8:0"),
            ("pci0/nvme0/nvme0n1", "259:0"),
            ("pci1/nvme1/nvme1n1", "259:1"),
            ("virtual/dm-0", "253:0"),
            ("virtual/dm-9", "253:9"),
        ] {
            put(&format!("{disks}/{device}/dev"), &format!("{number}\n"));
        }
        for (partition, number) in [
            ("pci0/ata1/sda/sda1", "8:1"),
            ("pci0/ata1/sda/sda2", "8:2"),
            ("pci0/nvme0/nvme0n1/nvme0n1p3", "259:4"),
            ("pci1/nvme1/nvme1n1/nvme1n1p1", "259:2"),
        ] {
            put(&format!("{disks}/{partition}/dev"), &format!("{number}\n"));
            put(&format!("{disks}/{partition}/partition"), "1\n");
        }
        let link = |link: &str, target: &str| {
            let link = root.path().join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        };
        for (number, name, device) in [
            ("8:0", "sda", "pci0/ata1/sda"),
            ("8:1", "sda1", "pci0/ata1/sda/sda1"),
            ("8:2", "sda2", "pci0/ata1/sda/sda2"),
            ("259:0", "nvme0n1", "pci0/nvme0/nvme0n1"),
            ("259:1", "nvme1n1", "pci1/nvme1/nvme1n1"),
            ("259:2", "nvme1n1p1", "pci1/nvme1/nvme1n1/nvme1n1p1"),
            ("253:0", "dm-0", "virtual/dm-0"),
            ("253:9", "dm-9", "virtual/dm-9"),
        ] {
            link(&format!("sys/dev/block/{number}"), &format!("../../devices/{device}"));
            link(&format!("sys/class/block/{name}"), &format!("../../devices/{device}"));
        }
        let slaves = "sys/devices/virtual/dm-0/slaves";
        link(&format!("{slaves}/nvme0n1p3"), "../../../pci0/nvme0/nvme0n1/nvme0n1p3");
        link(&format!("{slaves}/nvme1n1p1"), "../../../pci1/nvme1/nvme1n1/nvme1n1p1");
        link("sys/devices/virtual/dm-9/slaves/dm-9", "../../dm-9");
        let pod = "var/lib/kubelet/pods/1/volumeDevices";
        link(&format!("{pod}/kubernetes.io~local-volume/raw"), "/dev/nvme0n1");
        link(&format!("{pod}/kubernetes.io~local-volume/out"), "/etc/passwd");
        let published = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/1";
        link(&format!("{pod}/kubernetes.io~csi/raw"), published);
        root
    }

    #[test]
    fn a_path_is_on_the_disks_below_what_is_mounted_there() {
        let root = machine();
        let pod = "/var/lib/kubelet/pods/1";
        let raw = |name: &str| format!("{pod}/volumeDevices/kubernetes.io~{name}");
        for (path, expected) in [
            ("/data/db", "/dev/nvme0n1"),
            ("/data", "/dev/nvme0n1"),
            ("/database", ""),
            ("/both of them/x", "/dev/nvme0n1 /dev/nvme1n1"),
            ("/hidden/x", "/dev/nvme1n1"),
            ("/far/x", ""),
            ("/etc/x", ""),
            // Another partition of the system's disk.
            ("/log/pods", ""),
            ("/ring", ""),
            ("/gone", ""),
            ("relative", ""),
            ("", ""),
            (&format!("{pod}/volumes/kubernetes.io~local-volume/pv"), "/dev/nvme0n1"),
            (&format!("{pod}/volumes/kubernetes.io~empty-dir/e"), ""),
            (&format!("{pod}/volume-subpaths/y"), ""),
            (&raw("csi/raw"), "/dev/nvme1n1"),
            (&raw("local-volume/raw"), "/dev/nvme0n1"),
            (&raw("local-volume/out"), ""),
            (&raw("local-volume/absent"), ""),
        ] {
            let found = read_volumes(root.path(), [path]).remove(path).unwrap_or_default();
            assert_eq!(found.join(" "), expected, "{path}");
        }
    }

    #[test]
    fn without_a_table_nothing_is_known() {
        let root = tempfile::tempdir().unwrap();
        assert!(read_volumes(root.path(), ["/data"]).is_empty());
    }
}
