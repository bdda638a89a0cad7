/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-record: films what a VM shows, for `coffer screen ID record`; see record.h.
 *
 * It is a program of its own because libavcodec and what it loads are large, and get pixels that a guest chose: here a mistake in
 * them can do no more than write a bad film. Only damage makes a picture, so a screen that stands still costs nothing.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "host/record/record.h"
#include "host/sock.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { SEEN = DISPLAY_CLIENT_DAMAGE | DISPLAY_CLIENT_CURSOR | DISPLAY_CLIENT_SCANOUT };

struct film {
	struct display_client client;
	struct record_encoder *encoder;
	uint32_t scanout;
	uint64_t start_ms, length_ms; /* length 0: until a signal */
	uint32_t gap_ms;              /* between frames, at least */
	int signal_fd;
	bool over, gone;
};

static uint64_t now_ms(void)
{
	return loop_now_ns() / 1000000;
}

static struct display_client_scanout *scanout(struct film *f)
{
	return &f->client.scanout[f->scanout];
}

/* Until a signal, the film's end, something from the display (when `display`), or `until`. */
static int await(struct film *f, bool display, uint64_t until, struct err *err)
{
	const uint64_t end = f->length_ms ? f->start_ms + f->length_ms : 0;
	struct pollfd p[2] = { { .fd = f->signal_fd, .events = POLLIN }, { .fd = f->client.fd, .events = POLLIN } };
	const uint64_t deadline = !until || (end && end < until) ? end : until;
	int r = sock_poll(p, display ? 2 : 1, deadline);

	if (r < 0)
		return err_errno(err, r, "poll");
	if (p[0].revents || (end && now_ms() >= end))
		f->over = true;
	if (!display || !p[1].revents)
		return 0;
	r = display_client_read(&f->client, err);
	if (r == -ECONNRESET) { /* the VM has ended, or we were too odd for it: what was seen is kept */
		f->over = f->gone = true;
		return 0;
	}
	return r;
}

/* First wait for something to be shown: its size is the film's. */
static int first(struct film *f, struct err *err)
{
	while (!f->over && scanout(f)->width == 0) {
		int r = await(f, true, 0, err);

		if (r < 0)
			return r;
	}
	return scanout(f)->width && !f->gone ? 0 : err_set(err, -ENODATA, "the guest has shown nothing on this screen");
}

static int add(struct film *f, struct err *err)
{
	const struct display_client_scanout *s = scanout(f);
	struct picture p;
	int r;

	if (s->width == 0)
		return 0; /* the last picture stays */
	r = picture_take(s, &(struct picture_rect){ 0, 0, s->width, s->height }, true, &p);
	if (r < 0)
		return err_errno(err, r, "a picture of %ux%u pixels", s->width, s->height);
	r = record_encoder_add(f->encoder, &p, now_ms() - f->start_ms, err);
	picture_free(&p);
	return r;
}

static int film(struct film *f, struct err *err)
{
	uint64_t next = 0;
	int r = add(f, err), what = 0;

	while (r >= 0 && !f->over) {
		/* Pictures that come faster than they are wanted become one. */
		next = now_ms() + f->gap_ms;
		do
			r = await(f, false, next, err);
		while (r >= 0 && !f->over && now_ms() < next);
		display_client_clear(&f->client, f->scanout);
		for (what = 0; r >= 0 && !f->over && !(what & SEEN); what |= MAX(r, 0)) {
			display_client_ready(&f->client, NULL); /* a monitor that has gone is found below */
			r = await(f, true, 0, err);
		}
		if (r >= 0 && what & SEEN)
			r = add(f, err);
	}
	return r < 0 ? r : record_encoder_finish(f->encoder, now_ms() - f->start_ms, err);
}

static int run(struct film *f, bool gif, bool lossless, struct err *err)
{
	int r = display_client_start(RECORD_DISPLAY_FD, &f->client, err);

	if (r < 0)
		return r;
	if (f->scanout >= f->client.scanouts)
		return err_set(err, -EINVAL, "screen %u: the VM has %u, counted from 0", f->scanout, f->client.scanouts);
	f->start_ms = now_ms();
	r = first(f, err);
	if (r == 0)
		r = record_encoder_open(gif, lossless, scanout(f)->width, scanout(f)->height, RECORD_OUT_FD, &f->encoder, err);
	if (r == 0)
		r = record_jail_enter(err);
	if (r == 0) {
		f->start_ms = now_ms();
		r = film(f, err);
	}
	record_encoder_close(f->encoder);
	return r;
}

/* One that whoever started us ignores (nohup, a shell's job in the background) does not end the film. */
static void add_unless_ignored(sigset_t *set, int signal)
{
	struct sigaction now;

	if (sigaction(signal, NULL, &now) < 0 || now.sa_handler != SIG_IGN)
		sigaddset(set, signal);
}

int main(int argc, char **argv)
{
	struct film f = { .client.fd = -1 };
	struct err err = ERR_INIT;
	sigset_t set;

	if (argc != 6 || (strcmp(argv[1], "mkv") != 0 && strcmp(argv[1], "gif") != 0)) {
		fputs("coffer-record is run by 'coffer screen ID record'\n", stderr);
		return 125;
	}
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* the film ends with whoever wanted it */
	close_range(RECORD_OUT_FD + 1, ~0u, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	add_unless_ignored(&set, SIGINT);
	add_unless_ignored(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	f.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	f.length_ms = strtoull(argv[2], NULL, 10);
	f.gap_ms = 1000 / (uint32_t)MAX(strtoul(argv[3], NULL, 10), 1ul);
	f.scanout = (uint32_t)strtoul(argv[4], NULL, 10);
	if (run(&f, strcmp(argv[1], "gif") == 0, strcmp(argv[5], "1") == 0, &err) < 0) {
		fprintf(stderr, "coffer: screen: %s\n", err.text);
		return 1;
	}
	return f.gone ? RECORD_GONE : 0;
}
