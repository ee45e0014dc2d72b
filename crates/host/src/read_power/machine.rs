//! Small machines of several drivers, in memory, that take and refuse what these drivers take and refuse.
//!
//! Like the kernel they keep what was asked for beside what counts: a frequency outside of what the CPU can do now is taken and reads back as the
//! nearest (`cpufreq.c`, `store_scaling_max_freq` and `cpufreq_set_policy`). Files with names that begin with a dot hold such things.

use std::collections::BTreeMap;

use nix::errno::Errno;

use crate::fake_kernel::FakeKernel;

pub(super) const CPUS: &str = "sys/devices/system/cpu";
type Files = BTreeMap<String, String>;

/// What the files of a policy begin with.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) driver: &'static str,
    /// CPUs of each policy.
    pub(super) policies: Vec<Vec<u32>>,
    pub(super) governor: &'static str,
    pub(super) preference: &'static str,
    /// Of the 28 steps of 100 MHz from 800 MHz on.
    pub(super) lowest: u64,
    pub(super) highest: u64,
    pub(super) is_turbo_on: bool,
}

pub(super) const DRIVERS: [&str; 6] = [
    "intel_pstate",
    "intel_cpufreq",
    "acpi-cpufreq",
    "amd-pstate-epp",
    "amd-pstate",
    "cppc_cpufreq",
];
const MIN: u64 = 800_000;
const BASE: u64 = 2_000_000;
const TURBO: u64 = 3_600_000;

pub(super) fn governors(driver: &str) -> &'static [&'static str] {
    match driver {
        "intel_pstate" | "amd-pstate-epp" => &["performance", "powersave"],
        _ => &["conservative", "ondemand", "powersave", "performance", "schedutil"],
    }
}

pub(super) fn preferences(driver: &str) -> &'static [&'static str] {
    match driver {
        "intel_pstate" | "intel_cpufreq" | "amd-pstate-epp" => {
            &["performance", "balance_performance", "balance_power", "power"]
        }
        _ => &[],
    }
}

pub(super) fn machine(start: &Start) -> FakeKernel {
    let mut files = Files::new();
    let mut put =
        |path: String, text: &str| files.insert(format!("{CPUS}/{path}"), text.to_owned());
    let driver = start.driver;
    let switch = u8::from(start.is_turbo_on).to_string();
    let own_boost = driver.starts_with("amd");
    match driver {
        "intel_pstate" | "intel_cpufreq" => {
            put("intel_pstate/no_turbo".to_owned(), if start.is_turbo_on { "0\n" } else { "1\n" });
        }
        "acpi-cpufreq" => drop(put("cpufreq/boost".to_owned(), &switch)),
        _ => {}
    }
    for cpus in &start.policies {
        let dir = format!("cpufreq/policy{}", cpus[0]);
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let mut put = |file: &str, text: &str| drop(put(format!("{dir}/{file}"), text));
        put("affected_cpus", &format!("{}\n", cpus.join(" ")));
        put("scaling_driver", &format!("{driver}\n"));
        put("cpuinfo_min_freq", &MIN.to_string());
        put("cpuinfo_max_freq", &if start.is_turbo_on { TURBO } else { BASE }.to_string());
        put("scaling_available_governors", &format!("{} \n", governors(driver).join(" ")));
        put("scaling_governor", start.governor);
        if let "intel_pstate" | "intel_cpufreq" = driver {
            put("base_frequency", &BASE.to_string());
        }
        if !preferences(driver).is_empty() {
            let offered = format!("default {}\n", preferences(driver).join(" "));
            put("energy_performance_available_preferences", &offered);
            put("energy_performance_preference", start.preference);
            put(".preference", "balance_performance");
        }
        if driver == "acpi-cpufreq" {
            put("scaling_available_frequencies", "2000000 1700000 1200000 800000 \n");
            put("scaling_boost_frequencies", "3600000 3000000 \n");
        }
        if own_boost {
            put("boost", &switch);
        }
        put(".min", &(MIN + start.lowest * 100_000).to_string());
        put(".max", &(MIN + start.highest * 100_000).to_string());
    }
    for cpu in start.policies.iter().flatten() {
        let mut put = |file: &str, text: &str| drop(put(format!("cpu{cpu}/{file}"), text));
        put("power/pm_qos_resume_latency_us", "0\n");
        put("topology/physical_package_id", &(cpu / 4).to_string());
        if own_boost {
            put("acpi_cppc/nominal_freq", "2000\n");
        }
        for (number, (name, latency)) in [("POLL", 0), ("C1", 2), ("C6", 133)].iter().enumerate() {
            put(&format!("cpuidle/state{number}/name"), &format!("{name}\n"));
            put(&format!("cpuidle/state{number}/latency"), &format!("{latency}\n"));
            put(&format!("cpuidle/state{number}/disable"), "0\n");
        }
    }
    for (file, text) in [("max_freq_khz", 2_400_000), ("min_freq_khz", 800_000)] {
        put(format!("intel_uncore_frequency/package_00_die_00/{file}"), &text.to_string());
        put(format!("intel_uncore_frequency/package_00_die_00/initial_{file}"), &text.to_string());
    }
    settle(&mut files);
    with_rules(files)
}

fn with_rules(files: Files) -> FakeKernel {
    let mut kernel = FakeKernel::default();
    kernel.files = files;
    kernel
        .with_rule("/scaling_governor", governor)
        .with_rule("/energy_performance_preference", preference)
        .with_rule("/scaling_min_freq", |files, path, text| request(files, path, "min", text))
        .with_rule("/scaling_max_freq", |files, path, text| request(files, path, "max", text))
        .with_rule("/no_turbo", no_turbo)
        .with_rule("/boost", boost)
        .with_rule("/pm_qos_resume_latency_us", latency)
        .with_rule("/disable", switch_rule)
        .with_rule("_freq_khz", uncore)
}

