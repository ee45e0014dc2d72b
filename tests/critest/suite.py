"""Builds critest, with the changes that it needs here."""

import images
from build import FLAGS

CRITEST = "1.30.0"
# The release of Kubernetes with the libraries that take the place of those that critest names: its own are no released modules.
KUBERNETES = "30.14"
LIBRARIES = """api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap
code-generator component-base component-helpers controller-manager cri-api csi-translation-lib dynamic-resource-allocation
endpointslice kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils
pod-security-admission sample-apiserver""".split()


def build_critest(builder, store):
    digest = images.names(store)[f"{images.BY_DIGEST}:latest"]
    # The client of this release sends the socket's path as the authority, as kubelet did. It is in `../clients`.
    # Kubelet says `localhost` since Kubernetes 1.31, the oldest that Bayplan works with.
    client = [(f"k8s.io/kubernetes@v1.{KUBERNETES}", "pkg/kubelet/cri/remote", "pkg/remote")]
    dialer = (r"grpc\.WithContextDialer\(dialer\),", r'\g<0> grpc.WithAuthority("localhost"),')
    patches = [
        # A spec pulls an image by its digest, a constant; ours has another one.
        ("pkg/validate/consts.go", "(test-image-digest@)sha256:[0-9a-f]{64}", rf"\g<1>{digest}"),
        ("pkg/framework/util.go", "k8s.io/kubernetes/pkg/kubelet/cri/remote", "github.com/kubernetes-sigs/cri-tools/pkg/remote"),
        ("pkg/remote/remote_runtime.go", *dialer),
        ("pkg/remote/remote_image.go", *dialer),
    ]
    libraries = [f"-replace=k8s.io/{name}=k8s.io/{name}@v0.{KUBERNETES}" for name in LIBRARIES]
    edits = [*libraries, f"-replace=k8s.io/kubernetes=k8s.io/kubernetes@v1.{KUBERNETES}"]
    args = ["test", "-c", *FLAGS, "-ldflags=-s -w", "-o", "OUT/critest", "./cmd/critest"]
    return builder.module("critest", f"sigs.k8s.io/cri-tools@v{CRITEST}", args, edits, patches, client) / "critest"
