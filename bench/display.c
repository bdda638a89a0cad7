/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a full-screen change to a viewer that has all of it, 1280x800, by encoding: through a display and coffer-vnc, and from a
 * frame buffer that libvncserver serves itself, turn by turn.
 *
 *   display DIR COFFER
 *
 * A line for each encoding: the first decile of FRAMES times, which other load on the machine changes less than the median (which of
 * the processes share a core makes two heaps of them). The last line is `vnc_ratio=` (the largest of the deciles' ratios) and `idle_cpu=`
 * (per cent of a core that coffer-vnc takes with a viewer and nothing to do).
 */
#include <poll.h>
#include <rfb/rfb.h>
#include <rfb/rfbclient.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/backend/display.h"
#include "lib/util.h"

enum { WIDTH = 1280, HEIGHT = 800, FRAMES = 101, IDLE_S = 5, PORT_OURS = 5957, PORT_THEIRS = 5958 };

static void draw(uint32_t *to, uint32_t seed)
{
	for (uint32_t y = 0; y < HEIGHT; y++)
		for (uint32_t x = 0; x < WIDTH; x++)
			to[y * WIDTH + x] = (x / 8 * 2654435761u + y / 16 * 40503u + seed * 977u) >> 9 & 0x3f3f3f;
}

/* ---- the two servers: each draws when it is told a byte ---- */

struct ours {
	struct loop loop;
	struct loop_fd in;
	struct display *d;
	uint32_t seed;
};

static void on_byte(struct loop_fd *w, uint32_t events)
{
	struct ours *o = container_of(w, struct ours, in);
	char c;

	(void)events;
	if (read(w->fd, &c, 1) != 1)
		_exit(0);
	draw((uint32_t *)(void *)display_bytes(o->d, 0, WIDTH * HEIGHT * 4), ++o->seed);
	display_damage(o->d, 0, &(struct display_rect){ 0, 0, WIDTH, HEIGHT });
	display_frame(o->d);
}

static void serve_ours(int in, const char *socket_path)
{
	struct ours *o = calloc(1, sizeof(*o));
	struct log log = { .fd = 2 };
	struct err err = ERR_INIT;
	const struct display_surface s = { 0, WIDTH, HEIGHT, WIDTH * 4, DISPLAY_B8G8R8X8 };

	if (!o || loop_init(&o->loop, &err) < 0 || display_open(&o->loop, &log, 16 << 20, 1, WIDTH, HEIGHT, socket_path, &o->d, &err) < 0 ||
	    display_alloc(o->d, WIDTH * HEIGHT * 4) != 0 || loop_add(&o->loop, &o->in, in, EPOLLIN, on_byte) < 0)
		_exit(1);
	display_scanout(o->d, 0, &s);
	display_frame(o->d);
	loop_run(&o->loop);
}

static void serve_theirs(int in)
{
	int argc = 1;
	char name[] = "bench", *argv[] = { name, NULL };
	rfbScreenInfoPtr s = rfbGetScreen(&argc, argv, WIDTH, HEIGHT, 8, 3, 4);
	uint32_t seed = 0;
	char c;

	rfbLogEnable(0);
	s->frameBuffer = calloc(WIDTH * HEIGHT, 4);
	s->serverFormat.redShift = 16;
	s->serverFormat.blueShift = 0;
	s->port = PORT_THEIRS;
	s->ipv6port = -1;
	s->listenInterface = htonl(INADDR_LOOPBACK);
	s->deferUpdateTime = 0;
	s->cursor = NULL;
	rfbInitServer(s);
	rfbRunEventLoop(s, -1, TRUE);
	while (read(in, &c, 1) == 1) {
		draw((uint32_t *)(void *)s->frameBuffer, ++seed);
		rfbMarkRectAsModified(s, 0, 0, WIDTH, HEIGHT);
	}
	_exit(0);
}

/* ---- the viewer ---- */

static void on_update(rfbClient *c, int x, int y, int w, int h)
{
	uint64_t *area = rfbClientGetClientData(c, (void *)(uintptr_t)on_update);

	(void)x;
	(void)y;
	*area += (uint64_t)w * (uint64_t)h;
}

static rfbClient *view(int port, const char *encoding, uint64_t *area)
{
	rfbClient *c = rfbGetClient(8, 3, 4);

	c->serverHost = strdup("127.0.0.1");
	c->serverPort = port;
	c->appData.encodingsString = encoding;
	c->appData.enableJPEG = FALSE;
	c->appData.useRemoteCursor = TRUE;
	c->format.redShift = 16;
	c->format.blueShift = 0;
	c->GotFrameBufferUpdate = on_update;
	rfbClientSetClientData(c, (void *)(uintptr_t)on_update, area);
	return rfbInitClient(c, NULL, NULL) ? c : NULL;
}

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "display: %s\n", why);
	exit(1);
}

