/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the lab: makes the host's root file system the machine's own, runs one command, says how it ended.
 *
 * How it works: the initramfs holds this program and the kernel modules in /modules, named in load order. Four
 * virtio-serial ports of one controller lead to tests/lab/lab on the host:
 *   1 control   out: "ready", then "start" when the request is understood, then one last line when all is over;
 *               in: the request, fields that end in NUL, the last one "end"
 *   2 input     the command's stdin, when the request has "stdin="
 *   3, 4        its stdout and stderr, raw bytes
 * Request fields: "time=SECONDS.NANOSECONDS", "seed=HEX", "stdin=", "tmpfs=DIR", "overlay=DIR" (host's files below,
 * writes go to RAM), "mkdir=DIR", "out=DIR" (the writable share), "cwd=DIR", "env=K=V", "arg=WORD".
 * The last line is "exit STATUS OUT ERR": the status as a shell counts it and the bytes sent on ports 3 and 4. The
 * host counts them, since different ports are not ordered among each other.
 *
 * The host saves the machine at "ready" and starts later labs from there, so whatever does not depend on the request
 * comes before it, and clock and random numbers are set after it.
 *
 * The command gets pipes, not the ports: a port can be opened once only, so /dev/stderr would fail. Its stragglers
 * are killed when it ends.
 *
 * Limits: the request holds at most REQUEST_MAX bytes and FIELDS_MAX words. Failures before the command starts go
 * to the console, which the host shows, and switch the machine off without a last line.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT_CONTROL = 1, PORT_IN, PORT_OUT, PORT_ERR };
enum { REQUEST_MAX = 2 << 20, FIELDS_MAX = 8192, CHUNK = 32 << 10, SEED_MAX = 256, PORT_TRIES = 10000, NOFILE_MAX = 1 << 20 };

/* One direction of a pump: read from, a buffer, write to. */
struct stream {
	int from, to;
	size_t start, end;
	unsigned long long total;
	bool eof;
	char buf[CHUNK];
};

static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	dprintf(2, "lab-init: %s\n", line);
	power_off();
	abort();
}

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		die("mkdir %s: %s", path, strerror(errno));
}

static void mount_at(const char *what, const char *where, const char *type, unsigned long flags, const char *data)
{
	if (mount(what, where, type, flags, data) < 0)
		die("mount %s on %s: %s", what, where, strerror(errno));
}

static void load_modules(void)
{
	struct dirent **names;
	int n = scandir("/modules", &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] == '.')
			continue;
		char path[300];
		snprintf(path, sizeof(path), "/modules/%s", names[i]->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
			dprintf(2, "lab-init: module %s: %s\n", names[i]->d_name, strerror(errno));
		close(fd);
	}
}

