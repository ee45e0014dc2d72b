//! Programs of Debian's packages for another processor, unpacked and not installed. In: its name as Debian has it. Out: a kernel and a busybox in the cache.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::cache::made_once;
use crate::lab::kernel::{current_package, download, find, own_lists};

/// Files of the packages begin with these names, and are called so in the cache.
const KERNEL: &str = "vmlinuz";
const BUSYBOX: &str = "busybox";

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
        for (package, below, name) in
            [(kernel.as_str(), "boot", KERNEL), ("busybox-static", "bin", BUSYBOX)]
        {
            let scratch = dir.join("unpacked");
            download(&scratch, &apt, package)?;
            let found = find(&scratch.join(below), &|it| it.starts_with(name))?;
            fs::copy(found.with_context(|| format!("{package} has no {name}"))?, dir.join(name))?;
            fs::remove_dir_all(scratch)?;
        }
        Ok(())
    })?;
    Ok(Foreign { kernel: dir.join(KERNEL), busybox: dir.join(BUSYBOX) })
}
