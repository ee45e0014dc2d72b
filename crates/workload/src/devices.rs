//! Which devices a container is given, by name. In: device paths, CDI devices, environment variables and mounts, as kubelet and the runtime
//! tell of them.
//! Out: names that the machine may know. Pure.
//!
//! Kept are paths below `/dev` and PCI addresses. What else may stand for a device, a raw block volume or a file system that lies on it, is named, too: which
//! disk that is the machine has to tell. What device plugins allocate without a path, they tell in
//! variables `PCIDEVICE_*` with PCI addresses and commas between them (SR-IOV network device plugin, README, "Pod specification").
//!
//! CPUs that a pod claims of the DRA CPU driver are a device, too: kubelet names the CDI device `dra.k8s.io/cpu=CLAIM`, and the runtime
//! makes of it a variable `DRA_CPUSET_*` (kubernetes-sigs/dra-driver-cpu, `pkg/driver/cdi.go`).

use bayplan_topology::PciAddress;

/// A container cannot make the journal large with its devices; a machine with eight accelerators gives a few dozen to one container.
const NAMES_MAX: usize = 128;
/// Of the same names again and again, no more are looked at.
const NAMES_SEEN_MAX: usize = 1024;
const NAME_LEN_MAX: usize = 255;
const PATH_LEN_MAX: usize = 4096;
/// What kubelet makes below `pods/UID/`: `/etc/hosts`, logs of the end, and volumes that are no disks.
const OF_KUBELET: [&str; 7] = [
    "etc-hosts",
    "containers/",
    "volumes/kubernetes.io~configmap/",
    "volumes/kubernetes.io~downward-api/",
    "volumes/kubernetes.io~empty-dir/",
    "volumes/kubernetes.io~projected/",
    "volumes/kubernetes.io~secret/",
];
const VARIABLE: &str = "PCIDEVICE_";
/// Begins the name of CPUs that were claimed, as kubelet and as the runtime tells of them.
const CLAIMS: [&str; 2] = ["dra.k8s.io/cpu=", "DRA_CPUSET_"];

/// Names of devices: claimed CPUs first, then paths, then addresses out of the environment, each once. `cdi` are fully qualified names of CDI
/// devices. Claims are believed there only: a variable proves nothing.
pub fn device_names<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    cdi: impl IntoIterator<Item = &'a str>,
    variables: impl IntoIterator<Item = (&'a str, &'a str), IntoIter: Clone>,
) -> Vec<String> {
    let variables = variables.into_iter();
    let claims = cdi.into_iter().filter(|name| is_claim(name) && name.len() <= NAME_LEN_MAX);
    let variables = variables.filter(|(name, _)| name.starts_with(VARIABLE));
    let addresses = variables.flat_map(|(_, value)| value.split(',').map(str::trim));
    let addresses = addresses.filter(|name| name.parse::<PciAddress>().is_ok());
    let paths = paths.into_iter().filter(|path| is_device_path(path));
    bounded(claims.chain(paths).chain(addresses))
}

/// Whether these names of devices say that another component has given the container CPUs.
pub fn has_claimed_cpus(devices: &[String]) -> bool {
    devices.iter().any(|name| is_claim(name))
}

fn is_claim(name: &str) -> bool {
    CLAIMS.iter().any(|claim| name.starts_with(claim))
}

/// Sources of mounts that are devices.
pub fn mounted_devices<'a>(sources: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    bounded(sources.into_iter().filter(|path| is_device_path(path)))
}

/// Paths that may be on a disk of their own: sources of writable mounts and of raw block volumes outside of `/dev`. `mounts` come with whether they are
/// read-only. What kubelet makes for each container or pod, as its configuration, is left out.
pub fn volume_sources<'a>(
    mounts: impl IntoIterator<Item = (&'a str, bool)>,
    devices: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let is_of_kubelet = |path: &str| {
        let of_pod = path.split_once("/pods/").and_then(|(_, rest)| rest.split_once('/'));
        of_pod.is_some_and(|(_, name)| OF_KUBELET.iter().any(|own| name.starts_with(own)))
    };
    let writable = mounts.into_iter().filter(|(_, is_read_only)| !is_read_only);
    let sources = writable.map(|(path, _)| path).chain(devices);
    bounded(sources.filter(|path| {
        path.starts_with('/')
            && path.len() <= PATH_LEN_MAX
            && !is_device_path(path)
            && !is_of_kubelet(path)
    }))
}

fn is_device_path(path: &str) -> bool {
    path.starts_with("/dev/") && path.len() <= NAME_LEN_MAX
}

fn bounded<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for name in names.take(NAMES_SEEN_MAX) {
        if kept.len() == NAMES_MAX {
            break;
        }
        if !kept.iter().any(|it| it == name) {
            kept.push(name.to_owned());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &[&str], variables: &[(&str, &str)], expected: &str) {
        let names = device_names(paths.iter().copied(), [], variables.iter().copied());
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn claimed_cpus_are_devices() {
        let cdi = ["dra.k8s.io/cpu=claim-1", "nvidia.com/gpu=0"];
        let variables = [("DRA_CPUSET_of_anybody", "0-3"), ("MY_DRA_CPUSET_3", "1")];
        let names = device_names(["/dev/null"], cdi, variables);
        assert_eq!(names, ["dra.k8s.io/cpu=claim-1", "/dev/null"]);
        assert!(has_claimed_cpus(&names) && !has_claimed_cpus(&names[1..]));
    }

    #[test]
    fn paths_below_dev_and_pci_addresses_are_kept() {
        check(&["/dev/nvme0n1", "/dev/null", "/dev/nvme0n1"], &[], "/dev/nvme0n1 /dev/null");
        check(&["/var/lib/kubelet/x", "dev/sda", "", "/dev"], &[], "");
        check(
            &["/dev/vfio/7"],
            &[
                ("PCIDEVICE_INTEL_COM_SRIOV", "0000:10:00.1, 0000:10:00.2,"),
                ("PCIDEVICE_INTEL_COM_SRIOV_INFO", r#"{"0000:10:00.1":{}}"#),
                ("PATH", "0000:11:00.0"),
            ],
            "/dev/vfio/7 0000:10:00.1 0000:10:00.2",
        );
    }

    #[test]
    fn volumes_are_what_may_be_on_a_disk_of_its_own() {
        let pod = "/var/lib/kubelet/pods/1";
        let of_kubelet = ["etc-hosts", "containers/a/0f", "volumes/kubernetes.io~empty-dir/tmp"]
            .map(|name| format!("{pod}/{name}"));
        let mounts = [
            ("/data/containers/db", false),
            ("/data/models", true),
            ("/dev/sda", false),
            ("x", false),
        ];
        let mounts = mounts.into_iter().chain(of_kubelet.iter().map(|path| (path.as_str(), false)));
        let raw = format!("{pod}/volumeDevices/kubernetes.io~csi/raw");
        let sources = volume_sources(mounts, ["/dev/null", raw.as_str()]);
        assert_eq!(sources, ["/data/containers/db", &raw]);
    }

    #[test]
    fn no_container_can_have_names_without_end() {
        let long = format!("/dev/{}", "a".repeat(NAME_LEN_MAX));
        check(&[&long], &[], "");
        let many: Vec<String> = (0..1000).map(|it| format!("/dev/sd{it}")).collect();
        let kept = mounted_devices(many.iter().map(String::as_str));
        assert_eq!((kept.len(), kept.last().map(String::as_str)), (NAMES_MAX, Some("/dev/sd127")));
    }
}
