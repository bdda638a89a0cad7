/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a click to its frame.
 *
 *   display_click [N]              how long the parts of Coffer take for it, without a guest
 *   display_click N DIR X,Y,WxH    in the VM whose directory DIR is, where clicks in that part of its screen are answered by a
 *                                  picture of at least one pixel where they are
 *
 * Without a guest the display is tests/tools/display_pattern, which takes input at once; this program draws what a guest would when it
 * hears of the click. Prints one line: click_ms=MEDIAN click_ms_p99=... of N clicks (500), from the call to its return, with
 * which a shot shows the frame. In a VM it is guest_click_ms= and guest_click_ms_p99=, until the place looks different: a grid of places
 * is clicked, each once.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/screen.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "tests/harness/pattern.h"

enum { CLICKS = 500, CLICKS_MAX = 100000, SETTLE_MS = 10000, GUEST_WAIT_S = 60, PAUSE_MS = 100, CELL_WIDTH = 6, CELL_HEIGHT = 13 };

static void *guest(void *arg)
{
	struct pattern_process *p = arg;
	char line[256];
	unsigned n = 0;

	while (strncmp(pattern_line(p, line, sizeof(line)), "ok leds", 7) != 0)
		if (strcmp(line, "input 1 1 272 0") == 0)
			pattern_say(p, "rect 100 100 64 32 %06x", ++n & 0xffffff);
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int without_guest(int n, double *ms, struct err *err)
{
	struct pattern_process p;
	struct screen s;
	pthread_t t;
	int r;

	pattern_start(&p, 1280, 800);
	r = screen_open(p.dir_fd, 0, &s, err);
	if (r < 0)
		return r;
	if (pthread_create(&t, NULL, guest, &p) != 0)
		return err_set(err, -EAGAIN, "no thread can be made");
	s.settle_ms = SETTLE_MS;
	for (int i = 0; i < n && r == 0; i++) {
		const struct screen_point at = { (uint32_t)i % 1280, 400 };
		uint64_t start = loop_now_ns();

		r = screen_click(&s, SCREEN_LEFT, 1, &at, NULL, err);
		ms[i] = (double)(loop_now_ns() - start) / 1e6;
	}
	pattern_say(&p, "leds 1");
	pthread_join(t, NULL);
	screen_close(&s);
	pattern_stop(&p);
	return r;
}

/* Click there and wait until it looks different. */
static int click_in_guest(struct screen *s, struct picture_rect cell, double *ret_ms, struct err *err)
{
	const struct screen_point at = { cell.x + cell.width / 2, cell.y + cell.height / 2 };
	const struct screen_shot how = { .region = cell };
	struct picture before = { 0 }, now = { 0 };
	int r = screen_screenshot(s, &how, &before, err);
	uint64_t start;
	bool changed = false;

	usleep(PAUSE_MS * 1000); /* a button that is pressed again at once looks like a worn-out switch to libinput */
	start = loop_now_ns();
	if (r == 0)
		r = screen_click(s, SCREEN_LEFT, 1, &at, NULL, err);
	while (r == 0 && !changed) {
		*ret_ms = (double)(loop_now_ns() - start) / 1e6;
		r = screen_screenshot(s, &how, &now, err);
		changed = r == 0 && !picture_equal(&before, &now);
		picture_free(&now);
		if (r < 0 || changed)
			break;
		if (*ret_ms > GUEST_WAIT_S * 1e3)
			r = err_set(err, -ETIMEDOUT, "nothing is seen of a click at %u,%u", at.x, at.y);
		else if ((r = display_client_ready(&s->client, err)) == 0)
			r = MIN(display_client_wait(&s->client, start / 1000000 + GUEST_WAIT_S * 1000 + 1000, err), 0);
	}
	picture_free(&before);
	return r;
}

static int in_guest(const char *dir, const char *where, int n, double *ms, struct err *err)
{
	struct picture_rect all;
	struct screen s;
	int r, columns, fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "'%s'", dir);
	if (!picture_parse_number(&where, &all.x) || *where++ != ',' || !picture_parse_number(&where, &all.y) || *where++ != ',' ||
	    !picture_parse_number(&where, &all.width) || *where++ != 'x' || !picture_parse_number(&where, &all.height))
		return err_set(err, -EINVAL, "the part of the screen is not X,Y,WIDTHxHEIGHT");
	columns = (int)(all.width / CELL_WIDTH);
	if (n > columns * (int)(all.height / CELL_HEIGHT))
		return err_set(err, -EINVAL, "%d clicks have no room in %ux%u pixels", n, all.width, all.height);
	r = screen_open(fd, 0, &s, err);
	if (r < 0)
		return r;
	s.settle_ms = 0; /* what is waited for is seen below */
	for (int i = 0; i < n && r == 0; i++)
		r = click_in_guest(&s, (struct picture_rect){ all.x + (uint32_t)(i % columns) * CELL_WIDTH,
							      all.y + (uint32_t)(i / columns) * CELL_HEIGHT, CELL_WIDTH, CELL_HEIGHT },
				   &ms[i], err);
	screen_close(&s);
	return r;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : CLICKS, r;
	double *ms = n > 0 && n <= CLICKS_MAX ? calloc((size_t)n, sizeof(*ms)) : NULL;
	const char *name = argc == 4 ? "guest_click_ms" : "click_ms";
	struct err err = ERR_INIT;

	if (!ms || argc == 3 || argc > 4)
		return 2;
	r = argc == 4 ? in_guest(argv[2], argv[3], n, ms, &err) : without_guest(n, ms, &err);
	if (r < 0) {
		fprintf(stderr, "display_click: %s\n", err.text);
		return 1;
	}
	qsort(ms, (size_t)n, sizeof(*ms), by_size);
	printf("%s=%.3f %s_p99=%.3f\n", name, ms[n / 2], name, ms[n * 99 / 100]);
	free(ms);
	return 0;
}
