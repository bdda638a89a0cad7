#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write images that want something else than to be imported: import_hostile.py DIR -> DIR/NAME/{it,says}.

`it` is to be imported, and `says` is what the error has to say."""
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def tar(*members):
    """Members are (name, type, linkname, data)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as t:
        for name, kind, link, data in members:
            i = tarfile.TarInfo(name)
            i.type, i.linkname, i.size = kind, link, len(data)
            t.addfile(i, io.BytesIO(data))
    return out.getvalue()


def file(name, data=b"x"):
    return (name, tarfile.REGTYPE, "", data)


def special(name, kind, link=""):
    return (name, kind, link, b"")


class Layout:
    def __init__(self, path):
        self.path = path
        os.makedirs(path + "/blobs/sha256")

    def blob(self, data):
        digest = hashlib.sha256(data).hexdigest()
        with open(f"{self.path}/blobs/sha256/{digest}", "wb") as f:
            f.write(data)
        return {"digest": "sha256:" + digest, "size": len(data)}

    def document(self, value, kind):
        return {"mediaType": kind, **self.blob(json.dumps(value).encode())}

    def image(self, layers, diff_ids=None, arch="amd64", layer_type=LAYER):
        """layers: (bytes of the blob, bytes without compression)."""
        ids = diff_ids or ["sha256:" + hashlib.sha256(plain).hexdigest() for _, plain in layers]
        config = self.document({"os": "linux", "architecture": arch, "rootfs": {"type": "layers", "diff_ids": ids}},
                               "application/vnd.oci.image.config.v1+json")
        return {"schemaVersion": 2, "config": config, "layers": [{"mediaType": layer_type, **self.blob(b)} for b, _ in layers]}

    def finish(self, descriptor):
        with open(self.path + "/index.json", "w") as f:
            json.dump({"schemaVersion": 2, "manifests": [descriptor]}, f)
        with open(self.path + "/oci-layout", "w") as f:
            f.write('{"imageLayoutVersion":"1.0.0"}')


def plain(*layers):
    return [(layer, layer) for layer in layers]


CASES = {}


def case(says):
    def register(f):
        CASES[f.__name__] = (says, f)
        return f
    return register


def archive(name, says, data):
    def write(at):
        with open(at, "wb") as f:
            f.write(data)
    CASES[name] = (says, write)


def image(name, says, layers, **more):
    def write(at):
        layout = Layout(at)
        layout.finish(layout.document(layout.image(layers, **more), MANIFEST))
    CASES[name] = (says, write)


GOOD = tar(file("a"), file("b", b"y" * 5000))

archive("leads_up", "leads out of the archive", tar(file("../../etc/x")))
archive("leads_up_inside", "leads out of the archive", tar(file("a/../../x")))
archive("link_leads_up", "leads out of the archive", tar(file("a"), special("b", tarfile.LNKTYPE, "../a")))
archive("link_to_nothing", "has not come before it", tar(special("a", tarfile.LNKTYPE, "/etc/passwd")))
archive("link_to_directory", "hard link to the directory", tar(special("d", tarfile.DIRTYPE), special("a", tarfile.LNKTYPE, "d")))
archive("links_in_a_circle", "symbolic links", tar(special("a", tarfile.SYMTYPE, "b"), special("b", tarfile.SYMTYPE, "a"), file("a/x")))
archive("through_a_file", "no directory", tar(file("a"), file("a/b")))
archive("name_too_long", "name of 300 bytes", tar(file("n" * 300)))
archive("path_too_long", "than 4095 bytes", tar(file("d/" * 3000 + "x")))
archive("cut_off", "runcated", tar(file("a", b"z" * 100000))[:50000])
archive("cut_off_gzip", "the compression", gzip.compress(os.urandom(200000))[:100000])
archive("gzip_of_nothing_known", "no tar", gzip.compress(b"hello " * 1000))
archive("damaged_gzip", "the gzip is damaged", gzip.compress(GOOD)[:-8] + b"12345678")
archive("gzip_and_more", "no gzip follows", gzip.compress(GOOD) + b"more")
archive("bomb", "give a larger --size", gzip.compress(tar(file("zeros", bytes(300 << 20))), 1))
archive("too_many_bytes", "are too small", tar(file("much", os.urandom(20 << 20))))
archive("lost_and_found", "has to be a directory", tar(file("lost+found")))
archive("empty_tar", "is empty", gzip.compress(bytes(10240)))
image("whiteout_of_parent", "is a whiteout of '..'", plain(tar(file("d/.wh..."))))
image("whiteout_of_itself", "is a whiteout of '.'", plain(tar(file("d/.wh.."))))
image("whiteout_of_nothing", "is a whiteout of ''", plain(tar(file("d/.wh."))))
image("diff_id", "its content has the digest", plain(GOOD), diff_ids=["sha256:" + "0" * 64])
image("diff_ids_missing", "2 diff_ids for 1 layers", plain(GOOD), diff_ids=["sha256:" + "0" * 64] * 2)
image("other_machine", "linux/arm64", plain(GOOD), arch="arm64")
image("encrypted", "no layer of a file system", plain(GOOD), layer_type="application/vnd.oci.image.layer.v1.tar+encrypted")
image("second_layer_cut_off", "layer 2: ", [(GOOD, GOOD), (gzip.compress(GOOD)[:60], GOOD)])


