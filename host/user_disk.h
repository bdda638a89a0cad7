/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of `coffer run --disk PATH[,ro|,cow]`: what was written, whether it can be used, and errors in those words. */
#pragma once
#include <limits.h>
#include <stdbool.h>

#include "lib/err.h"
#include "lib/opt.h"

struct user_disk {
	char path[PATH_MAX]; /* resolved */
	bool ro;
	bool cow; /* read-only, below a layer of the VM's own */
};

/* Parse one --disk and check what can be known before a monitor opens it: that it is there, of a kind and size that
 * make a disk, and open to us. Whether another VM uses it only the monitor's lock tells. 0 or -errno. */
int user_disk_parse(const char *text, struct user_disk *ret, struct err *err);

/* All of a command's, so that a mistake is said before anything is made. with_image: a root image and its overlay are
 * two more disks of the VM. */
int user_disk_check(const struct opt_strv *disks, bool with_image, struct err *err);

/* Where the monitor complains about its disk blk<first + i>, let the text name the i-th --disk. */
void user_disk_name_error(const struct opt_strv *disks, size_t first, struct err *err);
