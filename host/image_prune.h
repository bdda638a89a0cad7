/* SPDX-License-Identifier: Apache-2.0 */
/* Removing what nothing needs any more: leftovers of builds, and files of the cache that no image and no VM uses. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/image_store.h"

/* Called with each thing that goes: its path, and the bytes that it frees (0 when other names hold them). */
typedef void image_prune_each(void *arg, const char *path, uint64_t bytes);

/* dry: only tell. blobs: also those of the cache that no image or snapshot of the user's store has. What is in use, and whatever is not known, stays. Goes on after an error and returns the first. */
int image_prune(const struct image_store *s, bool dry, bool blobs, image_prune_each *each, void *arg, struct err *err);
