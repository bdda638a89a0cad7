#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""image_raw.py IMAGE-DIRECTORY OUT: the disk of an image of the store as a raw sparse file, by its manifest and the layers' formats
alone. Prints the layers' kinds, lowest first: raw, lsmt, zstd or lz4."""
import hashlib
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
import overlaybd_decode as overlaybd  # noqa: E402


def is_there(out, offset, n):
    """Whether anything but zeros is: a file that gets none where none is stays sparse."""
    return os.pread(out, n, offset).strip(b"\0") != b""


def lay(file, out):
    """A sealed layer onto the raw file."""
    source, _ = overlaybd.open_file(file)
    kind = "lsmt"
    if source.read(0, len(overlaybd.ZFILE_MAGIC)) == overlaybd.ZFILE_MAGIC:
        source = overlaybd.ZFile(source)
        kind = {overlaybd.LZ4: "lz4", overlaybd.ZSTD: "zstd"}[source.algo]
    for offset, data in overlaybd.Lsmt(source).runs():
        if data.strip(b"\0") != b"" or is_there(out, offset, len(data)):
            os.pwrite(out, data, offset)
    return kind


def main():
    directory, path = sys.argv[1:]
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    kinds = []
    for layer in manifest["layers"]:
        with open(os.path.join(directory, layer["file"]), "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
            assert digest == layer["sha256"], f"{layer['file']}: SHA-256 is {digest}"
            f.seek(0)
            if layer["kind"] == "raw":
                os.pwrite(out, f.read(), 0)
                kinds.append("raw")
            else:
                kinds.append(lay(f, out))
    os.ftruncate(out, manifest["size"])
    print(*kinds)


main()
