//! Other programs on this node that give CPUs to containers. In: processes, and the file in which the DRA CPU driver says which CPUs are claimed.
//! Out: command lines (proc_pid_cmdline(5)), and a set of CPUs (the Container Device Interface specification, "CDI JSON Specification").

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bayplan_types::{CpuSet, ParseSetError};
use serde_json::Value;

/// Below the root: `/run/cdi`, and not `/var/run/cdi`, which is a link that leads out of a root that is mounted elsewhere. The driver's
/// specification of the Container Device Interface has a device for each claim, from before the container is made until after it is
/// gone, and with it a variable `DRA_CPUSET_CLAIM=CPUS` (kubernetes-sigs/dra-driver-cpu, `pkg/driver/cdi.go`).
pub const CLAIMS_FILE: &str = "run/cdi/dra.cpu.json";
const CLAIM_VARIABLE: &str = "DRA_CPUSET";
const BYTES_MAX: u64 = 1 << 20;

/// Why the file of claims could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// It could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It is no JSON; perhaps it is just being written.
    #[error("{} is not JSON", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A claim has something else than CPUs.
    #[error("{} has `{variable}`, which is not a CPU list", path.display())]
    Cpus {
        /// The file.
        path: PathBuf,
        /// Name and value.
        variable: String,
        /// What is wrong with it.
        #[source]
        source: ParseSetError,
    },
}

/// CPUs that are claimed of the DRA CPU driver; none where it is not there.
///
/// # Errors
/// [`ClaimsError`].
pub fn read_claimed_cpus(root: &Path) -> Result<CpuSet, ClaimsError> {
    let path = root.join(CLAIMS_FILE);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => parse_claims(&path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CpuSet::new()),
        Err(source) => Err(ClaimsError::Read { path, source }),
    }
}

/// `path` is for messages. An empty file has no claims: the driver reads it so, too.
fn parse_claims(path: &Path, text: &str) -> Result<CpuSet, ClaimsError> {
    if text.is_empty() {
        return Ok(CpuSet::new());
    }
    let form = |source| ClaimsError::Form { path: path.to_owned(), source };
    let specification: Value = serde_json::from_str(text).map_err(form)?;
    let devices = specification.get("devices").and_then(Value::as_array);
    let variables = devices
        .into_iter()
        .flatten()
        .filter_map(|device| device.pointer("/containerEdits/env").and_then(Value::as_array));
    let mut claimed = CpuSet::new();
    for variable in variables.flatten().filter_map(Value::as_str) {
        let Some((name, cpus)) = variable.split_once('=') else { continue };
        if name.starts_with(CLAIM_VARIABLE) {
            let cpus: CpuSet = cpus.parse().map_err(|source| ClaimsError::Cpus {
                path: path.to_owned(),
                variable: variable.to_owned(),
                source,
            })?;
            claimed.union_with(&cpus);
        }
    }
    Ok(claimed)
}

/// How a program was started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandLine {
    /// The file name of the program.
    pub program: String,
    /// What follows it.
    pub arguments: Vec<String>,
}

/// Running processes of these programs, each command line once. Processes that end while they are looked at are left out.
///
/// # Errors
/// `proc` below the root cannot be listed.
pub fn read_command_lines(root: &Path, programs: &[&str]) -> io::Result<Vec<CommandLine>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("proc"))? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if !name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let mut text = Vec::new();
        let read = File::open(entry.path().join("cmdline"))
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
        let line = read.ok().and_then(|_| parse_command_line(&text));
        found.extend(line.filter(|line| programs.contains(&line.program.as_str())));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// proc(5): arguments end with a zero byte. `None` for threads of the kernel, which have none.
fn parse_command_line(text: &[u8]) -> Option<CommandLine> {
    let text = String::from_utf8_lossy(text);
    let mut words = text.trim_end_matches('\0').split('\0').map(str::to_owned);
    let path = words.next().filter(|path| !path.is_empty())?;
    let program = Path::new(&path).file_name()?.to_string_lossy().into_owned();
    Some(CommandLine { program, arguments: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_claims(text: &str, expected: Result<&str, &str>) {
        let claimed = parse_claims(Path::new("FILE"), text);
        let claimed = claimed.map(|cpus| cpus.to_string()).map_err(|error| error.to_string());
        assert_eq!(claimed, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
    }

    #[test]
    fn claims_are_read_out_of_the_drivers_specification() {
        check_claims(
            r#"{"cdiVersion":"0.8.0","kind":"dra.k8s.io/cpu","devices":[
                {"name":"claim-1","containerEdits":{"env":["DRA_CPUSET_1=2-3,10","OTHER=7"]}},
                {"name":"claim-2","containerEdits":{"env":["DRA_CPUSET_2=4"]}}]}"#,
            Ok("2-4,10"),
        );
        for none in
            ["", "{}", r#"{"devices":[]}"#, r#"{"devices":[{"containerEdits":{"env":[7]}}]}"#]
        {
            check_claims(none, Ok(""));
        }
        check_claims("{", Err("FILE is not JSON"));
        check_claims(
            r#"{"devices":[{"containerEdits":{"env":["DRA_CPUSET_1=x"]}}]}"#,
            Err("FILE has `DRA_CPUSET_1=x`, which is not a CPU list"),
        );
    }

    #[test]
    fn processes_are_found_by_the_name_of_their_program() {
        let root = tempfile::tempdir().unwrap();
        for (pid, cmdline) in [
            ("1", &b"/sbin/init\0"[..]),
            ("2", b""),
            ("30", b"/usr/bin/kubelet\0--config\0/etc/k.yaml\0"),
            ("31", b"grep\0kubelet\0"),
            ("32", b"koordlet\0"),
            ("33", b"koordlet\0"),
            ("self", b"kubelet\0"),
        ] {
            let dir = root.path().join("proc").join(pid);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cmdline"), cmdline).unwrap();
        }
        fs::create_dir(root.path().join("proc/34")).unwrap();
        let found = read_command_lines(root.path(), &["kubelet", "koordlet"]).unwrap();
        let shown: Vec<String> =
            found.iter().map(|it| format!("{} {}", it.program, it.arguments.join(" "))).collect();
        assert_eq!(shown, ["koordlet ", "kubelet --config /etc/k.yaml"]);
        assert!(read_command_lines(Path::new("/nonexistent"), &[]).is_err());
    }
}
