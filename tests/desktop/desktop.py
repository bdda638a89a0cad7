# SPDX-License-Identifier: Apache-2.0
"""What tests of a whole desktop share: a VM with it, programs on its screen, and what they look like.

Text is recognised without a font of our own: a terminal with a bitmap font, in colours that nothing else has, has cells of a known
size, and two cells with the same letter have the same pixels.

A test that fails shows what the guest was doing, and leaves a picture of the screen in LAB_OUT when there is one.
"""
import os
import shutil
import subprocess
import sys
import time

TOP = os.environ["TOP"]
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(TOP, "tests", "boot"), os.path.join(TOP, "tests", "harness")]
os.environ["XDG_DATA_HOME"] = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "coffer", "boot-tests")
# On the file system of the image, as for any user, or a clone would begin with a copy of it.
os.environ["XDG_STATE_HOME"] = os.path.join(os.environ["XDG_DATA_HOME"], f"state-{os.getpid()}")
from display import COFFER, WAIT_S, Display, Failed, check, coffer, main, vms  # noqa: E402

SIZE = (1024, 768)
CELL = (6, 13)  # of the font `fixed`
PAPER, INK = (0xfe, 0xdc, 0xba), (0x12, 0x34, 0x56)
FIELD, FIELD_COLUMNS, FIELD_ROWS = (0xba, 0xfe, 0xdc), 60, 20
BOOT_S = 280
# In the lab, which has one, a second one costs more than it does.
CPUS = "1" if os.environ.get("LAB") else "2"
BEGAN = time.monotonic()
DIAGNOSIS = "cat /proc/loadavg; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done | grep . | tail -n 30; " \
            "tail -n 15 /var/log/coffer-session.log; tail -n 15 /var/log/Xorg.0.log; dmesg | tail -n 15"

# Draws a # where it is clicked (xterm's mouse reports), and writes down where that was.
CLICKED = r"""
import os, tty
tty.setraw(0)
os.write(1, b"\033[2J\033[?25l\033[?1000h")
log = os.open("/tmp/clicks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
report = b""
while True:
    report += os.read(0, 6 - len(report))
    if len(report) == 6:
        if report[:4] == b"\033[M ":
            os.write(1, b"\033[%d;%dH#" % (report[5] - 32, report[4] - 32))
            os.write(log, b"%d,%d\n" % (report[4] - 33, report[5] - 33))
        report = b""
"""


def say(text):
    print(f"{time.monotonic() - BEGAN:6.1f} s {text}", flush=True)


def sh(vm, script, user=None, **kwargs):
    user = ["--user", user] if user else []
    stdin = ["-i"] if "stdin" in kwargs else []
    return coffer("exec", *stdin, *user, vm, "--", "sh", "-c", script, **kwargs)


def until_guest(vm, script, text, pause=0.3, limit=WAIT_S):
    """Until the script succeeds in the guest."""
    try:
        sh(vm, f"until {script}; do sleep {pause}; done", limit=limit)
    except Failed:
        raise Failed(f"{vm}: waited {limit} s for {text}") from None


def colour(rgb):
    return "#%02x%02x%02x" % rgb


def terminal(d, name, size, place, paper, command):
    """An xterm of size (columns, rows) that stays when our command ends, once all of it is seen: where its first cell is. Sizes are
    exact, since it has no border and no scroll bar."""
    look = f"-fn fixed -b 0 +sb -fg '{colour(INK)}' -bg '{colour(paper)}' -geometry {size[0]}x{size[1]}{place}"
    sh(d.vm, f"cat >/tmp/{name}; LC_ALL=C.UTF-8 setsid xterm {look} -e sh /tmp/{name} </dev/null >/tmp/{name}.log 2>&1 &",
       stdin=command.encode())

    def whole(shot):
        """A cursor may be in its first cell, nothing is in its last one."""
        first, last = shot.find(paper), shot.find(paper, last=True)
        at = last and (last[0] + 1 - size[0] * CELL[0], last[1] + 1 - size[1] * CELL[1])
        return at and first[1] == at[1] and at[0] <= first[0] <= at[0] + CELL[0] and at
    return d.until(whole, f"all of the terminal '{name}'")


