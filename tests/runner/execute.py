# SPDX-License-Identifier: Apache-2.0
"""Runs test programs and turns their output into results.

How it works: run_all() keeps some programs running, each in its own session with a scratch directory of its own, and
calls report() for each result as it comes: a dict of name, state ("ok", "fail" or "skip"), ms and text. A program
that ends in the middle of a test, hangs or says nothing at all is a failed test too. What is left of its session
when it ends is killed.
"""
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

from tests import TOP

SKIP = 77
TEXT_MAX = 256 << 10
CMOCKA = re.compile(r"\[ *(RUN|OK|FAILED|SKIPPED|ERROR) *\] (\w+(?: \([^()]*\))?)$")
CMOCKA_END = re.compile(r"^\[=+\] .*\d+ test\(s\) run\.$")
TAP = re.compile(r"^(ok|not ok) \d+ - (.*?)(?: # SKIP(.*))?$")


def result(name, state, started, text=""):
    return {"name": name, "state": state, "ms": int((time.monotonic() - started) * 1000), "text": text}


class CmockaReader:
    """cmocka's own output: a line when a test starts and one when it ends, then a summary that says it all again."""

    def __init__(self, name):
        self.name = name
        self.current = None
        self.started = time.monotonic()
        self.text = []
        self.in_summary = False
        self.results = self.failures = 0

    def line(self, line):
        found = CMOCKA.search(line)
        if CMOCKA_END.match(line):
            self.in_summary = True
        elif line.startswith("[==========]"):
            self.in_summary = False
        elif found and found[1] == "RUN" and not self.in_summary:
            self.current, self.started, self.text = found[2], time.monotonic(), []
        elif found and self.current == found[2] and not self.in_summary:
            yield self.end({"OK": "ok", "SKIPPED": "skip"}.get(found[1], "fail"))
        else:
            self.text.append(line)

    def end(self, state):
        text = "\n".join(self.text)
        if state == "skip":
            text = text.strip().splitlines()[-1] if text.strip() else "the test calls skip()"
        r = result(f"{self.name}/{self.current}", state, self.started, text)
        self.current, self.text = None, []
        self.results += 1
        self.failures += state == "fail"
        return r

    def finish(self, how, _status):
        if self.current:
            self.text.append(how or "it ended here")
            yield self.end("fail")
        elif self.results == 0:
            yield self.whole(how or "no test in it")
        elif not self.in_summary:
            yield self.whole(how or "it ended before its last test")
        elif how and not self.failures:
            yield self.whole(how)

    def whole(self, why):
        return result(self.name, "fail", self.started, "\n".join(self.text + [why]))


class TapReader:
    """Test Anything Protocol: a line when a test ends, "# text" after a failure."""

    def __init__(self, name):
        self.name = name
        self.started = time.monotonic()
        self.failed = None
        self.results = 0
        self.plan = None

    def line(self, line):
        found = TAP.match(line)
        if line.startswith("#") and self.failed:
            self.failed["text"] += line[1:] + "\n"
            return
        yield from self.flush()
        if found:
            self.results += 1
            state = "skip" if found[3] is not None else "ok" if found[1] == "ok" else "fail"
            r = result(f"{self.name}/{found[2]}", state, self.started, (found[3] or "").strip())
            self.started = time.monotonic()
            if state == "fail":
                self.failed = r
            else:
                yield r
        elif re.fullmatch(r"1\.\.\d+", line):
            self.plan = int(line[3:])

    def flush(self):
        if self.failed:
            yield self.failed
            self.failed = None

    def finish(self, how, _status):
        any_failed = self.failed is not None
        yield from self.flush()
        if self.plan != self.results or not self.results:
            yield result(self.name, "fail", self.started, how or f"plan is {self.plan}, but {self.results} results")
        elif how and not any_failed and "ended with status 1" not in how:
            yield result(self.name, "fail", self.started, how)


class ScriptReader:
    """One test; its exit status says how it went."""

    def __init__(self, name):
        self.name = name
        self.started = time.monotonic()
        self.text = []

    def line(self, line):
        self.text.append(line)
        return ()

    def finish(self, how, status):
        if not how:
            yield result(self.name, "ok", self.started)
        elif status == SKIP:
            yield result(self.name, "skip", self.started, self.text[-1] if self.text else "no reason given")
        else:
            yield result(self.name, "fail", self.started, "\n".join(self.text + [how]))


READERS = {"cmocka": CmockaReader, "tap": TapReader, "script": ScriptReader}


