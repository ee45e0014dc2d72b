//! The configuration file: as written, and as meant. In: YAML text. Out: a [`Config`], or every mistake with its line and column.

mod requests;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bayplan_allocator::Limits;
use bayplan_cri::annotations::Words;
use bayplan_cri::translate::RequestRules;
use bayplan_types::{Bytes, CpuSet};

use crate::yaml::{Node, Position, Value, parse_yaml};

/// Where `bayplan` looks when no file is named.
pub const CONFIG_PATH: &str = "/etc/bayplan/config.yaml";

/// What happens to a call that bayplan could not decide in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is forwarded unchanged and counted.
    Open,
    /// It is refused.
    Closed,
}

/// What happens to a container that asks for CPUs of its own when no pool can give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNoCapacity {
    /// It is refused; kubelet tries again, and the pod's events say what is lacking.
    #[default]
    Refuse,
    /// It runs among those who share, and counts there with all that it asks for.
    Share,
}

/// Moves that compaction tries before it takes the best plan that it has: about 5 ms on 512 CPUs.
const STATES_MAX: usize = 2000;

/// Whether and how much running containers are moved so that free CPUs lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionConfig {
    /// Whether anybody is moved.
    pub enabled: bool,
    /// What the moves after one event may cost.
    pub limits: Limits,
}

impl Default for CompactionConfig {
    fn default() -> CompactionConfig {
        let limits = Limits {
            moves_max: 8,
            cpus_max: 64,
            memory_max: None,
            gain_min_percent: 10,
            states_max: STATES_MAX,
        };
        CompactionConfig { enabled: false, limits }
    }
}

/// Everything that can be configured, with its meaning and unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Kubelet connects here.
    pub socket: PathBuf,
    /// The runtime listens here.
    pub runtime_socket: PathBuf,
    /// `bayplan status` and `bayplan explain` connect here.
    pub control_socket: PathBuf,
    /// The group that may connect there beside root, by name or number.
    pub control_group: String,
    /// Holds the journal.
    pub state_dir: PathBuf,
    /// Prometheus scrapes here; `None` when it is off.
    pub metrics_address: Option<SocketAddr>,
    /// CPUs for system pods.
    pub reserved_cpus: CpuSet,
    /// What holds for containers that say nothing themselves, and which namespaces run on the reserved CPUs.
    pub rules: RequestRules,
    /// How long kubelet's call waits for bayplan's decision.
    pub decision_timeout: Duration,
    /// How long bayplan waits for one answer of the runtime.
    pub runtime_timeout: Duration,
    /// How often the runtime is asked what runs, to find what was missed.
    pub resync_interval: Duration,
    /// What happens to undecided calls.
    pub on_failure: OnFailure,
    /// What happens to a container for whose CPUs there is no room.
    pub on_no_capacity: OnNoCapacity,
    /// Calls that may wait for a decision; those beyond are refused at once.
    pub waiting_max: usize,
    /// How long a stop waits for calls that take long, such as `StopContainer`.
    pub drain_timeout: Duration,
    /// Moving running containers.
    pub compaction: CompactionConfig,
    /// Whether memory nodes are taken away from running containers that can do with fewer.
    pub narrows_memory: bool,
    /// Directory under which `/sys` and `/proc` are read.
    pub host_root: PathBuf,
    /// A filter as of `tracing-subscriber`, for example `info` or `bayplan_cri=debug,info`.
    pub log: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            socket: "/run/bayplan/bayplan.sock".into(),
            runtime_socket: "/run/containerd/containerd.sock".into(),
            control_socket: "/run/bayplan/control.sock".into(),
            control_group: "root".to_owned(),
            state_dir: "/var/lib/bayplan".into(),
            metrics_address: Some(SocketAddr::from(([127, 0, 0, 1], 9478))),
            reserved_cpus: CpuSet::new(),
            rules: RequestRules {
                reserved_namespaces: vec!["kube-system".to_owned()],
                ..RequestRules::default()
            },
            decision_timeout: Duration::from_secs(5),
            runtime_timeout: Duration::from_secs(10),
            resync_interval: Duration::from_secs(30),
            on_failure: OnFailure::Open,
            on_no_capacity: OnNoCapacity::default(),
            waiting_max: 1024,
            // A pod has 30 s to end unless it says otherwise.
            drain_timeout: Duration::from_secs(40),
            compaction: CompactionConfig::default(),
            narrows_memory: false,
            host_root: "/".into(),
            log: "info".to_owned(),
        }
    }
}

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where.
    pub at: Position,
    /// What is wrong, what was expected, what to do.
    pub message: String,
}

