/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands with "resume": they outlive a connection that breaks, and nothing of their streams is lost or doubled.
 *
 * A Unix socket whose peer closes it with bytes unread breaks for the agent just as a vsock one does when the VM is
 * restored: so `cut` waits for bytes, and closes. In the middle of much output the agent's process stands still
 * meanwhile, as it does in a VM: a sendmsg in which the break came would report what it had sent before, and nobody
 * would ever hear of the break.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/agent_guest.h"

enum { KEY = 77, BIG = 3 << 20 };

static struct agent_guest guest;
static struct agent_result r;
static struct agent_peer peer;

static int64_t start(const char *script, const char *more)
{
	char request[1024];

	snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"%s\"],\"resume\":%d%s}", script,
		 KEY, more);
	agent_peer_request(&peer, &guest, request);
	if (strncmp(peer.line, "{\"ok\"", 5) != 0)
		fail_msg("%s", peer.line);
	assert_non_null(strstr(peer.line, "\"resume\":true"));
	return agent_peer_number(&peer, "id");
}

static bool attach(int64_t id, int64_t key, uint64_t received)
{
	char request[128];

	snprintf(request, sizeof(request), "{\"op\":\"attach\",\"id\":%lld,\"resume\":%lld,\"received\":%llu}",
		 (long long)id, (long long)key, (unsigned long long)received);
	agent_peer_request(&peer, &guest, request);
	return strncmp(peer.line, "{\"ok\":true", 10) == 0;
}

/* State and parent of a process. */
static char process_state(pid_t pid, pid_t *ret_parent)
{
	char path[32], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d (%*[^)]) %c %d", &state, ret_parent), 2);
	fclose(f);
	return state;
}

static void cut(void)
{
	struct pollfd p = { .fd = peer.fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, -1), 1);
	agent_peer_close(&peer);
}

static void put_ack(uint64_t total)
{
	le64 payload = le64_make(total);

	agent_peer_put(&peer, AGENT_ACK, &payload, sizeof(payload));
}

/* The entry of ps for a command, or NULL. */
static const char *ps_of(int64_t id)
{
	static char entry[AGENT_FRAME_MAX + 1];
	struct agent_peer *p = malloc(sizeof(*p));
	char key[32];

	entry[0] = '\0';
	snprintf(key, sizeof(key), "{\"id\":%lld,", (long long)id);
	agent_peer_request(p, &guest, "{\"op\":\"ps\"}");
	while (agent_peer_frame(p))
		if (p->type == AGENT_DATA && p->length > strlen(key) && memcmp(p->payload, key, strlen(key)) == 0) {
			memcpy(entry, p->payload, p->length);
			entry[p->length] = '\0';
		}
	agent_peer_close(p);
	free(p);
	return entry[0] ? entry : NULL;
}

static bool ps_has(int64_t id, const char *text)
{
	const char *e = ps_of(id);

	return e && strstr(e, text);
}

static void an_ordinary_end_needs_no_more_than_a_close(void **s)
{
	int64_t id = start("echo one; exit 3", "");

	(void)s;
	do
		assert_true(agent_peer_frame(&peer));
	while (peer.type != AGENT_EXIT);
	assert_int_equal(le32_load(peer.payload + 4), 3);
	agent_peer_close(&peer);
	while (ps_of(id))
		;
}

static void the_host_may_say_that_it_has_exit(void **s)
{
	(void)s;
	start("echo one; exit 4", "");
	agent_peer_collect_and_ack(&peer, &r); /* ends with the agent's end of file */
	assert_int_equal(r.value, 4);
	agent_peer_close(&peer);
}

static void a_close_kills_it(void **s)
{
	int64_t id = start("exec sleep 1000", "");

	(void)s;
	agent_peer_close(&peer);
	while (ps_of(id))
		;
}

static void a_break_does_not_and_everything_comes_again(void **s)
{
	int64_t id = start("echo one; read x; echo $x; exit 5", ",\"stdin\":true");

	(void)s;
	cut();
	while (!ps_has(id, "\"attached\":false"))
		;
	while (!ps_has(id, "\"detached\":true"))
		;
	assert_true(attach(id, KEY, 0));
	assert_int_equal(agent_peer_number(&peer, "stdin_taken"), 0);
	assert_true(ps_has(id, "\"detached\":false"));
	agent_peer_put(&peer, AGENT_STDIN, "two\n", 4);
	agent_peer_collect_and_ack(&peer, &r);
	assert_string_equal(r.out, "one\ntwo\n");
	assert_true(r.out_ended && r.err_ended);
	assert_int_equal(r.value, 5);
	agent_peer_close(&peer);
}

