# SPDX-License-Identifier: Apache-2.0
"""Where tests run that need KVM: this machine, or the lab.

How it works: the lab runs this very runner (tests/run --worker), which reads the name of a test a line and prints a JSON object a
line: {"begin": NAME} and {"finish": NAME} around each program, results as execute.py has them, {"end": true}. Some labs run at a time,
since each emulates a single processor; each is given the next test when it has ended one. When a lab dies, the programs that had begun
and not ended have failed, and the rest goes on in a new lab; two labs in a row that die before any test begins end it.

Between these lines comes {"alive": true} every ALIVE_S seconds. A lab that is silent for SILENT_S has stopped: QEMU's
nested emulation sometimes loses the interrupt that it waits for, and then its clock and all time limits in it
stand still. It is ended, and what had begun in it gets one more try in the next. So does a test in which a VM did not come up: the lab
loses interrupts of VMs in it, too.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque

from tests import TOP

LAB = os.path.join(TOP, "tests", "lab", "lab")
LAB_FACTOR = 4
ALIVE_S = 10
SILENT_S = 150
STDERR_KEPT = 8 << 10
NOT_UP = "coffer: the guest is not ready after"


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


class Queue:
    """The tests that wait for a lab, and what all labs share."""

    def __init__(self, tests, report):
        self.waiting = deque(tests)
        self.lock = threading.Lock()
        self.tell = report
        self.retried = set()
        self.runs = []
        self.stopped = False

    def next(self):
        with self.lock:
            return self.waiting.popleft() if self.waiting and not self.stopped else None

    def report(self, r):
        with self.lock:
            self.tell(r)

    def again(self, test):
        """False when it has been tried again before."""
        with self.lock:
            if test.name in self.retried:
                return False
            self.retried.add(test.name)
            self.waiting.append(test)
            return True

    def stop(self):
        with self.lock:
            self.stopped = True
            for run in self.runs:
                run.proc.send_signal(signal.SIGTERM)


class LabRun:
    """One lab, as long as there are tests and it lives."""

    def __init__(self, queue, options):
        self.queue = queue
        self.open = {}  # name -> (test, when it was handed over)
        self.barren = True
        self.ended = self.silent = False
        self.heard = time.monotonic()
        self.errors = b""
        limit = sum(t.limit for t in queue.waiting) * options.factor * LAB_FACTOR + 300
        command = [LAB, "--stdin", "--timeout", str(limit), "--in-env", "B=" + options.build, "--",
                   sys.executable, os.path.join(TOP, "tests", "run"), "--worker", "--build", options.build,
                   "--factor", str(options.factor * LAB_FACTOR)]
        with queue.lock:
            self.proc = subprocess.Popen(command, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            queue.runs.append(self)

    def read_errors(self):
        while data := self.proc.stderr.read1(65536):
            self.errors = (self.errors + data)[-STDERR_KEPT:]

    def watch(self):
        while self.proc.poll() is None:
            time.sleep(1)
            if time.monotonic() - self.heard > SILENT_S:
                self.silent = True
                self.proc.send_signal(signal.SIGTERM)
                return

    def feed(self):
        test = self.queue.next()
        try:
            if test:
                self.open[test.name] = test, time.monotonic()
                self.proc.stdin.write(test.name.encode() + b"\n")
                self.proc.stdin.flush()
            else:
                self.proc.stdin.close()
        except BrokenPipeError:
            pass  # it has ended: its output says so, too

    def run(self):
        """Hands it tests and reports what comes, until it ends. Returns why, when it ended before the tests did."""
        reader = threading.Thread(target=self.read_errors)
        reader.start()
        threading.Thread(target=self.watch, daemon=True).start()
        self.feed()
        for line in self.proc.stdout:
            self.heard = time.monotonic()
            self.take(line)
        status = self.proc.wait()
        reader.join()
        with self.queue.lock:
            self.queue.runs.remove(self)
        if self.ended or self.queue.stopped:
            return None
        why = f"the lab stopped: nothing came for {SILENT_S} s" if self.silent else \
            f"the lab ended with status {status}:\n" + self.errors.decode(errors="replace")
        for test, started in self.open.values():
            if (self.silent or self.barren) and self.queue.again(test):
                print(f"# {test.name}: {why}; once more in a new lab", flush=True)
            else:
                self.queue.report({"name": test.name, "state": "fail", "ms": int((time.monotonic() - started) * 1000), "text": why})
        return why

    def take(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            self.errors += line
            return
        if "begin" in message:
            self.barren = False
        elif "finish" in message:
            self.open.pop(message["finish"], None)
            self.feed()
        elif "end" in message:
            self.ended = True
        elif "alive" not in message:
            test, _ = self.open.get(message["name"], (None, 0))
            if message["state"] == "fail" and NOT_UP in message["text"] and test and self.queue.again(test):
                print(f"# {test.name}: {NOT_UP} ...; once more", flush=True)
            else:
                self.queue.report(message)


def lab_after_lab(queue, options):
    barren = 0
    while queue.waiting and not queue.stopped:
        run = LabRun(queue, options)
        why = run.run()
        barren = barren + 1 if why and run.barren else 0
        if barren == 2:
            while test := queue.next():
                queue.report({"name": test.name, "state": "fail", "ms": 0, "text": "the lab does not start: " + why})


def run_in_labs(tests, options, report):
    queue = Queue(tests, report)
    threads = [threading.Thread(target=lab_after_lab, args=(queue, options)) for _ in range(min(options.labs, len(tests)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        queue.stop()
        raise
