/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP on the port of VNC: pages, and who may open a WebSocket. All that is asked is sent at once, then nothing more comes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/vnc/web.h"
#include "lib/loop.h"

enum { OPEN = 1, SECURE = 2, TEXT_AT = sizeof(struct web_pages) + 2 * sizeof(struct web_file), PAGES_SIZE = TEXT_AT + 64 };

struct web {
	struct transport t;
	int client, watch;
	struct web_pages *pages;
	char answer[65536];
	int result;
};

static int setup(void **state)
{
	struct web *w = calloc(1, sizeof(*w));
	int pair[2], watch[2];

	assert_non_null(w);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, watch), 0);
	w->t.fd = pair[0];
	w->client = pair[1];
	w->t.watch = watch[0];
	w->watch = watch[1];
	w->pages = calloc(1, PAGES_SIZE);
	assert_non_null(w->pages);
	w->pages->magic = WEB_MAGIC;
	w->pages->n = 2;
	w->pages->file[0] = (struct web_file){ "vnc.html", TEXT_AT, 8 };
	w->pages->file[1] = (struct web_file){ "lost.js", PAGES_SIZE - 4, 8 };
	memcpy((char *)w->pages + TEXT_AT, "the page and more", 18);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct web *w = *state;

	close(w->t.fd);
	close(w->client);
	close(w->t.watch);
	close(w->watch);
	free(w->pages);
	free(w);
	return 0;
}

static const char *ask_bytes(struct web *w, const char *text, size_t len, int how)
{
	size_t n = 0;
	ssize_t r;

	assert_int_equal(send(w->client, text, len, 0), len);
	shutdown(w->client, SHUT_WR);
	w->result = web_serve(&w->t, w->pages, PAGES_SIZE, how & SECURE, how & OPEN, UINT64_MAX);
	while ((r = recv(w->client, w->answer + n, sizeof(w->answer) - 1 - n, MSG_DONTWAIT)) > 0)
		n += (size_t)r;
	w->answer[n] = 0;
	return w->answer;
}

static const char *ask(struct web *w, const char *text, int how)
{
	return ask_bytes(w, text, strlen(text), how);
}

static void check_status(const char *answer, const char *status)
{
	assert_memory_equal(answer, "HTTP/1.1 ", 9);
	assert_memory_equal(answer + 9, status, strlen(status));
}

static void a_page_is_served_with_its_type(void **state)
{
	const char *answer = ask(*state, "GET /vnc.html?autoconnect=true HTTP/1.1\r\nHost: x\r\n\r\n", OPEN);

	check_status(answer, "200 OK\r\n");
	assert_non_null(strstr(answer, "Content-Type: text/html"));
	assert_non_null(strstr(answer, "Content-Length: 8\r\n"));
	assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\nthe page");
}

