"""Builds the clients, or fetches what they need, once."""

import hashlib
import sys
from pathlib import Path

from build import ARCHITECTURE, run

HERE = Path(__file__).resolve().parent
GRPCIO = ["grpcio==1.85.3", "hpack==4.2.0", "typing_extensions==4.16.0"]
NEEDS = {"java": "default-jdk-headless", "mvn": "maven", "/usr/lib/python3/dist-packages/pip": "python3-pip"}
# Bytecode of a cached program would be written into the cache.
PYTHON = ["env", "PYTHONDONTWRITEBYTECODE=1"]


def digest(*names):
    return [hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in names]


def build_go(builder):
    def build(out):
        builder.go_run(["build", "-trimpath", "-ldflags=-s -w", "-o", f"{out}/client", "."], HERE / "go", "the client with grpc-go")

    return builder.cached("client-go", [*digest("go/main.go", "go/go.mod", "go/go.sum"), ARCHITECTURE], build) / "client"


def fetch_java(builder):
    """The archives of grpc-java; the client itself is compiled when it is started."""
    def build(out):
        args = ["mvn", "--batch-mode", "--quiet", "--file", HERE / "java/pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={out}"]
        run(args, 900, "fetching grpc-java")

    return builder.cached("client-java", digest("java/pom.xml"), build)


def fetch_python(builder):
    def build(out):
        run(["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", out, *GRPCIO], 900, "fetching grpcio")

    return builder.cached("client-python", [GRPCIO, ARCHITECTURE, sys.version_info[:2]], build)


def clients(builder):
    """Each client's name and how it is started; socket and calls follow."""
    go = str(build_go(builder))
    java = ["java", "-cp", f"{fetch_java(builder)}/*", str(HERE / "java/Client.java")]
    python = [*PYTHON, f"PYTHONPATH={fetch_python(builder)}", "/usr/bin/python3"]
    return [
        {"name": "grpc-go", "args": [go, "localhost"]},
        {"name": "grpc-go, its own dialer", "args": [go, "path"]},
        {"name": "grpcio (C core)", "args": [*python, str(HERE / "python/client.py")]},
        {"name": "grpc-java, address", "args": [*java, "address"]},
        {"name": "grpc-java, target", "args": [*java, "target"]},
    ], [*python, str(HERE / "python/authority.py")]
