"""A relay in front of a Unix socket. It passes on what either side says: at once, later, or not before it is told to."""

import socket
import threading
import time
from pathlib import Path

CHUNK = 1 << 16


class Relay:
    """Listens at `path` for as long as the process lives, and makes a connection to `target` for each that comes."""

    def __init__(self, path, target):
        self.path, self.target = path, target
        # Seconds by which each part of an answer comes later.
        self.delay = 0
        self._flows = threading.Event()
        self._flows.set()
        Path(path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(16)
        start(self._accept)

    def stick(self):
        """Connections stay and are taken, and nothing is said on them any more."""
        self._flows.clear()

    def flow(self):
        """What was held back is said, and what comes from now on."""
        self._flows.set()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target)
            except OSError:
                client.close()
                server.close()
                continue
            start(self._pass, client, server, False)
            start(self._pass, server, client, True)

    def _pass(self, source, sink, is_answer):
        try:
            while chunk := source.recv(CHUNK):
                self._flows.wait()
                if is_answer:
                    time.sleep(self.delay)
                sink.sendall(chunk)
        except OSError:
            # One of the two is gone, so both go.
            pass
        for it in (source, sink):
            try:
                it.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def start(run, *args):
    threading.Thread(target=run, args=args, daemon=True).start()
