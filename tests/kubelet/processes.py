"""Starts kubelet, Bayplan behind a socket that outlives it, etcd and kube-apiserver inside the namespaces of `isolated`."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import node
from say import Failure

NODE = "testnode"
# That of `isolated`. Without it kubelet asks a name server that is out of reach for its node, again and again.
ADDRESS = "192.0.2.10"
# Below it kubelet makes its control groups, so that it never takes those of another kubelet for leftovers of its own.
CGROUP_ROOT = "bayplan-kubelet"
TOKEN = "testtoken"
API = "https://127.0.0.1:6443"
# Kubelet's port without authentication; nothing else is in its network.
READ_ONLY = "http://127.0.0.1:10255"
MANIFESTS = Path("/var/lib/kubelet/manifests")
# Of kubelet's PodsAPI, from 1.37 on; where Bayplan looks for it by itself.
PODS_SOCKET = "/var/lib/kubelet/pods-api/pods-api.sock"
# Classes that a test can ask for, by the microseconds that a CPU of theirs may take to wake up: of all that a class says every machine has this.
CPU_CLASSES = {"prompt": "10", "performance": "20"}
LATENCIES = "devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us"
READY = 60

# They belong to the whole machine, whichever namespace one is in; kubelet gets plain files in their place.
SYSCTLS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"]

# What systemd does with the socket that it holds: it is the third file of the process, and the environment says so.
PASS = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=cri exec \"$@\""

UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE


def is_cgroup_v2():
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def make_surroundings(work):
    """Beyond those of `isolated`: a /var/lib and a /var/log of our own, files in place of sysctls, and the root of kubelet's groups."""
    for name in ["lib", "log"]:
        (work / name).mkdir()
        subprocess.run(["mount", "--bind", work / name, f"/var/{name}"], check=True, timeout=30)
    (work / "sysctls").mkdir()
    for name in SYSCTLS:
        file = work / "sysctls" / name.replace("/", "-")
        shutil.copyfile(Path("/proc/sys", name), file)
        subprocess.run(["mount", "--bind", file, f"/proc/sys/{name}"], check=True, timeout=30)
    root = Path("/sys/fs/cgroup")
    for hierarchy in [root] if is_cgroup_v2() else [it for it in root.iterdir() if it.is_dir() and not it.is_symlink()]:
        group = hierarchy / CGROUP_ROOT
        group.mkdir(exist_ok=True)
        for name in ["cpuset.cpus", "cpuset.mems"]:
            if (hierarchy / name).exists():
                (group / name).write_text((hierarchy / name).read_text())
    MANIFESTS.mkdir(parents=True)


def latencies():
    """How long each CPU of the machine may take to wake up, by the kernel's file."""
    return {it: it.read_text() for it in Path("/sys").glob(LATENCIES)}


def put_back(before):
    """Undoes what a round that was cut off has left in these files."""
    for path, text in before.items():
        if path.read_text() != text:
            path.write_text(text)


def signal_and_wait(name, process, number, limit=60):
    process.send_signal(number)
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{name} did not end within {limit} s of {signal.Signals(number).name}") from late


def fetch(url, method="GET", body=None, kind="application/json", timeout=30):
    """JSON of our servers; what they refuse is an `urllib.error.HTTPError`."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    context = UNVERIFIED if url.startswith("https") else None
    with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
        return json.loads(answer.read() or b"null")


def is_healthy(url):
    """Whether a process answers there that all is well."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=UNVERIFIED if url.startswith("https") else None):
            return True
    except (OSError, urllib.error.URLError):
        return False


def await_healthy(name, process, url, work):
    end = time.monotonic() + READY
    while not is_healthy(url):
        if process.poll() is not None or time.monotonic() > end:
            raise Failure(f"{name} did not start:\n{node.tail(work / f'{name}.log')}")
        time.sleep(0.1)


