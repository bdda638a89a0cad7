/* SPDX-License-Identifier: Apache-2.0 */
/* stack_image RAW NAME N: the disk in a file, an ext4, as image NAME of the store with N layers: see tests/harness/stack.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/image_store.h"
#include "lib/fd.h"
#include "tests/harness/stack.h"

static int make(const char *path, const char *name, unsigned n, struct err *err)
{
	struct image result = { .format = IMAGE_FORMAT_EXT4, .source = "stack_image" };
	struct image_draft draft = IMAGE_DRAFT_NONE;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct image_store store;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "'%s'", path);
	const uint8_t *disk = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (disk == MAP_FAILED)
		return err_errno(err, -errno, "map '%s'", path);
	result.size = (uint64_t)st.st_size;
	snprintf(result.name, sizeof(result.name), "%s", name);
	r = image_store_init(&store, NULL, err);
	if (r == 0)
		r = image_draft_begin(&store, &draft, err);
	for (unsigned k = 0; k < n && r == 0; k++) {
		_cleanup_close_ int out = openat(draft.fd, "layer", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		struct image_layer layer;

		r = out < 0 ? err_errno(err, -errno, "make a layer") : stack_make_layer(disk, result.size, k, n, out, &layer, err);
		if (r == 0)
			r = image_draft_add_layer(&draft, out, "layer", &layer, err);
	}
	if (r == 0)
		r = image_draft_publish(&draft, &result, false, NULL, err);
	image_draft_end(&draft);
	for (size_t k = 0; k < result.nlayers; k++)
		image_layer_finish(&result.layer[k]);
	free(result.layer);
	return r;
}

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	int n = argc == 4 ? atoi(argv[3]) : 0;

	if (n < 1 || n > IMAGE_LAYERS_MAX) {
		fprintf(stderr, "usage: stack_image RAW NAME N\n");
		return 2;
	}
	if (make(argv[1], argv[2], (unsigned)n, &err) < 0) {
		fprintf(stderr, "stack_image: %s\n", err.text);
		return 1;
	}
	return 0;
}
