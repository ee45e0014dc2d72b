//! What the files of the fake say, in the kernel's widths.

use bayplan_enforcement::resctrl::{BandwidthUnit, CacheInfo};
use nix::errno::Errno;

use super::{FakeResctrl, GroupMode};

impl FakeResctrl {
    /// The text of a file below resctrl.
    pub(super) fn show(&self, path: &str) -> Result<String, Errno> {
        if let Some(path) = path.strip_prefix("info/") {
            return self.show_info(path);
        }
        let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
        if file == "tasks" {
            return self.show_tasks(dir);
        }
        let group = self.groups.get(dir).ok_or(Errno::ENOENT)?;
        match file {
            "schemata" => Ok(self.show_schemata(dir)),
            "mode" => Ok(match group.mode {
                GroupMode::Shareable => "shareable\n",
                GroupMode::Exclusive => "exclusive\n",
                GroupMode::PseudoLocked => "pseudo-locked\n",
            }
            .to_owned()),
            _ => Err(Errno::ENOENT),
        }
    }

    fn show_info(&self, path: &str) -> Result<String, Errno> {
        if path == "last_cmd_status" {
            let is_ok = self.status.is_empty();
            return Ok(if is_ok { "ok\n".to_owned() } else { self.status.clone() });
        }
        let (name, file) = path.split_once('/').ok_or(Errno::EISDIR)?;
        if let Some(cache) = self.cache_of(name) {
            return self.show_cache(name, cache, file);
        }
        let (mb, monitor) = (self.info.mb.as_ref(), self.info.monitor.as_ref());
        let number = match (name, file) {
            ("MB", "num_closids") => mb.map(|_| self.info.closids),
            ("MB", "min_bandwidth") => mb.map(|it| it.min),
            ("MB", "bandwidth_gran") => mb.map(|it| it.step),
            ("MB", "delay_linear") => {
                mb.map(|it| u32::from(it.unit != BandwidthUnit::EighthsOfGigabyte))
            }
            ("L3_MON", "num_rmids") => monitor.map(|it| it.rmids),
            ("L3_MON", "mon_features") => {
                let features = &monitor.ok_or(Errno::ENOENT)?.features;
                return Ok(features.iter().map(|name| format!("{name}\n")).collect());
            }
            _ => None,
        };
        number.map(|number| format!("{number}\n")).ok_or(Errno::ENOENT)
    }

    fn show_cache(&self, line: &str, cache: &CacheInfo, file: &str) -> Result<String, Errno> {
        Ok(match file {
            "num_closids" => format!("{}\n", self.info.closids),
            "cbm_mask" => format!("{}\n", cache.mask),
            "min_cbm_bits" => format!("{}\n", cache.bits_min),
            "shareable_bits" => format!("{:x}\n", cache.shareable),
            "sparse_masks" => format!("{}\n", u32::from(cache.is_sparse)),
            "bit_usage" => {
                let usage = |id: u32| -> String {
                    let bits = (0..cache.mask.count()).rev();
                    bits.map(|bit| self.usage(line, id, cache, 1 << bit)).collect()
                };
                let caches = cache.caches.keys().map(|id| format!("{id}={}", usage(*id)));
                format!("{}\n", caches.collect::<Vec<_>>().join(";"))
            }
            _ => return Err(Errno::ENOENT),
        })
    }

    fn usage(&self, line: &str, id: u32, cache: &CacheInfo, bit: u32) -> char {
        let has = |name: &&str| {
            let bits = self.groups[*name].lines.get(line).and_then(|line| line.get(&id));
            bits.is_some_and(|bits| bits & bit != 0)
        };
        let shareable = self.groups.iter().filter(|(_, it)| it.mode == GroupMode::Shareable);
        let is_used = shareable.map(|(name, _)| name.as_str()).any(|name| has(&name));
        let holder = self.held(line, id).find(|(_, _, bits)| bits & bit != 0);
        match (cache.shareable & bit != 0, is_used, holder) {
            (_, _, Some((_, GroupMode::PseudoLocked, _))) => 'P',
            (_, false, Some(_)) => 'E',
            (true, true, _) => 'X',
            (true, false, _) => 'H',
            (false, true, _) => 'S',
            (false, false, None) => '0',
        }
    }

