//! irqbalance's socket as a file: it reads as the list of CPUs that irqbalance leaves alone, and takes another one (irqbalance(1), "API").
//!
//! `setup` tells the CPUs of its last scan, every ten seconds; `settings cpus LIST` holds from the next one on, and until it ends. So what it was told reads as
//! told until it tells something else than before. Nothing as a list gives it back its own configuration.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bayplan_types::CpuSet;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// Where its sockets are, below the root: one for each that runs, which is one.
pub(crate) const IRQBALANCE: &str = "run/irqbalance";

/// It answers between two scans, which take milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// Banned interrupts are in it, too, some 60 bytes each.
const ANSWER_MAX: u64 = 1024 * 1024;

/// Whether this is the path of a socket of irqbalance.
pub(crate) fn is_balancer(path: &str) -> bool {
    let name = path.strip_prefix(IRQBALANCE).and_then(|it| it.strip_prefix("/irqbalance"));
    name.is_some_and(|name| name.ends_with(".sock"))
}

/// What each of them was told, and what it has answered before that.
#[derive(Debug, Default)]
pub(crate) struct Balancers {
    told: BTreeMap<String, (CpuSet, CpuSet)>,
}

impl Balancers {
    pub(crate) fn read(&mut self, root: &Path, path: &str) -> Result<String, Errno> {
        let answer = banned_in(&ask(root, path, "setup")?).ok_or(Errno::EPROTO)?;
        match self.told.get(path) {
            Some((told, before)) if answer == *before => Ok(told.to_string()),
            _ => {
                // From now on what it says is what holds.
                self.told.remove(path);
                Ok(answer.to_string())
            }
        }
    }

    pub(crate) fn write(&mut self, root: &Path, path: &str, text: &str) -> Result<(), Errno> {
        let cpus: CpuSet = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        let before = banned_in(&ask(root, path, "setup")?).ok_or(Errno::EPROTO)?;
        let list = if cpus.is_empty() { "NULL".to_owned() } else { cpus.to_string() };
        ask(root, path, &format!("settings cpus {list}"))?;
        self.told.insert(path.to_owned(), (cpus, before));
        Ok(())
    }
}

/// It answers and closes; to a process that is not root with nothing.
fn ask(root: &Path, path: &str, text: &str) -> Result<String, Errno> {
    let mut stream = connect_to(&root.join(path)).map_err(|errno| match errno {
        // No process listens any more.
        Errno::ECONNREFUSED => Errno::ENOENT,
        errno => errno,
    })?;
    let mut talk = || -> std::io::Result<String> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(text.as_bytes())?;
        let mut answer = String::new();
        (&mut stream).take(ANSWER_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    };
    talk().map_err(|error| error.raw_os_error().map_or(Errno::EPROTO, Errno::from_raw))
}

/// Does not wait where others wait already, as at one that is stopped (EAGAIN; unix(7)).
fn connect_to(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// `SLEEP 10 IRQ 5 LOAD 0 ... BANNED 00000000,0000000c`
fn banned_in(answer: &str) -> Option<CpuSet> {
    let (_, mask) = answer.rsplit_once("BANNED ")?;
    CpuSet::parse_mask(mask.trim_end_matches(['\0', '\n', ' '])).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::kernel::{DiskKernel, Kernel as _};

    const SOCKET: &str = "run/irqbalance/irqbalance77.sock";

    /// Answers each question with the next of these, and gives back what it was asked.
    fn balancer(root: &Path, answers: &'static [&'static str]) -> thread::JoinHandle<Vec<String>> {
        std::fs::create_dir_all(root.join(IRQBALANCE)).unwrap();
        let listener = UnixListener::bind(root.join(SOCKET)).unwrap();
        thread::spawn(move || {
            let answer = |answer: &&str| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 500];
                let length = stream.read(&mut buffer).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&buffer[..length]).into_owned()
            };
            answers.iter().map(answer).collect()
        })
    }

    #[test]
    fn what_it_was_told_is_read_back_until_it_says_something_else() {
        let root = tempfile::tempdir().unwrap();
        let asked = balancer(
            root.path(),
            &[
                "SLEEP 10 BANNED 00000002",
                "SLEEP 10 BANNED 00000002",
                "",
                "SLEEP 10 IRQ 5 LOAD 0 DIFF 0 CLASS 0 BANNED 00000002",
                "SLEEP 10 BANNED 0000000e",
                "SLEEP 10 BANNED 00000002",
                "SLEEP 10 BANNED 00000002",
                "",
                "",
            ],
        );
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        let mut read = || kernel.read(SOCKET).map_err(|errno| errno.to_string());
        assert_eq!(read().unwrap(), "1");
        kernel.write(SOCKET, "1-3").unwrap();
        let mut read = || kernel.read(SOCKET);
        // Not scanned yet; scanned; another program has told it something.
        assert_eq!([read(), read(), read()], ["1-3", "1-3", "1"].map(|it| Ok(it.to_owned())));
        kernel.write(SOCKET, "\n").unwrap();
        assert_eq!(kernel.read(SOCKET), Err(Errno::EPROTO));
        assert_eq!(kernel.write(SOCKET, "x"), Err(Errno::EINVAL));
        let asked: Vec<String> =
            asked.join().unwrap().into_iter().filter(|it| it != "setup").collect();
        assert_eq!(asked, ["settings cpus 1-3", "settings cpus NULL"]);
        // It has ended, and its socket is still there.
        assert_eq!(kernel.read(SOCKET), Err(Errno::ENOENT));
    }

    /// A daemon that does not answer is not waited for.
    #[test]
    fn one_that_does_not_answer_is_told_to_be_so() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(IRQBALANCE)).unwrap();
        let listener = UnixListener::bind(root.path().join(SOCKET)).unwrap();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let _waits = connect_to(&root.path().join(SOCKET)).unwrap();
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        assert_eq!(kernel.read(SOCKET), Err(Errno::EAGAIN));
    }

    #[test]
    fn masks_are_read_and_anything_else_is_not() {
        let rows = [
            ("SLEEP 10 BANNED 00000001,00000002", Some("1,32")),
            ("SLEEP 10 BANNED 0", Some("")),
            ("SLEEP 10 BANNED ", None),
            ("SLEEP 10", None),
            ("", None),
        ];
        for (answer, cpus) in rows {
            assert_eq!(banned_in(answer).map(|it| it.to_string()).as_deref(), cpus, "{answer}");
        }
    }
}
