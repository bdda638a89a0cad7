/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that outlive their connection: detach, attach, ps, kill. */
#include <errno.h>
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

#include "lib/util.h"
#include "tests/harness/agent_guest.h"

static struct agent_guest guest;
static struct agent_result r;
static struct agent_peer peer;

static int64_t detach(const char *script, const char *more)
{
	char request[1024];

	snprintf(request, sizeof(request), "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"%s\"],\"detach\":true,\"attach\":false%s}", script, more);
	agent_peer_request(&peer, &guest, request);
	if (strncmp(peer.line, "{\"ok\"", 5) != 0)
		fail_msg("%s", peer.line);
	assert_false(agent_peer_frame(&peer));
	agent_peer_close(&peer);
	return agent_peer_number(&peer, "id");
}

static bool request_id(struct agent_peer *p, const char *op, int64_t id, const char *more)
{
	char request[128];

	snprintf(request, sizeof(request), "{\"op\":\"%s\",\"id\":%lld%s}", op, (long long)id, more);
	agent_peer_request(p, &guest, request);
	return strncmp(p->line, "{\"ok\":true", 10) == 0;
}

/* ps as one text; nonnull when the entry of `id` has `text` in it */
static const char *ps_has(int64_t id, const char *text)
{
	static char all[64 * 1024];
	char key[32];
	size_t n = 0;
	char *at, *end;

	agent_peer_request(&peer, &guest, "{\"op\":\"ps\"}");
	while (agent_peer_frame(&peer) && peer.type == AGENT_DATA && peer.length > 0) {
		assert_true(n + peer.length + 2 < sizeof(all));
		memcpy(all + n, peer.payload, peer.length);
		n += peer.length;
		all[n++] = '\n';
	}
	all[n] = '\0';
	assert_true(agent_peer_frame(&peer));
	assert_int_equal(peer.type, AGENT_EXIT);
	agent_peer_close(&peer);
	snprintf(key, sizeof(key), "{\"id\":%lld,", (long long)id);
	at = strstr(all, key);
	if (!at)
		return NULL;
	end = strchr(at, '\n');
	*end = '\0';
	return strstr(at, text);
}

static void it_lives_on_and_is_attached_again(void **s)
{
	int64_t id = detach("read x; echo got $x; exit 6", ",\"stdin\":true");

	(void)s;
	assert_true(request_id(&peer, "attach", id, ""));
	assert_int_equal(agent_peer_number(&peer, "stdin_window"), AGENT_STDIN_WINDOW);
	assert_int_equal(agent_peer_number(&peer, "lost"), 0);
	assert_non_null(strstr(peer.line, "\"stdin\":true"));
	agent_peer_put(&peer, AGENT_STDIN, "it\n", 3);
	agent_peer_collect_and_ack(&peer, &r);
	assert_string_equal(r.out, "got it\n");
	assert_int_equal(r.value, 6);
	agent_peer_close(&peer);
}

static void it_lives_on_when_its_first_connection_dies(void **s)
{
	int64_t id;

	(void)s;
	agent_peer_request(&peer, &guest, "{\"op\":\"exec\",\"argv\":[\"sh\",\"-c\",\"echo on; read x; exit 9\"],\"detach\":true,\"stdin\":true}");
	id = agent_peer_number(&peer, "id");
	assert_true(agent_peer_frame(&peer));
	assert_memory_equal(peer.payload, "on\n", 3);
	agent_peer_close(&peer);
	while (!ps_has(id, "\"attached\":false"))
		;
	assert_true(request_id(&peer, "attach", id, ""));
	agent_peer_put(&peer, AGENT_STDIN, "\n", 1);
	agent_peer_collect_and_ack(&peer, &r);
	assert_int_equal(r.value, 9);
	agent_peer_close(&peer);
}

static void what_it_wrote_alone_is_kept(void **s)
{
	int64_t id = detach("echo one; echo two >&2; exit 5", "");

	(void)s;
	while (!ps_has(id, "\"state\":\"ended\",\"age_ms\""))
		;
	assert_non_null(ps_has(id, "\"kind\":0,\"value\":5"));
	assert_true(request_id(&peer, "attach", id, ""));
	agent_peer_collect_and_ack(&peer, &r);
	assert_string_equal(r.out, "one\n");
	assert_string_equal(r.err, "two\n");
	assert_true(r.out_ended && r.err_ended);
	assert_int_equal(r.value, 5);
	agent_peer_close(&peer);
	while (ps_has(id, "")) /* delivered, and so forgotten */
		;
	assert_false(request_id(&peer, "attach", id, ""));
	assert_non_null(strstr(peer.line, "\"code\":\"not-found\""));
	agent_peer_close(&peer);
}

static void an_exit_that_was_not_acknowledged_comes_again(void **s)
{
	int64_t id = detach("echo once; exit 4", "");

	(void)s;
	for (int i = 0; i < 2; i++) {
		assert_true(request_id(&peer, "attach", id, ""));
		do
			assert_true(agent_peer_frame(&peer));
		while (peer.type != AGENT_EXIT);
		assert_int_equal(le32_load(peer.payload + 4), 4);
		agent_peer_close(&peer);
	}
	assert_true(request_id(&peer, "attach", id, ""));
	agent_peer_collect_and_ack(&peer, &r);
	assert_true(r.out_ended && r.err_ended);
	assert_int_equal(r.value, 4);
	agent_peer_close(&peer);
	while (ps_has(id, ""))
		;
}

