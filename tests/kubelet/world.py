"""How a test speaks to a node: it submits pods and removes them, waits, and looks at kernel and Bayplan.

The two worlds differ in what tells kubelet about pods: files in a directory, or kube-apiserver. Tests are written once for both.
"""

import json
import re
import time
import urllib.error
import urllib.request

import node
import processes
import witness
from pods import NAMESPACE
from processes import API, MANIFESTS, NODE
from say import Failure

PODS = f"{API}/api/v1/namespaces/{NAMESPACE}/pods"
LIMIT = 60
# A container with a creation that was cut off belongs to no pod until kubelet looks for such ones, every minute.
LEFT = 100
# Every failure that Bayplan counts but these is a decision that it did not make, or not in time. One that ends while it is told to let go of
# CPUs is counted as `not_let_go`; one that really has not is seen by the witness. `late_pod` is kubelet, which did not answer within 50 ms, as on a busy machine.
NO_TROUBLE = ["huge_pages", "late_pod", "no_effect", "not_let_go"]
MERGE = "application/merge-patch+json"


def wait(what, look, limit=LIMIT):
    """Asks `look` until it gives something, which is returned; `look` may also give a text that says what is lacking."""
    end = time.monotonic() + limit
    while True:
        found = look()
        if found and not isinstance(found, str):
            return found
        if time.monotonic() > end:
            raise Failure(f"{what} did not come within {limit} s" + (f": {found}" if found else ""))
        time.sleep(0.2)


def check(is_so, text):
    if not is_so:
        raise Failure(text)


