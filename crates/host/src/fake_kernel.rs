//! Kernel files in memory that refuse what a kernel refuses. For tests, here and in other crates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use nix::errno::Errno;

use crate::kernel::Kernel;

/// What becomes of a text that is written to a file: what the files say afterwards, or a refusal.
pub type Rule =
    fn(files: &mut BTreeMap<String, String>, path: &str, text: &str) -> Result<(), Errno>;

/// Files in memory. What no rule is about is kept as written.
#[derive(Clone, Default)]
pub struct FakeKernel {
    /// The text of each file by its path.
    pub files: BTreeMap<String, String>,
    /// Asked in order, for paths that end so; the first that fits decides.
    rules: Vec<(&'static str, Rule)>,
    /// Answers to the next writes of a path, before anything else.
    faults: BTreeMap<String, VecDeque<Errno>>,
    /// Every text that was written, also those that were refused: path and text.
    pub written: Vec<(String, String)>,
}

impl fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeKernel").field("files", &self.files).finish_non_exhaustive()
    }
}

impl FakeKernel {
    /// With these files: path and text.
    pub fn new(files: &[(&str, &str)]) -> FakeKernel {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        FakeKernel { files: files.collect(), ..FakeKernel::default() }
    }

    /// Files with paths that end so take texts by this rule.
    #[must_use]
    pub fn with_rule(mut self, path_end: &'static str, rule: Rule) -> FakeKernel {
        self.rules.push((path_end, rule));
        self
    }

    /// The next write of this file fails.
    pub fn fail_next(&mut self, path: &str, errno: Errno) {
        self.faults.entry(path.to_owned()).or_default().push_back(errno);
    }
}

