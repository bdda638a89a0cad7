/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as a program: static, small, and clear about its options. */
#include <elf.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"

static char program[PATH_MAX];

/* The build directory is two levels above this test. */
static int find_program(void **s)
{
	char self[PATH_MAX] = "";

	(void)s;
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(program, sizeof(program), "%.4000s/coffer-agent", dirname(dirname(dirname(self))));
	return 0;
}

static void need_program(void)
{
	if (access(program, X_OK) < 0) {
		print_message("%s has not been built\n", program);
		skip();
	}
}

static void it_is_smaller_than_one_mib(void **s)
{
	struct stat st;

	(void)s;
	need_program();
	assert_int_equal(stat(program, &st), 0);
	print_message("%lld bytes\n", (long long)st.st_size);
	assert_true(st.st_size < 1 << 20);
}

static void it_is_static_and_stripped(void **s)
{
	int fd = open(program, O_RDONLY);
	Elf64_Ehdr h;

	(void)s;
	need_program();
	assert_int_equal(fd_pread_full(fd, &h, sizeof(h), 0), sizeof(h));
	for (int i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr p;

		assert_int_equal(fd_pread_full(fd, &p, sizeof(p), (off_t)(h.e_phoff + (size_t)i * sizeof(p))), sizeof(p));
		assert_int_not_equal(p.p_type, PT_INTERP);
	}
	for (int i = 0; i < h.e_shnum; i++) {
		Elf64_Shdr p;

		assert_int_equal(fd_pread_full(fd, &p, sizeof(p), (off_t)(h.e_shoff + (size_t)i * sizeof(p))), sizeof(p));
		assert_int_not_equal(p.sh_type, SHT_SYMTAB);
	}
	close(fd);
}

/* Exit status; output of both streams in `out`. */
static int run(const char *arguments, char *out, size_t size)
{
	char command[PATH_MAX + 256];
	FILE *f;
	size_t n;

	snprintf(command, sizeof(command), "'%s' %s 2>&1", program, arguments);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(out, 1, size - 1, f);
	out[n] = '\0';
	return WEXITSTATUS(pclose(f));
}

static void it_knows_its_version_and_options(void **s)
{
	char out[4096];

	(void)s;
	need_program();
	assert_int_equal(run("--version", out, sizeof(out)), 0);
	assert_string_equal(out, "coffer-agent " COFFER_VERSION "\n");
	assert_int_equal(run("--help", out, sizeof(out)), 0);
	assert_non_null(strstr(out, "--listen-unix PATH"));
}

static void wrong_options_get_one_line(void **s)
{
	char out[4096];

	(void)s;
	need_program();
	assert_int_equal(run("--nope", out, sizeof(out)), 1);
	assert_non_null(strstr(out, "'--nope' is not known"));
	assert_int_equal(run("--listen-unix", out, sizeof(out)), 1);
	assert_non_null(strstr(out, "needs a value"));
	assert_int_equal(run("", out, sizeof(out)), 1); /* only PID 1 needs none */
	assert_non_null(strstr(out, "usage:"));
}

static void a_socket_that_cannot_be_made_is_said(void **s)
{
	char out[4096];

	(void)s;
	need_program();
	assert_int_equal(run("--listen-unix /no/such/dir/socket", out, sizeof(out)), 1);
	assert_string_equal(out, "coffer-agent: listen on '/no/such/dir/socket': No such file or directory\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_smaller_than_one_mib),
		cmocka_unit_test(it_is_static_and_stripped),
		cmocka_unit_test(it_knows_its_version_and_options),
		cmocka_unit_test(wrong_options_get_one_line),
		cmocka_unit_test(a_socket_that_cannot_be_made_is_said),
	};

	return cmocka_run_group_tests(tests, find_program, NULL);
}
