#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write layers of a container image that have everything a layer can have: import_layers.py DIR -> DIR/layer1.tar ..."""
import io
import os
import subprocess
import sys
import tarfile

CAP = bytes.fromhex("0100000200040000000000000000000000000000")  # security.capability, revision 2: cap_net_raw+ep (of 20 bytes)


class Layer:
    def __init__(self, path, form=tarfile.PAX_FORMAT):
        self.tar = tarfile.open(path, "w", format=form)

    def add(self, name, kind=tarfile.REGTYPE, data=b"", mode=0o644, uid=0, gid=0, mtime=1600000000, link="", dev=(0, 0), xattrs=None):
        t = tarfile.TarInfo(name)
        t.type, t.mode, t.uid, t.gid, t.mtime, t.linkname = kind, mode, uid, gid, mtime, link
        t.devmajor, t.devminor, t.size = dev[0], dev[1], len(data)
        for key, value in (xattrs or {}).items():
            t.pax_headers["SCHILY.xattr." + key] = value.decode("utf-8", "surrogateescape")
        self.tar.addfile(t, io.BytesIO(data))

    def dir(self, name, **more):
        self.add(name, tarfile.DIRTYPE, **{"mode": 0o755, **more})

    def close(self):
        self.tar.close()


def base(path):
    layer = Layer(path)
    for d in ("./", "a", "a/b", "dev", "many", "opaque", "opaque/sub", "todir", "tofile", "tofile/deep", "keep", "usr", "usr/lib", "gone-dir",
              "gone-dir/x"):
        layer.dir(d, mtime=1500000000.25)
    layer.add("a/file", data=b"one\n" * 5000, mode=0o6755, uid=1000, gid=1001, mtime=1600000000.123456789)
    layer.add("a/link1", tarfile.LNKTYPE, link="a/file")
    layer.add("a/b/link2", tarfile.LNKTYPE, link="./a/file")
    layer.add("a/sym", tarfile.SYMTYPE, link="../../outside/../b", mode=0o777)
    layer.add("a/longsym", tarfile.SYMTYPE, link="x/" * 300 + "end", mode=0o777)
    layer.add("dev/null", tarfile.CHRTYPE, dev=(1, 3), mode=0o666)
    layer.add("dev/big", tarfile.BLKTYPE, dev=(259, 70000), mode=0o660, gid=6)
    layer.add("dev/fifo", tarfile.FIFOTYPE, mode=0o622)
    layer.add("a/ids", data=b"ids", uid=3000000000, gid=4000000000)
    layer.add("a/ids65536", data=b"ids", uid=65536, gid=70000)
    layer.add("a/xattr", data=b"x", xattrs={"user.one": b"1", "user.two": b"\xc3\xa9 = \n 2", "security.capability": CAP})
    layer.add("a/" + "n" * 255, data=b"name of 255")
    for n in range(1, 20):
        layer.dir("many/" + "/".join(["d" * 100] * n))
    layer.add("many/" + "/".join(["d" * 100] * 20), data=b"path of 2000")
    layer.add("a/e\u0301", data=b"NFD")
    layer.add("a/\u00e9", data=b"NFC")
    layer.add("a/empty")
    layer.add("a/dup", data=b"first", mode=0o600)
    layer.add("a/dup", data=b"second, longer", mode=0o640, mtime=1600000001.5)
    layer.add("a/before-1970", data=b"old", mtime=-86400)
    layer.add("a/after-2038", data=b"new", mtime=5000000000)
    layer.add("a/zeros", data=bytes(300000))
    layer.add("a/mixed", data=bytes(10000) + b"x" * 5000 + bytes(70001) + b"y")
    for i in range(30):
        layer.add(f"many/f{i}", data=b"%d" % i)
    for f in ("opaque/old", "opaque/sub/old", "gone", "gone-dir/x/y", "tofile/deep/er", "keep/me", "keep/not-me", "usr/lib/libx"):
        layer.add(f, data=f.encode())
    layer.add("todir", data=b"a file")
    layer.add("lib", tarfile.SYMTYPE, link="usr/lib", mode=0o777)
    layer.add("abs", tarfile.SYMTYPE, link="/usr", mode=0o777)
    layer.add("linked-lower", data=b"lower", mode=0o604)
    layer.add("linked-twice", tarfile.LNKTYPE, link="linked-lower")
    layer.close()


