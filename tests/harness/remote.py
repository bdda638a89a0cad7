# SPDX-License-Identifier: Apache-2.0
"""For tests of what reads over HTTP: a server that misbehaves on request, a blob of the cache made from the format's own
description (docs/remote.md), and a client of coffer-fetch."""
import hashlib
import http.server
import json
import os
import random
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import traceback

BUILD = os.environ["B"]
FETCH = os.path.join(BUILD, "coffer-fetch")
SHIFT, CHUNK, HEADER = 14, 1 << 14, 4096
WANT, ARRIVED, NOTE, WHOLE = 1, 2, 3, 4
PATIENCE = 300 if os.environ.get("LAB") else 60  # seconds until a test gives up: no measure of anything


def check(ok, text="not as it should be"):
    if not ok:
        raise AssertionError(text)


def until(condition, text="it did not happen"):
    """Wait for something that another process does, which nothing announces."""
    end = time.monotonic() + PATIENCE
    while not condition():
        check(time.monotonic() < end, text)
        time.sleep(0.002)


def environment(**more):
    """Of programs under test: no proxies; and no search for leaks at the end, which takes calls that coffer-fetch's jail forbids."""
    base = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return {**base, "ASAN_OPTIONS": "detect_leaks=0", **more}


def run_cases(cases):
    """Run the functions, say which fail, exit."""
    bad = 0
    for case in cases:
        # a browser's children may write on for a moment after it has ended
        with tempfile.TemporaryDirectory(dir=os.environ.get("T"), ignore_cleanup_errors=True) as scratch:
            os.environ["SCRATCH"] = scratch
            try:
                case()
            except Exception:  # the next cases tell something too
                bad += 1
                print(f"FAILED: {case.__name__}: {case.__doc__ or ''}")
                traceback.print_exc()
    print(f"{len(cases) - bad} of {len(cases)} passed")
    raise SystemExit(1 if bad else 0)


def content(size, seed=1):
    return random.Random(seed).randbytes(size)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def range(self):
        r = self.headers.get("Range")
        if not r:
            return None
        first, _, last = r.removeprefix("bytes=").partition("-")
        return int(first), int(last)

    def reply(self, status, body=b"", headers=(), length=None):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def give(self, data, shift=0, headers=()):
        """The data, or the wanted range of it; `shift` sends the range so many bytes further on."""
        wanted = self.range()
        if wanted is None:
            self.reply(200, data, headers)
            return
        first, last = wanted[0] + shift, min(wanted[1] + shift, len(data) - 1)
        self.reply(206, data[first:last + 1], [*headers, ("Content-Range", f"bytes {first}-{last}/{len(data)}")])

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def do_GET(self):
        self.server.seen(self)
        try:
            self.server.answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    """answer(request) decides. Of each request, `requests` has (path, range, Authorization)."""
    daemon_threads = True

    def __init__(self, answer, tls=None, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.answer = answer
        self.requests = []
        self.lock = threading.Condition()
        self.scheme = "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            self.scheme = "https"
        self.port = self.server_address[1]
        self.origin = f"{self.scheme}://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def seen(self, handler):
        with self.lock:
            self.requests.append((handler.path, handler.range(), handler.headers.get("Authorization")))
            self.lock.notify_all()

    def wait_requests(self, n):
        with self.lock:
            check(self.lock.wait_for(lambda: len(self.requests) >= n, PATIENCE), f"fewer than {n} requests")

    def bytes_asked(self):
        return sum(r[1][1] - r[1][0] + 1 for r in self.requests if r[1])

    def end(self):
        self.shutdown()
        self.server_close()


def make_tls(directory):
    """A CA and a certificate for 127.0.0.1: (path of the CA, (certificate, key))."""
    path = lambda name: os.path.join(directory, name)
    run = lambda *args: subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(path("ext"), "w", encoding="ascii") as f:
        f.write("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=Test CA",
        "-keyout", path("ca.key"), "-out", path("ca.pem"), "-days", "2")
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=127.0.0.1",
        "-keyout", path("key"), "-out", path("csr"))
    run("x509", "-req", "-in", path("csr"), "-CA", path("ca.pem"), "-CAkey", path("ca.key"), "-CAcreateserial", "-days", "2",
        "-extfile", path("ext"), "-out", path("cert"))
    return path("ca.pem"), (path("cert"), path("key"))


