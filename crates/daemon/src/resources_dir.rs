//! The files of `resources_file.rs` on disk. In: what has changed. Out: a directory per container that is mounted into it, and in that
//! always a whole file.
//!
//! It is the directory that is mounted: a mounted file would stay the old one when another takes its name, and without that a reader could
//! see half of one. Nothing here keeps a container from running: one that gets no directory gets no mount, and a file that could not be written is
//! tried again after the next sync.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bayplan_node::resources_file::{FILE, FileNews, ResourcesFile, dir_name};

/// The directory below that of kubelet's socket.
const DIR: &str = "resources";
/// What is to become the file.
const NEW: &str = ".resources.sh.new";

/// Where the directories of this socket's daemon are.
pub(crate) fn resources_root(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join(DIR)
}

/// Whether containers of an earlier daemon have files, which have to be kept true whatever the configuration says now.
pub(crate) fn has_files(root: &Path) -> bool {
    fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some())
}

/// The directory to be mounted into a container, if it has one.
pub(crate) fn mounted_dir(root: &Path, pod_id: &str, name: &str, attempt: u32) -> Option<PathBuf> {
    let dir = root.join(dir_name(pod_id, name, attempt)?);
    dir.join(FILE).exists().then_some(dir)
}

/// One that two tasks use.
pub(crate) type SharedResourcesDir = Arc<Mutex<ResourcesDir>>;

/// Keeps the files.
#[derive(Debug)]
pub(crate) struct ResourcesDir {
    root: PathBuf,
    /// What could not be written, or is not true yet.
    unwritten: BTreeMap<String, ResourcesFile>,
}

impl ResourcesDir {
    pub(crate) fn new(root: PathBuf) -> ResourcesDir {
        ResourcesDir { root, unwritten: BTreeMap::new() }
    }

    /// Containers that are not where they should be, by the runtime's ids, are told of that when they are. Gives what went wrong, in words.
    pub(crate) fn keep(&mut self, news: FileNews, elsewhere: &BTreeSet<String>) -> Vec<String> {
        let mut files = news.changed;
        if let Some(kept) = &news.kept {
            self.sweep(kept);
            // What has changed meanwhile is newer.
            self.unwritten.retain(|dir, _| kept.contains(dir));
            let known: BTreeSet<String> = files.iter().map(|file| file.dir.clone()).collect();
            let again = std::mem::take(&mut self.unwritten).into_values();
            files.extend(again.filter(|file| !known.contains(&file.dir)));
        }
        let mut wrong = Vec::new();
        for file in files {
            self.unwritten.remove(&file.dir);
            if file.container.as_ref().is_some_and(|id| elsewhere.contains(id)) {
                self.unwritten.insert(file.dir.clone(), file);
                continue;
            }
            if let Err(error) = write(&self.root, &file) {
                wrong.push(format!("{}: {error}", self.root.join(&file.dir).display()));
                // A container that has no directory by now is made without the mount.
                self.unwritten.insert(file.dir.clone(), ResourcesFile { is_new: false, ..file });
            }
        }
        wrong
    }

    /// Makes those of containers that are to be created, which see no file that comes later. One that is there may be newer. What goes wrong is found again by [`Self::keep`].
    pub(crate) fn make(&self, files: &[ResourcesFile]) {
        for file in files {
            if !self.root.join(&file.dir).join(FILE).exists() {
                let _found_again = write(&self.root, file);
            }
        }
    }

