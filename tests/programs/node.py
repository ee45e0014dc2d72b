"""Starts the programs of a node inside the namespaces of `isolated`: containerd and Bayplan."""

import os
import signal
import socket
import subprocess
import time
import urllib.request

from say import Failure

RUNTIME = "/run/containerd/containerd.sock"
BAYPLAN = "/run/bayplan/bayplan.sock"
PLUGINS = "/run/nri/nri.sock"
METRICS = "127.0.0.1:9478"
READY = 60

CONTAINERD = {
    "1.7": """
version = 2
root = "{work}/root"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.9"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{work}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{work}/registries"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{plugins}"
  plugin_path = "{work}/nri/plugins"
  plugin_config_path = "{work}/nri/conf.d"
""",
    "2": """
version = 3
root = "{work}/root"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "registry.k8s.io/pause:3.10"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{work}/registries"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{work}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{plugins}"
  plugin_path = "{work}/nri/plugins"
  plugin_config_path = "{work}/nri/conf.d"
""",
}

# By front end.
BAYPLAN_FRONT_ENDS = {
    "cri": f"frontEnd: cri\nsocket: {BAYPLAN}\n",
    "nri": f"frontEnd: nri\nnri: {{socket: {PLUGINS}}}\n",
}

BAYPLAN_CONFIG = """
runtimeSocket: {runtime}
controlSocket: /run/bayplan/control.sock
stateDir: {work}/state
metricsAddress: {metrics}
"""


def start(name, args, work, **env):
    log = (work / f"{name}.log").open("wb")
    return subprocess.Popen(args, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **env})


def await_socket(name, process, path, work):
    """Waits until a process listens at `path`."""
    end = time.monotonic() + READY
    while time.monotonic() < end and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                return client.connect(path)
            except OSError:
                time.sleep(0.05)
    raise Failure(f"{name} did not start:\n{tail(work / f'{name}.log')}")


def await_path(name, process, path):
    """Waits until there is a file at `path`."""
    end = time.monotonic() + READY
    while not os.path.exists(path):
        if process.poll() is not None or time.monotonic() > end:
            raise Failure(f"{name} did not make {path}")
        time.sleep(0.05)


def tail(path, lines=15):
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def start_containerd(wanted, work):
    config = work / "containerd.toml"
    config.write_text(CONTAINERD[wanted["series"]].format(work=work, socket=RUNTIME, plugins=PLUGINS))
    path = f"{wanted['containerd']}:{wanted['runc']}:{os.environ['PATH']}"
    args = [f"{wanted['containerd']}/containerd", "--config", str(config)]
    process = start("containerd", args, work, PATH=path, TMPDIR=str(work / "tmp"))
    await_socket("containerd", process, RUNTIME, work)


def start_bayplan(program, front_end, work):
    config = work / "bayplan.yaml"
    rest = BAYPLAN_CONFIG.format(runtime=RUNTIME, metrics=METRICS, work=work)
    config.write_text(BAYPLAN_FRONT_ENDS[front_end] + rest)
    process = start("bayplan", [program, "--config", str(config), "run"], work)
    if front_end == "cri":
        await_socket("bayplan", process, BAYPLAN, work)
    else:
        await_registration(process, work)
    return process


def await_registration(process, work):
    """Waits until the runtime has taken Bayplan as its plugin."""
    end = time.monotonic() + READY
    while time.monotonic() < end and process.poll() is None:
        try:
            if b"bayplan_nri_registrations_total 1" in read_metrics():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise Failure(f"bayplan did not become a plugin:\n{tail(work / 'bayplan.log')}")


def read_metrics():
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as answer:
        return answer.read()


def end_bayplan(process, work):
    """Keeps its counters and stops it, as systemd would."""
    (work / "metrics.txt").write_bytes(read_metrics())
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(timeout=30)
    except subprocess.TimeoutExpired as late:
        raise Failure("bayplan did not stop within 30 s of SIGTERM") from late
    if code != 0:
        raise Failure(f"bayplan ended with {code}:\n{tail(work / 'bayplan.log')}")
