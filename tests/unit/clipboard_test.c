/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clipboards over the real agent: with the real program for the guest in an X session where Xvfb is installed, and with shell scripts in
 * its place that say what no honest program says.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/clipboard.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/agent.h"

struct fixture {
	struct home home;
	struct test_agent agent;
	struct clipboard_guest guest;
	char program[400];
	pid_t x; /* Xvfb, 0: none */
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	home_make(&f->home);
	test_agent_start(&f->agent, &f->home);
	f->guest = (struct clipboard_guest){ .connect = test_agent_connect, .arg = &f->agent, .program = f->program };
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	test_agent_stop(&f->agent);
	if (f->x) {
		kill(f->x, SIGKILL);
		waitpid(f->x, NULL, 0);
	}
	home_remove(&f->home);
	free(f);
	return 0;
}

/* Let this shell script be the guest's program; $1 is the verb. */
static void use_script(struct fixture *f, const char *text)
{
	int fd;

	snprintf(f->program, sizeof(f->program), "%s/clipboard", f->home.path);
	fd = open(f->program, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	assert_true(fd >= 0);
	assert_true(dprintf(fd, "#!/bin/sh\n%s\n", text) > 0);
	close(fd);
}

/* The real one. It lies where the directory of tests is in which this program is. */
static void use_program(struct fixture *f, const char *display)
{
	char self[512], text[700];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = 0;
	*strstr(self, "/tests/") = 0;
	snprintf(text, sizeof(text), "DISPLAY=:%s exec %s/coffer-clipboard \"$1\"", display, self);
	use_script(f, text);
}

/* An X server and the real program in its session. */
static void use_x(struct fixture *f)
{
	char number[16] = "";
	int ready[2];

	if (access("/usr/bin/Xvfb", X_OK) < 0)
		skip();
	assert_int_equal(pipe(ready), 0);
	f->x = fork();
	if (f->x == 0) {
		char fd[16];
		int null = open("/dev/null", O_RDWR);

		snprintf(fd, sizeof(fd), "%d", ready[1]);
		dup2(null, 2);
		execl("/usr/bin/Xvfb", "Xvfb", "-displayfd", fd, "-nolisten", "tcp", "-screen", "0", "320x200x24", "-noreset", NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_true(read(ready[0], number, sizeof(number) - 1) > 0);
	close(ready[0]);
	number[strcspn(number, "\n")] = 0;
	use_program(f, number);
}

static void set_text(struct fixture *f, const char *text)
{
	struct err err = ERR_INIT;

	if (clipboard_set(&f->guest, text, strlen(text), &err) < 0)
		fail_msg("%s", err.text);
}

static void assert_text(struct fixture *f, const char *want, size_t n)
{
	struct err err = ERR_INIT;
	char *text = NULL;
	long got = clipboard_get(&f->guest, &text, &err);

	if (got < 0)
		fail_msg("%s", err.text);
	assert_int_equal(got, n);
	assert_memory_equal(text, want, n);
	assert_int_equal(text[n], 0);
	free(text);
}

/* The next text of the watch, which has to be this one. */
static void assert_told(struct clipboard_watch *w, const char *want)
{
	struct err err = ERR_INIT;
	const char *text;
	size_t n;
	int r;

	while ((r = clipboard_watch_next(w, &text, &n, &err)) == 0) {
		struct pollfd p = { .fd = clipboard_watch_fd(w), .events = POLLIN };

		assert_int_equal(poll(&p, 1, -1), 1);
	}
	if (r < 0)
		fail_msg("%s", err.text);
	assert_int_equal(n, strlen(want));
	assert_memory_equal(text, want, n);
}

/* ---- the real thing ---- */

static void what_is_set_is_got(void **state)
{
	use_x(*state);
	assert_text(*state, "", 0);
	set_text(*state, "gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x98\x80\n");
	assert_text(*state, "gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x98\x80\n", 17);
	set_text(*state, "another");
	assert_text(*state, "another", 7);
	set_text(*state, "");
	assert_text(*state, "", 0);
}

static void the_longest_text_goes_through_whole(void **state)
{
	struct fixture *f = *state;
	char *text = malloc(CLIPBOARD_MAX + 2);
	struct err err = ERR_INIT;

	use_x(f);
	for (size_t i = 0; i <= CLIPBOARD_MAX; i++)
		text[i] = (char)('a' + i % 23);
	text[CLIPBOARD_MAX + 1] = 0;
	assert_int_equal(clipboard_set(&f->guest, text, CLIPBOARD_MAX, &err), 0);
	assert_text(f, text, CLIPBOARD_MAX);
	assert_int_equal(clipboard_set(&f->guest, text, CLIPBOARD_MAX + 1, &err), -E2BIG);
	free(text);
}

static void a_watch_tells_what_is_there_and_every_change(void **state)
{
	struct fixture *f = *state;
	struct clipboard_watch *w;
	struct err err = ERR_INIT;

	use_x(f);
	set_text(f, "before");
	assert_int_equal(clipboard_watch_start(&f->guest, &w, &err), 0);
	assert_told(w, "before");
	set_text(f, "after");
	assert_told(w, "after");
	kill(f->x, SIGKILL);
	const char *text;
	size_t n;
	int r;

	while ((r = clipboard_watch_next(w, &text, &n, &err)) >= 0) {
		struct pollfd p = { .fd = clipboard_watch_fd(w), .events = POLLIN };

		assert_int_equal(poll(&p, 1, -1), 1);
	}
	assert_int_equal(r, -EIO);
	assert_non_null(strstr(err.text, "session has ended"));
	clipboard_watch_close(w);
}

static void without_a_session_the_reason_is_told(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	char *text;

	use_program(f, "4711");
	assert_int_equal(clipboard_get(&f->guest, &text, &err), -EIO);
	assert_non_null(strstr(err.text, "no X session"));
}

/* ---- what no honest guest says ---- */

static void an_image_without_a_desktop_is_said_to_be_one(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	char *text;

	snprintf(f->program, sizeof(f->program), "%s/nothing", f->home.path);
	assert_int_equal(clipboard_get(&f->guest, &text, &err), -ENOENT);
	assert_non_null(strstr(err.text, "image build desktop"));
}

static void more_than_the_longest_text_is_refused(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	char *text;

	use_script(f, "head -c 1048577 /dev/zero | tr '\\0' a");
	assert_int_equal(clipboard_get(&f->guest, &text, &err), -E2BIG);
}

static void what_is_not_utf8_counts_as_none(void **state)
{
	use_script(*state, "printf 'a\\377b'");
	assert_text(*state, "", 0);
	use_script(*state, "printf 'a\\000b'");
	assert_text(*state, "", 0);
}

static void a_watch_ends_with_a_length_that_is_too_large(void **state)
{
	struct fixture *f = *state;
	struct clipboard_watch *w;
	struct err err = ERR_INIT;
	const char *text;
	size_t n;
	int r;

	use_script(f, "printf '\\003\\000\\000\\000abc\\001\\000\\020\\000'; cat /dev/zero");
	assert_int_equal(clipboard_watch_start(&f->guest, &w, &err), 0);
	assert_told(w, "abc");
	while ((r = clipboard_watch_next(w, &text, &n, &err)) == 0) {
		struct pollfd p = { .fd = clipboard_watch_fd(w), .events = POLLIN };

		assert_int_equal(poll(&p, 1, -1), 1);
	}
	assert_int_equal(r, -EPROTO);
	clipboard_watch_close(w);
}

static void a_program_that_reads_nothing_does_not_block_a_set(void **state)
{
	struct fixture *f = *state;
	char *text = calloc(1, CLIPBOARD_MAX);
	struct err err = ERR_INIT;

	memset(text, 'a', CLIPBOARD_MAX);
	use_script(f, "exec <&-; echo full >&2; exit 3");
	assert_int_equal(clipboard_set(&f->guest, text, CLIPBOARD_MAX, &err), -EIO);
	assert_non_null(strstr(err.text, "full"));
	free(text);
}

static void utf8_is_told_from_what_is_not(void **state)
{
	static const char *const good[] = { "", "a", "\xc3\xbc", "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x9f\x98\x80",
					    "\xf4\x8f\xbf\xbf" };
	static const char *const bad[] = { "\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf",
					   "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x28\xa1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(clipboard_is_text(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(clipboard_is_text(bad[i], strlen(bad[i])));
	assert_false(clipboard_is_text("a\0b", 3));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_set_is_got),
		TEST(the_longest_text_goes_through_whole),
		TEST(a_watch_tells_what_is_there_and_every_change),
		TEST(without_a_session_the_reason_is_told),
		TEST(an_image_without_a_desktop_is_said_to_be_one),
		TEST(more_than_the_longest_text_is_refused),
		TEST(what_is_not_utf8_counts_as_none),
		TEST(a_watch_ends_with_a_length_that_is_too_large),
		TEST(a_program_that_reads_nothing_does_not_block_a_set),
		cmocka_unit_test(utf8_is_told_from_what_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
