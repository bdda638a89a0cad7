/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest command whose connection is made again: against the real agent behind a relay that breaks connections, and
 * against agents that say what the test wants. The client is a child process, as `coffer exec` is.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/exec.h"
#include "host/signals.h"
#include "host/sock.h"
#include "lib/fd.h"
#include "tests/harness/agent.h"
#include "tests/harness/home.h"

enum { BIG = 3 << 20, CUT_AFTER = 150000, CUTS = 12 };

static struct home home;
static char front[128]; /* the socket that the client connects to */
static int listener;

static int set_up(void **s)
{
	int dir;

	(void)s;
	home_make(&home);
	dir = open(home.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	listener = sock_listen_at(dir, "front", SOCK_STREAM, NULL);
	assert_true(listener >= 0);
	snprintf(front, sizeof(front), "%s/front", home.path);
	close(dir);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	close(listener);
	home_remove(&home);
	return 0;
}

/* ---- the client ---- */

static int connect_front(void *arg, int signal_fd, struct agent_conn **ret, struct err *err)
{
	(void)arg;
	(void)signal_fd;
	return agent_connect_unix(front, ret, err);
}

static int comes_back(void *arg, int signal_fd, struct agent_conn **ret, int *ret_signal, struct err *err)
{
	(void)ret_signal;
	return connect_front(arg, signal_fd, ret, err);
}

static int never_comes_back(void *arg, int signal_fd, struct agent_conn **ret, int *ret_signal, struct err *err)
{
	(void)arg, (void)signal_fd, (void)ret, (void)ret_signal, (void)err;
	return -ENOTCONN;
}

static int is_interrupted(void *arg, int signal_fd, struct agent_conn **ret, int *ret_signal, struct err *err)
{
	(void)arg, (void)signal_fd, (void)ret, (void)err;
	*ret_signal = SIGINT;
	return -ECANCELED;
}

struct client {
	int in, out, err; /* files */
	pid_t pid;
};

static int open_file(const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", home.path, name);
	return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void start_client(struct client *c, char **argv,
			 int (*again)(void *, int, struct agent_conn **, int *, struct err *))
{
	struct resume_source source = { .connect = again, .connect_again = connect_front };
	struct exec_options o = { .interactive = true };
	struct guardian g = GUARDIAN_NONE;
	struct exec_spec spec = { .argv = argv, .options = &o, .guardian = &g, .resume = &source };
	struct exec_result r;
	struct agent_conn *conn;
	sigset_t old;

	c->in = open_file("in");
	c->out = open_file("out");
	c->err = open_file("err");
	if (strstr(argv[2], "cat")) {
		int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
		static char data[BIG];

		assert_int_equal(fd_read_full(random, data, BIG), BIG);
		assert_int_equal(fd_pwrite_full(c->in, data, BIG, 0), 0);
		close(random);
	}
	c->pid = fork();
	if (c->pid != 0)
		return;
	dup2(c->in, 0);
	dup2(c->out, 1);
	dup2(c->err, 2);
	close_range(3, ~0u, 0);
	signal(SIGPIPE, SIG_IGN);
	spec.signal_fd = signals_open(&old, NULL);
	if (agent_connect_unix(front, &conn, NULL) < 0)
		_exit(200);
	exec_run(conn, &spec, &r);
	exec_explain(&r, argv[0]);
	_exit(exec_status(&r));
}

static int end_client(struct client *c, char *ret_err, size_t size)
{
	int status;

	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	assert_true(WIFEXITED(status));
	memset(ret_err, 0, size);
	assert_true(fd_pread_full(c->err, ret_err, size - 1, 0) >= 0);
	return WEXITSTATUS(status);
}

static void close_files(struct client *c)
{
	close(c->in);
	close(c->out);
	close(c->err);
}

#define SH(text) ((char *[]){ (char *)"sh", (char *)"-c", (char *)(text), NULL })

/* ---- a relay to the real agent ---- */

static char state_of(pid_t pid, pid_t *ret_parent)
{
	char path[32], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%*d (%*[^)]) %c %d", &state, ret_parent) != 2)
			state = 0;
		fclose(f);
	}
	return state;
}

/* The agent's process for the command stands still while its connection breaks, as in a VM (agent_resume_test.c).
 * Returns whether there were bytes on their way, without which a close is no break. */