def gnu(path):
    """The same things in GNU's own ways: long names, base-256 numbers."""
    layer = Layer(path, tarfile.GNU_FORMAT)
    layer.dir("gnu")
    layer.add("gnu/" + "g" * 200, data=b"long")
    for n in range(1, 6):
        layer.dir("gnu/" + "/".join(["s" * 90] * n))
    layer.add("gnu/" + "/".join(["s" * 90] * 6), data=b"longer")
    layer.add("gnu/sym", tarfile.SYMTYPE, link="t" * 300, mode=0o777)
    layer.dir("gnu")
    layer.add("gnu/ids", data=b"ids", uid=3000000000, gid=2147483648)
    layer.close()


def changes(path):
    layer = Layer(path)
    # A file under an opaque directory, before and after the word that it is one.
    layer.dir("opaque", mtime=1700000000.5)
    layer.add("opaque/new-before", data=b"before")
    layer.add("opaque/.wh..wh..opq")
    layer.add("opaque/new-after", data=b"after")
    layer.dir("./", mtime=1700000001)
    layer.add(".wh.gone")
    layer.add(".wh.gone-dir")
    layer.add(".wh.never-there")
    layer.dir("keep", mtime=1700000002)
    layer.add("keep/.wh.not-me")
    layer.dir("todir", mtime=1700000003, mode=0o700)
    layer.add("todir/in", data=b"in")
    layer.add("tofile", data=b"was a directory", mtime=1700000004)
    # Links to what a lower layer has, one of which is replaced afterwards.
    layer.add("link-up", tarfile.LNKTYPE, link="linked-lower")
    layer.add("linked-twice", data=b"of its own now")
    # Through symbolic links.
    layer.add("lib/liby", data=b"through a link")
    layer.add("abs/libz", data=b"through an absolute link")
    # Directories that come again keep what they have.
    layer.dir("many", mode=0o711, uid=5, gid=6, mtime=1700000005.75)
    layer.dir("a/b", mtime=1700000006)
    layer.add("a/b/dup", tarfile.SYMTYPE, link="first", mode=0o777)
    layer.add("a/b/dup", data=b"now a file")
    # A whiteout after what it must not remove.
    layer.dir("a", mtime=1700000007)
    layer.add("a/dup", data=b"third")
    layer.add("a/.wh.dup")
    layer.close()


def sparse(path, version):
    """A sparse file as GNU tar writes it; `version` as --sparse-version has it, or "gnu"."""
    at = path + ".dir"
    os.makedirs(at + "/sparse")
    with open(f"{at}/sparse/{version}", "wb") as f:
        for i in range(40):
            f.seek(i * 100000)
            f.write(b"%d" % i * 3000)
        f.truncate(9000000)
    form = ["--format=gnu"] if version == "gnu" else ["--format=posix", f"--sparse-version={version}"]
    subprocess.run(["tar", "-C", at, "--sparse", *form, "--mtime=@1600000000.5", "--owner=7", "--group=8", "-cf", path,
                    "--no-recursion", "sparse", f"sparse/{version}"],
                   check=True)


def main(out):
    base(f"{out}/layer1.tar")
    gnu(f"{out}/layer2.tar")
    for i, version in enumerate(("0.0", "0.1", "1.0")):
        sparse(f"{out}/layer{3 + i}.tar", version)
    changes(f"{out}/layer6.tar")
    sparse(f"{out}/gnu-sparse.tar", "gnu")  # umoci does not know it


main(sys.argv[1])
