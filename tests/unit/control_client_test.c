/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a monitor that answers right, wrong, late or not at all. */
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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/control_client.h"
#include "host/sock.h"
#include "tests/harness/home.h"

static struct home home;
static int dir;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	dir = open(home.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0;
}

static int tear_down(void **s)
{
	(void)s;
	close(dir);
	home_remove(&home);
	return 0;
}

enum answer { GOOD, REFUSE, SHORT, WRONG_SEQ, POSITIVE, ENDLESS_TEXT, HANG_UP, SILENT, DEAF, STAGES, STAGE_TWICE };

static void answer(int conn, const struct control_request *q, enum answer how)
{
	struct control_reply r = { .seq = q->seq, .value = { [CONTROL_V_STATE] = le64_make(VM_PAUSED) } };
	size_t n = sizeof(r);

	if (how == REFUSE) {
		r.status = le32_make((uint32_t)-EBUSY);
		strcpy(r.text, "no\nway");
	} else if (how == SHORT) {
		n = 8;
	} else if (how == WRONG_SEQ) {
		r.seq = le32_make(99);
	} else if (how == POSITIVE) {
		r.status = le32_make(5);
	} else if (how == ENDLESS_TEXT) {
		r.status = le32_make((uint32_t)-EINVAL);
		memset(r.text, 'x', sizeof(r.text));
	}
	if (how == STAGES || how == STAGE_TWICE) {
		if (le16_get(q->op) == CONTROL_SNAPSHOT) {
			r.status = le32_make(CONTROL_STAGE_READY);
		} else if (le16_get(q->op) == CONTROL_SNAPSHOT_CUT) {
			r.status = le32_make(how == STAGES ? CONTROL_STAGE_CUT : CONTROL_STAGE_READY);
			send(conn, &r, n, MSG_NOSIGNAL);
			r.status = le32_make(0);
		}
	}
	send(conn, &r, n, MSG_NOSIGNAL);
}

