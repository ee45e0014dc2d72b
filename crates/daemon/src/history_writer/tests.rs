use std::fs;
use std::io;
use std::sync::Mutex;

use bayplan_host::disk::{Operation, SoundDisk};
use bayplan_host::history::{parse_history, segments};
use bayplan_node::history::{ContainerNames, Kind, MachineForm, NodeForm, parse_entries};
use bayplan_node::mode::Mode;

use super::*;

fn names(id: u64, container: &str) -> Option<ContainerNames> {
    Some(ContainerNames {
        id: Some(id),
        namespace: "n".to_owned(),
        pod: "p".to_owned(),
        container: container.to_owned(),
        attempt: 0,
        qos: None,
        runtime_id: None,
    })
}

/// `+ID NAME` comes, `-ID NAME` goes, `=ID NAME` is there.
fn entry(word: &str) -> Entry {
    let (id, name) = word[1..].split_once(' ').unwrap();
    let kind = match &word[..1] {
        "+" => Kind::Placed,
        "=" => Kind::Held,
        _ => Kind::Ended,
    };
    let form = r#"{"pod_id":"","pod_uid":"","namespace":"","pod":"","qos":null,"cgroup_parent":"","name":"","attempt":0,
        "cpu_shares":0,"cpu_quota":0,"cpu_period":0,"memory_limit":0}"#;
    let spec = (kind != Kind::Ended).then(|| serde_json::from_str(form).unwrap());
    Entry { who: names(id.parse().unwrap(), name), spec, ..Entry::new(kind) }
}

fn entries(words: &[&str]) -> Vec<Entry> {
    words.iter().map(|word| entry(word)).collect()
}

fn opening(kind: Kind, machine: &str, words: &[&str]) -> Vec<Entry> {
    let form = MachineForm { fingerprint: machine.to_owned(), ..MachineForm::default() };
    let machine = Entry { machine: Some(Box::new(form)), ..Entry::new(Kind::Machine) };
    let node = NodeForm {
        version: String::new(),
        config: String::new(),
        mode: Mode::Placing,
        reserved: None,
        live: Vec::new(),
        groups: Vec::new(),
        is_taken_back: false,
    };
    let node = Entry { node: Some(Box::new(node)), ..Entry::new(kind) };
    [machine, node].into_iter().chain(entries(words)).collect()
}

/// A word per entry, segments by bars.
fn told(dir: &Path) -> String {
    let shown = |entry: Entry| match (&entry.machine, &entry.who) {
        (Some(machine), _) => machine.fingerprint.clone(),
        (None, Some(who)) => format!("{} {}", entry.kind.name(), who.container),
        (None, None) => format!("{} {}", entry.kind.name(), entry.why).trim().to_owned(),
    };
    let of = |path| {
        let recovered = parse_history(&fs::read(path).unwrap());
        let (entries, strange) = parse_entries(&recovered.records);
        assert_eq!((strange, recovered.dropped.len()), (0, 0));
        entries.into_iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    segments(dir).unwrap().into_iter().map(of).collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_start_tells_only_what_the_segment_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let start = |machine: &str, words: &[&str], found: &[&str]| {
        let opening = opening(Kind::Started, machine, words);
        Scribe::open(Arc::new(SoundDisk), dir.path(), 1 << 20, opening, entries(found))
    };
    let mut scribe = start("m1", &["=0 a"], &[]);
    scribe.write(Told { entries: entries(&["+1 b", "+2 c", "-1 b"]), opening: None });
    let expected = "m1, started, held a, placed b, placed c, ended b";
    assert_eq!(told(dir.path()), expected);
    // `d` has an id that was `b`'s.
    start("m1", &["=0 a", "=1 d", "=2 c"], &[]);
    let expected = format!("{expected}, started, held d");
    assert_eq!(told(dir.path()), expected);
    start("m2", &["=2 c"], &["-1 d"]);
    assert_eq!(told(dir.path()), format!("{expected}, m2, started, ended d"));
}

#[test]
fn what_is_lost_is_told_and_followed_by_an_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    fs::write(&path, "a file is in the way").unwrap();
    let opening_of_start = opening(Kind::Started, "m", &[]);
    let mut scribe =
        Scribe::open(Arc::new(SoundDisk), &path, 1 << 20, opening_of_start, Vec::new());
    assert!(scribe.failure.is_some() && scribe.has_gap);
    scribe.write(Told { entries: entries(&["+0 a"]), opening: None });
    fs::remove_file(&path).unwrap();
    let opening = opening(Kind::Continued, "m", &["=0 a", "=1 b"]);
    scribe.write(Told { entries: entries(&["+1 b"]), opening: Some(opening) });
    assert!(!scribe.has_gap);
    scribe.write(Told { entries: entries(&["-0 a"]), opening: None });
    let lost = "failure history: 3 entries before this one could not be written";
    let expected = format!("{lost}, placed b, m, continued, held a, held b, ended a");
    assert_eq!(told(&path), expected);
}