static void what_was_received_does_not_come_again(void **s)
{
	int64_t id = start("echo one; read x; echo two; read x; exit 6", ",\"stdin\":true");

	(void)s;
	assert_true(agent_peer_frame(&peer));
	assert_memory_equal(peer.payload, "one\n", 4);
	agent_peer_put(&peer, AGENT_STDIN, "x\n", 2);
	cut(); /* "two" is there, unread */
	assert_true(attach(id, KEY, 8 + 4));
	assert_int_equal(agent_peer_number(&peer, "stdin_taken"), 2);
	agent_peer_put(&peer, AGENT_STDIN, "x\n", 2);
	agent_peer_collect_and_ack(&peer, &r);
	assert_string_equal(r.out, "two\n");
	assert_int_equal(r.value, 6);
	agent_peer_close(&peer);
}

static void an_end_in_between_is_kept(void **s)
{
	int64_t id = start("echo one; exit 7", "");

	(void)s;
	cut();
	while (!ps_has(id, "\"state\":\"ended\",\"age_ms\"") || !ps_has(id, "\"attached\":false"))
		;
	for (int i = 0; i < 2; i++) { /* as long as nobody says that it has it */
		assert_true(attach(id, KEY, 0));
		do
			assert_true(agent_peer_frame(&peer));
		while (peer.type != AGENT_STDOUT || peer.length == 0);
		cut();
	}
	assert_true(attach(id, KEY, 0));
	agent_peer_collect_and_ack(&peer, &r);
	assert_string_equal(r.out, "one\n");
	assert_int_equal(r.value, 7);
	agent_peer_close(&peer);
	while (ps_of(id))
		;
}

static void signals_and_the_terminal_work_afterwards(void **s)
{
	int64_t id = start("trap 'exit 9' USR1; echo up; read x; stty size; while :; do sleep 0.05; done",
			   ",\"stdin\":true,\"tty\":true");
	const le16 size[4] = { le16_make(33), le16_make(44), le16_make(0), le16_make(0) };
	const le32 usr1 = le32_make(SIGUSR1);
	char text[4096] = "";
	size_t n = 0;

	(void)s;
	cut();
	assert_true(attach(id, KEY, 0));
	agent_peer_put(&peer, AGENT_WINSIZE, size, sizeof(size));
	agent_peer_put(&peer, AGENT_STDIN, "x\n", 2);
	while (!strstr(text, "33 44")) {
		assert_true(agent_peer_frame(&peer));
		assert_int_equal(peer.type, AGENT_STDOUT);
		assert_true(n + peer.length < sizeof(text));
		memcpy(text + n, peer.payload, peer.length);
		n += peer.length;
		text[n] = '\0';
	}
	assert_non_null(strstr(text, "up"));
	agent_peer_put(&peer, AGENT_SIGNAL, &usr1, sizeof(usr1));
	agent_peer_collect_and_ack(&peer, &r);
	assert_int_equal(r.value, 9);
	agent_peer_close(&peer);
}

static void output_from_another_time_is_stale(void **s)
{
	static const uint64_t wrong[] = { 1, 8, 11, 13, 1000, INT64_MAX };
	int64_t id = start("echo one; read x", ",\"stdin\":true");

	(void)s;
	assert_true(agent_peer_frame(&peer));
	put_ack(8 + 4);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct agent_peer first = peer;

		assert_false(attach(id, KEY, wrong[i]));
		assert_non_null(strstr(peer.line, "\"code\":\"stale\""));
		agent_peer_close(&peer);
		peer = first; /* it goes on as if nothing had been */
	}
	agent_peer_put(&peer, AGENT_STDIN, "x\n", 2);
	agent_peer_collect_and_ack(&peer, &r);
	assert_int_equal(r.value, 0);
	agent_peer_close(&peer);
}

static void only_who_knows_its_key_resumes_it(void **s)
{
	struct agent_peer *first = malloc(sizeof(*first));
	int64_t id = start("exec sleep 1000", "");
	char request[64];

	(void)s;
	*first = peer;
	assert_false(attach(id, KEY + 1, 0));
	assert_non_null(strstr(peer.line, "\"code\":\"stale\""));
	agent_peer_close(&peer);
	snprintf(request, sizeof(request), "{\"op\":\"attach\",\"id\":%lld}", (long long)id);
	agent_peer_request(&peer, &guest, request);
	assert_non_null(strstr(peer.line, "\"code\":\"denied\""));
	agent_peer_close(&peer);
	agent_peer_close(first);
	free(first);
	while (ps_of(id))
		;
	assert_false(attach(id, KEY, 0));
	assert_non_null(strstr(peer.line, "\"code\":\"not-found\""));
	agent_peer_close(&peer);
}

