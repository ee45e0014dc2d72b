//! The pods of a scenario as kubelet reads them from files. Pure.

use serde_json::{Value as Json, json};

use super::scenario::{Noise, Orchestration, Qos};

/// The image of every container: busybox alone. Containers also see programs of the machine, by host directories.
pub(crate) const IMAGE: &str = "bayplan.test/reenact:1";

/// Where containers see what was only unpacked on the machine.
const UNPACKED: &str = "/programs";
/// Where containers write what they have measured.
pub(crate) const OUT: &str = "/out";

/// Directories of the machine that every container sees.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) unpacked: String,
    pub(crate) out: String,
}

/// A pod with one container, `main`.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: &'static str,
    /// A shell script.
    pub(crate) script: String,
    pub(crate) qos: Qos,
    /// Requested, and the limit of a Guaranteed pod, in thousandths of a CPU; nothing for BestEffort.
    pub(crate) milli: usize,
    pub(crate) orchestration: Option<Orchestration>,
    /// Has an address of its own, at the other end of a veth.
    pub(crate) has_network: bool,
}

impl Pod {
    pub(crate) fn new(
        name: &'static str,
        qos: Qos,
        milli: usize,
        script: impl Into<String>,
    ) -> Pod {
        let (script, orchestration, has_network) = (script.into(), None, false);
        Pod { name, script, qos, milli, orchestration, has_network }
    }

    /// The file's content.
    pub(crate) fn manifest(&self, surroundings: &Surroundings) -> Json {
        let mounts = [
            ("usr", "/usr", "/usr"),
            ("lib", "/lib", "/lib"),
            ("lib64", "/lib64", "/lib64"),
            ("programs", surroundings.unpacked.as_str(), UNPACKED),
            ("out", surroundings.out.as_str(), OUT),
        ];
        // The loader of x86-64 is there; other architectures have no such directory.
        let has_loader = std::env::consts::ARCH == "x86_64";
        let mounts = mounts.into_iter().filter(|(name, ..)| *name != "lib64" || has_loader);
        let volumes: Vec<Json> = mounts
            .clone()
            .map(|(name, from, _)| json!({ "name": name, "hostPath": { "path": from } }))
            .collect();
        let mounts: Vec<Json> = mounts
            .map(|(name, _, to)| json!({ "name": name, "mountPath": to, "readOnly": to != OUT }))
            .collect();
        let (labels, annotations) =
            self.orchestration.map_or_else(|| (json!({}), json!({})), Orchestration::metadata);
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.name, "namespace": "default", "labels": labels, "annotations": annotations },
            "spec": {
                "hostNetwork": !self.has_network,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "dnsPolicy": "Default",
                "volumes": volumes,
                "containers": [{
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/busybox", "sh", "-c", self.script],
                    "env": [{ "name": "LD_LIBRARY_PATH", "value": libraries(UNPACKED) }],
                    "resources": self.resources(),
                    "volumeMounts": mounts,
                }],
            },
        })
    }

    fn resources(&self) -> Json {
        let cpu = format!("{}m", self.milli);
        match self.qos {
            Qos::Guaranteed => {
                let all = json!({ "cpu": cpu, "memory": "512Mi" });
                json!({ "requests": all, "limits": all })
            }
            Qos::Burstable => json!({ "requests": { "cpu": cpu, "memory": "64Mi" } }),
            Qos::BestEffort => json!({}),
        }
    }
}

