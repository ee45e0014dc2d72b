"""One round: containerd, Bayplan, kubelet and perhaps kube-apiserver in namespaces of their own, and the tests that are run on them."""

import json
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

import isolated
import node
import processes
import registry
import scenarios
from say import Failure, say
from world import Standalone, WithApi, wait

CONTROL_GROUPS = ["k8s.io", processes.CGROUP_ROOT]
# One test, and the clearing up behind it.
TEST_LIMIT = 300
START_LIMIT = 240


def run_round(described):
    """Runs the round that `described` describes, and gives what came of its tests; its work directory then has the logs."""
    before, latencies = isolated.control_groups(CONTROL_GROUPS), processes.latencies()
    process = isolated.start(__file__, described)
    results = Path(described["work"], "results.json")
    limit = START_LIMIT + 2 * TEST_LIMIT * len(described["tests"])
    try:
        code = process.wait(timeout=None if described["keep"] else limit)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"the round {described['name']} did not end in time") from late
    finally:
        process.kill()
        process.wait()
        isolated.remove_control_groups(CONTROL_GROUPS, before)
        processes.put_back(latencies)
    if code != 0:
        raise Failure(f"the round {described['name']} came to no end")
    return json.loads(results.read_text())


def late(*_):
    raise Failure(f"did not end within {TEST_LIMIT} s")


def run_test(scenario, world, name, keep):
    """Its verdict; whatever it leaves behind is a failure, too. What has failed is not cleared up when it is to be looked at."""
    started = time.monotonic()
    against = []
    for step in [scenario.run, lambda it: against.extend(it.clear())]:
        if against and keep:
            break
        signal.alarm(TEST_LIMIT)
        try:
            step(world)
        except Failure as failure:
            against.append(str(failure))
        except Exception:
            against.append(traceback.format_exc())
        finally:
            signal.alarm(0)
    seconds = time.monotonic() - started
    verdict = "failed" if against else "passed"
    say(f"{name}: {verdict} in {seconds:.0f} s: {scenario.name}" + "".join(f"\n    {it}" for it in against))
    return {"test": scenario.name, "verdict": verdict, "seconds": round(seconds, 1), "message": "\n".join(against)}


def start_node(wanted, work):
    """Everything up to a kubelet that takes pods."""
    isolated.make_surroundings(work)
    processes.make_surroundings(work)
    registry.start(Path(wanted["store"]))
    node.start_containerd(wanted, work)
    bayplan = processes.Bayplan(wanted["bayplan"], work, wanted["front_end"])
    if wanted["api"]:
        processes.start_api(wanted["etcd"], wanted["api"], work)
    kubelet = processes.Kubelet(wanted["kubelet"], work, bool(wanted["api"]), bayplan.endpoint)
    if not wanted["api"]:
        return Standalone(bayplan, kubelet, work)
    wait("the node", lambda: is_ready(processes.fetch(f"{processes.API}/api/v1/nodes")["items"]))
    return WithApi(bayplan, kubelet, work)


def is_ready(nodes):
    conditions = [it for found in nodes for it in found["status"].get("conditions") or [] if it["type"] == "Ready"]
    return any(it["status"] == "True" for it in conditions) or "; ".join(it["message"] for it in conditions)


def main(wanted):
    work = Path(wanted["work"])
    say(f"{wanted['name']}: starting")
    world = start_node(wanted, work)
    signal.signal(signal.SIGALRM, late)
    chosen = [it for it in scenarios.SCENARIOS if it.name in wanted["tests"]]
    results = []
    for scenario in chosen:
        results.append(run_test(scenario, world, wanted["name"], wanted["keep"]))
        if wanted["keep"] and results[-1]["verdict"] == "failed":
            break
    (work / "results.json").write_text(json.dumps(results))
    if wanted["keep"]:
        stay(wanted, work)


def stay(wanted, work):
    """Until Ctrl-C, with everything running."""
    say(f"everything stays until Ctrl-C; logs are in {work}")
    say("to look around: nsenter --mount --net --pid --target $(pgrep --newest --full kubelet/rounds.py) /bin/bash")
    say(f"and there: {wanted['bayplan']} --config {work}/bayplan.yaml status; curl {processes.READ_ONLY}/pods")
    signal.pause()


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Failure as failure:
        say(str(failure))
        sys.exit(1)