class World:
    """What both worlds share."""

    has_api = False
    # Kubelet adds it to the name of a pod that is a file.
    suffix = ""

    def __init__(self, bayplan, kubelet, work):
        self.bayplan, self.kubelet, self.work = bayplan, kubelet, work
        self.cpus = self.shared()

    def pod(self, name):
        """A pod with its status, or nothing."""
        return self.pods().get(name + self.suffix)

    def await_running(self, *names):
        """Until all containers of these pods run and Bayplan and the kernel agree about them."""
        for name in names:
            wait(f"the start of {name}", lambda: is_running(self.pod(name)))
        self.settle()

    def await_gone(self, *names):
        """Until neither kubelet nor Bayplan know them; kubelet does not show a pod that was a file and still ends."""
        for name in names:
            wait(f"the end of {name}", lambda: self.pod(name) is None and not any(it.startswith(f"{name}/") for it in self.containers()))

    def settle(self):
        """Until kernel and Bayplan agree; a container that may grow again does so a moment after another has left."""
        wait("agreement", lambda: "; ".join(witness.disagreements(self.bayplan.status())) or True, 20)

    def containers(self):
        """What Bayplan says, by `pod/container`, without what kubelet adds to names."""
        found = witness.by_name(self.bayplan.status())
        return {name.replace(f"{self.suffix}/", "/") if self.suffix else name: it for name, it in found.items()}

    def container(self, name):
        found = self.containers()
        check(name in found, f"Bayplan does not know {name}, only {', '.join(sorted(found)) or 'none'}")
        return found[name]

    def shared(self):
        return witness.parse_list(self.bayplan.status()["cpus"]["shared"])

    def seats(self):
        """Which container runs where with which process: what a restart must not change."""
        groups = witness.groups()
        rows = self.containers().items()
        return {name: (it["id"], it["cpus"], it["mems"], tuple(witness.read_processes(groups[it["id"]]))) for name, it in rows}

    def restarts(self):
        """How often kubelet has started each container again."""
        statuses = ((name, it) for name, pod in self.pods().items() for it in container_statuses(pod))
        return {f"{name}/{it['name']}": it["restartCount"] for name, it in statuses}

    def failed_calls(self):
        """Calls to the runtime that have failed for kubelet, by its own count since it was started. Only differences mean something: those that kubelet itself has
        cancelled are taken off by its log, which begins earlier. From 1.37 on it asks for the version on behalf of a pod, and ends that with the pod's other work."""
        with urllib.request.urlopen(f"{processes.READ_ONLY}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(r'(?m)^kubelet_runtime_operations_errors_total\{operation_type="([^"]+)"\} (\S+)', text)
        failed = {name: int(float(number)) for name, number in found}
        log = (self.work / "kubelet.log").read_text(errors="replace")
        cancelled = log.count('"Version from runtime service failed" err="rpc error: code = Canceled')
        return {**failed, "version": failed.get("version", 0) - cancelled}

    def ids(self):
        """The containers that kubelet runs, by `pod/container` without what it adds to names, with the runtime's ids."""
        statuses = ((name.removesuffix(self.suffix), it) for name, pod in self.pods().items() for it in container_statuses(pod))
        return {f"{name}/{it['name']}": it["containerID"].removeprefix("containerd://") for name, it in statuses if "running" in it["state"]}

    def await_known(self, *names):
        """Until kubelet says that the containers of these pods run, whether Bayplan knows them or not."""
        for name in names:
            wait(f"kubelet's word that {name} runs", lambda: is_running(self.pod(name)))

    def await_ended(self, name, id_):
        """Until kubelet does not know the pod and the kernel does not know its container, whether Bayplan knows them or not."""
        wait(f"the end of {name}", lambda: self.pod(name) is None and id_ not in witness.groups())

    def clear(self):
        """Removes all pods with kubelet and its sockets where they were at first and Bayplan placing, and tells what is left of them anywhere."""
        if not self.bayplan.is_running():
            self.bayplan.open()
        if self.bayplan.status()["mode"] != "placing":
            self.bayplan.ask("resume", "--yes")
        if self.bayplan.is_rebalancer_paused():
            self.bayplan.ask("rebalance", "resume")
        if self.bayplan.pods_socket != processes.PODS_SOCKET:
            self.bayplan.ask_pods_at(processes.PODS_SOCKET)
        if self.kubelet.socket != self.bayplan.endpoint:
            self.kubelet.point_at(self.bayplan.endpoint)
            self.kubelet.restart()
        for path in MANIFESTS.glob("*.json"):
            path.unlink()
        for name in self.pods() if self.has_api else []:
            self.remove(name, grace=1)
        wait("the end of all pods", lambda: f"{', '.join(self.pods())} left" if self.pods() else True, 90)
        wait("the return of all CPUs", lambda: self.leftovers() or True, LEFT)
        return list(self.troubles())

    def leftovers(self):
        status = self.bayplan.status()
        left = [f"{name} is in the ledger" for name in witness.by_name(status)]
        left += [f"{group} is left" for group in witness.groups().values()]
        if witness.parse_list(status["cpus"]["shared"]) != self.cpus:
            left.append(f"only {status['cpus']['shared']} are shared")
        return "; ".join(left)

    def failures(self):
        """How often Bayplan counts each kind of failure."""
        with urllib.request.urlopen(f"http://{node.METRICS}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {kind: float(number) for kind, number in re.findall(r'(?m)^bayplan_failures_total\{kind="([^"]+)"\} (\S+)', text)}

    def counted(self, kind):
        return self.failures().get(kind, 0)

    def troubles(self):
        for kind, number in self.failures().items():
            if number and kind not in NO_TROUBLE:
                yield f"Bayplan counts {number} failures of the kind {kind}"
        log = (self.work / "bayplan.log").read_text(errors="replace")
        yield from (f"Bayplan: {line}" for line in log.splitlines() if "panicked at" in line)


class Standalone(World):
    """Kubelet reads pods from a directory (static pods)."""

    suffix = f"-{NODE}"
    submitted = 0

    def submit(self, *pods):
        for pod in pods:
            name = pod["metadata"]["name"]
            # Equal files are the same pod to kubelet, which then counts how often an earlier test has started it.
            self.submitted += 1
            pod["metadata"]["labels"]["submitted"] = str(self.submitted)
            # Kubelet reads whatever has another name than a hidden file as soon as it is there.
            partial = MANIFESTS / f".{name}"
            partial.write_text(json.dumps(pod))
            partial.rename(MANIFESTS / f"{name}.json")

    def remove(self, name, grace=None):
        """The period of grace of a pod that is a file is what its file says."""
        (MANIFESTS / f"{name}.json").unlink(missing_ok=True)

    def pods(self):
        return {it["metadata"]["name"]: it for it in self.kubelet.pods()}


class WithApi(World):
    """Pods come from kube-apiserver."""

    has_api = True

    def submit(self, *pods):
        for pod in pods:
            processes.fetch(PODS, "POST", {**pod, "spec": {**pod["spec"], "nodeName": NODE}})

    def remove(self, name, grace=None):
        body = None if grace is None else {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace}
        try:
            processes.fetch(f"{PODS}/{name}", "DELETE", body)
        except urllib.error.HTTPError as refused:
            check(refused.code == 404, f"deleting {name}: {refused}")

    def pods(self):
        return {it["metadata"]["name"]: it for it in processes.fetch(PODS)["items"]}

    def events(self, name):
        """What is told of a pod, as `REASON: MESSAGE`."""
        events = processes.fetch(f"{API}/api/v1/namespaces/{NAMESPACE}/events?limit=500")["items"]
        return [f"{it['reason']}: {it['message']}" for it in events if it["involvedObject"]["name"] == name]

    def resize(self, name, cpu):
        """Asks for other CPUs for the container `main`, request and limit alike."""
        resources = {"requests": {"cpu": cpu, "memory": "32Mi"}, "limits": {"cpu": cpu, "memory": "32Mi"}}
        self.resize_to(name, {"containers": [{"name": "main", "resources": resources}]})

    def resize_to(self, name, spec):
        """Asks for what `spec` says of resources, of the pod or of its containers."""
        processes.fetch(f"{PODS}/{name}/resize", "PATCH", {"spec": spec}, "application/strategic-merge-patch+json")


def container_statuses(pod):
    status = pod["status"]
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def is_running(pod):
    """Whether the pod's containers run; else a text that says what each does."""
    if pod is None:
        return "kubelet does not know it"
    statuses = pod["status"].get("containerStatuses") or []
    if statuses and all("running" in it["state"] for it in statuses):
        return True
    return "; ".join(describe_state(it) for it in container_statuses(pod)) or f"it is {pod['status'].get('phase')}"


def describe_state(status):
    [(state, about)] = status["state"].items() or [("unknown", {})]
    told = [about[it] for it in ("reason", "message") if about.get(it)]
    return f"{status['name']} is {state} {': '.join(told)}".strip()


def waiting_message(pod, name="main"):
    """Why a container waits, as kubelet tells it."""
    statuses = container_statuses(pod) if pod else []
    found = [it["state"]["waiting"] for it in statuses if it["name"] == name and "waiting" in it["state"]]
    return ": ".join(found[0].get(it, "") for it in ("reason", "message")) if found else ""
