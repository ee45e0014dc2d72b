"""Builds critest, with the change that it needs here."""

import images
from build import FLAGS

CRITEST = "1.37.0"


def build_critest(builder, store):
    digest = images.names(store)[f"{images.BY_DIGEST}:latest"]
    # A spec pulls an image by its digest, a constant; ours has another one.
    patches = [("pkg/validate/consts.go", "(test-image-digest@)sha256:[0-9a-f]{64}", rf"\g<1>{digest}")]
    args = ["test", "-c", *FLAGS, "-ldflags=-s -w", "-o", "OUT/critest", "./cmd/critest"]
    return builder.module("critest", f"sigs.k8s.io/cri-tools@v{CRITEST}", args, (), patches) / "critest"
