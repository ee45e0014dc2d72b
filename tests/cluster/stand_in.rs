//! What does the work of controllers and kubelets that the test's cluster does not have.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value as Json, json};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::node::DAEMON;
use crate::servers::Servers;
use crate::world::{call, kubeconfig, token};

/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Runs the container of a Job as a process, and says how it has ended.
pub(crate) struct JobController {
    address: String,
    admin: Client,
    kubeconfig: PathBuf,
}

impl JobController {
    pub(crate) fn new(servers: &Servers, admin: &Client) -> JobController {
        let kubeconfig = servers.path("job.kubeconfig");
        JobController { address: servers.address(), admin: admin.clone(), kubeconfig }
    }

    /// Waits for the Job and runs it, with the token of its service account.
    pub(crate) fn run(&self, namespace: &str, name: &str) -> JoinHandle<()> {
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{name}");
        let (address, admin, file) =
            (self.address.clone(), self.admin.clone(), self.kubeconfig.clone());
        tokio::spawn(async move {
            let begun = Instant::now();
            let job = loop {
                let (status, found) = call(&admin, "GET", &path, &Json::Null).await;
                if status == 200 {
                    break found;
                }
                assert!(begun.elapsed() < STUCK, "no Job {path}");
                sleep(POLL).await;
            };
            let pod = &job["spec"]["template"]["spec"];
            let account = pod["serviceAccountName"].as_str().unwrap();
            let token = token(&admin, account, None).await;
            fs::write(&file, kubeconfig(&address, &token)).unwrap();
            let mut command = Command::new(DAEMON);
            let args = pod["containers"][0]["args"].as_array().unwrap().clone();
            command.args(args.iter().map(|it| it.as_str().unwrap()));
            command.env("KUBECONFIG", file).env_remove("NODE_NAME").stdin(Stdio::null());
            let done = spawn_blocking(move || command.output()).await.unwrap().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{said}");
            let (status, told) = call(
                &admin,
                "PATCH",
                &format!("{path}/status?fieldManager=controller"),
                &succeeded(),
            )
            .await;
            assert_eq!(status, 200, "{told}");
        })
    }
}

fn succeeded() -> Json {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now });
    json!({ "status": {
        "succeeded": 1, "startTime": now, "completionTime": now,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    } })
}
