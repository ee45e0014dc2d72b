//! `bayplan webhook` as a process, asked by a real API server. In: pods. Out: what is written into them, while its certificate is renewed, and while it is down.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::node::DAEMON;
use crate::policies::{ANNOTATION, admitted, container, pod, said};
use crate::world::World;

const MANIFEST: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/webhook.yaml"));
const DEFINITION: &str = include_str!("colocation-profile-definition.yaml");
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/bayplan-requests";
const SECRET: &str = "/api/v1/namespaces/bayplan-system/secrets/bayplan-webhook";
/// `1970-01-01T00:00:00Z` in Base64.
const LONG_AGO: &str = "MTk3MC0wMS0wMVQwMDowMDowMFo=";
/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// Pods that must have been created between two renewals.
const PODS: usize = 20;

struct Webhook {
    process: Child,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// In the order in which each needs the one before.
pub(crate) async fn a_webhook_writes_into_pods(world: &World) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    apply(world, port).await;
    let webhook = start(world, port).await;
    annotated(world).await;
    requests_become_an_annotation(world).await;
    profiles_are_carried_out(world).await;
    certificates_are_renewed_under_load(world).await;
    the_ca_is_written_again(world, port).await;
    drop(webhook);
    pods_are_created_without_it(world).await;
    let webhook = start(world, port).await;
    annotated(world).await;
    drop(webhook);
    certificates_of_another_program_are_used(world, port).await;
    let (status, told) = world.as_admin("DELETE", CONFIGURATION, &json!({})).await;
    assert_eq!(status, 200, "{told}");
}

fn client_config(port: u16) -> Json {
    json!({ "url": format!("https://127.0.0.1:{port}/pods") })
}

/// The manifests as they are, but for where the API server finds the webhook: there is no network of Services.
async fn apply(world: &World, port: u16) {
    let texts = [DEFINITION, MANIFEST].into_iter();
    for mut object in texts.flat_map(|it| serde_yaml::from_multiple::<Json>(it).unwrap()) {
        if object["kind"] == "MutatingWebhookConfiguration" {
            object["webhooks"][0]["clientConfig"] = client_config(port);
        }
        world.put(&object).await;
    }
    // The option of the chart; the plain manifest is without.
    let rule = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"] });
    let rules = [
        rule("config.koordinator.sh", "clustercolocationprofiles"),
        rule("", "namespaces"),
        rule("scheduling.k8s.io", "priorityclasses"),
    ];
    let named = |kind: &str| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": "bayplan-webhook-profiles" } });
    let (mut role, mut binding) = (named("ClusterRole"), named("ClusterRoleBinding"));
    role["rules"] = json!(rules);
    binding["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bayplan-webhook-profiles" });
    binding["subjects"] = json!([{ "kind": "ServiceAccount", "name": "bayplan-webhook", "namespace": "bayplan-system" }]);
    world.put(&role).await;
    world.put(&binding).await;
}

async fn start(world: &World, port: u16) -> Webhook {
    start_with(world, port, &[]).await
}