    /// What cannot be removed is tried again after the next sync; until then it does no harm.
    fn sweep(&self, kept: &BTreeSet<String>) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let is_kept = entry.file_name().to_str().is_some_and(|name| kept.contains(name));
            if !is_kept {
                let _in_nobodys_way = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Every process in the container may read it, whatever umask the daemon has.
fn write(root: &Path, file: &ResourcesFile) -> io::Result<()> {
    let dir = root.join(&file.dir);
    if file.is_new {
        DirBuilder::new().recursive(true).mode(0o755).create(&dir)?;
        fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    } else if !dir.is_dir() {
        return Ok(());
    }
    let new = dir.join(NEW);
    let written = fs::write(&new, &file.text)
        .and_then(|()| fs::set_permissions(&new, Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&new, dir.join(FILE)));
    if written.is_err() {
        let _never_made = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &str, text: &str, is_new: bool) -> ResourcesFile {
        ResourcesFile { dir: dir.to_owned(), container: None, text: text.to_owned(), is_new }
    }

    fn changed(files: &[ResourcesFile]) -> FileNews {
        FileNews { changed: files.to_vec(), kept: None }
    }

    fn kept(dirs: &[&str]) -> FileNews {
        let kept = dirs.iter().map(|dir| (*dir).to_owned()).collect();
        FileNews { changed: Vec::new(), kept: Some(kept) }
    }

    #[test]
    fn a_file_is_replaced_whole_and_goes_with_its_container() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("run/resources");
        let mut resources = ResourcesDir::new(root.clone());
        let none: [String; 0] = [];
        assert_eq!(resources.keep(changed(&[file("p-a-0", "one", true)]), &BTreeSet::new()), none);
        assert_eq!(mounted_dir(&root, "p", "a", 0), Some(root.join("p-a-0")));
        assert!(has_files(&root));
        let path = root.join("p-a-0/resources.sh");
        let before = fs::File::open(&path).unwrap();
        assert_eq!(resources.keep(changed(&[file("p-a-0", "two", false)]), &BTreeSet::new()), none);
        assert_eq!(io::read_to_string(before).unwrap(), "one");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(root.join("p-a-0")).unwrap().count(), 1);
        // A container that was made without a mount gets no directory later.
        assert_eq!(resources.keep(changed(&[file("p-b-0", "two", false)]), &BTreeSet::new()), none);
        assert_eq!(mounted_dir(&root, "p", "b", 0), None);
        assert_eq!(resources.keep(kept(&["p-a-0"]), &BTreeSet::new()), none);
        assert!(path.exists());
        assert_eq!(resources.keep(kept(&[]), &BTreeSet::new()), none);
        assert!(!has_files(&root));
    }

    #[test]
    fn a_file_that_is_made_early_is_there_and_replaces_none() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("resources");
        let mut resources = ResourcesDir::new(root.clone());
        let reads = || fs::read_to_string(root.join("p-a-0/resources.sh")).unwrap();
        resources.make(&[file("p-a-0", "one", true)]);
        assert_eq!(reads(), "one");
        resources.keep(changed(&[file("p-a-0", "two", false)]), &BTreeSet::new());
        resources.make(&[file("p-a-0", "one", true)]);
        assert_eq!(reads(), "two");
    }

    #[test]
    fn what_could_not_be_written_is_written_after_the_next_sync() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("resources");
        let mut resources = ResourcesDir::new(root.clone());
        resources.keep(changed(&[file("p-a-0", "one", true)]), &BTreeSet::new());
        // Nothing can be written where a directory is in the way.
        fs::create_dir(root.join("p-a-0").join(NEW)).unwrap();
        let wrong = resources.keep(changed(&[file("p-a-0", "two", false)]), &BTreeSet::new());
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("p-a-0: "), "{wrong:?}");
        fs::remove_dir(root.join("p-a-0").join(NEW)).unwrap();
        let none: [String; 0] = [];
        assert_eq!(resources.keep(kept(&["p-a-0"]), &BTreeSet::new()), none);
        assert_eq!(fs::read_to_string(root.join("p-a-0/resources.sh")).unwrap(), "two");
    }

    #[test]
    fn where_nothing_can_be_made_nothing_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("resources");
        fs::write(&root, "a file").unwrap();
        let mut resources = ResourcesDir::new(root.clone());
        assert_eq!(
            resources.keep(changed(&[file("p-a-0", "one", true)]), &BTreeSet::new()).len(),
            1
        );
        assert_eq!(mounted_dir(&root, "p", "a", 0), None);
    }

    #[test]
    fn no_container_is_told_of_cpus_that_it_does_not_have_yet() {
        let root = tempfile::tempdir().unwrap();
        let mut resources = ResourcesDir::new(root.path().join("resources"));
        let told =
            |text| ResourcesFile { container: Some("id".to_owned()), ..file("p-a-0", text, true) };
        let reads =
            || fs::read_to_string(root.path().join("resources/p-a-0/resources.sh")).unwrap();
        let (none, one) = (BTreeSet::new(), BTreeSet::from(["id".to_owned()]));
        resources.keep(changed(&[told("one")]), &none);
        assert!(resources.keep(changed(&[told("two")]), &one).is_empty());
        assert_eq!(reads(), "one");
        resources.keep(kept(&["p-a-0"]), &one);
        assert_eq!(reads(), "one");
        resources.keep(kept(&["p-a-0"]), &none);
        assert_eq!(reads(), "two");
    }
}