/// Every mistake of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file.
    pub path: PathBuf,
    /// In the order of their positions; at least one.
    pub errors: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let ConfigError { at, message } = error;
            write!(f, "{}:{}:{}: {message}", self.path.display(), at.line, at.column)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Reads and parses a file. `None` reads [`CONFIG_PATH`], and gives the defaults when there is no such file.
///
/// # Errors
/// The file cannot be read, or [`ConfigErrors`].
pub fn read_config(path: Option<&Path>) -> anyhow::Result<Config> {
    let (path, is_named) = path.map_or((Path::new(CONFIG_PATH), false), |path| (path, true));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(parse_config(path, &text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => {
            Ok(Config::default())
        }
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
        }
    }
}

/// Parses a configuration; `path` is for messages only.
///
/// # Errors
/// [`ConfigErrors`] with every mistake at once.
pub fn parse_config(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
    let mut errors = Vec::new();
    let mut config = Config::default();
    match parse_yaml(text) {
        Err((at, message)) => {
            errors.push(ConfigError { at, message: format!("not YAML: {message}") })
        }
        Ok(root) => match root.value {
            Value::Null => {}
            Value::Map(entries) => {
                each_key(&entries, &mut errors, |at, key, value, errors| match key {
                    "requests" => {
                        errors.extend(requests::set(&mut config.rules, value));
                        Ok(())
                    }
                    _ => set(&mut config, at, key, value, errors),
                })
            }
            _ => errors.push(ConfigError {
                at: root.at,
                message: "expected `key: value` lines such as `reservedCpus: \"0,28\"`".to_owned(),
            }),
        },
    }
    for error in &mut errors {
        error.message = without_controls(&error.message);
    }
    errors.sort_by_key(|error| error.at);
    if errors.is_empty() { Ok(config) } else { Err(ConfigErrors { path: path.to_owned(), errors }) }
}

