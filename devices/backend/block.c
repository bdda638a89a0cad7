/* SPDX-License-Identifier: Apache-2.0 */
/* Block backends: choice by name, and what they have in common. See block.h. */
#include "devices/backend/block.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int block_open(const struct block_config *c, struct block **ret, struct err *err)
{
	const char *name = c->backend ? c->backend : "file";
	bool file = strcmp(name, "file") == 0;

	bool layers = strcmp(name, "layers") == 0;

	if (!file && !layers && strcmp(name, "memory") != 0 && strcmp(name, "null") != 0)
		return err_set(err, -EINVAL, "backend '%s' is unknown: use file, layers, memory or null", name);
	if (!layers && c->stack)
		return err_set(err, -EINVAL, "backend '%s' has no layers, base or top: use backend=layers", name);
	if (file && !c->path)
		return err_set(err, -EINVAL, "no image: give path=FILE");
	if (!file && c->path)
		return err_set(err, -EINVAL, "backend '%s' takes size=SIZE, not a path ('%s')", name, c->path);
	if (file && c->size)
		return err_set(err, -EINVAL, "'%s': size= is for backend=memory, null and layers", c->path);
	if (!file && ((c->size == 0 && !c->stack) || c->size % BLOCK_SECTOR))
		return err_set(err, -EINVAL, "backend '%s': size %" PRIu64 " is not a positive multiple of %d", name,
			       c->size, BLOCK_SECTOR);
	if (layers)
		return block_layers_open(c, ret, err);
	if (strcmp(name, "null") == 0)
		return block_null_open(c, ret, err);
	return block_file_open(c, ret, err);
}

int block_start(struct block *b, struct vm *vm, struct err *err)
{
	return b->ops->start ? b->ops->start(b, vm, err) : 0;
}

int block_resize(struct block *b, uint64_t bytes, struct err *err)
{
	if (bytes % BLOCK_SECTOR)
		return err_set(err, -EINVAL, "%" PRIu64 " bytes is not a multiple of %d (%" PRIu64 " over)", bytes,
			       BLOCK_SECTOR, bytes % BLOCK_SECTOR);
	if (bytes && bytes < b->size)
		return err_set(err, -EINVAL, "a disk in use cannot shrink: %" PRIu64 " bytes now, %" PRIu64 " asked for",
			       b->size, bytes);
	if (!b->ops->resize)
		return err_set(err, -ENOTSUP, "this backend has a fixed size");
	return b->ops->resize(b, bytes, err);
}

void block_close(struct block *b)
{
	if (!b)
		return;
	block_drain(b);
	b->ops->close(b);
}
