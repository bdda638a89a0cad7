#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a remote image costs on the wire: an image of BENCH_WIRE_MIB (1024), of which 30 MiB are read. wire_ratio: bytes sent over bytes
read, headers and the layer's index included. Where this machine runs VMs, also first_output: percent of the image that has arrived when the
guest prints its first line, and wire_ratio_vm: of what the guest's kernel read of its disk."""
import json
import os
import shutil
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.realpath(__file__))
B = os.path.abspath(os.environ["B"])
sys.path.insert(0, os.path.join(HERE, "..", "tests", "harness"))
from remote import Server  # noqa: E402

HEADERS = 600  # bytes of a request and its reply besides the body, about
RUNS = 30


class Files:
    """A server of a directory that counts what it sends, without reading whole files into memory."""

    def __init__(self, root):
        self.root, self.sent, self.lock = root, 0, threading.Lock()

    def __call__(self, request):
        path = os.path.normpath(self.root + "/" + request.path)
        if not path.startswith(self.root) or not os.path.isfile(path):
            request.reply(404)
            return
        size = os.path.getsize(path)
        first, last = request.range() or (0, size - 1)
        with open(path, "rb") as f:
            f.seek(first)
            data = f.read(last + 1 - first)
        with self.lock:
            self.sent += len(data) + HEADERS
        if request.range():
            request.reply(206, data, [("Content-Range", f"bytes {first}-{last}/{size}")])
        else:
            request.reply(200, data)


def main(work):
    mib = int(os.environ.get("BENCH_WIRE_MIB", "1024"))
    coffer = os.path.join(B, "coffer")
    env = {**os.environ, "XDG_DATA_HOME": f"{work}/data", "XDG_CACHE_HOME": f"{work}/cache", "XDG_STATE_HOME": f"{work}/state",
           "NO_PROXY": "127.0.0.1", "COFFER_FETCH": os.path.join(B, "coffer-fetch")}
    root = f"{work}/root"
    busybox = shutil.which("busybox")
    for d in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "var", "files"):
        os.makedirs(f"{root}/{d}")
    if busybox:
        shutil.copy(busybox, f"{root}/bin/busybox")
        for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if applet != "busybox":
                os.symlink("busybox", f"{root}/bin/{applet}")
    with open(f"{root}/etc/passwd", "w", encoding="ascii") as f:
        f.write("root:x:0:0:root:/root:/bin/sh\n")
    for i in range(mib):
        with open(f"{root}/files/{i}", "wb") as f:
            f.write(os.urandom(1 << 20))
    run = lambda *args: subprocess.run([coffer, *args], env=env, check=True, capture_output=True, text=True).stdout
    run("image", "build", root, "--name", "made", "--root-owner")
    shutil.rmtree(root)
    made = f"{work}/data/coffer/images/made"
    subprocess.run([f"{HERE}/../tests/harness/make_layout.py", made, f"{work}/layout"], check=True)
    size = sum(layer["bytes"] for layer in json.load(open(f"{made}/manifest.json", encoding="utf-8"))["layers"])
    run("image", "rm", "made")
    files = Files(f"{work}/layout")
    server = Server(files)
    run("image", "pull", server.origin + "/", "--name", "far")
    out = subprocess.run([f"{B}/bench/layers_wire", "far", str(mib // 8), str(mib - mib // 8), str(RUNS)], env=env, check=True, stdout=subprocess.PIPE, text=True)
    read = int(out.stdout.split()[0].split("=")[1])
    figures = {"wire_ratio": f"{files.sent / read:.3f}"}
    print(f"# {size >> 20} MiB of layers, {read >> 20} MiB read, {files.sent / (1 << 20):.1f} MiB sent, pull included; {out.stdout.strip()}")
    if subprocess.run([coffer, "doctor"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        shutil.rmtree(f"{work}/cache/coffer/blobs")
        files.sent = 0
        run("image", "pull", server.origin + "/", "--name", "far", "--replace")
        step = max(1, mib // RUNS)
        script = f"echo first; i=0; while [ $i -lt {mib // step * step} ]; do cat /files/$i >/dev/null; i=$((i + {step})); done; cat /sys/block/vda/stat"
        vm = subprocess.Popen([coffer, "run", "--image", "far", "--fetch", "lazy", "--", "sh", "-c", script], env=env,
                              stdout=subprocess.PIPE, text=True)
        first = vm.stdout.readline()
        arrived = files.sent
        if first.strip() == "first":
            read = int(vm.stdout.read().split()[2]) * 512
            figures["first_output"] = f"{100 * arrived / size:.2f}"
            figures["wire_ratio_vm"] = f"{files.sent / read:.3f}"
        vm.wait()
    print(" ".join(f"{k}={v}" for k, v in figures.items()))


main(sys.argv[1])
