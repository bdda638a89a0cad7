# SPDX-License-Identifier: Apache-2.0
"""terminal.py COFFER VM: drives `coffer exec -it` on a pseudo-terminal. Used by the test exec-tty-winsize."""
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import time

COFFER, VM = sys.argv[1:]


def set_size(fd, rows, cols):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def read_until(fd, text):
    seen = b""
    while text not in seen:
        try:
            data = os.read(fd, 4096)
        except OSError:  # EIO: the other side has closed it
            data = b""
        if not data:
            raise SystemExit(f"waited for {text!r}, the terminal said {seen!r}")
        seen += data
    return seen


def start(command):
    """Its own session with a terminal; the terminal stays open here, so that its settings can be read afterwards."""
    master, slave = pty.openpty()
    set_size(slave, 33, 99)
    before = termios.tcgetattr(slave)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        os.closerange(3, 64)
        os.execv(COFFER, [COFFER, "exec", "-it", VM, "sh", "-c", command])
    return pid, master, slave, before


def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def check(what, good):
    if not good:
        raise SystemExit("FAILED: " + what)


# The command repeats its size until it is told to stop: no guess is made of when the change arrives.
pid, master, slave, before = start("while ! [ -e /tmp/tty-stop ]; do stty size; sleep 0.1; done; rm /tmp/tty-stop; exit 5")
read_until(master, b"33 99")
check("the terminal is raw while the command has it", not termios.tcgetattr(slave)[3] & termios.ICANON)
set_size(master, 40, 120)  # the kernel sends SIGWINCH
read_until(master, b"40 120")
check("the second command runs", os.spawnv(os.P_WAIT, COFFER, [COFFER, "exec", VM, "touch", "/tmp/tty-stop"]) == 0)
os.set_blocking(master, False)  # from here on output is not read; it fits into the terminal's buffer
check("the status is the command's", status_of(pid) == 5)
check("the terminal is as before", termios.tcgetattr(slave) == before)

pid, master, slave, before = start("echo ready; cat")
read_until(master, b"ready")
os.write(master, b"\x03")
check("Ctrl-C goes to the command", status_of(pid) == 130)
check("the terminal is as before", termios.tcgetattr(slave) == before)

pid, master, slave, before = start("echo ready; cat")
read_until(master, b"ready")
os.kill(pid, signal.SIGKILL)
check("it was killed", status_of(pid) == -9)
while termios.tcgetattr(slave) != before:  # the guardian's work; the runner's limit ends a wait in vain
    time.sleep(0.05)
