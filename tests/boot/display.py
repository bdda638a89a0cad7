# SPDX-License-Identifier: Apache-2.0
"""A client of a VM's display.sock for boot tests: looks at pictures, types and clicks (lib/display_proto.h).

Nothing here sleeps: `until` looks again whenever something has changed on the screen. What does not come within WAIT_S fails the test
with a line that says what was waited for.
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
WAIT_S = 300 if os.environ.get("LAB") else 60
HELLO, SCANOUT, CURSOR, DAMAGE, LEDS, TAKEN = 1, 2, 3, 4, 5, 6
READY, INPUT, MODE = 16, 17, 18
KEYBOARD, POINTER, TOUCH = 0, 1, 2
EV_SYN, EV_KEY, EV_REL, EV_ABS, SYN_REPORT = 0, 1, 2, 3, 0
ABS_X, ABS_Y, BTN_LEFT, KEY_LEFTSHIFT = 0, 1, 0x110, 42
POINTER_MAX = 32767
CURSOR_SIZE = 64
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
    """What a scanout shows: lines of pixels of four bytes, as they lie in memory."""

    def __init__(self, width, height, raw, order):
        self.width, self.height, self.raw, self.order = width, height, raw, order

    def __eq__(self, other):
        return (self.width, self.height) == (other.width, other.height) and \
            (self.raw == other.raw and self.order == other.order or self.planes == other.planes)

    @property
    def planes(self):
        """Red, green and blue, one byte a pixel."""
        return [self.raw[i::4] for i in self.order]

    def pixel(self, x, y):
        at = (y * self.width + x) * 4
        return tuple(self.raw[at + i] for i in self.order)

    def box(self, x, y, w, h):
        """Comparable: its lines."""
        lines = [self.raw[((y + i) * self.width + x) * 4:((y + i) * self.width + x + w) * 4] for i in range(h)]
        return [tuple(line[i::4] for i in self.order) for line in lines]

    def find(self, rgb, last=False):
        """The first pixel of that colour, line by line, or the last one; None when there is none."""
        wanted = bytes(c for _, c in sorted(zip(self.order, rgb)))
        at = len(self.raw) if last else -1
        while (at := self.raw.rfind(wanted, 0, at + 2) if last else self.raw.find(wanted, at + 1)) >= 0:
            if at % 4 == min(self.order):
                return at // 4 % self.width, at // 4 // self.width
        return None

    def write_png(self, path):
        import zlib

        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        line = bytearray(self.width * 3)
        raw = bytearray()
        planes = self.planes
        for y in range(self.height):
            for i, p in enumerate(planes):
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
        self.surface = self.wanted = self.cursor = None
        self.frame = self.seq = 0
        self.taken = None
        self.sock.send(struct.pack("<HH", READY, 0))
        self.wait(lambda: self.wanted is not None, "the monitor to say what it shows")

    def take(self, m):
        op, scanout = struct.unpack_from("<HH", m)
        if op == SCANOUT and scanout == 0:
            w, h, stride, fmt, _, offset, ww, wh = struct.unpack_from("<IIIIIQII", m, 4)
            self.surface = (w, h, stride, fmt, offset)
            self.wanted = (ww, wh)
        elif op == CURSOR and scanout == 0:
            visible, *place, _, _, offset = struct.unpack_from("<IiiIIIIQ", m, 4)
            self.cursor = (place, self.memory[offset:offset + 4 * CURSOR_SIZE ** 2]) if visible else None
        elif op == DAMAGE:
            self.frame = struct.unpack_from("<Q", m, 8)[0]
            self.sock.send(struct.pack("<HH", READY, 0))
        elif op == TAKEN:
            seq, status, _, frame = struct.unpack_from("<IiIQ", m, 4)
            self.taken = (seq, status, frame)

    def pump(self, timeout=None):
        """Wait for something to change, then take all that has. False when nothing came."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        while select.select([self.sock], [], [], 0)[0]:
            try:
                m = self.sock.recv(512)
            except ConnectionResetError:
                m = b""
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
        return Shot(w, h, lines, FORMATS[fmt])

    def wait(self, done, text, limit=WAIT_S):
        """Until `done` says something, asked again when the monitor has: that."""
        end = time.monotonic() + limit
        while not (found := done()):
            left = end - time.monotonic()
            check(left > 0, f"{self.vm}: waited {limit} s for {text}")
            self.pump(left)
        return found

    def until(self, what, text, limit=WAIT_S):
        """Until `what` of a shot says something: that."""
        return self.wait(lambda: self.size()[0] and what(self.shot()), text, limit)

    def still(self, seconds=1.0, limit=WAIT_S):
        """Until nothing changes for that long: the shot."""
        end = time.monotonic() + limit
        while self.pump(seconds):
            check(time.monotonic() < end, f"{self.vm}: waited {limit} s for the screen to stand still for {seconds} s")
        return self.shot()

    def send(self, kind, events):
        self.seq += 1
        packed = b"".join(struct.pack("<HHi", *e) for e in events)
        self.sock.send(struct.pack("<HHIII", INPUT, 0, self.seq, kind, len(events)) + packed.ljust(256, b"\0"))
        self.wait(lambda: self.taken and self.taken[0] == self.seq, f"the guest to take input of kind {kind}")
        check(self.taken[1] == 0, f"input is refused: errno {-self.taken[1]}")

    def key(self, code, shift=False):
        """Down and up in one message: a guest that is slow would repeat a key that is held."""
        around = [(EV_KEY, KEY_LEFTSHIFT)] if shift else []
        self.send(KEYBOARD, [(*k, 1) for k in around] + [(EV_KEY, code, 1), (EV_SYN, SYN_REPORT, 0), (EV_KEY, code, 0)] +
                  [(*k, 0) for k in around])

    def type(self, text):
        """Each character is drawn before the next one, or the guest would lose what its programs have not read."""
        for c in text:
            self.key(KEYS[SHIFTED.get(c, c)], c in SHIFTED)
            self.wait(lambda: self.frame > self.taken[2], f"a frame after {c!r} was typed")

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


def coffer(*args, stdin=None, ok=True, limit=WAIT_S):
    """Run a command: its stdout."""
    try:
        run = subprocess.run([COFFER, *args], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
                             stdout=subprocess.PIPE, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"waited {limit} s for: coffer {' '.join(args)}") from None
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
