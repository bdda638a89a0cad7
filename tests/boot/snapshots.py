# SPDX-License-Identifier: Apache-2.0
"""Snapshots by the control socket alone, for boot tests of the monitor (guest.py): what a snapshot's files are, and a monitor
that starts from them."""
import os
import socket
import struct
import subprocess

from guest import SCRATCH, VMM, Guest, check

# vmm/control.h
PAUSE, RESUME, KILL, SNAPSHOT, DISK_ATTACH, RESTORE = 2, 3, 4, 9, 10, 11
DIFF, STOP, TRACK = 1, 2, 4
MAP, EAGER, LAZY = 0, 1, 2
RESTORE_PAUSED, RESTORE_TRACK, ORDER_IN, ORDER_OUT = 1, 2, 4, 8
PAUSE_NS, ROUNDS, PAGES, FINAL_PAGES = 4, 6, 7, 9


def request(directory, op, args=(), fds=()):
    """(status, values, text) of one control request."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(os.path.join(directory, "control.sock"))
    args = list(args) + [0] * (4 - len(args))
    socket.send_fds(s, [struct.pack("<HHI4Q", 1, op, 7, *args)], list(fds))
    reply = s.recv(4096)
    check(len(reply) > 136, "the monitor ended without a reply")
    return struct.unpack_from("<i", reply, 4)[0], struct.unpack_from("<16Q", reply, 8), reply[136:].split(b"\0")[0].decode()


class Snapshot:
    """The files of one. `parent` is the snapshot that a diff follows."""

    count = 0

    def __init__(self, parent=None):
        Snapshot.count += 1
        self.dir = os.path.join(SCRATCH, f"snapshot{Snapshot.count}")
        self.parent = parent
        self.values = None
        os.mkdir(self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def chain(self):
        s, out = self, []
        while s:
            out.append(s)
            s = s.parent
        return out

    def take(self, vmdir, flags=TRACK, level=0):
        fds = [os.open(self.path(n), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600) for n in ("state", "ram", "ram.index")]
        status, self.values, text = request(vmdir, SNAPSHOT, (flags | (DIFF if self.parent else 0), level, 0), fds)
        for fd in fds:
            os.close(fd)
        check(status == 0, f"snapshot: {status} {text}")
        return self


class Restored(Guest):
    """A monitor that starts from a snapshot. The guest's console goes on in a log of its own."""

    # pylint: disable=super-init-not-called
    def __init__(self, snapshot, cpus=1, memory=256, devices=(), mode=MAP, flags=RESTORE_TRACK, expect=0, order=None):
        Guest.count += 1
        self.dir = os.path.join(SCRATCH, f"vm{Guest.count}")
        os.mkdir(self.dir, 0o700)
        ready_r, ready_w = os.pipe()
        argv = [VMM, "--dir", self.dir, "--restore", "--cpus", str(cpus), "--memory", str(memory), "--device",
                "serial,log=console.log", "--ready-fd", str(ready_w)]
        for d in devices:
            argv += ["--device", d]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, pass_fds=[ready_w])
        os.close(ready_w)
        self.ready = os.read(ready_r, 16) == b"ready\n"
        os.close(ready_r)
        if not self.ready:
            return
        fds = [os.open(snapshot.path("state"), os.O_RDONLY)]
        for s in snapshot.chain():
            fds += [os.open(s.path("ram"), os.O_RDONLY), os.open(s.path("ram.index"), os.O_RDONLY)]
        if order:
            flags |= ORDER_OUT
            fds.append(os.open(order, os.O_RDWR | os.O_CREAT, 0o600))
        status, _, self.said = request(self.dir, RESTORE, (mode, len(snapshot.chain()), 0, flags), fds)
        for fd in fds:
            os.close(fd)
        check(status == expect, f"restore: {status} {self.said}")
