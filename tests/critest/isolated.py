"""One round: containerd, perhaps Bayplan before it, and critest, in mount, network and PID namespaces of their own.

`start_round` starts this file anew as the first process of the namespaces, so whatever is started in them ends with it, whichever way it
ends: `setpriv` and `unshare` tie their children's lives to their own. What stays behind are files below the work directory and empty
control groups; both are removed by who made the namespaces.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import registry
from say import Failure, say

RUNTIME = "/run/containerd/containerd.sock"
BAYPLAN = "/run/bayplan/bayplan.sock"
METRICS = "127.0.0.1:9478"
READY = 60
# Ginkgo prints one sign for each spec that ended, and a report behind those that failed.
ENDED = re.compile(r"(?m)^[•SP]*•[•SP]*")
# Directly below the root of each control group hierarchy: containerd's own, and the parent that critest names.
CONTROL_GROUPS = ["k8s.io", "test.slice"]

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
""",
}

# All images come from our registry; without `server` one that it lacks would be looked for at its real address.
REGISTRIES = """
server = "http://{0}:{1}"
[host."http://{0}:{1}"]
  capabilities = ["pull", "resolve"]
""".format(*registry.ADDRESS)

NETWORK = {
    "cniVersion": "1.0.0",
    "name": "critest",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "critest0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/critest-ipam",
                "ranges": [[{"subnet": "10.88.0.0/16"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}

BAYPLAN_CONFIG = """
socket: {socket}
runtimeSocket: {runtime}
controlSocket: /run/bayplan/control.sock
stateDir: {work}/state
metricsAddress: {metrics}
"""


def run_rounds(rounds, side_by_side):
    """Runs rounds, each described as `main` below takes it; the work directory of each then has `junit.xml` and the logs."""
    before = control_groups()
    groups = [rounds] if side_by_side else [[it] for it in rounds]
    processes = []
    try:
        for group in groups:
            processes = [start_round(it) for it in group]
            for round_, process in zip(group, processes):
                await_round(round_, process)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        remove_control_groups(before)


def start_round(round_):
    end_with_us = ["setpriv", "--pdeathsig", "KILL"]
    isolate = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]
    args = [*end_with_us, *isolate, sys.executable, "-B", __file__, json.dumps(round_)]
    # A group of its own: Ctrl-C reaches the runner alone, which then ends the round.
    return subprocess.Popen(args, start_new_session=True, stdin=subprocess.DEVNULL)


def await_round(round_, process):
    try:
        if process.wait(timeout=round_["limit"] + 4 * READY) != 0:
            raise Failure(f"the round {round_['name']} came to no end")
    except subprocess.TimeoutExpired as late:
        raise Failure(f"the round {round_['name']} did not end in time") from late


def control_groups():
    root = Path("/sys/fs/cgroup")
    hierarchies = [root, *(it for it in root.iterdir() if it.is_dir())]
    parents = [hierarchy / name for hierarchy in hierarchies for name in CONTROL_GROUPS]
    return {Path(dir) for parent in parents for dir, _, _ in os.walk(parent)}


def remove_control_groups(before):
    """Removes those that are new and empty; the kernel needs a moment to end who was in them."""
    for _ in range(50):
        new = sorted(control_groups() - before, key=lambda it: len(it.parts), reverse=True)
        if not new:
            return
        for path in new:
            try:
                path.rmdir()
            except OSError:
                pass
        time.sleep(0.1)


def command(*args):
    subprocess.run(args, check=True, timeout=30)


def make_surroundings(work):
    """A network with one address and a default route, which some specs need, and a /run of our own."""
    command("mount", "--make-rshared", "/")
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "uplink0", "type", "veth", "peer", "name", "uplink1")
    command("ip", "address", "add", "192.0.2.10/24", "dev", "uplink0")
    for device in ["uplink0", "uplink1"]:
        command("ip", "link", "set", device, "up")
    command("ip", "route", "add", "default", "via", "192.0.2.1", "dev", "uplink0")
    names = Path("/etc/resolv.conf")
    text = names.read_text() if names.exists() else ""
    command("mount", "-t", "tmpfs", "tmpfs", "/run")
    # It may be a link into the /run that is now hidden, and containerd copies it into every pod.
    names.resolve().parent.mkdir(parents=True, exist_ok=True)
    if not names.exists():
        names.resolve().write_text(text)
    for path in ["/run/netns", "/run/lock", "/run/bayplan", work / "cni", work / "registries/_default", work / "tmp"]:
        Path(path).mkdir(parents=True)
    (work / "cni/10-critest.conflist").write_text(json.dumps(NETWORK))
    (work / "registries/_default/hosts.toml").write_text(REGISTRIES)


def start(name, args, work, **env):
    log = (work / f"{name}.log").open("wb")
    return subprocess.Popen(args, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **env})


