/* SPDX-License-Identifier: Apache-2.0 */
/* host/import/jail: reading and writing go on in it, any other system call ends the process. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/import/jail.h"
#include "lib/util.h"

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static void open_file(void)
{
	(void)!open("/etc/passwd", O_RDONLY);
}

static void make_socket(void)
{
	(void)!socket(AF_INET, SOCK_STREAM, 0);
}

static void run_program(void)
{
	execl("/bin/true", "true", NULL);
}

static void make_process(void)
{
	(void)!fork();
}

static void trace_parent(void)
{
	ptrace(PTRACE_ATTACH, getppid(), 0, 0);
}

static void kill_parent(void)
{
	kill(getppid(), 0);
}

static void make_code(void)
{
	mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void make_memory_code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static void remove_file(void)
{
	unlink("/tmp/there-is-none");
}

static void read_write_allocate(void)
{
	char c = 'x';
	void *p;

	if (pwrite(3, &c, 1, 5) != 1 || pread(3, &c, 1, 5) != 1 || lseek(3, 0, SEEK_SET) != 0 || write(3, &c, 1) != 1)
		_exit(1);
	p = malloc(8 << 20);
	free(p);
}

/* How the process ends that does it in the jail. */
static int status_of(void (*what)(void))
{
	int fd = memfd_create("file", 0), status;
	pid_t pid;

	assert_true(fd >= 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err err = ERR_INIT;

		if (dup2(fd, 3) < 0 || import_jail_enter(&err) < 0)
			_exit(2);
		what();
		_exit(0);
	}
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void what_it_needs_goes_on(void **state)
{
	int status = status_of(read_write_allocate);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void any_other_call_ends_it(void **state)
{
	static void (*const calls[])(void) = { make_socket, run_program, kill_parent, make_code, make_memory_code, remove_file,
					       /* from here on sanitizers need them */ open_file, make_process, trace_parent };

	(void)state;
	for (size_t i = 0; i < (SANITIZED ? 6 : ARRAY_SIZE(calls)); i++) {
		int status = status_of(calls[i]);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("call %zu: status %#x", i, (unsigned)status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_needs_goes_on),
		cmocka_unit_test(any_other_call_ends_it),
	};

	return cmocka_run_group_tests_name("import_jail", tests, NULL, NULL);
}
