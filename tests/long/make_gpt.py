#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_gpt.py FS OUT KIND...: a disk with a GPT (UEFI 2.10, 5.3) and a partition for each KIND: efi, linux, root (for x86-64), outside
(a root behind the disk's end). The last one holds FS, the others zeros. With OUT ending in -many the table says a billion entries."""
import struct
import sys
import uuid
import zlib

TYPES = {"efi": "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "linux": "0fc63daf-8483-4772-8e79-3d69d8477de4",
         "root": "4f68bce3-e8cd-4db1-96e7-fbcaf984b709"}
SECTOR, ENTRIES, FIRST, SMALL = 512, 128, 2048, 2048

fs_name, out, *kinds = sys.argv[1:]
with open(fs_name, "rb") as f:
    fs = f.read()
table, data, at = b"", b"", FIRST
for i, kind in enumerate(kinds):
    content = fs if i == len(kinds) - 1 else bytes(SMALL * SECTOR)
    first = at if kind != "outside" else 1 << 30
    last = first + len(content) // SECTOR - 1
    guid = uuid.UUID(TYPES["root" if kind == "outside" else kind]).bytes_le
    table += struct.pack("<16s16sQQQ72s", guid, uuid.uuid4().bytes_le, first, last, 0, kind.encode("utf-16le"))
    data += content
    at += len(content) // SECTOR
table = table.ljust(ENTRIES * 128, b"\0")
total = at + 33


def header(here, other, entries):
    n = 10**9 if out.endswith("-many") else ENTRIES
    h = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, here, other, FIRST, at - 1, uuid.uuid4().bytes_le, entries, n,
                    128, zlib.crc32(table))
    return (h[:16] + struct.pack("<I", zlib.crc32(h)) + h[20:]).ljust(SECTOR, b"\0")


mbr = bytes(446) + struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xee, b"\xff" * 3, 1, total - 1) + bytes(48) + b"\x55\xaa"
with open(out, "wb") as f:
    f.write((mbr + header(1, total - 1, 2) + table).ljust(FIRST * SECTOR, b"\0") + data + table + header(total - 1, 1, total - 33))
