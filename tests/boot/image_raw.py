#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""image_raw.py IMAGE-DIRECTORY OUT: the disk of an image of the store as a raw sparse file, by its manifest and the layers' format alone."""
import json
import os
import struct
import sys

SECTOR, BLOCK = 512, 4096


def lay(path, out):
    """A sealed LSMT layer onto the raw file."""
    with open(path, "rb") as f:
        f.seek(-BLOCK, os.SEEK_END)
        trailer = f.read(BLOCK)
        index, count = struct.unpack_from("<QQ", trailer, 32)
        f.seek(index)
        entries = list(struct.iter_unpack("<QQ", f.read(count * 16)))
        for low, high in entries:
            offset, length = low & (1 << 50) - 1, low >> 50
            if length == 0:
                continue
            if high >> 55 & 1:
                data = bytes(length * SECTOR)
                if os.pread(out, len(data), offset * SECTOR).strip(b"\0") == b"":
                    continue  # so that the file stays sparse
            else:
                f.seek((high & (1 << 55) - 1) * SECTOR)
                data = f.read(length * SECTOR)
                assert len(data) == length * SECTOR, f"{path}: data are outside"
            os.pwrite(out, data, offset * SECTOR)


def main():
    directory, path = sys.argv[1:]
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    for layer in manifest["layers"]:
        file = os.path.join(directory, layer["file"])
        if layer["kind"] == "raw":
            with open(file, "rb") as f:
                os.pwrite(out, f.read(), 0)
        else:
            lay(file, out)
    os.ftruncate(out, manifest["size"])


main()
