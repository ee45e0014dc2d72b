//! The chart with the real Helm: its templates are the plain manifests, it is installed, upgraded, rolled back and removed on the API server, and what agents have published goes with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::Client;
use serde_json::{Value as Json, json};

use crate::servers::{ADMIN, Servers, find, is_missing};
use crate::stand_in::JobController;
use crate::world::{CONFIGS, call, client, kubeconfig, path_of, until};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart");
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster");
const NAMESPACE: &str = "bayplan-system";
const RELEASE: [&str; 4] = ["bayplan", CHART, "--namespace", NAMESPACE];
/// For what is rendered without an API server.
const KUBERNETES: &str = "1.34.0";
/// Files for `kubectl` beside the one that is always applied, each with the value of the chart that means the same.
const PARTS: [(&str, &str); 9] = [
    ("accept-nri-plugins.yaml", "accept.nriPlugins=true"),
    ("accept-cri-resmgr.yaml", "accept.criResmgr=true"),
    ("daemon.yaml", "daemon.enabled=true"),
    ("pods.yaml", "pods.enabled=true"),
    ("publishing.yaml", "publish.nodeTopology=true"),
    ("requests-policy.yaml", "requestsPolicy.enabled=true"),
    ("colocation-policy.yaml", "colocationPolicy.enabled=true"),
    ("webhook.yaml", "webhook.enabled=true"),
    ("withdraw.yaml", WITHDRAWN),
];
/// What is there only while a release is removed.
const WITHDRAWN: &str = "withdraw.enabled=true";
const NOT_WITHDRAWN: &str = "withdraw.enabled=false";

pub(crate) struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Helm {
    /// What it prints, or its errors.
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(args).arg("--kubeconfig").arg(&self.kubeconfig);
        for kind in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{kind}_HOME"), self.home.join(kind));
        }
        let done = command.output().unwrap();
        let [out, errors] = [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
        if done.status.success() { Ok(out) } else { Err(format!("{out}{errors}")) }
    }

    pub(crate) fn done(&self, args: &[&str]) -> String {
        self.run(args).unwrap_or_else(|error| panic!("helm {args:?}: {error}"))
    }

    /// Installs the chart with these values, or upgrades it.
    pub(crate) fn release(&self, verb: &str, values: &[&str]) {
        let mut args = vec![verb];
        args.extend(RELEASE);
        for value in values {
            args.extend(["--set", value]);
        }
        self.done(&args);
    }

    /// Removes the release, with what it runs at the end.
    pub(crate) async fn uninstall(&self, jobs: &JobController) {
        let job = jobs.run(NAMESPACE, "bayplan-withdraw");
        self.done(&["uninstall", "bayplan", "--namespace", NAMESPACE]);
        job.await.unwrap();
    }

    /// What would be installed with these values, by kind and name.
    fn template(&self, values: &[&str]) -> BTreeMap<String, Json> {
        let mut args = vec!["template", "--kube-version", KUBERNETES];
        args.extend(RELEASE);
        for value in values {
            args.extend(["--set", value]);
        }
        parse(&self.done(&args))
    }

    fn revisions(&self) -> usize {
        let told = self.done(&["history", "bayplan", "--namespace", NAMESPACE, "--output", "json"]);
        serde_json::from_str::<Json>(&told).unwrap().as_array().unwrap().len()
    }
}

mod removal;

/// Objects by kind and name, without what only Helm understands.
fn parse(text: &str) -> BTreeMap<String, Json> {
    let documents: Vec<Json> = serde_yaml::from_multiple(text).unwrap();
    let objects = documents.into_iter().filter(Json::is_object).map(|mut object| {
        let metadata = object["metadata"].as_object_mut().unwrap();
        let annotations = metadata.get_mut("annotations").and_then(Json::as_object_mut);
        let is_empty = annotations.is_some_and(|annotations| {
            annotations.retain(|key, _| !key.starts_with("helm.sh/"));
            annotations.is_empty()
        });
        if is_empty {
            metadata.remove("annotations");
        }
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]];
        (format!("{}/{}", kind.as_str().unwrap(), name.as_str().unwrap()), object)
    });
    objects.collect()
}

fn manifests(file: &str) -> BTreeMap<String, Json> {
    parse(&fs::read_to_string(Path::new(MANIFESTS).join(file)).unwrap())
}

pub(crate) async fn the_chart_is_installed_changed_and_removed(servers: &Servers) {
    let Some(program) = find("BAYPLAN_HELM", "helm", "helm-") else { return is_missing("helm") };
    let (home, file) = (servers.path("helm"), servers.path("helm.kubeconfig"));
    fs::write(&file, kubeconfig(&servers.address(), ADMIN)).unwrap();
    let helm = Helm { program, home, kubeconfig: file };
    let admin = client(&servers.address(), ADMIN).await;
    until("the API server answers", async || {
        call(&admin, "GET", "/api/v1/namespaces/default", &Json::Null).await.0 == 200
    })
    .await;
    templates_are_the_plain_manifests(&helm);
    choices_of_the_webhook_are_rendered(&helm);
    wrong_values_are_refused(&helm);
    metrics_are_served_where_asked_for(&helm);
    let jobs = JobController::new(servers, &admin);
    is_installed_and_changed(&helm, &admin, &servers.path("next-chart"), &jobs).await;
    what_is_kept_is_taken_over(&helm, &admin, &jobs).await;
    removal::what_agents_publish_goes_with_the_release(&helm, servers, &admin, &jobs).await;
}

