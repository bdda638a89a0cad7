#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A saved Linux guest beside QEMU: from the start of the process to the guest's first word, medians of RUNS each in turn.

The guest says a line whenever a hundredth of a second has passed. Coffer starts from its snapshot (raw, mapped); QEMU's microvm from
what `migrate exec:cat` wrote, by -incoming; both from the page cache. Last line: restore_qemu ratio=... Run by restore.sh in the lab.
"""
import json
import os
import socket
import statistics
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests", "boot"))
from guest import SCRATCH, VMM, Guest, debian_modules, debian_vmlinux, initramfs, small_kernel  # noqa: E402
from snapshots import MAP, RESTORE, STOP, Snapshot, request  # noqa: E402

COMMANDS = "echo READY; while :; do sleep 0.01; echo tick; done"
MEMORY = 256
QEMU = ["/usr/bin/qemu-system-x86_64", "-M", "microvm,x-option-roms=off,pit=off,pic=off,rtc=off,isa-serial=on", "-bios",
        "/usr/share/qemu/qboot.rom", "-accel", "kvm", "-cpu", "host", "-m", str(MEMORY), "-nodefaults", "-no-user-config",
        "-display", "none", "-serial", "stdio", "-no-reboot"]


def until(stream, word):
    """Read until the word has come."""
    seen = b""
    while word not in seen:
        data = os.read(stream.fileno(), 4096)
        if not data:
            sys.exit(f"bench-restore: the guest ended before it said {word.decode()}")
        seen += data


def qemu_guest(kernel):
    initrd = os.path.join(SCRATCH, "qemu.cpio")
    with open(initrd, "wb") as f:
        f.write(initramfs(COMMANDS, [] if kernel == small_kernel() else debian_modules()))
    return QEMU + ["-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1"]


def save_qemu(argv, path):
    """Until the file is whole."""
    qmp_path = os.path.join(SCRATCH, "qmp")
    guest = subprocess.Popen(argv + ["-qmp", f"unix:{qmp_path},server=on,wait=off"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE)
    until(guest.stdout, b"READY")
    s = socket.socket(socket.AF_UNIX)
    s.connect(qmp_path)
    f = s.makefile("rw")
    f.readline()
    for command in ({"execute": "qmp_capabilities"},
                    {"execute": "migrate-set-parameters", "arguments": {"max-bandwidth": 1 << 40}},
                    {"execute": "migrate", "arguments": {"uri": f"exec:cat > {path}"}}):
        f.write(json.dumps(command) + "\n")
        f.flush()
    while True:
        f.write(json.dumps({"execute": "query-migrate"}) + "\n")
        f.flush()
        if '"completed"' in f.readline():
            break
        time.sleep(0.05)
    guest.kill()
    guest.wait()


def start_qemu(argv, path):
    start = time.monotonic()
    guest = subprocess.Popen(argv + ["-incoming", f"exec:cat {path}", "-monitor", "none"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE)
    until(guest.stdout, b"tick")
    took = time.monotonic() - start
    guest.kill()
    guest.wait()
    return took


def start_coffer(snapshot):
    directory = os.path.join(SCRATCH, "restored")
    os.mkdir(directory, 0o700)
    fds = [os.open(snapshot.path(n), os.O_RDONLY) for n in ("state", "ram", "ram.index")]
    ready_r, ready_w = os.pipe()
    start = time.monotonic()
    guest = subprocess.Popen([VMM, "--dir", directory, "--restore", "--memory", str(MEMORY), "--device", "serial,stdio",
                              "--log-level", "error", "--ready-fd", str(ready_w)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, pass_fds=[ready_w])
    os.close(ready_w)
    os.read(ready_r, 16)
    status, _, text = request(directory, RESTORE, (MAP, 1, 0, 0), fds)
    if status:
        sys.exit(f"bench-restore: {text}")
    until(guest.stdout, b"tick")
    took = time.monotonic() - start
    guest.kill()
    guest.wait()
    for fd in fds + [ready_r]:
        os.close(fd)
    subprocess.run(["rm", "-rf", directory], check=True)
    return took


def main():
    runs = int(os.environ.get("RUNS", "10"))
    kernel = small_kernel() or debian_vmlinux()
    saved = os.path.join(SCRATCH, "qemu.saved")
    argv = qemu_guest(kernel)
    save_qemu(argv, saved)
    guest = Guest(COMMANDS, kernel=kernel, memory=MEMORY)
    while "READY" not in guest.console():
        time.sleep(0.05)
    snapshot = Snapshot().take(guest.dir, flags=STOP)
    guest.process.wait()
    coffer, qemu = [], []
    for _ in range(runs):
        coffer.append(start_coffer(snapshot) * 1000)
        qemu.append(start_qemu(argv, saved) * 1000)
    c, q = statistics.median(coffer), statistics.median(qemu)
    print(f"# Linux, {MEMORY} MiB, start to first word: coffer {c:.1f} ms, QEMU microvm {q:.1f} ms (medians of {runs})")
    print(f"restore_qemu ratio={c / q:.3f}")


main()