/// Refuses every write while it is ill.
#[derive(Debug, Default)]
struct Ill(AtomicBool);

impl Disk for Ill {
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
        let is_ill = operation == Operation::Write && self.0.load(Ordering::Relaxed);
        if is_ill { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes) }
    }
}

/// What is logged, as text.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_full_disk_is_logged_once_and_so_is_that_it_is_not_any_more() {
    let (dir, disk, log) = (tempfile::tempdir().unwrap(), Arc::<Ill>::default(), Log::default());
    let logged = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || logged.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let opening = opening(Kind::Started, "m", &[]);
    let scribe = Scribe::open(Arc::<Ill>::clone(&disk), dir.path(), 1 << 20, opening, Vec::new());
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let (wants_opening, metrics) = (AtomicBool::new(false), Metrics::default());
    let disk = &disk;
    let told = async move {
        for (is_ill, word) in
            [(false, "+0 a"), (true, "+1 b"), (true, "+2 c"), (true, "+3 d"), (false, "+4 e")]
        {
            disk.0.store(is_ill, Ordering::Relaxed);
            sender.send(Told { entries: entries(&[word]), opening: None }).await.unwrap();
            // It is taken only when those before it were written.
            while sender.capacity() < WAITING_MAX {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::join!(scribe.run(receiver, &wants_opening, &metrics), told);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for line in ["cannot write the history", "the history is written again"] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
}

/// Words that have been given out are never changed.
#[test]
fn every_kind_has_the_name_that_files_have() {
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
    }
    assert_eq!(serde_json::from_str::<Kind>("\"from_the_future\"").unwrap(), Kind::Unknown);
}

#[test]
fn annotations_of_one_namespace_take_their_share_of_the_history_and_no_more() {
    let entry = |namespace: &str, bytes: usize| {
        let mut container = bayplan_workload::NewContainer::default();
        container.pod.namespace = namespace.to_owned();
        container.pod.annotations.insert("a".to_owned(), "x".repeat(bytes));
        let spec = Some(Box::new(bayplan_node::record::ContainerForm::from(&container)));
        Entry { spec, ..Entry::new(Kind::Placed) }
    };
    let mut shares = Shares { bytes_max: 16 << 20, taken: BTreeMap::new() };
    let mut entries: Vec<Entry> = (0..70).map(|_| entry("loud", 64 << 10)).collect();
    entries.extend([entry("quiet", 60 << 10), entry("loud", 100)]);
    shares.bound(&mut entries);
    let bytes: Vec<usize> =
        entries.iter().filter_map(|it| Some(it.spec.as_ref()?.bytes_said())).collect();
    assert!(bytes[..70].iter().sum::<usize>() < (1 << 20) + 70 * 16, "{bytes:?}");
    assert_eq!(bytes[70..], [(60 << 10) + 1, 101]);
}