fn templates_are_the_plain_manifests(helm: &Helm) {
    helm.done(&["lint", "--strict", CHART]);
    let (mut plain, made) = (manifests("bayplan.yaml"), helm.template(&[NOT_WITHDRAWN]));
    // Helm makes it by an option of its own.
    assert!(plain.remove(&format!("Namespace/{NAMESPACE}")).is_some());
    assert_eq!(made, plain);
    for (file, value) in PARTS {
        let made = helm.template(&[value]);
        let mut plain = manifests(file);
        plain.remove(&format!("Namespace/{NAMESPACE}"));
        for (name, object) in plain {
            assert_eq!(made.get(&name), Some(&object), "{file}: {name} with {value}");
        }
    }
    let made = helm.template(&["dashboards.enabled=true"]);
    let dashboard = made["ConfigMap/bayplan-dashboard"]["data"]["bayplan.json"].as_str().unwrap();
    assert!(serde_json::from_str::<Json>(dashboard).unwrap()["panels"].is_array());
}

fn choices_of_the_webhook_are_rendered(helm: &Helm) {
    let of_store = ["Role/bayplan-webhook", "ClusterRole/bayplan-webhook"];
    let of_manager = ["Issuer/bayplan-webhook", "Certificate/bayplan-webhook"];
    let of_profiles =
        ["ClusterRole/bayplan-webhook-profiles", "ClusterRoleBinding/bayplan-webhook-profiles"];
    for (has_manager, has_profiles) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let values = [
            "webhook.enabled=true".to_owned(),
            format!("webhook.certManager={has_manager}"),
            format!("webhook.colocationProfiles={has_profiles}"),
        ];
        let made = helm.template(&values.each_ref().map(String::as_str));
        for (names, is_there) in
            [(of_store, !has_manager), (of_manager, has_manager), (of_profiles, has_profiles)]
        {
            for name in names {
                assert_eq!(made.contains_key(name), is_there, "{name} with {values:?}");
            }
        }
        let pod = &made["Deployment/bayplan-webhook"]["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].to_string();
        assert_eq!(args.contains("--certificate=/certificate"), has_manager, "{args}");
        assert_eq!(args.contains("--colocation-profiles"), has_profiles, "{args}");
        let volume = &pod["volumes"][0]["secret"]["secretName"];
        let secret = made.get(of_manager[1]).map_or(&Json::Null, |it| &it["spec"]["secretName"]);
        assert_eq!(volume, secret, "{values:?}");
        let injected = &made["MutatingWebhookConfiguration/bayplan-requests"]["metadata"]["annotations"]
            ["cert-manager.io/inject-ca-from"];
        let expected = format!("{NAMESPACE}/bayplan-webhook");
        assert_eq!(injected.as_str(), has_manager.then_some(expected.as_str()), "{values:?}");
    }
}

fn wrong_values_are_refused(helm: &Helm) {
    for (value, expected) in [
        ("controlGroup=users", "controlGroup"),
        ("socketDirectory=run", "socketDirectory"),
        ("image=", "image"),
        ("publish.taint=true", "taint"),
    ] {
        let mut args = vec!["template"];
        args.extend(RELEASE);
        args.extend(["--set", value]);
        let refused = helm.run(&args).expect_err(value);
        assert!(refused.contains(expected), "{value}: {refused}");
    }
}

fn metrics_are_served_where_asked_for(helm: &Helm) {
    let [enabled, monitored, mapped] =
        ["metrics.enabled=true", "metrics.podMonitor.enabled=true", "metrics.map.enabled=true"];
    let made = helm.template(&[enabled, monitored, mapped]);
    for file in ["metrics.yaml", "pod-monitor.yaml", "map.yaml"] {
        for (name, object) in manifests(file) {
            assert_eq!(made.get(&name), Some(&object), "{file}: {name}");
        }
    }
    for alone in [monitored, mapped] {
        let refused = helm.run(&[&["template"], &RELEASE[..], &["--set", alone]].concat());
        assert!(refused.expect_err("nothing is served").contains("metrics"), "{alone}");
    }
    for (values, is_there) in [(&[enabled, mapped][..], true), (&[enabled], false)] {
        let made = helm.template(values);
        let agent = &made["DaemonSet/bayplan-agent"]["spec"]["template"]["spec"]["containers"][0];
        let has_map = agent["args"].as_array().unwrap().iter().any(|it| it == "--map");
        assert_eq!(has_map, is_there, "{agent}");
        assert_eq!(made.contains_key("ClusterRole/bayplan-map-reader"), is_there, "{values:?}");
    }
    for is_checked in [false, true] {
        let by = format!("metrics.certManager={is_checked}");
        let made = helm.template(&[enabled, monitored, &by]);
        let endpoint = &made["PodMonitor/bayplan"]["spec"]["podMetricsEndpoints"][0];
        assert_eq!(endpoint["tlsConfig"]["insecureSkipVerify"] == true, !is_checked, "{endpoint}");
        let secret = &endpoint["tlsConfig"]["ca"]["secret"]["name"];
        let pod = &made["DaemonSet/bayplan-agent"]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["ports"][0]["name"], endpoint["port"], "{pod}");
        assert_eq!(&pod["volumes"][1]["secret"]["secretName"], secret, "{pod}");
        let certificate = made.get("Certificate/bayplan-metrics");
        let certificate = certificate.map_or(&Json::Null, |it| &it["spec"]);
        assert_eq!(&certificate["secretName"], secret);
        assert_eq!(certificate["dnsNames"][0], endpoint["tlsConfig"]["serverName"]);
    }
}

