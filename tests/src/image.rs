//! A container image without a registry. In: a static busybox. Out: an OCI archive that containerd imports.

use std::fs::File;
use std::path::Path;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The name under which the image is imported.
pub(crate) const IMAGE: &str = "bayplan.test/busybox:1";

/// Writes the archive; the same busybox gives the same bytes.
pub(crate) fn write_image(busybox: &Path, archive: &Path) -> anyhow::Result<()> {
    let layer = layer(&std::fs::read(busybox)?)?;
    let diff_id = digest(&layer);
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Entrypoint": ["/bin/busybox", "sleep", "1000000"] },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [blob("application/vnd.oci.image.layer.v1.tar", &layer)],
    })
    .to_string();
    let mut entry = blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    entry["annotations"] = json!({ "io.containerd.image.name": IMAGE });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] }).to_string();

    let mut tar = Builder::new(File::create(archive)?);
    add(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add(&mut tar, "index.json", index.as_bytes())?;
    for bytes in [layer.as_slice(), config.as_bytes(), manifest.as_bytes()] {
        let name = digest(bytes).replace(':', "/");
        add(&mut tar, &format!("blobs/{name}"), bytes)?;
    }
    tar.into_inner()?.sync_all()?;
    Ok(())
}

fn layer(busybox: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for dir in ["bin/", "etc/", "proc/", "sys/", "dev/", "tmp/"] {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        tar.append_data(&mut header, dir, [].as_slice())?;
    }
    add(&mut tar, "bin/busybox", busybox)?;
    Ok(tar.into_inner()?)
}

fn add(tar: &mut Builder<impl std::io::Write>, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)?;
    Ok(())
}

fn blob(media_type: &str, bytes: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
}

fn digest(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}")
}
