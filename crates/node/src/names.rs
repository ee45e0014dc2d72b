//! Names of containers. In: a full name, and what an operator has typed. Out: whether it is meant.

/// `namespace/pod/container`, any tail of it that begins at a slash, or the pod.
pub(crate) fn matches(full: &str, name: &str) -> bool {
    let parts: Vec<&str> = full.split('/').collect();
    let [namespace, pod, container] = parts[..] else { return full == name };
    [full, &format!("{pod}/{container}"), container, pod, &format!("{namespace}/{pod}")]
        .contains(&name)
}
