/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile qcow2 files. Input: the file. What opens is read in the runs it names, from its begin and from its end; a run is never
 * empty and never leaves the disk, and what a run calls zero reads as zeros.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/disk_source.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { RUNS = 64, PIECE = 8192, FILE_MAX = 1 << 20 };

static void check_run(struct disk_source *d, uint64_t at, uint64_t *ret_len)
{
	uint8_t piece[PIECE];
	struct err err = ERR_INIT;
	bool zero;

	*ret_len = d->size - at;
	if (disk_source_run(d, at, ret_len, &zero, &err) < 0) {
		FUZZ_REQUIRE(err.text[0]);
		return;
	}
	FUZZ_REQUIRE(*ret_len > 0 && *ret_len <= d->size - at);
	size_t n = (size_t)MIN(*ret_len, (uint64_t)PIECE);

	if (disk_source_read(d, piece, n, at, &err) < 0) {
		FUZZ_REQUIRE(err.text[0]);
		return;
	}
	for (size_t i = 0; i < n && zero; i++)
		FUZZ_REQUIRE(piece[i] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_close_ int fd = memfd_create("qcow2", MFD_CLOEXEC);
	struct err err = ERR_INIT;
	struct disk_source *d;
	uint64_t at = 0, len;

	if (size > FILE_MAX)
		return 0;
	FUZZ_REQUIRE(fd >= 0 && fd_pwrite_full(fd, data, size, 0) == 0);
	if (!qcow2_is(data, size))
		return 0;
	if (qcow2_open(fd, "it", &d, &err) < 0) {
		FUZZ_REQUIRE(err.text[0]);
		return 0;
	}
	FUZZ_REQUIRE(d->size > 0 && d->size % DISK_SOURCE_SECTOR == 0);
	for (int i = 0; i < RUNS && at < d->size; i++, at += len)
		check_run(d, at, &len);
	check_run(d, d->size - DISK_SOURCE_SECTOR, &len);
	disk_source_close(d);
	return 0;
}
