use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bayplan_cri::kubelet_api::fake::{FakeKubelet, FakePod, Manner};
use bayplan_types::{QosClass, ThreadPolicy};
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::enforcer::{Questions, RuntimeCalls};
use crate::inbox::{Events, inbox};
use crate::runtime::model::ModelRuntime;

/// What the loop hears of a resize while kubelet is like this.
async fn resize_while(manner: Manner, uid: Option<&str>) -> Vec<&'static str> {
    let (dir, kubelet) = (tempfile::tempdir().unwrap(), FakeKubelet::default());
    kubelet.set_pods(vec![FakePod { uid: "uid-web".into(), ..FakePod::default() }]);
    kubelet.set_manner(manner);
    let path = dir.path().join("pods.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { kubelet.serve(listener, std::future::pending()).await });
    let config = Config {
        kubelet_pods_socket: Some(path),
        pod_resources_socket: None,
        decision_timeout: Duration::from_secs(60),
        ..Config::default()
    };
    let lookup = PodLookup::new(&config, Arc::default());
    let (gate, mut events) = gate(config);
    let gate = gate.with_pods(lookup);
    let heard = async {
        let mut heard = Vec::new();
        loop {
            let envelope = events.0.recv().await.unwrap();
            let (name, answer) = match envelope.event {
                Event::ResizeAsked(..) => ("asked", Answer::PodUid(uid.map(str::to_owned))),
                Event::PodsSeen(pods, _) => {
                    assert_eq!(pods[0].uid, "uid-web");
                    ("seen", Answer::Done)
                }
                Event::TryResize(..) => ("resize", Answer::Admission(Admission::PassThrough)),
                event => panic!("{event:?}"),
            };
            heard.push(name);
            envelope.answer.send(answer).unwrap();
            if name == "resize" {
                return heard;
            }
        }
    };
    let (admission, heard) = tokio::join!(gate.resize("id", Resources::default()), heard);
    assert_eq!(admission, Admission::PassThrough);
    heard
}

#[tokio::test]
async fn a_resize_is_decided_by_what_kubelet_knows_then_if_it_tells_in_time() {
    let known = Some("uid-web");
    for (manner, uid) in [
        (Manner::Never, known),
        (Manner::Nonsense, known),
        (Manner::Well, Some("uid-gone")),
        (Manner::Well, None),
    ] {
        assert_eq!(resize_while(manner, uid).await, ["asked", "resize"], "{manner:?} {uid:?}");
    }
    // On a busy machine it may be late.
    let mut tries = 0;
    while resize_while(Manner::Well, known).await != ["asked", "seen", "resize"] {
        tries += 1;
        assert!(tries < 5, "not told");
    }
}

/// A gate to a loop that answers nothing.
fn gate(config: Config) -> (Gate, Events) {
    let (gate, events, _no_enforcer) = enforcing_gate(config);
    (gate, events)
}

fn enforcing_gate(config: Config) -> (Gate, Events, Questions) {
    let (inbox, events) = inbox(config.waiting_max);
    let metrics = Arc::<Metrics>::default();
    let syncer = Syncer {
        runtime: Arc::new(ModelRuntime::away()),
        inbox,
        host_root: "/".into(),
        metrics: Arc::clone(&metrics),
        health: Arc::default(),
        turn: Arc::default(),
    };
    let sync_soon = Arc::default();
    let (_, config) = watch::channel(Arc::new(config));
    let mounts = Arc::new(Mounts { root: "/".into(), directories: Vec::new() });
    let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
    let gate = Gate::new(syncer, config, metrics, sync_soon, mounts, enforcement, Link::default());
    (gate, events, questions)
}

fn impatient(on_failure: OnFailure) -> Config {
    Config { decision_timeout: Duration::from_millis(20), on_failure, ..Config::default() }
}

#[tokio::test]
async fn a_creation_with_huge_pages_waits_for_no_other_task() {
    let config = Config { decision_timeout: Duration::from_secs(60), ..Config::default() };
    let (gate, mut events) = gate(config);
    let page = bayplan_types::Bytes(2 << 20);
    let huge_pages = [(page, page)].into();
    let container = NewContainer { huge_pages, ..NewContainer::default() };
    let heard = async {
        let mut heard = Vec::new();
        while heard.len() < 2 {
            // Nothing is answered.
            heard.push(events.0.recv().await.unwrap());
        }
        heard
    };
    tokio::select! {
        heard = heard => {
            let [first, second] = &heard[..] else { panic!("{} events", heard.len()) };
            assert!(matches!(first.event, Event::HugePagesRead(_)));
            assert!(matches!(second.event, Event::TryAdmit(..)));
        }
        _ = gate.admit(Ticket(1), container) => panic!("answered without the loop"),
    }
}

