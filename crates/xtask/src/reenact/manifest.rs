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
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// A shell script.
    pub(crate) script: String,
    pub(crate) qos: Qos,
    /// Requested, and the limit of a Guaranteed pod, in thousandths of a CPU; nothing for BestEffort.
    pub(crate) milli: usize,
    /// Of the pod, as names and values.
    pub(crate) labels: Json,
    /// As [`Self::labels`].
    pub(crate) annotations: Json,
    /// Has an address of its own, at the other end of a veth.
    pub(crate) has_network: bool,
}

impl Pod {
    pub(crate) fn new(
        name: impl Into<String>,
        qos: Qos,
        milli: usize,
        script: impl Into<String>,
    ) -> Pod {
        let (name, namespace) = (name.into(), "default".to_owned());
        let (script, labels, annotations) = (script.into(), json!({}), json!({}));
        Pod { name, namespace, script, qos, milli, labels, annotations, has_network: false }
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
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
            },
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
                // A process for each CPU, and room for one that is large.
                let memory = format!("{}Mi", 512 + self.milli.div_ceil(1000) * 32);
                let all = json!({ "cpu": cpu, "memory": memory });
                json!({ "requests": all, "limits": all })
            }
            Qos::Burstable => json!({ "requests": { "cpu": cpu, "memory": "64Mi" } }),
            Qos::BestEffort => json!({}),
        }
    }
}

