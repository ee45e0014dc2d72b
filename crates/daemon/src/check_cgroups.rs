//! Whether the node has cgroup v2 with what Bayplan needs of it.

use std::path::Path;

use bayplan_host::CGROUP_CONTROLLERS;

use crate::finding::Finding;

/// The unified hierarchy, and the cpuset controller in it.
pub(crate) fn check_cgroups(root: &Path) -> Finding {
    let path = root.join(CGROUP_CONTROLLERS);
    match std::fs::read_to_string(&path) {
        Ok(text) if text.split_whitespace().any(|name| name == "cpuset") => {
            Finding::ok("cgroups", "cgroup v2 with the cpuset controller")
        }
        Ok(text) => Finding::failure(
            "cgroups",
            format!("{} is `{}` and lacks cpuset", path.display(), text.trim()),
            "start the kernel with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), and without cgroup_disable=cpuset",
        ),
        Err(error) => Finding::warning(
            "cgroups",
            format!(
                "no unified cgroup v2 hierarchy ({}: {error}); CPU sets still work through the runtime",
                path.display()
            ),
            "start the kernel with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn check_with(controllers: Option<&str>, expected: Severity) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(&dir).unwrap();
        if let Some(controllers) = controllers {
            std::fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
        }
        assert_eq!(check_cgroups(root.path()).severity, expected, "{controllers:?}");
    }

    #[test]
    fn cgroups_without_cpuset_do_not_do_and_those_of_version_1_do() {
        check_with(Some("cpuset cpu io memory\n"), Severity::Ok);
        check_with(Some("cpu memory\n"), Severity::Failure);
        check_with(None, Severity::Warning);
    }
}
