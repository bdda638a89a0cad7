# SPDX-License-Identifier: Apache-2.0
"""A guest that lives through generations, for tests/boot/ten-generations: a Python process with state, a counter that writes to the
disk, sleeps in flight and busy processors that look at the clock, asked from one end to the other over one 'coffer exec'.

How it works: the process in the guest (GUEST) answers a line on its stdin with its wall clock, its monotonic clock and what it has
worked out from all lines so far; the same is worked out here. The answer is between two readings of this machine's clock. That
holds for the wall clock: it must be within TOLERANCE_NS of a moment between them, and what an answer takes more, since nobody can
tell a guest the time better than that. Monotonic time must have gone on for no longer than the VM has been there, and never back.
"""
import os
import subprocess
import sys
import time

COFFER = os.environ["COFFER"]
VM = "vm"
TOLERANCE_NS = 10_000_000
ASKED = 5  # times, since an answer that takes long says little

# Run with -S: no file but the interpreter's own start is needed.
GUEST = """
import sys, time
state = 1
for line in sys.stdin:
    state = (state * 6364136223846793005 + sum(line.encode())) % (1 << 64)
    print(time.time_ns(), time.monotonic_ns(), state, flush=True)
"""

# From processor to processor: monotonic time never goes back for it either.
SPIN = """
import posix, sys, time
last = 0
cpu = int(sys.argv[1])
while True:
    for _ in range(2000):
        now = time.monotonic_ns()
        if now < last:
            with open("/back", "a") as f: f.write(f"{last} {now}\\n")
        last = now
    cpu = (cpu + 1) % posix.cpu_count()
    posix.sched_setaffinity(0, [cpu])
"""


def fail(text):
    print("FAILED: " + text)
    sys.exit(1)


def coffer(*args):
    r = subprocess.run([COFFER, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       check=False)
    if r.returncode:
        fail(f"coffer {' '.join(args)}: status {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout


def inside(script):
    return coffer("exec", VM, "sh", "-c", script).strip()


class Program:
    """GUEST, in the VM."""

    def __init__(self):
        self.process = subprocess.Popen([COFFER, "exec", "-i", VM, "/bin/python", "-S", "-c", GUEST], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.state = 1
        self.lines = 0
        self.mono = self.asked = None

    def ask(self):
        """(wall clock before, the guest's wall clock, after), its monotonic clock."""
        line = f"line {self.lines}\n"
        self.lines += 1
        self.state = (self.state * 6364136223846793005 + sum(line.encode())) % (1 << 64)
        before = time.time_ns()
        self.process.stdin.write(line)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        after = time.time_ns()
        if len(answer) != 3:
            fail(f"the program in the guest answers {answer}: status {self.process.poll()}")
        if int(answer[2]) != self.state:
            fail(f"after {self.lines} lines the program in the guest has {answer[2]}, not {self.state}")
        return (before, int(answer[0]), after), int(answer[1])

    def begin(self):
        self.asked = time.monotonic_ns()
        self.mono = self.ask()[1]

    def check_clocks(self, name, away_ns):
        """After a restore; the VM was not there for away_ns since begin()."""
        answers = []
        mono = self.mono
        for _ in range(ASKED):
            (before, wall, after), now = self.ask()
            if now < mono:
                fail(f"{name}: monotonic time goes back from {mono} to {now}")
            mono = now
            answers.append((before, wall, after))
        before, wall, after = min(answers, key=lambda x: x[2] - x[0])
        slow = max(x[2] - x[0] for x in answers)
        wrong = max(before - wall, wall - after, 0)
        if wrong > TOLERANCE_NS + slow:
            fail(f"{name}: the guest's clock is wrong by {wrong / 1e6:.1f} ms at least, and an answer takes up to {slow / 1e6:.1f} ms")
        there = time.monotonic_ns() - self.asked - away_ns
        if mono - self.mono > there + TOLERANCE_NS:
            fail(f"{name}: monotonic time went on for {mono - self.mono} ns, and the VM was there for {there} ns")
        print(f"# {name}: clock wrong by {wrong / 1e6:.1f} ms at least, answers take {(after - before) / 1e6:.1f} to {slow / 1e6:.1f} "
              f"ms, away for {away_ns / 1e6:.0f} ms", flush=True)

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            fail(f"the program in the guest ends with status {self.process.returncode}")


def sleep_in_flight(i):
    """That it is one is seen by /slept, which it is written to at its end."""
    inside(f"(sleep 3; echo {i} >>/slept) </dev/null >/dev/null 2>&1 &")


def spin(n):
    """Keep n processors busy."""
    coffer("exec", VM, "sh", "-c", f'for i in $(seq 0 {n - 1}); do /bin/python -S -c "$0" $i </dev/null >/dev/null 2>&1 & done', SPIN)


def check_spinning(n):
    back = inside("cat /back 2>/dev/null || :")
    if back:
        fail(f"monotonic time went back: {back}")
    alive = inside("grep -l '[s]ched_setaffinity' /proc/[0-9]*/cmdline | wc -l")
    if alive != str(n):
        fail(f"{alive} of {n} busy programs are there")


def stop_spinning():
    inside("kill $(grep -l '[s]ched_setaffinity' /proc/[0-9]*/cmdline | cut -d/ -f3)")


def counted():
    """What the counter has written: every number once and in order. How many."""
    numbers = inside("cat /log").split()
    if numbers != [str(i) for i in range(1, len(numbers) + 1)]:
        at = next(i for i, n in enumerate(numbers) if n != str(i + 1))
        fail(f"the counter's file is wrong at its line {at + 1}: {numbers[max(at - 3, 0):at + 3]}")
    return len(numbers)


def wait_for(what, script):
    while inside(script + " && echo yes || :") != "yes":
        time.sleep(0.1)
    print(f"# {what}", flush=True)
