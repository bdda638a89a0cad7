/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine loads an arbitrary `state` file.
 *
 * The input is the file. Since hardly any input has right checksums, it is tried as it is and then with all checksums made right,
 * which lets the devices see their sections. Whatever it says, the machine is loaded or refused with a text.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "snapshot/machine_save.h"
#include "tests/fuzz/fuzz.h"

enum { HEADER_HASH = 40, SECTION_HASH = 40, SECTION_LENGTH = 32 };

struct rig {
	bool made;
	struct vm vm;
	struct machine m;
};

static void rig_open(struct rig *r)
{
	char text[BOOT_MAX_DEVICES][128];
	struct opt_strv requests = { .n = 0 };
	struct err err = ERR_INIT;

	for (size_t i = 0; i < device_registry_count; i++) {
		const struct device_ops *ops = device_registry[i];

		snprintf(text[i], sizeof(text[i]), "%s%s%s", ops->name, ops->test_options ? "," : "",
			 ops->test_options ? ops->test_options : "");
		requests.v[requests.n++] = text[i];
	}
	FUZZ_REQUIRE(vm_init(&r->vm, &err) == 0);
	FUZZ_REQUIRE(mem_init(&r->vm.mem, -1, MIB(4), &err) == 0);
	FUZZ_REQUIRE(machine_open(&r->m, &r->vm, &requests, &err) == 0);
	r->made = true;
}

static void make_right(uint8_t *p, size_t len)
{
	size_t at = STATE_FILE_HEADER;

	if (len < STATE_FILE_HEADER)
		return;
	le64_store(p + HEADER_HASH, XXH3_64bits(p, HEADER_HASH));
	while (len - at >= STATE_FILE_SECTION) {
		size_t n = le32_load(p + at + SECTION_LENGTH);

		if (n > len - at - STATE_FILE_SECTION)
			return;
		le64_store(p + at + SECTION_HASH, XXH3_64bits_withSeed(p + at + STATE_FILE_SECTION, n,
								      XXH3_64bits(p + at, SECTION_LENGTH)));
		at += STATE_FILE_SECTION + n;
	}
}

static void load(struct rig *r, const uint8_t *data, size_t size, bool right)
{
	uint8_t *copy = malloc(size + 1);
	struct err err = ERR_INIT;
	struct state_file f;

	FUZZ_REQUIRE(copy != NULL);
	memcpy(copy, data, size);
	if (right)
		make_right(copy, size);
	if (state_file_parse(&f, copy, size, &err) < 0) {
		FUZZ_REQUIRE(strncmp(err.text, "state: ", 7) == 0);
		return;
	}
	if (machine_load(&r->m, &f, &err) < 0)
		FUZZ_REQUIRE(err.text[0]);
	else
		for (size_t i = 0; i < r->m.ndevices; i++)
			device_resume(r->m.device[i]);
	for (size_t i = 0; i < r->m.ndevices; i++)
		FUZZ_REQUIRE(device_quiesce(r->m.device[i]) == 0);
	state_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig r;

	if (!r.made)
		rig_open(&r);
	load(&r, data, size, false);
	load(&r, data, size, true);
	return 0;
}
