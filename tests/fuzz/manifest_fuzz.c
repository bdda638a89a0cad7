/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests of snapshots and records of VMs.
 *
 * Input: the first byte chooses which of the two; then the text. Since a text without the right checksum never gets
 * far, a second try has the member set right: what is taken then has to keep to the bounds, and to survive being
 * written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "host/snapshot_manifest.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct snapshot_manifest *m)
{
	struct snapshot_manifest again;
	char *text = snapshot_manifest_format(m);

	FUZZ_REQUIRE(text != NULL);
	FUZZ_REQUIRE(snapshot_manifest_parse("again", m->what, text, strlen(text), &again, NULL) == 0);
	snapshot_manifest_finish(&again);
	free(text);
	FUZZ_REQUIRE(m->ndisks <= SNAPSHOT_DISKS_MAX && m->ndevices <= SNAPSHOT_DEVICES_MAX);
	for (size_t i = 0; i < m->ndisks; i++) {
		FUZZ_REQUIRE(m->disk[i].nlayers <= SNAPSHOT_LAYERS_MAX && m->disk[i].size % 512 == 0 &&
			     m->disk[i].size > 0);
		for (size_t k = 0; k < m->disk[i].nlayers && m->what == SNAPSHOT_WHAT_SNAPSHOT; k++)
			FUZZ_REQUIRE(!strchr(m->disk[i].layer[k].file, '/') && m->disk[i].layer[k].file[0] != '.');
	}
	for (size_t i = 0; i < m->ndevices && m->what == SNAPSHOT_WHAT_SNAPSHOT; i++)
		FUZZ_REQUIRE(!strchr(m->device[i], '/') && !strchr(m->device[i], ' '));
}

static void try(enum snapshot_what what, const char *text, size_t len)
{
	struct snapshot_manifest m;

	if (snapshot_manifest_parse("m", what, text, len, &m, NULL) < 0)
		return;
	check(&m);
	snapshot_manifest_finish(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char key[] = "\"checksum\": \"";

	if (size == 0)
		return 0;
	enum snapshot_what what = data[0] & 1 ? SNAPSHOT_WHAT_VM : SNAPSHOT_WHAT_SNAPSHOT;
	const char *text = (const char *)data + 1;

	try(what, text, size - 1);
	const char *at = memmem(text, size - 1, key, strlen(key));

	if (!at || (size_t)(text + size - 1 - at) < strlen(key) + SNAPSHOT_HASH_LEN + 1)
		return 0;
	/* As the writer does: the sum is that of the text with an empty one. */
	size_t before = (size_t)(at - text) + strlen(key), after = size - 1 - before - SNAPSHOT_HASH_LEN;
	char *copy = malloc(size), sum[SNAPSHOT_HASH_LEN + 1];

	if (!copy)
		abort();
	memcpy(copy, text, before);
	memcpy(copy + before, text + before + SNAPSHOT_HASH_LEN, after);
	snapshot_hash(copy, before + after, sum);
	memcpy(copy, text, size - 1);
	memcpy(copy + before, sum, SNAPSHOT_HASH_LEN);
	try(what, copy, size - 1);
	free(copy);
	return 0;
}
