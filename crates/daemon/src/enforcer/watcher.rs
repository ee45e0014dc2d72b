//! Hears of writes to kernel files by others, and of groups that come. In: directories, and when the next look is due at the earliest. Out: a wake-up.
//!
//! What happens where a container is being started is told at once, everything else when there has been a look for long enough.
//!
//! Writes of processes to files of kernfs are told like any others (inotify(7), `IN_MODIFY`); what the kernel changes by itself is not, and is
//! found by the sweep. Where there is no inotify left, the sweep has to do. Code that trusts in silence asks whether everything was listened to
//! ([`Watcher::may_have_missed`]).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use futures::{FutureExt as _, StreamExt as _};
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::time::{Instant, sleep_until};

/// Room for a few events with their names; which they are does not matter.
const BUFFER: usize = 4096;
const MASK: WatchMask = WatchMask::MODIFY.union(WatchMask::CREATE);

/// Watches directories.
#[derive(Debug)]
pub(super) struct Watcher {
    root: PathBuf,
    ear: Option<(Watches, EventStream<Vec<u8>>)>,
    watched: BTreeMap<String, WatchDescriptor>,
    /// Those of them that are awaited.
    awaited: HashSet<WatchDescriptor>,
    /// Not told yet.
    heard: Heard,
    /// Something was written, or may have been unheard.
    may_have_missed: bool,
}

/// What other programs have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// In a directory that is awaited, or it may have been.
    pub(super) is_arrival: bool,
    /// A file was written.
    pub(super) is_write: bool,
}

fn open() -> io::Result<(Watches, EventStream<Vec<u8>>)> {
    let inotify = Inotify::init()?;
    Ok((inotify.watches(), inotify.into_event_stream(vec![0; BUFFER])?))
}

/// Of a process: the kernel tells of its own events, too (cgroup v2, `memory.events`), and that a directory is not watched any more.
/// Writes that the queue had no room for may have been any.
fn is_write(event: &Event<OsString>) -> bool {
    let name = event.name.as_ref().and_then(|name| name.to_str()).unwrap_or_default();
    let is_lost = event.mask.contains(EventMask::Q_OVERFLOW);
    is_lost || (event.mask.contains(EventMask::MODIFY) && !name.contains(".events"))
}

/// A directory is not watched any more: it was removed, or we have said so.
fn is_end(event: &Event<OsString>) -> bool {
    event.mask.contains(EventMask::IGNORED)
}

/// If it is there again, it is to be watched again. Where events were lost, that of its end may be among them; a file that is watched already keeps
/// its watch.
fn forget(watched: &mut BTreeMap<String, WatchDescriptor>, event: &Event<OsString>) {
    if event.mask.contains(EventMask::Q_OVERFLOW) {
        watched.clear();
    }
    if is_end(event) {
        watched.retain(|_, descriptor| *descriptor != event.wd);
    }
}

impl Watcher {
    pub(super) fn new(root: PathBuf) -> Watcher {
        let ear = open().inspect_err(|error| {
            tracing::info!(%error, "changes by others are found by the sweep only");
        });
        Watcher {
            root,
            ear: ear.ok(),
            watched: BTreeMap::new(),
            awaited: HashSet::new(),
            heard: Heard::default(),
            may_have_missed: true,
        }
    }

    /// From now on these, in the second of which something is awaited, and no others. What was heard until now is forgotten: it was our own, or is seen at the next sweep. Whether
    /// there was something; what happens in a directory that is awaited may not have been heard before this.
    pub(super) fn watch(
        &mut self,
        directories: &BTreeSet<String>,
        awaited: &BTreeSet<String>,
    ) -> Heard {
        let Some((watches, _)) = &mut self.ear else { return Heard::default() };
        self.watched.retain(|directory, descriptor| {
            let is_kept = directories.contains(directory) || awaited.contains(directory);
            if !is_kept {
                // Those of containers that are gone went with them.
                let _gone = watches.remove(descriptor.clone());
            }
            is_kept
        });
        let mut is_new = false;
        for directory in directories.union(awaited) {
            if !self.watched.contains_key(directory) {
                let path = self.root.join(directory);
                // What was written until now was not heard.
                self.may_have_missed |= directories.contains(directory);
                if let Ok(descriptor) = watches.add(&path, MASK) {
                    self.watched.insert(directory.clone(), descriptor);
                    is_new |= awaited.contains(directory);
                }
            }
        }
        let now = awaited.iter().filter_map(|it| self.watched.get(it));
        self.awaited = now.cloned().collect();
        while let Some(event) = self.queued() {
            self.note(&event);
        }
        let heard = std::mem::take(&mut self.heard);
        Heard { is_arrival: heard.is_arrival || is_new, ..heard }
    }

