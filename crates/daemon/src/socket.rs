//! Unix sockets that the daemon makes itself. In: a path, and which users may connect. Out: a listener.

use std::fs::TryLockError;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt, chown};
use std::path::Path;

use anyhow::Context as _;
use tokio::net::{UnixListener, UnixStream};

/// Which users may connect; the kernel asks for the right to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// Root. A user that can create containers owns the node.
    Owner,
    /// Root and this group, by name or number.
    Group(&'a str),
}

/// The right to a path: two daemons with state directories of their own may be given one socket, and the second one would take
/// it away from the first. Held until it is dropped, or the process ends; the file stays, since a removed one may be a successor's.
#[derive(Debug)]
pub(crate) struct SocketLock {
    _file: std::fs::File,
}

fn lock(path: &Path) -> std::io::Result<SocketLock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(name)?;
    match file.try_lock() {
        Ok(()) => Ok(SocketLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(std::io::ErrorKind::AddrInUse.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Listens on a path, taking over a socket that a dead process left.
///
/// # Errors
/// `AddrInUse`: another daemon has it, or is about to.
pub(crate) async fn listen_unix(
    path: &Path,
    access: Access<'_>,
) -> std::io::Result<(UnixListener, SocketLock)> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let lock = lock(path)?;
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
    Ok((listener, lock))
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

/// Where the node's groups are: group(5), and nss-altfiles' where the image of the system has its own, as on Fedora `CoreOS` and Flatcar. The first one counts.
const GROUPS: [&str; 2] = ["/etc/group", "/usr/lib/group"];

/// The number of a group that is given by number, or by a name of the node's files. libc is not asked: it would load the modules of
/// nsswitch.conf(5), and a program that is linked statically can do so only where the node has the glibc that it was built with. So names of
/// directory services are not known.
///
/// # Errors
/// There is no group of this name.
pub(crate) fn find_group(group: &str) -> anyhow::Result<u32> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    // The default. Its number is 0 everywhere (credentials(7)), also on systems without these files.
    if group == "root" {
        return Ok(0);
    }
    find_name(&GROUPS.map(Path::new), group)
}

fn find_name(files: &[&Path], group: &str) -> anyhow::Result<u32> {
    for path in files {
        let groups = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        // The file may be written in any encoding.
        if let Some(gid) = parse_group(&String::from_utf8_lossy(&groups), group) {
            return Ok(gid);
        }
    }
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let files = files.join(" or ");
    anyhow::bail!(
        "there is no group `{group}` in {files}; make it with `groupadd --system {group}`, or give a number, as a group of a directory service needs"
    )
}

/// The number of a group by its name, in the text of such a file. The first line that has both counts.
fn parse_group(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name) && !name.is_empty();
        let gid = fields.nth(1)?;
        is_it.then(|| gid.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mode and group of the socket.
    async fn check(access: Access<'_>, expected: (u32, u32)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/socket");
        let _listening = listen_unix(&path, access).await.unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), expected, "{access:?}");
    }

    #[tokio::test]
    async fn a_socket_is_roots_or_a_groups() {
        let own = nix::unistd::getegid().as_raw();
        check(Access::Owner, (0o600, own)).await;
        check(Access::Group(&own.to_string()), (0o660, own)).await;
        // An ordinary user cannot give it to a group that is not its own, and then only the user has it.
        let may = nix::unistd::geteuid().is_root();
        check(Access::Group("root"), if may { (0o660, 0) } else { (0o600, own) }).await;
        check(Access::Group("no such group"), (0o600, own)).await;
    }

    /// Of daemons that start at the same time on one path, whatever their state directories, one gets it.
    #[tokio::test]
    async fn one_of_several_that_start_together_gets_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        for _ in 0..20 {
            let starts = (0..4).map(|_| listen_unix(&path, Access::Owner));
            let started = futures::future::join_all(starts).await;
            let (got, refused): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
            assert_eq!((got.len(), refused.len()), (1, 3));
            for error in refused {
                assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
            }
            UnixStream::connect(&path).await.unwrap();
        }
    }

    #[test]
    fn a_group_is_found_by_name_in_the_file() {
        let groups = "root:x:0:\n\n# ops:x:1:\nops\nops:x\nops:x:many:\n ops:x:2:\nops:x:27:ann,bob\nops:x:28:\n+:::\nlast:!:4294967294";
        for (name, expected) in [
            ("root", Some(0)),
            ("ops", Some(27)),
            ("last", Some(4_294_967_294)),
            ("", None),
            ("x", None),
            ("op", None),
            ("ann", None),
            ("Ops", None),
        ] {
            assert_eq!(parse_group(groups, name), expected, "{name}");
        }
        assert_eq!(parse_group("", "root"), None);
    }

    #[test]
    fn a_group_of_the_systems_image_is_found_where_the_node_has_none_of_this_name() {
        let dir = tempfile::tempdir().unwrap();
        let [node, image, absent] = ["node", "image", "absent"].map(|it| dir.path().join(it));
        std::fs::write(&node, "root:x:0:\nops:x:27:\n").unwrap();
        std::fs::write(&image, "ops:x:28:\nwheel:x:10:\n").unwrap();
        let files = [node.as_path(), absent.as_path(), image.as_path()];
        let find = |files: &[&Path], name| find_name(files, name).ok();
        assert_eq!(["root", "ops", "wheel"].map(|it| find(&files, it)), [0, 27, 10].map(Some));
        assert_eq!(["root", "wheel"].map(|it| find(&files[1..], it)), [None, Some(10)]);
        let error = find_name(&files, "none").unwrap_err().to_string();
        let names = format!("`none` in {} or {}", node.display(), absent.display());
        assert!(error.contains(&names), "{error}");
        let error = find_name(&[dir.path()], "root").unwrap_err().to_string();
        assert_eq!(error, format!("cannot read {}", dir.path().display()));
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
