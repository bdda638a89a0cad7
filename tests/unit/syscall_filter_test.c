/* SPDX-License-Identifier: Apache-2.0 */
/* lib/syscall_filter: each rule in a child process, which ends with 0 when what it saw was right, or by SIGSYS. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/syscall_filter.h"
#include "lib/util.h"

static const int needed[] = { SYS_exit_group, SYS_exit, SYS_futex, SYS_rt_sigprocmask, SYS_munmap, SYS_madvise };

/* The status of a child that enters the filter with `rules` added and runs `work`. */
static int run(void (*rules)(struct syscall_filter *f), int (*work)(void), uint32_t other, bool all_threads)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct syscall_filter f;

		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		syscall_filter_begin(&f);
		syscall_filter_calls(&f, needed, ARRAY_SIZE(needed), SECCOMP_RET_ALLOW);
		if (rules)
			rules(&f);
		_exit(syscall_filter_enter(&f, other, all_threads, NULL) == 0 ? work() : 99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

#define ENDED_WELL(s) assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 0)
#define ENDED_BY_FILTER(s) assert_true(WIFSIGNALED(s) && WTERMSIG(s) == SIGSYS)

static int get_pid(void)
{
	return syscall(SYS_getppid) > 0 ? 0 : errno;
}

static void allow_getppid(struct syscall_filter *f)
{
	syscall_filter_calls(f, (const int[]){ SYS_getppid }, 1, SECCOMP_RET_ALLOW);
}

static void refuse_getppid(struct syscall_filter *f)
{
	syscall_filter_calls(f, (const int[]){ SYS_getppid }, 1, SECCOMP_RET_ERRNO | EXDEV);
}

static void calls_with_a_rule_are_answered_by_it(void **s)
{
	int status;

	(void)s;
	status = run(allow_getppid, get_pid, SECCOMP_RET_KILL_PROCESS, false);
	ENDED_WELL(status);
	status = run(refuse_getppid, get_pid, SECCOMP_RET_KILL_PROCESS, false);
	assert_int_equal(WEXITSTATUS(status), EXDEV);
}

static void calls_without_a_rule_get_the_last_answer(void **s)
{
	int status;

	(void)s;
	status = run(NULL, get_pid, SECCOMP_RET_KILL_PROCESS, false);
	ENDED_BY_FILTER(status);
	status = run(NULL, get_pid, SECCOMP_RET_ERRNO | EPERM, false);
	assert_int_equal(WEXITSTATUS(status), EPERM);
}

static void both(struct syscall_filter *f)
{
	allow_getppid(f);
	refuse_getppid(f);
}

static void the_first_rule_decides(void **s)
{
	int status = run(both, get_pid, SECCOMP_RET_KILL_PROCESS, false);

	(void)s;
	ENDED_WELL(status);
}

static void unix_sockets(struct syscall_filter *f)
{
	static const uint32_t families[] = { AF_NETLINK, AF_UNIX };

	syscall_filter_values(f, SYS_socket, 0, families, ARRAY_SIZE(families), SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EACCES);
	allow_getppid(f); /* rules behind are reached by other calls */
}

static int make_sockets(void)
{
	if (socket(AF_UNIX, SOCK_STREAM, 0) < 0)
		return 1;
	if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EACCES)
		return 2;
	return get_pid();
}

static void values_of_an_argument_are_told_apart(void **s)
{
	int status = run(unix_sockets, make_sockets, SECCOMP_RET_KILL_PROCESS, false);

	(void)s;
	ENDED_WELL(status);
}

static void no_code(struct syscall_filter *f)
{
	syscall_filter_without(f, SYS_mmap, 2, PROT_EXEC);
	allow_getppid(f);
}

static int map_data(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? 1 : get_pid();
}

static int map_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? 1 : 2;
}

static void threads_only(struct syscall_filter *f)
{
	static const int more[] = { SYS_mmap, SYS_mprotect, SYS_set_robust_list, SYS_rseq, SYS_getppid };
	static const int unknown[] = { SYS_clone3 };

	syscall_filter_calls(f, more, ARRAY_SIZE(more), SECCOMP_RET_ALLOW);
	syscall_filter_calls(f, unknown, ARRAY_SIZE(unknown), SECCOMP_RET_ERRNO | ENOSYS);
	syscall_filter_with(f, SYS_clone, 0, CLONE_THREAD);
}

static void *get_pid_in_thread(void *arg)
{
	*(int *)arg = get_pid();
	return NULL;
}

static int make_thread(void)
{
	int r = 99;
	pthread_t t;

	if (pthread_create(&t, NULL, get_pid_in_thread, &r) != 0 || pthread_join(t, NULL) != 0)
		return 98;
	return r;
}

