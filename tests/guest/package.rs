//! The Debian package, where the lab was given one: what is tested is what it has installed. It comes before the first test and goes after the last.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bayplan_tests::daemon::{SOCKET_UNIT, UNIT, systemctl};

/// The lab puts it here.
const FILE: &str = "/lab/bayplan.deb";

/// What the package brings, and what the daemon and systemd make of that.
const PATHS: [&str; 8] = [
    "/usr/bin/bayplan",
    "/usr/lib/systemd/system/bayplan.service",
    "/usr/lib/systemd/system/bayplan.socket",
    "/usr/share/doc/bayplan",
    "/etc/bayplan",
    "/etc/systemd/system/multi-user.target.wants/bayplan.service",
    "/etc/systemd/system/sockets.target.wants/bayplan.socket",
    "/var/lib/bayplan",
];
/// Where it leaves word for the agent of the cluster, until the next boot.
const SOCKETS: &str = "/run/bayplan";

/// Whether there is one.
pub(crate) fn is_given() -> bool {
    Path::new(FILE).is_file()
}

/// What `dpkg` says, on both streams. Without ldconfig, which nothing here needs, it asks to be forced.
fn dpkg(args: &[&str]) -> anyhow::Result<(bool, String)> {
    let done = Command::new("dpkg").arg("--force-bad-path").args(args).output();
    let done = done.context("cannot run dpkg")?;
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// Is installed, and starts nothing.
pub(crate) fn install() -> anyhow::Result<()> {
    fs::create_dir_all("/var/lib/dpkg/info")?;
    fs::create_dir_all("/var/lib/dpkg/updates")?;
    fs::write("/var/lib/dpkg/status", "")?;
    let (is_done, said) = dpkg(&["--install", FILE])?;
    ensure!(is_done && said.contains("nothing is started"), "{said}");
    let bill = fs::read_to_string("/usr/share/doc/bayplan/bayplan.cdx.json")?;
    ensure!(bill.contains("CycloneDX") && bill.contains("pkg:cargo/tokio@"), "no bill: {bill}");
    for unit in [SOCKET_UNIT, UNIT] {
        ensure!(systemctl(&["is-active", unit]).is_err(), "{unit} was started");
        ensure!(systemctl(&["is-enabled", unit]).is_err(), "{unit} was enabled");
    }
    Ok(())
}

/// Refuses to go while kubelet may depend on it, and then leaves nothing.
pub(crate) fn purge() -> anyhow::Result<()> {
    systemctl(&["start", SOCKET_UNIT])?;
    let (is_done, said) = dpkg(&["--purge", "bayplan"])?;
    ensure!(!is_done && said.contains("bayplan.socket is active"), "{said}");
    systemctl(&["disable", "--now", SOCKET_UNIT, UNIT])?;
    let (is_done, said) = dpkg(&["--purge", "bayplan"])?;
    ensure!(is_done, "{said}");
    let left: Vec<_> = PATHS.iter().filter(|path| Path::new(path).exists()).collect();
    ensure!(left.is_empty(), "left: {left:?}; dpkg says {said}");
    let word = fs::read_dir(SOCKETS)?.map(|it| Ok(it?.file_name()));
    let word = word.collect::<std::io::Result<Vec<_>>>()?;
    ensure!(word == ["removed"], "left in {SOCKETS}: {word:?}; dpkg says {said}");
    ensure!(systemctl(&["cat", UNIT]).is_err(), "systemd still knows {UNIT}");
    Ok(())
}
