/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The remote layers of an image, for whoever reads them: each is opened in the cache of blobs; what is not whole and verified there is
 * served by a coffer-fetch that is started for it and lives as long as its sockets.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/blob_cache.h"
#include "lib/err.h"

struct remote_layers_one {
	const char *url;         /* the caller's, and the next two */
	const char *sha256;
	uint64_t size;

	struct blob blob;        /* held */
	int data_fd, table_fd;   /* to read; owned */
	bool whole;              /* verified: as good as a file */
	unsigned number;         /* else: which blob of coffer-fetch's it is */
};

struct remote_layers {
	struct remote_layers_one *l;
	size_t n, served;        /* served: not whole */
};

struct remote_layers_options {
	uint64_t cache_size;     /* 0: $COFFER_CACHE_SIZE, else the default */
	const char *mode;        /* "background" (NULL), "lazy", "all" */
	uint64_t timeout_ms;     /* 0: the default */
	int log_fd;              /* its stderr; -1: ours */
};

/* Open the layers that r->l names. */
int remote_layers_open(struct remote_layers *r, struct err *err);
/* Serve those that are not whole on one end of each of these sockets; closes none of them. Its pid, or 0 when none is needed. */
pid_t remote_layers_serve(const struct remote_layers *r, const struct remote_layers_options *o, const int *socks, size_t nsocks,
			  struct err *err);
void remote_layers_finish(struct remote_layers *r); /* closes what was opened; r->l stays the caller's */

/* Before all of them are fetched: -ENOSPC, with both numbers, when they do not go into the cache together. cache_size: as given. */
int remote_layers_check_room(const struct remote_layers *r, uint64_t cache_size, struct err *err);

/* --cache-size or its variable: 0 or -EINVAL. */
int remote_layers_cache_size(uint64_t given, uint64_t *ret, struct err *err);
