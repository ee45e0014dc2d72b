//! Names of containers. In: a full name, and what an operator has typed; names for a message. Out: whether it is meant; a list that is not too long.

use std::collections::BTreeSet;

/// Containers that are named in a message.
const SHOWN_MAX: usize = 3;

/// Some of these names, in order and each once, and how many more there are.
pub fn list_names(names: impl IntoIterator<Item = String>) -> String {
    let names: BTreeSet<String> = names.into_iter().collect();
    let more = names.len().saturating_sub(SHOWN_MAX);
    let listed: Vec<String> = names.into_iter().take(SHOWN_MAX).collect();
    match more {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// `namespace/pod/container`, any tail of it that begins at a slash, or the pod.
pub(crate) fn matches(full: &str, name: &str) -> bool {
    let parts: Vec<&str> = full.split('/').collect();
    let [namespace, pod, container] = parts[..] else { return full == name };
    [full, &format!("{pod}/{container}"), container, pod, &format!("{namespace}/{pod}")]
        .contains(&name)
}
