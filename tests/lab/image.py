# SPDX-License-Identifier: Apache-2.0
"""The lab's kernel and initramfs, made from what Debian's packages hold."""
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib

HERE = os.path.dirname(os.path.realpath(__file__))
MODULES = ["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay", "kvm-amd", "tun", "vhost_vsock"]


class LabError(Exception):
    """The lab cannot do it; the text is for the user."""


def tool(name, package):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        raise LabError(f"no {name}: install the package {package}")
    return path


def newest_kernel():
    """The newest full Debian kernel in /boot; LAB_KERNEL names another one."""
    chosen = os.environ.get("LAB_KERNEL")
    if chosen:
        return chosen
    found = [n for n in os.listdir("/boot") if re.fullmatch(r"vmlinuz-.*-amd64", n)]
    found = [n for n in found if not re.search(r"-(cloud|rt)-amd64$", n)]
    if not found:
        raise LabError("no /boot/vmlinuz-*-amd64: install the package linux-image-amd64")
    found.sort(key=lambda n: [int(x) if x.isdigit() else 0 for x in re.split(r"[.+~-]", n[len("vmlinuz-"):])])
    return "/boot/" + found[-1]


def unpack(data):
    """Data that may be compressed with any of the formats of kernels and modules."""
    if data.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run([tool("zstd", "zstd"), "-dcq"], input=data, stdout=subprocess.PIPE, check=False).stdout
    return data


def vmlinux_of(bzimage):
    """The ELF kernel inside a bzImage, or None where it cannot be taken out (then the bzImage itself boots)."""
    magic, version = struct.unpack_from("<4sH", bzimage, 0x202)
    if magic != b"HdrS" or version < 0x208:
        return None
    setup_sects = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (setup_sects + 1) * 512 + offset
    try:
        elf = unpack(bzimage[start:start + length])
    except (EOFError, lzma.LZMAError, zlib.error):
        return None
    return elf if elf.startswith(b"\x7fELF") else None


def module_files(version):
    """Paths of the modules in load order."""
    paths = []
    for name in MODULES:
        run = subprocess.run([tool("modprobe", "kmod"), "-S", version, "--show-depends", name],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise LabError(f"module {name} of {version}: {run.stderr.strip() or 'not found'}")
        for line in run.stdout.splitlines():
            word = line.split()
            if word[0] == "insmod" and word[1] not in paths:
                paths.append(word[1])
    return paths


def cpio_entry(name, mode, data=b"", dev=(0, 0)):
    raw = name.encode() + b"\0"
    head = "070701" + "".join(f"{x:08X}" for x in (
        0, mode, 0, 0, 1, 0, len(data), 0, 0, dev[0], dev[1], len(raw), 0))
    out = head.encode() + raw
    out += b"\0" * (-len(out) % 4)
    return out + data + b"\0" * (-len(data) % 4)


def build_initrd(version):
    gcc = tool(os.environ.get("LAB_CC", "gcc"), "build-essential")
    with tempfile.TemporaryDirectory(prefix="coffer-lab-") as tmp:
        out = os.path.join(tmp, "init")
        run = subprocess.run([gcc, "-static", "-O2", "-s", "-Wall", "-o", out, HERE + "/guest/init.c"],
                             stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise LabError("guest/init.c does not build:\n" + run.stderr)
        with open(out, "rb") as f:
            init = f.read()
    parts = [cpio_entry(".", 0o40755), cpio_entry("dev", 0o40755), cpio_entry("modules", 0o40755),
             cpio_entry("dev/console", 0o20600, dev=(5, 1)), cpio_entry("init", 0o100755, init)]
    for i, path in enumerate(module_files(version)):
        with open(path, "rb") as f:
            parts.append(cpio_entry(f"modules/{i:02d}-{os.path.basename(path).split('.')[0]}.ko", 0o100644,
                                    unpack(f.read())))
    parts.append(cpio_entry("TRAILER!!!", 0))
    return b"".join(parts)
