/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest command's streams, signals and end, from our own descriptors to a real agent and back. The client is a child
 * process, as `coffer exec` is, so that its descriptors and signals are its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/exec.h"
#include "host/signals.h"
#include "lib/fd.h"
#include "tests/harness/agent.h"
#include "tests/harness/home.h"

enum { BIG = 1 << 20 };

static struct home home;
static struct test_agent agent;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	test_agent_start(&agent, &home);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	test_agent_stop(&agent);
	home_remove(&home);
	return 0;
}

struct client {
	struct exec_options o;
	int in, out, err;
	pid_t pid;
};

static void __attribute__((noreturn)) be_client(const struct client *c, char **argv)
{
	struct guardian g = GUARDIAN_NONE;
	struct exec_spec spec = { .argv = argv, .options = &c->o, .guardian = &g };
	struct exec_result r;
	struct agent_conn *conn;
	sigset_t old;

	dup2(c->in, 0);
	dup2(c->out, 1);
	dup2(c->err, 2);
	close_range(3, ~0u, 0);
	signal(SIGPIPE, SIG_IGN);
	spec.signal_fd = signals_open(&old, NULL);
	if (agent_connect_unix(agent.socket, &conn, NULL) < 0)
		_exit(200);
	exec_run(conn, &spec, &r);
	exec_explain(&r, argv[0]);
	_exit(exec_status(&r));
}

static void start_client(struct client *c, char **argv)
{
	c->pid = fork();
	if (c->pid == 0)
		be_client(c, argv);
}

