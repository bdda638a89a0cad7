/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Isolation: each forbidden call ends the process with a line that names it; what the jail hides is gone.
 * Every case runs in a child of its own. The jail's cases need namespaces and skip loudly without.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/isolate.h"

enum { CHILD_OK = 0, CHILD_SETUP = 3, CHILD_NOT_STOPPED = 4, CHILD_NO_JAIL = 5, CHILD_WRONG = 6 };

/* Run fn in a child with stderr captured; returns its exit status, or -signal. */
static int in_child(void (*fn)(void *), void *arg, char *text, size_t len)
{
	int p[2], status;

	assert_int_equal(pipe(p), 0);
	fflush(NULL);
	pid_t pid = fork();

	if (pid == 0) {
		dup2(p[1], 2);
		close(p[0]);
		close(p[1]);
		fn(arg);
		_exit(CHILD_OK);
	}
	close(p[1]);
	size_t n = 0;
	ssize_t r;

	while (n < len - 1 && (r = read(p[0], text + n, len - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = 0;
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

struct attempt {
	enum isolate_role role;
	void (*call)(void);
};

static void attempt_in_filter(void *arg)
{
	const struct attempt *a = arg;

	prctl(PR_SET_NAME, a->role == ISOLATE_VCPU ? "vcpu3" : "main");
	if (isolate_handler(NULL) < 0 || isolate_thread(a->role, NULL) < 0)
		_exit(CHILD_SETUP);
	a->call();
	_exit(CHILD_NOT_STOPPED);
}

static void expect_stopped(enum isolate_role role, void (*call)(void), const char *name)
{
	struct attempt a = { role, call };
	char text[4096], want[128];

	assert_int_equal(in_child(attempt_in_filter, &a, text, sizeof(text)), ISOLATE_EXIT);
	snprintf(want, sizeof(want), "the forbidden system call %s (", name);
	assert_non_null(strstr(text, want));
	assert_non_null(strstr(text, role == ISOLATE_VCPU ? "in thread 'vcpu3'" : "in thread 'main'"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
}

static void call_openat(void) { syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0); }
static void call_execve(void) { char *no[] = { NULL }; syscall(SYS_execve, "/bin/true", no, no); }
static void call_inet(void) { syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }
static void call_fork(void) { syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static void call_kill_init(void) { syscall(SYS_tgkill, 1, 1, 0); }
static void call_exec_pages(void) { syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void call_mount(void) { syscall(SYS_mount, "none", "/", "tmpfs", 0, 0); }
static void call_io_uring_setup(void) { syscall(SYS_io_uring_setup, 1, NULL); }
static void call_unix(void) { syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }

static void opening_a_file_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_openat, "openat"); }
static void executing_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_execve, "execve"); }
static void internet_socket_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_inet, "socket"); }
static void forking_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_fork, "clone"); }
static void signalling_others_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_kill_init, "tgkill"); }
static void executable_memory_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_WORKER, call_exec_pages, "mmap"); }
static void mounting_is_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_mount, "mount"); }
static void new_rings_are_stopped(void **s) { (void)s; expect_stopped(ISOLATE_MAIN, call_io_uring_setup, "io_uring_setup"); }
static void vcpu_thread_has_no_sockets(void **s) { (void)s; expect_stopped(ISOLATE_VCPU, call_unix, "socket"); }