static void a_flood_loses_its_beginning_and_says_how_much(void **s)
{
	int64_t id = detach("head -c 2000000 /dev/zero; printf tail", ""), lost;
	size_t n = 0;

	(void)s;
	while (!ps_has(id, "\"state\":\"ended\",\"age_ms\""))
		;
	assert_true(request_id(&peer, "attach", id, ""));
	lost = agent_peer_number(&peer, "lost");
	assert_true(lost > 0);
	while (agent_peer_frame(&peer) && peer.type != AGENT_EXIT)
		if (peer.type == AGENT_STDOUT && peer.length > 0) {
			n += peer.length;
			memcpy(r.out, peer.payload + peer.length - 4, 4);
		}
	assert_int_equal(n + (size_t)lost, 2000004);
	assert_memory_equal(r.out, "tail", 4);
	assert_int_equal(peer.type, AGENT_EXIT);
	agent_peer_close(&peer);
}

static void another_client_takes_over(void **s)
{
	int64_t id = detach("echo on; read x; exit 2", ",\"stdin\":true");
	struct agent_peer *second = malloc(sizeof(*second));

	(void)s;
	assert_true(request_id(&peer, "attach", id, ""));
	assert_true(agent_peer_frame(&peer));
	assert_true(request_id(second, "attach", id, ""));
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, EBUSY);
	agent_peer_close(&peer);
	agent_peer_put(second, AGENT_STDIN, "\n", 1);
	agent_peer_collect_and_ack(second, &r);
	assert_int_equal(r.value, 2);
	agent_peer_close(second);
	free(second);
}

static void a_violation_ends_the_connection_only(void **s)
{
	int64_t id = detach("read x; exit 8", ",\"stdin\":true");

	(void)s;
	assert_true(request_id(&peer, "attach", id, ""));
	agent_peer_put(&peer, AGENT_DATA, "x", 1);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	agent_peer_close(&peer);
	assert_true(request_id(&peer, "attach", id, ""));
	agent_peer_put(&peer, AGENT_STDIN, "\n", 1);
	agent_peer_collect_and_ack(&peer, &r);
	assert_int_equal(r.value, 8);
	agent_peer_close(&peer);
}

static void ps_lists_what_runs(void **s)
{
	int64_t id = detach("exec sleep 1000", "");

	(void)s;
	assert_non_null(ps_has(id, "\"command\":\"sh -c exec sleep 1000\""));
	assert_non_null(ps_has(id, "\"detached\":true"));
	assert_non_null(ps_has(id, "\"state\":\"running\""));
	assert_true(request_id(&peer, "kill", id, ",\"signal\":9"));
	agent_peer_close(&peer);
	while (!ps_has(id, "\"kind\":1,\"value\":9"))
		;
}

static void kill_signals_by_id(void **s)
{
	int64_t id = detach("trap 'exit 9' USR1; while :; do sleep 0.01; done", "");

	(void)s;
	usleep(100000); /* the trap is set some time; before, the signal ends it, which is no failure of kill */
	assert_true(request_id(&peer, "kill", id, ",\"signal\":10"));
	agent_peer_close(&peer);
	while (!ps_has(id, "\"state\":\"ended\""))
		;
	assert_false(request_id(&peer, "kill", id, ",\"signal\":10"));
	assert_non_null(strstr(peer.line, "\"code\":\"not-found\""));
	agent_peer_close(&peer);
}

static void only_detached_commands_can_be_attached(void **s)
{
	struct agent_peer *p = malloc(sizeof(*p));

	(void)s;
	agent_peer_request(p, &guest, "{\"op\":\"exec\",\"argv\":[\"sleep\",\"1000\"]}");
	assert_false(request_id(&peer, "attach", agent_peer_number(p, "id"), ""));
	assert_non_null(strstr(peer.line, "\"code\":\"denied\""));
	agent_peer_close(&peer);
	agent_peer_close(p);
	free(p);
	assert_false(request_id(&peer, "attach", 999999, ""));
	agent_peer_close(&peer);
}

static void records_of_ended_ones_make_room(void **s)
{
	int64_t first = detach("exit 1", ""), last = first;

	(void)s;
	for (int i = 0; i < 70; i++) {
		while (!ps_has(last, "\"state\":\"ended\""))
			;
		last = detach("exit 0", "");
	}
	while (ps_has(first, ""))
		;
	assert_non_null(ps_has(last, ""));
}

static void running_ones_have_a_limit(void **s)
{
	struct agent_guest other;
	int started = 0;

	(void)s;
	agent_guest_start(&other, NULL);
	for (;; started++) {
		agent_peer_request(&peer, &other, "{\"op\":\"exec\",\"argv\":[\"sleep\",\"1000\"],\"detach\":true}");
		agent_peer_close(&peer);
		if (strncmp(peer.line, "{\"ok\":true", 10) != 0)
			break;
	}
	assert_int_equal(started, 64);
	assert_non_null(strstr(peer.line, "\"code\":\"limit\""));
	assert_int_equal(agent_guest_stop(&other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_lives_on_and_is_attached_again),
		cmocka_unit_test(it_lives_on_when_its_first_connection_dies),
		cmocka_unit_test(what_it_wrote_alone_is_kept),
		cmocka_unit_test(an_exit_that_was_not_acknowledged_comes_again),
		cmocka_unit_test(a_flood_loses_its_beginning_and_says_how_much),
		cmocka_unit_test(another_client_takes_over),
		cmocka_unit_test(a_violation_ends_the_connection_only),
		cmocka_unit_test(ps_lists_what_runs),
		cmocka_unit_test(kill_signals_by_id),
		cmocka_unit_test(only_detached_commands_can_be_attached),
		cmocka_unit_test(records_of_ended_ones_make_room),
		cmocka_unit_test(running_ones_have_a_limit),
	};

	return agent_guest_run_tests(&guest, tests, ARRAY_SIZE(tests));
}
