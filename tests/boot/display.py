# SPDX-License-Identifier: Apache-2.0
"""A client of a VM's display.sock for boot tests: looks at pictures, types and clicks (lib/display_proto.h).

Nothing here waits for a time: `until` looks again whenever something has changed on the screen, until its limit or the runner's.
"""
import array
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import time

COFFER = os.environ["COFFER"]
HELLO, SCANOUT, CURSOR, DAMAGE, LEDS, TAKEN = 1, 2, 3, 4, 5, 6
READY, INPUT, MODE = 16, 17, 18
KEYBOARD, POINTER, TOUCH = 0, 1, 2
EV_KEY, EV_REL, EV_ABS = 1, 2, 3
ABS_X, ABS_Y, BTN_LEFT, KEY_LEFTSHIFT = 0, 1, 0x110, 42
POINTER_MAX = 32767
FORMATS = {1: (2, 1, 0), 2: (2, 1, 0), 67: (0, 1, 2), 134: (0, 1, 2), 3: (1, 2, 3), 4: (1, 2, 3), 68: (3, 2, 1), 121: (3, 2, 1)}
ROWS = {16: "qwertyuiop[]\n", 30: "asdfghjkl;'`", 43: "\\zxcvbnm,./", 2: "1234567890-="}
SHIFTED = dict(zip('QWERTYUIOP{}ASDFGHJKL:"~|ZXCVBNM<>?!@#$%^&*()_+', "qwertyuiop[]asdfghjkl;'`\\zxcvbnm,./1234567890-="))
KEYS = {" ": 57, **{c: first + i for first, row in ROWS.items() for i, c in enumerate(row)}}