/* /dev/vportDpN: D is the number that the controller happened to get. */
static bool find_port(int nr, char *path, size_t size)
{
	struct dirent **names;
	char tail[16];
	bool found = false;
	int n = scandir("/sys/class/virtio-ports", &names, NULL, NULL);
	snprintf(tail, sizeof(tail), "p%d", nr);
	for (int i = 0; i < n; i++) {
		const char *p = strrchr(names[i]->d_name, 'p');
		if (p && !strcmp(p, tail)) {
			snprintf(path, size, "/dev/%s", names[i]->d_name);
			found = true;
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return found;
}

/* Ports appear when the driver and the machine have agreed, and take no data until both sides are open. */
static int open_port(int nr)
{
	char path[300];
	int fd = -1;
	for (int tries = 0; tries < PORT_TRIES; tries++) {
		if (fd < 0 && find_port(nr, path, sizeof(path)))
			fd = open(path, O_RDWR | O_CLOEXEC);
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		if (fd >= 0 && poll(&p, 1, 0) >= 0 && !(p.revents & POLLHUP))
			return fd;
		usleep(1000);
	}
	die("port %d: not there", nr);
}

static void read_request(int fd, char *buf, char **fields)
{
	size_t len = 0, scanned = 0, start = 0, n = 0;
	for (;;) {
		ssize_t got = read(fd, buf + len, REQUEST_MAX - len);
		if (got <= 0)
			die("request: %s after %zu bytes", got < 0 ? strerror(errno) : "ends early", len);
		len += (size_t)got;
		for (; scanned < len; scanned++) {
			if (buf[scanned])
				continue;
			if (!strcmp(buf + start, "end")) {
				fields[n] = NULL;
				return;
			}
			if (n == FIELDS_MAX)
				die("request: more than %d fields", FIELDS_MAX);
			fields[n++] = buf + start;
			start = scanned + 1;
		}
		if (len == REQUEST_MAX)
			die("request: more than %d bytes", REQUEST_MAX);
	}
}

static const char *value_of(const char *field, const char *key)
{
	size_t n = strlen(key);
	return !strncmp(field, key, n) && field[n] == '=' ? field + n + 1 : NULL;
}

static void set_clock(const char *text)
{
	struct timespec ts = { .tv_sec = strtoll(text, NULL, 10) };
	const char *dot = strchr(text, '.');
	if (dot)
		ts.tv_nsec = strtol(dot + 1, NULL, 10);
	clock_settime(CLOCK_REALTIME, &ts);
}

/* Labs that start from one saved machine must not draw the same numbers. */
static void seed_random(const char *hex)
{
	struct {
		struct rand_pool_info info;
		unsigned char bytes[SEED_MAX];
	} seed = { .info = { 0 } };
	int n = 0;
	for (unsigned int byte; n < SEED_MAX && sscanf(hex + 2 * n, "%2x", &byte) == 1; n++)
		((unsigned char *)seed.info.buf)[n] = (unsigned char)byte;
	seed.info.buf_size = n;
	seed.info.entropy_count = n * 8;
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &seed) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0)
		die("random seed: %s", strerror(errno));
	close(fd);
}

