/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-vmm as a program, as far as it comes without KVM: every refusal is status 1 and one line on standard error
 * that names the thing. Where there is KVM, what passes these checks fails at the kernel file, which is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { ARGS_MAX = 16 };

struct fixture {
	char dir[64], kernel[96];
	char out[8192], err[8192];
	int status;
};

static char program[4096];

/* The build directory: three levels above this program. */
static void find_program(void)
{
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 32);

	assert_true(n > 0);
	program[n] = 0;
	for (int i = 0; i < 3; i++)
		*strrchr(program, '/') = 0;
	strcat(program, "/coffer-vmm");
}

static void make_path(char *out, size_t size, const struct fixture *f, const char *name)
{
	snprintf(out, size, "%s/%s", f->dir, name);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fd;

	assert_non_null(f);
	strcpy(f->dir, "/tmp/vmm-start-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	make_path(f->kernel, sizeof(f->kernel), f, "kernel");
	fd = open(f->kernel, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "no kernel", 9), 9);
	close(fd);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = { "kernel", "lock", "pid", "status", "control.sock", "fifo" };
	struct fixture *f = *state;
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		make_path(path, sizeof(path), f, names[i]);
		unlink(path);
	}
	rmdir(f->dir);
	free(f);
	return 0;
}

static void read_all(int fd, char *buf, size_t size)
{
	ssize_t n = fd_read_full(fd, buf, size - 1);

	assert_true(n >= 0);
	buf[n] = 0;
	close(fd);
}

/* Runs coffer-vmm with these words. Outputs are small: neither pipe fills. */
static int run(struct fixture *f, const char *const *words)
{
	const char *argv[ARGS_MAX + 2] = { program };
	int out[2], err[2];
	pid_t pid;

	for (size_t i = 0; words[i]; i++)
		argv[i + 1] = words[i];
	assert_int_equal(pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		dup2(err[1], 2);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	assert_true(pid > 0);
	close(out[1]);
	close(err[1]);
	read_all(out[0], f->out, sizeof(f->out));
	read_all(err[0], f->err, sizeof(f->err));
	assert_int_equal(waitpid(pid, &f->status, 0), pid);
	assert_true(WIFEXITED(f->status));
	return WEXITSTATUS(f->status);
}

/* With the directory, the kernel and these words: status 1 and one line that holds `part`. */
static void refused(struct fixture *f, const char *part, const char *a, const char *b)
{
	const char *words[] = { "--dir", f->dir, "--kernel", f->kernel, a, b, NULL };

	assert_int_equal(run(f, words), 1);
	assert_string_equal(f->out, "");
	assert_memory_equal(f->err, "coffer-vmm: ", 12);
	assert_ptr_equal(strchr(f->err, '\n'), f->err + strlen(f->err) - 1);
	if (!strstr(f->err, part))
		fail_msg("'%s' is not in: %s", part, f->err);
}

/* As far as all checks without KVM: then there is none, or the kernel is no kernel. */
static void accepted(struct fixture *f, const char *a, const char *b)
{
	refused(f, access("/dev/kvm", R_OK | W_OK) == 0 ? "kernel" : "/dev/kvm", a, b);
}

static void help_and_version_go_to_standard_output(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(run(f, (const char *[]){ "--help", NULL }), 0);
	assert_non_null(strstr(f->out, "--memory"));
	assert_non_null(strstr(f->out, "serial"));
	assert_string_equal(f->err, "");
	assert_int_equal(run(f, (const char *[]){ "--version", NULL }), 0);
	assert_non_null(strstr(f->out, COFFER_VERSION));
}

static void required_options_are_named(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(run(f, (const char *[]){ NULL }), 1);
	assert_non_null(strstr(f->err, "--dir"));
	assert_int_equal(run(f, (const char *[]){ "--dir", f->dir, NULL }), 1);
	assert_non_null(strstr(f->err, "--kernel"));
}

static void impossible_numbers_of_vcpus_are_refused(void **state)
{
	refused(*state, "'0'", "--cpus", "0");
	refused(*state, "'33'", "--cpus", "33");
	refused(*state, "'1000'", "--cpus", "1000");
	refused(*state, "'-1'", "--cpus", "-1");
	accepted(*state, "--cpus", "32");
}

static void impossible_amounts_of_memory_are_refused(void **state)
{
	refused(*state, "'0'", "--memory", "0");
	refused(*state, "'512k'", "--memory", "512k");
	refused(*state, "this host has", "--memory", "4T");
	refused(*state, "--memory", "--memory", "99999999999999999999");
	accepted(*state, "--memory", "64");
}

static void a_kernel_that_is_no_file_is_refused_at_once(void **state)
{
	struct fixture *f = *state;
	char fifo[96];

	make_path(fifo, sizeof(fifo), f, "fifo");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	refused(f, "a FIFO", "--kernel", fifo);
	refused(f, "a directory", "--kernel", f->dir);
	refused(f, "No such file", "--kernel", "/nonexistent/kernel");
	refused(f, "a FIFO", "--initrd", fifo);
}

static void a_missing_directory_is_refused(void **state)
{
	refused(*state, "/nonexistent/vm", "--dir", "/nonexistent/vm");
	refused(*state, "Not a directory", "--dir", "/dev/null");
}

static void unknown_devices_and_options_are_refused(void **state)
{
	refused(*state, "flux", "--device", "flux,capacitor=1");
	refused(*state, "--frobnicate", "--frobnicate", NULL);
	refused(*state, "loud", "--log-level", "loud");
	refused(*state, "'operand'", "operand", NULL);
	refused(*state, "'77'", "--keep-fd", "77");
	refused(*state, "'x'", "--keep-fd", "x");
	refused(*state, "'77'", "--keep-fd", "0:77");
	refused(*state, "'x'", "--keep-fd", "0:x");
	refused(*state, "''", "--keep-fd", "0:");
}

static void a_directory_in_use_is_refused(void **state)
{
	static const char *const files[] = { "lock", "pid" };
	struct fixture *f = *state;
	char path[96];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		make_path(path, sizeof(path), f, files[i]);
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		assert_true(fd >= 0);
		assert_int_equal(flock(fd, LOCK_EX), 0);
		refused(f, "in use", NULL, NULL);
		close(fd);
	}
	accepted(f, NULL, NULL);
}

static void a_lock_that_comes_with_the_process_is_its_own(void **state)
{
	struct fixture *f = *state;
	char path[96], number[16];
	int fd;

	make_path(path, sizeof(path), f, "lock");
	fd = open(path, O_RDWR | O_CREAT, 0600); /* inherited */
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	snprintf(number, sizeof(number), "0:%d", fd);
	accepted(f, "--keep-fd", number);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(help_and_version_go_to_standard_output),
		T(required_options_are_named),
		T(impossible_numbers_of_vcpus_are_refused),
		T(impossible_amounts_of_memory_are_refused),
		T(a_kernel_that_is_no_file_is_refused_at_once),
		T(a_missing_directory_is_refused),
		T(unknown_devices_and_options_are_refused),
		T(a_directory_in_use_is_refused),
		T(a_lock_that_comes_with_the_process_is_its_own),
	};

	find_program();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
