//! Kernels of Debian's packages, unpacked and not installed. In: a release. Out: a kernel, and an archive with the modules it needs here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::cache::{cache_dir, key, made_once};
use crate::lab::archive::Archive;
use crate::run_program;
use crate::setup::run_apt;

/// Depends on the current kernel for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// Each after those it needs. One that a kernel has built in is left out.
const MODULES: [&str; 9] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "overlay",
    "fuse",
    "cuse",
];

/// Where a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// What this Debian has: 6.1 on Debian 12.
    Stable,
    /// What it has in its backports: 6.12 on Debian 12.
    Backports,
}

pub(crate) const RELEASES: [Release; 2] = [Release::Stable, Release::Backports];

impl Release {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Release::Stable => "stable",
            Release::Backports => "backports",
        }
    }

    pub(crate) fn find(name: &str) -> anyhow::Result<Release> {
        let found = RELEASES.into_iter().find(|release| release.name() == name);
        found.with_context(|| format!("there is no kernel {name}; see `cargo xtask lab list`"))
    }
}

/// A directory of the cache with `vmlinuz`, `modules.cpio` and `version`.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) version: String,
    dir: PathBuf,
}

impl Kernel {
    /// The one that was fetched last.
    pub(crate) fn cached(release: Release) -> anyhow::Result<Option<Kernel>> {
        let Ok(current) = fs::read_to_string(pointer(release)?) else { return Ok(None) };
        let dir = cache_dir()?.join(current.trim());
        let version = fs::read_to_string(dir.join("version")).ok();
        Ok(version.map(|version| Kernel { version, dir }))
    }

    /// The current one of the release; downloaded unless it is there.
    pub(crate) fn fetch(release: Release) -> anyhow::Result<Kernel> {
        let apt = apt_options(release)?;
        let package = current_package(&apt, PACKAGE)?;
        let shown = ask_apt(&apt, &["show", "--no-all-versions", &package])?;
        let sum = field(&shown, "SHA256:").context("apt-cache show tells no SHA256")?;
        let name = format!("kernel-{}-{}", release.name(), key(&[&sum, &MODULES.join(" ")]));
        made_once(&name, |dir| unpack(dir, &apt, &package))?;
        fs::write(pointer(release)?, name)?;
        Kernel::cached(release)?.context("the kernel that was just fetched is gone")
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    pub(crate) fn modules(&self) -> PathBuf {
        self.dir.join("modules.cpio")
    }
}

/// The file that names the directory of the current kernel with the modules of today.
fn pointer(release: Release) -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join(format!("current-{}-{}", release.name(), key(&MODULES))))
}

/// Backports are asked for with lists of our own, so that this machine's apt stays as it is.
fn apt_options(release: Release) -> anyhow::Result<Vec<String>> {
    if release == Release::Stable {
        run_apt(&["update", "--quiet"], Path::new("/"))?;
        return Ok(Vec::new());
    }
    own_lists("apt", "-backports", None)
}

/// Options of apt for lists in a directory of the cache: those of Debian's packages of the suite with this ending, for this or another processor.
pub(super) fn own_lists(
    name: &str,
    suite: &str,
    architecture: Option<&str>,
) -> anyhow::Result<Vec<String>> {
    let dir = cache_dir()?.join(name);
    fs::create_dir_all(dir.join("lists/partial"))?;
    fs::create_dir_all(dir.join("cache/archives/partial"))?;
    let sources = dir.join("sources.list");
    fs::write(&sources, source(suite)?)?;
    let mut options = vec![
        format!("-oDir::Etc::SourceList={}", sources.display()),
        "-oDir::Etc::SourceParts=/dev/null".to_owned(),
        format!("-oDir::State::Lists={}", dir.join("lists").display()),
        format!("-oDir::Cache={}", dir.join("cache").display()),
    ];
    if let Some(architecture) = architecture {
        options.push(format!("-oAPT::Architecture={architecture}"));
        options.push(format!("-oAPT::Architectures::={architecture}"));
    }
    run_program(Command::new("apt-get").args(&options).args(["update", "--quiet"]))?;
    Ok(options)
}

