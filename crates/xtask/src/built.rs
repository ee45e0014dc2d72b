//! Programs that `tests/programs/build.py` has built of released modules. In: a name. Out: the directory in its cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `NAME-DIGEST` in the cache; `None`: it was not built.
pub(crate) fn built_dir(name: &str) -> Option<PathBuf> {
    find(&cache(|it| std::env::var_os(it))?, name)
}

/// Where the cache is, by these variables of the environment.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let general = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    path("BAYPLAN_PROGRAMS_CACHE").or(general.map(|it| it.join("bayplan-programs")))
}

fn find(cache: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(cache).ok()?.flatten();
    let is_it = |dir: &PathBuf| {
        let own = dir.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let digest = own.strip_prefix(name).and_then(|it| it.strip_prefix('-'));
        digest.is_some_and(|it| it.len() == 16 && it.bytes().all(|it| it.is_ascii_hexdigit()))
    };
    entries.map(|it| it.path()).find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_and_not_by_the_beginning_of_one() {
        let cache = tempfile::tempdir().unwrap();
        for dir in ["kubelet-1.34-0123456789abcdef", "runc-0123456789abcdef.new"] {
            std::fs::create_dir(cache.path().join(dir)).unwrap();
        }
        assert_eq!(find(cache.path(), "runc"), None);
        assert_eq!(find(cache.path(), "kubelet"), None);
        let found = find(cache.path(), "kubelet-1.34").unwrap();
        assert_eq!(found.file_name().unwrap(), "kubelet-1.34-0123456789abcdef");
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        for (variables, expected) in [
            (&[("HOME", "/h")][..], Some("/h/.cache/bayplan-programs")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/bayplan-programs")),
            (&[("BAYPLAN_PROGRAMS_CACHE", "/b"), ("HOME", "/h")], Some("/b")),
            (&[("HOME", "")], None),
        ] {
            let find = |name: &str| variables.iter().find(|(it, _)| *it == name);
            let found = cache(|name| find(name).map(|(_, value)| OsString::from(value)));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{variables:?}");
        }
    }
}
