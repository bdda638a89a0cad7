/* SPDX-License-Identifier: Apache-2.0 */
/* A private home for a test: see home.h. */
#include "tests/harness/home.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "lib/util.h"

static void make(struct home *h, const char *below)
{
	static const struct {
		const char *variable, *below;
	} dirs[] = {
		{ "HOME", "" }, { "XDG_RUNTIME_DIR", "/run" }, { "XDG_STATE_HOME", "/state" },
		{ "XDG_CACHE_HOME", "/cache" }, { "XDG_DATA_HOME", "/data" },
	};

	snprintf(h->path, sizeof(h->path), "%s/coffer-test-XXXXXX", below);
	if (!mkdtemp(h->path))
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s%s", h->path, dirs[i].below);
		mkdir(path, 0700);
		setenv(dirs[i].variable, path, 1);
	}
}

void home_make(struct home *h)
{
	make(h, "/tmp");
}

void home_make_in_memory(struct home *h)
{
	make(h, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

void home_remove(struct home *h)
{
	file_remove_tree(AT_FDCWD, h->path);
}

int home_set_up(void **state)
{
	home_make(*state);
	return 0;
}

int home_tear_down(void **state)
{
	home_remove(*state);
	return 0;
}
