/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-vnc: no new privileges, no capabilities, no core file, bounded memory, and a system call filter under which a
 * process can read, write and close what it has, and nothing that is not open already can be named: no files, no sockets, no processes.
 * What a process that was taken over would want ends it; what is merely not needed fails with EPERM.
 */
#pragma once
#include "lib/err.h"

/* While the process has one thread. */
int vnc_jail_enter(struct err *err);
