/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who we are to a registry, and how it is reached: credentials from files that other tools keep too, and what `coffer image pull`
 * was told, kept for the VMs that read from there later (BASE/registries/HOST; no credentials, only where they are).
 */
#pragma once
#include <stdbool.h>

#include "host/pull_ref.h"
#include "lib/err.h"

struct pull_access {
	char *ca_file;    /* absolute; NULL: the system's authorities */
	char *creds_file; /* absolute; NULL: the usual places */
	bool insecure;
};

struct pull_creds {
	char *user, *password; /* NULL: none */
};

/* From `file`, else $XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json, ~/.docker/config.json, whichever has
 * them. None is no error, unless a file was named. */
int pull_creds_find(const char *file, const char *host, const char *repository, struct pull_creds *ret, struct err *err);
void pull_creds_finish(struct pull_creds *c);
/* The text of such a file; for tests. 1, or 0: it has none for this host. */
int pull_creds_parse(char *text, unsigned long len, const char *host, const char *repository, struct pull_creds *ret,
		     struct err *err);
/* May they be sent there? Over https, or to this machine, or because the user said so. */
bool pull_creds_may_go(const char *origin, const struct pull_access *a);

int pull_access_save(const char *origin, const struct pull_access *a, struct err *err);
int pull_access_load(const char *origin, struct pull_access *ret, struct err *err); /* nothing saved is no error */
void pull_access_finish(struct pull_access *a);
