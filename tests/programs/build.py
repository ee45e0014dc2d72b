"""Builds what critest/ and kubelet/ run from Go modules as released, once, and keeps it in the cache.

A module is copied out of Go's module cache, which has checked it against the public checksum database, and built as its own main
module, so with the versions that its authors chose. The name of a cached directory is a digest of all that went into it.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

import images
from say import Failure, say

HERE = Path(__file__).resolve().parent
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())

# The oldest Go that builds all modules, and the one that is fetched where there is none.
GO = (1, 26, 6)
GO_FETCHED = "1.26.8"

CONTAINERDS = {"2": "2.4.2", "1.7": "1.7.35"}
RUNC = "1.5.2"
FLAGS = ["-mod=mod", "-trimpath"]

# What every runner or build needs, and the Debian package that has it.
NEEDS = {
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "ip": "iproute2",
    "iptables": "iptables",
    "setpriv": "util-linux",
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/include/seccomp.h": "libseccomp-dev",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "busybox": "busybox-static",
    "go": "golang-go",
}


def run(args, limit, what, **options):
    """Runs a command, and shows its output only when it fails."""
    try:
        done = subprocess.run([str(it) for it in args], capture_output=True, text=True, timeout=limit, **options)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{what}: `{args[0]}` did not end within {limit} s") from late
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise Failure(f"{what} failed: {' '.join(map(str, args))}\n{output}")
    return done.stdout


def has(need):
    if need.startswith("/"):
        return Path(need).exists()
    path = shutil.which(need)
    # Debian also has a busybox that is linked with libc, which an image without libraries cannot run.
    return path is not None and (need != "busybox" or is_static(path))


def is_static(program):
    return subprocess.run(["ldd", program], capture_output=True, timeout=30).returncode != 0


def install(more=()):
    """Installs what is missing of `NEEDS` and of `more`, which has the same form."""
    missing = sorted({package for need, package in {**NEEDS, **dict(more)}.items() if not has(need)})
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Failure(f"missing: {', '.join(missing)} (names of Debian); there is no apt-get, so install them yourself")
    say(f"installing Debian packages: {' '.join(missing)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "--quiet"], 300, "updating Debian's list of packages", env=quiet)
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    run(install, 900, "installing Debian packages", env=quiet)


def open_cache():
    """The cache, locked: two runs at a time would build and clean up under each other's hands."""
    base = os.environ.get("BAYPLAN_PROGRAMS_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayplan-programs"
    cache = Path(base).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    lock = (cache / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another run uses {cache}: waiting for its end")
        fcntl.flock(lock, fcntl.LOCK_EX)
    for left in cache.glob("round-*"):
        shutil.rmtree(left)
    return cache, lock


def build_bayplan():
    """As a user builds it; cargo knows where its target directory is."""
    workspace = HERE.parent.parent
    say("building bayplan")
    cargo = ["cargo", "build", "--locked", "--package", "bayplan-cli", "--bin", "bayplan", "--message-format", "json-render-diagnostics"]
    told = run(cargo, 1800, "building bayplan", cwd=workspace)
    built = [json.loads(line).get("executable") for line in told.splitlines()]
    return Path([it for it in built if it][-1])


class Builder:
    """Builds programs into the cache; what is there already is not built again."""

    def __init__(self, cache):
        self.cache, self._go = cache, None

    def cached(self, name, recipe, build):
        """The directory of `name`, which `build` fills if no run has before; older ones of this name are removed."""
        digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
        path = self.cache / f"{name}-{digest}"
        if path.is_dir():
            return path
        say(f"building {name}")
        started = time.monotonic()
        partial = self.cache / f"partial-{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        build(partial)
        for old in self.cache.glob(f"{name}-" + "[0-9a-f]" * 16):
            shutil.rmtree(old)
        partial.rename(path)
        say(f"built {name} in {time.monotonic() - started:.0f} s")
        return path

    def go(self):
        """The `go` command: the machine's where it is new enough, else one that the machine's fetches as a module."""
        if self._go is None:
            found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", run(["go", "version"], 60, "asking Go for its version"))
            version = tuple(int(it or 0) for it in found.groups())
            self._go = "go" if version >= GO else self.cached("go", [GO_FETCHED, ARCHITECTURE], self._fetch_go) / "bin/go"
        return self._go

    def _fetch_go(self, out):
        module = f"golang.org/toolchain@v0.0.1-go{GO_FETCHED}.linux-{ARCHITECTURE}"
        shutil.copytree(download("go", module, out), out, dirs_exist_ok=True)
        # A module's files are not executable.
        for program in [*(out / "bin").iterdir(), *(it for it in (out / "pkg/tool").rglob("*") if it.is_file())]:
            program.chmod(0o755)

    def module(self, name, module, args, edits=(), patches=(), copies=(), cgo="0", siblings=None):
        """Copies `module`, and into it packages of others: (module, package, where to); edits its go.mod, where modules of the same
        repository get the version `siblings`, unless they have one; replaces texts of its files: (file, pattern, text); and runs `go` with
        `args` in it."""
        def build(out):
            source = out / "source"
            shutil.copytree(download(self.go(), module, self.cache), source)
            run(["chmod", "-R", "u+w", source], 60, f"copying {module}")
            # Asking for the path again changes nothing; `go mod edit` refuses to have nothing to do.
            path = re.search(r"(?m)^module (\S+)", (source / "go.mod").read_text())[1]
            self.go_run(["mod", "edit", f"-module={path}", *released(source, siblings), *edits], source, module)
            for other, package, to in copies:
                shutil.copytree(Path(download(self.go(), other, self.cache)) / package, source / to, copy_function=shutil.copyfile)
            for file, pattern, text in patches:
                path = source / file
                changed, count = re.subn(pattern, text, path.read_text())
                if count == 0:
                    raise Failure(f"{file} of {module} has nothing like {pattern}")
                path.write_text(changed)
            self.go_run([it.replace("OUT", str(out)) for it in args], source, module, CGO_ENABLED=cgo)
            shutil.rmtree(source)

        return self.cached(name, [module, args, edits, patches, copies, cgo, ARCHITECTURE, *([siblings] if siblings else [])], build)

    def go_run(self, args, source, what, **env):
        env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", **env}
        return run([self.go(), *args], 3600, f"building {what}", cwd=source, env=env)

    def containerd(self, series):
        version = CONTAINERDS[series]
        path = "github.com/containerd/containerd" + ("/v2" if series == "2" else "")
        flags = [*FLAGS, "-tags=no_btrfs", f"-ldflags=-s -w -X {path}/version.Version={version}"]
        commands = ["./cmd/containerd", "./cmd/containerd-shim-runc-v2"]
        return self.module(f"containerd-{series}", f"{path}@v{version}", ["build", *flags, "-o", "OUT/", *commands])

    def runc(self):
        flags = [*FLAGS, "-tags=seccomp", f"-ldflags=-s -w -X main.version={RUNC}"]
        # What enters the namespaces is C.
        return self.module("runc", f"github.com/opencontainers/runc@v{RUNC}", ["build", *flags, "-o", "OUT/", "."], cgo="1")

    def stand_in(self):
        source = HERE / "stand-in"
        recipe = [(source / "main.go").read_text(), ARCHITECTURE]

        def build(out):
            self.go_run(["build", "-trimpath", "-ldflags=-s -w", "-o", f"{out}/stand-in", "."], source, "stand-in")

        return self.cached("stand-in", recipe, build) / "stand-in"

    def images(self):
        busybox, stand_in = Path(shutil.which("busybox")), self.stand_in()
        recipe = [hashlib.sha256(it.read_bytes()).hexdigest() for it in (busybox, stand_in, HERE / "images.py")]
        return self.cached("images", recipe, lambda out: images.build(out / "store", busybox, stand_in, ARCHITECTURE)) / "store"


def released(source, siblings):
    """Flags that undo replacements by a directory: modules that lie in the same repository are not part of this one."""
    replaced = re.findall(r"(?m)^\s*(?:replace )?(\S+) => \.\.?/", (source / "go.mod").read_text())
    return [f"-replace={it}={it}@{siblings}" if siblings else f"-dropreplace={it}" for it in replaced]


def download(go, module, anywhere):
    """Where Go's module cache has `module`."""
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    told = run([go, "mod", "download", "-json", module], 600, f"fetching {module}", cwd=anywhere, env=env)
    return json.loads(told)["Dir"]
