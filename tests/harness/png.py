# SPDX-License-Identifier: Apache-2.0
"""PNGs as `coffer screen shot` writes them, read by a few lines of our own."""
import struct
import zlib


class BadPng(Exception):
    pass


def check(condition, text):
    if not condition:
        raise BadPng(text)


def read(data):
    """Width, height and RGB bytes of a PNG of 8 bits without alpha."""
    check(data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG")
    at, packed = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        check(struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body), "a PNG with a wrong checksum")
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            check((depth, colour) == (8, 2), "a PNG that is not RGB of 8 bits")
        packed += body if kind == b"IDAT" else b""
        at += 12 + n
    raw, out, before = zlib.decompress(packed), bytearray(), bytearray(width * 3)
    for y in range(height):
        kind = raw[y * (width * 3 + 1)]
        line = bytearray(raw[y * (width * 3 + 1) + 1:(y + 1) * (width * 3 + 1)])
        for i in range(len(line)):
            left = line[i - 3] if i >= 3 else 0
            line[i] = (line[i] + {0: 0, 1: left, 2: before[i], 3: (left + before[i]) // 2}[kind]) & 255
        out += line
        before = line
    return width, height, bytes(out)
