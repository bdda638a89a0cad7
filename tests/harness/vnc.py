# SPDX-License-Identifier: Apache-2.0
"""For tests of `coffer vnc`: a display without a VM, the server, and a viewer without a window (tests/tools)."""
import json
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from remote import BUILD, check, environment, run_cases, until  # noqa: E402,F401

COFFER = os.path.join(BUILD, "coffer")
SHIFT, LEFT = 42, 272  # KEY_LEFTSHIFT, BTN_LEFT
KEYBOARD, POINTER = 0, 1


def scratch(name):
    return os.path.join(os.environ["SCRATCH"], name)


class Talker:
    """A program that is told lines and says lines."""

    def __init__(self, argv):
        self.lines = []
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="latin-1",
                                        env=environment())
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def heard(self, line):
        until(lambda: line in self.lines or not self.thread.is_alive(), f"'{line}' was not said: {self.lines[-20:]}")
        check(line in self.lines, f"'{line}' was not said: {self.lines[-20:]}")

    def command(self, line):
        """Tell it, and wait for the answer to just this one."""
        said = self.lines.count(f"ok {line}")
        self.tell(line)
        until(lambda: self.lines.count(f"ok {line}") > said or f"error {line}" in self.lines or not self.thread.is_alive(),
              f"'{line}' was not answered: {self.lines[-20:]}")
        check(f"error {line}" not in self.lines and self.lines.count(f"ok {line}") > said, f"{line}: {self.lines[-20:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pattern(Talker):
    """tests/tools/display_pattern.c."""

    def __init__(self, size="1280x800"):
        self.socket = scratch("display.sock")
        super().__init__([os.path.join(BUILD, "tests/tools/display_pattern"), self.socket, size])
        self.heard("ready")

    def truth(self):
        """A file of the picture as it is now."""
        path = scratch("truth.ppm")
        self.command(f"dump {path}")
        return path

    def inputs(self):
        """All events so far: (kind, type, code, value)."""
        return [tuple(int(w) for w in line.split()[1:]) for line in list(self.lines) if line.startswith("input ")]

    def keys(self):
        return [(code, value) for kind, kind_of, code, value in self.inputs() if kind == KEYBOARD and kind_of == 1]


class Server:
    """`coffer vnc` on a port of its own, of a Pattern or of the VM with this name."""

    def __init__(self, what, *options):
        what = [what] if isinstance(what, str) else ["--socket", what.socket]
        self.process = subprocess.Popen([COFFER, "vnc", "--json", "--listen", "127.0.0.1:0", *options, *what],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        line = self.process.stdout.readline()
        check(line, "coffer vnc did not start: " + (self.process.stderr.read() if not line else ""))
        self.info = json.loads(line)
        self.port = int(self.info["listen"].rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=30)


class Client(Talker):
    """tests/tools/vnc_client.c."""

    def __init__(self, server, encoding="raw", password=None):
        argv = [os.path.join(BUILD, "tests/tools/vnc_client"), str(server.port), encoding]
        super().__init__(argv + ([password] if password else []))

    def connected(self):
        until(lambda: any(line.startswith("connected ") for line in self.lines) or not self.thread.is_alive())
        check(self.lines and self.lines[0].startswith("connected "), "not connected: " + "; ".join(self.lines))
        return self

    def refused(self):
        self.thread.join(60)
        return self.process.wait(60) == 1 and not any(line.startswith("connected ") for line in self.lines)


def secret(name, text, mode=0o600):
    path = scratch(name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)
    return path