    fn show_schemata(&self, group: &str) -> String {
        let lines = &self.groups[group].lines;
        let name_width = lines.keys().map(|name| name.len()).max().unwrap_or(0);
        let lines = lines.iter().map(|(name, values)| {
            let values = values.iter().map(|(id, value)| match self.cache_of(name) {
                Some(cache) => {
                    let width = cache.mask.to_string().len();
                    format!("{id}={value:0width$x}")
                }
                None => format!("{id}={value:4}"),
            });
            format!("{name:>name_width$}:{}\n", values.collect::<Vec<_>>().join(";"))
        });
        lines.collect()
    }

    /// A control group's threads with those of its monitor groups.
    fn show_tasks(&self, dir: &str) -> Result<String, Errno> {
        let (control, monitor) = self.find(dir).ok_or(Errno::ENOENT)?;
        let threads = self.threads.iter().filter(|(_, thread)| {
            thread.control == control && (monitor.is_none() || thread.monitor.as_deref() == monitor)
        });
        Ok(threads.map(|(id, _)| format!("{id}\n")).collect())
    }

    /// The names in a directory below resctrl.
    pub(super) fn names(&self, dir: &str) -> Result<Vec<String>, Errno> {
        let mut names = match dir {
            "info" => self.resources(),
            _ => match (dir.strip_prefix("info/"), dir.rsplit_once("mon_")) {
                (Some(resource), _) => self.files_of(resource),
                (None, Some((control, "groups"))) => self.monitors(control),
                (None, Some((group, "data"))) => self.monitored_caches(group),
                // Nothing is counted here.
                (None, Some((data, cache))) if self.is_monitored(data, cache) => Some(Vec::new()),
                _ => self.names_in_group(dir),
            },
        };
        if let Some(names) = &mut names {
            names.sort_unstable();
        }
        names.ok_or_else(|| if self.show(dir).is_ok() { Errno::ENOTDIR } else { Errno::ENOENT })
    }

    /// What is described below `info`.
    fn resources(&self) -> Option<Vec<String>> {
        let resources = ["L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA"];
        let caches = resources.into_iter().filter(|name| self.cache_of(name).is_some());
        let mb = self.info.mb.iter().map(|_| "MB");
        let monitor = self.info.monitor.iter().map(|_| "L3_MON");
        let names = caches.chain(mb).chain(monitor).chain(["last_cmd_status"]);
        Some(names.map(str::to_owned).collect())
    }

    fn files_of(&self, resource: &str) -> Option<Vec<String>> {
        const FILES: [&str; 11] = [
            "bandwidth_gran",
            "bit_usage",
            "cbm_mask",
            "delay_linear",
            "min_bandwidth",
            "min_cbm_bits",
            "mon_features",
            "num_closids",
            "num_rmids",
            "shareable_bits",
            "sparse_masks",
        ];
        let has = |file: &&str| self.show_info(&format!("{resource}/{file}")).is_ok();
        let files: Vec<String> = FILES.into_iter().filter(has).map(str::to_owned).collect();
        Some(files).filter(|files| !files.is_empty())
    }

    fn monitors(&self, control: &str) -> Option<Vec<String>> {
        self.info.monitor.as_ref()?;
        let group = self.groups.get(control.trim_end_matches('/'))?;
        Some(group.monitors.iter().cloned().collect())
    }

    fn monitored_caches(&self, group: &str) -> Option<Vec<String>> {
        self.info.monitor.as_ref()?;
        self.find(group.trim_end_matches('/'))?;
        let caches = self.info.l3.iter().flat_map(|l3| l3.caches.keys());
        Some(caches.map(|id| format!("mon_L3_{id:02}")).collect())
    }

    /// Whether there is a directory `mon_CACHE` in this one.
    fn is_monitored(&self, data: &str, cache: &str) -> bool {
        let caches = data.strip_suffix("mon_data/").and_then(|group| self.monitored_caches(group));
        caches.is_some_and(|names| names.contains(&format!("mon_{cache}")))
    }

    /// A control group has monitor groups in it, and the root everything.
    fn names_in_group(&self, dir: &str) -> Option<Vec<String>> {
        let (control, monitor) = self.find(dir)?;
        let mut names = vec!["tasks"];
        names.extend(self.info.monitor.iter().map(|_| "mon_data"));
        if monitor.is_none() {
            names.extend(["mode", "schemata"]);
            names.extend(self.info.monitor.iter().map(|_| "mon_groups"));
        }
        if control.is_empty() && monitor.is_none() {
            names.push("info");
            names.extend(self.groups.keys().map(String::as_str).filter(|name| !name.is_empty()));
        }
        Some(names.into_iter().map(str::to_owned).collect())
    }
}
