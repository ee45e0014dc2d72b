//! Checks the systemd units of `deploy` with systemd's own words, where it is installed.

use std::path::Path;
use std::process::Command;

use crate::workspace;

/// Exposure in tenths, as `systemd-analyze security` counts it; the README names it.
const EXPOSURE_MAX: &str = "26";
const UNITS: [&str; 2] = ["bayplan.service", "bayplan.socket"];

/// Breaches; none where `systemd-analyze` is missing.
pub(crate) fn check_units() -> Vec<String> {
    let deploy = workspace().join("deploy");
    let mut breaches = Vec::new();
    for unit in UNITS {
        let said = analyze(&["verify", "--recursive-errors=no"], &deploy.join(unit));
        // That what it starts is not installed is no fault of the unit.
        let mut lines = said.lines().filter(|line| line.contains(&format!("deploy/{unit}:")));
        breaches.extend(lines.by_ref().map(str::to_owned));
    }
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager", &threshold]);
    if security.arg(deploy.join(UNITS[0])).output().is_ok_and(|done| !done.status.success()) {
        breaches.push(format!(
            "deploy/{}: `systemd-analyze security` gives it more than {EXPOSURE_MAX} tenths",
            UNITS[0]
        ));
    }
    breaches
}

/// What it says about the unit, on either stream.
fn analyze(args: &[&str], unit: &Path) -> String {
    let done = Command::new("systemd-analyze").args(args).arg(unit).output();
    done.map(|it| String::from_utf8_lossy(&it.stderr).into_owned()).unwrap_or_default()
}
