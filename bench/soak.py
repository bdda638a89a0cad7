#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Restore, run, discard, again and again: nothing of it may stay. Run by soak.sh on a full KVM or in the lab.

A payload guest in coffer-vmm alone (bench/restore soak), then a Linux guest by `coffer run --from`. Before the first and after the last
tenth of the cycles the host is counted: processes, mounts, open files, shared memory, network devices, files below the directories
used. Last line: soak payload_cycles=... linux_cycles=... grown=... (0: nothing).
"""
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
WORK = os.environ["WORK"]


def lines(path):
    with open(path, encoding="utf-8") as f:
        return f.read().splitlines()


def count():
    """What a cycle could leave behind, each as a number."""
    return {
        "processes": sum(1 for p in os.listdir("/proc") if p.isdigit()),
        "mounts": len(lines("/proc/self/mounts")),
        "open files": int(lines("/proc/sys/fs/file-nr")[0].split()[0]),
        "shared memory KiB": next(int(x.split()[1]) for x in lines("/proc/meminfo") if x.startswith("Shmem:")),
        "files": sum(len(d) + len(f) for _, d, f in os.walk(WORK)),
    }


# Rounding and what the system does by itself.
ALLOWED = {"processes": 4, "mounts": 0, "open files": 256, "shared memory KiB": 4096, "files": 0}


def compare(name, before, after):
    grown = [f"{k} {before[k]} -> {after[k]}" for k in before if after[k] > before[k] + ALLOWED[k]]
    print(f"# {name}: " + (", ".join(grown) if grown else ", ".join(f"{k} {v}" for k, v in after.items())), flush=True)
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
    run(coffer, "snapshot", "soak", "--to", "soak", "--stop")
    return soak("Linux", cycles, lambda: run(coffer, "run", "--from", "soak", "--", "sh", "-c", "echo x > /file; cat /file"))


def main():
    p, n = int(os.environ.get("PAYLOAD", "1000")), int(os.environ.get("LINUX", "200"))
    grown = (payload(p) if p else 0) + (linux(n) if n else 0)
    print(f"soak payload_cycles={p} linux_cycles={n} grown={grown}")
    return 1 if grown else 0


sys.exit(main())
