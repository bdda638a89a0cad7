/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-import: no new privileges, no capabilities, no core file, bounded memory, and a filter that leaves the system
 * calls which read, write and allocate. Nothing can be opened, so the descriptors it was given are all it has; any other
 * call ends it.
 */
#pragma once
#include "lib/err.h"

/* While the process has one thread. */
int import_jail_enter(struct err *err);
