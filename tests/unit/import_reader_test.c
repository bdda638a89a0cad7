/* SPDX-License-Identifier: Apache-2.0 */
/* host/import_reader: one process for many archives, each of which is read by itself; what becomes of one that ends too early. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/import_reader.h"
#include "host/import_tree.h"
#include "lib/fd.h"

enum { TAR_SIZE = 2048, TRIES = 3 };

struct fixture {
	struct import_tree tree;
	struct fstree files;
	int archive;
	struct err err;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char program[PATH_MAX];

	assert_non_null(f);
	assert_non_null(getenv("B"));
	snprintf(program, sizeof(program), "%s/coffer-import", getenv("B"));
	setenv("COFFER_IMPORT", program, 1);
	assert_int_equal(fstree_init(&f->files, &f->err), 0);
	f->tree = IMPORT_TREE(&f->files, memfd_create("spool", MFD_CLOEXEC), 1 << 20);
	f->archive = memfd_create("archive", MFD_CLOEXEC);
	assert_true(f->archive >= 0 && f->tree.spool_fd >= 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	import_tree_finish(&f->tree);
	fstree_finish(&f->files);
	close(f->archive);
	close(f->tree.spool_fd);
	free(f);
	return 0;
}

/* A tar of one file with one byte in it. */
static void write_tar(struct fixture *f, const char *name, char byte)
{
	char tar[TAR_SIZE] = { 0 };
	unsigned sum = 8 * ' ';

	snprintf(tar, 100, "%s", name);
	strcpy(tar + 100, "0000644");
	strcpy(tar + 108, "0000000");
	strcpy(tar + 116, "0000000");
	strcpy(tar + 124, "00000000001");
	strcpy(tar + 136, "00000000000");
	tar[156] = '0';
	memcpy(tar + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)tar[i];
	snprintf(tar + 148, 8, "%06o", sum);
	tar[155] = ' ';
	tar[512] = byte;
	assert_int_equal(fd_pwrite_full(f->archive, tar, sizeof(tar), 0), 0);
}

static int add(struct fixture *f)
{
	const struct import_blob blob = { .fd = f->archive, .size = TAR_SIZE };
	char hex[65];

	return import_tree_add(&f->tree, &blob, true, hex, NULL, &f->err);
}

static void one_process_reads_all_archives(void **state)
{
	struct fixture *f = *state;
	pid_t pid = 0;

	for (int i = 0; i < TRIES; i++) {
		const char name[] = { (char)('a' + i), '\0' };
		const struct fstree_inode *inode;
		char byte = 0;

		write_tar(f, name, name[0]);
		if (add(f) < 0)
			fail_msg("%s", f->err.text);
		assert_true(f->tree.reader.pid > 0 && (pid == 0 || pid == f->tree.reader.pid));
		pid = f->tree.reader.pid;
		inode = fstree_lookup(&f->files, name);
		assert_non_null(inode);
		assert_int_equal(fd_pread_full(f->tree.spool_fd, &byte, 1, (off_t)inode->file.offset), 1);
		assert_int_equal(byte, name[0]);
	}
	import_tree_finish(&f->tree);
	assert_int_equal(kill(pid, 0), -1);
}

/* What a damaged one says is its own error, and nothing goes on after it. */
static void a_damaged_archive_ends_it(void **state)
{
	struct fixture *f = *state;

	write_tar(f, "a", 'a');
	assert_int_equal(fd_pwrite_full(f->archive, "x", 1, 148), 0);
	assert_true(add(f) < 0);
	assert_non_null(strstr(f->err.text, "tar"));
	assert_int_equal(f->tree.reader.pid, 0);
}

static void a_program_that_says_nothing_is_an_error(void **state)
{
	struct fixture *f = *state;

	setenv("COFFER_IMPORT", "/bin/true", 1);
	write_tar(f, "a", 'a');
	assert_true(add(f) < 0);
	assert_true(strstr(f->err.text, "without a word") != NULL || strstr(f->err.text, "speak to coffer-import") != NULL);
}

/* A jailed process that ends by a signal: one stands in that sends that status. */
static void a_signal_is_named(void **state)
{
	struct fixture *f = *state;
	int pair[2], status = SIGSYS;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	f->tree.reader.sock = pair[0];
	assert_int_equal(fd_send(pair[1], &status, sizeof(status), NULL, 0), sizeof(status));
	assert_int_equal(import_reader_end(&f->tree.reader, -EPIPE, &f->err), -EIO);
	assert_non_null(strstr(f->err.text, "ended by signal 31"));
	close(pair[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_process_reads_all_archives),
		TEST(a_damaged_archive_ends_it),
		TEST(a_program_that_says_nothing_is_an_error),
		TEST(a_signal_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
