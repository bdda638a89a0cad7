/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest is told before it takes commands: clock, entropy, names, environment (launch.h).
 *
 * The clock goes with the value that the guest's counter had at that time, which the monitor knows (vmm/counter.h), so it is right
 * however long the message is under way. Where that does not work (no such counter, an agent of an older snapshot), the guest's
 * clock is late by the way of the request, which is no longer than the answer took: where that is too long, as in a guest that
 * has yet to fetch its memory and to make a process for the connection, the time is told again.
 *
 * Trust: the monitor's numbers may be the guest's: they go to that guest, and are bounded there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "host/agent_client.h"
#include "host/control_client.h"
#include "host/launch.h"
#include "host/vmargs.h"
#include "lib/fd.h"
#include "lib/loop.h"

enum { CLOCK_LATE_NS = 5000000, CLOCK_AGAIN = 3, COUNTER_MS = 3000 };

static void put_hex(FILE *f, const char *key, const uint8_t *p, size_t n)
{
	fprintf(f, ",\"%s\":\"", key);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%02x", p[i]);
	fputc('"', f);
}

/* What a request tells the guest. */
enum told { TELL_CLOCK, TELL_IDENTITY, TELL_ENV }; /* each with what is before it */

static void put_identity(FILE *f, const struct launch *l)
{
	char host[VMDIR_ID_MAX + 1];

	vmargs_hostname(l->dir.id, host, sizeof(host));
	fprintf(f, ",\"hostname\":\"%s\"", host);
	put_hex(f, "entropy", l->identity, 64);
	if (l->image_fd >= 0 || l->has_root) /* the initramfs has no /etc */
		put_hex(f, "machine_id", l->identity + 64, 16);
}

static void put_env(FILE *f, const struct launch *l)
{
	fputs(",\"env\":[", f);
	for (size_t i = 0, n = 0; l->image.env && l->image.env[i]; i++)
		if (strchr(l->image.env[i], '=')) {
			fputs(n++ ? "," : "", f);
			agent_put_string(f, l->image.env[i]);
		}
	fputs("]", f);
}

/* What is said and what came of it. */
struct telling {
	struct launch *l;
	struct agent_conn *c; /* NULL: none yet */
	int signal_fd;
	uint64_t deadline_ms;
	bool with_counter;    /* `then` is told, not the time now */
	struct {
		uint64_t realtime_ns, counter, khz;
	} then;
	uint64_t took_ns;     /* from the making of the request to its answer */
	bool exact;           /* the clock is right */
};

/* However long ago that is when the guest hears of it. */
static void ask_counter(struct telling *t)
{
	struct control_reply reply;

	if (control_call(t->l->dir.fd, CONTROL_CLOCK, 0, control_deadline(COUNTER_MS), &reply, NULL) < 0)
		return;
	t->then.realtime_ns = le64_get(reply.value[CONTROL_CV_REALTIME_NS]);
	t->then.counter = le64_get(reply.value[CONTROL_CV_COUNTER]);
	t->then.khz = le64_get(reply.value[CONTROL_CV_KHZ]);
	t->with_counter = t->then.counter <= INT64_MAX; /* what JSON has numbers for */
}

static void put_clock(FILE *f, const struct telling *t)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (t->with_counter)
		fprintf(f, "\"clock_ns\":%llu,\"counter\":%llu,\"counter_khz\":%llu", (unsigned long long)t->then.realtime_ns,
			(unsigned long long)t->then.counter, (unsigned long long)t->then.khz);
	else
		fprintf(f, "\"clock_ns\":%lld", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
}

static char *make_request(const struct telling *t, enum told what, size_t *ret_len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);

	if (!f)
		return NULL;
	fputs("{\"op\":\"configure\",", f);
	put_clock(f, t);
	if (what >= TELL_IDENTITY)
		put_identity(f, t->l);
	if (what >= TELL_ENV)
		put_env(f, t->l);
	fputs("}", f);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int tell(struct telling *t, enum told what, struct err *err)
{
	/* Made when it can be sent: it has the time in it. */
	uint64_t begin = loop_now_ns();
	struct agent_line line;
	size_t len = 0;
	_cleanup_free_ char *request = make_request(t, what, &len);
	int r = request ? agent_request(t->c, request, len, t->deadline_ms, &line, err) : err_set(err, -ENOMEM, "out of memory");

	t->took_ns = loop_now_ns() - begin;
	t->l->signal = t->c->signal;
	if (r == 0)
		agent_line_bool(&line, "clock_exact", &t->exact);
	return r;
}

/* Over the connection that is there where that goes: the agents of older snapshots end it after one answer. */
static int tell_somehow(struct telling *t, enum told what, struct err *err)
{
	int r = -ECONNRESET;

	if (t->c) {
		r = tell(t, what, err);
		if (r != -ECONNRESET && r != -EPIPE)
			return r;
		agent_close(t->c);
		t->c = NULL;
	}
	r = agent_connect(t->l->dir.fd, AGENT_PORT, t->signal_fd, t->deadline_ms, &t->c, err);
	if (r < 0) {
		t->c = NULL;
		return r;
	}
	return tell(t, what, err);
}

int launch_configure(struct launch *l, bool env, int signal_fd, uint64_t deadline_ms, struct err *err)
{
	struct telling t = { .l = l, .signal_fd = signal_fd, .deadline_ms = deadline_ms };
	enum told what = env ? TELL_ENV : TELL_IDENTITY;
	bool late;
	int r;

	if (!l->has_identity && getrandom(l->identity, sizeof(l->identity), 0) != sizeof(l->identity))
		return err_errno(err, -errno, "random bytes for the guest");
	l->has_identity = true;
	ask_counter(&t);
	r = tell_somehow(&t, what, err);
	if (r == -EOPNOTSUPP && t.with_counter) {
		t.with_counter = false;
		r = tell_somehow(&t, what, err);
	}
	late = t.with_counter || t.took_ns > CLOCK_LATE_NS;
	t.with_counter = false;
	for (int i = 0; r == 0 && !t.exact && late && i < CLOCK_AGAIN; i++) {
		r = tell_somehow(&t, TELL_CLOCK, err);
		late = t.took_ns > CLOCK_LATE_NS;
	}
	agent_close(t.c);
	if (r < 0)
		err_prefix(err, "configure the guest: ");
	return r;
}