async fn admit(gate: &Gate) -> Admission {
    gate.admit(Ticket(1), NewContainer::default()).await
}

#[tokio::test]
async fn what_is_not_decided_in_time_passes_unless_the_configuration_is_closed() {
    let (open, _events) = gate(impatient(OnFailure::Open));
    assert_eq!(admit(&open).await, Admission::PassThrough);
    assert_eq!(open.resize("id", Resources::default()).await, Admission::PassThrough);
    let (closed, mut events) = gate(impatient(OnFailure::Closed));
    let text = "bayplan did not decide within 20ms, and onFailure is closed";
    assert_eq!(admit(&closed).await, Admission::Refuse(text.to_owned()));
    // Should it be placed late, the place is given back.
    let mut asked = Vec::new();
    while asked.len() < 2 {
        asked.push(events.0.recv().await.unwrap().event);
    }
    let given_up = Event::CreateEnded(Ticket(1), CreateOutcome::Failed);
    assert_eq!(format!("{:?}", asked[1]), format!("{given_up:?}"));
}

/// What the loop hears of a resize that is answered so.
async fn resized(on_failure: OnFailure, answer: Option<Admission>) -> String {
    let (gate, mut events) = gate(impatient(on_failure));
    let heard = async {
        let (mut heard, mut kept) = (Vec::new(), Vec::new());
        while let Ok(Some(envelope)) = timeout(Duration::from_secs(1), events.0.recv()).await {
            match (&envelope.event, &answer) {
                (Event::TryResize(..), Some(answer)) => {
                    heard.push("asked".to_owned());
                    envelope.answer.send(Answer::Admission(answer.clone())).unwrap();
                }
                (Event::TryResize(..), None) => {
                    heard.push("asked".to_owned());
                    kept.push(envelope);
                }
                (Event::Resized(_, outcome), _) => heard.push(format!("{outcome:?}")),
                _ => kept.push(envelope),
            }
        }
        heard.join(", ")
    };
    let (_decided, heard) = tokio::join!(gate.resize("id", Resources::default()), heard);
    heard
}

/// Kubelet was told that it is refused, so it must not be made afterwards.
#[tokio::test]
async fn a_resize_that_is_refused_before_it_is_decided_has_failed() {
    let place = Admission::Place(Pinning::default());
    for (on_failure, answer, expected) in [
        (OnFailure::Closed, None, "asked, Failed"),
        (OnFailure::Open, None, "asked"),
        (OnFailure::Closed, Some(place), "asked"),
    ] {
        assert_eq!(resized(on_failure, answer.clone()).await, expected, "{answer:?}");
    }
}

#[test]
fn calls_that_cannot_be_read_pass_unless_the_configuration_is_closed() {
    for (on_failure, expected) in [
        (OnFailure::Open, Ok(())),
        (
            OnFailure::Closed,
            Err("bayplan cannot read this call (long), and onFailure is closed".to_owned()),
        ),
    ] {
        let (gate, _events) = gate(impatient(on_failure));
        assert_eq!(gate.may_pass("/runtime.v1.RuntimeService/CreateContainer", "long"), expected);
    }
}

#[tokio::test]
async fn no_call_passes_where_nothing_decides_any_more() {
    let (gate, events) = gate(impatient(OnFailure::Open));
    drop(events);
    let text = "bayplan is ending, and another one decides";
    assert_eq!(admit(&gate).await, Admission::Refuse(text.to_owned()));
    let resized = gate.resize("id", Resources::default()).await;
    assert_eq!(resized, Admission::Refuse(text.to_owned()));
}

#[tokio::test]
async fn calls_beyond_those_that_may_wait_are_refused_at_once() {
    let waiting_max = 2;
    let (gate, _events) = gate(Config { waiting_max, ..impatient(OnFailure::Open) });
    for _ in 0..waiting_max {
        assert_eq!(admit(&gate).await, Admission::PassThrough);
    }
    let refused = Admission::Refuse("bayplan: 2 calls wait for a decision already".to_owned());
    assert_eq!(admit(&gate).await, refused);
    assert_eq!(gate.resize("id", Resources::default()).await, refused);
}

