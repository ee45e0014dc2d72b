//! Unix sockets that the daemon makes itself. In: a path, and who may connect. Out: a listener.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::Path;

use anyhow::Context as _;
use nix::unistd::Group;
use tokio::net::{UnixListener, UnixStream};

/// Who may connect; the kernel asks for the right to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// Root. Whoever can create containers owns the node.
    Owner,
    /// Root and this group, by name or number.
    Group(&'a str),
}

/// Listens on a path, taking over a socket that a dead process left.
pub(crate) async fn listen_unix(path: &Path, access: Access<'_>) -> std::io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    if UnixStream::connect(path).await.is_ok() {
        return Err(std::io::ErrorKind::AddrInUse.into());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    if let Access::Group(group) = access
        && let Err(error) = open_to_group(path, group)
    {
        // A node without the daemon cannot start containers, so it starts with a socket that is root's alone.
        let path = path.display();
        tracing::warn!("controlGroup: {error:#}; only root can connect to {path}");
    }
    Ok(listener)
}

fn open_to_group(path: &Path, group: &str) -> anyhow::Result<()> {
    let gid = find_group(group)?;
    // Where it is right already, no right to change it is needed.
    if std::fs::metadata(path)?.gid() != gid {
        chown(path, None, Some(gid)).with_context(|| {
            format!("cannot give the socket to group {gid}; say Group={group} in the unit, or allow CAP_CHOWN")
        })?;
    }
    Ok(std::fs::set_permissions(path, PermissionsExt::from_mode(0o660))?)
}

/// The number of a group that is given by name or number.
///
/// # Errors
/// There is no group of this name.
pub(crate) fn find_group(group: &str) -> anyhow::Result<u32> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let found = Group::from_name(group).with_context(|| format!("cannot look up `{group}`"))?;
    let found = found.with_context(|| {
        format!("there is no group `{group}`; make it with `groupadd --system {group}`, or give a number")
    })?;
    Ok(found.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mode and group of the socket.
    async fn check(access: Access<'_>, expected: (u32, u32)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/socket");
        let _listener = listen_unix(&path, access).await.unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), expected, "{access:?}");
    }

    #[tokio::test]
    async fn a_socket_is_roots_or_a_groups() {
        let own = nix::unistd::getegid().as_raw();
        check(Access::Owner, (0o600, own)).await;
        check(Access::Group(&own.to_string()), (0o660, own)).await;
        check(Access::Group("root"), (0o660, 0)).await;
        check(Access::Group("no such group"), (0o600, own)).await;
    }

    #[tokio::test]
    async fn a_socket_in_use_is_not_taken_over_and_one_that_was_left_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let first = listen_unix(&path, Access::Owner).await.unwrap();
        let second = listen_unix(&path, Access::Owner).await.unwrap_err();
        assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        listen_unix(&path, Access::Owner).await.unwrap();
    }
}
