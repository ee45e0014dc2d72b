//! Bayplan's own features as a file for NFD's worker (`features.d`). In: features, and when they expire. Out: the text, and a file that is there as a whole or not at all.
//!
//! A line is `NAME=VALUE`; `# +expiry-time=TIME` counts for all that follows, so that what a daemon that is gone has said goes away.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;

use crate::feature_set::FeatureSet;

/// The file's name.
const NAME: &str = "bayplan";
/// NFD leaves out files with a dot at the beginning of their names.
const NEXT: &str = ".bayplan.next";

/// The text of the file.
pub(crate) fn render_features(features: &FeatureSet, expires: Timestamp) -> String {
    let mut text = format!("# Made by bayplan agent.\n# +expiry-time={expires:.0}\n");
    for (name, value) in features.attributes("local.feature") {
        text.push_str(&format!("{name}={value}\n"));
    }
    text
}

/// Puts the text into this directory.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn write_features(directory: &Path, text: &str) -> anyhow::Result<()> {
    let (next, path) = (directory.join(NEXT), directory.join(NAME));
    let write = || -> std::io::Result<()> {
        let mut file = fs::File::create(&next)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&next, &path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Takes the file out of this directory again.
///
/// # Errors
/// It stays.
pub fn remove_features(directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_file_expires_and_is_there_as_a_whole() {
        let features: FeatureSet = serde_json::from_str(
            r#"{"attributes": {"local.feature": {"bayplan.dev/l3-groups": "4", "bayplan.dev/psi": "true"}, "cpu.model": {"id": "1"}}}"#,
        )
        .unwrap();
        let text = render_features(&features, Timestamp::UNIX_EPOCH);
        expect![[r#"
            # Made by bayplan agent.
            # +expiry-time=1970-01-01T00:00:00Z
            bayplan.dev/l3-groups=4
            bayplan.dev/psi=true
        "#]]
        .assert_eq(&text);
        let dir = tempfile::tempdir().unwrap();
        write_features(dir.path(), &text).unwrap();
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
        assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), text);
        let error = write_features(&dir.path().join("missing"), &text).unwrap_err();
        assert!(format!("{error:#}").contains("missing/bayplan"), "{error:#}");
        for _ in 0..2 {
            remove_features(dir.path()).unwrap();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        fs::create_dir(dir.path().join(NAME)).unwrap();
        let error = remove_features(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("cannot remove"), "{error:#}");
    }
}