#[tokio::test]
async fn calls_that_come_together_are_refused_as_those_that_come_one_by_one() {
    let waiting_max = 2;
    let (gate, _events) = gate(Config { waiting_max, ..impatient(OnFailure::Open) });
    // Its disks are looked up before it is asked where it goes.
    let container = NewContainer {
        volumes: [("/nowhere".to_owned(), Vec::new())].into(),
        ..NewContainer::default()
    };
    let calls = (0..5).map(|at| gate.admit(Ticket(at), container.clone()));
    let answers = futures::future::join_all(calls).await;
    let passed = answers.iter().filter(|it| **it == Admission::PassThrough).count();
    let refused = Admission::Refuse("bayplan: 2 calls wait for a decision already".to_owned());
    let refused = answers.iter().filter(|it| **it == refused).count();
    assert_eq!((passed, refused), (waiting_max, 5 - waiting_max), "{answers:?}");
}

#[tokio::test]
async fn a_version_that_is_not_read_is_told_once_for_each_method_and_always_counted() {
    let (gate, _events) = gate(Config::default());
    for at in 0..1000 {
        gate.other_version("/runtime.v2.RuntimeService/CreateContainer");
        gate.other_version(&format!("/runtime.made-up-{at}.RuntimeService/CreateContainer"));
    }
    assert_eq!(gate.versions_told.lock().unwrap().len(), VERSIONS_TOLD_MAX);
    let counted = "bayplan_failures_total{kind=\"other_version\"} 2000";
    assert!(gate.metrics.render(true).contains(counted));
}

#[test]
fn calls_are_held_back_for_a_bounded_time_where_the_configuration_is_open() {
    let since = Instant::now();
    for (after, on_failure, expected) in [
        (HELD_MAX - Duration::from_millis(1), OnFailure::Open, false),
        (HELD_MAX, OnFailure::Open, true),
        (HELD_MAX * 100, OnFailure::Closed, false),
    ] {
        let told = is_held_too_long(since, since + after, on_failure);
        assert_eq!(told, expected, "{after:?} {on_failure:?}");
    }
}

const LATE: &str = "bayplan_failures_total{kind=\"late_files\"} 1";

/// Answers one question about a container.
async fn answer(events: &mut Events, since: Option<u64>) {
    let envelope = events.0.recv().await.unwrap();
    assert!(matches!(envelope.event, Event::Starting(_)), "{:?}", envelope.event);
    envelope.answer.send(Answer::Since(since)).unwrap();
}

#[tokio::test]
async fn a_start_waits_for_the_files_of_its_container_and_not_for_ever() {
    let (gate, mut events, questions) = enforcing_gate(Config::default());
    questions.note_done(6);
    let mut starting = pin!(gate.starting("late"));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(starting.as_mut().poll(&mut context), Poll::Pending);
    answer(&mut events, Some(7)).await;
    tokio::task::yield_now().await;
    assert_eq!(starting.as_mut().poll(&mut context), Poll::Pending);
    questions.note_done(9);
    starting.await.unwrap();
    assert!(!gate.metrics.render(true).contains(LATE));

    let (ready, ()) = tokio::join!(gate.starting("too late"), answer(&mut events, Some(10)));
    assert_eq!(ready, Ok(()), "`onFailure` is `open`");
    assert!(gate.metrics.render(true).contains(LATE));
}

/// Issue 35: with NRI every start waited for a look of its own, which gathered other changes first.
#[tokio::test]
async fn a_start_that_needs_no_files_waits_for_no_look() {
    let (mut gate, mut events, questions) = enforcing_gate(Config::default());
    gate.link = Link::nri();
    let root = tempfile::tempdir().unwrap();
    gate.syncer.host_root = root.path().into();
    // A look since the container was placed, which wants files of another one, and one before that.
    for (id, step, is_ready) in [("plain", 7, true), ("with", 7, false), ("plain", 8, false)] {
        questions.note_look(7, &["with"]);
        let mut starting = pin!(gate.starting(id));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(starting.as_mut().poll(&mut context), Poll::Pending);
        answer(&mut events, Some(step)).await;
        let (told, look) = (events.0.recv(), questions.starts_waiting());
        tokio::select! {
            biased;
            _ = starting.as_mut() => panic!("{id} {step}: answered without its sets"),
            // Its sets are looked at next.
            envelope = told => {
                assert!(is_ready, "{id} {step}: {:?}", envelope.map(|it| it.event));
            }
            () = look => assert!(!is_ready, "{id} {step} waits for a look"),
        }
    }
}