static void an_ack_of_what_was_not_sent_is_a_violation(void **s)
{
	(void)s;
	start("echo one; exec sleep 1000", "");
	assert_true(agent_peer_frame(&peer));
	put_ack(8 + 4 + 1);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, EPROTO);
	agent_peer_close(&peer);
}

static void without_resume_an_ack_is_a_violation(void **s)
{
	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"sleep\",\"1000\"]}");
	assert_null(strstr(peer.line, "resume"));
	put_ack(0);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	agent_peer_close(&peer);
}

static void one_that_nobody_acknowledges_stops_at_the_window(void **s)
{
	int64_t id = start("head -c 1000000 /dev/zero; exit 0", "");
	uint64_t total = 0;
	size_t n = 0;

	(void)s;
	cut();
	while (!ps_has(id, "\"attached\":false"))
		;
	assert_true(attach(id, KEY, 0));
	assert_int_equal(agent_peer_number(&peer, "lost"), 0);
	while (agent_peer_frame(&peer) && peer.type != AGENT_EXIT) {
		n += peer.type == AGENT_STDOUT ? peer.length : 0;
		total += 8 + peer.length;
		assert_true(n <= 1000000);
		if (n > 200000)
			put_ack(total);
	}
	assert_int_equal(n, 1000000);
	agent_peer_close(&peer);
}

static void too_many_of_them_end_those_that_break_last(void **s)
{
	enum { COUNT = 70 };
	static struct agent_peer *first[COUNT];
	static int64_t id[COUNT];
	struct agent_guest shared = guest;
	int left = 0;

	(void)s;
	agent_guest_start(&guest, NULL);
	for (int i = 0; i < COUNT; i++) {
		id[i] = start("echo; exec sleep 1000", "");
		first[i] = malloc(sizeof(*first[i]));
		*first[i] = peer;
	}
	for (int i = 0; i < COUNT; i++) {
		peer = *first[i];
		cut();
		while (ps_has(id[i], "\"attached\":true"))
			;
		free(first[i]);
	}
	for (int i = 64; i < COUNT; i++)
		while (ps_of(id[i]))
			;
	for (int i = 0; i < COUNT; i++)
		left += ps_of(id[i]) != NULL;
	assert_int_equal(left, 64);
	assert_int_equal(agent_guest_stop(&guest), 0);
	guest = shared;
}

/* ---- a bulk transfer both ways, cut at random ---- */

struct transfer {
	unsigned seed;
	int64_t id;
	pid_t handler;
	unsigned char *sent, *got;
	size_t nsent, ngot;   /* bytes of payload */
	uint64_t window;      /* of STDIN */
	uint64_t frames;      /* bytes of whole frames */
	uint64_t acked;
	unsigned char in[2 * AGENT_FRAME_MAX], out[8 + 5000];
	size_t have, nout, at;
	bool eof_sent, over, due; /* a cut is due */
	int cuts;
};

static unsigned dice(struct transfer *t, unsigned n)
{
	t->seed = t->seed * 1103515245u + 12345u;
	return (t->seed >> 8) % n;
}

static void next_frame(struct transfer *t)
{
	struct agent_frame h = { .type = AGENT_STDIN };
	size_t n = MIN(MIN((size_t)dice(t, 5000) + 1, (size_t)t->window), BIG - t->nsent);

	if (t->frames - t->acked > AGENT_ACK_STEP || (dice(t, 4) == 0 && t->frames > t->acked)) {
		h = (struct agent_frame){ .length = le32_make(8), .type = AGENT_ACK };
		le64_store(t->out + 8, t->frames);
		t->acked = t->frames;
		n = 8;
	} else if (n > 0) {
		h.length = le32_make((uint32_t)n);
		memcpy(t->out + 8, t->sent + t->nsent, n);
		t->nsent += n;
		t->window -= n;
	} else if (t->nsent < BIG || t->eof_sent) {
		return;
	} else {
		t->eof_sent = true;
	}
	memcpy(t->out, &h, sizeof(h));
	t->nout = sizeof(h) + n;
	t->at = 0;
}

