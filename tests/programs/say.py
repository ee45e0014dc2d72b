"""What a runner tells a person: progress on standard error, and the one error that ends it."""

import sys
import time
from pathlib import Path

STARTED = time.monotonic()
# Of the directory that this runner belongs to.
NAME = Path(sys.argv[0]).resolve().parent.name


class Failure(Exception):
    """Something that a user can act on; shown without a trace."""


def say(text):
    print(f"{NAME} {time.monotonic() - STARTED:5.0f} s: {text}", file=sys.stderr, flush=True)
