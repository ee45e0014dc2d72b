use expect_test::{Expect, expect};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::plugin::{Settings, run};
use crate::runtime_end::{Manners, Plugin, RuntimeEnd};
use bayplan_workload::{NewContainer, Pod, Resources, ThreadPolicy, ThreadScheduling};

/// Places everything on CPU 3 and takes that from `old`; what is called `never` is refused, `stuck` finds no room, `unready` must not start; `slow` is decided when the connection has
/// ended, `hung` never, and the variables of a pool never come. Writes down what it was asked.
#[derive(Clone, Default)]
struct Scribe {
    lines: Arc<Mutex<String>>,
    /// Notified when a creation is asked about.
    is_asked: Arc<tokio::sync::Notify>,
    /// Notified when the connection has ended.
    is_lost: Arc<tokio::sync::Notify>,
}

impl Scribe {
    fn write(&self, line: String) {
        let mut lines = self.lines.lock().unwrap();
        lines.push_str(&line);
        lines.push('\n');
    }
}

fn on(cpus: &str) -> Pinning {
    Pinning { cpus: cpus.parse().unwrap(), ..Pinning::default() }
}

impl Agent for Scribe {
    async fn pod_started(&self, pod: Pod) {
        self.write(format!("pod started: {}/{}", pod.namespace, pod.name));
    }

    async fn pod_ended(&self, pod_id: &str) {
        self.write(format!("pod ended: {pod_id}"));
    }

    async fn pod_resized(&self, pod_id: &str, resources: Resources) {
        self.write(format!("pod resized: {pod_id} to {} shares", resources.cpu_shares));
    }

    async fn admit(&self, ticket: Ticket, container: NewContainer) -> Admission {
        let NewContainer { name, attempt, .. } = container;
        self.is_asked.notify_one();
        match name.as_str() {
            "slow" => self.is_lost.notified().await,
            "hung" => std::future::pending().await,
            _ => {}
        }
        self.write(format!("admit {}: {name}, attempt {attempt}", ticket.0));
        match name.as_str() {
            "never" => Admission::Refuse("bayplan: no room".to_owned()),
            _ => Admission::Place(on("3")),
        }
    }

    async fn pool_environment(&self, _ticket: Ticket) -> Option<Vec<(String, String)>> {
        std::future::pending().await
    }

    async fn thread_scheduling(&self, _ticket: Ticket, pod: &Pod) -> ThreadScheduling {
        let policy = (pod.name == "web").then_some(ThreadPolicy::Fifo(9));
        ThreadScheduling { policy, io: None }
    }

    fn mounts(&self, _pod_id: &str, _name: &str, _attempt: u32) -> Vec<Mount> {
        vec![Mount { container_path: "/.bayplan".into(), host_path: "/run/x".into() }]
    }

    async fn created(&self, ticket: Ticket, outcome: CreateOutcome) {
        self.write(format!("created {}: {outcome:?}", ticket.0));
    }

    async fn starting(&self, container_id: &str) -> Result<(), String> {
        self.write(format!("starting: {container_id}"));
        if container_id == "unready" { Err("its files are not there".to_owned()) } else { Ok(()) }
    }

    async fn started(&self, container_id: &str) {
        self.write(format!("started: {container_id}"));
    }

    async fn ended(&self, container_id: &str) {
        self.write(format!("ended: {container_id}"));
    }

    async fn resize(&self, container_id: &str, resources: Resources) -> Admission {
        self.write(format!("resize: {container_id} to {} shares", resources.cpu_shares));
        if container_id == "hung" {
            std::future::pending::<()>().await;
        }
        Admission::Place(on("2-3"))
    }

    async fn resized(&self, container_id: &str, outcome: ResizeOutcome) {
        self.write(format!("resized: {container_id}, {outcome:?}"));
    }

    fn may_pass(&self, _method: &str, _why: &'static str) -> Result<(), String> {
        Ok(())
    }
}

impl InEvent for Scribe {
    fn configured(&self, _granted: &Granted) -> bool {
        true
    }

    fn synchronized(&self) {}

    fn lost(&self, _why: &str) {
        self.is_lost.notify_one();
    }

    fn settled(&self) {
        self.write("settled".to_owned());
    }

    fn beside(&self, others: Vec<OtherPlugin>) {
        self.write(format!("beside {others:?}"));
    }

    fn taken_back(&self, container: &str, set_before: &str) {
        self.write(format!("taken back: {container}, set before to {set_before:?}"));
    }

    fn answered(&self, _event: Event, _took: Duration, _is_late: bool) -> Result<(), String> {
        Ok(())
    }

    async fn let_go(&self, except: &str, place: &Pinning) -> Result<LetGo, String> {
        self.write(format!("let go of {} for {except}", place.cpus));
        if except == "stuck" {
            return Err("old does not let go".to_owned());
        }
        Ok(LetGo { updates: vec![("old".to_owned(), on("0-2"))], stuck: Vec::new() })
    }

