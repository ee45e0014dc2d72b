//! Hears of writes to kernel files by others. In: directories. Out: a wake-up.
//!
//! Writes of processes to files of kernfs are told like any others (inotify(7), `IN_MODIFY`); what the kernel changes by itself is not, and is
//! found by the sweep. Where there is no inotify left, the sweep has to do. Whoever trusts in silence asks whether everything was listened to
//! ([`Watcher::may_have_missed`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use futures::{FutureExt as _, StreamExt as _};
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};

/// Room for a few events with their names; which they are does not matter.
const BUFFER: usize = 4096;

/// Watches directories.
#[derive(Debug)]
pub(super) struct Watcher {
    root: PathBuf,
    ear: Option<(Watches, EventStream<Vec<u8>>)>,
    watched: BTreeMap<String, WatchDescriptor>,
    /// Something was written, or may have been unheard.
    may_have_missed: bool,
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

/// If it is there again, it is to be watched again. Where events were lost, that of its end may be among them; whoever is watched already keeps his watch.
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
        Watcher { root, ear: ear.ok(), watched: BTreeMap::new(), may_have_missed: true }
    }

    /// From now on these, and no others. What was heard until now is forgotten: it was our own, or is seen at the next sweep. Whether
    /// there was something.
    pub(super) fn watch(&mut self, directories: &BTreeSet<String>) -> bool {
        let Some((watches, events)) = &mut self.ear else { return false };
        self.watched.retain(|directory, descriptor| {
            let is_kept = directories.contains(directory);
            if !is_kept {
                // Those of containers that are gone went with them.
                let _gone = watches.remove(descriptor.clone());
            }
            is_kept
        });
        for directory in directories {
            if !self.watched.contains_key(directory) {
                let path = self.root.join(directory);
                // What was written until now was not heard.
                self.may_have_missed = true;
                if let Ok(descriptor) = watches.add(&path, WatchMask::MODIFY) {
                    self.watched.insert(directory.clone(), descriptor);
                }
            }
        }
        let mut was_written = false;
        while let Some(Some(Ok(event))) = events.next().now_or_never() {
            was_written |= is_write(&event);
            forget(&mut self.watched, &event);
            self.may_have_missed |= was_written || is_end(&event);
        }
        was_written
    }

    /// Whether something was written since this was asked last, or may have been unheard: there is no inotify, a directory was not listened to from the beginning, or
    /// is not any more.
    pub(super) fn may_have_missed(&mut self) -> bool {
        std::mem::replace(&mut self.may_have_missed, false) || self.ear.is_none()
    }

    /// Comes back when somebody has written to a file.
    pub(super) async fn changed(&mut self) {
        if let Some((_, events)) = &mut self.ear {
            while let Some(Ok(event)) = events.next().await {
                forget(&mut self.watched, &event);
                self.may_have_missed |= is_write(&event) || is_end(&event);
                if is_write(&event) {
                    return;
                }
            }
            self.ear = None;
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        watcher.watch(&set(&["a", "none"]));
        write("b/file");
        write("a/file");
        let limit = Duration::from_secs(5);
        timeout(limit, watcher.changed()).await.unwrap();
        write("a/file");
        watcher.watch(&set(&["b"]));
        write("a/file");
        write("b/memory.events");
        let none = timeout(Duration::from_millis(50), watcher.changed()).await;
        assert!(none.is_err());
        write("b/file");
        timeout(limit, watcher.changed()).await.unwrap();
    }

    /// Whoever trusts in silence must not do so when nobody listened.
    #[tokio::test]
    async fn silence_counts_only_where_everything_was_listened_to() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        fs::create_dir(path("a")).unwrap();
        let mut watcher = Watcher::new(root.path().to_owned());
        let limit = Duration::from_secs(5);
        assert!(watcher.may_have_missed(), "before anything was listened to");
        watcher.watch(&set(&["a"]));
        assert!(watcher.may_have_missed(), "what was written before the watch");
        watcher.watch(&set(&["a"]));
        assert!(!watcher.may_have_missed());
        fs::write(path("a/file"), "1").unwrap();
        timeout(limit, watcher.changed()).await.unwrap();
        assert_eq!([(); 2].map(|()| watcher.may_have_missed()), [true, false]);
        // Gone, and another one of that name.
        fs::remove_dir_all(path("a")).unwrap();
        fs::create_dir(path("a")).unwrap();
        let none = timeout(Duration::from_millis(50), watcher.changed()).await;
        assert!(none.is_err());
        assert!(watcher.may_have_missed(), "it is not listened to any more");
        watcher.watch(&set(&["a"]));
        assert!(watcher.may_have_missed(), "it is listened to again");
        fs::write(path("a/file"), "1").unwrap();
        timeout(limit, watcher.changed()).await.unwrap();
        watcher.watch(&set(&["a", "none"]));
        watcher.may_have_missed();
        watcher.watch(&set(&["a", "none"]));
        assert!(watcher.may_have_missed(), "one cannot be listened to");
    }
}
