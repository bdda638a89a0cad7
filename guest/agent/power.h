/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the machine: the power button, and what is done between the wish and reboot(2). */
#pragma once
#include <stdint.h>

#include "guest/agent/agent.h"

enum { POWER_BUTTONS_MAX = 8 };

/* Open the input devices that have a power key (their descriptors go to ret_fds); returns how many. */
int power_open_buttons(int ret_fds[POWER_BUTTONS_MAX]);
int power_button_pressed(int fd); /* reads what is there: 1 if the key went down */

/* Processes that are neither kernel threads nor this process nor one of `except`: those that stopping still waits for. */
int power_count_processes(const pid_t *except, size_t n);

/* Sync, make file systems read-only, reboot(2) with `how` (RB_POWER_OFF, RB_AUTOBOOT). Returns only when that failed. */
void power_finish(const struct agent *a, int how);

/* Ask the guest's init to do it (service). Does not wait; falls back on power_finish. */
void power_ask_init(const struct agent *a, int how);
