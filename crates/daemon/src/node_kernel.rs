//! The kernel of a node: its files, and the device of Speed Select as if its settings were files below the device's path. So they are planned, written, read back, watched and given back as all
//! others.

use std::path::{Path, PathBuf};

use bayplan_host::kernel::{DiskKernel, Kernel};
use bayplan_host::read_speed_select;
use bayplan_isst::NodeDevice;
use bayplan_types::{SPEED_SELECT_DEVICE, SpeedSelect};
use nix::errno::Errno;

/// Files and device of a node.
#[derive(Debug)]
pub(crate) struct NodeKernel {
    root: PathBuf,
    disk: DiskKernel,
    /// Opened when it is asked first.
    device: Option<NodeDevice>,
}

impl NodeKernel {
    /// Below a root, `/` for this machine.
    ///
    /// # Errors
    /// When the root cannot be opened.
    pub(crate) fn open(root: &Path) -> std::io::Result<NodeKernel> {
        Ok(NodeKernel { root: root.to_owned(), disk: DiskKernel::open(root)?, device: None })
    }

    /// `None`: there are files in its place, as in a recorded machine.
    fn device(&mut self) -> Result<Option<&mut NodeDevice>, Errno> {
        if self.device.is_none() {
            match NodeDevice::open(&self.root) {
                Ok(device) => self.device = Some(device),
                Err(Errno::ENODEV) if self.root.join(SPEED_SELECT_DEVICE).is_dir() => {
                    return Ok(None);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(self.device.as_mut())
    }
}

/// The name of a setting of the device; `None`: it is a file.
fn setting_of(path: &str) -> Option<&str> {
    path.strip_prefix(SPEED_SELECT_DEVICE)?.strip_prefix('/')
}

impl Kernel for NodeKernel {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        if let Some(name) = setting_of(path)
            && let Some(device) = self.device()?
        {
            return device.read(name);
        }
        self.disk.read(path)
    }

    fn read_all(&mut self, paths: &[&str]) -> Vec<Result<String, Errno>> {
        let runs = paths.chunk_by(|a, b| setting_of(a).is_some() == setting_of(b).is_some());
        let mut texts = Vec::with_capacity(paths.len());
        for run in runs {
            match run.first().and_then(|path| setting_of(path)) {
                Some(_) => texts.extend(run.iter().map(|path| self.read(path))),
                None => texts.extend(self.disk.read_all(run)),
            }
        }
        texts
    }

    fn is_there(&mut self, path: &str) -> bool {
        match setting_of(path) {
            Some(_) => self.read(path).is_ok(),
            None => self.disk.is_there(path),
        }
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        if let Some(name) = setting_of(path)
            && let Some(device) = self.device()?
        {
            return device.write(name, text);
        }
        self.disk.write(path, text)
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        self.disk.list(dir)
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.disk.make_dir(dir)
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.disk.remove_dir(dir)
    }
}

/// What Speed Select says, or why it says nothing; `None`: there is no device.
pub(crate) type Asked = Option<Result<SpeedSelect, String>>;

/// Asks the device of the machine below a root.
pub(crate) fn ask_speed_select(root: &Path) -> Asked {
    match NodeKernel::open(root) {
        Ok(mut kernel) => read_speed_select(&mut kernel),
        Err(error) => Some(Err(format!("{}: {error}", root.display()))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_machine_that_cannot_be_looked_at_is_not_one_without_a_device() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(ask_speed_select(root.path()), None);
        let why = ask_speed_select(&root.path().join("none")).unwrap().unwrap_err();
        assert!(why.contains("/none: "), "{why}");
    }

    #[test]
    fn files_in_the_place_of_the_device_are_files_and_nothing_is_nothing() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys")).unwrap();
        fs::write(root.path().join("sys/a"), "1").unwrap();
        let name = format!("{SPEED_SELECT_DEVICE}/0.0/core_power");
        let mut kernel = NodeKernel::open(root.path()).unwrap();
        let read = |kernel: &mut NodeKernel| kernel.read_all(&["sys/a", &name, "sys/a"]);
        let one = || Ok("1".to_owned());
        assert_eq!(read(&mut kernel), [one(), Err(Errno::ENOENT), one()]);
        assert_eq!(kernel.write(&name, "off"), Err(Errno::ENOENT));
        let path = root.path().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "off\n").unwrap();
        assert_eq!(read(&mut kernel), [one(), Ok("off\n".to_owned()), one()]);
        kernel.write(&name, "ordered").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "ordered");
        assert!(kernel.is_there(&name));
    }
}
