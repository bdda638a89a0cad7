#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A desktop in a VM: from a click to what is seen of it, and what a desktop at rest costs the host with a VNC viewer connected.

Run where VMs run, with the image of scripts/desktop-image.sh; B is the build. What is clicked is a terminal in which a program draws a #
at each place that is clicked; bench/display_click measures until it is seen. At rest the processor time of coffer vnc, its
processes and the monitor's threads other than the vCPUs' is counted, for IDLE_S seconds; that of the vCPUs is the guest's own. The last
line is guest_click_ms= guest_click_ms_p99= guest_idle_cpu= guest_own_cpu=, the latter two in per cent of a core.
"""
import os
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
WORK = tempfile.TemporaryDirectory(dir="/tmp")  # short: a socket's path has little room
os.environ.update(TOP=TOP, B=BUILD, COFFER=BUILD + "/coffer", T=WORK.name, XDG_RUNTIME_DIR=WORK.name + "/run")
os.mkdir(os.environ["XDG_RUNTIME_DIR"], 0o700)
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests", "desktop"))
from desktop import CELL, COFFER, FIELD_COLUMNS, FIELD_ROWS, check, field, run, say, start  # noqa: E402

CLICKS = int(os.environ.get("CLICKS", "100"))
IDLE_S = int(os.environ.get("IDLE_S", "60"))
PORT = "5959"


def tree(pid):
    """A process and all that it started."""
    children = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat", encoding="utf-8") as f:
                children.setdefault(int(f.read().rpartition(")")[2].split()[1]), []).append(int(p))
        except OSError:
            pass
    found = [pid]
    for p in found:
        found += children.get(p, [])
    return found


def threads(pids):
    """The processor time of each of their threads so far, in ns, with its name."""
    spent = {}
    for pid in pids:
        for t in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{t}/schedstat", encoding="utf-8") as f:
                spent[t] = int(f.read().split()[0])
            with open(f"/proc/{pid}/task/{t}/comm", encoding="utf-8") as f:
                spent[t] = (spent[t], f.read().strip())
    return spent


def at_rest(d):
    with open(os.path.join(os.environ["XDG_RUNTIME_DIR"], "coffer", d.vm, "pid"), encoding="utf-8") as f:
        monitor = int(f.read())
    server = subprocess.Popen([COFFER, "vnc", d.vm, "--listen", "127.0.0.1:" + PORT], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    server.stderr.readline()  # where it listens
    viewer = subprocess.Popen([BUILD + "/tests/tools/vnc_client", PORT, "tight"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        said = viewer.stdout.readline()
        check(said.startswith("connected"), f"the viewer says {said!r}")
        d.still(5)
        pids = [monitor] + tree(server.pid)
        before, start_s = threads(pids), time.monotonic()
        time.sleep(IDLE_S)
        after, seconds = threads(pids), time.monotonic() - start_s
    finally:
        viewer.kill()
        server.terminate()
        viewer.wait()
        server.wait()
    spent = {t: ((ns - before[t][0]) / seconds / 1e7, name) for t, (ns, name) in after.items() if t in before}
    for t, (percent, name) in spent.items():
        print(f"{name:16} {percent:7.3f} %")
    own = sum(percent for percent, name in spent.values() if name.startswith("vcpu"))
    return sum(percent for percent, _ in spent.values()) - own, own


def test():
    d = start("desk")
    at = field(d)
    d.still(3)
    say("the terminal is there")
    where = f"{at[0]},{at[1]},{FIELD_COLUMNS * CELL[0]}x{FIELD_ROWS * CELL[1]}"
    clicks = subprocess.run([BUILD + "/bench/display_click", str(CLICKS), f"{os.environ['XDG_RUNTIME_DIR']}/coffer/desk", where],
                            stdout=subprocess.PIPE, text=True, check=False)
    check(clicks.returncode == 0, "the clicks have failed")
    say(clicks.stdout.strip())
    idle, own = at_rest(d)
    print(f"{clicks.stdout.strip()} guest_idle_cpu={idle:.3f} guest_own_cpu={own:.1f}")


run(test)
