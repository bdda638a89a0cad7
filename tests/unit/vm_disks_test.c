/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of a VM's disks: they are in its directory, whatever becomes of where they came from. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/util.h"

static void a_large_layer_that_cannot_be_linked_is_copied(void **state)
{
	char dir[] = "/tmp/coffer-test-XXXXXX", from[sizeof(dir) + 8];
	struct snapshot_layer known = { .size = MIB(65) };
	struct vm_disks v = { 0 };
	struct vm_disk *d;
	char last;

	(void)state;
	assert_non_null(mkdtemp(dir));
	int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = openat(dir_fd, "source", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, MIB(65)), 0);
	assert_int_equal(fd_pwrite_full(fd, "x", 1, MIB(65) - 1), 0);
	snprintf(from, sizeof(from), "%s/source", dir);
	assert_int_equal(unlink(from), 0);
	assert_int_equal(vm_disks_add_layers(&v, MIB(128), NULL, NULL, &d, NULL), 0);
	assert_int_equal(vm_disk_add_layer(d, 0, dir_fd, fd, from, &known, NULL), 0);
	assert_string_equal(d->d.layer[0].file, "disk0-base0.lsmt");
	vm_disks_finish(&v);

	fd = openat(dir_fd, "disk0-base0.lsmt", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fd_pread_full(fd, &last, 1, MIB(65) - 1), 1);
	assert_int_equal(last, 'x');
	assert_int_equal(lseek(fd, 0, SEEK_END), MIB(65));
	close(fd);
	assert_int_equal(unlinkat(dir_fd, "disk0-base0.lsmt", 0), 0);
	close(dir_fd);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_layer_that_cannot_be_linked_is_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