/// From where this machine has its Debian, whatever mirror that is.
fn source(suite: &str) -> anyhow::Result<String> {
    let format = "$(REPO_URI) $(CODENAME) $(LABEL) $(COMPONENT)";
    let asked = ["indextargets", "--format", format, "Created-By: Packages"];
    let listed = Command::new("apt-get").args(asked).output().context("cannot run apt-get")?;
    let listed = String::from_utf8(listed.stdout)?;
    let mut rows = listed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = rows.find_map(|row| match row.as_slice() {
        [uri, codename, "Debian", "main"] if !codename.contains('-') => Some((*uri, *codename)),
        _ => None,
    });
    let (uri, codename) = found.context("apt has no source of Debian's packages")?;
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let signed =
        if Path::new(keys).is_file() { format!("[signed-by={keys}] ") } else { String::new() };
    Ok(format!("deb {signed}{uri} {codename}{suite} main\n"))
}

fn ask_apt(options: &[String], args: &[&str]) -> anyhow::Result<String> {
    let told = Command::new("apt-cache").args(options).args(args).output();
    Ok(String::from_utf8(told.context("cannot run apt-cache")?.stdout)?)
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)).map(|it| it.trim().to_owned())
}

/// The kernel on which a package depends that always has the newest one.
pub(super) fn current_package(apt: &[String], newest: &str) -> anyhow::Result<String> {
    let package = field(&ask_apt(apt, &["depends", newest])?, "Depends:");
    package
        .filter(|package| package.starts_with("linux-image-"))
        .with_context(|| format!("apt-cache knows no kernel behind {newest}"))
}

/// A package's files in a directory, which is made.
pub(super) fn download(scratch: &Path, apt: &[String], package: &str) -> anyhow::Result<()> {
    fs::create_dir_all(scratch)?;
    run_program(
        Command::new("apt-get").args(apt).args(["download", package]).current_dir(scratch),
    )?;
    let package = find(scratch, &|name| name.ends_with(".deb"))?.context("nothing was fetched")?;
    run_program(Command::new("dpkg-deb").arg("--extract").arg(package).arg(scratch))
}

fn unpack(dir: &Path, apt: &[String], package: &str) -> anyhow::Result<()> {
    let scratch = dir.join("unpacked");
    download(&scratch, apt, package)?;
    let image = find(&scratch, &|name| name.starts_with("vmlinuz-"))?.context("no vmlinuz")?;
    let name = image.file_name().and_then(|name| name.to_str()).context("a file name")?;
    fs::write(dir.join("version"), name.trim_start_matches("vmlinuz-"))?;
    fs::copy(&image, dir.join("vmlinuz"))?;
    let mut file = fs::File::create(dir.join("modules.cpio"))?;
    pack_modules(&scratch)?.write(&mut file)?;
    fs::remove_dir_all(scratch)?;
    Ok(())
}

/// The modules, and `modules/list` with the order in which to load them.
fn pack_modules(unpacked: &Path) -> anyhow::Result<Archive> {
    let built_in =
        find(unpacked, &|name| name == "modules.builtin")?.context("no list of modules")?;
    let built_in = fs::read_to_string(built_in)?;
    let mut archive = Archive::default();
    let mut list = String::new();
    for module in MODULES {
        let (plain, packed) = (format!("{module}.ko"), format!("{module}.ko.xz"));
        match find(unpacked, &|name| name == plain || name == packed)? {
            Some(path) => {
                archive.add_file(&format!("modules/{plain}"), read_module(&path)?);
                list.push_str(&format!("{plain}\n"));
            }
            None if built_in.lines().any(|line| line.ends_with(&format!("/{plain}"))) => {}
            None => bail!("the kernel has no module {module}"),
        }
    }
    archive.add_file("modules/list", list);
    Ok(archive)
}

fn read_module(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.extension().is_some_and(|it| it == "xz") {
        let file = fs::File::open(path)?;
        let mut unxz = Command::new("busybox");
        unxz.arg("unxz").stdin(file).stderr(Stdio::inherit());
        let unpacked = unxz.output().context("cannot run busybox")?;
        ensure!(unpacked.status.success(), "cannot unpack {}", path.display());
        return Ok(unpacked.stdout);
    }
    Ok(fs::read(path)?)
}

pub(super) fn find(dir: &Path, is_it: &dyn Fn(&str) -> bool) -> anyhow::Result<Option<PathBuf>> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            } else if is_it(&entry.file_name().to_string_lossy()) {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}