#[tokio::test]
async fn a_start_that_is_not_decided_in_time_is_refused_where_the_configuration_is_closed() {
    let text = format!("bayplan has not written its kernel files within {FILES_PATIENCE:?}");
    for (on_failure, expected) in [(OnFailure::Open, Ok(())), (OnFailure::Closed, Err(text))] {
        // Nothing is answered.
        let (gate, _events, _questions) = enforcing_gate(impatient(on_failure));
        assert_eq!(gate.starting("undecided").await, expected, "{on_failure:?}");
        assert!(gate.metrics.render(true).contains(LATE));
    }
}

#[tokio::test]
async fn a_start_does_not_wait_where_nothing_will_be_written() {
    let (gate, mut events, questions) = enforcing_gate(Config::default());
    let (ready, ()) = tokio::join!(gate.starting("unknown"), answer(&mut events, None));
    assert_eq!(ready, Ok(()));
    drop(questions);
    let (ready, ()) = tokio::join!(gate.starting("unwritten"), answer(&mut events, Some(1)));
    assert_eq!(ready, Ok(()));
    assert!(!gate.metrics.render(true).contains(LATE));
    let off = Config { enforcement: EnforcementMode::Off, ..Config::default() };
    let (gate, _events, _questions) = enforcing_gate(off);
    gate.starting("not enforced").await.unwrap();
    assert!(!gate.metrics.render(true).contains(LATE));
}

/// It is the class that is named, or the first of its QoS class; a kernel that gives groups no time for real-time threads has no such policy. Where no class says anything of threads,
/// the loop is not asked; where the loop does not answer, the container has none.
#[tokio::test]
async fn threads_say_what_the_class_of_a_container_says() {
    let text = "schedulingClasses:\n- {name: rt, policy: fifo, priority: 7}\n- {name: low, nice: 5, qosClasses: [BestEffort]}\n";
    let config = crate::config::parse_config(std::path::Path::new("c"), text).unwrap();
    let (mut asking, mut events) = gate(config);
    let hosts = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [plain, grouped] = [hosts[0].path(), hosts[1].path()];
    std::fs::create_dir_all(grouped.join("sys/fs/cgroup/cpu")).unwrap();
    std::fs::write(grouped.join("sys/fs/cgroup/cpu/cpu.rt_runtime_us"), "0\n").unwrap();
    for (host, named, qos, expected) in [
        (plain, Some("rt"), QosClass::BestEffort, Some(ThreadPolicy::Fifo(7))),
        (grouped, Some("rt"), QosClass::BestEffort, None),
        (grouped, None, QosClass::BestEffort, Some(ThreadPolicy::Other(5))),
        (plain, None, QosClass::Burstable, None),
        (plain, Some("odd"), QosClass::BestEffort, None),
    ] {
        host.clone_into(&mut asking.syncer.host_root);
        let pod = Pod { qos: Some(qos), ..Pod::default() };
        let answer = async {
            let envelope = events.0.recv().await.unwrap();
            assert!(matches!(envelope.event, Event::SchedulingClass(Ticket(1))));
            envelope.answer.send(Answer::SchedulingClass(named.map(str::to_owned))).unwrap();
        };
        let (threads, ()) = tokio::join!(asking.thread_scheduling(Ticket(1), &pod), answer);
        assert_eq!(threads, ThreadScheduling { policy: expected, io: None });
    }
    let late = "bayplan_failures_total{kind=\"late_class\"} ";
    let (without, mut events) = gate(impatient(OnFailure::Closed));
    assert!(without.thread_scheduling(Ticket(1), &Pod::default()).await.is_empty());
    assert!(events.0.try_recv().is_err());
    assert!(without.metrics.render(true).contains(&format!("{late}0\n")));
    let config = crate::config::parse_config(std::path::Path::new("c"), text).unwrap();
    let config = Config { decision_timeout: Duration::from_millis(20), ..config };
    let (silent, _events) = gate(config);
    assert!(silent.thread_scheduling(Ticket(1), &Pod::default()).await.is_empty());
    assert!(silent.metrics.render(true).contains(&format!("{late}1\n")));
}
