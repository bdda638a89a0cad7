#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An overlaybd layer decoder that shares nothing with Coffer's: written from the description of the format alone.

    overlaybd_decode.py FILE [--stream OUT] [--disk OUT]

FILE is a sealed LSMT layer, a ZFile with one in it, or a tar with either as its first entry. Only the standard library and the
zstd program are needed. Prints one line of JSON:
what it is, and SHA-256 of the layer's bytes (`stream`) and of the disk (`disk`; only what is mapped, see digest_disk).
--stream and --disk also write them, sparse. Ends with 1 and a reason when anything is not as it must be.
"""
import argparse
import hashlib
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile

SECTOR = 512
ZFILE_MAGIC = b"ZFile\0\1\0tuji.yyf@Alibaba"
ZFILE_HEAD = struct.Struct("<24sIIQQQQIIIBBBBIIB")
LSMT_MAGIC = b"LSMT\0\1\2\0" + bytes.fromhex("657e63d29444084ca2d2c8ec4fcfae8a")
LSMT_HEAD = struct.Struct("<24sIIQQQ37s37sHBB256s")
LSMT_SPACE = 4096
HEADER, DATA, SEALED, OVERWRITTEN, DIGEST, INDEX_COMPRESSED = (1 << i for i in range(6))
LZ4, ZSTD = 1, 2


def make_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = make_table()


def crc32c(data, crc=0):
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc


def need(condition, text):
    if not condition:
        sys.exit(f"overlaybd_decode: {text}")


def lz4_block(data, limit):
    """One LZ4 block: sequences of literals and a match, the last without a match."""
    out, at = bytearray(), 0

    def length(n):
        nonlocal at
        if n == 15:
            while data[at] == 255:
                n += 255
                at += 1
            n += data[at]
            at += 1
        return n

    while True:
        token = data[at]
        at += 1
        literals = length(token >> 4)
        need(at + literals <= len(data), "LZ4: literals run out of the block")
        out += data[at:at + literals]
        at += literals
        if at == len(data):
            return bytes(out)
        back = data[at] | data[at + 1] << 8
        at += 2
        match = length(token & 15) + 4
        need(0 < back <= len(out) and len(out) + match <= limit, "LZ4: a match outside the block")
        period = bytes(out[-back:])
        out += (period * (match // back + 1))[:match]


class Part:
    """A range of an open file, read like a file of its own."""

    def __init__(self, file, start, size):
        self.file, self.start, self.size = file, start, size

    def read(self, offset, n):
        need(offset >= 0 and n >= 0 and offset + n <= self.size, f"{n} bytes at {offset} are outside the {self.size}")
        data = os.pread(self.file.fileno(), n, self.start + offset)
        need(len(data) == n, f"the file ends early, at {self.start + offset + len(data)}")
        return data


def open_file(file):
    size = os.fstat(file.fileno()).st_size
    if size >= SECTOR and os.pread(file.fileno(), 5, 257) == b"ustar":
        with tarfile.open(fileobj=os.fdopen(os.dup(file.fileno()), "rb")) as tar:
            entry = tar.next()
            need(entry is not None and entry.isreg(), "the tar does not begin with a file")
            return Part(file, entry.offset_data, entry.size), True
    return Part(file, 0, size), False


class ZFile:
    """The content of a compressed file."""

    def __init__(self, part):
        self.part = part
        head = self.head(0, "header")
        need(head["flags"] & HEADER and head["flags"] & DATA, "ZFile header: not a data file's")
        if not head["flags"] & OVERWRITTEN:
            head = self.head(part.size - 512, "trailer")
            need(not head["flags"] & HEADER and head["flags"] & DATA and head["flags"] & SEALED, "ZFile trailer: flags")
        need(not head["flags"] & INDEX_COMPRESSED, "compressed index")
        need(head["algo"] in (LZ4, ZSTD), f"compression {head['algo']}")
        need(not head["use_dict"] and not head["dict_size"], "a dictionary")
        self.algo, self.verify = head["algo"], head["verify"]
        self.block_size, self.size = head["block_size"], head["size"]
        count = head["blocks"]
        need(count == -(-self.size // self.block_size), "ZFile: as many blocks as the content needs")
        raw = part.read(head["index_offset"], 4 * count)
        if head["flags"] & DIGEST:
            need(crc32c(raw) == head["index_crc"], "ZFile index: checksum")
        self.stored = struct.unpack(f"<{count}I", raw)
        self.start = [512]
        for n in self.stored:
            self.start.append(self.start[-1] + n)
        need(self.start[-1] <= head["index_offset"], "ZFile: blocks run into the index")
        self.kept = (None, b"")
        self.unpacked = self.unzstd() if self.algo == ZSTD else None

    def unzstd(self):
        """All frames together are a stream that the zstd program reads."""
        unpacked, frames = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        for i in range(len(self.stored)):
            frames.write(self.stored_block(i))
        frames.seek(0)
        subprocess.run(["zstd", "-dc"], stdin=frames, stdout=unpacked, check=True)
        need(os.fstat(unpacked.fileno()).st_size == self.size, "ZFile: the frames together have the content's size")
        return unpacked

    def head(self, offset, what):
        raw = self.part.read(offset, 512)
        f = ZFILE_HEAD.unpack_from(raw)
        need(f[0] == ZFILE_MAGIC and f[1] == 96, f"ZFile {what}: magic")
        names = ("digest", "flags", "index_offset", "blocks", "size", "index_crc", "reserved", "block_size", "algo",
                 "level", "use_dict", "pad", "reserved2", "dict_size", "verify")
        head = dict(zip(names, f[2:]))
        if head["flags"] >> 6:  # rubbish: an old writer, who knew the first three
            head["flags"] &= HEADER | DATA | SEALED
        if head["flags"] & DIGEST:
            need(crc32c(raw[:28] + bytes(4) + raw[32:]) == head["digest"], f"ZFile {what}: checksum")
        return head

    def stored_block(self, i):
        data = self.part.read(self.start[i], self.stored[i])
        if self.verify:
            data, crc = data[:-4], struct.unpack("<I", data[-4:])[0]
            need(crc32c(data, 100007) == crc, f"ZFile block {i}: checksum")
        return data

    def block(self, i):
        if self.kept[0] == i:
            return self.kept[1]
        want = min(self.block_size, self.size - i * self.block_size)
        if self.algo == LZ4:
            out = lz4_block(self.stored_block(i), want)
        else:
            out = os.pread(self.unpacked.fileno(), want, i * self.block_size)
        need(len(out) == want, f"ZFile block {i}: {len(out)} bytes instead of {want}")
        self.kept = (i, out)
        return out

    def read(self, offset, n):
        need(offset + n <= self.size, f"{n} bytes at {offset} are outside the content")
        out = bytearray()
        while n:
            i, skip = divmod(offset, self.block_size)
            piece = self.block(i)[skip:skip + n]
            out += piece
            offset += len(piece)
            n -= len(piece)
        return bytes(out)


class Lsmt:
    """A sealed layer."""

    def __init__(self, source):
        self.source = source
        head = self.head(0, "header")
        need(head["flags"] & HEADER and head["flags"] & DATA and head["flags"] & SEALED, "LSMT header: not a sealed layer")
        head = self.head(source.size - LSMT_SPACE, "trailer")
        need(not head["flags"] & HEADER and head["flags"] & DATA and head["flags"] & SEALED, "LSMT trailer: flags")
        self.virtual_size = head["virtual_size"]
        self.uuid = head["uuid"].split(b"\0")[0].decode()
        raw = source.read(head["index_offset"], 16 * head["entries"])
        self.entries = []
        last = 0
        for low, high in struct.iter_unpack("<QQ", raw):
            offset, length = low & (1 << 50) - 1, low >> 50
            if offset == (1 << 50) - 1 and length == 0:
                continue
            moffset, zeroed = high & (1 << 55) - 1, high >> 55 & 1
            need(length and offset >= last and (offset + length) * SECTOR <= self.virtual_size, "LSMT index: order")
            need(zeroed or (moffset + length) * SECTOR <= head["index_offset"], "LSMT index: data outside")
            last = offset + length
            self.entries.append((offset, length, moffset, zeroed))

    def head(self, offset, what):
        f = LSMT_HEAD.unpack_from(self.source.read(offset, LSMT_SPACE))
        need(f[0] == LSMT_MAGIC and f[1] == 390 and f[9] == 1, f"LSMT {what}: magic, size or version")
        return {"flags": f[2], "index_offset": f[3], "entries": f[4], "virtual_size": f[5], "uuid": f[6]}

    def runs(self):
        for offset, length, moffset, zeroed in self.entries:
            data = bytes(length * SECTOR) if zeroed else self.source.read(moffset * SECTOR, length * SECTOR)
            yield offset * SECTOR, data


def write_sparse(fd, offset, data):
    for at in range(0, len(data), 4096):
        piece = data[at:at + 4096]
        if piece.count(0) != len(piece):
            os.pwrite(fd, piece, offset + at)


def digest_stream(source, out):
    digest = hashlib.sha256()
    for at in range(0, source.size, 1 << 20):
        piece = source.read(at, min(1 << 20, source.size - at))
        digest.update(piece)
        if out is not None:
            write_sparse(out, at, piece)
    if out is not None:
        os.ftruncate(out, source.size)
    return digest.hexdigest()


def digest_disk(layer, out):
    """Over each sector that is not zeros: its number (8 bytes, little-endian), then its bytes."""
    digest, zeros = hashlib.sha256(), bytes(SECTOR)
    for offset, data in layer.runs():
        for at in range(0, len(data), SECTOR):
            sector = data[at:at + SECTOR]
            if sector != zeros:
                digest.update(struct.pack("<Q", (offset + at) // SECTOR) + sector)
        if out is not None:
            write_sparse(out, offset, data)
    if out is not None:
        os.ftruncate(out, layer.virtual_size)
    return digest.hexdigest()


def main():
    p = argparse.ArgumentParser(description="Decodes an overlaybd layer.")
    p.add_argument("file")
    p.add_argument("--stream", metavar="OUT")
    p.add_argument("--disk", metavar="OUT")
    options = p.parse_args()
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    stream = os.open(options.stream, flags, 0o644) if options.stream else None
    disk = os.open(options.disk, flags, 0o644) if options.disk else None
    with open(options.file, "rb") as file:
        source, tar = open_file(file)
        kind = "lsmt"
        if source.size >= 24 and source.read(0, 24) == ZFILE_MAGIC:
            source = ZFile(source)
            kind = {LZ4: "lz4", ZSTD: "zstd"}[source.algo]
        layer = Lsmt(source)
        print(json.dumps({"kind": kind, "tar": tar, "size": source.size, "virtual_size": layer.virtual_size,
                          "entries": len(layer.entries), "uuid": layer.uuid, "stream": digest_stream(source, stream),
                          "disk": digest_disk(layer, disk)}))


if __name__ == "__main__":
    main()
