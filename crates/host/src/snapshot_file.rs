//! Kernel files in one file: what `bayplan snapshot` writes. Plain text, or the same compressed with gzip.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::kernel_files::{FilesError, KernelFiles};

/// What a snapshot may have when it is unpacked; the largest machines have a tenth of it.
const BYTES_MAX: u64 = 256 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// The file cannot be read, or is cut off or damaged.
    #[error("cannot read the snapshot {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel or the decompressor said.
        #[source]
        source: io::Error,
    },
    /// The file is too large.
    #[error("{} holds more than {} MiB; expected a snapshot written by `bayplan snapshot`", path.display(), BYTES_MAX >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text is not a snapshot.
    #[error("{}: {source}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Which line, and what is wrong with it.
        source: FilesError,
    },
}

/// Reads a snapshot, compressed or not.
///
/// # Errors
/// [`SnapshotFileError`].
pub fn read_snapshot_file(path: &Path) -> Result<KernelFiles, SnapshotFileError> {
    let failed = |source| SnapshotFileError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    let is_packed = bytes.starts_with(&GZIP_MAGIC);
    let mut text = Vec::new();
    if is_packed {
        let unpacked = MultiGzDecoder::new(bytes.as_slice()).take(BYTES_MAX + 1);
        { unpacked }.read_to_end(&mut text).map_err(failed)?;
    } else {
        text = bytes;
    }
    if text.len() as u64 > BYTES_MAX {
        return Err(SnapshotFileError::TooLarge { path: path.to_owned() });
    }
    let parsed = KernelFiles::parse(&String::from_utf8_lossy(&text));
    parsed.map_err(|source| SnapshotFileError::Text { path: path.to_owned(), source })
}

/// The bytes of a snapshot, compressed or not.
///
/// # Errors
/// None is known: compressing into memory does not fail.
pub fn pack_snapshot(files: &KernelFiles, is_packed: bool) -> io::Result<Vec<u8>> {
    let text = files.render();
    if !is_packed {
        return Ok(text.into_bytes());
    }
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(text.as_bytes())?;
    packer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_files::Entry;

    fn files() -> KernelFiles {
        let mut files = KernelFiles::default();
        files.insert("sys/devices/system/cpu/online", Entry::Text("0-3".to_owned()));
        files
    }

    #[test]
    fn what_was_packed_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for is_packed in [false, true] {
            let path = dir.path().join("snapshot");
            std::fs::write(&path, pack_snapshot(&files(), is_packed).unwrap()).unwrap();
            assert_eq!(read_snapshot_file(&path).unwrap(), files());
        }
    }

    #[test]
    fn what_is_no_snapshot_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let packed = pack_snapshot(&files(), true).unwrap();
        let cut = &packed[..packed.len() / 2];
        for (bytes, error) in [
            (&b"hello"[..], "line 1: `hello`; expected the line"),
            (b"", "line 1: ``; expected the line"),
            (cut, "cannot read the snapshot"),
            (b"bayplan-files/1\nsys/../x 1\n", "line 2: `sys/../x`; expected a path"),
        ] {
            let path = dir.path().join("snapshot");
            std::fs::write(&path, bytes).unwrap();
            let text = read_snapshot_file(&path).unwrap_err().to_string();
            assert!(text.contains(error) && text.contains("snapshot"), "{text}");
        }
    }
}
