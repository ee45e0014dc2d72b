//! A character device that this program answers for (CUSE; fs/fuse/cuse.c, fs/fuse/ioctl.c, include/uapi/linux/fuse.h). In: a name below `/dev`, and a driver. Out: the device until this is dropped;
//! ioctls of other processes become calls of the driver.
//!
//! As in a driver of the kernel, the driver says how many bytes it copies from the caller and back; the size in an ioctl's number counts for nothing (`CUSE_UNRESTRICTED_IOCTL`). So the kernel asks twice: first
//! without the caller's bytes, which is answered with where they are (`FUSE_IOCTL_RETRY`), and then with them. No maintained crate speaks this part of the protocol.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail, ensure};
use nix::errno::Errno;

use crate::Needs;

const CHANNEL: &str = "/dev/cuse";

/// Bytes that are copied from the caller, and back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    pub(crate) from: u32,
    pub(crate) back: u32,
}

/// An ioctl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) number: u32,
    /// The caller, by its thread.
    pub(crate) thread: u32,
    pub(crate) bytes: &'a [u8],
}

/// What is behind a device.
pub(crate) trait Driver: Send + 'static {
    /// What an ioctl of this number copies.
    fn copies(&self, number: u32) -> Result<Copies, Errno>;
    /// The ioctl's value, and what is copied back.
    fn ioctl(&mut self, call: Call<'_>) -> Result<(i32, Vec<u8>), Errno>;
}

/// For tests that make a device.
pub(crate) fn has_cuse() -> Needs {
    if Path::new(CHANNEL).exists() {
        Ok(())
    } else {
        Err("no /dev/cuse (the kernel's module cuse)")
    }
}

