/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar streams from a hostile side: the reader, and unpacking into a directory.
 *
 * Input: the size of the pieces (2 bytes), then the stream. (Checksums are put right on the way, or no header but those of the corpus would
 * ever be looked at.) The directory that is unpacked into lies in one that must stay as it was.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/tar_extract.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { CONTENT_MAX = 64 * 1024 };

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	(void)flag;
	(void)f;
	if (S_ISDIR(st->st_mode))
		chmod(path, 0700);
	return remove(path);
}

static void remove_tree(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Each block at a multiple of 512 gets the checksum of a header. In contents that does no harm. */
static void fix_checksums(uint8_t *p, size_t n)
{
	for (size_t at = 0; at + TAR_BLOCK <= n; at += TAR_BLOCK) {
		unsigned sum = 0;
		char text[16];

		if (p[at] == 0)
			continue;
		memset(p + at + 148, ' ', 8);
		for (size_t i = 0; i < TAR_BLOCK; i++)
			sum += p[at + i];
		snprintf(text, sizeof(text), "%06o", sum);
		memcpy(p + at + 148, text, 7);
	}
}

static size_t entries_in(const char *path)
{
	DIR *d = opendir(path);
	size_t n = 0;

	FUZZ_REQUIRE(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	size_t step = fuzz_u16(&in) + 1u, n = MIN(in.left, (size_t)CONTENT_MAX);
	struct tar_extract_options o = { .uid = geteuid(), .gid = getegid() };
	char top[] = "/tmp/coffer-fuzz-XXXXXX", inside[64];
	struct tar_extract *x = malloc(sizeof(*x));
	uint8_t *stream = malloc(n ? n : 1);
	struct err err = ERR_INIT;
	int dir, rc = 0;

	if (!x || !stream || !mkdtemp(top))
		abort();
	memcpy(stream, in.p, n);
	fix_checksums(stream, n);
	snprintf(inside, sizeof(inside), "%s/in", top);
	FUZZ_REQUIRE(mkdir(inside, 0755) == 0);
	dir = open(inside, O_RDONLY | O_DIRECTORY);
	FUZZ_REQUIRE(dir >= 0);
	o.in_root = step & 1;
	o.no_links = step & 2;
	o.where = step & 4 ? inside : NULL;
	tar_extract_init(x, dir, &o);
	for (size_t pos = 0; pos < n && rc == 0; pos += step)
		rc = tar_extract_feed(x, stream + pos, MIN(step, n - pos), &err);
	if (rc == 0)
		rc = tar_extract_finish(x, &err);
	FUZZ_REQUIRE(rc == 0 || (err.code == rc && err.text[0]));
	tar_extract_abort(x);
	FUZZ_REQUIRE(x->ndirs == 0 && x->parent == -1 && x->file == -1);
	FUZZ_REQUIRE(entries_in(top) == 3); /* ., .., in */
	close(dir);
	remove_tree(top);
	free(stream);
	free(x);
	return 0;
}
