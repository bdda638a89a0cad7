/* SPDX-License-Identifier: Apache-2.0 */
/* The number that stands for the monitor's own process id in generated filters. */
#pragma once
#define SECCOMP_SELF_MAGIC 0x5e1f51d0u
