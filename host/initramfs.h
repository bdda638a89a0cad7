/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The initramfs of `coffer run`: coffer-agent as /init and, for a kernel with loadable modules, the ones that a guest
 * needs. It is built on the user's machine without root and without external programs, and kept in
 * $XDG_CACHE_HOME/coffer/initramfs/HASH.cpio, HASH being over every byte that goes in.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

/* Where the list of modules is inside: absolute paths, one a line, in the order to load them. Absent when there are
 * none. A module that the processor or the machine has no use for fails to load; that is no error. */
#define INITRAMFS_MODULES_LIST "/modules.list"

/* Build the archive for `kernel_path` (a bzImage or an ELF vmlinux; NULL: without modules) or find it in the cache, and
 * store its path. display: with the modules of a display and its input devices. Returns the number of modules in it, or -errno. The modules are looked for in /lib/modules/VERSION
 * and in ../lib/modules/VERSION beside the kernel, VERSION being what the bzImage's header says or, for
 * an ELF file, what follows "vmlinux-" in its name. A kernel named vmlinuz-VERSION without any such directory is
 * refused: that is how distributions install kernels that cannot start without modules. */
int initramfs_build(const char *agent_path, const char *kernel_path, bool display, char *out_path, size_t out_len,
		    struct err *err);