static bool cut(int agent, pid_t handler)
{
	pid_t parent;
	int waiting = 0;

	kill(handler, SIGSTOP);
	while (state_of(handler, &parent) != 'T')
		;
	ioctl(agent, FIONREAD, &waiting);
	if (waiting > 0)
		close(agent);
	kill(handler, SIGCONT);
	return waiting > 0;
}

static bool pass(int from, int to, char *buf, size_t size, ssize_t *ret)
{
	*ret = read(from, buf, size);
	return *ret > 0 && fd_write_full(to, buf, (size_t)*ret) == 0;
}

/* One connection; true: it was cut. */
static bool relay(int client, int agent, bool may_cut)
{
	static char buf[32768 + 1];
	pid_t handler = 0;
	size_t passed = 0;
	ssize_t n;

	for (;;) {
		struct pollfd p[2] = { { .fd = client, .events = POLLIN }, { .fd = agent, .events = POLLIN } };

		poll(p, 2, -1);
		if (may_cut && passed > CUT_AFTER && handler && cut(agent, handler)) {
			close(client);
			return true;
		}
		if (p[1].revents) {
			if (!pass(agent, client, buf, 32768, &n))
				break;
			passed += (size_t)n;
			buf[n] = '\0';
			if (!handler && strstr(buf, "\"pid\":"))
				state_of(atoi(strstr(buf, "\"pid\":") + 6), &handler);
		}
		if (p[0].revents && !pass(client, agent, buf, 32768, &n))
			break;
	}
	close(client);
	close(agent);
	return false;
}

static void nothing_is_lost_or_doubled_when_connections_break(void **s)
{
	struct test_agent agent;
	struct client c;
	char text[512], *sent = malloc(BIG), *got = malloc(BIG + 1);
	int cuts = 0;
	bool cut_last = true;

	(void)s;
	signal(SIGPIPE, SIG_IGN);
	test_agent_start(&agent, &home);
	start_client(&c, SH("cat; echo end >&2; exit 9"), comes_back);
	while (cut_last) {
		int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC),
		    to = sock_connect_path(agent.socket, SOCK_STREAM, NULL);

		assert_true(client >= 0 && to >= 0);
		cut_last = relay(client, to, cuts < CUTS);
		cuts += cut_last;
	}
	assert_int_equal(end_client(&c, text, sizeof(text)), 9);
	assert_string_equal(text, "end\n");
	assert_int_equal(cuts, CUTS);
	assert_int_equal(fd_pread_full(c.in, sent, BIG, 0), BIG);
	assert_int_equal(fd_pread_full(c.out, got, BIG + 1, 0), BIG);
	assert_memory_equal(sent, got, BIG);
	close_files(&c);
	free(sent);
	free(got);
	test_agent_stop(&agent);
}

/* ---- agents that say what they are to ---- */