fn said(files: &Files, path: &str) -> String {
    files.get(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn number(files: &Files, path: &str) -> u64 {
    said(files, path).parse().unwrap_or(0)
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

fn is_active(files: &Files, dir: &str) -> bool {
    matches!(
        said(files, &format!("{dir}/scaling_driver")).as_str(),
        "intel_pstate" | "amd-pstate-epp"
    )
}

fn governor(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let dir = dir_of(path).to_owned();
    let offered = said(files, &format!("{dir}/scaling_available_governors"));
    if !offered.split(' ').any(|it| it == text) {
        return Err(Errno::EINVAL);
    }
    let before = said(files, path);
    if is_active(files, &dir) && before != text {
        let (file, kept) =
            (format!("{dir}/energy_performance_preference"), format!("{dir}/.preference"));
        if text == "performance" {
            files.insert(kept, said(files, &file));
            files.insert(file, "performance".to_owned());
        } else if said(files, &format!("{dir}/scaling_driver")) == "intel_pstate" {
            files.insert(file, said(files, &kept));
        }
    }
    files.insert(path.to_owned(), text.to_owned());
    Ok(())
}

fn preference(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let dir = dir_of(path);
    let offered = said(files, &format!("{dir}/energy_performance_available_preferences"));
    if !offered.split(' ').any(|it| it == text) {
        return Err(Errno::EINVAL);
    }
    let is_performance = said(files, &format!("{dir}/scaling_governor")) == "performance";
    if is_active(files, dir) && is_performance && text != "performance" {
        return Err(Errno::EBUSY);
    }
    files.insert(path.to_owned(), text.to_owned());
    Ok(())
}

fn request(files: &mut Files, path: &str, end: &str, text: &str) -> Result<(), Errno> {
    let khz: u64 = text.parse().map_err(|_| Errno::EINVAL)?;
    files.insert(format!("{}/.{end}", dir_of(path)), khz.to_string());
    settle(files);
    Ok(())
}

/// What counts of what was asked for.
fn settle(files: &mut Files) {
    let dirs: Vec<String> =
        files.keys().filter_map(|path| path.strip_suffix("/.min")).map(str::to_owned).collect();
    for dir in dirs {
        let has = |file: &str| number(files, &format!("{dir}/{file}"));
        let (low, high) = (has("cpuinfo_min_freq"), has("cpuinfo_max_freq"));
        let (mut min, mut max) = (has(".min").clamp(low, high), has(".max").clamp(low, high));
        let words = ["scaling_available_frequencies", "scaling_boost_frequencies"]
            .map(|file| said(files, &format!("{dir}/{file}")));
        let steps = words.iter().flat_map(|it| it.split(' ')).filter_map(|it| it.parse().ok());
        let mut steps: Vec<u64> = steps.filter(|it| *it <= high).collect();
        steps.sort_unstable();
        max = steps.iter().rev().copied().find(|it| *it <= max).unwrap_or(max);
        min = steps.iter().copied().find(|it| *it >= min).unwrap_or(min);
        files.insert(format!("{dir}/scaling_max_freq"), format!("{max}\n"));
        files.insert(format!("{dir}/scaling_min_freq"), format!("{}\n", min.min(max)));
    }
}

fn one_or_zero(text: &str) -> Result<bool, Errno> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

fn no_turbo(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let max = if one_or_zero(text)? { BASE } else { TURBO };
    files.insert(path.to_owned(), format!("{text}\n"));
    let all = files.iter_mut().filter(|(path, _)| path.ends_with("/cpuinfo_max_freq"));
    all.for_each(|(_, text)| *text = max.to_string());
    settle(files);
    Ok(())
}

/// That of one policy asks for the highest frequency itself (`amd-pstate.c`, `amd_pstate_cpu_boost_update`).
fn boost(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let max = if one_or_zero(text)? { TURBO } else { BASE };
    files.insert(path.to_owned(), format!("{text}\n"));
    let dir = dir_of(path);
    if dir.contains("policy") {
        files.insert(format!("{dir}/.max"), max.to_string());
        files.insert(format!("{dir}/cpuinfo_max_freq"), max.to_string());
    } else {
        let all = files.iter_mut().filter(|(path, _)| path.ends_with("/cpuinfo_max_freq"));
        all.for_each(|(_, text)| *text = max.to_string());
    }
    settle(files);
    Ok(())
}

/// `drivers/base/power/sysfs.c`, `pm_qos_resume_latency_us_store`.
fn latency(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    if text != "n/a" && !text.parse::<i32>().is_ok_and(|it| (0..i32::MAX).contains(&it)) {
        return Err(Errno::EINVAL);
    }
    files.insert(path.to_owned(), format!("{text}\n"));
    Ok(())
}

fn switch_rule(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    one_or_zero(text)?;
    files.insert(path.to_owned(), format!("{text}\n"));
    Ok(())
}

/// `uncore-frequency.c`, `uncore_write_control_freq`: a ratio of seven bits.
fn uncore(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    if path.contains("initial") {
        return Err(Errno::EACCES);
    }
    let ratio = text.parse::<u64>().map_err(|_| Errno::EINVAL)? / 100_000;
    if ratio == 0 || ratio > 0x7f {
        return Err(Errno::EINVAL);
    }
    files.insert(path.to_owned(), format!("{}\n", ratio * 100_000));
    Ok(())
}
