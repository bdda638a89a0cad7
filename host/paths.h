/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things are: the per-user directories (caches and images: file.h), and the programs that belong to coffer.
 *
 *   runtime  $XDG_RUNTIME_DIR/coffer; root without it: /run/coffer; others: /run/user/UID/coffer
 *   state    $XDG_STATE_HOME/coffer; root without it: /var/lib/coffer; others: ~/.local/state/coffer
 *
 * An XDG variable that is not an absolute path is ignored, as its specification says.
 */
#pragma once
#include <stddef.h>

#include "lib/err.h"

/* Each writes an absolute path of less than len bytes; 0, or -errno with a text. Nothing is created. */
int paths_runtime(char *out, size_t len, struct err *err);
int paths_state(char *out, size_t len, struct err *err);

/* Find a program of ours: $ENV if set, beside this executable, or ../libexec/coffer from it. 0, or -ENOENT with a
 * text that says where it was looked for. */
int paths_program(const char *name, const char *env, char *out, size_t len, struct err *err);
