# SPDX-License-Identifier: Apache-2.0
"""A viewer as bytes (RFB 3.8, raw pixels, the extended clipboard, QEMU's key event, sizes), for what ready-made ones do not do on request."""
import select
import socket
import ssl
import struct
import subprocess
import threading
import zlib

from remote import PATIENCE, check, until

NONE, VNC, VENCRYPT = 1, 2, 19
X509_NONE, X509_VNC = 260, 261
RAW, EXTENDED_SIZE, QEMU_KEY, EXTENDED_CLIPBOARD = 0, -308, -258, 0xc0a1e5ce - (1 << 32)
CURSOR, POINTER_PLACE = -239, -232
TEXT, CAPS, REQUEST, PEEK, NOTIFY, PROVIDE = 1, 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28


def u32(*numbers):
    return b"".join(struct.pack(">I", n & 0xffffffff) for n in numbers)


def answer(password, challenge):
    """DES with the password, the bits of whose bytes are the other way round."""
    key = bytes(int(f"{b:08b}"[::-1], 2) for b in password.encode().ljust(8, b"\0"))
    r = subprocess.run(["openssl", "enc", "-des-ecb", "-K", key.hex(), "-nopad", "-provider", "legacy", "-provider", "default"],
                       input=challenge, capture_output=True, check=True)
    return r.stdout


def in_one_thread(tls):
    """A socket that stands for this one: TLS cannot be read and written by two at once."""
    ours, theirs = socket.socketpair()

    def carry():
        tls.setblocking(True)
        with tls, theirs:
            try:
                while True:
                    ready = [tls] if tls.pending() else select.select([tls, theirs], [], [])[0]
                    data = (tls if tls in ready else theirs).recv(1 << 16)
                    (theirs if tls in ready else tls).sendall(data)
                    if not data:
                        return
            except OSError:
                pass
    threading.Thread(target=carry, daemon=True).start()
    ours.settimeout(PATIENCE)
    return ours


