/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer vnc: the screen, keyboard and pointer of a VM for VNC viewers and browsers (vnc_serve.h, docs/display.md).
 *
 * Here are the options, and what has to be opened for processes that can open nothing: the certificate, passwords, pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/paths.h"
#include "host/signals.h"
#include "host/sock.h"
#include "host/vm_open.h"
#include "host/vnc_clipboard.h"
#include "host/vnc_pages.h"
#include "host/vnc_serve.h"
#include "lib/display_proto.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { FIRST_PORT = 5901, LAST_PORT = 5999, BACKLOG = 64, FINGERPRINT_MAX = 128 };

struct vnc_options {
	char *listen, *password_file, *view_password_file, *cert, *key, *socket, *keys;
	bool tls, view_only, web, json, help;
};

static const struct opt options[] = {
	OPT_STRING(struct vnc_options, listen, "listen", 0, "ADDRESS:PORT", "where (127.0.0.1, first free port from 5901)"),
	OPT_STRING(struct vnc_options, password_file, "password-file", 0, "FILE", "first line: what viewers must know"),
	OPT_STRING(struct vnc_options, view_password_file, "view-only-password-file", 0, "FILE", "the same, to look on only"),
	OPT_BOOL(struct vnc_options, tls, "tls", 0, "encrypt (VeNCrypt, https); others are refused"),
	OPT_STRING(struct vnc_options, cert, "cert", 0, "FILE", "certificate, PEM (a new self-signed one)"),
	OPT_STRING(struct vnc_options, key, "key", 0, "FILE", "its private key, PEM"),
	OPT_BOOL(struct vnc_options, view_only, "view-only", 0, "nobody can type, click or change anything"),
	OPT_STRING(struct vnc_options, keys, "keys", 0, "HOW", "characters (for a VM with the us layout), or positions (another)"),
	OPT_BOOL(struct vnc_options, web, "web", 0, "the same port serves noVNC to browsers"),
	OPT_STRING(struct vnc_options, socket, "socket", 0, "PATH", "the display that is served there, not a VM's"),
	OPT_BOOL(struct vnc_options, json, "json", 0, "say where it listens as JSON on stdout"),
	CMD_OPT_HELP(struct vnc_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "vnc [OPTIONS] ID\nvnc [OPTIONS] --socket PATH",
	.summary = "show a VM's screen to VNC viewers and browsers",
	.text = "Runs until the VM ends or it is ended (Ctrl-C). Several viewers can connect; the\n"
		"clipboard is shared with the VM's desktop, and a viewer's size becomes the screen's.\n"
		"\n"
		"Without a password everybody on this machine can connect; other addresses than\n"
		"loopback are refused then. VNC passwords have 1 to 8 characters and protect nothing\n"
		"but the login: use --tls, or ssh -L, where others can listen.",
	.options = options,
	.examples = "coffer vnc work\ncoffer vnc --web work\ncoffer vnc --listen 0.0.0.0:5901 --tls --password-file pw work",
};

/* ---- what viewers have to know ---- */

/* A secret is nobody else's to read. */
static int open_secret(const char *path, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s: not a regular file", path);
	if (st.st_mode & 077)
		return err_set(err, -EPERM, "%s: others can read it (mode %03o): chmod 600", path, (unsigned)(st.st_mode & 0777));
	return TAKE_FD(fd);
}

static int read_password(const char *path, char out[VNC_PASSWORD_MAX], struct err *err)
{
	_cleanup_close_ int fd = open_secret(path, err);
	char line[VNC_PASSWORD_MAX + 3] = "";
	size_t len;
	ssize_t n;

	if (fd < 0)
		return fd;
	n = fd_read_full(fd, line, sizeof(line) - 1);
	if (n < 0)
		return err_errno(err, (int)n, "%s", path);
	len = strcspn(line, "\r\n");
	if (len == 0)
		return err_set(err, -EINVAL, "%s: the first line is empty", path);
	if (len > VNC_PASSWORD_MAX)
		return err_set(err, -EINVAL, "%s: VNC passwords have at most %d characters; more would mean nothing", path, VNC_PASSWORD_MAX);
	memcpy(out, line, len);
	explicit_bzero(line, sizeof(line));
	return 0;
}

/* ---- the certificate ---- */

/* A run of coffer-vnc with both files; out: what it says, without the end of its line. Its exit status or -errno. */
static int ask_helper(const struct vnc_serve *s, const char *arg, int certificate, int key, char out[FINGERPRINT_MAX], struct err *err)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC), from = -1, to = -1;
	int pipe_fds[2], status;
	ssize_t n;
	pid_t pid;

	if (null < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_errno(err, -errno, "certificate");
	from = pipe_fds[0];
	to = pipe_fds[1];
	/* Above what dup2 puts there. */
	const int fds[5] = { null, to, STDERR_FILENO, fcntl(certificate, F_DUPFD_CLOEXEC, 10), fcntl(key, F_DUPFD_CLOEXEC, 10) };

	pid = vnc_spawn(s->program, arg, fds, ARRAY_SIZE(fds), err);
	fd_close(fds[3]);
	fd_close(fds[4]);
	if (pid < 0)
		return pid;
	fd_close(TAKE_FD(to));
	n = fd_read_full(from, out, FINGERPRINT_MAX - 1);
	out[MAX(n, 0)] = 0;
	out[strcspn(out, "\n")] = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_errno(err, -errno, "wait for coffer-vnc");
	return WIFEXITED(status) ? WEXITSTATUS(status) : err_set(err, -EIO, "coffer-vnc was ended by signal %d", WTERMSIG(status));
}