static int make_process(void)
{
	return fork() < 0 ? 1 : 2;
}

static void without_wanted_bits_the_process_ends(void **s)
{
	int status;

	(void)s;
	status = run(threads_only, make_thread, SECCOMP_RET_ERRNO | EPERM, false);
	ENDED_WELL(status);
	status = run(threads_only, make_process, SECCOMP_RET_ERRNO | EPERM, false);
	ENDED_BY_FILTER(status);
}

static void forbidden_bits_end_the_process(void **s)
{
	int status;

	(void)s;
	status = run(no_code, map_data, SECCOMP_RET_KILL_PROCESS, false);
	ENDED_WELL(status);
	status = run(no_code, map_code, SECCOMP_RET_ERRNO | EPERM, false);
	ENDED_BY_FILTER(status);
}

#ifdef __x86_64__
static int call_x32(void)
{
	return syscall(0x40000000 | SYS_getppid) < 0 ? 1 : 0;
}

static void other_names_of_a_call_end_the_process(void **s)
{
	int status = run(allow_getppid, call_x32, SECCOMP_RET_ERRNO | EPERM, false);

	(void)s;
	ENDED_BY_FILTER(status);
}
#endif

struct pair {
	int go[2], back[2];
};

static void *other_thread(void *arg)
{
	const struct pair *p = arg;
	char c;
	ssize_t n = read(p->go[0], &c, 1);

	c = n == 1 && syscall(SYS_getppid) < 0 && errno == EXDEV ? 'y' : 'n';
	n = write(p->back[1], &c, 1);
	return NULL;
}

/* Threads that are there already are under it or not, as asked. */
static char seen_by_a_thread(bool all_threads)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		static const int more[] = { SYS_read, SYS_write, SYS_rseq, SYS_set_robust_list }; /* the last two: it may only be starting */
		struct syscall_filter f;
		struct pair p;
		pthread_t t;
		char c = 'x';

		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (pipe(p.go) < 0 || pipe(p.back) < 0 || pthread_create(&t, NULL, other_thread, &p) != 0)
			_exit('p');
		syscall_filter_begin(&f);
		syscall_filter_calls(&f, needed, ARRAY_SIZE(needed), SECCOMP_RET_ALLOW);
		syscall_filter_calls(&f, more, ARRAY_SIZE(more), SECCOMP_RET_ALLOW);
		refuse_getppid(&f);
		if (syscall_filter_enter(&f, SECCOMP_RET_ERRNO | EPERM, all_threads, NULL) < 0 || write(p.go[1], "g", 1) != 1 ||
		    read(p.back[0], &c, 1) != 1)
			_exit('e');
		_exit(c);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return (char)WEXITSTATUS(status);
}

static void it_is_for_this_thread_or_for_all(void **s)
{
	(void)s;
	assert_int_equal(seen_by_a_thread(true), 'y');
	assert_int_equal(seen_by_a_thread(false), 'n');
}

static void what_does_not_fit_is_never_entered(void **s)
{
	static const uint32_t values[33];
	struct syscall_filter f;
	struct err err = ERR_INIT;

	(void)s;
	syscall_filter_begin(&f);
	for (int i = 0; i < SYSCALL_FILTER_MAX; i++)
		syscall_filter_calls(&f, (const int[]){ i }, 1, SECCOMP_RET_ALLOW);
	assert_int_equal(syscall_filter_enter(&f, SECCOMP_RET_ALLOW, false, &err), -E2BIG);
	syscall_filter_begin(&f);
	syscall_filter_values(&f, SYS_socket, 0, values, ARRAY_SIZE(values), SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW);
	assert_int_equal(syscall_filter_enter(&f, SECCOMP_RET_ALLOW, false, &err), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_with_a_rule_are_answered_by_it),
		cmocka_unit_test(calls_without_a_rule_get_the_last_answer),
		cmocka_unit_test(the_first_rule_decides),
		cmocka_unit_test(values_of_an_argument_are_told_apart),
		cmocka_unit_test(forbidden_bits_end_the_process),
		cmocka_unit_test(without_wanted_bits_the_process_ends),
#ifdef __x86_64__
		cmocka_unit_test(other_names_of_a_call_end_the_process),
#endif
		cmocka_unit_test(it_is_for_this_thread_or_for_all),
		cmocka_unit_test(what_does_not_fit_is_never_entered),
	};

#ifdef __SANITIZE_ADDRESS__
	puts("AddressSanitizer makes calls of its own, which the filters of this test answer for it");
	return 77;
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