impl Kernel for FakeKernel {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        let below = || format!("{path}/");
        let is_dir =
            || self.files.range(below()..).next().is_some_and(|(it, _)| it.starts_with(&below()));
        let none = || if is_dir() { Errno::EISDIR } else { Errno::ENOENT };
        self.files.get(path).cloned().ok_or_else(none)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        self.written.push((path.to_owned(), text.to_owned()));
        if let Some(errno) = self.faults.get_mut(path).and_then(VecDeque::pop_front) {
            return Err(errno);
        }
        if !self.files.contains_key(path) {
            return Err(Errno::ENOENT);
        }
        let rule = self.rules.iter().find(|(end, _)| path.ends_with(end));
        if let Some((_, rule)) = rule {
            return rule(&mut self.files, path, text);
        }
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        let below = format!("{dir}/");
        let names = self.files.keys().filter_map(|path| path.strip_prefix(&below));
        let names: BTreeSet<&str> =
            names.filter_map(|rest| rest.split('/').next()).filter(|it| !it.is_empty()).collect();
        let is_dir = !names.is_empty() || self.files.contains_key(&below);
        if is_dir { Ok(names.into_iter().map(str::to_owned).collect()) } else { Err(Errno::ENOENT) }
    }

    /// A directory is a file with a path that ends in a slash.
    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        if self.list(dir).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.files.insert(format!("{dir}/"), String::new());
        Ok(())
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.list(dir)?;
        let below = format!("{dir}/");
        self.files.retain(|path, _| !path.starts_with(&below));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bayplan_enforcement::{Form, Setting, Settings, Slot, files_to_read, plan_files};
    use expect_test::expect;

    use super::*;
    use crate::kernel::{DiskKernel, Report, apply, observe};

    fn settings(rows: &[(&str, Form, &str)]) -> Settings {
        let setting = |form: &Form, value: &str| Setting {
            form: form.clone(),
            value: value.to_owned(),
            unit: "u".to_owned(),
            reason: "r".to_owned(),
        };
        let rows = rows.iter();
        rows.map(|(path, form, value)| (Slot::file(*path), setting(form, value))).collect()
    }

    fn carry_out(kernel: &mut dyn Kernel, settings: &Settings) -> Report {
        let originals = BTreeMap::new();
        let observed = observe(kernel, files_to_read(settings, &originals));
        apply(kernel, &plan_files(settings, &observed, &originals))
    }

    fn render(report: &Report) -> String {
        let lines = report.outcomes.iter().map(|(write, end)| match end {
            Ok(()) => format!("{} = {}\n", write.slot, write.new),
            Err(failure) => format!("{} != {}: {failure}\n", write.slot, write.new),
        });
        lines.collect()
    }

    /// A governor that clamps, as cpufreq does with a frequency out of range.
    fn clamps(files: &mut BTreeMap<String, String>, path: &str, text: &str) -> Result<(), Errno> {
        let number: u32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        files.insert(path.to_owned(), format!("{}\n", number.min(100)));
        Ok(())
    }

    #[test]
    fn a_failed_write_is_named_and_stops_no_other() {
        let files = [("a", "0"), ("b", "0"), ("c/max", "0"), ("d/max", "0")];
        let mut kernel = FakeKernel::new(&files).with_rule("/max", clamps);
        kernel.fail_next("a", Errno::EBUSY);
        kernel.fail_next("b", Errno::ENODEV);
        let wanted = settings(&[
            ("a", Form::Text, "1"),
            ("b", Form::Text, "1"),
            ("c/max", Form::Highest, "70"),
            ("d/max", Form::Highest, "170"),
        ]);
        expect![[r#"
            /a != 1: EBUSY: Device or resource busy
            /b != 1: it is gone
            /c/max = 70
            /d/max != 170: it reads back as "100"
        "#]]
        .assert_eq(&render(&carry_out(&mut kernel, &wanted)));
    }

    #[test]
    fn resctrl_adds_its_own_words() {
        let status = "sys/fs/resctrl/info/last_cmd_status";
        let mut kernel = FakeKernel::new(&[
            ("sys/fs/resctrl/a/schemata", "L3:0=f\n"),
            (status, "mask f0f has non-consecutive 1-bits\n"),
        ]);
        kernel.fail_next("sys/fs/resctrl/a/schemata", Errno::EINVAL);
        let wanted = settings(&[("sys/fs/resctrl/a/schemata", Form::Text, "L3:0=f0f")]);
        expect![[r#"
            /sys/fs/resctrl/a/schemata != L3:0=f0f: EINVAL: Invalid argument; the kernel says: mask f0f has non-consecutive 1-bits
        "#]]
        .assert_eq(&render(&carry_out(&mut kernel, &wanted)));
    }

    /// What the fake does a disk does, too.
    fn check_directories(kernel: &mut dyn Kernel) {
        assert_eq!(kernel.list("none"), Err(Errno::ENOENT));
        kernel.make_dir("top/new").unwrap();
        assert_eq!(kernel.make_dir("top/new"), Err(Errno::EEXIST));
        assert_eq!(kernel.list("top").unwrap(), ["file", "new"]);
        kernel.remove_dir("top/new").unwrap();
        assert_eq!(kernel.remove_dir("top/new"), Err(Errno::ENOENT));
        assert_eq!(kernel.read("top"), Err(Errno::EISDIR));
        assert_eq!(kernel.read("none"), Err(Errno::ENOENT));
        assert_eq!(kernel.read("top/file").unwrap(), "old");
        assert_eq!(kernel.write("top/none", "x"), Err(Errno::ENOENT));
        kernel.write("top/file", "n").unwrap();
        assert_eq!(kernel.read("top/file").unwrap(), "n");
    }

    #[test]
    fn the_fake_is_like_a_disk() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("top")).unwrap();
        fs::write(root.path().join("top/file"), "old").unwrap();
        check_directories(&mut DiskKernel::open(root.path()).unwrap());
        check_directories(&mut FakeKernel::new(&[("top/file", "old")]));
    }

    #[test]
    fn links_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/hostname"), "inside").unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../../../etc", root.path().join("up")).unwrap();
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        for path in ["link/hostname", "up/hostname", "../etc/hostname"] {
            assert_eq!(kernel.read(path).unwrap(), "inside", "{path}");
        }
        assert_eq!(kernel.make_dir("../x"), Err(Errno::EINVAL));
    }
}