class Blob:
    """One blob in a cache directory, made by the test itself."""

    def __init__(self, data, url, cache=None, sha256=None, auth=0, size=None):
        self.content, self.url, self.auth = data, url, auth
        self.size = size or len(data)
        self.sha256 = sha256 or hashlib.sha256(data).hexdigest()
        self.n = (self.size + CHUNK - 1) // CHUNK
        self.cache = cache or os.path.join(os.environ["SCRATCH"], "blobs")
        self.dir = os.path.join(self.cache, "sha256-" + self.sha256)
        if not os.path.exists(self.dir):
            os.makedirs(self.dir)
            with open(self.path("data"), "wb") as f:
                f.truncate(self.size)
            with open("/proc/sys/kernel/random/boot_id", "rb") as f:
                boot = f.read().strip()
            with open(self.path("chunks"), "wb") as f:
                f.write(struct.pack("<8sIIQIIIIQ40s", b"CofChnk1", 1, SHIFT, self.size, 0, 0, 0, 0, 0, boot))
                f.truncate(HEADER + 4 * self.n)

    def path(self, name):
        return os.path.join(self.dir, name)

    def open(self):
        import fcntl  # only here
        fds = [os.open(self.path(name), os.O_RDWR) for name in ("data", "chunks")]
        fcntl.flock(fds[1], fcntl.LOCK_SH)
        return fds

    def generations(self):
        with open(self.path("chunks"), "rb") as f:
            f.seek(HEADER)
            return struct.unpack(f"<{self.n}I", f.read(4 * self.n))

    def verified(self):
        with open(self.path("chunks"), "rb") as f:
            return struct.unpack_from("<I", f.read(28), 24)[0] & 1

    def right(self, first, n=1):
        """Are these chunks there, with the right content?"""
        with open(self.path("data"), "rb") as f:
            f.seek(first * CHUNK)
            data = f.read(n * CHUNK)
        return all(self.generations()[first:first + n]) and data == self.content[first * CHUNK:(first + n) * CHUNK]


class Fetcher:
    """coffer-fetch serve, and `sock`, the first of its clients."""

    def __init__(self, blobs, clients=1, auth=None, **config):
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(clients)]
        self.socks = [p[0] for p in pairs]
        self.sock = self.socks[0]
        self.sock.settimeout(PATIENCE)
        files = [b.open() for b in blobs]
        cache = os.open(blobs[0].cache, os.O_RDONLY)
        origins = auth or [{"origin": "/".join(blobs[0].url.split("/")[:3])}]
        text = json.dumps({
            "sockets": [p[1].fileno() for p in pairs], "cache": cache, "auth": origins, "fetch": "lazy", "timeout_ms": 30000,
            "backoff_min_ms": 5, "backoff_max_ms": 50, "note_ms": 20, "idle_ms": 1,
            "blobs": [{"data": f[0], "chunks": f[1], "url": b.url, "auth": b.auth, "sha256": b.sha256, "size": b.size}
                      for b, f in zip(blobs, files)], **config})
        self.log = tempfile.TemporaryFile()
        keep = [p[1].fileno() for p in pairs] + [cache] + [fd for f in files for fd in f]
        self.process = subprocess.Popen([FETCH, "serve"], stdin=subprocess.PIPE, stderr=self.log, pass_fds=keep, env=environment())
        self.process.stdin.write(text.encode())
        self.process.stdin.close()
        for p in pairs:
            p[1].close()
        for fd in [cache] + [fd for f in files for fd in f]:
            os.close(fd)

    def want(self, blob, first, n=1, sock=None):
        (sock or self.sock).send(struct.pack("<4I", WANT, blob, first, n))

    def message(self, sock=None):
        """(type, blob, ...) or None at the end."""
        m = (sock or self.sock).recv(64)
        if not m:
            return None
        kind = struct.unpack_from("<I", m)[0]
        check(len(m) == {ARRIVED: 24, NOTE: 16, WHOLE: 16}[kind], f"a message {kind} of {len(m)} bytes")
        return struct.unpack("<4Ii4x" if kind == ARRIVED else "<2IiI", m)

    def answers(self, n, notes=None):
        """The results of so many chunks, by (blob, chunk); each comes once."""
        out = {}
        while len(out) < n:
            m = self.message()
            check(m is not None, "coffer-fetch ended: " + self.said())
            if m[0] == NOTE and notes is not None:
                notes.append(m)
            if m[0] != ARRIVED:
                continue
            for c in range(m[2], m[2] + m[3]):
                check((m[1], c) not in out, f"chunk {c} is answered twice")
                out[m[1], c] = m[4]
        return out

    def ask(self, first, n=1, blob=0, notes=None):
        """Want chunks, and the set of results that came."""
        self.want(blob, first, n)
        return set(self.answers(n, notes).values())

    def whole(self, blob=0):
        """Wait until the blob is complete; its result."""
        while True:
            m = self.message()
            check(m is not None, "coffer-fetch ended: " + self.said())
            if m[0] == WHOLE and m[1] == blob:
                return m[2]

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def end(self):
        """Close the sockets; it ends by itself, with status 0."""
        for s in self.socks:
            s.close()
        check(self.process.wait(PATIENCE) == 0, f"status {self.process.returncode}: {self.said()}")
        return self.said()
