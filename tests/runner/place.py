# SPDX-License-Identifier: Apache-2.0
"""Where tests run that need KVM: this machine, or the lab.

How it works: the lab runs this very runner (tests/run --worker) over a list of tests and prints a JSON object a line:
{"begin": NAME} and {"finish": NAME} around each program, results as execute.py has them, {"end": true}. When a lab dies, the programs
that had begun and not ended have failed, and the rest goes on in a new lab; two labs that die before any test begins
end it.

Between these lines comes {"alive": true} every ALIVE_S seconds. A lab that is silent for SILENT_S has stopped: QEMU's
nested emulation sometimes loses the interrupt that it waits for, and then its clock and all time limits in it
stand still. It is ended, and what had begun in it gets one more try in the next.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

from tests import TOP

LAB = os.path.join(TOP, "tests", "lab", "lab")
LAB_FACTOR = 4
ALIVE_S = 10
SILENT_S = 240
STDERR_KEPT = 8 << 10


def host_kvm():
    """("none", "any" or "full", why): what /dev/kvm of this machine is good for."""
    if not os.path.exists("/dev/kvm"):
        return "none", "no /dev/kvm"
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except OSError as e:
        return "none", f"/dev/kvm: {e.strerror}"
    for module in ("kvm_intel", "kvm_amd"):
        if os.path.isdir("/sys/module/" + module):
            return "full", module
    return "any", "no hardware virtualisation under /dev/kvm"


def choose(need, forced):
    """("host" or "lab", why) for tests that need "any" or "full" KVM."""
    if os.environ.get("LAB"):
        return "host", "in the lab already"
    if forced:
        return forced, "--place"
    has, why = host_kvm()
    return "host" if has in ("full", need) else "lab", why


class LabRun:
    """One lab with a list of tests."""

    def __init__(self, tests, options, report):
        self.tests = {t.name: t for t in tests}
        self.report = report
        self.open = {}
        self.begun = set()
        self.ended = False
        self.stopped = False
        self.heard = time.monotonic()
        self.errors = b""
        limit = sum(t.limit for t in tests) * options.factor * LAB_FACTOR + 300
        command = [LAB, "--timeout", str(limit), "--in-env", "B=" + options.build, "--",
                   sys.executable, os.path.join(TOP, "tests", "run"), "--worker", "--build", options.build,
                   "--jobs", str(options.lab_jobs), "--factor", str(options.factor * LAB_FACTOR)] + list(self.tests)
        self.proc = subprocess.Popen(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)

    def read_errors(self):
        while data := self.proc.stderr.read1(65536):
            self.errors = (self.errors + data)[-STDERR_KEPT:]

    def watch(self):
        while self.proc.poll() is None:
            time.sleep(1)
            if time.monotonic() - self.heard > SILENT_S:
                self.stopped = True
                self.proc.send_signal(signal.SIGTERM)
                return

    def run(self, retried):
        """Reports what comes; returns the tests that have not begun, and those to try again."""
        reader = threading.Thread(target=self.read_errors)
        reader.start()
        threading.Thread(target=self.watch, daemon=True).start()
        try:
            for line in self.proc.stdout:
                self.heard = time.monotonic()
                self.take(line)
        except BaseException:
            self.proc.send_signal(signal.SIGTERM)
            raise
        finally:
            status = self.proc.wait()
            reader.join()
        if not self.ended:
            why = f"the lab stopped: nothing came for {SILENT_S} s" if self.stopped else \
                f"the lab ended with status {status}:\n" + self.errors.decode(errors="replace")
            for name, started in self.open.items():
                if self.stopped and name not in retried:
                    print(f"# {name}: {why}; once more in a new lab", flush=True)
                    self.begun.discard(name)
                    retried.add(name)
                    continue
                self.report({"name": name, "state": "fail", "ms": int((time.monotonic() - started) * 1000), "text": why})
        return [t for name, t in self.tests.items() if name not in self.begun]

    def take(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            self.errors += line
            return
        if "begin" in message:
            self.begun.add(message["begin"])
            self.open[message["begin"]] = time.monotonic()
        elif "finish" in message:
            self.open.pop(message["finish"], None)
        elif "end" in message:
            self.ended = True
        elif "alive" not in message:
            self.report(message)


def run_in_lab(tests, options, report):
    barren = 0
    retried = set()
    while tests:
        run = LabRun(tests, options, report)
        left = run.run(retried)
        barren = barren + 1 if len(left) == len(tests) else 0
        tests = left
        if barren == 2:
            why = "the lab does not start:\n" + run.errors.decode(errors="replace")
            for t in tests:
                report({"name": t.name, "state": "fail", "ms": 0, "text": why})
            return