static int end_client(const struct client *c)
{
	int status;

	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int open_file(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", home.path, name);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static struct client client_on_null(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	return (struct client){ .in = null, .out = null, .err = null };
}

#define SH(text) ((char *[]){ (char *)"sh", (char *)"-c", (char *)(text), NULL })

static int run_sh(struct client *c, const char *text)
{
	start_client(c, SH(text));
	return end_client(c);
}

static void exit_statuses_pass(void **s)
{
	struct client c = client_on_null();

	(void)s;
	assert_int_equal(run_sh(&c, "exit 0"), 0);
	assert_int_equal(run_sh(&c, "exit 7"), 7);
	assert_int_equal(run_sh(&c, "exit 255"), 255);
	assert_int_equal(run_sh(&c, "kill -TERM $$"), 143);
	assert_int_equal(run_sh(&c, "kill -KILL $$"), 137);
}

static void what_cannot_be_executed_is_126_or_127(void **s)
{
	struct client c = client_on_null();

	(void)s;
	start_client(&c, (char *[]){ (char *)"/no/such/program", NULL });
	assert_int_equal(end_client(&c), 127);
	start_client(&c, (char *[]){ (char *)"/etc/passwd", NULL });
	assert_int_equal(end_client(&c), 126);
	start_client(&c, (char *[]){ (char *)"/etc", NULL });
	assert_int_equal(end_client(&c), 126);
}

static void stdout_and_stderr_come_apart(void **s)
{
	struct client c = client_on_null();
	char text[16];

	(void)s;
	c.out = open_file("out");
	c.err = open_file("err");
	assert_int_equal(run_sh(&c, "printf a; printf b >&2; printf c; printf d >&2"), 0);
	assert_int_equal(pread(c.out, text, sizeof(text), 0), 2);
	assert_memory_equal(text, "ac", 2);
	assert_int_equal(pread(c.err, text, sizeof(text), 0), 2);
	assert_memory_equal(text, "bd", 2);
	close(c.out);
	close(c.err);
}

static void fill_random(char *p, size_t n)
{
	for (size_t at = 0; at < n; at += 256)
		assert_int_equal(getrandom(p + at, 256, 0), 256);
}

static void a_mebibyte_passes_both_ways_byte_for_byte(void **s)
{
	struct client c = client_on_null();
	char *sent = malloc(BIG), *got = malloc(BIG + 1);

	(void)s;
	fill_random(sent, BIG);
	c.in = open_file("in");
	c.out = open_file("out");
	assert_int_equal(fd_pwrite_full(c.in, sent, BIG, 0), 0);
	c.o.interactive = true;
	start_client(&c, (char *[]){ (char *)"cat", NULL });
	assert_int_equal(end_client(&c), 0);
	assert_int_equal(fd_pread_full(c.out, got, BIG + 1, 0), BIG);
	assert_memory_equal(sent, got, BIG);
	free(sent);
	free(got);
	close(c.in);
	close(c.out);
}

static void a_slow_reader_makes_the_command_wait_and_loses_nothing(void **s)
{
	struct client c = client_on_null();
	int p[2];
	size_t total = 0;
	char buf[4096];
	ssize_t n;

	(void)s;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.out = p[1];
	start_client(&c, SH("head -c 3000000 /dev/zero"));
	close(p[1]);
	/* Nothing is read until the child has filled all there is to fill: it cannot end before. */
	assert_int_equal(waitpid(c.pid, NULL, WNOHANG), 0);
	while ((n = read(p[0], buf, sizeof(buf))) > 0)
		total += (size_t)n;
	assert_int_equal(total, 3000000);
	assert_int_equal(end_client(&c), 0);
	close(p[0]);
}

static void a_reader_that_goes_away_ends_the_command_by_sigpipe(void **s)
{
	struct client c = client_on_null();
	int p[2];
	char buf[2];

	(void)s;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.out = p[1];
	start_client(&c, (char *[]){ (char *)"yes", NULL });
	close(p[1]);
	assert_int_equal(fd_read_full(p[0], buf, 2), 2);
	close(p[0]);
	assert_int_equal(end_client(&c), 141);
}

static void a_command_that_ignores_sigpipe_sees_epipe(void **s)
{
	struct client c = client_on_null();
	int p[2];
	char line[64] = "";

	(void)s;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.out = p[1];
	c.err = open_file("err");
	start_client(&c, SH("trap '' PIPE; cat /dev/zero || echo failed >&2; exit 9"));
	close(p[1]);
	assert_int_equal(read(p[0], line, 1), 1);
	close(p[0]);
	assert_int_equal(end_client(&c), 9);
	close(c.err);
}

static void stdin_that_nobody_reads_does_not_hold_up_the_end(void **s)
{
	struct client c = client_on_null();

	(void)s;
	c.in = open_file("in");
	assert_int_equal(ftruncate(c.in, 8 * BIG), 0);
	c.o.interactive = true;
	assert_int_equal(run_sh(&c, "exit 3"), 3);
	close(c.in);
}

static void without_interactive_stdin_is_empty_and_unread(void **s)
{
	struct client c = client_on_null();
	char text[16];

	(void)s;
	c.in = open_file("in");
	c.out = open_file("out");
	assert_int_equal(write(c.in, "hello", 5), 5);
	lseek(c.in, 0, SEEK_SET);
	assert_int_equal(run_sh(&c, "cat; echo end"), 0);
	assert_int_equal(pread(c.out, text, sizeof(text), 0), 4);
	assert_int_equal(lseek(c.in, 0, SEEK_CUR), 0);
	close(c.in);
	close(c.out);
}

static void a_closed_stdin_is_end_of_file(void **s)
{
	struct client c = client_on_null();

	(void)s;
	c.in = -1;
	c.o.interactive = true;
	assert_int_equal(run_sh(&c, "cat; exit 4"), 4);
}

/* Wait for the line that says the command has set its traps. */
static void wait_line(int fd)
{
	char c;

	do
		assert_int_equal(read(fd, &c, 1), 1);
	while (c != '\n');
}

static void signal_test(int signal, const char *script, int expected)
{
	struct client c = client_on_null();
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.out = p[1];
	start_client(&c, SH(script));
	close(p[1]);
	wait_line(p[0]);
	kill(c.pid, signal);
	assert_int_equal(end_client(&c), expected);
	close(p[0]);
}

static void signals_are_passed_on(void **s)
{
	(void)s;
	signal_test(SIGINT, "trap 'exit 11' INT; echo; while :; do sleep 0.05; done", 11);
	signal_test(SIGTERM, "trap 'exit 12' TERM; echo; while :; do sleep 0.05; done", 12);
	signal_test(SIGHUP, "trap 'exit 13' HUP; echo; while :; do sleep 0.05; done", 13);
	signal_test(SIGUSR1, "trap 'exit 14' USR1; echo; while :; do sleep 0.05; done", 14);
	signal_test(SIGINT, "echo; exec sleep 1000", 130);
}

static void the_third_interrupt_gives_up(void **s)
{
	struct client c = client_on_null();
	int p[2];

	(void)s;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.out = p[1];
	start_client(&c, SH("n=0; trap 'n=$((n+1)); echo $n' INT; echo; while :; do sleep 0.05; done"));
	close(p[1]);
	wait_line(p[0]);
	kill(c.pid, SIGINT);
	wait_line(p[0]);
	kill(c.pid, SIGINT);
	wait_line(p[0]);
	kill(c.pid, SIGINT);
	assert_int_equal(end_client(&c), 130);
	close(p[0]);
}

static void a_signal_gets_past_stdin_that_nobody_reads(void **s)
{
	struct client c = client_on_null();
	int p[2];

	(void)s;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.in = open_file("in");
	assert_int_equal(ftruncate(c.in, 8 * BIG), 0);
	c.out = p[1];
	c.o.interactive = true;
	start_client(&c, SH("echo; exec sleep 1000"));
	close(p[1]);
	wait_line(p[0]);
	kill(c.pid, SIGTERM);
	assert_int_equal(end_client(&c), 143);
	close(p[0]);
	close(c.in);
}

static void a_time_out_is_124(void **s)
{
	struct client c = client_on_null();

	(void)s;
	c.o.timeout = 0.1;
	assert_int_equal(run_sh(&c, "sleep 1000"), 124);
}

static void an_agent_that_dies_is_125(void **s)
{
	struct client c = client_on_null();
	int p[2];

	(void)s;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	c.out = p[1];
	start_client(&c, SH("echo; exec sleep 1000"));
	close(p[1]);
	wait_line(p[0]);
	test_agent_stop(&agent);
	assert_int_equal(end_client(&c), 125);
	close(p[0]);
	test_agent_start(&agent, &home);
}

static void output_that_cannot_be_written_is_125_whatever_the_command_does(void **s)
{
	struct client c = client_on_null();

	(void)s;
	c.out = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(run_sh(&c, "echo x; exit 0"), 125);
	assert_int_equal(run_sh(&c, "echo x; exit 7"), 125);
	assert_int_equal(run_sh(&c, "yes"), 125);
	close(c.out);
}

static void output_that_cannot_be_written_is_one_line_that_names_stream_and_error(void **s)
{
	struct client c = client_on_null();
	char text[256] = "";

	(void)s;
	c.out = open("/dev/full", O_WRONLY | O_CLOEXEC);
	c.err = open_file("err");
	assert_int_equal(run_sh(&c, "yes"), 125);
	assert_true(pread(c.err, text, sizeof(text) - 1, 0) > 0);
	assert_string_equal(text, "coffer: write to stdout: No space left on device\n");
	close(c.out);
	close(c.err);
}

static void environment_directory_and_terminal_reach_the_command(void **s)
{
	struct client c = client_on_null();
	char text[64] = "";

	(void)s;
	c.out = open_file("out");
	c.o.env = (struct opt_strv){ { "A=x y" }, 1 };
	c.o.cwd = (char[]){ "/usr" };
	c.o.tty = true;
	assert_int_equal(run_sh(&c, "echo \"$A\"; pwd; stty size; test -t 0 && test -t 1 && test -t 2"), 0);
	assert_true(pread(c.out, text, sizeof(text) - 1, 0) > 0);
	assert_string_equal(text, "x y\r\n/usr\r\n24 80\r\n");
	close(c.out);
}

static int fresh(void **s)
{
	static const char *const names[] = { "in", "out", "err" };

	(void)s;
	for (size_t i = 0; i < 3; i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%s", home.path, names[i]);
		unlink(path);
	}
	return 0;
}

#define T(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(exit_statuses_pass),
		T(what_cannot_be_executed_is_126_or_127),
		T(stdout_and_stderr_come_apart),
		T(a_mebibyte_passes_both_ways_byte_for_byte),
		T(a_slow_reader_makes_the_command_wait_and_loses_nothing),
		T(a_reader_that_goes_away_ends_the_command_by_sigpipe),
		T(a_command_that_ignores_sigpipe_sees_epipe),
		T(stdin_that_nobody_reads_does_not_hold_up_the_end),
		T(without_interactive_stdin_is_empty_and_unread),
		T(a_closed_stdin_is_end_of_file),
		T(signals_are_passed_on),
		T(the_third_interrupt_gives_up),
		T(a_signal_gets_past_stdin_that_nobody_reads),
		T(a_time_out_is_124),
		T(an_agent_that_dies_is_125),
		T(output_that_cannot_be_written_is_125_whatever_the_command_does),
		T(output_that_cannot_be_written_is_one_line_that_names_stream_and_error),
		T(environment_directory_and_terminal_reach_the_command),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
