//! Whether a text is a filter of log lines. In: the key `log`. Out: yes or no.
//!
//! The form is that of `EnvFilter` of the crate tracing-subscriber 0.3: parts with commas, and perhaps spaces, between them, each `LEVEL`, `TARGET`, `TARGET=LEVEL` or
//! `TARGET[SPAN{FIELD=VALUE}]=LEVEL`. Patterns in values of fields are checked where the filter is made.

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// False also where a word is no level: `loud` alone would be taken for the name of a crate, of which everything is logged, and of all others
/// nothing. At least one part must be about everything or about a crate of ours.
pub fn is_log_filter(text: &str) -> bool {
    let is_ours = |part: &str| part.starts_with("bayplan") || part.starts_with('[');
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_understood = |part: &&str| is_level(part) || is_ours(part) || part.contains('=');
    let says_something = parts.iter().any(|part| is_level(part) || is_ours(part));
    parts.iter().all(|part| is_directive(part))
        && says_something
        && (text.contains('[') || parts.iter().all(is_understood))
}

/// A word, or 0 for `off` to 5 for `trace`.
fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level))
        || word.parse::<u8>().is_ok_and(|number| number <= 5)
}

/// One part. An empty one says nothing, and a level may be left out behind `=`.
fn is_directive(part: &str) -> bool {
    let is_start = |c: char| c.is_alphanumeric() || "-:_[".contains(c);
    if !part.starts_with(is_start) {
        return part.is_empty();
    }
    let target = &part[..part.find(['[', '=']).unwrap_or(part.len())];
    let behind = &part[target.len()..];
    let level = match behind.strip_prefix('[') {
        Some(span) => behind_span(span),
        None => Some(behind),
    };
    level.is_some_and(|it| it.is_empty() || it.strip_prefix('=').is_some_and(is_end))
}

fn is_end(level: &str) -> bool {
    level.is_empty() || is_level(level)
}

/// What follows a name, with fields in braces or without, and its closing bracket.
fn behind_span(span: &str) -> Option<&str> {
    let end = span.find(['{', ']'])?;
    match span[end..].strip_prefix('{') {
        Some(fields) => {
            let (fields, rest) = fields.split_once('}')?;
            rest.strip_prefix(']').filter(|_| !fields.is_empty())
        }
        None => Some(&span[end + 1..]),
    }
}
