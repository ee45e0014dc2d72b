"""A registry that can only be pulled from: the images of `images.py` over HTTP, as the distribution API has it."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import images

ADDRESS = ("127.0.0.1", 5000)
WANTED = re.compile(r"/v2/(?P<repository>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/?]+)")


def handler(store):
    names = images.names(store)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.answer(with_body=True)

        def do_HEAD(self):
            self.answer(with_body=False)

        def answer(self, with_body):
            content, media = self.find()
            self.send_response(200 if content is not None else 404)
            content = content if content is not None else b'{"errors": [{"code": "NOT_FOUND"}]}'
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(content).hexdigest())
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def find(self):
            """Content and media type of what the path names, or no content."""
            if self.path in ("/v2", "/v2/"):
                return b"{}", "application/json"
            wanted = WANTED.match(self.path)
            if not wanted:
                return None, "application/json"
            reference = wanted["reference"]
            digest = names.get(f"{wanted['repository']}:{reference}", reference)
            path = store / digest
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest) or not path.is_file():
                return None, "application/json"
            content = path.read_bytes()
            is_manifest = wanted["kind"] == "manifests"
            return content, json.loads(content)["mediaType"] if is_manifest else "application/octet-stream"

        def log_message(self, *_):
            pass

    return Handler


def start(store):
    server = ThreadingHTTPServer(ADDRESS, handler(store))
    threading.Thread(target=server.serve_forever, daemon=True).start()
