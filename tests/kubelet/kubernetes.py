"""Which releases of kubelet, kube-apiserver and etcd are run, and how they are built."""

from dataclasses import dataclass

from build import FLAGS


@dataclass(frozen=True)
class Release:
    version: str
    worlds: tuple  # in which it is run
    has: frozenset  # which of these it has by default: in-place resize, pod-level resources, their resize


RESIZE, POD_LEVEL, POD_LEVEL_RESIZE = "resize", "pod level", "pod-level resize"
# The oldest that Bayplan works with, one in which pods are resized in place by default, and the newest. What kube-apiserver adds is the same in all.
RELEASES = {
    "1.31": Release("1.31.0", ("standalone",), frozenset()),
    "1.34": Release("1.34.4", ("standalone", "api"), frozenset([RESIZE, POD_LEVEL])),
    "1.37": Release("1.37.2", ("api",), frozenset([RESIZE, POD_LEVEL, POD_LEVEL_RESIZE])),
}
ETCD = "3.6.16"


def build_command(builder, series, command):
    """One command of Kubernetes. The libraries that its repository has as directories are released as modules, too, as 0.x."""
    version = RELEASES[series].version
    flags = [*FLAGS, f"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v{version}"]
    args = ["build", *flags, "-o", f"OUT/{command}", f"./cmd/{command}"]
    siblings = f"v0.{version.removeprefix('1.')}"
    return builder.module(f"{command}-{series}", f"k8s.io/kubernetes@v{version}", args, siblings=siblings) / command


def build_etcd(builder):
    args = ["build", *FLAGS, "-ldflags=-s -w", "-o", "OUT/etcd", "."]
    return builder.module("etcd", f"go.etcd.io/etcd/server/v3@v{ETCD}", args) / "etcd"