    fn queued(&mut self) -> Option<Event<OsString>> {
        self.ear.as_mut()?.1.next().now_or_never()??.ok()
    }

    /// Something has happened, and is to be told.
    fn note(&mut self, event: &Event<OsString>) {
        let is_write = is_write(event);
        let is_new = event.mask.contains(EventMask::CREATE | EventMask::ISDIR);
        let is_lost = event.mask.contains(EventMask::Q_OVERFLOW) && !self.awaited.is_empty();
        let is_awaited = self.awaited.contains(&event.wd);
        self.heard.is_arrival |= is_lost || ((is_write || is_new) && is_awaited);
        self.heard.is_write |= is_write;
        self.may_have_missed |= is_write || is_end(event);
        forget(&mut self.watched, event);
    }

    /// Whether something was written since this was asked last, or may have been unheard: there is no inotify, a directory was not listened to from the beginning, or
    /// is not any more.
    pub(super) fn may_have_missed(&mut self) -> bool {
        std::mem::replace(&mut self.may_have_missed, false) || self.ear.is_none()
    }

    /// Comes back when something has happened in a directory that is awaited (`true`), and when another program has written to any file and it is
    /// `calm`.
    pub(super) async fn changed(&mut self, calm: Instant) -> bool {
        if self.awaited.is_empty() {
            // The kernel keeps what happens until then, and of many writes to a file in a row one.
            sleep_until(calm).await;
        }
        loop {
            let is_calm = calm <= Instant::now();
            if std::mem::take(&mut self.heard.is_arrival) {
                return true;
            }
            if self.heard.is_write && is_calm {
                self.heard.is_write = false;
                return false;
            }
            let Some((_, events)) = &mut self.ear else { break };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.note(&event),
                    _ => self.ear = None,
                },
                () = sleep_until(calm), if self.heard.is_write && !is_calm => {}
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn writes_of_others_are_heard_and_earlier_ones_are_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str| fs::write(root.path().join(path), "1").unwrap();
        for directory in ["a", "b"] {
            fs::create_dir(root.path().join(directory)).unwrap();
            write(&format!("{directory}/file"));
        }
        let mut watcher = Watcher::new(root.path().to_owned());
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        watcher.watch(&set(&["a", "none"]), &set(&[]));
        write("b/file");
        write("a/file");
        let limit = Duration::from_secs(5);
        timeout(limit, watcher.changed(Instant::now())).await.unwrap();
        write("a/file");
        watcher.watch(&set(&["b"]), &set(&[]));
        write("a/file");
        write("b/memory.events");
        let none = timeout(Duration::from_millis(50), watcher.changed(Instant::now())).await;
        assert!(none.is_err());
        write("b/file");
        timeout(limit, watcher.changed(Instant::now())).await.unwrap();
    }