/* A monitor: answers every request; ends at a kill, unless it is one that does not. */
static pid_t start_monitor(enum answer how)
{
	int listener = sock_listen_at(dir, CONTROL_SOCKET, SOCK_SEQPACKET, NULL);

	assert_true(listener >= 0);
	close(listener);
	assert_int_equal(unlinkat(dir, CONTROL_SOCKET, 0), 0);
	int ready[2];
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		/* Its own process listens: that is whom the kernel names to the other end. */
		listener = sock_listen_at(dir, CONTROL_SOCKET, SOCK_SEQPACKET, NULL);
		close(ready[1]);
		for (;;) {
			struct control_request q;
			int conn = accept(listener, NULL, NULL);

			if (how == DEAF)
				for (;;)
					pause();
			while (recv(conn, &q, sizeof(q), 0) == sizeof(q)) {
				if (how == SILENT)
					continue;
				if (how == HANG_UP)
					break;
				answer(conn, &q, how);
				if (le16_get(q.op) == CONTROL_KILL && how == GOOD)
					_exit(0);
			}
			close(conn);
		}
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int call(enum answer how, struct control_reply *ret, struct err *err)
{
	pid_t pid = start_monitor(how);
	int r = control_call(dir, CONTROL_STATUS, 0, control_deadline(how == SILENT || how == DEAF ? 50 : 20000), ret, err);

	stop(pid);
	return r;
}

static void a_good_answer_is_taken(void **s)
{
	struct control_reply r;

	(void)s;
	assert_int_equal(call(GOOD, &r, NULL), 0);
	assert_int_equal(le64_get(r.value[CONTROL_V_STATE]), VM_PAUSED);
}

static void a_refusal_comes_with_its_words_escaped(void **s)
{
	struct control_reply r;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(call(REFUSE, &r, &err), -EBUSY);
	assert_string_equal(err.text, "no\\x0away");
}

static void answers_that_make_no_sense_are_errors(void **s)
{
	struct control_reply r;

	(void)s;
	assert_int_equal(call(SHORT, &r, NULL), -EPROTO);
	assert_int_equal(unlinkat(dir, CONTROL_SOCKET, 0), 0);
	assert_int_equal(call(WRONG_SEQ, &r, NULL), -EPROTO);
	assert_int_equal(unlinkat(dir, CONTROL_SOCKET, 0), 0);
	assert_int_equal(call(POSITIVE, &r, NULL), -EIO);
	assert_int_equal(unlinkat(dir, CONTROL_SOCKET, 0), 0);
	assert_int_equal(call(HANG_UP, &r, NULL), -ECONNRESET);
}

static int note_stage(void *opaque, enum control_stage stage, struct err *err)
{
	int *seen = opaque;

	*seen = *seen * 10 + (int)stage;
	return *seen > 0 ? 0 : err_set(err, -ECANCELED, "no");
}

static int call_with_stages(enum answer how, int *seen)
{
	const struct control_message q = { .op = CONTROL_SNAPSHOT, .stage = note_stage, .opaque = seen };
	struct control_reply r;
	pid_t pid = start_monitor(how);
	int status = control_call_message(dir, &q, control_deadline(20000), &r, NULL);

	stop(pid);
	return status;
}

static void stages_are_told_and_ready_is_answered(void **s)
{
	int seen = 0;

	(void)s;
	assert_int_equal(call_with_stages(STAGES, &seen), 0);
	assert_int_equal(seen, 12);
}

static void a_stage_that_is_refused_ends_the_call(void **s)
{
	int seen = -1;

	(void)s;
	assert_int_equal(call_with_stages(STAGES, &seen), -ECANCELED);
}

static void a_stage_that_comes_again_is_an_error(void **s)
{
	int seen = 0;

	(void)s;
	assert_int_equal(call_with_stages(STAGE_TWICE, &seen), -EPROTO);
}

static void a_text_without_end_is_ended(void **s)
{
	struct control_reply r;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(call(ENDLESS_TEXT, &r, &err), -EINVAL);
	assert_int_equal(strlen(err.text), CONTROL_TEXT_MAX - 1);
}

static void a_monitor_that_is_silent_or_deaf_is_a_time_out(void **s)
{
	struct control_reply r;

	(void)s;
	assert_int_equal(call(SILENT, &r, NULL), -ETIMEDOUT);
	assert_int_equal(unlinkat(dir, CONTROL_SOCKET, 0), 0);
	assert_int_equal(call(DEAF, &r, NULL), -ETIMEDOUT);
}

static void nobody_there_is_told_from_a_failure(void **s)
{
	struct control_reply r;

	(void)s;
	assert_int_equal(control_call(dir, CONTROL_STATUS, 0, 0, &r, NULL), -ENOENT);
	assert_int_equal(call(GOOD, &r, NULL), 0);
	assert_int_equal(control_call(dir, CONTROL_STATUS, 0, 0, &r, NULL), -ECONNREFUSED);
	assert_int_equal(control_end_monitor(dir, NULL), 0);
}

static void a_monitor_ends_when_it_is_asked(void **s)
{
	pid_t pid = start_monitor(GOOD);
	int status;

	(void)s;
	assert_int_equal(control_end_monitor(dir, NULL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
}

static void one_that_hangs_is_killed(void **s)
{
	pid_t pid = start_monitor(HANG_UP);
	int status;

	(void)s;
	assert_int_equal(control_end_monitor(dir, NULL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void the_process_is_the_one_that_listens(void **s)
{
	pid_t pid = start_monitor(GOOD), got;
	int fd = control_monitor_pidfd(dir, &got, NULL);

	(void)s;
	assert_true(fd >= 0);
	assert_int_equal(got, pid);
	close(fd);
	stop(pid);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_good_answer_is_taken),
		T(a_refusal_comes_with_its_words_escaped),
		T(answers_that_make_no_sense_are_errors),
		T(stages_are_told_and_ready_is_answered),
		T(a_stage_that_is_refused_ends_the_call),
		T(a_stage_that_comes_again_is_an_error),
		T(a_text_without_end_is_ended),
		T(a_monitor_that_is_silent_or_deaf_is_a_time_out),
		T(nobody_there_is_told_from_a_failure),
		T(a_monitor_ends_when_it_is_asked),
		T(one_that_hangs_is_killed),
		T(the_process_is_the_one_that_listens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