static void do_allowed(void *arg)
{
	sigset_t set;

	(void)arg;
	if (isolate_handler(NULL) < 0 || isolate_thread(ISOLATE_MAIN, NULL) < 0)
		_exit(CHILD_SETUP);
	sigemptyset(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	char *p = malloc(1 << 20);

	if (!p)
		_exit(CHILD_WRONG);
	memset(p, 1, 1 << 20);
	free(p);
	/* A signal to oneself is how vCPUs are kicked. */
	if (syscall(SYS_tgkill, getpid(), gettid(), 0) < 0)
		_exit(CHILD_WRONG);
	if (write(2, "still here\n", 11) != 11)
		_exit(CHILD_WRONG);
}

static void what_the_monitor_needs_goes_on(void **s)
{
	(void)s;
	char text[256];

	int r = in_child(do_allowed, NULL, text, sizeof(text));

	if (r != CHILD_OK)
		print_error("child: %s", text);
	assert_int_equal(r, CHILD_OK);
	assert_string_equal(text, "still here\n");
}

static void do_init(void *arg)
{
	int keep[2] = { fcntl(0, F_DUPFD, 20), fcntl(0, F_DUPFD, 10) };

	(void)arg;
	if (fcntl(0, F_DUPFD, 15) < 0 || fcntl(0, F_DUPFD, 30) < 0 || isolate_init(keep, 2, NULL) < 0)
		_exit(CHILD_SETUP);
	for (int fd = 3; fd < 64; fd++)
		if ((fcntl(fd, F_GETFD) != -1) != (fd == keep[0] || fd == keep[1]))
			_exit(CHILD_WRONG);
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		_exit(CHILD_WRONG);
}

static void stray_descriptors_are_closed_and_privileges_frozen(void **s)
{
	(void)s;
	char text[256];

	assert_int_equal(in_child(do_init, NULL, text, sizeof(text)), CHILD_OK);
}

static void do_jail(void *arg)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "own.sock" };
	struct err err = ERR_INIT;

	if (chdir(arg) < 0)
		_exit(CHILD_SETUP);
	int r = isolate_jail(&err);

	if (r == 0)
		_exit(CHILD_NO_JAIL);
	if (r < 0) {
		dprintf(2, "%s\n", err.text);
		_exit(CHILD_SETUP);
	}
	if (access("/etc/passwd", F_OK) == 0 || access("/../etc", F_OK) == 0 || access("/inside", F_OK) < 0)
		_exit(CHILD_WRONG);
	/* Its own sockets still answer, by a relative name. */
	int c = socket(AF_UNIX, SOCK_STREAM, 0);

	if (connect(c, (struct sockaddr *)&a, sizeof(a)) < 0)
		_exit(CHILD_WRONG);
	/* Neither abstract sockets of the host nor privileged calls. */
	struct sockaddr_un b = { .sun_family = AF_UNIX };

	snprintf(b.sun_path + 1, sizeof(b.sun_path) - 1, "coffer-isolate-test");
	c = socket(AF_UNIX, SOCK_STREAM, 0);
	if (connect(c, (struct sockaddr *)&b, sizeof(b)) == 0 || errno != ECONNREFUSED)
		_exit(CHILD_WRONG);
	if (chroot("/") == 0 || errno != EPERM)
		_exit(CHILD_WRONG);
}

static void jail_shows_the_directory_alone(void **s)
{
	(void)s;
	char dir[] = "/tmp/coffer-isolate-XXXXXX", path[128], text[1024];
	struct sockaddr_un a = { .sun_family = AF_UNIX }, b = { .sun_family = AF_UNIX };
	int own = socket(AF_UNIX, SOCK_STREAM, 0), abstract = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/inside", dir);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/own.sock", dir);
	assert_int_equal(bind(own, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(own, 1), 0);
	snprintf(b.sun_path + 1, sizeof(b.sun_path) - 1, "coffer-isolate-test");
	assert_int_equal(bind(abstract, (struct sockaddr *)&b, sizeof(b)), 0);
	assert_int_equal(listen(abstract, 1), 0);

	int r = in_child(do_jail, dir, text, sizeof(text));

	close(own);
	close(abstract);
	unlink(a.sun_path);
	unlink(path);
	rmdir(dir);
	if (r == CHILD_NO_JAIL) {
		print_message("SKIP: this host allows neither namespaces nor user namespaces\n");
		skip();
	}
	if (r != CHILD_OK)
		print_error("jail: %s", text);
	assert_int_equal(r, CHILD_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opening_a_file_is_stopped),
		cmocka_unit_test(executing_is_stopped),
		cmocka_unit_test(internet_socket_is_stopped),
		cmocka_unit_test(forking_is_stopped),
		cmocka_unit_test(signalling_others_is_stopped),
		cmocka_unit_test(executable_memory_is_stopped),
		cmocka_unit_test(mounting_is_stopped),
		cmocka_unit_test(new_rings_are_stopped),
		cmocka_unit_test(vcpu_thread_has_no_sockets),
		cmocka_unit_test(what_the_monitor_needs_goes_on),
		cmocka_unit_test(stray_descriptors_are_closed_and_privileges_frozen),
		cmocka_unit_test(jail_shows_the_directory_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