static int make_certificate(struct vnc_serve *s, char fingerprint[FINGERPRINT_MAX], struct err *err)
{
	int r = ask_helper(s, "--cert", s->certificate, s->key, fingerprint, err);

	if (r < 0)
		return r;
	return r > 0 || !*fingerprint ? err_set(err, -EIO, "coffer-vnc could not make a certificate") : 0;
}

/* A copy, so what was looked at is what viewers meet, whatever becomes of the file. */
static int copy_file(const char *option, const char *path, int from, int to, struct err *err)
{
	struct stat st;
	char part[4096];
	ssize_t n;
	int r = 0;

	if (fstat(from, &st) < 0)
		return err_errno(err, -errno, "%s '%s'", option, path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s '%s': not a regular file", option, path);
	if (st.st_size == 0 || st.st_size > VNC_PEM_MAX)
		return err_set(err, -EINVAL, "%s '%s': %lld bytes: a PEM file of 1 to %d is expected", option, path, (long long)st.st_size, VNC_PEM_MAX);
	while (r == 0 && (n = fd_read_full(from, part, sizeof(part))) != 0)
		r = n < 0 ? (int)n : fd_write_full(to, part, (size_t)n);
	explicit_bzero(part, sizeof(part));
	return r < 0 ? err_errno(err, r, "%s '%s'", option, path) : 0;
}

static int check_certificate(const struct vnc_serve *s, const struct vnc_options *o, struct err *err)
{
	char reason[FINGERPRINT_MAX];
	int r = ask_helper(s, "--check", s->certificate, s->key, reason, err);

	switch (r) {
	case VNC_CERT_BAD_CERTIFICATE:
		return err_set(err, -EINVAL, "--cert '%s': not a certificate in PEM: %s", o->cert, reason);
	case VNC_CERT_BAD_KEY:
		return err_set(err, -EINVAL, "--key '%s': not a private key in PEM without a passphrase: %s", o->key, reason);
	case VNC_CERT_NO_PAIR:
		return err_set(err, -EINVAL, "--key '%s': not the key of the certificate '%s': %s", o->key, o->cert, reason);
	default:
		return r > 0 ? err_set(err, -EIO, "--cert '%s': coffer-vnc could not look at it: %s", o->cert, reason) : r;
	}
}

static int open_certificate(struct vnc_serve *s, const struct vnc_options *o, char fingerprint[FINGERPRINT_MAX], struct err *err)
{
	_cleanup_close_ int certificate = -1, key = -1;
	int r;

	s->certificate = memfd_create("coffer-vnc-cert", MFD_CLOEXEC);
	s->key = memfd_create("coffer-vnc-key", MFD_CLOEXEC);
	if (s->certificate < 0 || s->key < 0)
		return err_errno(err, -errno, "certificate");
	if (!o->cert)
		return make_certificate(s, fingerprint, err);
	certificate = open(o->cert, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (certificate < 0)
		return err_errno(err, -errno, "--cert '%s'", o->cert);
	key = open_secret(o->key, err);
	if (key < 0)
		return err_prefix(err, "--key "), key;
	r = copy_file("--cert", o->cert, certificate, s->certificate, err);
	if (r == 0)
		r = copy_file("--key", o->key, key, s->key, err);
	return r < 0 ? r : check_certificate(s, o, err);
}

/* ---- the listening socket ---- */

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24 == 127;
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
	return false;
}

static int bind_to(const struct addrinfo *ai)
{
	_cleanup_close_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* "127.0.0.1:5901", "[::1]:5901". 0 or -EINVAL; *ret is to be freed by freeaddrinfo. */
static int resolve(const char *text, struct addrinfo **ret, struct err *err)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(text, ':');
	char host[256];
	size_t n = colon ? (size_t)(colon - text) : 0;
	uint64_t port;
	int r;

	if (n == 0 || n >= sizeof(host) || !colon[1])
		return err_set(err, -EINVAL, "--listen '%s': ADDRESS:PORT is expected, as 127.0.0.1:5901 or [::1]:5901", text);
	if (opt_parse_u64(colon + 1, &port) < 0 || port > UINT16_MAX)
		return err_set(err, -EINVAL, "--listen '%s': port '%s': a number up to %d is expected (0: any that is free)", text, colon + 1, UINT16_MAX);
	snprintf(host, sizeof(host), "%.*s", (int)n, text);
	if (host[0] == '[' && host[n - 1] == ']') {
		memmove(host, host + 1, n - 2);
		host[n - 2] = 0;
	} else if (strchr(host, ':')) {
		return err_set(err, -EINVAL, "--listen '%s': an IPv6 address stands in brackets, as [::1]:5901", text);
	}
	r = getaddrinfo(host, colon + 1, &hints, ret);
	return r != 0 ? err_set(err, -EINVAL, "--listen '%s': %s", text, gai_strerror(r)) : 0;
}

static int listen_at(const char *text, bool password, struct err *err)
{
	struct addrinfo *ai = NULL;
	int fd = resolve(text, &ai, err);

	if (fd < 0 || !ai)
		return fd;
	if (!is_loopback(ai->ai_addr) && !password) {
		freeaddrinfo(ai);
		return err_set(err, -EPERM, "--listen '%s': other machines could connect: give --password-file (and --tls)", text);
	}
	fd = bind_to(ai);
	freeaddrinfo(ai);
	return fd < 0 ? err_errno(err, fd, "listen on %s", text) : fd;
}

static int listen_somewhere(struct err *err)
{
	char text[32];
	int fd = -EADDRINUSE;

	for (int port = FIRST_PORT; fd == -EADDRINUSE && port <= LAST_PORT; port++) {
		snprintf(text, sizeof(text), "127.0.0.1:%d", port);
		fd = listen_at(text, false, err);
	}
	return fd;
}

static void describe_address(int fd, char *out, size_t len)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t n = sizeof(sa);
	char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

	if (getsockname(fd, (struct sockaddr *)&sa, &n) == 0)
		getnameinfo((struct sockaddr *)&sa, n, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(out, len, sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* ---- the command ---- */

struct vnc {
	struct vm_handle vm;
	bool has_vm;
	const char *socket;
	struct vnc_serve serve;
};

static int connect_display(void *opaque, struct err *err)
{
	struct vnc *v = opaque;

	if (v->socket)
		return sock_connect_path(v->socket, SOCK_SEQPACKET, err);
	return sock_connect_at(v->vm.dir.fd, DISPLAY_SOCKET, SOCK_SEQPACKET, err);
}

static int check_options(const struct vnc_options *o, int operands, struct err *err)
{
	if (operands != (o->socket ? 0 : 1))
		return err_set(err, -EINVAL, "vnc: %s: see 'coffer help vnc'", o->socket ? "--socket or a VM's ID, not both" :
				operands ? "one VM at a time" : "which VM? 'coffer ps' lists them");
	if (!o->cert != !o->key)
		return err_set(err, -EINVAL, "--cert and --key belong together");
	if (o->keys && strcmp(o->keys, "characters") != 0 && strcmp(o->keys, "positions") != 0)
		return err_set(err, -EINVAL, "--keys '%s': characters or positions are possible", o->keys);
	if (o->cert && !o->tls)
		return err_set(err, -EINVAL, "--cert: only with --tls");
	return 0;
}

static int prepare(struct vnc *v, const struct vnc_options *o, const char *id, char fingerprint[FINGERPRINT_MAX], struct err *err)
{
	struct vnc_serve *s = &v->serve;
	int r;

	if (o->socket) {
		v->socket = o->socket;
		snprintf(s->start.name, sizeof(s->start.name), "Coffer");
	} else {
		r = vm_open(id, &v->vm, err);
		if (r < 0)
			return r;
		v->has_vm = true;
		snprintf(s->start.name, sizeof(s->start.name), "%.*s", VNC_NAME_MAX, v->vm.dir.id);
	}
	s->connect = connect_display;
	s->opaque = v;
	s->display = connect_display(v, err);
	if (s->display == -ENOENT && v->has_vm)
		return err_set(err, -ENOENT, "VM '%s' has no display: start it with 'coffer run --display'", id);
	if (s->display < 0) {
		if (v->socket)
			err_prefix(err, "--socket '%.100s': ", v->socket);
		return s->display;
	}
	s->start.flags = (o->view_only ? VNC_VIEW_ONLY : 0) | (o->tls ? VNC_TLS : 0) | (o->web ? VNC_WEB : 0) |
			 (o->keys && strcmp(o->keys, "positions") == 0 ? VNC_POSITIONS : 0);
	if (o->password_file) {
		s->start.flags |= VNC_PASSWORD;
		r = read_password(o->password_file, s->start.password, err);
		if (r < 0) {
			err_prefix(err, "--password-file ");
			return r;
		}
	}
	if (o->view_password_file) {
		s->start.flags |= VNC_VIEW_PASSWORD;
		r = read_password(o->view_password_file, s->start.view_password, err);
		if (r < 0) {
			err_prefix(err, "--view-only-password-file ");
			return r;
		}
	}
	r = paths_program("coffer-vnc", "COFFER_VNC", s->program, sizeof(s->program), err);
	if (r == 0 && o->tls)
		r = open_certificate(s, o, fingerprint, err);
	if (r == 0 && o->web)
		r = s->pages = vnc_pages_make(VNC_PAGES_DIR, err);
	if (r < 0)
		return r;
	s->listener = o->listen ? listen_at(o->listen, s->start.flags & (VNC_PASSWORD | VNC_VIEW_PASSWORD), err) : listen_somewhere(err);
	return s->listener < 0 ? s->listener : 0;
}

static int announce(const struct vnc *v, const struct vnc_options *o, const char *fingerprint)
{
	char address[NI_MAXHOST + NI_MAXSERV + 8], url[sizeof(address) + 64] = "";

	describe_address(v->serve.listener, address, sizeof(address));
	if (o->web)
		snprintf(url, sizeof(url), "http%s://%s/vnc.html?autoconnect=true&resize=remote", o->tls ? "s" : "", address);
	if (o->json) {
		json_t *j = json_pack("{s:s s:s* s:s*}", "listen", address, "url", *url ? url : NULL, "fingerprint", *fingerprint ? fingerprint : NULL);

		if (!j || json_dumpf(j, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF) {
			json_decref(j);
			return cmd_failf("vnc: stdout does not take the result");
		}
		json_decref(j);
		return cmd_finish_stdout(0);
	}
	fprintf(stderr, "listening on %s\n", address);
	if (*fingerprint)
		fprintf(stderr, "certificate %s\n", fingerprint);
	if (*url)
		fprintf(stderr, "browsers: %s\n", url);
	return 0;
}

static int serve(struct vnc *v, const struct vnc_options *o, const char *id)
{
	char fingerprint[FINGERPRINT_MAX] = "";
	struct err err = ERR_INIT;
	sigset_t old;
	int r = prepare(v, o, id, fingerprint, &err), status;

	if (r < 0)
		return cmd_fail(&err);
	if (v->has_vm) {
		v->serve.clipboard = vnc_clipboard_start(id, &err);
		if (v->serve.clipboard < 0)
			return cmd_fail(&err);
	}
	signal(SIGCHLD, SIG_IGN); /* nobody asks how a connection ended */
	v->serve.signal_fd = signals_open(&old, &err);
	if (v->serve.signal_fd < 0)
		return cmd_fail(&err);
	status = announce(v, o, fingerprint);
	if (status == 0) {
		r = vnc_serve_run(&v->serve, &err);
		status = r < 0 ? cmd_fail(&err) : r > 0 ? CMD_EXIT_SIGNAL + r : 0;
		if (r == 0 && !o->json)
			fprintf(stderr, "the %s has ended\n", o->socket ? "display" : "VM");
	}
	signals_close(v->serve.signal_fd, &old);
	return status;
}

int cmd_vnc(int argc, char **argv)
{
	struct vnc_options o = { 0 };
	struct err err = ERR_INIT;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);
	struct vnc *v;

	if (first < 0)
		return status;
	if (check_options(&o, argc - first, &err) < 0)
		return cmd_fail(&err);
	v = calloc(1, sizeof(*v));
	if (!v)
		return cmd_failf("vnc: no memory");
	vnc_serve_init(&v->serve);
	status = serve(v, &o, o.socket ? NULL : argv[first]);
	vnc_serve_finish(&v->serve);
	if (v->has_vm)
		vm_close(&v->vm);
	free(v);
	return status;
}
