/* SPDX-License-Identifier: Apache-2.0 */
/* A private home for a test: see home.h. */
#include "tests/harness/home.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/file.h"
#include "lib/util.h"

void home_make(struct home *h)
{
	static const struct {
		const char *variable, *below;
	} dirs[] = {
		{ "HOME", "" }, { "XDG_RUNTIME_DIR", "/run" }, { "XDG_STATE_HOME", "/state" },
		{ "XDG_CACHE_HOME", "/cache" }, { "XDG_DATA_HOME", "/data" },
	};

	strcpy(h->path, "/tmp/coffer-test-XXXXXX");
	if (!mkdtemp(h->path))
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s%s", h->path, dirs[i].below);
		mkdir(path, 0700);
		setenv(dirs[i].variable, path, 1);
	}
}

void home_remove(struct home *h)
{
	file_remove_tree(AT_FDCWD, h->path);
}
