/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VNC viewer without a window, on libvncclient, for tests of servers.
 *
 *   vnc_client PORT ENCODINGS [PASSWORD]     of 127.0.0.1; encodings as in libvncclient: "raw", "hextile", "zrle", "tight" ...
 *
 * It says `connected WxH` or ends with 1. Commands come on stdin, one a line, answered by `ok ...` or `error`:
 *
 *   shot FILE          the picture as PPM
 *   wait FILE          the picture becomes that of a PPM file
 *   key KEYSYM DOWN [SCANCODE]    (hexadecimal; 0 or 1); with a scancode only if the server takes them
 *   pointer X Y BUTTONS
 *   cut TEXT
 *   size W H
 *
 * Lines of its own: `cut TEXT`, `size WxH`, `cursor WxH X,Y`, `leds N`, `closed`.
 */
#include <errno.h>
#include <poll.h>
#include <rfb/rfbclient.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 4096 };

struct state {
	char *password;
	char line[LINE];
	size_t used;
	char wanted[LINE]; /* file of the picture that is waited for */
	bool connected;
};

static struct state *state_of(rfbClient *c)
{
	return rfbClientGetClientData(c, (void *)(uintptr_t)state_of);
}

static char *on_password(rfbClient *c)
{
	return strdup(state_of(c)->password);
}

static rfbBool on_size(rfbClient *c)
{
	free(c->frameBuffer);
	c->frameBuffer = calloc((size_t)c->width * (size_t)c->height, 4);
	if (state_of(c)->connected)
		printf("size %dx%d\n", c->width, c->height);
	return c->frameBuffer != NULL;
}

static void on_text(rfbClient *c, const char *text, int len)
{
	(void)c;
	printf("cut %.*s\n", len, text);
}

static void on_cursor(rfbClient *c, int x, int y, int width, int height, int bytes)
{
	(void)c;
	(void)bytes;
	printf("cursor %dx%d %d,%d\n", width, height, x, y);
}

static void on_leds(rfbClient *c, int value, int pad)
{
	(void)c;
	(void)pad;
	printf("leds %d\n", value);
}

static void pixel(const rfbClient *c, size_t i, uint8_t out[3])
{
	uint32_t v;

	memcpy(&v, c->frameBuffer + i * 4, 4);
	out[0] = (uint8_t)(v >> c->format.redShift);
	out[1] = (uint8_t)(v >> c->format.greenShift);
	out[2] = (uint8_t)(v >> c->format.blueShift);
}

static bool shot(const rfbClient *c, const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return false;
	fprintf(f, "P6\n%d %d\n255\n", c->width, c->height);
	for (size_t i = 0; i < (size_t)c->width * (size_t)c->height; i++) {
		uint8_t p[3];

		pixel(c, i, p);
		fwrite(p, 3, 1, f);
	}
	return fclose(f) == 0;
}

static bool same(const rfbClient *c, const char *path)
{
	FILE *f = fopen(path, "r");
	int width, height;
	bool equal = f && fscanf(f, "P6 %d %d 255", &width, &height) == 2 && width == c->width && height == c->height && getc(f) != EOF;

	for (size_t i = 0; equal && i < (size_t)c->width * (size_t)c->height; i++) {
		uint8_t want[3], p[3];

		pixel(c, i, p);
		equal = fread(want, 3, 1, f) == 1 && !memcmp(want, p, 3);
	}
	if (f)
		fclose(f);
	return equal;
}

static void look(rfbClient *c)
{
	struct state *s = state_of(c);

	if (*s->wanted && same(c, s->wanted)) {
		printf("ok wait %s\n", s->wanted);
		*s->wanted = 0;
	}
}

static bool perform(rfbClient *c, char *line)
{
	unsigned a[3];
	char path[LINE];

	if (sscanf(line, "shot %4095s", path) == 1)
		return shot(c, path);
	if (sscanf(line, "key %x %u %x", &a[0], &a[1], &a[2]) == 3)
		return SupportsClient2Server(c, rfbQemuEvent) && SendExtendedKeyEvent(c, a[0], a[2], a[1] != 0);
	if (sscanf(line, "key %x %u", &a[0], &a[1]) == 2)
		return SendKeyEvent(c, a[0], a[1] != 0);
	if (sscanf(line, "pointer %u %u %u", &a[0], &a[1], &a[2]) == 3)
		return SendPointerEvent(c, (int)a[0], (int)a[1], (int)a[2]);
	if (!strncmp(line, "cut ", 4))
		return SendClientCutText(c, line + 4, (int)strlen(line + 4));
	if (sscanf(line, "size %u %u", &a[0], &a[1]) == 2)
		return SendExtDesktopSize(c, (uint16_t)a[0], (uint16_t)a[1]);
	return false;
}

/* False at the end of stdin. */
static bool read_commands(rfbClient *c)
{
	struct state *s = state_of(c);
	ssize_t n = read(0, s->line + s->used, LINE - 1 - s->used);
	char *end;

	if (n <= 0)
		return false;
	s->used += (size_t)n;
	s->line[s->used] = 0;
	while ((end = strchr(s->line, '\n')) != NULL) {
		*end = 0;
		if (sscanf(s->line, "wait %4095s", s->wanted) == 1)
			look(c);
		else
			printf(perform(c, s->line) ? "ok %s\n" : "error %s\n", s->line);
		s->used -= (size_t)(end + 1 - s->line);
		memmove(s->line, end + 1, s->used + 1);
	}
	return true;
}

static rfbClient *connect_to(struct state *s, int port, const char *encodings)
{
	rfbClient *c = rfbGetClient(8, 3, 4);

	if (!c)
		return NULL;
	rfbClientSetClientData(c, (void *)(uintptr_t)state_of, s);
	c->serverHost = strdup("127.0.0.1");
	c->serverPort = port;
	c->appData.encodingsString = encodings;
	c->appData.enableJPEG = FALSE;
	c->appData.useRemoteCursor = TRUE;
	c->canHandleNewFBSize = TRUE;
	c->MallocFrameBuffer = on_size;
	c->GetPassword = on_password;
	c->GotXCutText = on_text;
	c->GotCursorShape = on_cursor;
	c->HandleKeyboardLedState = on_leds;
	return rfbInitClient(c, NULL, NULL) ? c : NULL;
}

int main(int argc, char **argv)
{
	struct state s = { .password = argc > 3 ? argv[3] : NULL };
	rfbClient *c;

	signal(SIGPIPE, SIG_IGN); /* a server that has gone is `closed` */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3) {
		fprintf(stderr, "Usage: vnc_client PORT ENCODINGS [PASSWORD]\n");
		return 2;
	}
	c = connect_to(&s, atoi(argv[1]), argv[2]);
	if (!c)
		return 1;
	s.connected = true;
	printf("connected %dx%d %s\n", c->width, c->height, c->desktopName);
	for (;;) {
		struct pollfd p[2] = { { .fd = 0, .events = POLLIN }, { .fd = c->sock, .events = POLLIN } };

		/* What it has buffered is not to be seen by poll. */
		while (c->buffered > 0)
			if (!HandleRFBServerMessage(c))
				return puts("closed"), 1;
		look(c);
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (p[1].revents && !HandleRFBServerMessage(c))
			return puts("closed"), 1;
		if (p[0].revents && !read_commands(c))
			return 0;
	}
}
