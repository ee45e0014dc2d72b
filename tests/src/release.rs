//! Files that the program of an earlier release has written and printed, below `releases/DATE`. See `releases/README.md`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// The release before workload, node and configuration became crates of their own.
pub const BEFORE_NODE_CRATE: &str = "2026-11-25";

/// One of its files.
pub fn path(release: &str, name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/releases")).join(release).join(name)
}

/// What the file says; one with a name that ends in `.gz` is unpacked.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn text(release: &str, name: &str) -> anyhow::Result<String> {
    let path = path(release, name);
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    match name.ends_with(".gz") {
        true => flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text),
        false => (&*bytes).read_to_string(&mut text),
    }
    .with_context(|| path.display().to_string())?;
    Ok(text)
}

/// The same of a file of JSON.
///
/// # Errors
/// As [`text`], and where it is no JSON.
pub fn json(release: &str, name: &str) -> anyhow::Result<Value> {
    serde_json::from_str(&text(release, name)?).with_context(|| name.to_owned())
}

/// What `then` has and `now` has not or otherwise, each with where that is. Fields of an object that only `now` has do not count.
pub fn differences(then: &Value, now: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", then, now, &mut found);
    found
}

fn compare(at: &str, then: &Value, now: &Value, found: &mut Vec<String>) {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (key, then) in then {
                compare(&format!("{at}.{key}"), then, now.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            for (n, (then, now)) in then.iter().zip(now).enumerate() {
                compare(&format!("{at}[{n}]"), then, now, found);
            }
        }
        _ if then == now => {}
        _ => found.push(format!("{at}: {then}, now {now}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_there_is_compared() {
        let then = json!({"a": [1, {"b": "x"}], "c": null, "d": [1], "e": 0});
        let now = json!({"a": [1, {"b": "y", "new": 1}], "d": [1, 2], "e": null, "new": 2});
        assert_eq!(
            differences(&then, &now),
            [".a[1].b: \"x\", now \"y\"", ".d: [1], now [1,2]", ".e: 0, now null"]
        );
        assert_eq!(differences(&then, &then), [""; 0]);
    }
}
