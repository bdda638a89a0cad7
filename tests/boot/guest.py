# SPDX-License-Identifier: Apache-2.0
"""Linux guests for boot tests: a kernel, an initramfs of busybox with a script, the monitor around them.

How it works: the kernel is the small guest kernel when it has been built, else the one that Debian's bzImage holds, with the
modules a test needs; taken out of its bzImage, since unpacking itself takes a kernel seconds where KVM is nested. The
script gets its commands from the test. Console output goes to a log, which is read when the monitor has ended.
"""
import json
import os
import re
import subprocess
import sys

TOP = os.environ.get("TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests", "lab"))
from image import cpio_entry, newest_kernel, tool, unpack, vmlinux_of  # noqa: E402

BUILD = os.path.join(TOP, os.environ.get("B", "build"))
VMM = os.path.join(BUILD, "coffer-vmm")
SCRATCH = os.environ.get("T") or "/tmp"
MODULES = ["pvpanic_mmio", "button", "evdev"]
SKIP = 77

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in /modules/*; do [ -e "$m" ] && insmod "$m"; done
echo BEGIN
(
{commands}
) 2>&1
echo END
poweroff -f
"""


class Failed(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def skip(text):
    print(text)
    sys.exit(SKIP)


def small_kernel():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(cache, "coffer", "kernel", "current", "vmlinux")
    return path if os.path.exists(path) else None


def debian_vmlinux():
    """The ELF kernel of Debian's full kernel, written to the scratch directory."""
    out = os.path.join(SCRATCH, "vmlinux-debian")
    if not os.path.exists(out):
        with open(newest_kernel(), "rb") as f:
            elf = vmlinux_of(f.read())
        check(elf, newest_kernel() + " holds no ELF kernel that can be taken out")
        with open(out, "wb") as f:
            f.write(elf)
    return out


def debian_modules():
    version = os.path.basename(newest_kernel())[len("vmlinuz-"):]
    paths = []
    for name in MODULES:
        run = subprocess.run([tool("modprobe", "kmod"), "-S", version, "--show-depends", name],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        for line in run.stdout.splitlines():
            word = line.split()
            if word[0] == "insmod" and word[1] not in paths:
                paths.append(word[1])
    return paths


def initramfs(commands, modules):
    with open("/bin/busybox", "rb") as f:
        busybox = f.read()
    parts = [cpio_entry(d, 0o40755) for d in ("bin", "dev", "proc", "sys", "modules")]
    parts += [cpio_entry("dev/console", 0o20600, dev=(5, 1)), cpio_entry("bin/busybox", 0o100755, busybox),
              cpio_entry("init", 0o100755, INIT.replace("{commands}", commands).encode())]
    for i, path in enumerate(modules):
        with open(path, "rb") as f:
            parts.append(cpio_entry(f"modules/{i:02d}", 0o100644, unpack(f.read())))
    return b"".join(parts + [cpio_entry("TRAILER!!!", 0)])


class Guest:
    """One guest. `commands` is shell, run once everything is mounted; then the guest powers off."""

    count = 0

    def __init__(self, commands, kernel=None, cpus=1, memory=256, words="", devices=(), cmdline=None):
        Guest.count += 1
        self.dir = os.path.join(SCRATCH, f"vm{Guest.count}")
        os.mkdir(self.dir, 0o700)
        small = small_kernel()
        own = kernel is None or kernel == small
        self.kernel = kernel or small or debian_vmlinux()
        initrd = self.dir + ".cpio"
        with open(initrd, "wb") as f:
            f.write(initramfs(commands, [] if own and small else debian_modules()))
        if cmdline is None:
            cmdline = f"console=ttyS0 quiet panic=-1 {words}".strip()
        ready_r, ready_w = os.pipe()
        argv = [VMM, "--dir", self.dir, "--kernel", self.kernel, "--initrd", initrd, "--cpus", str(cpus),
                "--memory", str(memory), "--cmdline", cmdline, "--device", "serial,log=console.log",
                "--ready-fd", str(ready_w)]
        for d in devices:
            argv += ["--device", d]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, pass_fds=[ready_w])
        os.close(ready_w)
        self.ready = os.read(ready_r, 16) == b"ready\n"
        os.close(ready_r)

    def wait(self):
        """Until the monitor ends. Sets status, stop (a word), text, errors and output."""
        self.errors = self.process.communicate()[1]
        self.status = self.process.returncode
        self.stop = self.text = None
        if self.ready:
            with open(os.path.join(self.dir, "status"), encoding="utf-8") as f:
                said = json.load(f)
            self.stop, self.text = said["stop"], said["text"]
        self.output = self.console()
        return self

    def console(self):
        try:
            with open(os.path.join(self.dir, "console.log"), "rb") as f:
                return f.read().decode("utf-8", "replace").replace("\r", "")
        except FileNotFoundError:
            return ""

    def lines(self):
        """What the commands wrote."""
        found = re.search(r"^BEGIN\n(.*?)^END$", self.output, re.MULTILINE | re.DOTALL)
        check(found, f"the guest did not come to its end: {self.stop} ({self.text})\n{self.errors}\n{self.output}")
        return found[1].splitlines()

    def facts(self):
        """NAME=VALUE lines as a dict."""
        return dict(line.split("=", 1) for line in self.lines() if "=" in line)

    def ended_with(self, stop, status):
        check((self.stop, self.status) == (stop, status),
              f"expected {stop} and exit status {status}, got {self.stop} ({self.text}) and {self.status}\n"
              f"{self.errors}\n{self.output}")
        return self


def run(*args, **kwargs):
    return Guest(*args, **kwargs).wait()


def main(test):
    """The body of a test script: an exception of ours is its one-line failure."""
    try:
        test()
    except Failed as e:
        print(e)
        sys.exit(1)
