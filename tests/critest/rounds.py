"""One round: containerd, perhaps with Bayplan before it or as its plugin, and critest, in namespaces of their own."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

import isolated
import node
import registry
from say import Failure, say

# Ginkgo prints one sign for each spec that ended, and a report behind those that failed.
ENDED = re.compile(r"(?m)^[•SP]*•[•SP]*")
# containerd's own, and the parent that critest names.
CONTROL_GROUPS = ["k8s.io", "test.slice"]


def run_rounds(rounds, side_by_side):
    """Runs rounds, each described as `main` below takes it; the work directory of each then has `junit.xml` and the logs."""
    before = isolated.control_groups(CONTROL_GROUPS)
    groups = [rounds] if side_by_side else [[it] for it in rounds]
    processes = []
    try:
        for group in groups:
            processes = [isolated.start(__file__, it) for it in group]
            for round_, process in zip(group, processes):
                await_round(round_, process)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        isolated.remove_control_groups(CONTROL_GROUPS, before)


def await_round(round_, process):
    try:
        if process.wait(timeout=round_["limit"] + 4 * node.READY) != 0:
            raise Failure(f"the round {round_['name']} came to no end")
    except subprocess.TimeoutExpired as late:
        raise Failure(f"the round {round_['name']} did not end in time") from late


def run_critest(wanted, server, work):
    endpoint = f"unix://{server}"
    # Without a configuration file of its own critest would read the machine's.
    (work / "crictl.yaml").write_text("timeout: 30\n")
    args = [wanted["critest"], f"--config={work}/crictl.yaml", f"--runtime-endpoint={endpoint}", f"--image-endpoint={endpoint}",
            f"--nri-socket={node.PLUGINS}", "-ginkgo.no-color", f"-ginkgo.seed={wanted['seed']}", f"-ginkgo.junit-report={work}/junit.xml"]
    if wanted["focus"]:
        args.append(f"-ginkgo.focus={wanted['focus']}")
    process = node.start("critest", args, work, TMPDIR=str(work / "tmp"))
    started = time.monotonic()
    shown = started
    while process.poll() is None:
        now = time.monotonic()
        if now - started > wanted["limit"]:
            raise Failure(f"critest did not end within {wanted['limit']} s:\n{node.tail(work / 'critest.log')}")
        if now - shown > 15:
            shown = now
            ended = sum(map(len, ENDED.findall((work / "critest.log").read_text(errors="replace"))))
            say(f"{wanted['name']}: {ended} specs after {now - started:.0f} s")
        time.sleep(0.1)
    # Its code says whether a spec failed, which the report tells better; without a report it has not run.
    if not (work / "junit.xml").is_file():
        raise Failure(f"critest wrote no report:\n{node.tail(work / 'critest.log')}")


def main(wanted):
    work = Path(wanted["work"])
    isolated.make_surroundings(work)
    registry.start(Path(wanted["store"]))
    node.start_containerd(wanted, work)
    front_end = wanted["front_end"]
    if front_end is None:
        run_critest(wanted, node.RUNTIME, work)
    else:
        bayplan = node.start_bayplan(wanted["bayplan"], front_end, work)
        run_critest(wanted, node.BAYPLAN if front_end == "cri" else node.RUNTIME, work)
        node.end_bayplan(bayplan, work)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Failure as failure:
        say(str(failure))
        sys.exit(1)
