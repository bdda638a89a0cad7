/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State files of released versions load in this one: tests/golden/machines/VERSION.state, each saved by that version from a machine of
 * one device of each kind it had, with their test options and MEMORY_MIB of memory, without KVM.
 *
 *   machine_golden_test --write VERSION   add today's (never change an old one)
 */
#include <dirent.h>
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

#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/machine_save.h"

#define DIRECTORY "tests/golden/machines"
enum { MEMORY_MIB = 4 };

struct rig {
	struct vm vm;
	struct machine m;
};

static void must(int r, const struct err *err)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s\n", err->text);
	exit(1);
}

/* A machine of the kinds that the file names, or of all kinds. */
static void rig_open(struct rig *r, const struct state_file *f)
{
	char text[BOOT_MAX_DEVICES][128], name[32];
	struct opt_strv requests = { .n = 0 };
	struct err err = ERR_INIT;

	for (size_t i = 0; i < device_registry_count; i++) {
		const struct device_ops *ops = device_registry[i];

		snprintf(name, sizeof(name), "%s0", ops->name);
		if (f && !state_file_find(f, name))
			continue;
		snprintf(text[i], sizeof(text[i]), "%s%s%s", ops->name, ops->test_options ? "," : "",
			 ops->test_options ? ops->test_options : "");
		requests.v[requests.n++] = text[i];
	}
	must(vm_init(&r->vm, &err), &err);
	must(mem_init(&r->vm.mem, -1, MIB(MEMORY_MIB), &err), &err);
	must(machine_open(&r->m, &r->vm, &requests, &err), &err);
}

static void rig_close(struct rig *r)
{
	machine_close(&r->m);
	vm_finish(&r->vm);
}

static void every_released_state_loads(void **s)
{
	DIR *d = opendir(DIRECTORY);
	struct dirent *e;
	int n = 0;

	(void)s;
	assert_non_null(d);
	while ((e = readdir(d))) {
		struct err err = ERR_INIT;
		struct state_file f;
		struct rig r;
		char path[300];
		int fd;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), DIRECTORY "/%s", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		if (state_file_open(&f, fd, STATE_FILE_SIZE_MAX, &err) < 0)
			fail_msg("%s: %s", path, err.text);
		rig_open(&r, &f);
		if (machine_load(&r.m, &f, &err) < 0)
			fail_msg("%s: %s", path, err.text);
		rig_close(&r);
		state_file_close(&f);
		close(fd);
		n++;
	}
	closedir(d);
	assert_true(n > 0);
}

static int write_today(const char *version)
{
	static const struct ram_id id = { { 1 } };
	struct state_file_writer w;
	struct err err = ERR_INIT;
	struct rig r;
	char path[300];
	int fd;

	snprintf(path, sizeof(path), DIRECTORY "/%s.state", version);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0) {
		perror(path);
		return 1;
	}
	rig_open(&r, NULL);
	must(machine_save(&r.m, &w, &err), &err);
	state_file_finish(&w, &id);
	if (fd_write_full(fd, w.buf, w.len) < 0)
		return 1;
	state_file_writer_free(&w);
	rig_close(&r);
	return close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_released_state_loads) };

	if (argc == 3 && strcmp(argv[1], "--write") == 0)
		return write_today(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