async fn start_with(world: &World, port: u16, more: &[&str]) -> Webhook {
    let file = world.kubeconfig_of("bayplan-webhook").await;
    let log = world.servers.path("webhook.log");
    let log = fs::File::options().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(DAEMON);
    command.args(["webhook", "--name", "127.0.0.1", "--colocation-profiles", "--listen"]);
    command.arg(format!("127.0.0.1:{port}")).args(more).env("KUBECONFIG", file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Webhook { process: command.spawn().unwrap() }
}

fn words(world: &World) -> String {
    fs::read_to_string(world.servers.path("webhook.log")).unwrap_or_default()
}

fn one_cpu() -> Json {
    pod(json!({}), &[], &[container("a", json!({ "cpu": "1" }))])
}

/// Waits until new pods have the annotation.
async fn annotated(world: &World) {
    let begun = Instant::now();
    while said(&admitted(world, "default", &one_cpu()).await["metadata"]).is_none() {
        assert!(begun.elapsed() < STUCK, "{}", words(world));
        sleep(POLL).await;
    }
}

async fn requests_become_an_annotation(world: &World) {
    let power = json!({ "cpu": "1500m", "power.intel.com/performance": "2" });
    let bare = json!({ "name": "b", "image": "x" });
    let init = json!({ "name": "i", "image": "x" });
    let full = pod(json!({}), &[init], &[container("a", power.clone()), bare.clone()]);
    let expected = json!({
        "initContainers": { "i": {} },
        "containers": {
            "a": { "requests": power, "limits": { "power.intel.com/performance": "2" } },
            "b": {},
        },
    });
    let mut known = one_cpu();
    known["metadata"]["annotations"] = json!({ ANNOTATION: "{\"containers\":{}}" });
    for (pod, expected) in [
        (full, Some(expected)),
        (pod(json!({}), &[], &[bare]), None),
        // What another webhook has written stays.
        (known, Some(json!({ "containers": {} }))),
    ] {
        let metadata = admitted(world, "default", &pod).await["metadata"].clone();
        assert_eq!(said(&metadata).map(|it| json!(it)), expected, "{metadata}");
    }
}

async fn profiles_are_carried_out(world: &World) {
    let labels = json!({ "team": "batch" });
    world.put(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "spark", "labels": labels } })).await;
    world.put(&json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "koord-batch" }, "value": 5500 })).await;
    world.put(&json!({
        "apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile", "metadata": { "name": "spark" },
        "spec": {
            "namespaceSelector": { "matchLabels": { "team": "batch" } },
            "selector": { "matchLabels": { "app": "executor" } },
            "qosClass": "BE", "priorityClassName": "koord-batch", "koordinatorPriority": 1000, "schedulerName": "koord-scheduler",
            "labels": { "colocated": "true" }, "annotations": { "bayplan.dev/rdtclass": "batch" },
        },
    }))
    .await;
    let executor = pod(json!({ "app": "executor" }), &[], &[container("a", json!({ "cpu": "1" }))]);
    let begun = Instant::now();
    let found = loop {
        let found = admitted(world, "spark", &executor).await;
        if found["metadata"]["labels"]["colocated"] == "true" && found["spec"]["priority"] == 5500 {
            break found;
        }
        assert!(begun.elapsed() < STUCK, "{found:#}\n{}", words(world));
        sleep(POLL).await;
    };
    let (metadata, spec) = (&found["metadata"], &found["spec"]);
    let labels = json!({ "app": "executor", "colocated": "true", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1000" });
    assert_eq!(metadata["labels"], labels);
    assert_eq!(metadata["annotations"]["bayplan.dev/rdtclass"], "batch");
    assert!(said(metadata).is_some(), "{metadata}");
    let fields = [&spec["priorityClassName"], &spec["schedulerName"], &spec["preemptionPolicy"]];
    assert_eq!(fields, ["koord-batch", "koord-scheduler", "PreemptLowerPriority"]);
    for (namespace, app) in [("default", "executor"), ("spark", "driver")] {
        let other = pod(json!({ "app": app }), &[], &[container("a", json!({ "cpu": "1" }))]);
        let found = admitted(world, namespace, &other).await;
        assert_eq!(found["metadata"]["labels"], json!({ "app": app }), "{namespace}");
    }
}

/// Every pod has the annotation, whatever happens to certificates.
async fn certificates_are_renewed_under_load(world: &World) {
    let (created, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let create = async || {
        while !is_over.load(Ordering::Relaxed) {
            let metadata = admitted(world, "default", &one_cpu()).await["metadata"].clone();
            let number = created.fetch_add(1, Ordering::Relaxed);
            assert!(said(&metadata).is_some(), "pod {number}: {metadata}\n{}", words(world));
        }
    };
    let renew = async {
        // A leaf, a CA, and a leaf of that one.
        for (key, changes) in
            [("renewed-at", "tls.crt"), ("ca-renewed-at", "ca.crt"), ("renewed-at", "tls.crt")]
        {
            let before = world.read(SECRET).await["data"][changes].clone();
            let target = created.load(Ordering::Relaxed) + PODS;
            world.merge_into(SECRET, json!({ "data": { key: LONG_AGO } })).await;
            let begun = Instant::now();
            loop {
                let data = world.read(SECRET).await["data"].clone();
                let is_trusted = world.read(CONFIGURATION).await["webhooks"][0]["clientConfig"]["caBundle"]
                    == data["ca.crt"];
                let is_renewed = data[changes] != before && data[key] != LONG_AGO && is_trusted;
                if is_renewed && created.load(Ordering::Relaxed) >= target {
                    break;
                }
                assert!(begun.elapsed() < STUCK, "{key}\n{}", words(world));
                sleep(POLL).await;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(create(), create(), create(), create(), renew);
}

/// As an upgrade of a chart does that knows no CA.
async fn the_ca_is_written_again(world: &World, port: u16) {
    let mut webhook = world.read(CONFIGURATION).await["webhooks"][0].clone();
    assert!(webhook["clientConfig"]["caBundle"].is_string(), "{webhook:#}");
    webhook["clientConfig"] = client_config(port);
    world.merge_into(CONFIGURATION, json!({ "webhooks": [webhook] })).await;
    world
        .until("the CA is there again", CONFIGURATION, |it| {
            it["webhooks"][0]["clientConfig"]["caBundle"].is_string()
        })
        .await;
    annotated(world).await;
}

async fn pods_are_created_without_it(world: &World) {
    for name in ["first", "second"] {
        let mut pod = one_cpu();
        pod["metadata"]["name"] = json!(name);
        let path = "/api/v1/namespaces/default/pods";
        let (status, stored) = world.as_admin("POST", path, &pod).await;
        assert_eq!(status, 200, "{stored}");
        assert_eq!(said(&stored["metadata"]), None, "{stored:#}");
        let (status, told) = world
            .as_admin("DELETE", &format!("{path}/{name}?gracePeriodSeconds=0"), &json!({}))
            .await;
        assert_eq!(status, 200, "{told}");
    }
}

/// As cert-manager does: files in a directory, and their CA in the configuration.
async fn certificates_of_another_program_are_used(world: &World, port: u16) {
    let dir = world.servers.path("certificate");
    fs::create_dir_all(&dir).unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|it| dir.join(it));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=w"]);
    command.args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"]).arg(key).arg("-out");
    let made = command.arg(&certificate).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = Command::new("openssl").args(["base64", "-A", "-in"]).arg(&certificate).output();
    let bundle = String::from_utf8(text.unwrap().stdout).unwrap();
    let mut webhook = world.read(CONFIGURATION).await["webhooks"][0].clone();
    webhook["clientConfig"] = client_config(port);
    webhook["clientConfig"]["caBundle"] = json!(bundle);
    world.merge_into(CONFIGURATION, json!({ "webhooks": [webhook] })).await;
    let webhook = start_with(world, port, &["--certificate", dir.to_str().unwrap()]).await;
    annotated(world).await;
    let kept = &world.read(CONFIGURATION).await["webhooks"][0]["clientConfig"]["caBundle"];
    assert_eq!(*kept, json!(bundle), "the configuration is the other program's");
    drop(webhook);
}
