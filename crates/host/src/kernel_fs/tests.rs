use std::fs;
use std::os::unix::fs::symlink;

use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;

/// A root with `a/b/file` that says `root`, and beside it the same that says `outside`.
fn tree() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let [root, outside] = ["root", "outside"].map(|name| {
        let root = dir.path().join(name);
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), format!("{name}\n")).unwrap();
        root
    });
    (dir, root, outside)
}

fn replace(path: &Path, target: &Path) {
    fs::remove_dir_all(path).unwrap();
    symlink(target, path).unwrap();
}

fn notes(fs: &KernelFs) -> Vec<String> {
    fs.oddities.iter().map(|odd| format!("{} {}", odd.path, odd.found)).collect()
}

#[test]
fn a_link_on_the_way_to_a_file_is_not_followed_out_of_the_root() {
    let (_dir, root, outside) = tree();
    let mut files = KernelFs::open(&root).unwrap();
    let a = files.dir("a").unwrap().unwrap();
    assert_eq!(files.text(&a, "b/file").as_deref(), Some("root\n"));
    replace(&root.join("a/b"), &outside.join("a/b"));
    assert_eq!(files.text(&a, "b/file"), None);
    assert!(files.sub(&a, "b/file").is_none());
    assert_eq!(notes(&files), ["/a/b/file not a regular file"]);
}

#[test]
fn names_and_links_and_existence_do_not_come_from_outside_the_root() {
    let (_dir, root, outside) = tree();
    symlink("/nowhere", outside.join("a/b/gone")).unwrap();
    symlink("/nowhere", root.join("a/b/gone")).unwrap();
    let mut files = KernelFs::open(&root).unwrap();
    assert_eq!(files.names("a/b", |_| true), ["file", "gone"]);
    assert!(files.exists("a/b/file"));
    assert_eq!(files.link("a/b/gone").as_deref(), Some("/nowhere"));
    replace(&root.join("a/b"), &outside.join("a/b"));
    assert_eq!(files.names("a/b", |_| true), Vec::<String>::new());
    assert!(!files.exists("a/b/file"));
    assert_eq!(files.link("a/b/gone"), None);
    assert_eq!(notes(&files), ["/a/b leads out of the root"]);
}

/// Paths below it would be absolute ones.
#[test]
fn a_link_to_the_root_itself_is_no_directory() {
    let (_dir, root, _) = tree();
    replace(&root.join("a/b"), &root);
    let mut files = KernelFs::open(&root).unwrap();
    assert!(files.dir("a/b").unwrap().is_none());
    assert_eq!(notes(&files), ["/a/b not a directory"]);
}

/// 65,536 of them would take gigabytes.
#[test]
fn directories_with_numbers_beyond_belief_are_counted_and_left_out() {
    let text = "bayplan-files/1\ncpu/cpu{0-1,16383-65535}/\n";
    let mut files = KernelFs::of(Arc::new(KernelFiles::parse(text).unwrap()));
    let dir = files.dir("cpu").unwrap().unwrap();
    let numbers: Vec<u32> = files.numbered_dirs(&dir, "cpu").iter().map(|it| it.0).collect();
    assert_eq!(numbers, [0, 1, 16_383]);
    assert_eq!(notes(&files), ["/cpu/cpu* 49152 with a number above 16383"]);
}

#[test]
fn a_pipe_is_no_empty_file() {
    let (_dir, root, _) = tree();
    mkfifo(&root.join("a/pipe"), Mode::S_IRWXU).unwrap();
    fs::write(root.join("a/empty"), "").unwrap();
    let mut files = KernelFs::open(&root).unwrap();
    let a = files.dir("a").unwrap().unwrap();
    assert_eq!(files.text(&a, "empty").as_deref(), Some(""));
    assert_eq!(files.text(&a, "pipe"), None);
    assert_eq!(notes(&files), ["/a/pipe not a regular file"]);
}

#[test]
fn what_a_terminal_would_obey_is_in_no_text_and_no_name() {
    let (_dir, root, _) = tree();
    fs::write(root.join("a/text"), "a\x1b[2J\tb\r\u{9b}\n\0").unwrap();
    fs::write(root.join("a/\x1b[31m"), "").unwrap();
    symlink("to/\x1b[31m", root.join("a/link")).unwrap();
    let recorded: String =
        ["a/text a\\x1b[2J\tb\\x0d\\x9b\\n\\x00", "a/\\x1b[31m", "a/link -> to/\\x1b[31m"]
            .join("\n");
    let recorded = KernelFiles::parse(&format!("bayplan-files/1\n{recorded}")).unwrap();
    for mut files in [KernelFs::open(&root).unwrap(), KernelFs::of(Arc::new(recorded))] {
        let a = files.dir("a").unwrap().unwrap();
        let text = files.text(&a, "text");
        assert_eq!(text.as_deref(), Some("a\u{fffd}[2J\tb\u{fffd}\u{fffd}\n"));
        assert_eq!(files.names("a", |name| name != "b"), ["link", "text"]);
        assert_eq!(files.link("a/link"), None);
        assert_eq!(
            notes(&files),
            ["/a names with control characters", "/a/link \"to/\\u{1b}[31m\""]
        );
    }
}

#[test]
fn a_file_that_was_read_before_is_cut_off_like_one_on_a_disk() {
    let mut recorded = KernelFiles::default();
    recorded.insert("a/long", Entry::Text("é".repeat(BYTES_MAX)));
    recorded.insert("a/link", Entry::Link("long".to_owned()));
    let mut files = KernelFs::of(Arc::new(recorded));
    let a = files.dir("a").unwrap().unwrap();
    assert_eq!(files.text(&a, "long").map(|text| text.len()), Some(BYTES_MAX));
    assert_eq!(files.text(&a, "link"), None);
    assert_eq!(notes(&files), ["/a/long more than 65536 bytes", "/a/link not a regular file"]);
}
