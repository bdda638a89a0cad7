/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A display without a VM: the other side of viewers, screen shots and recordings in their tests.
 *
 *   display_pattern SOCKET [WIDTHxHEIGHT]
 *
 * It serves SOCKET as a monitor does and says `ready`. All input is taken at once and printed; a mode that a client asks for is
 * printed and obeyed. Commands come on stdin, one a line; each is answered by a line `ok ...` or `error`:
 *
 *   pattern N          0: gradients and blocks, 1: noise, 2: text-like, 3: one colour; the whole picture, one frame
 *   rect X Y W H RRGGBB  fills, one frame
 *   size W H           another surface, with the last pattern
 *   format F           enum display_format, with the last pattern
 *   off                nothing is shown
 *   cursor N | hide    an image (N = 0, 1), the hot spot is at 3,5
 *   move X Y           the cursor
 *   leds N
 *   hold | take        input is not taken until then
 *   dump FILE          the picture as PPM
 *   frames N           N frames of noise as fast as possible
 *
 * Lines of its own: `input KIND TYPE CODE VALUE` for each event, `end KIND` after each moment, `mode SCANOUT W H`.
 * It ends with stdin.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/input-event-codes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/backend/display.h"
#include "lib/util.h"

enum { MEMORY = 128 << 20, LINE = 4096 };

struct pattern {
	struct loop loop;
	struct log log;
	struct display *d;
	struct loop_fd in;
	struct display_surface s;
	int64_t surface, cursor;
	uint32_t kind, seed;
	bool hold;
	char line[LINE];
	size_t used;
	struct input {
		struct pattern *p;
		enum display_input_kind kind;
	} input[DISPLAY_INPUT_KINDS];
};

static uint32_t noise(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352d;
	x ^= x >> 15;
	x *= 0x846ca68b;
	return x ^ x >> 16;
}

/* 0xRRGGBB */
static uint32_t colour(const struct pattern *p, uint32_t x, uint32_t y)
{
	switch (p->kind) {
	case 0:
		if ((x / 32 + y / 32) % 3 == 0)
			return ((x / 32 * 37) & 255) << 16 | ((y / 32 * 53) & 255) << 8 | ((x / 32 + y / 32) * 29 & 255);
		return (x * 255 / p->s.width) << 16 | (y * 255 / p->s.height) << 8 | ((x + y + p->seed) & 255);
	case 1:
		return noise(x + y * 8192 + p->seed * 77777) & 0xffffff;
	case 2:
		return noise(x / 2 + y / 3 * 4096 + p->seed) % 4 == 0 && y % 16 > 3 && x % 9 > 1 ? 0x101010 : 0xf0f0e0;
	default:
		return 0x204060 + p->seed;
	}
}

static void put(struct pattern *p, uint32_t x, uint32_t y, uint32_t rgb)
{
	uint8_t *b = display_bytes(p->d, p->s.offset, (uint64_t)p->s.stride * p->s.height) + (size_t)y * p->s.stride + (size_t)x * 4;
	uint8_t red = (uint8_t)(rgb >> 16), green = (uint8_t)(rgb >> 8), blue = (uint8_t)rgb;

	switch (p->s.format) {
	case DISPLAY_A8R8G8B8:
	case DISPLAY_X8R8G8B8:
		b[0] = 255, b[1] = red, b[2] = green, b[3] = blue;
		break;
	case DISPLAY_R8G8B8A8:
	case DISPLAY_R8G8B8X8:
		b[0] = red, b[1] = green, b[2] = blue, b[3] = 255;
		break;
	case DISPLAY_X8B8G8R8:
	case DISPLAY_A8B8G8R8:
		b[0] = 255, b[1] = blue, b[2] = green, b[3] = red;
		break;
	default:
		b[0] = blue, b[1] = green, b[2] = red, b[3] = 255;
	}
}