/// A device; gone when dropped.
#[derive(Debug)]
pub(crate) struct Device {
    abort: PathBuf,
    server: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Device {
    /// Makes `/dev/NAME`.
    pub(crate) fn make(name: &str, driver: impl Driver) -> anyhow::Result<Device> {
        let channel = File::options().read(true).write(true).open(CHANNEL);
        let mut server = Server { channel: channel.context(CHANNEL)?, driver };
        server.make(name)?;
        // The kernel has made it when the answer is written, or has said in its log why not.
        ensure!(Path::new("/dev").join(name).exists(), "the kernel has made no /dev/{name}");
        let abort = Path::new("/sys/class/cuse").join(name).join("abort");
        Ok(Device { abort, server: Some(std::thread::spawn(move || server.serve())) })
    }

    /// As when a driver is gone while its device is open.
    pub(crate) fn remove(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        if !server.is_finished() {
            fs::write(&self.abort, "1").with_context(|| format!("{}", self.abort.display()))?;
        }
        server.join().unwrap_or_else(|_| bail!("the driver has panicked"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            println!("  the device: {error:#}");
        }
    }
}

/// `FUSE_KERNEL_VERSION`.
const VERSION: u32 = 7;
/// The least that is needed: `struct fuse_ioctl_iovec`.
const MINOR: u32 = 16;
const CUSE_INIT: u32 = 4096;
const CUSE_UNRESTRICTED_IOCTL: u32 = 1 << 0;
const FUSE_OPEN: u32 = 14;
const FUSE_RELEASE: u32 = 18;
const FUSE_INTERRUPT: u32 = 36;
const FUSE_IOCTL: u32 = 39;
const FUSE_IOCTL_RETRY: u32 = 1 << 2;
/// No request is larger, as long as no driver copies more than a page.
const REQUEST_MAX: usize = 64 << 10;

struct Server<D> {
    channel: File,
    driver: D,
}

/// `struct fuse_in_header`, and what follows.
struct Asked {
    code: u32,
    unique: u64,
    thread: u32,
    body: Vec<u8>,
}

impl<D: Driver> Server<D> {
    /// Answers the first question: `struct cuse_init_out`, then words of the form KEY=VALUE.
    fn make(&mut self, name: &str) -> anyhow::Result<()> {
        let asked = self.read()?.context("aborted")?;
        ensure!(asked.code == CUSE_INIT, "operation {} and not CUSE_INIT", asked.code);
        let (version, minor) = (u32_at(&asked.body, 0)?, u32_at(&asked.body, 4)?);
        ensure!(version == VERSION && minor >= MINOR, "the kernel speaks FUSE {version}.{minor}");
        let mut out = Vec::new();
        // Version, an unused word, flags, the largest read and write, major and minor number (any), ten spare words.
        let head = [VERSION, MINOR, 0, CUSE_UNRESTRICTED_IOCTL, 4096, 4096, 0, 0];
        head.into_iter().chain([0; 10]).for_each(|it| out.extend(it.to_ne_bytes()));
        out.extend(format!("DEVNAME={name}\0").into_bytes());
        self.answer(&asked, Ok(out))
    }

    /// Until the device is removed.
    fn serve(mut self) -> anyhow::Result<()> {
        while let Some(asked) = self.read()? {
            let out = match asked.code {
                // `struct fuse_open_out`: a handle, flags, padding.
                FUSE_OPEN => Ok(vec![0; 16]),
                FUSE_RELEASE => Ok(Vec::new()),
                FUSE_IOCTL => self.ioctl(&asked)?,
                // Has no answer; that to the ioctl comes all the same.
                FUSE_INTERRUPT => continue,
                _ => Err(Errno::ENOSYS),
            };
            self.answer(&asked, out)?;
        }
        Ok(())
    }

    /// `None`: aborted.
    fn read(&mut self) -> anyhow::Result<Option<Asked>> {
        let mut bytes = vec![0; REQUEST_MAX];
        loop {
            match self.channel.read(&mut bytes) {
                Ok(length) => bytes.truncate(length),
                // The caller was killed before this was read.
                Err(error)
                    if [ErrorKind::Interrupted, ErrorKind::NotFound].contains(&error.kind()) =>
                {
                    continue;
                }
                Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => {
                    return Ok(None);
                }
                Err(error) => return Err(error).context(CHANNEL),
            }
            let unique = u64_at(&bytes, 8)?;
            let (code, thread) = (u32_at(&bytes, 4)?, u32_at(&bytes, 32)?);
            return Ok(Some(Asked { code, unique, thread, body: bytes.split_off(40) }));
        }
    }

    /// `struct fuse_out_header`, and what follows.
    fn answer(&mut self, asked: &Asked, out: Result<Vec<u8>, Errno>) -> anyhow::Result<()> {
        let (error, body) = match out {
            Ok(body) => (0, body),
            Err(errno) => (-(errno as i32), Vec::new()),
        };
        let mut bytes = u32::try_from(16 + body.len())?.to_ne_bytes().to_vec();
        bytes.extend(error.to_ne_bytes());
        bytes.extend(asked.unique.to_ne_bytes());
        bytes.extend(body);
        match self.channel.write(&bytes) {
            // Its caller is gone, or the device.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }

    /// `struct fuse_ioctl_in`: handle, flags, number, address, sizes of what was and will be copied. Out: `struct fuse_ioctl_out` and bytes, or the two `struct fuse_ioctl_iovec`.
    fn ioctl(&mut self, asked: &Asked) -> anyhow::Result<Result<Vec<u8>, Errno>> {
        let (number, address) = (u32_at(&asked.body, 12)?, u64_at(&asked.body, 16)?);
        let given = Copies { from: u32_at(&asked.body, 24)?, back: u32_at(&asked.body, 28)? };
        let copies = match self.driver.copies(number) {
            Ok(copies) => copies,
            Err(errno) => return Ok(Err(errno)),
        };
        let out =
            |words: [u32; 4]| words.into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>();
        if given != copies {
            let mut again = out([0, FUSE_IOCTL_RETRY, 1, 1]);
            for size in [copies.from, copies.back] {
                again.extend(address.to_ne_bytes());
                again.extend(u64::from(size).to_ne_bytes());
            }
            return Ok(Ok(again));
        }
        let bytes = asked.body.get(32..).context("a short request")?;
        ensure!(bytes.len() == usize::try_from(copies.from)?, "{} bytes", bytes.len());
        let called = self.driver.ioctl(Call { number, thread: asked.thread, bytes });
        Ok(called.map(|(value, back)| [out([value.cast_unsigned(), 0, 0, 0]), back].concat()))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> anyhow::Result<u32> {
    let found = bytes.get(at..at + 4).and_then(|it| it.try_into().ok());
    Ok(u32::from_ne_bytes(found.context("a short request")?))
}

fn u64_at(bytes: &[u8], at: usize) -> anyhow::Result<u64> {
    let found = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
    Ok(u64::from_ne_bytes(found.context("a short request")?))
}
