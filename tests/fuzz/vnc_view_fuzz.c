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
#include "host/vnc/view.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY = 40000, MESSAGES_MAX = 600, INPUT_FROM = 0xff00 };

static void look(const struct view *v)
{
	static const uint32_t some = 64;
	uint32_t row[64];
	const struct view_surface *s = &v->surface;

	FUZZ_REQUIRE(s->width <= DISPLAY_SIZE_MAX && s->height <= DISPLAY_SIZE_MAX && (s->width == 0) == (s->height == 0));
	FUZZ_REQUIRE(s->wanted_width <= DISPLAY_SIZE_MAX && s->wanted_height <= DISPLAY_SIZE_MAX);
	for (uint32_t y = 0; y < s->height; y++)
		for (uint32_t x = 0; x < s->width; x += some)
			picture_convert(row, view_pixel(v, x, y), MIN(some, s->width - x), s->format);
	if (v->cursor.visible) {
		struct picture_cursor c;

		picture_cursor(&c, v->memory + v->cursor.offset, v->cursor.hot_x, v->cursor.hot_y);
		FUZZ_REQUIRE(c.width <= DISPLAY_CURSOR_SIZE && c.height <= DISPLAY_CURSOR_SIZE);
		FUZZ_REQUIRE(c.width == 0 || (c.hot_x < c.width && c.hot_y < c.height));
	}
	FUZZ_REQUIRE(v->ndamage <= DISPLAY_RECTS_MAX && v->count <= VIEW_QUEUE_MAX && v->head < VIEW_QUEUE_MAX);
}

/* What was held down can always be let go of, however much was moved and pressed before. */
static void act(struct view *v, uint8_t what)
{
	struct view_moment m = { .kind = what & 1, .n = 1, .motion = what & 2 };
	uint32_t before = v->count;
	bool taken;

	if (!m.motion && before >= VIEW_QUEUE_PRESS_MAX + 40)
		return;
	taken = view_input(v, &m);
	FUZZ_REQUIRE(taken || m.motion || before == VIEW_QUEUE_MAX);
	FUZZ_REQUIRE(!m.motion || v->count <= MAX(before, (uint32_t)VIEW_QUEUE_PRESS_MAX));
}

static void drain(int fd)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct view *v = calloc(1, sizeof(*v));
	uint8_t *memory = malloc(MEMORY);
	int pair[2];

	if (!v || !memory || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		abort();
	memset(memory, 0xa5, MEMORY);
	v->fd = pair[0];
	v->memory = memory;
	v->memory_size = MEMORY;
	for (int i = 0; i < MESSAGES_MAX && in.left > 0; i++) {
		size_t n = fuzz_u16(&in);
		int r;

		if (n >= INPUT_FROM) {
			act(v, (uint8_t)n);
			drain(pair[1]);
			continue;
		}
		n = MIN(n % (DISPLAY_MESSAGE_MAX + 1), in.left);
		if (n == 0 || send(pair[1], in.p, n, MSG_NOSIGNAL) != (ssize_t)n)
			continue;
		in.p += n;
		in.left -= n;
		r = view_read(v);
		FUZZ_REQUIRE(r == 1 || r == -EPROTO || r == -ECONNRESET);
		look(v);
		drain(pair[1]);
		if (r < 0)
			break;
	}
	close(pair[0]);
	close(pair[1]);
	free(memory);
	free(v);
	return 0;
}
