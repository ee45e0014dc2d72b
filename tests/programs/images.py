"""Makes the images that critest pulls, without a registry and without a container tool.

In: a static busybox and the stand-in of `programs/`. Out: a directory with the blobs and an index from `repository:tag` and
`repository@digest` to the manifest's digest, which `registry.py` serves. Layers are neither compressed nor dated, so the same programs
give the same digests.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

E2E = "e2e-test-images"
STAGING = "k8s-staging-cri-tools"
# The image that a spec pulls by its digest; it holds one text, so that its digest depends on nothing but this file.
BY_DIGEST = f"{STAGING}/test-image-digest"

USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
GROUPS = "root:x:0:\nnogroup:x:65534:\n"
# The names and numbers are those of critest's own images.
MORE_USERS = USERS + "www-data:x:33:33:www-data:/var/www:/bin/sh\ndefault-user:x:1000:1000::/home:/bin/sh\n"
MORE_GROUPS = GROUPS + "www-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"

# Debian's static busybox lacks these two.
IPCS = "#!/bin/sh\ncat /proc/sysvipc/shm\n"
PGREP = """#!/bin/sh
found=1
for dir in /proc/[0-9]*; do
    [ "$(cat $dir/comm 2>/dev/null)" = "$1" ] && echo ${dir#/proc/} && found=0
done
exit $found
"""


class Layer:
    """A tar file in memory, with entries that belong to root and have no date."""

    def __init__(self):
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w", format=tarfile.PAX_FORMAT)

    def dir(self, path, mode=0o755):
        self._add(path, tarfile.DIRTYPE, mode)
        return self

    def file(self, path, content, mode=0o644):
        content = content.encode() if isinstance(content, str) else content
        self._add(path, tarfile.REGTYPE, mode, content=content)
        return self

    def link(self, path, target):
        self._add(path, tarfile.LNKTYPE, 0o755, target=target)
        return self

    def _add(self, path, kind, mode, content=b"", target=""):
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), target
        self.tar.addfile(entry, io.BytesIO(content))

    def bytes(self):
        self.tar.close()
        return self.buffer.getvalue()


def shell(busybox, users=USERS, groups=GROUPS):
    """A root with busybox under all its names."""
    layer = Layer()
    for path in "bin dev etc home proc root run sys usr usr/bin usr/sbin var var/log var/run var/www".split():
        layer.dir(path)
    layer.dir("tmp", 0o1777)
    layer.file("bin/busybox", busybox.read_bytes(), 0o755)
    names = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True, timeout=30)
    for name in names.stdout.split():
        # Links in the file system, not symbolic ones: a spec masks /bin/ls and nothing else.
        if name != "busybox":
            layer.link(f"bin/{name}", "bin/busybox")
    layer.file("bin/ipcs", IPCS, 0o755).file("bin/pgrep", PGREP, 0o755)
    return layer.file("etc/passwd", users).file("etc/group", groups)


def small(name, program, mode=0o755):
    return Layer().file(name, program.read_bytes(), mode)


class Store:
    """Blobs by digest and manifests by name."""

    def __init__(self, path):
        self.path, self.names = path, {}
        path.mkdir(parents=True)

    def blob(self, content):
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        (self.path / digest).write_bytes(content)
        return digest, len(content)

    def image(self, names, layer, architecture, **config):
        content = layer if isinstance(layer, bytes) else layer.bytes()
        digest, size = self.blob(content)
        config.setdefault("Env", ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
        form = {
            "architecture": architecture,
            "os": "linux",
            "config": config,
            # The layer is not compressed, so it is its own difference.
            "rootfs": {"type": "layers", "diff_ids": [digest]},
            "history": [{"created_by": "tests/critest"}],
        }
        config_digest, config_size = self.blob(json.dumps(form, sort_keys=True).encode())
        media = "application/vnd.oci.image"
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{media}.manifest.v1+json",
            "config": {"mediaType": f"{media}.config.v1+json", "digest": config_digest, "size": config_size},
            "layers": [{"mediaType": f"{media}.layer.v1.tar", "digest": digest, "size": size}],
        }
        digest, _ = self.blob(json.dumps(manifest, sort_keys=True).encode())
        for name in names:
            self.names[name] = digest
        return digest


def build(path, busybox, stand_in, architecture):
    """Writes all images; the last file is the index, so a store that has one is whole."""
    store = Store(path)

    def image(names, layer, **config):
        return store.image(names, layer, architecture, **config)

    plain = shell(busybox).bytes()
    users = shell(busybox, MORE_USERS, MORE_GROUPS).bytes()
    image([f"{E2E}/busybox:1.29-2"], plain, Cmd=["sh"])
    image(["pause:3.9"], small("pause", stand_in), Entrypoint=["/pause"])
    image(["pause:3.10"], small("pause", stand_in), Entrypoint=["/pause"], Labels={"version": "3.10"})
    image([f"{E2E}/nonewprivs:1.3"], small("nonewprivs", stand_in, 0o4755), Entrypoint=["/nonewprivs"])
    web = shell(busybox).file("usr/sbin/nginx", stand_in.read_bytes(), 0o755)
    web = web.link("usr/sbin/httpd-foreground", "usr/sbin/nginx").bytes()
    image([f"{E2E}/nginx:1.14-2"], web, Cmd=["/usr/sbin/nginx"], ExposedPorts={"80/tcp": {}})
    image([f"{E2E}/httpd:2.4.39-4"], web, Cmd=["/usr/sbin/httpd-foreground"], ExposedPorts={"80/tcp": {}})
    image([f"{STAGING}/hostnet-nginx-{architecture}:latest"], web, Cmd=["/usr/sbin/nginx"],
          Env=["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PORT=12003"])
    for name, user in [("uid", "1002"), ("username", "www-data"), ("uid-group", "1003:1004"),
                       ("username-group", "www-data:1004")]:
        image([f"{STAGING}/test-image-user-{name}:latest"], users, Cmd=["sh"], User=user)
    image([f"{STAGING}/test-image-predefined-group:latest"], users, Cmd=["sh"], User="1000")

    def text(name):
        return Layer().file("test", name + "\n")

    image([f"{STAGING}/test-image-latest:latest"], text("latest"))
    for name in "123":
        image([f"{STAGING}/test-image-{name}:latest"], text(name))
    # Containers are made of this one, and it is mounted into others as a volume.
    for name in ["test", "all"]:
        image([f"{STAGING}/test-image-tag:{name}"], shell(busybox).file("test", name + "\n"), Cmd=["sh"])
    image([f"{STAGING}/test-image-tags:{name}" for name in "123"], text("tags"))
    image([f"{BY_DIGEST}:latest"], text("digest"))
    (path / "index.json").write_text(json.dumps(store.names, indent=1, sort_keys=True) + "\n")


def names(path):
    return json.loads((Path(path) / "index.json").read_text())
