/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket without KVM: the monitor's side runs in the test's own loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/control.h"

struct fixture {
	char dir[64], path[96];
	struct vm vm;
	struct control c;
	struct control_hooks hooks;
	uint64_t asked[2];
	size_t asked_fds;
};

static int power_button(void *opaque, struct err *err)
{
	struct fixture *f = opaque;

	(void)err;
	f->asked[0]++;
	return 0;
}

static int balloon_set(void *opaque, uint64_t mib, struct err *err)
{
	struct fixture *f = opaque;

	f->asked[0] = mib;
	return mib > 100 ? err_set(err, -ERANGE, "too much: %llu", (unsigned long long)mib) : 0;
}

static uint64_t balloon_get(void *opaque)
{
	(void)opaque;
	return 17;
}

static int disk_resize(void *opaque, uint64_t disk, uint64_t bytes, struct err *err)
{
	struct fixture *f = opaque;

	(void)err;
	f->asked[0] = disk;
	f->asked[1] = bytes;
	return 0;
}

static bool never_busy(void *opaque)
{
	(void)opaque;
	return false;
}

static int disk_attach(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err)
{
	struct fixture *f = opaque;

	(void)arg;
	(void)err;
	f->asked_fds = nfds;
	for (size_t i = 0; i < nfds; i++)
		assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
	return 0;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;

	assert_non_null(f);
	strcpy(f->dir, "/tmp/control-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/" CONTROL_SOCKET, f->dir);
	assert_int_equal(vm_init(&f->vm, &err), 0);
	f->vm.mem.size = MIB(64);
	f->hooks = (struct control_hooks){ power_button, balloon_set, balloon_get, disk_resize, f };
	if (control_init(&f->c, &f->vm, f->path, &f->hooks, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(vm_set_state(&f->vm, VM_CONFIGURED, NULL), 0);
	assert_int_equal(vm_set_state(&f->vm, VM_RUNNING, NULL), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	control_finish(&f->c);
	vm_finish(&f->vm);
	unlink(f->path);
	rmdir(f->dir);
	free(f);
	return 0;
}

static void settle(struct fixture *f)
{
	while (loop_step(&f->vm.loop, 0) > 0)
		;
}

static int client(struct fixture *f)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	memcpy(a.sun_path, f->path, strlen(f->path));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	settle(f);
	return fd;
}

static void ask(int fd, uint16_t op, uint32_t seq, uint64_t arg0, uint64_t arg1)
{
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make(op), .seq = le32_make(seq) };

	q.arg[0] = le64_make(arg0);
	q.arg[1] = le64_make(arg1);
	assert_int_equal(send(fd, &q, sizeof(q), MSG_NOSIGNAL), sizeof(q));
}

/* The reply that is there; returns its status. */
static int answer(struct fixture *f, int fd, uint32_t seq, struct control_reply *r)
{
	settle(f);
	assert_int_equal(recv(fd, r, sizeof(*r), MSG_DONTWAIT), sizeof(*r));
	assert_int_equal(le32_get(r->seq), seq);
	assert_non_null(memchr(r->text, 0, sizeof(r->text)));
	return (int)le32_get(r->status);
}

static bool nothing(struct fixture *f, int fd)
{
	char b;

	settle(f);
	return recv(fd, &b, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static bool closed(struct fixture *f, int fd)
{
	char b;

	settle(f);
	return recv(fd, &b, 1, MSG_DONTWAIT) == 0;
}

static void status_tells_what_runs(void **state)
{
	struct fixture *f = *state;
	struct control_reply r;
	int fd = client(f);

	ask(fd, CONTROL_STATUS, 7, 0, 0);
	assert_int_equal(answer(f, fd, 7, &r), 0);
	assert_int_equal(le64_get(r.value[CONTROL_V_STATE]), VM_RUNNING);
	assert_int_equal(le64_get(r.value[CONTROL_V_STOP]), VM_STOP_NONE);
	assert_int_equal(le64_get(r.value[CONTROL_V_PID]), getpid());
	assert_int_equal(le64_get(r.value[CONTROL_V_MEMORY]), MIB(64));
	assert_int_equal(le64_get(r.value[CONTROL_V_BALLOON]), 17);
	assert_true(le64_get(r.value[CONTROL_V_RESIDENT]) > KIB(100));
	assert_string_equal(r.text, "");
	close(fd);
}

static void a_counter_that_cannot_be_told_is_said_to_be_so(void **state)
{
	struct fixture *f = *state;
	struct control_reply r;
	int fd = client(f);

	ask(fd, CONTROL_CLOCK, 3, 0, 0);
	assert_int_equal(answer(f, fd, 3, &r), -ENOTSUP);
	assert_int_equal(le64_get(r.value[CONTROL_CV_KHZ]), 0);
	assert_non_null(strstr(r.text, "counter"));
	close(fd);
}

static void pause_and_resume_can_be_repeated(void **state)
{
	static const struct {
		enum control_op op;
		enum vm_state then;
	} steps[] = {
		{ CONTROL_RESUME, VM_RUNNING }, { CONTROL_PAUSE, VM_PAUSED },   { CONTROL_PAUSE, VM_PAUSED },
		{ CONTROL_RESUME, VM_RUNNING }, { CONTROL_RESUME, VM_RUNNING }, { CONTROL_PAUSE, VM_PAUSED },
	};
	struct fixture *f = *state;
	struct control_reply r;
	int fd = client(f);

	for (uint32_t i = 0; i < ARRAY_SIZE(steps); i++) {
		ask(fd, steps[i].op, i, 0, 0);
		assert_int_equal(answer(f, fd, i, &r), 0);
		assert_int_equal(le64_get(r.value[CONTROL_V_STATE]), steps[i].then);
		assert_int_equal(f->vm.state, steps[i].then);
	}
	close(fd);
}

static int refuse_pause(void *opaque)
{
	(void)opaque;
	return -EIO;
}

static void no_resume(void *opaque)
{
	(void)opaque;
}

static void a_failed_pause_is_reported(void **state)
{
	struct fixture *f = *state;
	struct vm_participant p = { refuse_pause, no_resume, NULL };
	struct control_reply r;
	int fd = client(f);

	assert_int_equal(vm_add_participant(&f->vm, &p, NULL), 0);
	ask(fd, CONTROL_PAUSE, 1, 0, 0);
	assert_int_equal(answer(f, fd, 1, &r), -EIO);
	assert_int_not_equal(r.text[0], 0);
	assert_int_equal(f->vm.state, VM_RUNNING);
	close(fd);
}

static void kill_stops_in_any_state(void **state)
{
	struct fixture *f = *state;
	struct control_reply r;
	int fd = client(f);

	assert_int_equal(vm_set_state(&f->vm, VM_PAUSED, NULL), 0);
	ask(fd, CONTROL_KILL, 1, 0, 0);
	assert_int_equal(answer(f, fd, 1, &r), 0);
	assert_int_equal(f->vm.stop_reason, VM_STOP_KILLED);
	assert_true(f->vm.loop.stopping);
	close(fd);
}

static void wait_answers_when_the_vm_stops(void **state)
{
	struct fixture *f = *state;
	struct control_reply r;
	int a = client(f), b = client(f);

	ask(a, CONTROL_WAIT, 5, 0, 0);
	ask(b, CONTROL_WAIT, 6, 0, 0);
	assert_true(nothing(f, a));
	ask(a, CONTROL_STATUS, 9, 0, 0); /* not while it waits */
	assert_true(nothing(f, a));
	close(b); /* a waiter that goes away is forgotten */
	settle(f);
	vm_request_stop(&f->vm, VM_STOP_PANIC, "the guest's kernel panicked");
	assert_int_equal(vm_set_state(&f->vm, VM_STOPPED, NULL), 0);
	control_stopped(&f->c);
	assert_int_equal(answer(f, a, 5, &r), 0);
	assert_int_equal(le64_get(r.value[CONTROL_V_STOP]), VM_STOP_PANIC);
	assert_int_equal(le64_get(r.value[CONTROL_V_STATE]), VM_STOPPED);
	assert_string_equal(r.text, "the guest's kernel panicked");
	close(a);
}

static void operations_of_devices_reach_them(void **state)
{
	struct fixture *f = *state;
	struct control_reply r;
	int fd = client(f);

	ask(fd, CONTROL_POWER_BUTTON, 1, 0, 0);
	assert_int_equal(answer(f, fd, 1, &r), 0);
	assert_int_equal(f->asked[0], 1);
	ask(fd, CONTROL_BALLOON, 2, 99, 0);
	assert_int_equal(answer(f, fd, 2, &r), 0);
	assert_int_equal(f->asked[0], 99);
	ask(fd, CONTROL_BALLOON, 3, 101, 0);
	assert_int_equal(answer(f, fd, 3, &r), -ERANGE);
	assert_string_equal(r.text, "too much: 101");
	ask(fd, CONTROL_DISK_RESIZE, 4, 2, MIB(5));
	assert_int_equal(answer(f, fd, 4, &r), 0);
	assert_int_equal(f->asked[0], 2);
	assert_int_equal(f->asked[1], MIB(5));
	f->hooks = (struct control_hooks){ 0 };
	ask(fd, CONTROL_POWER_BUTTON, 5, 0, 0);
	assert_int_equal(answer(f, fd, 5, &r), -ENOTSUP);
	close(fd);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void descriptors_arrive_and_never_stay(void **state)
{
	struct fixture *f = *state;
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make(CONTROL_DISK_ATTACH) };
	int fds[3] = { 0, 1, 2 };
	struct control_reply r;
	struct control_snapshot_hooks hooks = { .disk_attach = disk_attach, .busy = never_busy, .opaque = f };
	int fd = client(f), before = count_fds();

	f->c.snapshots = &hooks;
	assert_int_equal(fd_send(fd, &q, sizeof(q), fds, 3), sizeof(q));
	assert_int_equal(answer(f, fd, 0, &r), 0);
	assert_int_equal(f->asked_fds, 3);
	q.op = le16_make(CONTROL_DISK_RESIZE); /* takes none */
	assert_int_equal(fd_send(fd, &q, sizeof(q), fds, 3), sizeof(q));
	assert_int_equal(answer(f, fd, 0, &r), 0);
	assert_int_equal(fd_send(fd, &q, 3, fds, 3), 3); /* malformed, with descriptors */
	assert_int_equal(answer(f, fd, 0, &r), -EINVAL);
	assert_int_equal(count_fds(), before);
	close(fd);
}

/* A snapshot that is announced: how often the answer came, and what it was. */
struct announced {
	int answers;
	bool yes;
};

static int begin_snapshot(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err)
{
	(void)opaque;
	(void)arg;
	(void)fds;
	(void)nfds;
	(void)err;
	return 1;
}

static void count_answer(void *opaque, bool yes)
{
	struct announced *a = opaque;

	a->answers++;
	a->yes = yes;
}

static const struct control_snapshot_hooks *announced_hooks(struct announced *a)
{
	static struct control_snapshot_hooks h;

	h = (struct control_snapshot_hooks){ .snapshot = begin_snapshot, .answered = count_answer, .busy = never_busy, .opaque = a };
	return &h;
}

/* A client whose snapshot awaits its word. */
static int ask_until_ready(struct fixture *f, struct announced *a)
{
	struct control_reply r;
	int fd = client(f);

	f->c.snapshots = announced_hooks(a);
	ask(fd, CONTROL_SNAPSHOT, 3, 0, 0);
	assert_true(nothing(f, fd));
	assert_int_equal(control_stage(&f->c, CONTROL_STAGE_READY), 0);
	assert_int_equal(answer(f, fd, 3, &r), CONTROL_STAGE_READY);
	assert_int_equal(a->answers, 0);
	return fd;
}

static void a_snapshot_is_cut_when_the_one_that_asked_for_it_says_so(void **state)
{
	struct fixture *f = *state;
	struct announced a = { 0 };
	struct control_reply r;
	int fd = ask_until_ready(f, &a);

	ask(fd, CONTROL_SNAPSHOT_CUT, 4, 0, 0);
	assert_true(nothing(f, fd));
	assert_int_equal(a.answers, 1);
	assert_true(a.yes);
	assert_int_equal(control_stage(&f->c, CONTROL_STAGE_CUT), 0);
	assert_int_equal(answer(f, fd, 3, &r), CONTROL_STAGE_CUT);
	control_complete(&f->c, 0, NULL, 0, NULL);
	assert_int_equal(answer(f, fd, 3, &r), 0);
	assert_int_equal(a.answers, 1);
	close(fd);
}

static void going_away_or_another_request_instead_of_the_cut_says_no(void **state)
{
	struct fixture *f = *state;

	for (int other_request = 0; other_request < 2; other_request++) {
		struct announced a = { 0 };
		int fd = ask_until_ready(f, &a);

		if (other_request) {
			ask(fd, CONTROL_STATUS, 4, 0, 0);
			assert_true(closed(f, fd));
		}
		close(fd);
		settle(f);
		assert_int_equal(a.answers, 1);
		assert_false(a.yes);
		assert_int_equal(control_stage(&f->c, CONTROL_STAGE_CUT), -ENOTCONN);
		control_complete(&f->c, -ECANCELED, NULL, 0, NULL);
	}
}

static void a_snapshot_that_ends_while_the_cut_is_awaited_asks_no_more(void **state)
{
	struct fixture *f = *state;
	struct announced a = { 0 };
	struct control_reply r;
	int fd = ask_until_ready(f, &a);

	control_complete(&f->c, -ETIMEDOUT, NULL, 0, "late");
	assert_int_equal(answer(f, fd, 3, &r), -ETIMEDOUT);
	ask(fd, CONTROL_SNAPSHOT_CUT, 4, 0, 0);
	assert_int_equal(answer(f, fd, 4, &r), -EINVAL);
	close(fd);
	settle(f);
	assert_int_equal(a.answers, 0);
}

static void malformed_requests_are_refused_and_the_connection_lives(void **state)
{
	struct fixture *f = *state;
	char big[4096] = { 0 };
	struct control_request q = { .version = le16_make(CONTROL_VERSION + 1), .op = le16_make(CONTROL_KILL),
				     .seq = le32_make(3) };
	struct control_reply r;
	int fd = client(f), other = client(f);

	assert_int_equal(send(fd, &q, sizeof(q), 0), sizeof(q));
	assert_int_equal(answer(f, fd, 3, &r), -EINVAL);
	assert_non_null(strstr(r.text, "version 2"));
	ask(fd, 0xffff, 4, 0, 0);
	assert_int_equal(answer(f, fd, 4, &r), -EINVAL);
	assert_non_null(strstr(r.text, "65535"));
	assert_int_equal(send(fd, big, sizeof(q) - 1, 0), sizeof(q) - 1);
	assert_int_equal(answer(f, fd, 0, &r), -EINVAL);
	assert_int_equal(send(fd, big, sizeof(q) + 1, 0), sizeof(q) + 1);
	assert_int_equal(answer(f, fd, 0, &r), -EINVAL);
	assert_int_equal(send(fd, big, sizeof(big), 0), sizeof(big));
	assert_int_equal(answer(f, fd, 0, &r), -EINVAL);
	ask(fd, CONTROL_STATUS, 8, 0, 0);
	assert_int_equal(answer(f, fd, 8, &r), 0);
	ask(other, CONTROL_STATUS, 9, 0, 0);
	assert_int_equal(answer(f, other, 9, &r), 0);
	assert_int_equal(f->vm.stop_reason, VM_STOP_NONE);
	close(fd);
	close(other);
}

static void one_client_too_many_is_closed_and_its_place_is_reused(void **state)
{
	struct fixture *f = *state;
	int fd[CONTROL_MAX_CLIENTS], extra;
	struct control_reply r;

	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		fd[i] = client(f);
	extra = client(f);
	assert_true(closed(f, extra));
	close(extra);
	ask(fd[0], CONTROL_STATUS, 1, 0, 0);
	assert_int_equal(answer(f, fd[0], 1, &r), 0);
	close(fd[3]);
	settle(f);
	fd[3] = client(f);
	ask(fd[3], CONTROL_STATUS, 2, 0, 0);
	assert_int_equal(answer(f, fd[3], 2, &r), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
}

static void a_client_that_never_reads_is_dropped_others_are_served(void **state)
{
	struct fixture *f = *state;
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make(CONTROL_STATUS) };
	struct control_reply r;
	int deaf = client(f), fd = client(f);
	bool dropped = false;

	/* Far more replies than a socket buffer holds; served as they come. */
	for (int i = 0; i < 100000 && !dropped; i++) {
		dropped = send(deaf, &q, sizeof(q), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE;
		settle(f);
	}
	assert_true(dropped);
	ask(fd, CONTROL_STATUS, 1, 0, 0);
	assert_int_equal(answer(f, fd, 1, &r), 0);
	close(deaf);
	close(fd);
}

static void a_stale_socket_is_replaced_and_a_long_path_refused(void **state)
{
	struct fixture *f = *state;
	struct control second;
	struct err err = ERR_INIT;
	char path[256];

	assert_int_equal(control_init(&second, &f->vm, f->path, NULL, &err), 0);
	control_finish(&second);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(control_init(&second, &f->vm, path, NULL, &err), -ENAMETOOLONG);
	control_finish(&second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(status_tells_what_runs),
		T(a_counter_that_cannot_be_told_is_said_to_be_so),
		T(pause_and_resume_can_be_repeated),
		T(a_failed_pause_is_reported),
		T(kill_stops_in_any_state),
		T(wait_answers_when_the_vm_stops),
		T(operations_of_devices_reach_them),
		T(descriptors_arrive_and_never_stay),
		T(a_snapshot_is_cut_when_the_one_that_asked_for_it_says_so),
		T(going_away_or_another_request_instead_of_the_cut_says_no),
		T(a_snapshot_that_ends_while_the_cut_is_awaited_asks_no_more),
		T(malformed_requests_are_refused_and_the_connection_lives),
		T(one_client_too_many_is_closed_and_its_place_is_reused),
		T(a_client_that_never_reads_is_dropped_others_are_served),
		T(a_stale_socket_is_replaced_and_a_long_path_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
