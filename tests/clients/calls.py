"""The calls that every client makes, and how their answers are read. Pure.

A client gets them as one argument: `METHOD=MESSAGE`, the message in hexadecimal, separated by spaces. It makes them one after another on one connection and
prints a line for each: the method, the number of the status code, the answer in hexadecimal, and the status message in base64. What is empty is left empty.
"""

import base64
from dataclasses import dataclass

SERVICE = "/runtime.v1.RuntimeService/"


def field(number, content):
    """A length-delimited field of a message."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


# A container of a sandbox that there is not, so that the call is decoded and decided on, and refused by the runtime.
ABSENT = field(1, b"absent") + field(2, field(1, field(1, b"main"))) + field(3, field(1, field(1, b"pod")))

# The first and the last are the same: clients name in a later call fields of the first one by their place in a table.
CALLS = [
    (f"{SERVICE}Version", b""),
    (f"{SERVICE}ListContainers", b""),
    (f"{SERVICE}CreateContainer", ABSENT),
    ("/runtime.v1.ImageService/ListImages", b""),
    (f"{SERVICE}OfTomorrow", b"\x08\x01"),
    (f"{SERVICE}Version", b""),
]
OK, UNAVAILABLE = 0, 14


@dataclass(frozen=True)
class Answer:
    method: str
    code: int
    message: str
    text: str


def as_argument():
    return " ".join(f"{method}={message.hex()}" for method, message in CALLS)


def parse(output):
    """The answers that a client has printed."""
    rows = [line.split(" ") for line in output.splitlines()]
    return [Answer(method, int(code), message, base64.b64decode(text).decode()) for method, code, message, text in rows]


def differences(direct, through):
    """What a client was answered by the runtime itself and otherwise through Bayplan; also calls that were not answered at all."""
    found = []
    if [it.method for it in direct] != [method for method, _ in CALLS]:
        found.append(f"only {len(direct)} of {len(CALLS)} calls were answered")
    if not direct or direct[0].code != OK:
        found.append(f"the runtime itself answers {direct[:1]}")
    for one, other in zip(direct, through):
        if one != other:
            found.append(f"{one.method}: directly {one.code} {one.text!r} {one.message}, through Bayplan {other.code} {other.text!r} {other.message}")
    if len(direct) != len(through):
        found.append(f"{len(direct)} answers directly, {len(through)} through Bayplan")
    return found