def await_socket(name, process, path, work):
    """Waits until somebody listens at `path`."""
    end = time.monotonic() + READY
    while time.monotonic() < end and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                return client.connect(path)
            except OSError:
                time.sleep(0.05)
    raise Failure(f"{name} did not start:\n{tail(work / f'{name}.log')}")


def tail(path, lines=15):
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def start_containerd(wanted, work):
    config = work / "containerd.toml"
    config.write_text(CONTAINERD[wanted["series"]].format(work=work, socket=RUNTIME))
    path = f"{wanted['containerd']}:{wanted['runc']}:{os.environ['PATH']}"
    args = [f"{wanted['containerd']}/containerd", "--config", str(config)]
    process = start("containerd", args, work, PATH=path, TMPDIR=str(work / "tmp"))
    await_socket("containerd", process, RUNTIME, work)


def start_bayplan(program, work):
    config = work / "bayplan.yaml"
    config.write_text(BAYPLAN_CONFIG.format(socket=BAYPLAN, runtime=RUNTIME, metrics=METRICS, work=work))
    process = start("bayplan", [program, "--config", str(config), "run"], work)
    await_socket("bayplan", process, BAYPLAN, work)
    return process


def end_bayplan(process, work):
    """Keeps its counters and stops it, as systemd would."""
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as answer:
        (work / "metrics.txt").write_bytes(answer.read())
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(timeout=30)
    except subprocess.TimeoutExpired as late:
        raise Failure("bayplan did not stop within 30 s of SIGTERM") from late
    if code != 0:
        raise Failure(f"bayplan ended with {code}:\n{tail(work / 'bayplan.log')}")


def run_critest(wanted, server, work):
    endpoint = f"unix://{server}"
    # Without a configuration file of its own critest would read the machine's.
    (work / "crictl.yaml").write_text("timeout: 30\n")
    args = [wanted["critest"], f"--config={work}/crictl.yaml", f"--runtime-endpoint={endpoint}", f"--image-endpoint={endpoint}",
            "-ginkgo.no-color", f"-ginkgo.seed={wanted['seed']}", f"-ginkgo.junit-report={work}/junit.xml"]
    if wanted["focus"]:
        args.append(f"-ginkgo.focus={wanted['focus']}")
    process = start("critest", args, work, TMPDIR=str(work / "tmp"))
    started = time.monotonic()
    shown = started
    while process.poll() is None:
        now = time.monotonic()
        if now - started > wanted["limit"]:
            raise Failure(f"critest did not end within {wanted['limit']} s:\n{tail(work / 'critest.log')}")
        if now - shown > 15:
            shown = now
            ended = sum(map(len, ENDED.findall((work / "critest.log").read_text(errors="replace"))))
            say(f"{wanted['name']}: {ended} specs after {now - started:.0f} s")
        time.sleep(0.1)
    # Its code says whether a spec failed, which the report tells better; without a report it has not run.
    if not (work / "junit.xml").is_file():
        raise Failure(f"critest wrote no report:\n{tail(work / 'critest.log')}")


def main(wanted):
    work = Path(wanted["work"])
    make_surroundings(work)
    registry.start(Path(wanted["store"]))
    start_containerd(wanted, work)
    if wanted["bayplan"] is None:
        run_critest(wanted, RUNTIME, work)
    else:
        bayplan = start_bayplan(wanted["bayplan"], work)
        run_critest(wanted, BAYPLAN, work)
        end_bayplan(bayplan, work)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Failure as failure:
        say(str(failure))
        sys.exit(1)
