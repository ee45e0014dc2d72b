"""The pods that tests run, as manifests. Pure."""

IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
NAMESPACE = "default"

# Ends at once when it is told to, as the first process of a container does only when it says so.
STAY = "trap 'exit 0' TERM; while :; do sleep 600 & wait; done"
# Goes on when it is told to end.
STUBBORN = "trap '' TERM; while :; do sleep 600 & wait; done"


def container(name="main", cpu=None, memory=None, limit=None, script=STAY, **more):
    """`cpu` and `memory` are requests, and limits as well where `limit` does not say that there are others, or none."""
    requests = {key: value for key, value in [("cpu", cpu), ("memory", memory)] if value}
    resources = {"requests": requests, "limits": requests if limit is None else limit}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script], "resources": resources, **more}


def guaranteed(name="main", cpu="1", **more):
    return container(name, cpu, "32Mi", **more)


def burstable(name="main", cpu="100m", **more):
    return container(name, cpu, "16Mi", limit={}, **more)


def best_effort(name="main", **more):
    return container(name, **more)


def resources(cpu, memory, cpu_limit=None, memory_limit=None, huge_pages=None):
    """Requests and limits of a pod as a whole; without other limits they are the requests."""
    pages = {"hugepages-2Mi": huge_pages} if huge_pages else {}
    limits = {"cpu": cpu_limit or cpu, "memory": memory_limit or memory, **pages}
    return {"requests": {"cpu": cpu, "memory": memory, **pages}, "limits": limits}


def pod(name, *containers, first=(), grace=5, restart="Always", annotations=None, whole=None):
    """A pod; `first` are its init containers, `whole` what it needs as a whole (Kubernetes 1.34)."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {}, "annotations": annotations or {}},
        "spec": {
            "containers": list(containers),
            "initContainers": list(first),
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": grace,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "dnsPolicy": "Default",
            **({"resources": whole} if whole else {}),
        },
    }
