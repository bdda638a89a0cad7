/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and trees between the host and a guest, over the agent's put and get.
 *
 * Both ways the rules are those of `cp -RpH`: SOURCE is copied into TARGET when that is a directory, else under that name; a
 * symbolic link named as SOURCE is followed, those inside a tree are copied as links; modes and times are kept. A directory
 * that exists is merged into.
 *
 * Trust: what comes from a guest is a hostile tar stream, and so may be the links that an earlier copy left here. A directory is
 * unpacked below its target without following any link; the target itself may be a link only where the user named it, not
 * where it is the source's name in the user's directory. A single file is unpacked in a fresh directory and moved to its place, so the stream does not choose the name.
 */
#pragma once
#include <stdbool.h>

#include "host/agent_client.h"
#include "host/progress.h"
#include "lib/err.h"

/* Makes a fresh connection for one operation. */
struct copy_guest {
	int (*connect)(void *arg, struct agent_conn **ret, struct err *err);
	void *arg;
	bool keep_owner;             /* numeric user and group too */
	struct progress *progress;   /* may be NULL */
};

/* `source` on the host to `target` in the guest, and the other way. "-" on the host's side: a tar stream at stdin or
 * stdout; the target in the guest must be a directory then. 0 or -errno. */
int copy_in(const struct copy_guest *g, const char *source, const char *target, struct err *err);
int copy_out(const struct copy_guest *g, const char *source, const char *target, struct err *err);

/* The absolute form of a guest path as the user wrote it ("x" is "/x"), without trailing slashes; `*ret_slash`: it
 * had one, so a directory is meant. 0 or -ENAMETOOLONG. */
int copy_guest_path(const char *path, char *out, size_t len, bool *ret_slash, struct err *err);
