use std::path::Path;

use tokio::task::JoinHandle;

use super::*;
use crate::runtime_end::{Manners, RuntimeEnd};

/// Pins everything to CPU 3, takes CPU 3 from container `old`, and refuses what is called `never`; waits for ever for what is called `late`.
#[derive(Clone, Default)]
struct Pinner {
    told: Arc<Mutex<Vec<String>>>,
    /// Requests without an answer do not fail.
    is_open: bool,
}

impl Pinner {
    fn note(&self, text: String) {
        self.told.lock().unwrap().push(text);
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }
}

fn resources(cpus: &str) -> api::LinuxResources {
    let cpu = api::LinuxCpu { cpus: cpus.to_owned(), ..Default::default() };
    api::LinuxResources { cpu: Some(cpu), ..Default::default() }
}

fn update(id: &str, cpus: &str) -> api::ContainerUpdate {
    let linux = api::LinuxContainerUpdate { resources: Some(resources(cpus)) };
    api::ContainerUpdate { container_id: id.to_owned(), linux: Some(linux), ignore_failure: false }
}

impl Hooks for Pinner {
    fn configured(&self, granted: &Granted) -> bool {
        self.note(format!(
            "configured by {} within {:?}",
            granted.runtime, granted.request_timeout
        ));
        !self.is_open
    }

    fn synchronized(&self) {
        self.note("synchronized".to_owned());
    }

    fn lost(&self, _why: &str) {}

    async fn connection_ended(&self, _connection: u64) {}

    fn beside(&self, others: Vec<OtherPlugin>) {
        self.note(format!(
            "beside {}",
            others.iter().map(|it| it.name.as_str()).collect::<String>()
        ));
    }

    async fn answer(&self, _connection: u64, hook: Hook) -> Result<Reply, String> {
        let name = hook.container.map(|it| it.name).unwrap_or(hook.pod.name);
        self.note(format!("{} {name}", name_of(hook.event)));
        match (hook.event, name.as_str()) {
            (_, "never") => Err("never".to_owned()),
            (_, "late") => std::future::pending().await,
            (Event::CreateContainer, _) => {
                let linux = api::LinuxContainerAdjustment {
                    resources: Some(resources("3")),
                    ..Default::default()
                };
                let adjust = api::ContainerAdjustment { linux: Some(linux), ..Default::default() };
                // More than the first frame holds.
                let others = (0..200).map(|at| update(&format!("{at:064}"), "0-2"));
                let update = others.chain([update("old", "0-2")]).collect();
                Ok(Reply { adjust: Some(adjust), update })
            }
            (Event::UpdateContainer, id) => {
                Ok(Reply { adjust: None, update: vec![update(id, "3")] })
            }
            _ => Ok(Reply::default()),
        }
    }

    fn answered(&self, event: Event, _took: Duration, is_late: bool) -> Result<Reply, String> {
        if is_late {
            self.note(format!("{} was late", name_of(event)));
        }
        Ok(Reply::default())
    }
}

fn start(socket: &Path) -> (Pinner, CancellationToken, JoinHandle<()>) {
    let (pinner, stop) = (Pinner::default(), CancellationToken::new());
    let settings =
        Settings { socket: socket.to_owned(), name: "bayplan".into(), index: "90".into() };
    let running = tokio::spawn(run(settings, pinner.clone(), stop.clone()));
    (pinner, stop, running)
}

fn hook(event: Event, name: &str) -> Hook {
    let is_of_pod = matches!(event, Event::RunPodSandbox | Event::UpdatePodSandbox);
    let pod = api::PodSandbox { name: name.to_owned(), ..Default::default() };
    let container =
        api::Container { id: name.to_owned(), name: name.to_owned(), ..Default::default() };
    let resources = (event == Event::UpdateContainer).then(|| resources("0-7"));
    Hook { event, pod, container: (!is_of_pod).then_some(container), resources }
}

/// Registers with a runtime of these manners, creates and updates a container, and gives what the plugin heard.
async fn heard(manners: Manners) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let (pinner, stop, running) = start(&socket);
    let runtime = RuntimeEnd::listen(&socket, manners).unwrap();
    let known: Vec<api::Container> = (0..10).map(|_| api::Container::default()).collect();
    let mut plugin = runtime.accept(&known).await;
    if plugin.is_err() {
        pinner.note(plugin.err().unwrap());
        plugin = runtime.accept(&known).await;
    }
    let plugin = plugin.unwrap();
    assert_eq!(plugin.registered.plugin_idx, "90");
    let policy = api::FailurePolicy { fail_request: true, keep_connected: true };
    assert_eq!(plugin.configured.failure_policy, Some(policy));
    plugin.tell(hook(Event::RunPodSandbox, "p")).await.unwrap();
    plugin.create(hook(Event::CreateContainer, "c")).await.unwrap();
    assert_eq!((plugin.sets("c").0.as_str(), plugin.sets("old").0.as_str()), ("3", "0-2"));
    plugin.tell(hook(Event::StartContainer, "c")).await.unwrap();
    plugin.update(hook(Event::UpdateContainer, "c")).await.unwrap();
    assert_eq!(plugin.sets("c").0, "3");
    plugin.tell(hook(Event::UpdatePodSandbox, "p")).await.unwrap();
    plugin.tell(hook(Event::StopContainer, "c")).await.unwrap();
    stop.cancel();
    running.await.unwrap();
    plugin.closed().await;
    pinner.told()
}