    fn origin(&self, container_id: &str, asked: &Pinning) -> Origin {
        match (container_id, asked.cpus.to_string().as_str()) {
            ("old", "0-2") => Origin::Own,
            ("old", "0-3") => Origin::Overtaken(Box::new(on("0-2"))),
            _ => Origin::Other,
        }
    }
}

fn hook(event: Event, id: &str) -> Hook {
    let pod = api::PodSandbox {
        id: "p".into(),
        namespace: "n".into(),
        name: "web".into(),
        ..Default::default()
    };
    let container = api::Container { id: id.into(), name: id.into(), ..Default::default() };
    Hook { event, pod, container: (!id.is_empty()).then_some(container), resources: None }
}

fn update(id: &str, shares: u64, cpus: &str) -> Hook {
    let cpu = api::LinuxCpu {
        shares: (shares > 0).then_some(api::OptionalUInt64 { value: shares }),
        cpus: cpus.into(),
        ..Default::default()
    };
    let resources = api::LinuxResources { cpu: Some(cpu), ..Default::default() };
    Hook { resources: Some(resources), ..hook(Event::UpdateContainer, id) }
}

async fn check(manners: Manners, story: impl AsyncFnOnce(&Plugin), expected: &Expect) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let runtime = RuntimeEnd::listen(&socket, manners).unwrap();
    let (scribe, stop) = (Scribe::default(), CancellationToken::new());
    let settings = Settings { socket, name: "bayplan".into(), index: "90".into() };
    let running = tokio::spawn(run(settings, FrontEnd::new(scribe.clone()), stop.clone()));
    let plugin = runtime.accept(&[]).await.unwrap();
    story(&plugin).await;
    stop.cancel();
    running.await.unwrap();
    expected.assert_eq(&scribe.lines.lock().unwrap());
}

async fn life(plugin: &Plugin) {
    for event in [Event::CreateContainer, Event::PostCreateContainer, Event::StartContainer] {
        plugin.tell(hook(event, "c")).await.unwrap();
    }
    plugin.tell(hook(Event::PostStartContainer, "c")).await.unwrap();
    plugin.tell(update("c", 2048, "")).await.unwrap();
    plugin.tell(hook(Event::PostUpdateContainer, "c")).await.unwrap();
    plugin.tell(hook(Event::StopContainer, "c")).await.unwrap();
    plugin.tell(hook(Event::CreateContainer, "c")).await.unwrap();
    plugin.tell(hook(Event::RemovePodSandbox, "")).await.unwrap();
}