static uint32_t get(const struct pattern *p, uint32_t x, uint32_t y)
{
	const uint8_t *b =
		display_bytes(p->d, p->s.offset, (uint64_t)p->s.stride * p->s.height) + (size_t)y * p->s.stride + (size_t)x * 4;

	switch (p->s.format) {
	case DISPLAY_A8R8G8B8:
	case DISPLAY_X8R8G8B8:
		return (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
	case DISPLAY_R8G8B8A8:
	case DISPLAY_R8G8B8X8:
		return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
	case DISPLAY_X8B8G8R8:
	case DISPLAY_A8B8G8R8:
		return (uint32_t)b[3] << 16 | (uint32_t)b[2] << 8 | b[1];
	default:
		return (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0];
	}
}

static void draw(struct pattern *p)
{
	for (uint32_t y = 0; y < p->s.height; y++)
		for (uint32_t x = 0; x < p->s.width; x++)
			put(p, x, y, colour(p, x, y));
}

static uint64_t flush(struct pattern *p, uint32_t x, uint32_t y, uint32_t width, uint32_t height)
{
	display_damage(p->d, 0, &(struct display_rect){ x, y, width, height });
	return display_frame(p->d);
}

/* Another surface of this size, with a stride that is more than its width. */
static bool show(struct pattern *p, uint32_t width, uint32_t height)
{
	uint32_t stride = width * 4 + 64;
	int64_t at;

	if (width < 1 || height < 1 || width > DISPLAY_SIZE_MAX || height > DISPLAY_SIZE_MAX)
		return false;
	at = display_alloc(p->d, (uint64_t)stride * height);
	if (at < 0)
		return false;
	p->s = (struct display_surface){ (uint64_t)at, width, height, stride, p->s.format };
	draw(p);
	display_scanout(p->d, 0, &p->s);
	display_frame(p->d);
	if (p->surface >= 0)
		display_free(p->d, (uint64_t)p->surface);
	p->surface = at;
	return true;
}

/* Image 0 is an opaque arrow-like wedge, image 1 a translucent square. */
static void cursor(struct pattern *p, uint32_t n)
{
	uint32_t *image = (uint32_t *)(void *)display_bytes(p->d, (uint64_t)p->cursor, DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE * 4);

	for (uint32_t y = 0; y < DISPLAY_CURSOR_SIZE; y++)
		for (uint32_t x = 0; x < DISPLAY_CURSOR_SIZE; x++)
			image[y * DISPLAY_CURSOR_SIZE + x] = n == 0 ? (x <= y && y < 16 ? 0xffff0000u : 0) : x < 20 && y < 20 ? 0x80008000u : 0;
	display_cursor_image(p->d, 0, (uint64_t)p->cursor, 3, 5);
}

static bool dump(const struct pattern *p, const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return false;
	fprintf(f, "P6\n%u %u\n255\n", p->s.width, p->s.height);
	for (uint32_t y = 0; y < p->s.height; y++)
		for (uint32_t x = 0; x < p->s.width; x++) {
			uint32_t c = get(p, x, y);

			putc((int)(c >> 16 & 255), f);
			putc((int)(c >> 8 & 255), f);
			putc((int)(c & 255), f);
		}
	return fclose(f) == 0;
}

static void take(struct pattern *p)
{
	for (unsigned i = 0; i < DISPLAY_INPUT_KINDS; i++)
		display_taken(p->d, (enum display_input_kind)i);
}

static bool fill(struct pattern *p, const unsigned *a)
{
	if (a[0] >= p->s.width || a[1] >= p->s.height || a[2] > p->s.width - a[0] || a[3] > p->s.height - a[1])
		return false;
	for (uint32_t y = a[1]; y < a[1] + a[3]; y++)
		for (uint32_t x = a[0]; x < a[0] + a[2]; x++)
			put(p, x, y, a[4]);
	flush(p, a[0], a[1], a[2], a[3]);
	return true;
}

static void frames(struct pattern *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		p->seed++;
		draw(p);
		flush(p, 0, 0, p->s.width, p->s.height);
		loop_step(&p->loop, 0);
	}
}

