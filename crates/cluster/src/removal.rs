//! Whether the daemon was removed from the node. In: a file that its package leaves. Out: whether an agent takes back what it has published when its daemon does not answer.

use std::path::Path;

/// Without the file a daemon that does not answer may come back at any time, and what is published stays.
pub(crate) fn is_removed(marker: Option<&Path>) -> bool {
    marker.is_some_and(Path::exists)
}