static void loopback_up(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
		dprintf(2, "lab-init: loopback: %s\n", strerror(errno));
	close(fd);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		dprintf(2, "lab-init: %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void make_devices(void)
{
	make_dir("/dev/pts");
	make_dir("/dev/shm");
	mount_at("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
	mount_at("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=75%");
	mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NOEXEC | MS_NODEV, NULL);
	static const char *const links[][2] = { { "/proc/self/fd", "/dev/fd" },
						{ "/proc/self/fd/0", "/dev/stdin" },
						{ "/proc/self/fd/1", "/dev/stdout" },
						{ "/proc/self/fd/2", "/dev/stderr" } };
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		(void)!symlink(links[i][0], links[i][1]);
	static const char *const open_to_all[] = { "/dev/kvm", "/dev/vhost-vsock", "/dev/userfaultfd", "/dev/net/tun",
						   "/dev/ptmx" };
	for (size_t i = 0; i < sizeof(open_to_all) / sizeof(open_to_all[0]); i++)
		if (chmod(open_to_all[i], 0666) < 0)
			dprintf(2, "lab-init: %s: %s\n", open_to_all[i], strerror(errno));
}

/* The host's directory below, RAM above. */
static void mount_overlay(const char *dir, int nr)
{
	char data[8192], upper[64], work[64];
	snprintf(upper, sizeof(upper), "/ram/%d.upper", nr);
	snprintf(work, sizeof(work), "/ram/%d.work", nr);
	make_dir(upper);
	make_dir(work);
	struct stat st;
	char host[4200];
	snprintf(host, sizeof(host), "/host%s", dir);
	if (stat(host, &st) < 0)
		die("%s: %s", dir, strerror(errno));
	if (chmod(upper, st.st_mode & 07777) < 0 || chown(upper, st.st_uid, st.st_gid) < 0)
		die("%s: %s", upper, strerror(errno));
	int n = snprintf(data, sizeof(data), "lowerdir=%s,upperdir=%s,workdir=%s", host, upper, work);
	if (n >= (int)sizeof(data))
		die("%s: path too long", dir);
	mount_at("overlay", host, "overlay", 0, data);
}

static void make_root(char **fields)
{
	char path[4200];
	mount_at("host", "/host", "9p", MS_RDONLY, "trans=virtio,version=9p2000.L,msize=512000,cache=loose");
	int nr = 0;
	for (char **f = fields; *f; f++) {
		const char *dir = value_of(*f, "overlay");
		if (dir)
			mount_overlay(dir, nr++);
		if ((dir = value_of(*f, "tmpfs"))) {
			snprintf(path, sizeof(path), "/host%s", dir);
			mount_at("tmpfs", path, "tmpfs", MS_NOSUID, "mode=1777,size=75%");
		}
	}
	mount_at("/dev", "/host/dev", NULL, MS_MOVE, NULL);
	mount_at("/sys", "/host/sys", NULL, MS_MOVE, NULL);
	mount_at("/proc", "/host/proc", NULL, MS_MOVE, NULL);
	for (char **f = fields; *f; f++) {
		const char *dir = value_of(*f, "mkdir");
		if (dir) {
			snprintf(path, sizeof(path), "/host%s", dir);
			make_dir(path);
		}
		if (!(dir = value_of(*f, "out")))
			continue;
		snprintf(path, sizeof(path), "/host%s", dir);
		mount_at("out", path, "9p", 0, "trans=virtio,version=9p2000.L,msize=512000,cache=mmap");
	}
	if (chdir("/host") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		die("switch root: %s", strerror(errno));
}

static pid_t start_command(char **fields, int in, int out, int err)
{
	static char *argv[FIELDS_MAX + 1], *envp[FIELDS_MAX + 1];
	size_t nargs = 0, nenv = 0;
	const char *cwd = "/", *path = "/usr/bin:/bin";
	for (char **f = fields; *f; f++) {
		const char *v;
		if ((v = value_of(*f, "arg")))
			argv[nargs++] = (char *)v;
		else if ((v = value_of(*f, "env")))
			envp[nenv++] = (char *)v;
		else if ((v = value_of(*f, "cwd")))
			cwd = v;
		if (v && value_of(v, "PATH"))
			path = value_of(v, "PATH");
	}
	if (!nargs)
		die("request: no command");
	pid_t pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid)
		return pid;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	struct rlimit files = { .rlim_cur = 1024, .rlim_max = NOFILE_MAX };
	setrlimit(RLIMIT_NOFILE, &files);
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	close_range(3, ~0U, 0);
	if (chdir(cwd) < 0) {
		dprintf(2, "lab: cwd %s: %s\n", cwd, strerror(errno));
		_exit(125);
	}
	setenv("PATH", path, 1);
	execvpe(argv[0], argv, envp);
	dprintf(2, "lab: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/* Moves what can be moved now; a writer that is gone swallows the rest. */
static void stream_step(struct stream *s)
{
	if (s->start == s->end && !s->eof) {
		ssize_t n = read(s->from, s->buf, sizeof(s->buf));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		s->start = 0;
		s->end = n > 0 ? (size_t)n : 0;
		s->eof = n <= 0;
	}
	while (s->start < s->end) {
		ssize_t n = write(s->to, s->buf + s->start, s->end - s->start);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno != EINTR) {
			s->start = s->end;
			s->eof = true;
		} else if (n > 0) {
			s->start += (size_t)n;
			s->total += (unsigned long long)n;
		}
	}
}

static void set_nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Until the command has ended and what it wrote is sent; returns its status as a shell counts it. */
static int pump(pid_t pid, int sigfd, struct stream *in, struct stream *out, struct stream *err)
{
	int status = -1;
	for (;;) {
		struct stream *const s[] = { in, out, err };
		struct pollfd p[4] = { { .fd = sigfd, .events = POLLIN } };
		for (int i = 0; i < 3; i++) {
			bool full = s[i]->start < s[i]->end;
			p[i + 1].fd = s[i]->eof && !full ? -1 : full ? s[i]->to : s[i]->from;
			p[i + 1].events = full ? POLLOUT : POLLIN;
		}
		if (poll(p, 4, -1) < 0 && errno != EINTR)
			die("poll: %s", strerror(errno));
		for (int i = 0; i < 3; i++) {
			if (p[i + 1].fd >= 0 && p[i + 1].revents)
				stream_step(s[i]);
		}
		if (in->eof && in->start == in->end && in->to >= 0) {
			close(in->to);
			in->to = -1;
		}
		if (!(p[0].revents & POLLIN))
			continue;
		struct signalfd_siginfo si;
		while (read(sigfd, &si, sizeof(si)) > 0)
			;
		int wst;
		for (pid_t got; (got = waitpid(-1, &wst, WNOHANG)) > 0;)
			if (got == pid)
				status = WIFSIGNALED(wst) ? 128 + WTERMSIG(wst) : WEXITSTATUS(wst);
		if (status >= 0)
			break;
	}
	kill(-1, SIGKILL);
	for (int i = 0; i < 2; i++) {
		struct stream *s = i ? err : out;
		unsigned long long before;
		do {
			before = s->total;
			stream_step(s);
		} while (!s->eof && s->total != before);
	}
	return status;
}

static int pipe_pair(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC) < 0)
		die("pipe: %s", strerror(errno));
	fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
	return 0;
}

int main(void)
{
	static char request[REQUEST_MAX];
	static char *fields[FIELDS_MAX + 1];
	static struct stream in = { .eof = true }, out, err;

	umask(022);
	make_dir("/proc");
	make_dir("/sys");
	make_dir("/dev");
	mount_at("proc", "/proc", "proc", MS_NOSUID | MS_NOEXEC | MS_NODEV, NULL);
	mount_at("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NOEXEC | MS_NODEV, NULL);
	if (mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL) < 0 && errno != EBUSY)
		die("mount /dev: %s", strerror(errno));
	int console = open("/dev/console", O_RDWR);
	for (int fd = 0; fd < 3 && console >= 0; fd++)
		dup2(console, fd);
	load_modules();

	make_devices();
	make_dir("/host");
	make_dir("/ram");
	mount_at("ram", "/ram", "tmpfs", 0, "mode=755,size=75%");
	loopback_up();
	(void)!sethostname("lab", 3);
	write_file("/proc/sys/vm/unprivileged_userfaultfd", "1");

	int control = open_port(PORT_CONTROL);
	int input = open_port(PORT_IN);
	out.to = open_port(PORT_OUT);
	err.to = open_port(PORT_ERR);
	dprintf(control, "ready\n");
	read_request(control, request, fields);
	bool want_stdin = false;
	for (char **f = fields; *f; f++) {
		if (value_of(*f, "time"))
			set_clock(value_of(*f, "time"));
		if (value_of(*f, "seed"))
			seed_random(value_of(*f, "seed"));
		want_stdin |= value_of(*f, "stdin") != NULL;
	}
	dprintf(control, "start\n");
	make_root(fields);

	sigset_t chld;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	int sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	signal(SIGPIPE, SIG_IGN);

	int pin[2], pout[2], perr[2];
	pipe_pair(pout);
	pipe_pair(perr);
	in.from = in.to = -1;
	if (want_stdin) {
		pipe_pair(pin);
		in.from = input;
		in.to = pin[1];
		in.eof = false;
		set_nonblock(in.from);
		set_nonblock(in.to);
	} else {
		pin[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	pid_t pid = start_command(fields, pin[0], pout[1], perr[1]);
	close(pin[0]);
	close(pout[1]);
	close(perr[1]);
	out.from = pout[0];
	err.from = perr[0];
	set_nonblock(out.from);
	set_nonblock(err.from);

	int status = pump(pid, sigfd, &in, &out, &err);
	while (waitpid(-1, NULL, 0) > 0)
		;
	for (char **f = fields; *f; f++)
		if (value_of(*f, "out") && umount2(value_of(*f, "out"), 0) < 0)
			dprintf(2, "lab-init: umount %s: %s\n", value_of(*f, "out"), strerror(errno));
	dprintf(control, "exit %d %llu %llu\n", status, out.total, err.total);
	power_off();
}
