/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files, and over the files of directories: what the tests do with the corpora. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/fd.h"
#include "tests/fuzz/fuzz.h"

static int failed(const char *path, int code)
{
	fprintf(stderr, "%s: %s\n", path, strerror(-code));
	return -1;
}

/* Inputs run, or -1. */
static int replay_file(const char *path, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	/* Of its exact size, so that a sanitizer sees every read beyond it. */
	_cleanup_free_ uint8_t *data = malloc(size ? size : 1);
	ssize_t n;

	if (fd < 0 || !data)
		return failed(path, -errno);
	n = fd_read_full(fd, data, size);
	if (n < 0)
		return failed(path, (int)n);
	/* Named before it runs: a crash then says where. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, (size_t)n);
	return 1;
}

static int replay(const char *path)
{
	struct dirent **e;
	struct stat st;
	int n, total = 0;

	if (stat(path, &st) < 0)
		return failed(path, -errno);
	if (!S_ISDIR(st.st_mode))
		return replay_file(path, (size_t)st.st_size);
	n = scandir(path, &e, NULL, alphasort);
	if (n < 0)
		return failed(path, -errno);
	for (int i = 0; i < n; i++) {
		char sub[4096];

		snprintf(sub, sizeof(sub), "%s/%s", path, e[i]->d_name);
		if (total >= 0 && e[i]->d_name[0] != '.') {
			int r = replay(sub);

			total = r < 0 ? r : total + r;
		}
		free(e[i]);
	}
	free(e);
	return total;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int r = replay(argv[i]);

		if (r < 0)
			return 1;
		total += r;
	}
	if (total == 0) {
		fprintf(stderr, "usage: %s FILE|DIRECTORY...\n", argv[0]);
		return 1;
	}
	printf("%d inputs\n", total);
	return 0;
}
