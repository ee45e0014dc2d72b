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
        const FILES: [&str; 5] = ["cpus", "mode", "schemata", "size", "tasks"];
        let mut names: Vec<String> = match dir {
            "info" => {
                let resources = ["L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA"];
                let caches = resources.into_iter().filter(|name| self.cache_of(name).is_some());
                let mb = self.info.mb.iter().map(|_| "MB");
                let monitor = self.info.monitor.iter().map(|_| "L3_MON");
                let names = caches.chain(mb).chain(monitor).chain(["last_cmd_status"]);
                names.map(str::to_owned).collect()
            }
            "mon_data" if self.info.monitor.is_some() => {
                let caches = self.info.l3.iter().flat_map(|l3| l3.caches.keys());
                caches.map(|id| format!("mon_L3_{id:02}")).collect()
            }
            _ => match dir.rsplit_once("mon_groups") {
                Some((control, "")) if self.info.monitor.is_some() => {
                    let control = control.trim_end_matches('/');
                    let group = self.groups.get(control).ok_or(Errno::ENOENT)?;
                    group.monitors.iter().cloned().collect()
                }
                Some(_) => {
                    return self.find(dir).map(|_| vec!["tasks".to_owned()]).ok_or(Errno::ENOENT);
                }
                None if self.groups.contains_key(dir) => FILES.map(str::to_owned).to_vec(),
                // A file of a group, or nothing.
                None => {
                    return Err(if self.show(dir).is_ok() {
                        Errno::ENOTDIR
                    } else {
                        Errno::ENOENT
                    });
                }
            },
        };
        if self.groups.contains_key(dir) && self.info.monitor.is_some() {
            names.push("mon_groups".to_owned());
        }
        if dir.is_empty() && self.info.monitor.is_some() {
            names.push("mon_data".to_owned());
        }
        if dir.is_empty() {
            names.push("info".to_owned());
            names.extend(self.groups.keys().filter(|name| !name.is_empty()).cloned());
        }
        names.sort_unstable();
        Ok(names)
    }
}