static void take_frames(struct transfer *t)
{
	size_t at = 0;

	while (t->have - at >= 8) {
		struct agent_frame h;
		uint32_t n;

		memcpy(&h, t->in + at, 8);
		n = le32_get(h.length);
		if (t->have - at - 8 < n)
			break;
		if (h.type == AGENT_CREDIT) {
			t->window += le32_load(t->in + at + 8);
		} else {
			if (h.type == AGENT_ERROR)
				fail_msg("%.*s", (int)(n - 4), (char *)t->in + at + 12);
			assert_true(h.type == AGENT_STDOUT || h.type == AGENT_STDERR || h.type == AGENT_EXIT);
			t->frames += 8 + n;
		}
		if (h.type == AGENT_STDOUT) {
			assert_true(t->ngot + n <= BIG);
			memcpy(t->got + t->ngot, t->in + at + 8, n);
			t->ngot += n;
		}
		t->over |= h.type == AGENT_EXIT;
		at += 8 + n;
	}
	memmove(t->in, t->in + at, t->have - at);
	t->have -= at;
}

static void cut_and_resume(struct transfer *t)
{
	pid_t parent;

	assert_int_equal(kill(t->handler, SIGSTOP), 0);
	while (process_state(t->handler, &parent) != 'T')
		;
	agent_peer_close(&peer);
	assert_int_equal(kill(t->handler, SIGCONT), 0);
	if (!attach(t->id, KEY, t->frames))
		fail_msg("%s", peer.line);
	t->nsent = (size_t)agent_peer_number(&peer, "stdin_taken");
	t->window = (uint64_t)agent_peer_number(&peer, "stdin_window");
	t->eof_sent = strstr(peer.line, "\"stdin\":false") != NULL;
	t->acked = t->frames;
	t->have = t->nout = 0;
	t->due = false;
	t->cuts++;
}

static void transfer(unsigned seed)
{
	struct transfer *t = calloc(1, sizeof(*t));

	t->seed = seed;
	t->sent = malloc(BIG);
	t->got = malloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		t->sent[i] = (unsigned char)dice(t, 256);
	t->id = start("cat; exit 9", ",\"stdin\":true");
	process_state((pid_t)agent_peer_number(&peer, "pid"), &t->handler);
	t->window = (uint64_t)agent_peer_number(&peer, "stdin_window");
	while (!t->over) {
		struct pollfd p = { .fd = peer.fd, .events = POLLIN };
		ssize_t n;

		if (t->nout == 0)
			next_frame(t);
		p.events = (short)(POLLIN | (t->nout ? POLLOUT : 0));
		assert_true(poll(&p, 1, -1) == 1);
		if (p.revents & POLLOUT) {
			n = send(peer.fd, t->out + t->at, t->nout - t->at, MSG_NOSIGNAL | MSG_DONTWAIT);
			assert_true(n > 0 || errno == EAGAIN);
			t->at += n > 0 ? (size_t)n : 0;
			t->nout = t->at == t->nout ? 0 : t->nout;
		}
		t->due |= dice(t, 100) == 0;
		if (t->due && p.revents & POLLIN) {
			cut_and_resume(t);
		} else if (p.revents & POLLIN) {
			n = recv(peer.fd, t->in + t->have, MIN(sizeof(t->in) - t->have, (size_t)dice(t, 20000) + 1),
				 MSG_DONTWAIT);
			assert_true(n > 0);
			t->have += (size_t)n;
			take_frames(t);
		}
	}
	assert_true(t->cuts > 3);
	assert_int_equal(t->ngot, BIG);
	assert_memory_equal(t->sent, t->got, BIG);
	agent_peer_close(&peer);
	free(t->sent);
	free(t->got);
	free(t);
}

static void random_cuts_lose_and_double_nothing(void **s)
{
	(void)s;
	for (unsigned seed = 1; seed <= 8; seed++)
		transfer(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ordinary_end_needs_no_more_than_a_close),
		cmocka_unit_test(the_host_may_say_that_it_has_exit),
		cmocka_unit_test(a_close_kills_it),
		cmocka_unit_test(a_break_does_not_and_everything_comes_again),
		cmocka_unit_test(what_was_received_does_not_come_again),
		cmocka_unit_test(an_end_in_between_is_kept),
		cmocka_unit_test(signals_and_the_terminal_work_afterwards),
		cmocka_unit_test(output_from_another_time_is_stale),
		cmocka_unit_test(only_who_knows_its_key_resumes_it),
		cmocka_unit_test(an_ack_of_what_was_not_sent_is_a_violation),
		cmocka_unit_test(without_resume_an_ack_is_a_violation),
		cmocka_unit_test(one_that_nobody_acknowledges_stops_at_the_window),
		cmocka_unit_test(too_many_of_them_end_those_that_break_last),
		cmocka_unit_test(random_cuts_lose_and_double_nothing),
	};

	return agent_guest_run_tests(&guest, tests, ARRAY_SIZE(tests));
}
