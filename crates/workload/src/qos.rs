//! A pod's QoS class. In: the path of a cgroup. Out: the class that kubelet's name for it tells. Pure.

use bayplan_types::QosClass;

/// The QoS class from a cgroup path, for both cgroup drivers and any cgroup root:
/// `/kubepods/burstable/podUID`, `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice`, and the same with a
/// container at the end. `None` for a path that kubelet did not make.
pub fn parse_qos(cgroup_path: &str) -> Option<QosClass> {
    let parts: Vec<&str> = cgroup_path.split(['/', ':']).filter(|part| !part.is_empty()).collect();
    for (index, part) in parts.iter().enumerate() {
        if *part == "kubepods" {
            let inner = parts.get(index + 1)?;
            return match *inner {
                "burstable" => Some(QosClass::Burstable),
                "besteffort" => Some(QosClass::BestEffort),
                pod if pod.starts_with("pod") => Some(QosClass::Guaranteed),
                _ => None,
            };
        }
        // systemd: the pod's own slice, `[root-]kubepods[-class]-podUID.slice`.
        let Some(slice) = part.strip_suffix(".slice") else { continue };
        let Some((prefix, _)) = slice.split_once("-pod") else { continue };
        match prefix.rsplit('-').next()? {
            "kubepods" => return Some(QosClass::Guaranteed),
            "burstable" => return Some(QosClass::Burstable),
            "besteffort" => return Some(QosClass::BestEffort),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qos_is_read_from_either_driver_and_any_root() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (path, qos) in [
            ("/kubepods/pod1234", Some(Guaranteed)),
            ("/kubepods/burstable/pod1234", Some(Burstable)),
            ("/kubepods/besteffort/pod1234/abc", Some(BestEffort)),
            ("/custom/root/kubepods/burstable/pod1", Some(Burstable)),
            ("/kubepods.slice/kubepods-pod1_2.slice", Some(Guaranteed)),
            ("kubepods-burstable-pod1_2.slice:cri-containerd:abc", Some(Burstable)),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12.slice",
                Some(BestEffort),
            ),
            ("/my.slice/my-kubepods.slice/my-kubepods-pod1.slice", Some(Guaranteed)),
            ("", None),
            ("/kubepods", None),
            ("/kubepods/weird/pod1", None),
            ("/system.slice/docker-abc.scope", None),
            ("/a-podman.slice", None),
            ("\u{0}/../..", None),
        ] {
            assert_eq!(parse_qos(path), qos, "{path:?}");
        }
    }
}
