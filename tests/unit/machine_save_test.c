/* SPDX-License-Identifier: Apache-2.0 */
/* A machine of every kind of device, without KVM: saved, loaded into another one, and what does not fit refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"
#include "snapshot/machine_save.h"

struct rig {
	struct vm vm;
	struct machine m;
};

/* One of each kind, with its test options; `more` is a further device or NULL. */
static void rig_open(struct rig *r, uint64_t memory, const char *more)
{
	char text[BOOT_MAX_DEVICES][128], *list[BOOT_MAX_DEVICES];
	struct opt_strv requests = { .n = 0 };

	for (size_t i = 0; i < device_registry_count; i++) {
		const struct device_ops *ops = device_registry[i];

		snprintf(text[i], sizeof(text[i]), "%s%s%s", ops->name, ops->test_options ? "," : "",
			 ops->test_options ? ops->test_options : "");
		list[requests.n++] = text[i];
	}
	if (more)
		list[requests.n++] = (char *)(uintptr_t)more;
	for (size_t i = 0; i < requests.n; i++)
		requests.v[i] = list[i];
	assert_int_equal(vm_init(&r->vm, NULL), 0);
	assert_int_equal(mem_init(&r->vm.mem, -1, memory, NULL), 0);
	assert_int_equal(machine_open(&r->m, &r->vm, &requests, NULL), 0);
}

static void rig_close(struct rig *r)
{
	machine_close(&r->m);
	vm_finish(&r->vm);
}

static void save(struct rig *r, struct state_file_writer *ret)
{
	static const struct ram_id id = { { 7 } };
	struct err err = ERR_INIT;

	if (machine_save(&r->m, ret, &err) < 0)
		fail_msg("%s", err.text);
	state_file_finish(ret, &id);
}

static void parse(const struct state_file_writer *w, struct state_file *ret)
{
	uint8_t *copy = malloc(w->len);

	assert_non_null(copy);
	memcpy(copy, w->buf, w->len);
	assert_int_equal(state_file_parse(ret, copy, w->len, NULL), 0);
}

static void a_machine_is_loaded_as_it_was_saved(void **s)
{
	struct state_file_writer first, second;
	struct rig a, b;
	struct state_file f;
	struct err err = ERR_INIT;

	(void)s;
	rig_open(&a, MIB(4), NULL);
	rig_open(&b, MIB(4), NULL);
	save(&a, &first);
	parse(&first, &f);
	if (machine_load(&b.m, &f, &err) < 0)
		fail_msg("%s", err.text);
	save(&b, &second);
	assert_int_equal(first.len, second.len);
	assert_memory_equal(first.buf, second.buf, first.len);
	state_file_close(&f);
	state_file_writer_free(&first);
	state_file_writer_free(&second);
	rig_close(&a);
	rig_close(&b);
}

static void refused(uint64_t memory, const char *more, const char *text)
{
	struct state_file_writer w;
	struct rig a, b;
	struct state_file f;
	struct err err = ERR_INIT;

	rig_open(&a, MIB(4), NULL);
	rig_open(&b, memory, more);
	save(&a, &w);
	parse(&w, &f);
	assert_int_equal(machine_load(&b.m, &f, &err), -EINVAL);
	assert_non_null(strstr(err.text, text));
	state_file_close(&f);
	state_file_writer_free(&w);
	rig_close(&a);
	rig_close(&b);
}

static void another_size_of_memory_is_refused(void **s)
{
	(void)s;
	refused(MIB(8), NULL, "saved with 4 MiB of memory, this machine has 8");
}

static void another_number_of_devices_is_refused(void **s)
{
	(void)s;
	refused(MIB(4), "blk,backend=null,size=1M", "devices");
}

/* Without a device's section: the error names it. */
static void a_missing_section_is_named(void **s)
{
	struct state_file_writer w;
	struct rig a, b;
	struct state_file f;
	struct err err = ERR_INIT;

	(void)s;
	rig_open(&a, MIB(4), NULL);
	rig_open(&b, MIB(4), NULL);
	save(&a, &w);
	parse(&w, &f);
	for (uint32_t i = 0; i < f.nparts; i++)
		if (strcmp(f.part[i].name, "blk0") == 0)
			strcpy(f.part[i].name, "other");
	assert_int_equal(machine_load(&b.m, &f, &err), -EINVAL);
	assert_string_equal(err.text, "state: section 'blk0' is missing");
	state_file_close(&f);
	state_file_writer_free(&w);
	rig_close(&a);
	rig_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_is_loaded_as_it_was_saved),
		cmocka_unit_test(another_size_of_memory_is_refused),
		cmocka_unit_test(another_number_of_devices_is_refused),
		cmocka_unit_test(a_missing_section_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
