# SPDX-License-Identifier: Apache-2.0
"""TigerVNC's viewer on an X server of its own, for tests of `coffer vnc`."""
import os
import shutil
import subprocess

from remote import check, environment, until
from vnc import scratch

PROGRAMS = ["Xvfb", "xtigervncviewer", "xwd", "xwininfo", "xdotool", "xclip", "setxkbmap"]


def missing():
    """The first program that is not installed, or None."""
    return next((p for p in PROGRAMS if not shutil.which(p)), None)


class Screen:
    """An X server that is larger than the picture, and the viewer on it."""

    def __init__(self, size=(640, 480), name="Coffer"):
        self.width, self.height = size
        self.title = name + " - TigerVNC"
        self.seen = "nothing"

    def __enter__(self):
        read, write = os.pipe()
        self.x = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", f"{self.width + 384}x{self.height + 288}x24", "-nolisten", "tcp",
                                   "-noreset"],  # when xwd is its only client and goes it would throw out who is just coming
                                  pass_fds=[write],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as f:
            number = f.readline().strip()
        check(number, "Xvfb did not start")
        home = scratch("home")
        os.makedirs(home, exist_ok=True)
        self.env = environment(DISPLAY=f":{number}", HOME=home)
        self.viewer = None
        return self

    def __exit__(self, *_):
        if self.viewer:
            self.viewer.kill()  # with a question open it does not take a milder word
            self.viewer.wait(30)
        self.x.terminate()
        self.x.wait(30)

    def view(self, server, *options):
        self.log = open(scratch("viewer.log"), "w", encoding="utf-8")
        self.viewer = subprocess.Popen(["xtigervncviewer", "-AutoSelect=0", "-PreferredEncoding=ZRLE", "-NoJPEG", "-FullColor", "-RemoteResize=0",
                                        "-geometry", f"{self.width}x{self.height}+0+0", *options, f"127.0.0.1::{server.port}"],
                                       env=self.env, stdout=self.log, stderr=self.log)

    def picture(self):
        """The viewer's window as rows of (r, g, b) bytes, from xwd's format; none while there is no window."""
        data = subprocess.run(["xwd", "-name", self.title, "-silent"], env=self.env, capture_output=True).stdout
        if len(data) < 100:
            return []
        head = [int.from_bytes(data[i:i + 4], "big") for i in range(0, 100, 4)]
        size, width, height, order, stride, colours = head[0], head[4], head[5], head[7], head[12], head[19]
        check(head[11] == 32 and order == 0, "xwd: another format")
        at = size + 12 * colours
        rows = []
        for y in range(height):
            row, rgb = data[at + y * stride:at + y * stride + 4 * width], bytearray(3 * width)
            rgb[0::3], rgb[1::3], rgb[2::3] = row[2::4], row[1::4], row[0::4]
            rows.append(bytes(rgb))
        return rows

    def shows(self, rgb):
        """Exactly this picture, in bytes of R, G, B."""
        rows, n = self.picture(), self.width * 3
        wrong = [y for y in range(self.height) if y >= len(rows) or rows[y][:n] != rgb[y * n:(y + 1) * n]]
        self.seen = f"{len(rows)} rows, wrong ones: {wrong[:5]} and so on, {len(wrong)} in all"
        return not wrong

    def diagnosis(self):
        windows = subprocess.run(["xwininfo", "-root", "-tree"], env=self.env, capture_output=True, text=True).stdout
        return f"the viewer does not show the picture: {self.seen}\n{windows}\n{self.said()[-1500:]}"

    def do(self, *words):
        subprocess.run(["xdotool", *words], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def said(self):
        with open(scratch("viewer.log"), encoding="utf-8") as f:
            return f.read()

    def wait(self, truth):
        """Until it shows what is in this PPM file."""
        with open(truth, "rb") as f:
            rgb = f.read()[-self.width * self.height * 3:]
        try:
            until(lambda: self.shows(rgb))
        except AssertionError:
            raise AssertionError(self.diagnosis()) from None

    def focus(self):
        self.do("search", "--name", self.title, "windowfocus")  # there is no window manager

    def copy(self, text):
        subprocess.run(["xclip", "-selection", "clipboard"], env=self.env, input=text.encode(), check=True)

    def pasted(self):
        r = subprocess.run(["timeout", "10", "xclip", "-selection", "clipboard", "-o"], env=self.env, capture_output=True)
        return r.stdout.decode()