/* The next connection and its request. */
static int take_request(char *line, size_t size)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	size_t n = 0;

	assert_true(fd >= 0);
	while (n < size - 1 && read(fd, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = '\0';
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(fd_write_full(fd, text, strlen(text)), 0);
}

static void say_frame(int fd, uint8_t type, const void *payload, size_t n)
{
	struct agent_frame h = { .length = le32_make((uint32_t)n), .type = type };

	assert_int_equal(fd_write_full(fd, &h, sizeof(h)), 0);
	assert_int_equal(fd_write_full(fd, payload, n), 0);
}

#define OK_LINE "{\"ok\":true,\"id\":5,\"pid\":6,\"stdin_window\":1000,\"resume\":true}\n"

/* A command that says "one" on a connection which then ends. */
static int64_t break_first(void)
{
	char line[4096];
	int fd = take_request(line, sizeof(line));
	const char *key = strstr(line, "\"resume\":");

	assert_non_null(key);
	say(fd, OK_LINE);
	say_frame(fd, AGENT_STDOUT, "one\n", 4);
	close(fd);
	return strtoll(key + 9, NULL, 10);
}

static void attach_says_what_was_received_and_goes_on(void **s)
{
	le32 end[2] = { le32_make(AGENT_EXIT_STATUS), le32_make(3) };
	char line[4096], wanted[128], text[512], out[64] = { 0 };
	struct client c;

	(void)s;
	start_client(&c, SH("x"), comes_back);
	snprintf(wanted, sizeof(wanted), "{\"op\":\"attach\",\"id\":5,\"resume\":%lld,\"received\":12}",
		 (long long)break_first());
	int fd = take_request(line, sizeof(line));

	assert_string_equal(line, wanted);
	say(fd, "{\"ok\":true,\"id\":5,\"stdin\":true,\"stdin_window\":262144,\"stdin_taken\":0,\"lost\":0}\n");
	say_frame(fd, AGENT_STDOUT, "two\n", 4);
	say_frame(fd, AGENT_EXIT, end, sizeof(end));
	assert_int_equal(end_client(&c, text, sizeof(text)), 3);
	assert_int_equal(fd_pread_full(c.out, out, sizeof(out) - 1, 0), 8);
	assert_string_equal(out, "one\ntwo\n");
	assert_string_equal(text, "");
	close(fd);
	close_files(&c);
}

static void an_earlier_moment_is_explained(void **s)
{
	char line[4096], text[512];
	struct client c;

	(void)s;
	start_client(&c, SH("x"), comes_back);
	break_first();
	int fd = take_request(line, sizeof(line));

	say(fd, "{\"error\":\"no\",\"errno\":116,\"code\":\"stale\"}\n");
	assert_int_equal(end_client(&c, text, sizeof(text)), 125);
	assert_non_null(strstr(text, "from an earlier moment"));
	close(fd);
	close_files(&c);
}

static void stdin_that_was_not_sent_is_an_earlier_moment_or_a_lie(void **s)
{
	static const char *const answers[] = {
		"{\"ok\":true,\"stdin\":true,\"stdin_window\":262144,\"stdin_taken\":1}\n",
		"{\"ok\":true,\"stdin\":true,\"stdin_window\":262143,\"stdin_taken\":0}\n",
		"{\"ok\":true,\"stdin\":true,\"stdin_window\":262145,\"stdin_taken\":0}\n",
		"{\"ok\":true,\"stdin\":true,\"stdin_window\":262144,\"stdin_taken\":-1}\n",
		"{\"ok\":true}\n",
	};
	char line[4096], text[512];

	(void)s;
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct client c;

		start_client(&c, SH("x"), comes_back);
		break_first();
		int fd = take_request(line, sizeof(line));

		say(fd, answers[i]);
		assert_int_equal(end_client(&c, text, sizeof(text)), 125);
		close(fd);
		close_files(&c);
	}
}

static void a_vm_that_does_not_come_back_is_a_lost_connection(void **s)
{
	struct client c;
	char text[512];

	(void)s;
	start_client(&c, SH("x"), never_comes_back);
	break_first();
	assert_int_equal(end_client(&c, text, sizeof(text)), 125);
	assert_non_null(strstr(text, "connection"));
	close_files(&c);
}

static void a_signal_ends_the_waiting(void **s)
{
	struct client c;
	char text[512];

	(void)s;
	start_client(&c, SH("x"), is_interrupted);
	break_first();
	assert_int_equal(end_client(&c, text, sizeof(text)), 130);
	close_files(&c);
}

static void an_older_agent_is_asked_without_resume(void **s)
{
	le32 end[2] = { le32_make(AGENT_EXIT_STATUS), le32_make(4) };
	char line[4096], text[512];
	struct client c;
	int fd;

	(void)s;
	start_client(&c, SH("x"), never_comes_back);
	fd = take_request(line, sizeof(line));
	assert_non_null(strstr(line, "\"resume\""));
	say(fd, "{\"error\":\"request: field 'resume' is not known\",\"errno\":95,\"code\":\"unsupported\"}\n");
	close(fd);
	fd = take_request(line, sizeof(line));
	assert_null(strstr(line, "\"resume\""));
	say(fd, "{\"ok\":true,\"id\":5,\"pid\":6,\"stdin_window\":1000}\n");
	say_frame(fd, AGENT_EXIT, end, sizeof(end));
	assert_int_equal(end_client(&c, text, sizeof(text)), 4);
	assert_string_equal(text, "");
	close(fd);
	close_files(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(nothing_is_lost_or_doubled_when_connections_break, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(attach_says_what_was_received_and_goes_on, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(an_earlier_moment_is_explained, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(stdin_that_was_not_sent_is_an_earlier_moment_or_a_lie, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_vm_that_does_not_come_back_is_a_lost_connection, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_signal_ends_the_waiting, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(an_older_agent_is_asked_without_resume, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