class Rfb:
    """Connected and let in, its own encodings said, and everything asked for again and again.

    picture: bytes of R, G, B; size; caps, notified, texts: of the clipboard; places: keys may be said with theirs.
    cursor: width, height, hot spot and a (r, g, b) or None for each pixel; pointer_places: where it was told that the pointer is; answers: (1, status) to wishes for a size.
    """

    def __init__(self, port, tls=None, clipboard=True, encodings=(RAW, EXTENDED_SIZE, QEMU_KEY), types=None, password=None, source="127.0.0.1"):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0))
        self.texts, self.caps, self.notified, self.places, self.closed = [], [], 0, False, False
        self.cursor, self.pointer_places = None, []
        self.answers = []
        self.password = password
        self.types = self.greet(tls, types)
        self.sock.sendall(b"\1")
        width, height = struct.unpack(">HH", self.read(4))
        self.read(16)
        self.name = self.read(struct.unpack(">I", self.read(4))[0]).decode()
        self.resize(width, height)
        self.sock.sendall(b"\0\0\0\0" + struct.pack(">BBBBHHHBBBxxx", 32, 24, 1, 1, 255, 255, 255, 16, 8, 0))  # 0RGB
        encodings = list(encodings) + ([EXTENDED_CLIPBOARD] if clipboard else [])
        self.sock.sendall(b"\2\0" + struct.pack(">H", len(encodings)) + u32(*encodings))
        self.ask(False)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def greet(self, tls, wanted):
        """The security types that were offered: that of VeNCrypt after it, then."""
        check(self.read(12) == b"RFB 003.008\n")
        self.sock.sendall(b"RFB 003.008\n")
        types = list(self.read(self.read(1)[0]))
        if tls:
            check(types == [VENCRYPT], str(types))
            self.sock.sendall(bytes([VENCRYPT]))
            check(self.read(2) == b"\0\2")
            self.sock.sendall(b"\0\2")
            check(self.read(1) == b"\0")
            types += struct.unpack(">I", self.read(4)) if self.read(1) == b"\1" else ()
            self.sock.sendall(u32(wanted or (X509_VNC if self.password else X509_NONE)))
            check(self.read(1) == b"\1", "refused")
            self.sock = in_one_thread(tls.wrap_socket(self.sock, server_hostname="127.0.0.1"))
        else:
            self.sock.sendall(bytes([wanted or (VNC if self.password else NONE)]))
        if self.password:
            self.sock.sendall(answer(self.password, self.read(16)))
        check(self.read(4) == b"\0\0\0\0", "not let in")
        return types

    def read(self, n):
        data = bytearray()
        while len(data) < n:
            part = self.sock.recv(n - len(data))
            if not part:
                raise ConnectionResetError("closed")
            data += part
        return bytes(data)

    def resize(self, width, height):
        self.size = width, height
        self.picture = bytearray(width * height * 3)

    def ask(self, incremental):
        self.sock.sendall(b"\3" + bytes([incremental]) + struct.pack(">HHHH", 0, 0, *self.size))

    def listen(self):
        try:
            self.sock.settimeout(None)
            while True:
                {0: self.update, 2: lambda: None, 3: self.cut_text}[self.read(1)[0]]()
        except OSError:
            self.closed = True

    def update(self):
        for _ in range(struct.unpack(">xH", self.read(3))[0]):
            x, y, width, height, encoding = struct.unpack(">HHHHi", self.read(12))
            if encoding == EXTENDED_SIZE:
                self.read(4 + 16 * self.read(4)[0] - 4)
                if x == 1:
                    self.answers.append((x, y))
                if x == 0 or y == 0:  # not the answer to a wish that failed
                    self.resize(width, height)
            elif encoding == QEMU_KEY:
                self.places = True
            elif encoding == POINTER_PLACE:
                self.pointer_places.append((x, y))
            elif encoding == CURSOR:
                pixels, mask, row = self.read(width * height * 4), self.read((width + 7) // 8 * height), (width + 7) // 8
                self.cursor = (width, height, x, y, [
                    tuple(pixels[i * 4 + 1:i * 4 + 4]) if mask[i // width * row + i % width // 8] & 0x80 >> i % width % 8 else None
                    for i in range(width * height)])
            else:
                check(encoding == RAW)
                data = self.read(width * height * 4)
                for row in range(height):
                    line = data[row * width * 4:(row + 1) * width * 4]
                    at = ((y + row) * self.size[0] + x) * 3
                    rgb = bytearray(3 * width)
                    rgb[0::3], rgb[1::3], rgb[2::3] = line[1::4], line[2::4], line[3::4]
                    self.picture[at:at + 3 * width] = rgb
        self.ask(True)

    def cut_text(self):
        n = struct.unpack(">xxxi", self.read(7))[0]
        data = self.read(abs(n))
        if n >= 0:
            self.texts.append(data.decode("latin-1"))
            return
        flags = struct.unpack(">I", data[:4])[0]
        if flags & CAPS:
            self.caps.append((flags & ~CAPS, data[4:]))
            self.extended(CAPS | REQUEST | PEEK | NOTIFY | PROVIDE | TEXT, u32(0))
        elif flags & NOTIFY:
            self.notified += 1
            if flags & TEXT:
                self.extended(REQUEST | TEXT)
        elif flags & REQUEST:
            self.provide(self.copied)
        elif flags & PROVIDE:
            plain = zlib.decompress(data[4:])
            check(struct.unpack(">I", plain[:4])[0] == len(plain) - 4 and plain[-1:] == b"\0", "another length")
            self.texts.append(plain[4:-1].decode())

    def extended(self, flags, data=b"", length=None):
        self.sock.sendall(b"\6\0\0\0" + u32(-(4 + len(data)) if length is None else length, flags) + data)

    def provide(self, text, named=None):
        data = text.encode().replace(b"\n", b"\r\n") + b"\0"
        self.extended(PROVIDE | TEXT, zlib.compress(u32(len(data) if named is None else named) + data))

    def copy(self, text):
        """Announce it; who wants it asks."""
        self.copied = text
        self.extended(NOTIFY | TEXT)

    def key(self, keysym, down, place=None):
        if place is None:
            self.sock.sendall(struct.pack(">BBxxI", 4, down, keysym))
        else:
            self.sock.sendall(struct.pack(">BBHII", 255, 0, down, keysym, place))

    def pointer(self, x, y, buttons=0):
        self.sock.sendall(struct.pack(">BBHH", 5, buttons, x, y))

    def want_size(self, width, height):
        self.sock.sendall(struct.pack(">BxHHBxIHHHHI", 251, width, height, 1, 1, 0, 0, width, height, 0))

    def heard(self, text):
        until(lambda: text in self.texts or self.closed, f"'{text}' did not come: {self.texts[-5:]}")
        check(text in self.texts, f"closed without '{text}': {self.texts[-5:]}")

    def ppm(self):
        return b"P6\n%d %d\n255\n" % self.size + bytes(self.picture)

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def trusting(cert):
    """A context of TLS that trusts just this certificate."""
    return ssl.create_default_context(cafile=cert)
