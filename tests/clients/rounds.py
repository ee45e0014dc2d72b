"""containerd and Bayplan in namespaces of their own, and every client on the socket of each."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

import calls
import isolated
import node
from say import Failure, say

CONTROL_GROUPS = ["k8s.io"]
LIMIT = 120


def run_round(described):
    """What came of each client."""
    before = isolated.control_groups(CONTROL_GROUPS)
    process = isolated.start(__file__, described)
    try:
        code = process.wait(timeout=4 * LIMIT * len(described["clients"]))
    except subprocess.TimeoutExpired as late:
        raise Failure("the round did not end in time") from late
    finally:
        process.kill()
        process.wait()
        isolated.remove_control_groups(CONTROL_GROUPS, before)
    if code != 0:
        raise Failure("the round came to no end")
    return json.loads(Path(described["work"], "results.json").read_text())


def run_client(args, socket):
    done = subprocess.run([*args, socket, calls.as_argument()], capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        raise Failure(f"{' '.join(args)} ended with {done.returncode}:\n{done.stderr.strip()}")
    return calls.parse(done.stdout)


def authority(args, recorder, work):
    """What a client sends as `:authority`: its calls fail, since they are not answered."""
    socket = str(work / "authority.sock")
    Path(socket).unlink(missing_ok=True)
    process = subprocess.Popen([*recorder, socket], stdout=subprocess.PIPE, text=True)
    try:
        node.await_path("the recorder of authorities", process, socket)
        subprocess.run([*args, socket, calls.as_argument().split()[0]], capture_output=True, timeout=LIMIT)
        told, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    return told.strip()


def main(wanted):
    work = Path(wanted["work"])
    isolated.make_surroundings(work)
    node.start_containerd(wanted, work)
    bayplan = node.start_bayplan(wanted["bayplan"], "cri", work)
    results = []
    for client in wanted["clients"]:
        direct, through = (run_client(client["args"], it) for it in (node.RUNTIME, node.BAYPLAN))
        sent = authority(client["args"], wanted["recorder"], work)
        against = calls.differences(direct, through)
        verdict = "failed" if against else "passed"
        say(f"{client['name']}: {verdict}, sends {sent}" + "".join(f"\n    {it}" for it in against))
        results.append({"client": client["name"], "authority": sent, "verdict": verdict, "calls": len(through), "message": "\n".join(against)})
    node.end_bayplan(bayplan, work)
    (work / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Failure as failure:
        say(str(failure))
        sys.exit(1)
