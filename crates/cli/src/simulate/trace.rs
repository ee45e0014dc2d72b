//! What is replayed, format `bayplan-bench-trace/1`. In: the file. Out: events that make sense one after the other, or every mistake.
//!
//! Whether a trace makes sense does not depend on what places it: an id is in use from its create to its remove, also if the create is refused, and
//! can be used again after that.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bayplan_types::{Bytes, MilliCpu, QosClass};
use serde::Deserialize;

use crate::json_file::{FileError, FileErrors, parse_json};

/// The format that is read.
pub(crate) const TRACE_FORMAT: &str = "bayplan-bench-trace/1";

/// A million CPUs, and an EiB: more is a mistake in the unit.
const MILLI_MAX: i64 = 1_000_000_000;
const BYTES_MAX: i64 = 1 << 60;

/// A stream of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// What it is called.
    pub(crate) name: String,
    /// The machine that it was made for; may be empty.
    pub(crate) machine: String,
    /// Strictly in this order.
    pub(crate) events: Vec<Event>,
}

/// A container comes or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The container.
    pub(crate) id: String,
    /// What happens to it.
    pub(crate) op: Op,
}

/// What happens to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// It comes.
    Create(Wanted),
    /// It goes.
    Remove,
}

impl Op {
    /// The word in files.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Op::Create(_) => "create",
            Op::Remove => "remove",
        }
    }
}

/// A container as a pod spec has it. The memory request is left out: kubelet does not tell a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its pod.
    pub(crate) pod: String,
    /// The pod's namespace.
    pub(crate) namespace: String,
    /// The pod's annotations.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The pod's labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// The pod's class.
    pub(crate) qos: QosClass,
    /// CPU request.
    pub(crate) cpu_request: MilliCpu,
    /// CPU limit; `None` is no limit.
    pub(crate) cpu_limit: Option<MilliCpu>,
    /// Memory limit; `None` is no limit.
    pub(crate) memory_limit: Option<Bytes>,
}

impl Wanted {
    /// Whether it must get as many CPUs of its own as it requests.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.qos == QosClass::Guaranteed
            && self.cpu_request.whole_cpus() > 0
            && self.cpu_request.fraction() == MilliCpu::ZERO
    }
}

#[derive(Deserialize)]
struct RawTrace {
    name: String,
    #[serde(default)]
    machine: String,
    events: Vec<RawEvent>,
}

#[derive(Deserialize)]
struct RawEvent {
    i: i64,
    op: String,
    id: String,
    pod: Option<String>,
    #[serde(default = "default_namespace")]
    namespace: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    qos: Option<String>,
    cpu_request_m: Option<i64>,
    #[serde(default)]
    cpu_limit_m: i64,
    #[serde(default)]
    mem_request: i64,
    #[serde(default)]
    mem_limit: i64,
}

/// That of containers for which a trace names none.
fn default_namespace() -> String {
    "default".to_owned()
}

/// Reads a trace; `path` is for messages only.
///
/// # Errors
/// [`FileErrors`] with every event that makes no sense.
pub(crate) fn parse_trace(path: &Path, bytes: &[u8]) -> Result<Trace, FileErrors> {
    let raw: RawTrace = parse_json(path, bytes, TRACE_FORMAT)?;
    let mut reader = Reader::default();
    let events: Vec<Event> = raw
        .events
        .into_iter()
        .enumerate()
        .filter_map(|(index, event)| reader.event(index, event))
        .collect();
    FileErrors::check(path, reader.errors)?;
    Ok(Trace { name: raw.name, machine: raw.machine, events })
}

#[derive(Default)]
struct Reader {
    errors: Vec<FileError>,
    /// Of every id the event that was its last, and whether that was a create.
    last: HashMap<String, (usize, bool)>,
}