static bool perform(struct pattern *p, const char *line)
{
	unsigned a[5];
	char path[LINE];

	if (sscanf(line, "pattern %u %u", &a[0], &a[1]) >= 1) {
		p->kind = a[0];
		draw(p);
		flush(p, 0, 0, p->s.width, p->s.height);
		return true;
	}
	if (sscanf(line, "rect %u %u %u %u %x", &a[0], &a[1], &a[2], &a[3], &a[4]) == 5)
		return fill(p, a);
	if (sscanf(line, "size %u %u", &a[0], &a[1]) == 2)
		return show(p, a[0], a[1]);
	if (sscanf(line, "format %u", &a[0]) == 1) {
		p->s.format = a[0];
		return show(p, p->s.width, p->s.height);
	}
	if (!strcmp(line, "off"))
		return display_scanout(p->d, 0, NULL), display_frame(p->d), true;
	if (sscanf(line, "cursor %u", &a[0]) == 1)
		return cursor(p, a[0]), true;
	if (!strcmp(line, "hide"))
		return display_cursor_hide(p->d, 0), true;
	if (sscanf(line, "move %u %u", &a[0], &a[1]) == 2)
		return display_cursor_move(p->d, 0, a[0], a[1]), true;
	if (sscanf(line, "leds %u", &a[0]) == 1)
		return display_leds(p->d, a[0]), true;
	if (!strcmp(line, "hold"))
		return p->hold = true, true;
	if (!strcmp(line, "take"))
		return p->hold = false, take(p), true;
	if (sscanf(line, "dump %4095s", path) == 1)
		return dump(p, path);
	if (sscanf(line, "frames %u", &a[0]) == 1)
		return frames(p, a[0]), true;
	return false;
}

static void on_stdin(struct loop_fd *w, uint32_t events)
{
	struct pattern *p = container_of(w, struct pattern, in);
	ssize_t n = read(w->fd, p->line + p->used, LINE - 1 - p->used);
	char *end;

	(void)events;
	if (n <= 0) {
		loop_stop(&p->loop);
		return;
	}
	p->used += (size_t)n;
	p->line[p->used] = 0;
	while ((end = strchr(p->line, '\n')) != NULL) {
		*end = 0;
		printf(perform(p, p->line) ? "ok %s\n" : "error %s\n", p->line);
		p->used -= (size_t)(end + 1 - p->line);
		memmove(p->line, end + 1, p->used + 1);
	}
}

static void on_mode(void *opaque, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct pattern *p = opaque;

	printf("mode %u %u %u\n", scanout, width, height);
	display_wanted(p->d, scanout, width, height);
	show(p, width, height);
}

static int on_inject(void *opaque, const struct display_input_event *event, size_t n)
{
	const struct input *in = opaque;

	for (size_t i = 0; i < n; i++)
		if (le16_get(event[i].type) == EV_SYN)
			printf("end %d\n", in->kind);
		else
			printf("input %d %u %u %d\n", in->kind, le16_get(event[i].type), le16_get(event[i].code), (int)le32_get(event[i].value));
	printf("end %d\n", in->kind);
	if (!in->p->hold)
		display_taken(in->p->d, in->kind);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct display_gpu_ops gpu = { .mode = on_mode };
	static const struct display_input_ops input = { .inject = on_inject };
	struct pattern *p = calloc(1, sizeof(*p));
	struct err err = ERR_INIT;
	unsigned width = 1280, height = 800;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!p || argc < 2 || (argc > 2 && sscanf(argv[2], "%ux%u", &width, &height) != 2)) {
		fprintf(stderr, "Usage: display_pattern SOCKET [WIDTHxHEIGHT]\n");
		return 2;
	}
	p->log = (struct log){ .fd = 2, .level = LOG_INFO, .prefix = "display_pattern" };
	p->surface = -1;
	p->s.format = DISPLAY_B8G8R8X8;
	if (loop_init(&p->loop, &err) < 0 || display_open(&p->loop, &p->log, MEMORY, 1, width, height, argv[1], &p->d, &err) < 0) {
		fprintf(stderr, "display_pattern: %s\n", err.text);
		return 1;
	}
	display_set_gpu(p->d, &gpu, p);
	for (unsigned i = 0; i < DISPLAY_INPUT_KINDS; i++) {
		p->input[i] = (struct input){ p, (enum display_input_kind)i };
		display_set_input(p->d, (enum display_input_kind)i, &input, &p->input[i]);
	}
	p->cursor = display_alloc(p->d, DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE * 4);
	if (p->cursor < 0 || !show(p, width, height) || loop_add(&p->loop, &p->in, 0, EPOLLIN, on_stdin) < 0) {
		fprintf(stderr, "display_pattern: %ux%u does not fit, or stdin cannot be waited for\n", width, height);
		return 1;
	}
	printf("ready\n");
	loop_run(&p->loop);
	display_close(p->d);
	loop_finish(&p->loop);
	free(p);
	return 0;
}