static void head_has_no_body(void **state)
{
	const char *answer = ask(*state, "HEAD /vnc.html HTTP/1.1\r\n\r\n", OPEN);

	check_status(answer, "200 OK\r\n");
	assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

static void requests_that_came_together_are_answered_in_turn(void **state)
{
	const char *answer = ask(*state, "GET / HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\n\r\nGET /vnc.html HTTP/1.1\r\n\r\n", OPEN);

	check_status(answer, "302 Found\r\n");
	answer = strstr(answer, "HTTP/1.1 404 ");
	assert_non_null(answer);
	assert_non_null(strstr(answer, "HTTP/1.1 200 "));
}

static void a_page_that_lies_outside_the_file_is_not_served(void **state)
{
	check_status(ask(*state, "GET /lost.js HTTP/1.1\r\n\r\n", OPEN), "404 ");
}

static void what_is_no_request_ends_the_connection(void **state)
{
	struct web *w = *state;

	check_status(ask(w, "POST / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", OPEN), "400 ");
	assert_null(strstr(w->answer, "302"));
	assert_int_equal(w->result, -ECONNABORTED);
}

static void a_zero_byte_is_refused(void **state)
{
	check_status(ask_bytes(*state, "GET /vnc.html\0x HTTP/1.1\r\n\r\n", 28, OPEN), "400 ");
}

static void a_header_without_colon_is_refused(void **state)
{
	check_status(ask(*state, "GET / HTTP/1.1\r\nHost localhost\r\n\r\n", OPEN), "400 ");
}

static void two_hosts_are_refused(void **state)
{
	check_status(ask(*state, "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", OPEN), "400 ");
}

static void a_request_without_end_is_refused(void **state)
{
	static char text[WEB_REQUEST_MAX + 100] = "GET /";

	memset(text + 5, 'a', sizeof(text) - 6);
	check_status(ask(*state, text, OPEN), "431 ");
}

static void without_tls_there_is_nothing_where_it_is_demanded(void **state)
{
	struct web *w = *state;

	check_status(ask(w, "GET /vnc.html HTTP/1.1\r\n\r\n", SECURE), "403 ");
	assert_null(strstr(w->answer, "the page"));
}

#define UPGRADE(host, origin) \
	"GET /websockify HTTP/1.1\r\nHost: " host "\r\nOrigin: http://" origin "\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n" \
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static void an_upgrade_is_answered_as_the_standard_says(void **state)
{
	struct web *w = *state;

	check_status(ask(w, UPGRADE("127.0.0.1:5901", "127.0.0.1:5901") "Sec-WebSocket-Protocol: binary, base64\r\n\r\n", OPEN), "101 ");
	assert_int_equal(w->result, 0);
	assert_true(w->t.framed);
	assert_non_null(strstr(w->answer, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")); /* RFC 6455's example */
	assert_non_null(strstr(w->answer, "Sec-WebSocket-Protocol: binary\r\n"));
}

static void an_upgrade_of_another_sites_page_is_refused(void **state)
{
	struct web *w = *state;

	check_status(ask(w, UPGRADE("127.0.0.1:5901", "evil.example") "\r\n", 0), "403 ");
	assert_false(w->t.framed);
}

static void an_upgrade_without_key_is_refused(void **state)
{
	check_status(ask(*state, "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n", OPEN), "400 ");
}

static void frames_before_the_answer_end_the_connection(void **state)
{
	struct web *w = *state;

	ask(w, UPGRADE("localhost", "localhost") "\r\nearly", OPEN);
	assert_int_equal(w->result, -EPROTO);
	assert_false(w->t.framed);
}

static void names_are_allowed_only_with_a_password(void **state)
{
	(void)state;
	assert_true(web_allowed("http://desk:5901", "desk:5901", false));
	assert_false(web_allowed("http://desk:5901", "desk:5901", true));
	assert_true(web_allowed("https://localhost:5901", "LOCALHOST:5901", true));
	assert_true(web_allowed("http://[::1]:5901", "[::1]:5901", true));
	assert_false(web_allowed("http://127.0.0.1.evil:5901", "127.0.0.1.evil:5901", true));
	assert_false(web_allowed("http://[::1", "[::1", true));
	assert_false(web_allowed("http://[::1].evil:80", "[::1].evil:80", true));
}

static void an_origin_has_to_be_the_host(void **state)
{
	(void)state;
	assert_true(web_allowed(NULL, "desk", false)); /* no browser */
	assert_false(web_allowed(NULL, NULL, false));
	assert_false(web_allowed("null", "desk", false));
	assert_false(web_allowed("http://desk:80", "desk:5901", false));
	assert_false(web_allowed("http://evil", "desk", false));
}

int main(void)
{
#define WEB_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		WEB_TEST(a_page_is_served_with_its_type),
		WEB_TEST(head_has_no_body),
		WEB_TEST(requests_that_came_together_are_answered_in_turn),
		WEB_TEST(a_page_that_lies_outside_the_file_is_not_served),
		WEB_TEST(what_is_no_request_ends_the_connection),
		WEB_TEST(a_zero_byte_is_refused),
		WEB_TEST(a_header_without_colon_is_refused),
		WEB_TEST(two_hosts_are_refused),
		WEB_TEST(a_request_without_end_is_refused),
		WEB_TEST(without_tls_there_is_nothing_where_it_is_demanded),
		WEB_TEST(an_upgrade_is_answered_as_the_standard_says),
		WEB_TEST(an_upgrade_of_another_sites_page_is_refused),
		WEB_TEST(an_upgrade_without_key_is_refused),
		WEB_TEST(frames_before_the_answer_end_the_connection),
		cmocka_unit_test(names_are_allowed_only_with_a_password),
		cmocka_unit_test(an_origin_has_to_be_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
