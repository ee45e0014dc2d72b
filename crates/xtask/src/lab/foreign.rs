//! Programs of Debian's packages for another processor, unpacked and not installed. In: its name as Debian has it. Out: a kernel and a busybox in the cache.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::cache::made_once;
use crate::lab::kernel::{current_package, download, find, own_lists};

/// What a guest needs that has nothing else.
pub(crate) struct Foreign {
    pub(crate) kernel: PathBuf,
    pub(crate) busybox: PathBuf,
}

/// Fetched once; to have a newer one, remove it from the cache.
pub(crate) fn fetch(architecture: &str) -> anyhow::Result<Foreign> {
    let dir = made_once(&format!("foreign-{architecture}"), |dir| {
        let apt = own_lists(&format!("apt-{architecture}"), "", Some(architecture))?;
        let kernel = current_package(&apt, &format!("linux-image-cloud-{architecture}"))?;
        for (package, begins, name) in
            [(kernel.as_str(), "vmlinuz-", "vmlinuz"), ("busybox-static", "busybox", "busybox")]
        {
            let scratch = dir.join("unpacked");
            download(&scratch, &apt, package)?;
            let is_it = |name: &str| name.starts_with(begins) && !name.ends_with(".deb");
            let found =
                find(&scratch.join(if name == "vmlinuz" { "boot" } else { "bin" }), &is_it)?;
            fs::copy(found.with_context(|| format!("{package} has no {begins}"))?, dir.join(name))?;
            fs::remove_dir_all(scratch)?;
        }
        Ok(())
    })?;
    Ok(Foreign { kernel: dir.join("vmlinuz"), busybox: dir.join("busybox") })
}
