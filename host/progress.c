/* SPDX-License-Identifier: Apache-2.0 */
/* Progress lines: see progress.h. Text of other programs is escaped and cut to the line. */
#include "host/progress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "host/signals.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { REDRAW_MS = 100, LINE_MAX_COLUMNS = 200 };

void progress_init(struct progress *p, int fd, int signals)
{
	*p = (struct progress){ .fd = fd, .signals = signals, .stage = "" };
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void draw(struct progress *p, const char *detail)
{
	static const char clear_rest[] = { '\033', '[', 'K' };
	char text[LINE_MAX_COLUMNS + 8], line[LINE_MAX_COLUMNS + 8];
	struct winsize ws;
	size_t columns = 79, n;

	if (p->fd < 0)
		return;
	if (ioctl(p->fd, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 1)
		columns = MIN((size_t)ws.ws_col - 1, (size_t)LINE_MAX_COLUMNS);
	snprintf(text, sizeof(text), "%s%s%s", p->stage, *detail != '\0' ? ": " : "", detail);
	line[0] = '\r';
	n = 1 + text_escape(text, strlen(text), "", line + 1, MAX(columns + 1, sizeof("...")));
	memcpy(line + n, clear_rest, sizeof(clear_rest));
	(void)fd_write_full(p->fd, line, n + sizeof(clear_rest));
	p->drawn = true;
	p->shown_ms = now_ms();
}

static int check_end(struct progress *p, struct err *err)
{
	int signal;

	if (p->signals < 0)
		return 0;
	while ((signal = signals_next(p->signals)) > 0)
		if (signals_is_end(signal))
			return err_set(err, -EINTR, "interrupted");
	return 0;
}

void progress_stage(struct progress *p, const char *stage)
{
	if (p == NULL)
		return;
	p->stage = stage;
	draw(p, "");
}

int progress_bytes(struct progress *p, uint64_t done, uint64_t total, struct err *err)
{
	char text[64];
	int r;

	if (p == NULL)
		return 0;
	r = check_end(p, err);
	if (r < 0 || p->fd < 0 || now_ms() - p->shown_ms < REDRAW_MS)
		return r;
	if (total > 0)
		snprintf(text, sizeof(text), "%s of %s", TEXT_SIZE(done), TEXT_SIZE(total));
	else
		snprintf(text, sizeof(text), "%s", TEXT_SIZE(done));
	draw(p, text);
	return 0;
}

int progress_text(struct progress *p, const char *text, struct err *err)
{
	int r;

	if (p == NULL)
		return 0;
	r = check_end(p, err);
	if (r == 0 && p->fd >= 0)
		draw(p, text);
	return r;
}

void progress_say(struct progress *p, const char *line)
{
	if (p == NULL || p->say == NULL)
		return;
	progress_end(p);
	p->say(line);
}

void progress_end(struct progress *p)
{
	if (p == NULL || !p->drawn)
		return;
	(void)fd_write_full(p->fd, "\r\033[K", 4);
	p->drawn = false;
}
