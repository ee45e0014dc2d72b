//! `cargo xtask image`: the image of daemon and agent as one file. In: a program. Out: an OCI image layout in a tar, which `ctr images import`, `podman load` and `skopeo copy
//! oci-archive:` take; no registry and no Docker are needed.
//!
//! It has one layer: the program, with its libraries unless it is static, and names for the agent's user and group. The bill of materials of
//! `cargo xtask package` lies in it, if there is one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::program;
use crate::workspace;

pub(crate) const HELP: &str = "\
cargo xtask image [PROGRAM]
                         make target/image/bayplan.tar, an OCI image of daemon and agent, of PROGRAM: that of `cargo xtask package`, or a static one that is built for it
";

const USER: u32 = 65532;
const PACKAGED: &str = "target/package/bayplan";
const MATERIALS: &str = "target/package/bayplan.cdx.json";

pub(crate) fn run(program: Option<&str>) -> anyhow::Result<()> {
    let packaged = workspace().join(PACKAGED);
    let program = match program {
        Some(path) => path.into(),
        None if packaged.exists() => packaged,
        None => program::build_static()?,
    };
    let bytes = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let materials = fs::read(workspace().join(MATERIALS)).ok();
    let libraries = if is_static(&bytes) { Vec::new() } else { read_libraries(&program)? };
    let image = image(&bytes, &libraries, materials.as_deref(), architecture(&bytes)?)?;
    let out = workspace().join("target/image");
    fs::create_dir_all(&out)?;
    let file = out.join("bayplan.tar");
    fs::write(&file, &image)?;
    println!("{:8} KiB  {}", image.len() / 1024, file.display());
    Ok(())
}

/// By the program's own header.
pub(crate) fn architecture(elf: &[u8]) -> anyhow::Result<&'static str> {
    ensure!(elf.starts_with(b"\x7fELF"), "expected a program in ELF");
    match elf.get(18..20) {
        Some([0x3e, 0]) => Ok("amd64"),
        Some([0xb7, 0]) => Ok("arm64"),
        machine => anyhow::bail!("machine {machine:?} of the program, expected x86-64 or aarch64"),
    }
}

/// Whether no segment of the program names an interpreter, which loads its libraries (elf(5), `PT_INTERP`).
fn is_static(elf: &[u8]) -> bool {
    const INTERPRETER: [u8; 4] = [3, 0, 0, 0];
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size).unwrap_or_default();
        bytes.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    !(0..count).any(|it| {
        let at = headers.saturating_add(it * size);
        elf.get(at..at.saturating_add(4)) == Some(&INTERPRETER)
    })
}

/// A library, or what loads libraries: its path without the first slash, and the file.
type Library = (String, Vec<u8>);

/// Of a program for this machine.
fn read_libraries(program: &Path) -> anyhow::Result<Vec<Library>> {
    let name = program.display();
    let told = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    ensure!(
        told.status.success(),
        "{name} is linked dynamically, and ldd cannot tell with what; expected a static program, or one for this machine"
    );
    let paths = library_paths(&String::from_utf8_lossy(&told.stdout));
    let read = |path: String| {
        let bytes = fs::read(format!("/{path}")).with_context(|| format!("cannot read /{path}"))?;
        Ok((path, bytes))
    };
    paths.into_iter().map(read).collect()
}

/// Of what ldd prints: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)`.
fn library_paths(told: &str) -> Vec<String> {
    let path = |line: &str| {
        let (_, found) = line.split_once("=>").unwrap_or(("", line));
        let path = found.split_whitespace().next()?;
        Some(path.strip_prefix('/')?.to_owned())
    };
    told.lines().filter_map(path).collect()
}

/// The layout. The same program gives the same bytes.
fn image(
    program: &[u8],
    libraries: &[Library],
    materials: Option<&[u8]>,
    architecture: &str,
) -> anyhow::Result<Vec<u8>> {
    let passwd = format!("root:x:0:0::/:\nagent:x:{USER}:{USER}::/:\n");
    let group = format!("root:x:0:\nagent:x:{USER}:\n");
    let mut layer = vec![
        ("etc/passwd", 0o644, passwd.as_bytes()),
        ("etc/group", 0o644, group.as_bytes()),
        ("usr/bin/bayplan", 0o755, program),
    ];
    layer.extend(libraries.iter().map(|(path, bytes)| (path.as_str(), 0o755, bytes.as_slice())));
    layer.extend(materials.map(|it| ("usr/share/bayplan/bayplan.cdx.json", 0o644, it)));
    let config = json!({
        "User": format!("{USER}:{USER}"),
        "Entrypoint": ["/usr/bin/bayplan"],
        "Labels": {
            "org.opencontainers.image.title": "bayplan",
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        },
    });
    let name = format!("docker.io/library/bayplan:{}", env!("CARGO_PKG_VERSION"));
    layout(&name, architecture, &config, &layer)
}

