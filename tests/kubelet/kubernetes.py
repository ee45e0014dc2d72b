"""Which releases of kubelet, kube-apiserver, etcd and Helm are run, and how they are built."""

from dataclasses import dataclass

from build import FLAGS


@dataclass(frozen=True)
class Release:
    version: str
    worlds: tuple  # in which it is run
    has: frozenset  # which of these it has by default: in-place resize, pod-level resources, their resize, kubelet's PodsAPI; or that it lacks the last


RESIZE, POD_LEVEL, POD_LEVEL_RESIZE, PODS_API, NO_PODS_API = "resize", "pod level", "pod-level resize", "PodsAPI", "no PodsAPI"
# The oldest that Bayplan works with, one in which pods are resized in place by default, and the newest. What kube-apiserver adds is the same in all.
RELEASES = {
    "1.31": Release("1.31.0", ("standalone",), frozenset([NO_PODS_API])),
    "1.34": Release("1.34.4", ("standalone", "api"), frozenset([RESIZE, POD_LEVEL, NO_PODS_API])),
    "1.37": Release("1.37.2", ("api",), frozenset([RESIZE, POD_LEVEL, POD_LEVEL_RESIZE, PODS_API])),
}
ETCD = "3.6.16"
# For the chart, in ../cluster.
HELM = "3.22.0"


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


def build_helm(builder):
    flags = [*FLAGS, "-p=2", f"-ldflags=-s -w -X helm.sh/helm/v3/internal/version.version=v{HELM}"]
    return builder.module("helm", f"helm.sh/helm/v3@v{HELM}", ["build", *flags, "-o", "OUT/helm", "./cmd/helm"]) / "helm"