impl Orchestration {
    /// Labels and annotations.
    pub(crate) fn metadata(self) -> (Json, Json) {
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

/// A script that runs commands one after the other as soon as there is a file `go`, and writes `NAME.txt`: before each output `step KEY`, and `end` after the last.
pub(crate) fn steps_script(name: &str, steps: &[(&str, String)]) -> String {
    let mut script = format!("while [ ! -e {OUT}/go ]; do /bin/busybox sleep 0.05; done\n");
    for (key, command) in steps {
        script.push_str(&format!("echo step {key} >> {OUT}/{name}.txt\n"));
        script.push_str(&format!("{command} >> {OUT}/{name}.txt 2>&1\n"));
    }
    // It stays until it is ended, so that kubelet has nothing to do while others are measured.
    script.push_str(&format!("echo end >> {OUT}/{name}.txt\nexec /bin/busybox sleep 1000000\n"));
    script
}

/// Puts a client near redis, or far from it, in CRI-RM's words.
pub(crate) fn affinity(is_near: bool) -> Json {
    let name = if is_near { "affinity" } else { "anti-affinity" };
    let expression = json!({
        "main": [{
            "scope": { "key": "pod/name", "operator": "Matches", "values": ["redis-*"] },
            "match": { "key": "name", "operator": "Equals", "values": ["main"] },
            "weight": 10,
        }],
    });
    // JSON is YAML.
    json!({ format!("cri-resource-manager.intel.com/{name}"): expression.to_string() })
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

/// A compute kernel for so many seconds.
pub(crate) fn kernel_command(arguments: &str, seconds: u32) -> String {
    format!("/usr/bin/stress-ng {arguments} --timeout {seconds}s --metrics-brief")
}

/// A web server that answers with one short text.
pub(crate) fn web_script(port: u16, workers: usize) -> String {
    nginx_script(port, workers, None, "return 200 \"hello from a bay\\n\";")
}

/// A web server that hands each request on to the one at the port `next`.
pub(crate) fn front_script(port: u16, workers: usize, next: u16) -> String {
    let location =
        "proxy_pass http://next; proxy_http_version 1.1; proxy_set_header Connection \"\";";
    nginx_script(port, workers, Some(next), location)
}

/// A web server that takes its answers from the store at the port `store`, where their keys are paths.
pub(crate) fn back_script(port: u16, workers: usize, store: u16) -> String {
    nginx_script(port, workers, Some(store), "set $memcached_key $uri; memcached_pass next;")
}

/// Keeps answers in memory: 128 MiB of them at most.
pub(crate) fn store_script(port: u16, threads: usize) -> String {
    format!(
        "exec {UNPACKED}/usr/bin/memcached -u root -l 127.0.0.1 -p {port} -U 0 -t {threads} -m 128"
    )
}

/// nginx with one location, and connections to `next` that stay.
fn nginx_script(port: u16, workers: usize, next: Option<u16>, location: &str) -> String {
    let dir = format!("/tmp/web-{port}");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|it| format!("{it}_temp_path {dir}/{it};"))
        .concat();
    let next = next.map(|it| format!("upstream next {{ server 127.0.0.1:{it}; keepalive 64; }} "));
    let next = next.unwrap_or_default();
    let configuration = format!(
        "user root; worker_processes {workers}; daemon off; error_log {dir}/error.log; pid {dir}/pid; events {{ worker_connections 1024; }} http {{ access_log off; {temporary} {next}server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }} }}"
    );
    format!(
        "/bin/busybox mkdir -p {dir}; echo '{configuration}' > {dir}/nginx.conf; exec {UNPACKED}/usr/sbin/nginx -p {dir} -c {dir}/nginx.conf"
    )
}

/// The server of qperf.
pub(crate) fn network_script() -> String {
    format!("exec {UNPACKED}/usr/bin/qperf")
}

/// DPDK's test program between two ports that lead nowhere, on all CPUs of the container; prints packets per second every second. Without huge pages, which most
/// machines have not set aside.
pub(crate) fn packets_script(name: &str) -> String {
    let drivers = libraries(UNPACKED);
    format!(
        "/bin/busybox mkdir -p /var/run; cpus=$(/bin/busybox awk '/^Cpus_allowed_list/ {{ print $2 }}' /proc/self/status); exec {UNPACKED}/usr/bin/dpdk-testpmd --no-huge -m 128 --no-pci --no-telemetry --lcores \"(0-1)@($cpus)\" -d $(echo {drivers}/librte_net_null.so.??) -d $(echo {drivers}/librte_mempool_ring.so.??) --vdev net_null0 --vdev net_null1 -- --forward-mode=io --auto-start --stats-period 1 --total-num-mbufs=2048 > {OUT}/{name}.txt 2>&1"
    )
}

/// The parts of a text of [`steps_script`], by key; `None` while it is not complete.
pub(crate) fn split_steps(text: &str) -> Option<Vec<(&str, &str)>> {
    let text = text.trim_end().strip_suffix("\nend")?;
    let parts = text.split("step ").filter(|it| !it.trim().is_empty());
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
        assert_eq!(guaranteed["limits"], json!({ "cpu": "1000m", "memory": "544Mi" }));
        assert_eq!(resources(Qos::Burstable)["requests"]["cpu"], "1000m");
        assert_eq!(resources(Qos::Burstable)["limits"], Json::Null);
        assert_eq!(resources(Qos::BestEffort), json!({}));
    }

    #[test]
    fn koordinators_words_are_on_the_pod() {
        let (labels, annotations) = Orchestration::Lse.metadata();
        let pod = Pod { labels, annotations, ..Pod::new("a", Qos::Guaranteed, 1000, "true") };
        let metadata = manifest(&pod)["metadata"].clone();
        assert_eq!(metadata["labels"]["koordinator.sh/qosClass"], "LSE");
        let spec = metadata["annotations"]["scheduling.koordinator.sh/resource-spec"].as_str();
        assert!(spec.unwrap().contains("FullPCPUs"));
    }

    #[test]
    fn a_chain_has_connections_to_the_next_service_that_stay() {
        let front = front_script(8000, 7, 8001);
        for part in [
            "worker_processes 7;",
            "upstream next { server 127.0.0.1:8001; keepalive 64; }",
            "listen 127.0.0.1:8000; location / { proxy_pass http://next;",
        ] {
            assert!(front.contains(part), "{part} is missing in {front}");
        }
        assert!(back_script(8001, 7, 8002).contains("server 127.0.0.1:8002;"));
        assert!(!web_script(8000, 1).contains("upstream"));
        let pod = Pod::new("front-1", Qos::BestEffort, 0, front);
        let pod = Pod { namespace: "instance-1".to_owned(), ..pod };
        assert_eq!(manifest(&pod)["metadata"]["namespace"], "instance-1");
    }

    #[test]
    fn what_steps_have_written_is_split_when_it_is_complete() {
        let text = "step matrix\nstress-ng: a\nstress-ng: b\nstep fft\nstress-ng: c\nend\n";
        let expected = vec![("matrix", "stress-ng: a\nstress-ng: b\n"), ("fft", "stress-ng: c")];
        assert_eq!(split_steps(text), Some(expected));
        assert_eq!(split_steps("step matrix\nstress-ng: a\n"), None);
        assert_eq!(split_steps(""), None);
    }
}