static void until_all(rfbClient *c, uint64_t *area)
{
	while (*area < WIDTH * HEIGHT) {
		if (WaitForMessage(c, 1000000) < 0)
			die("a server has gone");
		if ((c->buffered > 0 || WaitForMessage(c, 0) > 0) && !HandleRFBServerMessage(c))
			die("a server breaks the protocol");
	}
	*area = 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double once(rfbClient *c, uint64_t *area, int to)
{
	uint64_t start = loop_now_ns();

	if (write(to, "x", 1) != 1)
		die("a server has gone");
	until_all(c, area);
	return (double)(loop_now_ns() - start) / 1e6;
}

static double measure(const char *encoding, const int to[2])
{
	uint64_t area[2] = { 0, 0 };
	rfbClient *c[2] = { view(PORT_OURS, encoding, &area[0]), view(PORT_THEIRS, encoding, &area[1]) };
	double ms[2][FRAMES];

	if (!c[0] || !c[1])
		die("a server does not take a viewer");
	for (int i = 0; i < 2; i++) {
		until_all(c[i], &area[i]);
		once(c[i], &area[i], to[i]);
	}
	for (int f = 0; f < FRAMES; f++)
		for (int i = 0; i < 2; i++)
			ms[i][f] = once(c[i], &area[i], to[i]);
	for (int i = 0; i < 2; i++) {
		qsort(ms[i], FRAMES, sizeof(double), compare);
		rfbClientCleanup(c[i]);
	}
	printf("%-8s %8.2f ms through a display, %8.2f ms from libvncserver's own frame buffer\n", encoding, ms[0][FRAMES / 10],
	       ms[1][FRAMES / 10]);
	fflush(stdout);
	return ms[0][FRAMES / 10] / ms[1][FRAMES / 10];
}

/* Of a process and its children, from /proc: ticks. */
static long ticks(const char *pids)
{
	char path[64];
	long sum = 0;
	int pid, n;

	for (; sscanf(pids, "%d%n", &pid, &n) == 1; pids += n) {
		unsigned long user, system;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
		f = fopen(path, "r");
		if (f && fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2)
			sum += (long)(user + system);
		if (f)
			fclose(f);
	}
	return sum;
}

static double idle(pid_t coffer)
{
	uint64_t area = 0;
	rfbClient *c = view(PORT_OURS, "zrle", &area);
	char command[64], pids[4096];
	long before;
	FILE *f;
	size_t n;

	if (!c)
		die("coffer vnc does not take a viewer");
	until_all(c, &area);
	snprintf(command, sizeof(command), "echo %d; pgrep -P %d", coffer, coffer);
	f = popen(command, "r");
	n = f ? fread(pids, 1, sizeof(pids) - 1, f) : 0;
	pids[n] = 0;
	if (f)
		pclose(f);
	before = ticks(pids);
	sleep(IDLE_S);
	return (double)(ticks(pids) - before) / (double)sysconf(_SC_CLK_TCK) / IDLE_S * 100;
}

/* No viewer stays, which would be sent to through all of what follows. */
static bool await_listener(int port)
{
	for (int tries = 0; tries < 1000; tries++) {
		uint64_t area = 0;
		rfbClient *c = view(port, "raw", &area);

		if (c) {
			rfbClientCleanup(c);
			return true;
		}
		usleep(20000);
	}
	return false;
}

int main(int argc, char **argv)
{
	static const char *const encodings[] = { "raw", "hextile", "zrle", "tight" };
	char path[4096];
	double worst = 0;
	int to[2], pipes[2];
	pid_t pid[3];

	if (argc != 3)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	rfbEnableClientLogging = FALSE;
	snprintf(path, sizeof(path), "%s/display.sock", argv[1]);
	for (int i = 0; i < 3; i++) {
		if (pipe(pipes) < 0)
			return 1;
		pid[i] = fork();
		if (pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGTERM);
			close(pipes[1]);
			if (i == 0)
				serve_ours(pipes[0], path);
			if (i == 1)
				serve_theirs(pipes[0]);
			for (int tries = 0; access(path, F_OK) < 0 && tries < 1000; tries++)
				usleep(10000);
			execl(argv[2], argv[2], "vnc", "--socket", path, "--listen", "127.0.0.1:5957", (char *)NULL);
			_exit(1);
		}
		if (i < 2)
			to[i] = pipes[1];
	}
	if (!await_listener(PORT_OURS) || !await_listener(PORT_THEIRS))
		die("a server does not listen after 20 s");
	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++)
		worst = MAX(worst, measure(encodings[i], to));
	double cpu = idle(pid[2]);

	printf("vnc_ratio=%.2f idle_cpu=%.2f\n", worst, cpu);
	for (int i = 0; i < 3; i++)
		kill(pid[i], SIGTERM);
	return 0;
}