def has_focus(shot, at):
    """The window around it has a coloured frame, not a grey one."""
    return len(set(shot.pixel(at[0] - 2, at[1] + 40))) > 1


def field(d):
    """A terminal that shows where it is clicked."""
    sh(d.vm, "cat >/tmp/clicked.py", stdin=CLICKED.encode())
    at = terminal(d, "clicking", (FIELD_COLUMNS, FIELD_ROWS), "+60+300", FIELD, "exec python3 /tmp/clicked.py")
    until_guest(d.vm, "[ -e /tmp/clicks ]", "the program that is clicked")
    return at


def cell(shot, at, column, row):
    return shot.box(at[0] + column * CELL[0], at[1] + row * CELL[1], *CELL)


def rgb(box):
    """As the pixels of a PNG."""
    return b"".join(bytes(c for pixel in zip(*line) for c in pixel) for line in box)


def middle(at, column, row):
    return at[0] + column * CELL[0] + CELL[0] // 2, at[1] + row * CELL[1] + CELL[1] // 2


def marks(shot, at):
    """The cells that are not empty."""
    empty = cell(shot, at, FIELD_COLUMNS - 1, FIELD_ROWS - 1)
    return {(x, y) for y in range(FIELD_ROWS) for x in range(FIELD_COLUMNS) if cell(shot, at, x, y) != empty}


def click_is_shown(d, at, place):
    d.click(*middle(at, *place))
    d.until(lambda s: place in marks(s, at), f"a mark at {place}, where it was clicked")


def settled(d):
    """The screen and the cursor when nothing moves any more."""
    shot = d.still(3)
    return shot, d.cursor


def restored(name, was):
    """The display of a VM that begins with what was settled."""
    check(vms()[name]["display"] == "%dx%d" % SIZE, f"ps tells another size of {name}")
    d = Display(name)
    check(d.shot() == was[0], f"the screen of {name} has other pixels than the one before")
    check(d.cursor == was[1], f"the cursor of {name} is not the one before")
    return d


def image():
    """The name of the desktop image; without one the test is skipped."""
    found = subprocess.run([TOP + "/scripts/desktop-image.sh", "--find"], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        print("no desktop image: scripts/desktop-image.sh builds it")
        sys.exit(77)
    return found.stdout.strip()


def start(name, *options):
    """A desktop whose first terminal is there, and its display."""
    coffer("run", "--name", name, "--keep", "--image", image(), "--memory", "512M", "--cpus", CPUS, "--boot-timeout", str(BOOT_S),
           "--display", "%dx%d" % SIZE, *options, "--", "true", limit=BOOT_S + WAIT_S)
    check(vms()[name]["display"] == "%dx%d" % SIZE, "ps tells another size")
    say("it has booted")
    d = Display(name)
    coffer("screen", name, "wait", "--ready", "--timeout", str(WAIT_S), limit=2 * WAIT_S)
    d.wait(lambda: d.size() == SIZE, f"a screen of {SIZE}")
    d.until(lambda s: s.pixel(450, 300) == (255, 255, 255), "the session's terminal")
    d.until(lambda s: any(set(plane) != {255} for line in s.box(48, 64, 60, 12) for plane in line), "its prompt")
    say("the desktop is there")
    return d


def diagnose(vm):
    """What the guest is doing, and what it shows."""
    print(f"--- {vm}", flush=True)
    try:
        subprocess.run([COFFER, "exec", "--user", "root", vm, "--", "sh", "-c", DIAGNOSIS], stdin=subprocess.DEVNULL,
                       stderr=subprocess.STDOUT, check=False, timeout=WAIT_S / 5)
        if os.environ.get("LAB_OUT"):
            Display(vm).shot().write_png(f"{os.environ['LAB_OUT']}/{vm}.png")
    except (OSError, Failed, subprocess.TimeoutExpired) as e:
        print(f"{vm}: {e}", flush=True)


def run(test):
    def diagnosed():
        try:
            test()
        except Failed as e:
            say(f"FAILED: {e}")
            for vm in vms():
                diagnose(vm)
            raise
    try:
        main(diagnosed)
    finally:
        shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)
