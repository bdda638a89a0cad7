/* SPDX-License-Identifier: Apache-2.0 */
/* A minimal Debian, or one with the packages of a desktop, as a tar, by mmdebstrap. */
#pragma once
#include "host/image_build.h"

enum { DEBIAN_SOURCES_MAX = 16 << 10 };

/* Write the tar to `out`, an empty file. Without a mirror that answers, the one kept from the last build with the same
 * options is used (note says so). ret_what gets a line about what it is: "debian bookworm: python3, ...". */
int image_debian_tar(const struct image_build_options *o, int out, char ret_what[IMAGE_SOURCE_MAX + 1], struct progress *p,
		     struct err *note, struct err *err);

/* The lines "deb [...] URI SUITE main" for `suite`, its updates and its security, from APT_DIR/sources.list and
 * the .list and .sources files in APT_DIR/sources.list.d. Returns the length; 0 when there are none. */
size_t debian_sources_find(const char *apt_dir, const char *suite, char ret[DEBIAN_SOURCES_MAX]);