class Bayplan:
    """The daemon as systemd runs it: on a socket that stays when it ends. As a plugin of the runtime (front end `nri`) it has none."""

    def __init__(self, program, work, front_end="cri"):
        self.program, self.work = program, work
        self.front_end = front_end
        self.is_plugin = front_end == "nri"
        # Where kubelet finds its runtime.
        self.endpoint = node.RUNTIME if self.is_plugin else node.BAYPLAN
        self.config = work / "bayplan.yaml"
        self.write_config(PODS_SOCKET)
        self.open()

    def write_config(self, pods_socket):
        self.pods_socket = pods_socket
        config = node.BAYPLAN_FRONT_ENDS[self.front_end]
        config += node.BAYPLAN_CONFIG.format(runtime=node.RUNTIME, metrics=node.METRICS, work=self.work)
        classes = {name: {"maxLatency": f"{latency}us"} for name, latency in CPU_CLASSES.items()}
        config += f"kubelet: {{podsSocket: {pods_socket}}}\ncpuClasses: {json.dumps({'classes': classes})}\n"
        self.config.write_text(config)

    def ask_pods_at(self, socket_path):
        """From now on kubelet's PodsAPI is looked for there."""
        self.write_config(socket_path)
        self.restart()

    def open(self):
        """`systemctl start` of both units."""
        Path(node.BAYPLAN).unlink(missing_ok=True)
        self.socket = None
        if not self.is_plugin:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(node.BAYPLAN)
            self.socket.listen(128)
        self.start()

    def close(self):
        """`systemctl stop` of both: nothing listens any more."""
        self.stop()
        if self.socket:
            self.socket.close()

    def is_running(self):
        return self.process.poll() is None

    def start(self):
        passing = ["sh", "-c", PASS, "sh"] if self.socket else []
        args = [*passing, self.program, "--config", str(self.config), "run"]
        with (self.work / "bayplan.log").open("ab") as log:
            self.process = subprocess.Popen(args, stdin=self.socket or subprocess.DEVNULL, stdout=log, stderr=log)
        await_healthy("bayplan", self.process, f"http://{node.METRICS}/healthz", self.work)
        if self.is_plugin:
            self.await_registered()

    def await_registered(self):
        """Until the runtime asks it; before, containers are created without it."""
        end = time.monotonic() + READY
        while not self.status().get("front_end", {}).get("is_registered"):
            if time.monotonic() > end:
                raise Failure(f"bayplan was not registered as a plugin:\n{node.tail(self.work / 'bayplan.log')}")
            time.sleep(0.1)

    def stop(self):
        code = signal_and_wait("bayplan", self.process, signal.SIGTERM)
        if code != 0:
            raise Failure(f"bayplan ended with {code}:\n{node.tail(self.work / 'bayplan.log')}")

    def restart(self):
        """`systemctl restart`."""
        self.stop()
        self.start()

    def kill(self):
        """`kill -9`, and what `Restart=always` does."""
        signal_and_wait("bayplan", self.process, signal.SIGKILL)
        self.start()

    def ask(self, *args):
        """The output of a sub-command."""
        command = [self.program, "--config", str(self.config), *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Failure(f"bayplan {' '.join(args)}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def status(self):
        return json.loads(self.ask("status", "-o", "json"))

    def explain(self, name):
        return json.loads(self.ask("explain", name, "-o", "json"))

    def is_rebalancer_paused(self):
        return json.loads(self.ask("rebalance", "status", "-o", "json"))["is_paused"]


class Kubelet:
    """Kubelet, which speaks to `endpoint` until a test says otherwise."""

    def __init__(self, program, work, with_api, endpoint):
        self.work = work
        self.point_at(endpoint)
        self.args = [program, "--config", str(work / "kubelet.json"), "--hostname-override", NODE, "--node-ip", ADDRESS, "--cert-dir", str(work / "kubelet-pki"), "--v", "2"]
        if with_api:
            (work / "kubeconfig").write_text(json.dumps(kubeconfig()))
            self.args += ["--kubeconfig", str(work / "kubeconfig")]
        self.start()

    def start(self):
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        with (self.work / "kubelet.log").open("ab") as log:
            self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": path})
        # The second port is opened a moment after the first.
        for url in ["http://127.0.0.1:10248/healthz", f"{READ_ONLY}/pods"]:
            await_healthy("kubelet", self.process, url, self.work)

    def point_at(self, socket_path):
        """From the next start on it speaks to this runtime."""
        self.socket = socket_path
        config = {**kubelet_config(self.work), "containerRuntimeEndpoint": f"unix://{socket_path}"}
        (self.work / "kubelet.json").write_text(json.dumps(config, indent=1))

    def restart(self):
        signal_and_wait("kubelet", self.process, signal.SIGTERM)
        self.start()

    def pods(self):
        return fetch(f"{READ_ONLY}/pods")["items"] or []


def kubelet_config(work):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "readOnlyPort": 10255,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "staticPodPath": str(MANIFESTS),
        "volumePluginDir": str(work / "volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP_ROOT}",
        # Both as bayplan needs them.
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        "makeIPTablesUtilChains": False,
        # Soon, because a test waits for it.
        "fileCheckFrequency": "1s",
        "syncFrequency": "2s",
        "nodeStatusUpdateFrequency": "2s",
        # However full the disk is.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
    }


def kubeconfig():
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


def start_api(etcd, apiserver, work):
    """etcd and kube-apiserver, without a scheduler and controllers: what makes a pod says where it runs."""
    args = [etcd, "--data-dir", str(work / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"]
    database = node.start("etcd", args, work)
    await_healthy("etcd", database, "http://127.0.0.1:2379/health", work)
    (work / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    key = work / "accounts.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True, timeout=60)
    args = [apiserver, "--etcd-servers", "http://127.0.0.1:2379", "--bind-address", "127.0.0.1", "--advertise-address", ADDRESS,
            "--cert-dir", str(work / "api-pki"), "--service-cluster-ip-range", "10.96.0.0/16", "--token-auth-file", str(work / "tokens.csv"),
            "--service-account-issuer", "https://test", "--service-account-key-file", str(key), "--service-account-signing-key-file", str(key),
            "--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount"]
    server = node.start("kube-apiserver", args, work)
    await_healthy("kube-apiserver", server, f"{API}/readyz", work)