#[tokio::test]
async fn a_container_lives_from_its_creation_to_its_end() {
    let expected = expect![[r#"
        admit 1: c, attempt 0
        let go of 3 for c
        created 1: Created { id: "c", pinned: true }
        starting: c
        started: c
        resize: c to 2048 shares
        let go of 2-3 for c
        resized: c, Done
        ended: c
        admit 2: c, attempt 1
        let go of 3 for c
        pod ended: p
        created 2: Unknown
    "#]];
    for manners in [Manners::containerd(), Manners::old_containerd(), Manners::crio()] {
        check(manners, life, &expected).await;
    }
}

#[tokio::test]
async fn what_others_let_go_of_and_what_is_mounted_is_in_the_answer() {
    let story = async |plugin: &Plugin| {
        let reply = plugin.tell(hook(Event::CreateContainer, "c")).await.unwrap();
        let update = translate::update("old", &on("0-2")).unwrap();
        assert_eq!(reply.update, [update]);
        let adjust = reply.adjust.unwrap();
        assert_eq!(adjust.mounts[0].destination, "/.bayplan");
        assert_eq!(adjust.linux.unwrap().scheduler.unwrap().priority, 9);
        plugin.create(hook(Event::CreateContainer, "d")).await.unwrap();
        assert_eq!((plugin.sets("d").0.as_str(), plugin.sets("old").0.as_str()), ("3", "0-2"));
    };
    check(
        Manners::containerd(),
        story,
        &expect![[r#"
            admit 1: c, attempt 0
            let go of 3 for c
            admit 2: d, attempt 0
            let go of 3 for d
            created 1: Unknown
            created 2: Unknown
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_creation_that_comes_to_nothing_gives_its_place_back() {
    let story = async |plugin: &Plugin| {
        let refused = |name: &'static str| plugin.create(hook(Event::CreateContainer, name));
        assert_eq!(refused("never").await, Err("bayplan: no room".to_owned()));
        assert_eq!(refused("stuck").await, Err("old does not let go".to_owned()));
        // Another plugin, or the runtime itself, has failed it.
        plugin.create(hook(Event::CreateContainer, "c")).await.unwrap();
        plugin.tell(hook(Event::StopContainer, "c")).await.unwrap();
        plugin.tell(hook(Event::RemoveContainer, "c")).await.unwrap();
        plugin.create(hook(Event::CreateContainer, "unready")).await.unwrap();
        plugin.tell(hook(Event::PostCreateContainer, "unready")).await.unwrap();
        let start = plugin.tell(hook(Event::StartContainer, "unready")).await;
        assert_eq!(start, Err("its files are not there".to_owned()));
        plugin.tell(hook(Event::StopContainer, "unready")).await.unwrap();
    };
    check(
        Manners::containerd(),
        story,
        &expect![[r#"
            admit 1: never, attempt 0
            admit 2: stuck, attempt 0
            let go of 3 for stuck
            created 2: Failed
            admit 3: c, attempt 0
            let go of 3 for c
            created 3: Failed
            taken back: n/web/c, set before to ""
            ended: c
            admit 4: unready, attempt 0
            let go of 3 for unready
            created 4: Created { id: "unready", pinned: true }
            starting: unready
            ended: unready
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_creation_for_which_another_plugin_sets_the_same_is_taken_back() {
    let story = async |plugin: &Plugin| {
        plugin.create(hook(Event::CreateContainer, "c")).await.unwrap();
        let mut both = hook(Event::CreateContainer, "both");
        let linux = update("both", 0, "0-1").resources;
        let linux = api::LinuxContainer { resources: linux, ..Default::default() };
        both.container.as_mut().unwrap().linux = Some(linux);
        let refused = plugin.create(both).await;
        let text = "plugins \"10-other\" and \"90-bayplan\" both tried to set CPUSetCPUs";
        assert_eq!(refused, Err(text.to_owned()));
    };
    check(
        Manners { other: "10-other".into(), ..Manners::containerd() },
        story,
        &expect![[r#"
            admit 1: c, attempt 0
            let go of 3 for c
            beside [OtherPlugin { name: "10-other", sets: {} }]
            admit 2: both, attempt 0
            let go of 3 for both
            created 2: Failed
            taken back: n/web/both, set before to "0-1"
            ended: both
            created 1: Unknown
        "#]],
    )
    .await;
}

#[tokio::test]
async fn updates_of_the_nodes_own_are_not_taken_for_kubelets() {
    let story = async |plugin: &Plugin| {
        for (asked, expected) in [
            (update("old", 0, "0-2"), "0-2"),
            (update("old", 0, "0-3"), "0-2"),
            (update("old", 1024, "0-7"), "2-3"),
        ] {
            plugin.update(asked).await.unwrap();
            assert_eq!(plugin.sets("old").0, expected);
            plugin.tell(hook(Event::PostUpdateContainer, "old")).await.unwrap();
        }
        let mut pod = hook(Event::UpdatePodSandbox, "");
        pod.resources = update("", 512, "").resources;
        plugin.tell(pod).await.unwrap();
    };
    check(
        Manners::containerd(),
        story,
        &expect![[r#"
            resize: old to 1024 shares
            let go of 2-3 for old
            resized: old, Done
            pod resized: p to 512 shares
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_under_way_when_the_connection_ends_is_in_doubt() {
    let story = async |plugin: &Plugin| {
        plugin.tell(hook(Event::RunPodSandbox, "")).await.unwrap();
        plugin.create(hook(Event::CreateContainer, "c")).await.unwrap();
        plugin.update(update("d", 2, "")).await.unwrap();
        plugin.close();
    };
    check(
        Manners::containerd(),
        story,
        &expect![[r#"
            pod started: n/web
            admit 1: c, attempt 0
            let go of 3 for c
            resize: d to 2 shares
            let go of 2-3 for d
            created 1: Unknown
            resized: d, Unknown
        "#]],
    )
    .await;
}

/// Issue 35: such a container was never heard of again, and kept its CPUs for good. It ends in doubt after it was asked about, because before that there is nothing that could end.
#[tokio::test]
async fn a_creation_that_is_being_decided_when_the_connection_ends_is_in_doubt_afterwards() {
    for (name, before) in
        [("slow", "admit 1: slow, attempt 0\nlet go of 3 for slow\n"), ("hung", "")]
    {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nri.sock");
        let request_timeout = Duration::from_millis(400);
        let manners = Manners { request_timeout, ..Manners::containerd() };
        let runtime = RuntimeEnd::listen(&socket, manners).unwrap();
        let (scribe, stop) = (Scribe::default(), CancellationToken::new());
        let settings = Settings { socket, name: "bayplan".into(), index: "90".into() };
        let running = tokio::spawn(run(settings, FrontEnd::new(scribe.clone()), stop.clone()));
        let plugin = runtime.accept(&[]).await.unwrap();
        let closing = async {
            scribe.is_asked.notified().await;
            plugin.close();
        };
        let (_not_answered, ()) =
            tokio::join!(plugin.tell(hook(Event::CreateContainer, name)), closing);
        let expected = format!("{before}created 1: Unknown\n");
        let lines = || scribe.lines.lock().unwrap().clone();
        let told = async {
            while lines().len() < expected.len() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _late = tokio::time::timeout(Duration::from_secs(10), told).await;
        assert_eq!(lines(), expected);
        stop.cancel();
        running.await.unwrap();
    }
}

/// The runtime does not wait for the answer; it may be decided all the same.
#[tokio::test(start_paused = true)]
async fn an_update_that_is_not_waited_for_is_in_doubt_in_the_end() {
    let scribe = Scribe::default();
    let front_end = FrontEnd::new(scribe.clone());
    let answered = front_end.answer(1, update("hung", 1024, ""));
    assert!(tokio::time::timeout(Duration::from_secs(2), answered).await.is_err());
    tokio::time::sleep(UPDATE_MAX).await;
    let lines = scribe.lines.lock().unwrap().clone();
    assert_eq!(lines, "resize: hung to 1024 shares\nresized: hung, Unknown\n");
}

/// What a runtime that does not wait tells of it on its next connection ends nothing that has not been decided yet.
#[tokio::test]
async fn a_creation_that_ended_on_the_next_connection_before_it_was_decided_is_in_doubt() {
    for event in [Event::PostCreateContainer, Event::StartContainer, Event::RemoveContainer] {
        let scribe = Scribe::default();
        let front_end = FrontEnd::new(scribe.clone());
        let ending = async {
            scribe.is_asked.notified().await;
            front_end.answer(2, hook(event, "slow")).await.unwrap();
            scribe.lines.lock().unwrap().clear();
            scribe.is_lost.notify_one();
        };
        let (answered, ()) =
            tokio::join!(front_end.answer(1, hook(Event::CreateContainer, "slow")), ending);
        assert!(answered.is_err());
        let lines = scribe.lines.lock().unwrap().clone();
        assert_eq!(lines, "admit 1: slow, attempt 0\ncreated 1: Unknown\n", "{event:?}");
    }
}

/// A new connection's creations are not those of one that ends meanwhile.
#[tokio::test]
async fn a_connection_ends_what_came_on_it_only() {
    let scribe = Scribe::default();
    let front_end = FrontEnd::new(scribe.clone());
    for (connection, name) in [(1, "first"), (2, "second")] {
        front_end.answer(connection, hook(Event::CreateContainer, name)).await.unwrap();
    }
    front_end.answer(2, update("third", 2, "")).await.unwrap();
    scribe.lines.lock().unwrap().clear();
    for _ in 0..2 {
        front_end.connection_ended(1).await;
    }
    assert_eq!(*scribe.lines.lock().unwrap(), "created 1: Unknown\n");
}

/// Issue 35: the registration was told before the doubt, which then waited for as long as one of a runtime that may still be making the container.
#[tokio::test]
async fn a_creation_that_is_decided_after_the_next_registration_is_in_doubt_no_longer_than_others()
{
    for (is_registered, settled) in [(true, "settled\n"), (false, "")] {
        let scribe = Scribe::default();
        let front_end = FrontEnd::new(scribe.clone());
        front_end.synchronized();
        let ending = async {
            scribe.is_asked.notified().await;
            if is_registered {
                front_end.lost("cut off");
                front_end.synchronized();
            } else {
                front_end.synchronized();
                front_end.lost("cut off");
            }
        };
        let (_late, ()) =
            tokio::join!(front_end.answer(1, hook(Event::CreateContainer, "slow")), ending);
        scribe.lines.lock().unwrap().clear();
        front_end.connection_ended(1).await;
        let expected = format!("created 1: Unknown\n{settled}");
        assert_eq!(*scribe.lines.lock().unwrap(), expected);
    }
}

/// What the runtime has not been told is not taken for told.
#[tokio::test]
async fn an_answer_that_is_given_up_tells_nothing() {
    let scribe = Scribe::default();
    let front_end = FrontEnd::new(scribe.clone());
    let mut isolated = hook(Event::CreateContainer, "c");
    let words = ["/opt/bin/cmk", "isolate", "--pool=exclusive", "sleep", "inf"];
    isolated.container.as_mut().unwrap().args = words.map(str::to_owned).to_vec();
    let answering = front_end.answer(1, isolated);
    tokio::time::timeout(Duration::from_millis(20), answering).await.unwrap_err();
    front_end.answer(1, hook(Event::PostCreateContainer, "c")).await.unwrap();
    let lines = scribe.lines.lock().unwrap().clone();
    assert!(lines.ends_with("created 1: Created { id: \"c\", pinned: false }\n"), "{lines}");
}
