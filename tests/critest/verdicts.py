"""Which specs passed, failed and were skipped, in each round; what differs between rounds; and what of it is known.

Pure but for reading files: in are ginkgo's report and the list of known failures, out are texts and values.
"""

import json
import re
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

from say import Failure

WORDS = ["passed", "failed", "skipped"]


@dataclass
class Round:
    """What came of one round: a verdict per spec, in how long."""

    name: str
    verdicts: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, word):
        return sum(it == word for it in self.verdicts.values())


def read_round(name, report):
    """The nodes of a suite that are no specs (`[SynchronizedBeforeSuite]`) are left out."""
    found = Round(name)
    for suite in xml.parse(report).iter("testsuite"):
        found.seconds += float(suite.get("time", 0))
    for case in xml.parse(report).iter("testcase"):
        if case.get("name").startswith("[It] "):
            spec = re.sub(r"^\[It\] (\[k8s\.io\] )?", "", case.get("name")).strip()
            verdict, message = verdict_of(case)
            # Benchmarks, which are left out by name, are no specs that could differ.
            if message != "skipped":
                found.verdicts[spec], found.messages[spec] = verdict, message
    return found


def verdict_of(case):
    for tag, verdict in [("failure", "failed"), ("error", "failed"), ("skipped", "skipped")]:
        told = case.find(tag)
        if told is not None:
            return verdict, (told.get("message") or "").strip()
    return "passed", ""


@dataclass
class Known:
    """One entry of `known-failures.txt`."""

    kind: str  # fails: in every round; varies: from round to round
    series: list
    spec: str
    reason: str


def parse_known(text):
    """An entry is a line `KIND CONTAINERD[,CONTAINERD] SPEC` and, indented below, the reason."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            if not entries:
                raise Failure(f"known-failures.txt:{number}: a reason without a spec")
            entries[-1].reason = f"{entries[-1].reason} {line.strip()}".strip()
            continue
        kind, series, spec = (line.split(maxsplit=2) + ["", ""])[:3]
        if kind not in ("fails", "varies") or not spec:
            raise Failure(f"known-failures.txt:{number}: `{line}` is not `fails|varies CONTAINERD[,CONTAINERD] SPEC`")
        entries.append(Known(kind, series.split(","), spec, ""))
    for entry in entries:
        if not entry.reason:
            raise Failure(f"known-failures.txt: `{entry.spec}` has no reason")
    return entries


@dataclass
class Judged:
    """`differences` and `troubles` fail the run, the rest is told."""

    differences: list = field(default_factory=list)  # (spec, verdicts)
    varied: list = field(default_factory=list)
    failed_everywhere: list = field(default_factory=list)  # (spec, reason or "")
    stale: list = field(default_factory=list)  # known to fail, and passed


def judge(rounds, known):
    reasons = {(it.kind, it.spec): it.reason for it in known}
    judged = Judged()
    for spec in sorted({spec for round_ in rounds for spec in round_.verdicts}):
        verdicts = [round_.verdicts.get(spec, "absent") for round_ in rounds]
        if len(set(verdicts)) > 1:
            varies = ("varies", spec) in reasons
            (judged.varied if varies else judged.differences).append((spec, verdicts))
        elif verdicts[0] == "failed":
            judged.failed_everywhere.append((spec, reasons.get(("fails", spec), "")))
        elif ("fails", spec) in reasons:
            judged.stale.append((spec, verdicts[0]))
    return judged


def render(title, rounds, judged):
    """The tables that a person reads."""
    width = max(len(it.name) for it in rounds)
    head = " ".join(f"{word:>8}" for word in ["specs", *WORDS, "seconds"])
    lines = [title, "", f"{'':{width}} {head}"]
    for it in rounds:
        numbers = [len(it.verdicts), *map(it.count, WORDS), round(it.seconds)]
        lines.append(f"{it.name:{width}} " + " ".join(f"{number:8}" for number in numbers))
    for heading, specs in [("Differences", judged.differences), ("Vary by themselves", judged.varied)]:
        lines += ["", f"{heading}: {len(specs) or 'none'}"]
        for spec, verdicts in specs:
            lines.append(f"  {spec}")
            for it, verdict in zip(rounds, verdicts):
                message = it.messages.get(spec, "").splitlines()
                lines.append(f"    {it.name:{width}} {verdict} {message[0] if message else ''}".rstrip())
    lines += ["", f"Fail in every round: {len(judged.failed_everywhere) or 'none'}"]
    for spec, reason in judged.failed_everywhere:
        lines += [f"  {spec}", f"    {reason or 'not in known-failures.txt'}"]
    for spec, verdict in judged.stale:
        lines.append(f"Known to fail, but {verdict}: {spec}")
    return "\n".join(lines) + "\n"


def list_verdicts(rounds):
    """All specs, one a line, the verdicts of the rounds side by side."""
    specs = sorted({spec for it in rounds for spec in it.verdicts})
    widths = [max(len(it.name), 7) for it in rounds]
    lines = [" ".join(f"{it.name:{width}}" for it, width in zip(rounds, widths)) + " spec"]
    for spec in specs:
        verdicts = (f"{it.verdicts.get(spec, 'absent'):{width}}" for it, width in zip(rounds, widths))
        lines.append(" ".join(verdicts) + f" {spec}")
    return "\n".join(lines) + "\n"


def render_json(rounds, judged, facts):
    form = {
        **facts,
        "rounds": [{"name": it.name, "seconds": it.seconds, **{word: it.count(word) for word in WORDS}} for it in rounds],
        "specs": {spec: [it.verdicts.get(spec, "absent") for it in rounds]
                  for spec in sorted({spec for it in rounds for spec in it.verdicts})},
        "differences": [spec for spec, _ in judged.differences],
        "varied": [spec for spec, _ in judged.varied],
        "failedEverywhere": [spec for spec, _ in judged.failed_everywhere],
    }
    return json.dumps(form, indent=2) + "\n"


def read_counters(path):
    """The counters of Bayplan's metrics, by name and labels as they are written."""
    found = {}
    for line in Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            name, number = line.rsplit(" ", 1)
            found[name] = float(number)
    return found
