/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The twin test: a device whose state was saved and loaded into a fresh one must go on exactly as the original does.
 */
#pragma once
#include "tests/harness/trace.h"

/* Run a random trace on a device made with its test options, save at a random point, load into a fresh machine with a
 * copy of the memory, go on with both and compare all that a guest sees: reads, interrupts, memory, and finally the
 * saved states. True when they agree; else text says where and how (and is otherwise untouched). */
bool twin_run(const struct device_ops *ops, uint64_t seed, char *text, size_t len);
