//! What is asked of the fake, and what it answers.

use bayplan_enforcement::resctrl::{BandwidthUnit, CacheInfo, CapacityBitmask};
use nix::errno::Errno;

use super::{FakeResctrl, Group, GroupMode, Thread, ThreadEvent};

/// The names of all lines that there can be.
const LINES: [&str; 7] = ["L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA", "MB"];

impl FakeResctrl {
    /// The control group and the monitor group that a directory is.
    pub(super) fn find<'a>(&self, dir: &'a str) -> Option<(&'a str, Option<&'a str>)> {
        let (control, monitor) = match dir.rsplit_once("mon_groups/") {
            Some((control, monitor)) => (control.trim_end_matches('/'), Some(monitor)),
            None => (dir, None),
        };
        let group = self.groups.get(control)?;
        let is_there = monitor.is_none_or(|monitor| group.monitors.contains(monitor));
        is_there.then_some((control, monitor))
    }

    fn ids_used(&self) -> (usize, usize) {
        let monitors: usize = self.groups.values().map(|group| group.monitors.len()).sum();
        (self.groups.len(), self.groups.len() + monitors)
    }

    pub(super) fn make_group(&mut self, dir: &str) -> Result<(), Errno> {
        let (closids, rmids) = self.ids_used();
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let rmids_max = self.info.monitor.as_ref().map_or(u32::MAX, |monitor| monitor.rmids);
        let no_rmid = rmids.saturating_add(count(self.in_limbo)) >= count(rmids_max);
        // Where some are only not free yet, the kernel has another answer.
        let errno = if self.in_limbo > 0 { Errno::EBUSY } else { Errno::ENOSPC };
        if !self.is_mounted() || self.find(dir).is_some() {
            return Err(if self.is_mounted() { Errno::EEXIST } else { Errno::ENOENT });
        }
        if let Some((control, monitor)) = dir.rsplit_once("mon_groups/") {
            let control = control.trim_end_matches('/');
            if !self.groups.contains_key(control) || self.info.monitor.is_none() {
                return Err(Errno::ENOENT);
            }
            if no_rmid {
                return self.refuse(errno, "Out of RMIDs");
            }
            if let Some(group) = self.groups.get_mut(control) {
                group.monitors.insert(monitor.to_owned());
            }
            return Ok(());
        }
        if dir.contains('\n') {
            return Err(Errno::EINVAL);
        }
        if dir.contains('/') {
            return Err(Errno::EPERM);
        }
        if closids >= count(self.info.closids) {
            return self.refuse(Errno::ENOSPC, "Out of CLOSIDs");
        }
        if no_rmid {
            return self.refuse(errno, "Out of RMIDs");
        }
        let lines = self.lines_of_a_new_group();
        self.groups.insert(dir.to_owned(), Group { lines, ..Group::default() });
        Ok(())
    }

    /// Its threads go to the group around it.
    pub(super) fn remove_group(&mut self, dir: &str) -> Result<(), Errno> {
        let (control, monitor) = self.find(dir).ok_or(Errno::ENOENT)?;
        let (control, monitor) = (control.to_owned(), monitor.map(str::to_owned));
        if control.is_empty() && monitor.is_none() {
            return Err(Errno::EPERM);
        }
        let is_inside = |thread: &&mut Thread| {
            thread.control == control && (monitor.is_none() || thread.monitor == monitor)
        };
        for thread in self.threads.values_mut().filter(is_inside) {
            thread.monitor = None;
            if monitor.is_none() {
                thread.control.clear();
            }
        }
        match monitor {
            Some(monitor) => {
                if let Some(group) = self.groups.get_mut(&control) {
                    group.monitors.remove(&monitor);
                }
            }
            None => drop(self.groups.remove(&control)),
        }
        Ok(())
    }

    pub(super) fn move_threads(&mut self, dir: &str, text: &str) -> Result<(), Errno> {
        let (control, monitor) = self.find(dir).ok_or(Errno::ENOENT)?;
        if self.groups[control].mode == GroupMode::PseudoLocked {
            return self.refuse(Errno::EINVAL, "Pseudo-locking in progress");
        }
        let Ok(id) = text.trim().parse::<u32>() else {
            return self.refuse(Errno::EINVAL, format!("Task list parsing error pid {text}"));
        };
        match self.events.get_mut(&id).and_then(std::collections::VecDeque::pop_front) {
            Some(ThreadEvent::Ends) => drop(self.threads.remove(&id)),
            Some(ThreadEvent::Makes(child)) => self.fork_thread(child, id),
            None => {}
        }
        let Some(thread) = self.threads.get_mut(&id) else {
            return self.refuse(Errno::ESRCH, format!("No task {id}"));
        };
        if monitor.is_some() && thread.control != control {
            return self.refuse(Errno::EINVAL, "Can't move task to different control group");
        }
        thread.control = control.to_owned();
        thread.monitor = monitor.map(str::to_owned);
        Ok(())
    }

    pub(super) fn set_schemata(&mut self, group: &str, text: &str) -> Result<(), Errno> {
        let lines = text.strip_suffix('\n').ok_or(Errno::EINVAL)?;
        let mode = self.groups.get(group).ok_or(Errno::ENOENT)?.mode;
        if mode == GroupMode::PseudoLocked {
            return self.refuse(Errno::EINVAL, "Resource group is pseudo-locked");
        }
        let mut staged = Vec::new();
        for line in lines.split('\n') {
            let Some((name, values)) = line.split_once(':') else {
                return self.refuse(Errno::EINVAL, "Missing ':'");
            };
            let name = name.trim();
            if values.is_empty() {
                return self.refuse(Errno::EINVAL, format!("Missing '{name}' value"));
            }
            let known = LINES.into_iter().find(|it| *it == name);
            let has = |it: &&str| self.groups[group].lines.contains_key(it);
            let Some(name) = known.filter(has) else {
                let words = format!("Unknown or unsupported resource name '{name}'");
                return self.refuse(Errno::EINVAL, words);
            };
            for value in values.split(';').filter(|value| !value.is_empty()) {
                let (id, value) = self.checked(group, name, value)?;
                if staged.iter().any(|(it, of, _)| *it == name && *of == id) {
                    return self.refuse(Errno::EINVAL, format!("Duplicate domain {id}"));
                }
                staged.push((name, id, value));
            }
        }
        for (name, id, value) in staged {
            let group = self.groups.get_mut(group).ok_or(Errno::ENOENT)?;
            group.lines.entry(name).or_default().insert(id, value);
        }
        Ok(())
    }

    fn checked(
        &mut self,
        group: &str,
        name: &'static str,
        text: &str,
    ) -> Result<(u32, u32), Errno> {
        let parsed = text
            .split_once('=')
            .and_then(|(id, value)| Some((id.trim().parse::<u32>().ok()?, value.trim())));
        let Some((id, value)) = parsed else {
            return self.refuse(Errno::EINVAL, "Missing '=' or non-numeric domain");
        };
        if !self.groups[group].lines[name].contains_key(&id) {
            return Err(Errno::EINVAL);
        }
        let value = match self.cache_of(name).cloned() {
            Some(cache) => self.checked_mask(group, (name, id), &cache, value)?,
            None => self.checked_bandwidth(value)?,
        };
        Ok((id, value))
    }

    fn checked_mask(
        &mut self,
        group: &str,
        (line, id): (&str, u32),
        cache: &CacheInfo,
        text: &str,
    ) -> Result<u32, Errno> {
        let Ok(bits) = u32::from_str_radix(text, 16) else {
            return self.refuse(Errno::EINVAL, format!("Non-hex character in the mask {text}"));
        };
        let mask = CapacityBitmask::new(bits).filter(|mask| mask.is_within(cache.mask));
        let Some(mask) = mask else {
            return self.refuse(Errno::EINVAL, "Mask out of range");
        };
        if !cache.is_sparse && !mask.is_one_block() {
            let words = format!("The mask {mask} has non-consecutive 1-bits");
            return self.refuse(Errno::EINVAL, words);
        }
        if mask.first_run() < cache.bits_min {
            let words = format!("Need at least {} bits in the mask", cache.bits_min);
            return self.refuse(Errno::EINVAL, words);
        }
        let mut held = self.held(line, id).filter(|(name, ..)| *name != group);
        let words = held.find(|(_, _, theirs)| theirs & bits != 0).map(|(_, mode, _)| match mode {
            GroupMode::PseudoLocked => "CBM overlaps with pseudo-locked region",
            _ => "Overlaps with exclusive group",
        });
        drop(held);
        words.map_or(Ok(bits), |words| self.refuse(Errno::EINVAL, words))
    }

    fn checked_bandwidth(&mut self, text: &str) -> Result<u32, Errno> {
        let Ok(bound) = text.parse::<u32>() else {
            let words = format!("Non-decimal digit in MB value {text}");
            return self.refuse(Errno::EINVAL, words);
        };
        let Some(mb) = self.info.mb.clone() else { return Err(Errno::EINVAL) };
        let is_within = (mb.min..=mb.max).contains(&bound);
        if mb.unit != BandwidthUnit::Megabytes && !is_within {
            let words = format!("MB value {bound} out of range [{},{}]", mb.min, mb.max);
            return self.refuse(Errno::EINVAL, words);
        }
        Ok(bound.next_multiple_of(mb.step.max(1)))
    }
}