    /// Silence must not be trusted when nothing was listened to.
    #[tokio::test]
    async fn silence_counts_only_where_everything_was_listened_to() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        fs::create_dir(path("a")).unwrap();
        let mut watcher = Watcher::new(root.path().to_owned());
        let limit = Duration::from_secs(5);
        assert!(watcher.may_have_missed(), "before anything was listened to");
        watcher.watch(&set(&["a"]), &set(&[]));
        assert!(watcher.may_have_missed(), "what was written before the watch");
        watcher.watch(&set(&["a"]), &set(&[]));
        assert!(!watcher.may_have_missed());
        fs::write(path("a/file"), "1").unwrap();
        timeout(limit, watcher.changed(Instant::now())).await.unwrap();
        assert_eq!([(); 2].map(|()| watcher.may_have_missed()), [true, false]);
        // Gone, and another one of that name.
        fs::remove_dir_all(path("a")).unwrap();
        fs::create_dir(path("a")).unwrap();
        let none = timeout(Duration::from_millis(50), watcher.changed(Instant::now())).await;
        assert!(none.is_err());
        assert!(watcher.may_have_missed(), "it is not listened to any more");
        watcher.watch(&set(&["a"]), &set(&[]));
        assert!(watcher.may_have_missed(), "it is listened to again");
        fs::write(path("a/file"), "1").unwrap();
        timeout(limit, watcher.changed(Instant::now())).await.unwrap();
        watcher.watch(&set(&["a", "none"]), &set(&[]));
        watcher.may_have_missed();
        watcher.watch(&set(&["a", "none"]), &set(&[]));
        assert!(watcher.may_have_missed(), "one cannot be listened to");
    }

    /// Files of a container in `files/`, and the group of a pod in `pod/`.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for directory in ["files", "pod"] {
            fs::create_dir(root.path().join(directory)).unwrap();
            fs::write(root.path().join(directory).join("cpuset.cpus"), "").unwrap();
        }
        root
    }

    fn set(name: &str) -> BTreeSet<String> {
        BTreeSet::from([name.to_owned()])
    }

    /// What is done in `files/` and in `pod/`, which is awaited, and whether that is heard a second before it is calm.
    async fn check_arrival(does: impl Fn(&Path), is_heard: bool, what: &str) {
        let root = tree();
        let mut watcher = Watcher::new(root.path().to_owned());
        let (files, pod) = (set("files"), set("pod"));
        let heard = watcher.watch(&files, &pod);
        assert!(heard.is_arrival, "what came before the watch was not heard");
        assert_eq!(watcher.watch(&files, &pod), Heard::default());
        does(root.path());
        let calm = Instant::now() + Duration::from_secs(1);
        let changed = timeout(Duration::from_secs(5), watcher.changed(calm)).await.unwrap();
        assert_eq!((changed, Instant::now() < calm), (is_heard, is_heard), "{what}");
    }

    #[tokio::test]
    async fn what_happens_where_a_container_is_awaited_is_heard_at_once() {
        let write = |root: &Path, file: &str| fs::write(root.join(file), "1").unwrap();
        let make = |root: &Path, dir: &str| fs::create_dir(root.join(dir)).unwrap();
        check_arrival(|root| make(root, "pod/c"), true, "a group").await;
        check_arrival(|root| write(root, "pod/cpuset.cpus"), true, "a limit").await;
        check_arrival(|root| write(root, "files/cpuset.cpus"), false, "another container's").await;
        let both = |root: &Path| {
            make(root, "files/c");
            write(root, "pod/memory.events");
            write(root, "files/cpuset.cpus");
        };
        check_arrival(both, false, "no container's group, the kernel's own").await;
    }

    /// Of two things the one that is heard later is not lost.
    #[tokio::test]
    async fn a_write_that_waits_for_calm_is_heard_after_what_is_awaited() {
        let root = tree();
        let mut watcher = Watcher::new(root.path().to_owned());
        watcher.watch(&set("files"), &set("pod"));
        fs::write(root.path().join("files/cpu.max"), "1").unwrap();
        fs::create_dir(root.path().join("pod/c")).unwrap();
        let calm = Instant::now() + Duration::from_millis(50);
        assert!(watcher.changed(calm).await);
        let heard = watcher.watch(&set("files"), &set("pod"));
        assert_eq!(heard, Heard { is_arrival: false, is_write: true });
    }

    #[tokio::test]
    async fn where_events_were_lost_everything_may_have_happened_and_is_listened_to_again() {
        let root = tree();
        for (awaited, is_arrival) in [(set("pod"), true), (BTreeSet::new(), false)] {
            let mut watcher = Watcher::new(root.path().to_owned());
            watcher.watch(&set("files"), &awaited);
            watcher.may_have_missed();
            fs::write(root.path().join("files/cpu.max"), "1").unwrap();
            // As the kernel tells it, of no watch in particular.
            let events = &mut watcher.ear.as_mut().unwrap().1;
            let event = timeout(Duration::from_secs(5), events.next()).await.unwrap();
            let event = event.unwrap().unwrap();
            watcher.note(&Event { mask: EventMask::Q_OVERFLOW, name: None, ..event });
            assert_eq!(watcher.heard, Heard { is_arrival, is_write: true });
            assert!(watcher.may_have_missed());
            assert!(watcher.watched.is_empty());
            watcher.watch(&set("files"), &awaited);
            assert!(watcher.watched.contains_key("files"));
        }
    }
}