@case("has the digest")
def wrong_digest(at):
    layout = Layout(at)
    manifest = layout.image(plain(GOOD))
    with open(f"{at}/blobs/sha256/{manifest['layers'][0]['digest'][7:]}", "r+b") as f:
        f.seek(600)
        f.write(b"!")
    layout.finish(layout.document(manifest, MANIFEST))


@case("bytes, not")
def size_lies(at):
    layout = Layout(at)
    manifest = layout.image(plain(GOOD))
    manifest["layers"][0]["size"] += 1
    layout.finish(layout.document(manifest, MANIFEST))


@case("open 'blobs/sha256/")
def blob_missing(at):
    layout = Layout(at)
    manifest = layout.image(plain(GOOD))
    os.unlink(f"{at}/blobs/sha256/{manifest['layers'][0]['digest'][7:]}")
    layout.finish(layout.document(manifest, MANIFEST))


@case("open 'blobs/sha256/")
def blob_is_a_link_outside(at):
    layout = Layout(at)
    manifest = layout.image(plain(GOOD))
    blob = f"{at}/blobs/sha256/{manifest['layers'][0]['digest'][7:]}"
    os.rename(blob, at + ".outside")
    os.symlink(os.path.abspath(at + ".outside"), blob)
    layout.finish(layout.document(manifest, MANIFEST))


@case("lie in one another")
def index_in_index(at):
    layout = Layout(at)
    inner = layout.document(layout.image(plain(GOOD)), MANIFEST)
    for _ in range(8):
        inner = layout.document({"schemaVersion": 2, "manifests": [inner]}, INDEX)
    layout.finish(inner)


@case("sha256 and 64 digits")
def digest_is_a_path(at):
    layout = Layout(at)
    layout.finish({"mediaType": MANIFEST, "digest": "sha256:../../../../etc/passwd", "size": 1})


@case("index: ")
def index_is_no_json(at):
    layout = Layout(at)
    layout.finish({})
    with open(at + "/index.json", "w") as f:
        f.write("{")


@case("no path in the archive")
def saved_path_leads_up(at):
    with tarfile.open(at, "w") as t:
        data = json.dumps([{"Config": "../../etc/passwd", "Layers": ["a"]}]).encode()
        i = tarfile.TarInfo("manifest.json")
        i.size = len(data)
        t.addfile(i, io.BytesIO(data))


def main(out):
    for name, (says, write) in CASES.items():
        os.makedirs(f"{out}/{name}")
        write(f"{out}/{name}/it")
        with open(f"{out}/{name}/says", "w") as f:
            f.write(says)


main(sys.argv[1])
