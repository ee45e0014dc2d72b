"""Mount, network and PID namespaces in which real programs run without a trace on the machine.

`start` starts a script of ours anew as the first process of the namespaces, so whatever is started in them ends with it, whichever way it
ends: `setpriv` and `unshare` tie their children's lives to their own. What stays behind are files below the work directory and empty
control groups; both are removed by the process that made the namespaces.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import registry

# All images come from our registry; without `server` one that it lacks would be looked for at its real address.
REGISTRIES = """
server = "http://{0}:{1}"
[host."http://{0}:{1}"]
  capabilities = ["pull", "resolve"]
""".format(*registry.ADDRESS)

NETWORK = {
    "cniVersion": "1.0.0",
    "name": "tests",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "tests0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/ipam",
                "ranges": [[{"subnet": "10.88.0.0/16"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def start(script, described):
    """`script` in namespaces of its own, with `described` as JSON as its argument."""
    end_with_us = ["setpriv", "--pdeathsig", "KILL"]
    isolate = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]
    args = [*end_with_us, *isolate, sys.executable, "-B", str(script), json.dumps(described)]
    # A group of its own: Ctrl-C reaches the runner alone, which then ends the round.
    return subprocess.Popen(args, start_new_session=True, stdin=subprocess.DEVNULL)


def control_groups(names):
    """All that lie in one of `names`, which are directly below the root of each hierarchy."""
    root = Path("/sys/fs/cgroup")
    hierarchies = [root, *(it for it in root.iterdir() if it.is_dir())]
    parents = [hierarchy / name for hierarchy in hierarchies for name in names]
    return {Path(dir) for parent in parents for dir, _, _ in os.walk(parent)}


def remove_control_groups(names, before):
    """Removes those that are new and empty; the kernel needs a moment to end the processes in them."""
    for _ in range(50):
        new = sorted(control_groups(names) - before, key=lambda it: len(it.parts), reverse=True)
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
    (work / "cni/10-tests.conflist").write_text(json.dumps(NETWORK))
    (work / "registries/_default/hosts.toml").write_text(REGISTRIES)