impl Orchestration {
    /// Labels and annotations.
    fn metadata(self) -> (Json, Json) {
        let (class, spec) = match self {
            Orchestration::Lse => ("LSE", r#"{"preferredCPUBindPolicy":"FullPCPUs"}"#),
            Orchestration::Lsr => (
                "LSR",
                r#"{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}"#,
            ),
        };
        (
            json!({ "koordinator.sh/qosClass": class }),
            json!({ "scheduling.koordinator.sh/resource-spec": spec }),
        )
    }
}

/// Where Debian's packages below `root` have their libraries.
pub(crate) fn libraries(root: &str) -> String {
    format!("{root}/usr/lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// redis, which Debian has under the name of another of its tools as well; which one it is it knows by its name.
pub(crate) fn redis_script(port: u16) -> String {
    format!(
        "exec -a redis-server /usr/bin/redis-check-rdb --port {port} --bind 127.0.0.1 --save '' --dir /tmp"
    )
}

/// Processes of stress-ng that never end by themselves.
pub(crate) fn noise_script(noise: Noise, workers: usize) -> String {
    match noise {
        Noise::Memcpy => format!("exec /usr/bin/stress-ng --memcpy {workers}"),
        Noise::Cpu => format!("exec /usr/bin/stress-ng --cpu {workers} --cpu-method matrixprod"),
    }
}

/// Runs compute kernels one after the other as soon as there is a file `go`, each for so many seconds, and writes `NAME.txt`, which ends with `end`.
pub(crate) fn kernels_script(name: &str, kernels: &[(&str, String)], seconds: u32) -> String {
    let mut script = format!("while [ ! -e {OUT}/go ]; do /bin/busybox sleep 0.05; done\n");
    for (kernel, arguments) in kernels {
        script.push_str(&format!(
            "echo kernel {kernel} >> {OUT}/{name}.txt\n/usr/bin/stress-ng {arguments} --timeout {seconds}s --metrics-brief >> {OUT}/{name}.txt 2>&1\n"
        ));
    }
    // It stays until it is ended, so that kubelet has nothing to do while others are measured.
    script.push_str(&format!("echo end >> {OUT}/{name}.txt\nexec /bin/busybox sleep 1000000\n"));
    script
}

/// A web server that answers with one short text.
pub(crate) fn web_script(port: u16, workers: usize) -> String {
    let dir = format!("/tmp/web-{port}");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|it| format!("{it}_temp_path {dir}/{it};"))
        .concat();
    let configuration = format!(
        "user root; worker_processes {workers}; daemon off; error_log {dir}/error.log; pid {dir}/pid; events {{ worker_connections 1024; }} http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"hello from a bay\\n\"; }} }} }}"
    );
    format!(
        "/bin/busybox mkdir -p {dir}; echo '{configuration}' > {dir}/nginx.conf; exec {UNPACKED}/usr/sbin/nginx -p {dir} -c {dir}/nginx.conf"
    )
}

/// The server of qperf.
pub(crate) fn network_script() -> String {
    format!("exec {UNPACKED}/usr/bin/qperf")
}

/// The parts of a text of [`kernels_script`], by kernel; `None` while it is not complete.
pub(crate) fn split_kernels(text: &str) -> Option<Vec<(&str, &str)>> {
    let text = text.trim_end().strip_suffix("\nend")?;
    let parts = text.split("kernel ").filter(|it| !it.trim().is_empty());
    parts.map(|part| part.split_once('\n')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(pod: &Pod) -> Json {
        pod.manifest(&Surroundings { unpacked: "/cache/root".into(), out: "/work/out".into() })
    }

    #[test]
    fn resources_make_the_class() {
        let resources = |qos| {
            manifest(&Pod::new("a", qos, 1000, "true"))["spec"]["containers"][0]["resources"]
                .clone()
        };
        let guaranteed = resources(Qos::Guaranteed);
        assert_eq!(guaranteed["requests"], guaranteed["limits"]);
        assert_eq!(guaranteed["limits"]["cpu"], "1000m");
        assert_eq!(resources(Qos::Burstable)["requests"]["cpu"], "1000m");
        assert_eq!(resources(Qos::Burstable)["limits"], Json::Null);
        assert_eq!(resources(Qos::BestEffort), json!({}));
    }

    #[test]
    fn koordinators_words_are_on_the_pod() {
        let pod = Pod {
            orchestration: Some(Orchestration::Lse),
            ..Pod::new("a", Qos::Guaranteed, 1000, "true")
        };
        let metadata = manifest(&pod)["metadata"].clone();
        assert_eq!(metadata["labels"]["koordinator.sh/qosClass"], "LSE");
        let spec = metadata["annotations"]["scheduling.koordinator.sh/resource-spec"].as_str();
        assert!(spec.unwrap().contains("FullPCPUs"));
    }

    #[test]
    fn what_kernels_have_written_is_split_when_it_is_complete() {
        let text = "kernel matrix\nstress-ng: a\nstress-ng: b\nkernel fft\nstress-ng: c\nend\n";
        let expected = vec![("matrix", "stress-ng: a\nstress-ng: b\n"), ("fft", "stress-ng: c")];
        assert_eq!(split_kernels(text), Some(expected));
        assert_eq!(split_kernels("kernel matrix\nstress-ng: a\n"), None);
        assert_eq!(split_kernels(""), None);
    }
}
