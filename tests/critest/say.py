"""What the runner tells a person: progress on standard error, and the one error that ends it."""

import sys
import time

STARTED = time.monotonic()


class Failure(Exception):
    """Something that the person who runs this can act on; shown without a trace."""


def say(text):
    print(f"critest {time.monotonic() - STARTED:5.0f} s: {text}", file=sys.stderr, flush=True)
