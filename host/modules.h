/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernel modules to load and in which order, from the tables that depmod leaves in /lib/modules/VERSION, and
 * their contents, decompressed.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum {
	MODULES_MAX = 128,                 /* in one list */
	MODULES_TABLE_MAX = 16 << 20,      /* bytes of modules.dep */
	MODULE_SIZE_MAX = 64 << 20,        /* bytes of one module, decompressed */
	MODULE_NAME_MAX = 64,
};

struct module_want {
	const char *name; /* with '_' for '-' */
	bool required;    /* has to exist as a module or built in */
	const char *need; /* else a message says this about it; NULL: "a guest needs it" */
};

struct module_list {
	char *path[MODULES_MAX]; /* relative to the directory of the version; each after what it depends on */
	size_t n;
};

/* Collect `wants` and what they depend on from `dir`. Built-in ones are left out. 0 or -errno. */
int modules_collect(const char *dir, const struct module_want *wants, size_t nwants, struct module_list *ret,
		    struct err *err);
void module_list_finish(struct module_list *list);

/* The name of the module in `path`: base name, '_' for '-', without .ko and what follows. -EINVAL when it is none. */
int module_name(const char *path, char ret_name[MODULE_NAME_MAX]);

/* Read a module; .ko.xz and .ko.zst are decompressed. *ret_data is to be freed. 0 or -errno. */
int module_read(const char *dir, const char *path, uint8_t **ret_data, size_t *ret_size, struct err *err);