/// What the file says is shown on terminals, which must not obey it.
fn without_controls(message: &str) -> String {
    let escape = |c: char| match c.is_control() && c != '\n' {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    message.chars().map(escape).collect()
}

/// Sets every key of a mapping; a key that stands twice is a mistake.
fn each_key(
    entries: &[(Position, String, Node)],
    errors: &mut Vec<ConfigError>,
    mut set: impl FnMut(Position, &str, &Node, &mut Vec<ConfigError>) -> Result<(), ConfigError>,
) {
    let mut seen: Vec<&str> = Vec::new();
    for (at, key, value) in entries {
        if seen.contains(&key.as_str()) {
            errors.push(ConfigError { at: *at, message: format!("`{key}` stands twice") });
        }
        if let Err(error) = set(*at, key, value, errors) {
            errors.push(error);
        }
        seen.push(key);
    }
}

fn unknown_key(at: Position, key: &str, known: &[&str]) -> ConfigError {
    ConfigError { at, message: format!("unknown key `{key}`; {}", known_keys(key, known)) }
}

/// What may have been meant, and all that is known.
fn known_keys(key: &str, known: &[&str]) -> String {
    const SIMILAR_MIN: f64 = 0.85;
    let similarity = |known: &str| strsim::jaro_winkler(&key.to_lowercase(), &known.to_lowercase());
    let nearest = known.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let nearest = nearest.filter(|known| similarity(known) >= SIMILAR_MIN);
    let meant = nearest.map(|known| format!("did you mean `{known}`? ")).unwrap_or_default();
    format!("{meant}known are {}", known.join(", "))
}

/// Every key, in the order of the documentation.
const KEYS: [&str; 19] = [
    "socket",
    "runtimeSocket",
    "controlSocket",
    "stateDir",
    "metricsAddress",
    "reservedCpus",
    "reservedNamespaces",
    "requests",
    "decisionTimeout",
    "runtimeTimeout",
    "resyncInterval",
    "onFailure",
    "onNoCapacity",
    "maxWaitingCalls",
    "drainTimeout",
    "compaction",
    "memory",
    "hostRoot",
    "log",
];

/// Mistakes inside a section go to `errors`.
fn set(
    config: &mut Config,
    at: Position,
    key: &str,
    value: &Node,
    errors: &mut Vec<ConfigError>,
) -> Result<(), ConfigError> {
    let field = Field { key, value };
    match key {
        "socket" => config.socket = field.path()?,
        "runtimeSocket" => config.runtime_socket = field.path()?,
        "controlSocket" => config.control_socket = field.path()?,
        "stateDir" => config.state_dir = field.path()?,
        "metricsAddress" => config.metrics_address = field.address()?,
        "reservedCpus" => config.reserved_cpus = field.cpus()?,
        "reservedNamespaces" => config.rules.reserved_namespaces = field.names()?,
        "decisionTimeout" => config.decision_timeout = field.duration()?,
        "runtimeTimeout" => config.runtime_timeout = field.duration()?,
        "resyncInterval" => config.resync_interval = field.duration()?,
        "onFailure" => config.on_failure = field.on_failure()?,
        "onNoCapacity" => config.on_no_capacity = field.on_no_capacity()?,
        "maxWaitingCalls" => config.waiting_max = field.count(1, 65536)?,
        "drainTimeout" => config.drain_timeout = field.duration()?,
        "compaction" => field.section(errors, "enabled: true", |at, key, value| {
            set_compaction(&mut config.compaction, at, key, value)
        }),
        "memory" => field.section(errors, "narrow: true", |at, key, value| {
            set_memory(&mut config.narrows_memory, at, key, value)
        }),
        "hostRoot" => config.host_root = field.path()?,
        "log" => config.log = field.scalar("a filter such as info or bayplan_cri=debug,info")?,
        _ => return Err(unknown_key(at, key, &KEYS)),
    }
    Ok(())
}

/// Every key of `compaction`.
const COMPACTION_KEYS: [&str; 5] =
    ["enabled", "maxMovesPerEvent", "maxCpusPerEvent", "maxMemoryPerEvent", "minGainPercent"];

fn set_compaction(
    config: &mut CompactionConfig,
    at: Position,
    key: &str,
    value: &Node,
) -> Result<(), ConfigError> {
    let name = format!("compaction.{key}");
    let field = Field { key: &name, value };
    match key {
        "enabled" => config.enabled = field.truth()?,
        "maxMovesPerEvent" => config.limits.moves_max = field.count(1, 16)?,
        "maxCpusPerEvent" => config.limits.cpus_max = field.count(1, 4096)?,
        "maxMemoryPerEvent" => config.limits.memory_max = field.memory()?,
        "minGainPercent" => config.limits.gain_min_percent = field.count(0, 100)?,
        _ => return Err(unknown_key(at, key, &COMPACTION_KEYS)),
    }
    Ok(())
}

fn set_memory(
    narrows: &mut bool,
    at: Position,
    key: &str,
    value: &Node,
) -> Result<(), ConfigError> {
    match key {
        "narrow" => *narrows = Field { key: "memory.narrow", value }.truth()?,
        _ => return Err(unknown_key(at, key, &["narrow"])),
    }
    Ok(())
}

struct Field<'a> {
    key: &'a str,
    value: &'a Node,
}

