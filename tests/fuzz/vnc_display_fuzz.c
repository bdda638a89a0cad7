/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-vnc with a monitor that was taken over by its guest: any messages on display.sock, between them input of the viewer's.
 *
 * Whatever is taken as a picture or a cursor lies in the memory (all of it is read), has a size that a display can have, and the
 * queue of input stays within its bounds. The input is: length and bytes of a message, or a number of INPUT_FROM and more for input, and so on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vnc/picture.h"
#include "host/vnc/queue.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY = 40000, MESSAGES_MAX = 600, INPUT_FROM = 0xff00 };

static void look(const struct display_client *c)
{
	static const uint32_t some = 64;
	uint32_t row[64];
	const struct display_client_scanout *s = &c->scanout[0];

	FUZZ_REQUIRE(s->width <= DISPLAY_SIZE_MAX && s->height <= DISPLAY_SIZE_MAX && (s->width == 0) == (s->height == 0));
	FUZZ_REQUIRE(s->wanted_width <= DISPLAY_SIZE_MAX && s->wanted_height <= DISPLAY_SIZE_MAX);
	for (uint32_t y = 0; y < s->height; y++)
		for (uint32_t x = 0; x < s->width; x += some)
			picture_convert(row, s->pixels + (size_t)y * s->stride + (size_t)x * 4, MIN(some, s->width - x), s->format);
	if (s->cursor.visible) {
		struct picture_cursor p;

		picture_cursor(&p, s->cursor.image, s->cursor.hot_x, s->cursor.hot_y);
		FUZZ_REQUIRE(p.width <= DISPLAY_CURSOR_SIZE && p.height <= DISPLAY_CURSOR_SIZE);
		FUZZ_REQUIRE(p.width == 0 || (p.hot_x < p.width && p.hot_y < p.height));
	}
	FUZZ_REQUIRE(s->ndamage <= DISPLAY_RECTS_MAX);
	for (uint32_t i = 0; i < s->ndamage; i++) {
		const struct display_client_rect *r = &s->damage[i];

		FUZZ_REQUIRE(r->x < s->width && r->y < s->height && r->width <= s->width - r->x && r->height <= s->height - r->y);
	}
}

/* What was held down can always be let go of, however much was moved and pressed before. */
static void act(struct queue *q, uint8_t what)
{
	struct queue_moment m = { .kind = what & 1, .n = 1, .motion = what & 2 };
	uint32_t before = q->count;
	bool taken;

	if (!m.motion && before >= QUEUE_PRESS_MAX + 40)
		return;
	taken = queue_put(q, &m);
	FUZZ_REQUIRE(taken || m.motion || before == QUEUE_MAX);
	FUZZ_REQUIRE(!m.motion || q->count <= MAX(before, (uint32_t)QUEUE_PRESS_MAX));
	FUZZ_REQUIRE(q->count <= QUEUE_MAX && q->head < QUEUE_MAX);
}

static void drain(int fd)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

/* One step: false when the connection is over. */
static bool step(struct fuzz_input *in, struct queue *q, int monitor)
{
	size_t n = fuzz_u16(in);
	int r;

	if (n >= INPUT_FROM) {
		act(q, (uint8_t)n);
		drain(monitor);
		return true;
	}
	n = MIN(n % (DISPLAY_MESSAGE_MAX + 1), in->left);
	if (n == 0 || send(monitor, in->p, n, MSG_NOSIGNAL) != (ssize_t)n)
		return true;
	in->p += n;
	in->left -= n;
	r = display_client_read(q->display, NULL);
	FUZZ_REQUIRE(r > 0 || r == -EPROTO || r == -ECONNRESET);
	if (r > 0 && r & DISPLAY_CLIENT_TAKEN)
		queue_go_on(q);
	look(q->display);
	drain(monitor);
	return r > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct display_client c = { .scanouts = 1 };
	struct queue *q = calloc(1, sizeof(*q));
	uint8_t *memory = malloc(MEMORY);
	int pair[2];

	if (!q || !memory || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) < 0)
		abort();
	memset(memory, 0xa5, MEMORY);
	c.fd = pair[0];
	c.memory = memory; /* of the heap, whose bounds a sanitizer knows */
	c.memory_size = MEMORY;
	q->display = &c;
	for (int i = 0; i < MESSAGES_MAX && in.left > 0 && step(&in, q, pair[1]); i++)
		;
	fd_close(pair[0]);
	fd_close(pair[1]);
	free(memory);
	free(q);
	return 0;
}