class Failed(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


class Shot:
    """What a scanout shows: three planes of one byte a pixel."""

    def __init__(self, width, height, planes):
        self.width, self.height, self.planes = width, height, planes

    def __eq__(self, other):
        return (self.width, self.height, self.planes) == (other.width, other.height, other.planes)

    def box(self, x, y, w, h):
        return [tuple(p[(y + i) * self.width + x:(y + i) * self.width + x + w] for p in self.planes) for i in range(h)]

    def find(self, rgb):
        """The first pixel of that colour, line by line, or None."""
        red, green, blue = self.planes
        at = -1
        while (at := red.find(rgb[0], at + 1)) >= 0:
            if green[at] == rgb[1] and blue[at] == rgb[2]:
                return at % self.width, at // self.width
        return None

    def write_png(self, path):
        import zlib

        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        line = bytearray(self.width * 3)
        raw = bytearray()
        for y in range(self.height):
            for i, p in enumerate(self.planes):
                line[i::3] = p[y * self.width:(y + 1) * self.width]
            raw += b"\0" + line
        with open(path, "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)) +
                    chunk(b"IDAT", zlib.compress(bytes(raw), 9)) + chunk(b"IEND", b""))


class Display:
    """The display of a running VM."""

    def __init__(self, vm):
        self.vm = vm
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.getcwd()
        os.chdir(os.path.join(os.environ["XDG_RUNTIME_DIR"], "coffer", vm))
        self.sock.connect("display.sock")
        os.chdir(here)
        message, ancillary, _, _ = self.sock.recvmsg(512, socket.CMSG_SPACE(4))
        fds = array.array("i", ancillary[0][2])
        op, _, version, self.scanouts, self.inputs, size, _, _ = struct.unpack("<HHIIIQII", message)
        check(op == HELLO and version == 1, f"the first message is {message!r}")
        self.memory = mmap.mmap(fds[0], size, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(fds[0])
        self.surface = self.wanted = None
        self.frame = self.seq = 0
        self.taken = None
        self.sock.send(struct.pack("<HH", READY, 0))
        while self.wanted is None:
            self.pump()

    def take(self, m):
        op, scanout = struct.unpack_from("<HH", m)
        if op == SCANOUT and scanout == 0:
            w, h, stride, fmt, _, offset, ww, wh = struct.unpack_from("<IIIIIQII", m, 4)
            self.surface = (w, h, stride, fmt, offset)
            self.wanted = (ww, wh)
        elif op == DAMAGE:
            self.frame = struct.unpack_from("<Q", m, 8)[0]
            self.sock.send(struct.pack("<HH", READY, 0))
        elif op == TAKEN:
            seq, status = struct.unpack_from("<Ii", m, 4)
            self.taken = (seq, status)

    def pump(self, timeout=None):
        """Wait for something to change, then take all that has. False when nothing came."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        while select.select([self.sock], [], [], 0)[0]:
            m = self.sock.recv(512)
            check(m, f"the monitor of {self.vm} has closed the display")
            self.take(m)
        return True

    def size(self):
        return self.surface[:2] if self.surface else (0, 0)

    def shot(self):
        self.pump(0)
        w, h, stride, fmt, offset = self.surface
        check(w, "nothing is shown")
        lines = self.memory[offset:offset + stride * (h - 1) + w * 4]
        if stride != w * 4:
            lines = b"".join(lines[y * stride:y * stride + w * 4] for y in range(h))
        return Shot(w, h, [lines[i::4] for i in FORMATS[fmt]])

    def until(self, what, text, limit=None):
        """Until `what` of a shot says something: that. After `limit` seconds, if there is one, it has failed."""
        end = limit and time.monotonic() + limit
        while True:
            if self.size()[0]:
                found = what(self.shot())
                if found:
                    return found
            check(not end or time.monotonic() < end, f"after {limit} s there is not yet: {text}")
            print(f"waiting: {text}", flush=True)
            self.pump(20 if not end else max(0, min(20, end - time.monotonic())))

    def still(self, seconds=1.0):
        """Until nothing changes for that long: the shot."""
        while self.pump(seconds):
            pass
        return self.shot()

    def send(self, kind, events):
        self.seq += 1
        packed = b"".join(struct.pack("<HHi", *e) for e in events)
        self.sock.send(struct.pack("<HHIII", INPUT, 0, self.seq, kind, len(events)) + packed.ljust(256, b"\0"))
        while not self.taken or self.taken[0] != self.seq:
            self.pump()
        check(self.taken[1] == 0, f"input is refused: errno {-self.taken[1]}")

    def key(self, code, shift=False):
        if shift:
            self.send(KEYBOARD, [(EV_KEY, KEY_LEFTSHIFT, 1)])
        self.send(KEYBOARD, [(EV_KEY, code, 1)])
        self.send(KEYBOARD, [(EV_KEY, code, 0)])
        if shift:
            self.send(KEYBOARD, [(EV_KEY, KEY_LEFTSHIFT, 0)])

    def type(self, text):
        for c in text:
            self.key(KEYS[SHIFTED.get(c, c)], c in SHIFTED)

    def move(self, x, y):
        w, h = self.size()
        self.send(POINTER, [(EV_ABS, ABS_X, (x * POINTER_MAX + w // 2) // (w - 1)), (EV_ABS, ABS_Y, (y * POINTER_MAX + h // 2) // (h - 1))])

    def click(self, x, y):
        self.move(x, y)
        self.send(POINTER, [(EV_KEY, BTN_LEFT, 1)])
        self.send(POINTER, [(EV_KEY, BTN_LEFT, 0)])

    def mode(self, width, height):
        self.sock.send(struct.pack("<HHII", MODE, 0, width, height))

    def close(self):
        self.sock.close()


def coffer(*args, stdin=None, ok=True):
    """Run a command: its stdout."""
    run = subprocess.run([COFFER, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
                         stdout=subprocess.PIPE, check=False)
    check(run.returncode == 0 or not ok, f"coffer {' '.join(args)}: status {run.returncode}")
    return run.stdout.decode("utf-8", "replace")


def vms():
    return {v["id"]: v for v in json.loads(coffer("ps", "--json"))}


def main(test):
    """The body of a test script: an exception of ours is its one-line failure."""
    try:
        test()
    except Failed as e:
        print(f"FAILED: {e}")
        sys.exit(1)
    finally:
        subprocess.run([COFFER, "kill", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