/// An image of one layer with these files. `name` is that under which it is imported, with a tag.
pub(crate) fn layout(
    name: &str,
    architecture: &str,
    config: &Json,
    files: &[(&str, u32, &[u8])],
) -> anyhow::Result<Vec<u8>> {
    let layer = archive(files)?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        "history": [{ "created_by": "cargo xtask image" }],
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [described("application/vnd.oci.image.layer.v1.tar", &layer)],
    })
    .to_string();
    let mut of_index = described("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    let (_, tag) = name.rsplit_once(':').context("an image's name has a tag")?;
    of_index["platform"] = json!({ "architecture": architecture, "os": "linux" });
    of_index["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": tag,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [of_index],
    })
    .to_string();
    let blob = |bytes: &[u8]| format!("blobs/{}", digest(bytes).replace(':', "/"));
    let names = [blob(config.as_bytes()), blob(manifest.as_bytes()), blob(&layer)];
    archive(&[
        ("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#),
        ("index.json", 0o644, index.as_bytes()),
        (&names[0], 0o644, config.as_bytes()),
        (&names[1], 0o644, manifest.as_bytes()),
        (&names[2], 0o644, &layer),
    ])
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn described(kind: &str, bytes: &[u8]) -> Json {
    json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() })
}

/// Files of root, without times, and the directories that they lie in.
fn archive(files: &[(&str, u32, &[u8])]) -> anyhow::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut made: Vec<&Path> = Vec::new();
    for (path, mode, bytes) in files {
        let mut above: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
        above.retain(|it| !it.as_os_str().is_empty() && !made.contains(it));
        for dir in above.into_iter().rev() {
            made.push(dir);
            let mut header = header(0o755, 0);
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, format!("{}/", dir.display()), &[][..])?;
        }
        builder.append_data(&mut header(*mode, bytes.len()), path, *bytes)?;
    }
    Ok(builder.into_inner()?)
}

fn header(mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let (name, mut bytes) = (entry.path().unwrap().display().to_string(), Vec::new());
            entry.read_to_end(&mut bytes).unwrap();
            (name, bytes)
        });
        entries.collect()
    }

    #[test]
    fn every_part_is_found_by_its_digest() {
        let elf = [&b"\x7fELF"[..], &[0; 14], &[0xb7, 0]].concat();
        let bill = Some(&b"a bill of materials"[..]);
        let image = image(&elf, &[], bill, architecture(&elf).unwrap()).unwrap();
        let files = files(&image);
        let parse = |bytes: &[u8]| serde_json::from_slice::<Json>(bytes).unwrap();
        let blob = |of: &Json| {
            let digest = of["digest"].as_str().unwrap();
            let bytes = &files[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(
                (super::digest(bytes), of["size"].as_u64()),
                (digest.to_owned(), Some(bytes.len() as u64))
            );
            bytes
        };
        let index = parse(&files["index.json"]);
        assert_eq!(index["manifests"][0]["platform"]["architecture"], "arm64");
        let manifest = parse(blob(&index["manifests"][0]));
        let config = parse(blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(layer));
        let layer = self::files(layer);
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(layer["usr/bin/bayplan"], elf);
        assert_eq!(Some(&*layer["usr/share/bayplan/bayplan.cdx.json"]), bill);
        assert!(layer.contains_key("usr/bin/") && layer.contains_key("etc/passwd"));
        assert_eq!(super::image(&elf, &[], bill, "arm64").unwrap(), image);
    }

    #[test]
    fn a_program_that_loads_libraries_brings_them() {
        let told = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            library_paths(told),
            ["lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2"]
        );
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own));
        assert!(is_static(&[b"\x7fELF".as_slice(), &[0; 60]].concat()));
    }

    #[test]
    fn what_is_no_program_of_a_known_machine_is_refused() {
        for wrong in [&b"#!/bin/sh"[..], b"\x7fELF", &[b"\x7fELF".as_slice(), &[0; 16]].concat()] {
            assert!(architecture(wrong).is_err());
        }
    }
}