def environment(build, scratch):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CMOCKA_", "MAKE", "MFLAGS"))}
    runtime = os.path.join(scratch, "run")
    os.mkdir(runtime, 0o700)
    env.update(B=build, COFFER=os.path.join(build, "coffer"), T=scratch, TMPDIR=scratch, TOP=TOP,
               XDG_RUNTIME_DIR=runtime, LAB_TEST_SMOKE=os.path.join(build, "tests", "lab", "kvm_smoke"))
    return env


class Running:
    """A test program at work."""

    def __init__(self, test, build, factor):
        self.test = test
        self.limit = test.limit * factor
        self.deadline = time.monotonic() + self.limit
        self.reader = READERS[test.kind](test.name)
        self.rest = b""
        self.size = 0
        base = "/run" if os.environ.get("LAB") else None  # RAM, without the overlay of /tmp
        self.scratch = tempfile.mkdtemp(prefix="ct-", dir=base)
        self.proc = None
        try:
            self.proc = subprocess.Popen(test.argv, cwd=TOP, env=environment(build, self.scratch),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         start_new_session=True)
        except OSError as e:
            self.error = f"{test.argv[0]}: {e.strerror} (not built?)"

    def lines(self, data):
        """The results in more output."""
        self.size += len(data)
        if self.size > TEXT_MAX:
            data = b"".join(part for part in data.splitlines(True) if part.startswith(b"["))
        *whole, self.rest = (self.rest + data).split(b"\n")
        for line in whole:
            yield from self.reader.line(line.decode(errors="replace"))

    def finish(self, timed_out):
        """Ends it and gives the results that were still open."""
        if not self.proc:
            yield from self.reader.finish(self.error, None)
            shutil.rmtree(self.scratch, ignore_errors=True)
            return
        if timed_out:
            self.kill()
        status = self.proc.wait()
        self.kill()
        self.proc.stdout.close()
        if self.rest:
            yield from self.reader.line(self.rest.decode(errors="replace"))
        how = f"stopped after {self.limit:g} s" if timed_out else "" if status == 0 else \
            f"{self.test.argv[0]} ended with status {status}" if status > 0 else \
            f"{self.test.argv[0]} ended by signal {-status} ({signal.Signals(-status).name})"
        yield from self.reader.finish(how, status)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def kill(self):
        """The whole session: its first process is its process group's too."""
        try:
            os.killpg(self.proc.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def run_all(tests, build, jobs, factor, report, begin=None, finish=None):
    """Runs the tests, at most jobs programs at a time. begin and finish hear of each program.

    tests may be an iterator that waits for what comes next; it is asked only when there is room for one more.
    """
    waiting = iter(tests)
    more = True
    running = {}  # pidfd -> Running
    sel = selectors.DefaultSelector()

    def start(test):
        if begin:
            begin(test)
        r = Running(test, build, factor)
        if not r.proc:
            deliver(r.finish(False))
            ended(test)
            return
        os.set_blocking(r.proc.stdout.fileno(), False)
        pidfd = os.pidfd_open(r.proc.pid)
        running[pidfd] = r
        sel.register(pidfd, selectors.EVENT_READ)
        sel.register(r.proc.stdout, selectors.EVENT_READ, r)

    def deliver(results):
        for x in results:
            report(x)

    def read(r):
        """All output that is there. False at its end."""
        try:
            while data := os.read(r.proc.stdout.fileno(), 65536):
                deliver(r.lines(data))
        except BlockingIOError:
            return True
        return False

    def end(pidfd, timed_out):
        r = running.pop(pidfd)
        sel.unregister(pidfd)
        os.close(pidfd)
        read(r)
        if r.proc.stdout in watched():
            sel.unregister(r.proc.stdout)
        deliver(r.finish(timed_out))
        ended(r.test)

    def ended(test):
        if finish:
            finish(test)

    def watched():
        return [k.fileobj for k in sel.get_map().values()]

    try:
        while more or running:
            while more and len(running) < jobs:
                test = next(waiting, None)
                more = test is not None
                if more:
                    start(test)
            if not running:
                continue
            left = min(r.deadline for r in running.values()) - time.monotonic()
            for key, _ in sel.select(max(left, 0)):
                # Output first: a straggler that holds it open does not keep an ended test alive.
                if key.data is None:
                    end(key.fd, False)
                elif key.fileobj in watched() and not read(key.data):
                    sel.unregister(key.fileobj)
            for pidfd, r in list(running.items()):
                if time.monotonic() >= r.deadline:
                    end(pidfd, True)
    finally:
        for r in running.values():
            r.kill()
            r.proc.wait()
            shutil.rmtree(r.scratch, ignore_errors=True)
        sel.close()
