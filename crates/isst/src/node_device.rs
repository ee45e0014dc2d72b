//! The device of a node, by names and texts. In: a root with `dev` in it. Out: texts, or what the kernel answers.
//!
//! It is the kernel's character device. In a tree that stands for a machine it may be a socket, to which each question is a connection of its own: `read NAME` or `write NAME TEXT` and a line end,
//! answered with `ok TEXT` or `errno NUMBER`. What answers there holds a fake device, so that a daemon meets its refusals.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bayplan_types::SPEED_SELECT_DEVICE;
use nix::errno::Errno;

use crate::Device;
use crate::device::IsstDevice;
use crate::settings::SpeedSelect;

/// A stand-in answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// The device of a node.
#[derive(Debug)]
pub struct NodeDevice(Kind);

#[derive(Debug)]
enum Kind {
    Kernel(SpeedSelect<IsstDevice>),
    StandIn(PathBuf),
}

impl NodeDevice {
    /// Opens it below a root.
    ///
    /// # Errors
    /// `ENOENT` where there is none: another processor, or the driver is not loaded. `ENODEV` where something else is in its place, `EOPNOTSUPP` where the driver speaks of mailboxes only;
    /// otherwise what the kernel answers.
    pub fn open(root: &Path) -> Result<NodeDevice, Errno> {
        let path = root.join(SPEED_SELECT_DEVICE);
        let kind = fs::metadata(&path).map_err(|error| errno_of(&error))?.file_type();
        if kind.is_socket() {
            return Ok(NodeDevice(Kind::StandIn(path)));
        }
        if !kind.is_char_device() {
            return Err(Errno::ENODEV);
        }
        let device = IsstDevice::open(root).map_err(|error| errno_of(&error))?;
        Ok(NodeDevice(Kind::Kernel(SpeedSelect::new(device)?)))
    }

    /// The text of a setting.
    ///
    /// # Errors
    /// As [`SpeedSelect::read`].
    pub fn read(&mut self, name: &str) -> Result<String, Errno> {
        match &mut self.0 {
            Kind::Kernel(settings) => settings.read(name),
            Kind::StandIn(path) => ask(path, &format!("read {name}")).map(|text| text + "\n"),
        }
    }

    /// Gives a setting this text.
    ///
    /// # Errors
    /// As [`SpeedSelect::write`].
    pub fn write(&mut self, name: &str, text: &str) -> Result<(), Errno> {
        match &mut self.0 {
            Kind::Kernel(settings) => settings.write(name, text),
            Kind::StandIn(path) => ask(path, &format!("write {name} {}", text.trim())).map(drop),
        }
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EPROTO, Errno::from_raw)
}

fn ask(path: &Path, question: &str) -> Result<String, Errno> {
    let talk = || -> io::Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{question}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(|error| errno_of(&error))?;
    let (word, rest) = answer.trim_end_matches('\n').split_once(' ').ok_or(Errno::EPROTO)?;
    match word {
        "ok" => Ok(rest.to_owned()),
        "errno" => Err(rest.parse().map_or(Errno::EPROTO, Errno::from_raw)),
        _ => Err(Errno::EPROTO),
    }
}

/// What a stand-in answers to one question; both are lines without their ends.
pub fn answer<D: Device>(settings: &mut SpeedSelect<D>, question: &str) -> String {
    let answer = match question.split_once(' ') {
        Some(("read", name)) => settings.read(name),
        Some(("write", rest)) => {
            let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
            settings.write(name, text).map(|()| String::new())
        }
        _ => Err(Errno::EPROTO),
    };
    match answer {
        Ok(text) => format!("ok {}", text.trim_end()),
        Err(errno) => format!("errno {}", errno as i32),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::FakeDevice;

    #[test]
    fn a_stand_in_answers_for_a_fake_device() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(NodeDevice::open(root.path()).err(), Some(Errno::ENOENT));
        fs::create_dir_all(root.path().join("dev")).unwrap();
        let listener = UnixListener::bind(root.path().join(SPEED_SELECT_DEVICE)).unwrap();
        let mut settings = SpeedSelect::new(FakeDevice::new(1, 1, 4)).unwrap();
        let stand_in = thread::spawn(move || {
            for stream in listener.incoming().take(6) {
                let mut stream = stream.unwrap();
                let mut question = String::new();
                BufReader::new(&stream).read_line(&mut question).unwrap();
                let answer = answer(&mut settings, question.trim_end());
                stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        });
        let mut device = NodeDevice::open(root.path()).unwrap();
        assert_eq!(device.read("0.0/core_power").unwrap(), "off\n");
        assert_eq!(device.write("0.0/core_power", "ordered\n"), Ok(()));
        assert_eq!(device.read("0.0/core_power").unwrap(), "ordered\n");
        assert_eq!(device.write("0.0/core1/clos", "4"), Err(Errno::EINVAL));
        assert_eq!(device.write("0.0/profile", ""), Err(Errno::EACCES));
        assert_eq!(device.read("0.0/none"), Err(Errno::ENOENT));
        stand_in.join().unwrap();
        assert_eq!(device.read("0.0/core_power"), Err(Errno::ECONNREFUSED));
    }

    #[test]
    fn something_else_in_its_place_is_no_device() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(SPEED_SELECT_DEVICE)).unwrap();
        assert_eq!(NodeDevice::open(root.path()).err(), Some(Errno::ENODEV));
    }
}
