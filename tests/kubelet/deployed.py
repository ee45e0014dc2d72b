"""A node with Bayplan of the chart: containerd 2 with NRI, kubelet that calls it, kube-apiserver, and pods of daemon and agent.

There is no controller manager: for each DaemonSet and Job the test makes the one pod that its controller would make, and it makes what the service account admission
needs. Pods reach the API server at the address of its service, which the node has on its loopback device.
"""

import datetime
import json
import re
import subprocess
import sys
import threading
import urllib.error
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

import isolated
import node
import processes

# Before the modules that take it over.
processes.API = "https://127.0.0.1:443"

import registry
import witness
import world
from pods import burstable, guaranteed, pod
from processes import API, NODE, TOKEN, fetch
from rounds import is_ready
from say import Failure, say
from world import check, wait

SERVICE = "10.96.0.1"
NAMESPACE = "bayplan-system"
RELEASE = ["bayplan", "--namespace", NAMESPACE]
VALUES = ["--set", "daemon.enabled=true", "--set", "startWithin=0s"]
CONFIG = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "BayplanConfig", "metadata": {"name": "default"}, "spec": {"config": {"log": "debug"}, "maxMoves": 1}}


class Daemon:
    """The daemon of the pod, asked at the socket that the node has."""

    def __init__(self, program, work):
        self.program, self.config = program, work / "bayplan.yaml"
        self.config.write_text("controlSocket: /run/bayplan/control.sock\n")

    def ask(self, *args):
        done = subprocess.run([self.program, "--config", self.config, *args], capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Failure(f"bayplan {' '.join(args)}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def status(self):
        return json.loads(self.ask("status", "-o", "json"))


def start_api(wanted, work):
    """As `processes.start_api`, but reached from pods, and with service accounts."""
    isolated.command("ip", "address", "add", f"{SERVICE}/32", "dev", "lo")
    database = node.start("etcd", [wanted["etcd"], "--data-dir", str(work / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"], work)
    processes.await_healthy("etcd", database, "http://127.0.0.1:2379/health", work)
    (work / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    key = work / "accounts.pem"
    isolated.command("openssl", "genrsa", "-out", str(key), "2048")
    args = [wanted["api"], "--etcd-servers", "http://127.0.0.1:2379", "--secure-port", "443", "--advertise-address", processes.ADDRESS,
            "--cert-dir", str(work / "api-pki"), "--service-cluster-ip-range", "10.96.0.0/16", "--token-auth-file", str(work / "tokens.csv"),
            "--service-account-issuer", "https://test", "--service-account-key-file", str(key), "--service-account-signing-key-file", str(key),
            "--authorization-mode", "RBAC"]
    server = node.start("kube-apiserver", args, work)
    processes.await_healthy("kube-apiserver", server, f"{API}/readyz", work)


def make_accounts(namespace, work):
    """What controllers make in each namespace."""
    core = f"{API}/api/v1/namespaces/{namespace}"
    authority = (work / "api-pki/apiserver.crt").read_text()
    post_new(f"{core}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority}})
    post_new(f"{core}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})


def post_new(url, body):
    try:
        fetch(url, "POST", body)
    except urllib.error.HTTPError as refused:
        check(refused.code == 409, f"{url}: {refused}: {refused.read()[:500]}")


def start_pod(name):
    """What the controller of a DaemonSet does for the one node."""
    template = fetch(f"{API}/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{name}")["spec"]["template"]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": {**template["spec"], "nodeName": NODE}}
    url = f"{API}/api/v1/namespaces/{NAMESPACE}/pods"
    try:
        fetch(url, "POST", made)
    except urllib.error.HTTPError as refused:
        raise Failure(f"{name}: {refused}: {refused.read()[:2000]}") from refused
    wait(f"the pod {name}", lambda: is_pod_ready(fetch(f"{url}/{name}")), 120)


def is_pod_ready(found):
    conditions = {it["type"]: it for it in found["status"].get("conditions") or []}
    if conditions.get("Ready", {}).get("status") == "True":
        return True
    waiting = world.describe_state
    states = [waiting(it) for it in world.container_statuses(found)]
    return "; ".join(states) or f"it is {found['status'].get('phase')}"


def end_pod(name):
    url = f"{API}/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    fetch(url, "DELETE")

    def is_gone():
        try:
            return f"it is {fetch(url)['status'].get('phase')}"
        except urllib.error.HTTPError as refused:
            return refused.code == 404

    wait(f"the end of {name}", is_gone, 120)


def read_logs(name):
    """Lines of a pod's containers."""
    files = Path("/var/log/pods").glob(f"{NAMESPACE}_{name}_*/*/*.log")
    return [line for it in files for line in it.read_text(errors="replace").splitlines()]


def run_job(name):
    """What the controller of a Job does with its one pod, until that has ended."""
    url = f"{API}/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}"
    pods = f"{API}/api/v1/namespaces/{NAMESPACE}/pods"

    def found(path):
        try:
            return fetch(path)
        except urllib.error.HTTPError as refused:
            return f"{refused}"

    wait(f"the Job {name}", lambda: isinstance(found(url), dict) or found(url), 120)
    template = fetch(url)["spec"]["template"]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": {**template["spec"], "nodeName": NODE}}
    fetch(pods, "POST", made)

    def has_ended():
        phase = fetch(f"{pods}/{name}")["status"].get("phase")
        return phase in ("Succeeded", "Failed") or f"it is {phase}"

    wait(f"the end of the Job {name}", has_ended, 120)
    phase = fetch(f"{pods}/{name}")["status"]["phase"]
    check(phase == "Succeeded", f"the Job {name} has {phase}: {read_logs(name)}")
    fetch(f"{pods}/{name}", "DELETE")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": it, "status": "True", "lastProbeTime": now, "lastTransitionTime": now} for it in ("SuccessCriteriaMet", "Complete")]
    job = fetch(url)
    job["status"] = {"succeeded": 1, "startTime": now, "completionTime": now, "conditions": conditions}
    fetch(f"{url}/status", "PUT", job)


def helm(wanted, work, *args):
    """Helm on this cluster."""
    environment = {f"HELM_{it}_HOME": str(work / "helm") for it in ["CACHE", "CONFIG", "DATA"]}
    command = [wanted["helm"], *args, "--kubeconfig", str(work / "kubeconfig")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": "/usr/bin:/bin", "HOME": str(work / "helm"), **environment})
    check(done.returncode == 0, f"helm {' '.join(args)}: {done.stdout}{done.stderr}")


def start_node(wanted, work):
    isolated.make_surroundings(work)
    processes.make_surroundings(work)
    registry.start(Path(wanted["store"]))
    node.start_containerd(wanted, work)
    start_api(wanted, work)
    (work / "kubeconfig").write_text(json.dumps(processes.kubeconfig()))
    make_accounts("default", work)
    kubelet = processes.Kubelet(wanted["kubelet"], work, True, node.RUNTIME)
    wait("the node", lambda: is_ready(fetch(f"{API}/api/v1/nodes")["items"]))
    return kubelet


def is_owner(nodes, name, cpus):
    """A pod with a CPU of its own, by Bayplan and by the kernel, and no other process on it."""
    nodes.submit(pod(name, guaranteed()))
    nodes.await_running(name)
    own = witness.parse_list(nodes.container(f"{name}/main")["exclusive"])
    check(len(own) == cpus, f"{name} owns {sorted(own)}")
    return own


def check_unprivileged(nodes, name):
    """Of the agent's process, as the kernel has it: no user of the node, no capability, a filter of system calls, and no file system of its own that it may write."""
    group = witness.groups()[nodes.container(name)["id"]]
    [process] = witness.read_processes(group)
    status = dict(re.findall(r"(?m)^(\w+):\s*(.*)$", Path(f"/proc/{process.pid}/status").read_text()))
    users = {number for key in ("Uid", "Gid") for number in status[key].split()}
    check(users == {"65532"}, f"{name} runs as {sorted(users)}")
    capabilities = {status[it] for it in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    check(capabilities == {"0" * 16}, f"{name} has the capabilities {sorted(capabilities)}")
    check((status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), f"{name} may gain privileges: {status}")
    mounts = [it.split() for it in Path(f"/proc/{process.pid}/mounts").read_text().splitlines()]
    [options] = [it[3].split(",") for it in mounts if it[1] == "/"]
    check("ro" in options, f"the root of {name} is mounted {options}")


def own_node():
    try:
        return fetch(f"{API}/apis/bayplan.dev/v1alpha1/bayplannodes/{NODE}")
    except urllib.error.HTTPError as refused:
        return f"{refused}"


def condition(kind, reason):
    found = own_node()
    if isinstance(found, str):
        return found
    conditions = {it["type"]: it for it in found.get("status", {}).get("conditions") or []}
    return conditions.get(kind, {}).get("reason") == reason or json.dumps(conditions)


def play(wanted, work):
    kubelet = start_node(wanted, work)
    say("installing the chart")
    helm(wanted, work, "install", *RELEASE, wanted["chart"], "--create-namespace", *VALUES)
    make_accounts(NAMESPACE, work)
    start_pod("bayplan-daemon")
    start_pod("bayplan-agent")
    nodes = world.WithApi(Daemon(wanted["bayplan"], work), kubelet, work)
    front_end = nodes.bayplan.status()["front_end"]
    check(front_end["kind"] == "nri" and front_end["is_registered"], f"the front end is {front_end}")

    say("a pod gets its exclusive CPU, and others leave it")
    nodes.submit(pod("shares", burstable()))
    nodes.await_running("shares")
    own = is_owner(nodes, "owns", 1)
    wait("the agent's word", lambda: condition("DaemonReady", "Ready"))
    wait("the agent's count", lambda: own_node()["status"].get("exclusiveCpus") == 1)
    check_unprivileged(nodes, "bayplan-agent/agent")

    say("the cluster configures the daemon")
    fetch(f"{API}/apis/bayplan.dev/v1alpha1/bayplanconfigs", "POST", CONFIG)
    wait("the configuration", lambda: condition("ConfigApplied", "Applied"))
    warnings = [line for line in read_logs("bayplan-agent") if "WARN" in line or "ERROR" in line]
    check(not warnings, f"the agent warns: {warnings}")

    say("another daemon pod takes over, and no container moves")
    before = {name: it for name, it in nodes.seats().items() if not name.startswith("bayplan-")}
    end_pod("bayplan-daemon")
    start_pod("bayplan-daemon")
    nodes.settle()
    after = {name: it for name, it in nodes.seats().items() if not name.startswith("bayplan-")}
    check(after == before, f"before {before}, after {after}")
    check(nodes.container("owns/main")["exclusive"] == ",".join(map(str, sorted(own))), "it owns another CPU")

    say("the node leaves: the chart gives all back, and is removed")
    helm(wanted, work, "upgrade", *RELEASE, wanted["chart"], *VALUES, "--set", "daemon.leave=true")
    end_pod("bayplan-daemon")
    start_pod("bayplan-daemon")
    check(nodes.bayplan.status()["mode"] == "restored", "the node was not restored")
    wait("all CPUs for all", lambda: "; ".join(witness.confined()) or True)
    removal = threading.Thread(target=helm, args=(wanted, work, "uninstall", *RELEASE), daemon=True)
    removal.start()
    run_job("bayplan-withdraw")
    removal.join()
    check(isinstance(own_node(), str), "the BayplanNode is left")
    for name in ["bayplan-daemon", "bayplan-agent"]:
        end_pod(name)
    check(not witness.confined(), "; ".join(witness.confined()))
    check(all(it == 0 for it in nodes.restarts().values()), f"started again: {nodes.restarts()}")
    say("passed")


if __name__ == "__main__":
    try:
        described = json.loads(sys.argv[1])
        play(described, Path(described["work"]))
    except Failure as failure:
        say(str(failure))
        sys.exit(1)