/// Whether each object of a release is there.
async fn check_there(admin: &Client, objects: &BTreeMap<String, Json>, is_there: bool) {
    for (name, object) in objects {
        let is_kept = !is_there && object["kind"] == "CustomResourceDefinition";
        let (status, told) = call(admin, "GET", &path_of(object), &Json::Null).await;
        assert_eq!(status == 200, is_there || is_kept, "{name}: {status} {told}");
    }
}

/// What differs between the revisions: words of the agent's DaemonSet, of its rights, and of the custom resource.
async fn seen(admin: &Client) -> [bool; 4] {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bayplan-agent";
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bayplanconfigs.bayplan.dev";
    let daemon_set = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/bayplan-agent");
    let says = async |path: &str, word: &str| {
        let (status, object) = call(admin, "GET", path, &Json::Null).await;
        status == 200 && object.to_string().contains(word)
    };
    [
        says(role, "events.k8s.io").await,
        says(&format!("{role}-node-topology"), "noderesourcetopologies").await,
        says(&daemon_set, "--publish=node-topology").await,
        says(crd, "Labels of the next chart").await,
    ]
}

async fn is_installed_and_changed(helm: &Helm, admin: &Client, next: &Path, jobs: &JobController) {
    let mut install = vec!["install"];
    install.extend(RELEASE);
    install.push("--create-namespace");
    helm.done(&[&install[..], &["--dry-run=server"]].concat());
    helm.done(&install);
    let objects = helm.template(&[NOT_WITHDRAWN]);
    check_there(admin, &objects, true).await;
    assert_eq!(seen(admin).await, [true, false, false, false]);
    let config = json!({
        "apiVersion": "bayplan.dev/v1alpha1", "kind": "BayplanConfig",
        "metadata": { "name": "default" }, "spec": { "config": { "reservedCpus": "0" } },
    });
    let path = format!("{CONFIGS}/default");
    until("the new kind is served", async || call(admin, "PATCH", &path, &config).await.0 == 200)
        .await;

    make_next_chart(next);
    let next = next.to_str().unwrap();
    let upgrade = |value: &'static str| {
        let rest = ["--namespace", NAMESPACE, "--set", value];
        helm.run(
            &[&["upgrade", "bayplan", next, "--set", "publish.nodeTopology=true"], &rest[..]]
                .concat(),
        )
    };
    upgrade("events.enabled=false").unwrap();
    assert_eq!(seen(admin).await, [false, true, true, true]);
    let refused = upgrade("controlGroup=none").unwrap_err();
    assert!(refused.contains("controlGroup"), "{refused}");
    assert_eq!((helm.revisions(), seen(admin).await), (2, [false, true, true, true]));
    helm.done(&["rollback", "bayplan", "1", "--namespace", NAMESPACE]);
    assert_eq!((helm.revisions(), seen(admin).await), (3, [true, false, false, false]));
    assert_eq!(call(admin, "GET", &path, &Json::Null).await.0, 200);
    helm.uninstall(jobs).await;
    check_there(admin, &objects, false).await;
    check_there(admin, &removal::objects(helm), false).await;
    assert_eq!(call(admin, "GET", &path, &Json::Null).await.0, 200, "configurations are kept");
}

/// The chart with another version and another text in a custom resource.
fn make_next_chart(to: &Path) {
    let copied = Command::new("cp").arg("-r").args([Path::new(CHART), to]).status().unwrap();
    assert!(copied.success());
    for (file, from, into) in [
        ("Chart.yaml", "\nversion: ", "\nversion: 1"),
        ("templates/crds.yaml", "Labels that a node must have", "Labels of the next chart"),
    ] {
        let text = fs::read_to_string(to.join(file)).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        fs::write(to.join(file), text.replace(from, into)).unwrap();
    }
}

/// An earlier release has left its custom resources.
async fn what_is_kept_is_taken_over(helm: &Helm, admin: &Client, jobs: &JobController) {
    helm.release("install", &[]);
    check_there(admin, &helm.template(&[NOT_WITHDRAWN]), true).await;
    helm.uninstall(jobs).await;
    let path = format!("{CONFIGS}/default");
    assert_eq!(call(admin, "DELETE", &path, &json!({})).await.0, 200);
}