#[tokio::test]
async fn every_version_is_registered_with_and_tells_the_same_events() {
    let full = [
        "RunPodSandbox p",
        "CreateContainer c",
        "StartContainer c",
        "UpdateContainer c",
        "UpdatePodSandbox p",
        "StopContainer c",
    ];
    let old: Vec<&str> = full.into_iter().filter(|it| !it.starts_with("UpdatePod")).collect();
    let beside = Manners { other: "10-other".into(), ..Manners::containerd() };
    let with_other = [&full[..2], &["beside 10-other"], &full[2..]].concat();
    let unknown = Manners { version: "abc".into(), ..Manners::old_containerd() };
    let parts = Manners { parts: 3, ..Manners::containerd() };
    let by = |runtime: &str| format!("configured by {runtime} within Some(2s)");
    let (first, crio) = (by("containerd"), by("cri-o"));
    for (manners, before, events) in [
        (Manners::containerd(), vec![first.as_str(), "synchronized"], full.to_vec()),
        (parts, vec![&first, "synchronized"], full.to_vec()),
        (beside, vec![&first, "synchronized"], with_other),
        (Manners::crio(), vec![&crio, "synchronized"], full.to_vec()),
        (Manners::old_containerd(), vec![&first, "synchronized"], old.clone()),
        (unknown, vec![&first, "invalid plugin events: 0x3800", &first, "synchronized"], old),
    ] {
        let expected: Vec<&str> = before.into_iter().chain(events).collect();
        assert_eq!(heard(manners).await, expected);
    }
}

#[tokio::test]
async fn what_is_refused_fails_and_what_is_late_is_answered_before_the_runtime_gives_up() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let manners = Manners { request_timeout: Duration::from_millis(400), ..Manners::containerd() };
    let runtime = RuntimeEnd::listen(&socket, manners).unwrap();
    let (pinner, stop, running) = start(&socket);
    let plugin = runtime.accept(&[]).await.unwrap();
    assert_eq!(plugin.create(hook(Event::CreateContainer, "never")).await, Err("never".into()));
    plugin.create(hook(Event::CreateContainer, "late")).await.unwrap();
    assert!(pinner.told().contains(&"CreateContainer was late".to_owned()));
    plugin.create(hook(Event::CreateContainer, "c")).await.unwrap();
    assert_eq!(plugin.sets("c").0, "3", "it is still registered");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn an_update_that_fails_is_ignored_by_containerd_and_fails_the_creation_with_crio() {
    for (manners, expected) in [
        (Manners::containerd(), Ok(())),
        (Manners::crio(), Err("failed to update container old".to_owned())),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nri.sock");
        let runtime = RuntimeEnd::listen(&socket, manners).unwrap();
        runtime.stuck.lock().unwrap().insert("old".to_owned());
        let (_pinner, stop, running) = start(&socket);
        let plugin = runtime.accept(&[]).await.unwrap();
        assert_eq!(plugin.create(hook(Event::CreateContainer, "c")).await, expected);
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test]
async fn the_plugin_comes_back_after_the_runtime_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let (pinner, stop, running) = start(&socket);
    for _ in 0..3 {
        let runtime = RuntimeEnd::listen(&socket, Manners::containerd()).unwrap();
        let plugin = runtime.accept(&[]).await.unwrap();
        plugin.create(hook(Event::CreateContainer, "c")).await.unwrap();
        plugin.close();
        drop(runtime);
        std::fs::remove_file(&socket).unwrap();
    }
    let times = |text: &str| pinner.told().iter().filter(|it| *it == text).count();
    assert_eq!((times("synchronized"), times("CreateContainer c")), (3, 3));
    stop.cancel();
    running.await.unwrap();
}

fn plugin_end(hooks: &Pinner, progress: Progress) -> PluginEnd<Pinner> {
    PluginEnd {
        hooks: hooks.clone(),
        connection: 0,
        name: "90-bayplan".to_owned(),
        mask: None,
        progress: Arc::new(Mutex::new(progress)),
        running: TaskTracker::new(),
    }
}

fn call(method: &str, payload: &'static [u8]) -> Call {
    let deadline = Instant::now() + Duration::from_secs(2);
    Call { method: method.to_owned(), payload: payload.into(), deadline }
}

#[tokio::test]
async fn a_creation_that_cannot_be_read_is_approved() {
    let pinner = Pinner::default();
    let end = plugin_end(&pinner, Progress::default());
    let unreadable = call("ValidateContainerAdjustment", b"\xff\xff");
    assert_eq!(end.answer(unreadable).await, Ok(Vec::new()));
    assert_eq!(pinner.told(), Vec::<String>::new());
}

/// Nothing would end what it begins.
#[tokio::test]
async fn a_call_that_is_heard_of_after_the_connection_has_ended_is_not_answered() {
    let pinner = Pinner::default();
    let end = plugin_end(&pinner, Progress { is_over: true, ..Progress::default() });
    let answer = end.answer(call("CreateContainer", b"")).await;
    assert_eq!(answer.map_err(|it| it.message), Err("the connection has ended".to_owned()));
    assert_eq!(pinner.told(), Vec::<String>::new());
}

/// The runtime fails a creation with an approver that is killed, whatever `onFailure` is.
#[test]
fn creations_are_approved_only_where_they_are_to_fail_without_an_answer() {
    for (is_open, expected) in [(true, 0x1fff), (false, 0x3fff)] {
        let pinner = Pinner { is_open, ..Pinner::default() };
        let end = plugin_end(&pinner, Progress::default());
        let runtime_name = "containerd".to_owned();
        let nri_version = "v0.12.3".to_owned();
        let request =
            api::ConfigureRequest { runtime_name, nri_version, ..api::ConfigureRequest::default() };
        assert_eq!(end.configure(&request).events, expected);
    }
}
