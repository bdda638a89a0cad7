# SPDX-License-Identifier: Apache-2.0
"""The lab's machine: QEMU's command line, the cached files it starts from, and the saved machine.

How it works: the cache, ${XDG_CACHE_HOME:-~/.cache}/coffer/lab, holds per kernel and source version vmlinux-KEY and
initrd-KEY, and per number of CPUs, memory size and QEMU ram-KEY and state-KEY: the memory and the device state of a
machine that has booted and waits for its request. A lab maps the memory file privately, loads the state and goes on
from there, which takes a fraction of a second in place of about five. Whoever finds no saved machine makes it, one
at a time under a lock; the others boot. Files appear by rename, those that nobody used for long are removed.

Every connection is a socket pair that QEMU inherits, so nothing of a running lab has a name in the file system. QEMU
dies with its parent (setpriv --pdeathsig).
"""
import fcntl
import hashlib
import json
import os
import re
import selectors
import shlex
import socket
import subprocess
import tempfile
import time

import image
from image import LabError, tool

PORTS = ("control", "in", "out", "err")
CONSOLE_KEPT = 256 << 10
CHUNK = 64 << 10
UNUSED_S = 3 * 24 * 3600
# Without XSAVE: under QEMU 7.2 a nested guest's CPUID does not follow its XCR0, and Linux warns about the size.
CPU = "max,+svm,-xsave"
APPEND = ("console=ttyS0 reboot=t panic=-1 quiet mitigations=off tsc=reliable cryptomgr.notests audit=0 "
          "random.trust_cpu=on i8042.noaux i8042.nokbd")


def cache_base():
    return os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")


class Cache:
    """Where the files are that a machine starts from."""

    def __init__(self, cpus, memory):
        self.dir = os.path.join(cache_base(), "coffer", "lab")
        os.makedirs(self.dir, exist_ok=True)
        self.vmlinuz = image.newest_kernel()
        try:
            with open(self.vmlinuz, "rb") as f:
                self.image = f.read()
        except OSError as e:
            raise LabError(f"kernel {self.vmlinuz}: {e.strerror}") from e
        digest = hashlib.sha256(self.image)
        kernel = digest.hexdigest()[:16]
        for name in ("guest/init.c", "image.py", "machine.py"):
            with open(os.path.join(image.HERE, name), "rb") as f:
                digest.update(f.read())
        boot = digest.hexdigest()[:16]
        qemu = os.stat(tool("qemu-system-x86_64", "qemu-system-x86"))
        digest.update(repr((cpus, memory, qemu.st_size, qemu.st_mtime_ns, os.environ.get("LAB_APPEND"))).encode())
        saved = digest.hexdigest()[:16]
        self.kernel, self.initrd = self.path("vmlinux-" + kernel), self.path("initrd-" + boot)
        self.ram, self.state = self.path("ram-" + saved), self.path("state-" + saved)
        self.unsaved = self.path("unsaved-" + saved)  # this QEMU cannot save it: boot, do not try again
        self.lock_path = self.path("lock")

    def path(self, name):
        return os.path.join(self.dir, name)

    def has_saved(self):
        return os.path.exists(self.ram) and os.path.exists(self.state)

    def make_boot_files(self):
        if not (os.path.exists(self.initrd) and os.path.exists(self.kernel)):
            self.store(self.initrd, image.build_initrd(os.path.basename(self.vmlinuz)[len("vmlinuz-"):]))
            self.store(self.kernel, image.vmlinux_of(self.image) or self.image)
            self.drop_unused()
        self.image = None

    def store(self, path, data):
        fd, tmp = tempfile.mkstemp(dir=self.dir, prefix="new-")
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(data)
            os.chmod(tmp, 0o644)
            os.rename(tmp, path)
        except BaseException:
            os.unlink(tmp)
            raise

    def touch(self):
        for path in (self.kernel, self.initrd, self.ram, self.state):
            try:
                os.utime(path)
            except OSError:
                pass

    def drop_saved(self):
        for path in (self.state, self.ram):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def drop_unused(self):
        self.touch()
        for name in os.listdir(self.dir):
            try:
                if os.stat(self.path(name)).st_mtime < time.time() - UNUSED_S:
                    os.unlink(self.path(name))
            except OSError:
                pass


