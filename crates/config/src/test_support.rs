//! For tests of the parts of a configuration.

use std::path::Path;

use crate::{Config, ConfigFile, parse_config};

/// A text as a configuration, and how that is shown, which reads back as the same; or every mistake in the text.
pub(crate) fn read_back(text: &str) -> Result<(Config, String), String> {
    let file = ConfigFile::parse(Path::new("f"), text).map_err(|errors| errors.to_string())?;
    let shown = file.settings().to_string();
    assert_eq!(parse_config(Path::new("f"), &shown).unwrap(), file.config);
    Ok((file.config, shown))
}

/// The first line of what is shown that `is_it`; or every mistake in the text.
pub(crate) fn shown_line(text: &str, is_it: impl Fn(&str) -> bool) -> String {
    match read_back(text) {
        Ok((_, shown)) => {
            shown.lines().find(|line| is_it(line)).unwrap_or_default().trim().to_owned()
        }
        Err(errors) => errors,
    }
}

/// What differs from the defaults; or every mistake in the text.
pub(crate) fn differences(text: &str) -> String {
    read_back(text).map_or_else(|errors| errors, |(config, _)| config.differences())
}