impl Reader {
    fn event(&mut self, index: usize, raw: RawEvent) -> Option<Event> {
        let shown: String = raw.id.chars().take(60).collect();
        let mut mistakes = Vec::new();
        if i64::try_from(index) != Ok(raw.i) {
            mistakes.push(format!("`i` is {}, expected {index}: events are counted from 0", raw.i));
        }
        if raw.id.is_empty() {
            mistakes.push("`id` is empty, expected a name".to_owned());
        }
        let is_create = raw.op == "create";
        if is_create || raw.op == "remove" {
            let last = self.last.insert(raw.id.clone(), (index, is_create));
            mistakes.extend(out_of_turn(last, is_create));
        }
        let op = match raw.op.as_str() {
            "create" => wanted(&raw, &mut mistakes).map(Op::Create),
            "remove" => Some(Op::Remove),
            other => {
                mistakes.push(format!("`op` is `{other}`, expected create or remove"));
                None
            }
        };
        let place = format!(" event {index} ({shown}):");
        let errors = mistakes.into_iter();
        self.errors.extend(errors.map(|message| FileError { place: place.clone(), message }));
        Some(Event { id: raw.id, op: op? })
    }
}

/// Why a create or a remove cannot come after the last event of the same id.
fn out_of_turn(last: Option<(usize, bool)>, is_create: bool) -> Option<String> {
    match (last, is_create) {
        (None, false) => {
            Some("no container of this id was created before, expected a known `id`".to_owned())
        }
        (Some((at, false)), false) => Some(format!("it was removed already by event {at}")),
        (Some((at, true)), true) => Some(format!(
            "event {at} created the same id, expected a remove before the next create"
        )),
        _ => None,
    }
}

/// `None` if something essential is missing; what is merely wrong is in `mistakes`, too.
fn wanted(raw: &RawEvent, mistakes: &mut Vec<String>) -> Option<Wanted> {
    let milli = "thousandths of a CPU";
    if raw.cpu_request_m.is_none() {
        mistakes.push(format!("there is no `cpu_request_m`, expected {milli}"));
    }
    let cpu_request = raw.cpu_request_m.unwrap_or(0);
    for (name, value, max, unit) in [
        ("cpu_request_m", cpu_request, MILLI_MAX, milli),
        ("cpu_limit_m", raw.cpu_limit_m, MILLI_MAX, milli),
        ("mem_request", raw.mem_request, BYTES_MAX, "bytes"),
        ("mem_limit", raw.mem_limit, BYTES_MAX, "bytes"),
    ] {
        if !(0..=max).contains(&value) {
            mistakes.push(format!("`{name}` is {value}, expected 0 to {max} {unit}"));
        }
    }
    let named = QosClass::ALL.into_iter().find(|qos| raw.qos.as_deref() == Some(qos.name()));
    let Some(qos) = named else {
        let found = raw.qos.as_ref().map_or("missing".to_owned(), |qos| format!("`{qos}`"));
        mistakes.push(format!("`qos` is {found}, expected Guaranteed, Burstable or BestEffort"));
        return None;
    };
    if mistakes.is_empty() {
        mistakes.extend(not_of_class(raw, qos, cpu_request));
    }
    let some = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
    Some(Wanted {
        pod: raw.pod.clone().unwrap_or_else(|| raw.id.clone()),
        namespace: raw.namespace.clone(),
        annotations: raw.annotations.clone(),
        labels: raw.labels.clone(),
        qos,
        cpu_request: some(cpu_request).map(MilliCpu).unwrap_or_default(),
        cpu_limit: some(raw.cpu_limit_m).map(MilliCpu),
        memory_limit: some(raw.mem_limit).map(Bytes),
    })
}

/// What Kubernetes would not have put into this class.
fn not_of_class(raw: &RawEvent, qos: QosClass, cpu_request: i64) -> Option<String> {
    let RawEvent { cpu_limit_m, mem_request, mem_limit, .. } = *raw;
    match qos {
        QosClass::Guaranteed if cpu_limit_m != cpu_request => Some(format!(
            "`cpu_limit_m` is {cpu_limit_m}, expected {cpu_request}: what is Guaranteed may use what it requests"
        )),
        QosClass::Guaranteed if mem_limit != mem_request => Some(format!(
            "`mem_limit` is {mem_limit}, expected {mem_request}: what is Guaranteed may use what it requests"
        )),
        QosClass::Burstable if cpu_limit_m != 0 && cpu_limit_m < cpu_request => Some(format!(
            "`cpu_limit_m` is {cpu_limit_m}, expected at least the request, {cpu_request}, or 0 for none"
        )),
        QosClass::BestEffort if [cpu_request, cpu_limit_m, mem_request, mem_limit] != [0; 4] => {
            Some("requests or limits are not 0, expected 0: BestEffort has none".to_owned())
        }
        _ => None,
    }
}