impl Field<'_> {
    fn wrong(&self, found: &str, expected: &str) -> ConfigError {
        let message = format!("`{}` is {found}, expected {expected}", self.key);
        ConfigError { at: self.value.at, message }
    }

    fn scalar(&self, expected: &str) -> Result<String, ConfigError> {
        match &self.value.value {
            Value::Scalar(text) => Ok(text.clone()),
            Value::Null => Err(self.wrong("empty", expected)),
            Value::List(_) => Err(self.wrong("a list", expected)),
            Value::Map(_) => Err(self.wrong("a mapping", expected)),
        }
    }

    /// One of these words.
    fn word<T: Clone>(&self, words: &Words<T>) -> Result<T, ConfigError> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", known.join(", "));
        let text = self.scalar(&expected)?;
        let found = words.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, meaning)| meaning.clone())
            .ok_or_else(|| self.wrong(&format!("`{text}`"), &expected))
    }

    fn path(&self) -> Result<PathBuf, ConfigError> {
        let expected = "an absolute path";
        let text = self.scalar(expected)?;
        let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(&text));
        if path.is_absolute() { Ok(path) } else { Err(self.wrong(&format!("`{text}`"), expected)) }
    }

    fn address(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let expected = "IP:PORT such as 127.0.0.1:9478, or off";
        let text = self.scalar(expected)?;
        if ["off", "false"].contains(&text.as_str()) {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| self.wrong(&format!("`{text}`"), expected))
    }

    fn cpus(&self) -> Result<CpuSet, ConfigError> {
        let expected = "a CPU list such as \"0,28\" or \"0-3\"";
        let text = self.scalar(expected)?;
        text.parse().map_err(|error| self.wrong(&format!("`{text}` ({error})"), expected))
    }

    fn names(&self) -> Result<Vec<String>, ConfigError> {
        let expected = "a list of namespaces such as [kube-system, monitoring]";
        let Value::List(items) = &self.value.value else {
            return Err(self.wrong("not a list", expected));
        };
        let names = items.iter().map(|item| match &item.value {
            Value::Scalar(name) if !name.is_empty() => Ok(name.clone()),
            _ => Err(Field { key: self.key, value: item }.wrong("not only names", expected)),
        });
        names.collect()
    }

    fn duration(&self) -> Result<Duration, ConfigError> {
        let expected = "a duration from 10ms to 1h such as 500ms, 2s or 1m";
        let text = self.scalar(expected)?;
        let parsed = text.parse::<jiff::SignedDuration>().ok();
        let duration = parsed.and_then(|duration| Duration::try_from(duration).ok());
        duration
            .filter(|it| (Duration::from_millis(10)..=Duration::from_secs(3600)).contains(it))
            .ok_or_else(|| self.wrong(&format!("`{text}`"), expected))
    }

    /// Lines such as `example`.
    fn section(
        &self,
        errors: &mut Vec<ConfigError>,
        example: &str,
        mut set: impl FnMut(Position, &str, &Node) -> Result<(), ConfigError>,
    ) {
        match &self.value.value {
            Value::Map(entries) => {
                each_key(entries, errors, |at, key, value, _| set(at, key, value));
            }
            _ => errors.push(self.wrong("not a mapping", &format!("lines such as `{example}`"))),
        }
    }

    fn truth(&self) -> Result<bool, ConfigError> {
        let expected = "true or false";
        match self.scalar(expected)?.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(self.wrong(&format!("`{other}`"), expected)),
        }
    }

    fn count(&self, min: usize, max: usize) -> Result<usize, ConfigError> {
        let expected = format!("a number from {min} to {max}");
        let text = self.scalar(&expected)?;
        let count = text.parse().ok().filter(|count| (min..=max).contains(count));
        count.ok_or_else(|| self.wrong(&format!("`{text}`"), &expected))
    }

    fn memory(&self) -> Result<Option<Bytes>, ConfigError> {
        let expected = "an amount such as 512Mi, 16Gi or 1Ti, or unlimited";
        let text = self.scalar(expected)?;
        if text == "unlimited" {
            return Ok(None);
        }
        let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
        let parsed = units.iter().find_map(|(unit, shift)| {
            let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(1 << shift)
        });
        parsed
            .map(|bytes| Some(Bytes(bytes)))
            .ok_or_else(|| self.wrong(&format!("`{text}`"), expected))
    }

    fn on_failure(&self) -> Result<OnFailure, ConfigError> {
        let expected = "open (forward undecided calls unchanged) or closed (refuse them)";
        match self.scalar(expected)?.as_str() {
            "open" => Ok(OnFailure::Open),
            "closed" => Ok(OnFailure::Closed),
            other => Err(self.wrong(&format!("`{other}`"), expected)),
        }
    }

    fn on_no_capacity(&self) -> Result<OnNoCapacity, ConfigError> {
        let expected = "refuse (kubelet tries again) or share (without CPUs of its own)";
        match self.scalar(expected)?.as_str() {
            "refuse" => Ok(OnNoCapacity::Refuse),
            "share" => Ok(OnNoCapacity::Share),
            other => Err(self.wrong(&format!("`{other}`"), expected)),
        }
    }
}

#[cfg(test)]
mod tests;