class Machine:
    """One QEMU. Without out_dir nothing is shared for writing, but the device is there all the same.

    ends has our side of each connection; console and says hold what it told us aside from the command's output.
    """

    def __init__(self, cache, cpus, memory, out_dir, saved=False, ram=None, log=None):
        self.console = bytearray()
        self.says = bytearray()
        self.log = log
        names = PORTS + ("console", "qmp")
        pairs = {n: socket.socketpair() for n in names}
        self.ends = {n: p[0] for n, p in pairs.items()}
        fds = {n: p[1].fileno() for n, p in pairs.items()}
        mapping = f"memory-backend-file,id=ram,size={memory},mem-path={ram},share=on" if ram else \
            f"memory-backend-file,id=ram,size={memory},mem-path={cache.ram},share=off" if saved else \
            f"memory-backend-ram,id=ram,size={memory}"
        cmd = [tool("setpriv", "util-linux"), "--pdeathsig", "KILL", "--",
               tool("qemu-system-x86_64", "qemu-system-x86"),
               "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-machine", "pc,hpet=off,vmport=off,usb=off,memory-backend=ram", "-object", mapping,
               "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", str(cpus), "-m", memory,
               "-kernel", cache.kernel, "-initrd", cache.initrd,
               "-append", APPEND + " " + os.environ.get("LAB_APPEND", ""),
               "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
               "-virtfs", f"local,path={(out_dir or cache.dir).replace(',', ',,')},mount_tag=out,security_model=none,"
                          f"readonly={'off' if out_dir else 'on'},multidevs=remap",
               "-chardev", f"socket,id=console,fd={fds['console']}", "-serial", "chardev:console",
               "-chardev", f"socket,id=qmp,fd={fds['qmp']}", "-mon", "chardev=qmp,mode=control",
               "-device", "virtio-serial-pci,max_ports=5"]
        for nr, name in enumerate(PORTS, 1):
            cmd += ["-chardev", f"socket,id={name},fd={fds[name]}", "-device", f"virtserialport,nr={nr},chardev={name}"]
        if saved:
            cmd += ["-incoming", "defer"]
        try:
            self.proc = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, start_new_session=True, pass_fds=fds.values())
        finally:
            for p in pairs.values():
                p[1].close()

    def stop(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()
        for end in self.ends.values():
            end.close()

    def keep(self, name, data):
        """Keeps what came from the console or from QEMU itself."""
        kept = self.console if name == "console" else self.says
        kept += data
        if len(kept) > CONSOLE_KEPT:
            del kept[:len(kept) - CONSOLE_KEPT]
        if self.log and name == "console":
            self.log.write(data)

    def drain(self):
        """Reads what is left to say once QEMU has ended."""
        for name, fd in (("console", self.ends["console"].fileno()), ("qemu", self.proc.stdout.fileno())):
            os.set_blocking(fd, False)
            try:
                while data := os.read(fd, CHUNK):
                    self.keep(name, data)
            except OSError:
                pass

    def last_messages(self):
        text = [t for t in bytes(self.says).decode(errors="replace").splitlines()
                if "TCG doesn't support requested feature" not in t][-10:]
        console = bytes(self.console).decode(errors="replace").replace("\r", "").splitlines()
        crash = [i for i, t in enumerate(console) if re.search(r"Kernel panic|BUG:|Oops|general protection", t)]
        text += console[crash[0]:crash[0] + 40] if crash else console[-40:]
        return "".join(f"lab: | {t}\n" for t in text)


def wait_ready(machine, deadline):
    """Until the machine waits for its request."""
    sel = selectors.DefaultSelector()
    sel.register(machine.ends["control"], selectors.EVENT_READ, "control")
    sel.register(machine.ends["console"], selectors.EVENT_READ, "console")
    sel.register(machine.proc.stdout, selectors.EVENT_READ, "qemu")
    said = b""
    with sel:
        while b"ready\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in sel.select(left):
                data = os.read(key.fd, CHUNK)
                if not data:
                    machine.proc.wait()
                    machine.drain()
                    raise LabError("the machine does not boot; its last messages:\n" + machine.last_messages().rstrip())
                if key.data == "control":
                    said += data
                else:
                    machine.keep(key.data, data)


class Monitor:
    """QEMU's control connection."""

    def __init__(self, machine, deadline):
        machine.ends["qmp"].settimeout(max(1, deadline - time.monotonic()))
        self.file = machine.ends["qmp"].makefile("rwb", buffering=0)
        self.deadline = deadline
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while line := self.file.readline():
            reply = json.loads(line)
            if "error" in reply:
                raise LabError(f"QEMU {command}: {reply['error']['desc']}")
            if "return" in reply:
                return reply["return"]
        raise LabError(f"QEMU ended at {command}")

    def leave_memory_out(self):
        """The memory is a file already: neither written to the state nor read from it."""
        self.ask("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])

    def save(self, path):
        self.leave_memory_out()
        self.ask("migrate", uri="exec:cat > " + shlex.quote(path))
        while (status := self.ask("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled"):
                raise LabError(f"QEMU could not save the machine: {status}")
            if time.monotonic() > self.deadline:
                raise TimeoutError
            time.sleep(0.02)

    def load(self, path):
        self.leave_memory_out()
        self.ask("migrate-incoming", uri="exec:cat " + shlex.quote(path))


def make_saved(cache, cpus, memory, deadline):
    """Boots a machine and saves it, unless somebody else is at it. True when it is there."""
    with open(cache.lock_path, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if cache.has_saved():
            return True
        if os.path.exists(cache.unsaved):
            return False
        cache.drop_unused()
        ram, state = cache.path("new-ram"), cache.path("new-state")
        machine = None
        try:
            for path in (ram, state):
                if os.path.exists(path):
                    os.unlink(path)
            machine = Machine(cache, cpus, memory, None, ram=ram)
            wait_ready(machine, deadline)
            Monitor(machine, deadline).save(state)
            machine.stop()
            os.rename(ram, cache.ram)
            os.rename(state, cache.state)
            return True
        except LabError:
            cache.store(cache.unsaved, b"")
            return False
        finally:
            if machine:
                machine.stop()
            for path in (ram, state):
                if os.path.exists(path):
                    os.unlink(path)
