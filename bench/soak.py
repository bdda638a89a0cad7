#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Restore, run, discard, again and again: nothing of it may stay. Run by soak.sh on a full KVM or in the lab.

A payload guest in coffer-vmm alone (bench/restore soak), then a Linux guest by `coffer run --from`. After the first tenth of
the cycles and at the end the host is counted: processes, mounts, open files, memory in use (neither free nor a cache), shared
memory, files and bytes below the directories used. Last line: soak payload_cycles=... linux_cycles=... grown=... (0: nothing).

Holes of a file that are read through a mapping take pages on a tmpfs, which the lab's directories are, until each has been read
once. So the memory of snapshots is not counted among shared memory.
"""
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
WORK = os.environ["WORK"]
DIRS = [WORK, os.environ["CACHE"]]


def lines(path):
    with open(path, encoding="utf-8") as f:
        return f.read().splitlines()


def walk():
    """(files and directories, KiB of files, KiB of snapshots' memory) below DIRS."""
    n = kib = ram = 0
    for top in DIRS:
        for path, dirs, files in os.walk(top):
            n += len(dirs) + len(files)
            for f in files:
                try:
                    taken = os.lstat(os.path.join(path, f)).st_blocks // 2
                except FileNotFoundError:
                    continue
                if f == "ram":
                    ram += taken
                else:
                    kib += taken
    return n, kib, ram


def count():
    """What a cycle could leave behind, each as a number."""
    files, kib, ram = walk()
    memory = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines("/proc/meminfo"))}
    used = memory["MemTotal"] - sum(memory[x] for x in ("MemFree", "Buffers", "Cached", "SReclaimable"))
    return {
        "processes": sum(1 for p in os.listdir("/proc") if p.isdigit()),
        "mounts": len(lines("/proc/self/mounts")),
        "open files": int(lines("/proc/sys/fs/file-nr")[0].split()[0]),
        "memory in use KiB": used,
        "shared memory KiB": memory["Shmem"] - ram,
        "files": files,
        "files KiB": kib,
    }


# Rounding and what the system does by itself.
ALLOWED = {"processes": 4, "mounts": 0, "open files": 256, "memory in use KiB": 8192, "shared memory KiB": 1024, "files": 0,
           "files KiB": 256}


def compare(name, before, after):
    grown = [f"{k} {before[k]} -> {after[k]}" for k in before if after[k] > before[k] + ALLOWED[k]]
    print(f"# {name}: " + ", ".join(f"{k} {before[k]} -> {after[k]}" for k in before), flush=True)
    if grown:
        print(f"# {name} has grown: " + ", ".join(grown), flush=True)
    return len(grown)


def soak(name, cycles, cycle):
    tenth = max(1, cycles // 10)
    for _ in range(tenth):
        cycle()
    before = count()
    for _ in range(cycles - tenth):
        cycle()
    return compare(name, before, count())


def run(*args):
    r = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if r.returncode:
        sys.exit(f"bench-soak: {' '.join(args)}: status {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout


def payload(cycles):
    steps = max(1, cycles // 10)
    return soak("payload", 10, lambda: run(os.path.join(BUILD, "bench", "restore"), "soak", WORK, str(steps)))


def linux(cycles):
    coffer = os.path.join(BUILD, "coffer")
    image = os.environ["IMAGE"]
    run(coffer, "run", "--keep", "--name", "soak", "--image", image, "--", "true")
    snapshot = os.path.join(WORK, "snapshot")
    run(coffer, "snapshot", "soak", "--to", snapshot, "--stop")
    return soak("Linux", cycles, lambda: run(coffer, "run", "--from", snapshot, "--", "sh", "-c", "echo x > /file; cat /file"))


def main():
    p, n = int(os.environ.get("PAYLOAD", "1000")), int(os.environ.get("LINUX", "200"))
    grown = (payload(p) if p else 0) + (linux(n) if n else 0)
    print(f"soak payload_cycles={p} linux_cycles={n} grown={grown}")
    return 1 if grown else 0


sys.exit(main())
