/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a click to its frame: how long the parts of Coffer take for it, without a guest.
 *
 *   display_click [N]
 *
 * The display is tests/tools/display_pattern, which takes input at once; this program draws what a guest would when it hears of the
 * click. Prints one line: click_ms=MEDIAN click_ms_p99=... of N clicks (500), from the call to its return, with
 * which a shot shows the frame.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/screen.h"
#include "lib/loop.h"
#include "tests/harness/pattern.h"

enum { CLICKS = 500, CLICKS_MAX = 100000 };

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

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : CLICKS;
	double *ms = n > 0 && n <= CLICKS_MAX ? calloc((size_t)n, sizeof(*ms)) : NULL;
	struct pattern_process p;
	struct screen s;
	struct err err = ERR_INIT;
	pthread_t t;
	int r;

	if (!ms)
		return 2;
	pattern_start(&p, 1280, 800);
	r = screen_open(p.dir_fd, 0, &s, &err);
	if (r == 0 && pthread_create(&t, NULL, guest, &p) != 0)
		return 2;
	for (int i = 0; i < n && r == 0; i++) {
		const struct screen_point at = { (uint32_t)i % 1280, 400 };
		uint64_t start = loop_now_ns();

		s.settle_ms = 10000;
		r = screen_click(&s, SCREEN_LEFT, 1, &at, NULL, &err);
		ms[i] = (double)(loop_now_ns() - start) / 1e6;
	}
	if (r < 0) {
		fprintf(stderr, "display_click: %s\n", err.text);
		return 1;
	}
	pattern_say(&p, "leds 1");
	pthread_join(t, NULL);
	qsort(ms, (size_t)n, sizeof(*ms), by_size);
	printf("click_ms=%.3f click_ms_p99=%.3f\n", ms[n / 2], ms[n * 99 / 100]);
	screen_close(&s);
	pattern_stop(&p);
	free(ms);
	return 0;
}
