/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-record: how it is started, and its parts.
 *
 *   coffer-record mkv|gif MILLISECONDS FRAMES-PER-SECOND SCREEN LOSSLESS
 *
 * with a connection to a VM's display.sock and the file to write (empty, seekable or not) as descriptors. Errors are one line on stderr
 * and status 1. TERM, INT and HUP end the film, which is whole then. So does a display that goes away: status RECORD_GONE, without a line,
 * since only who started it can find out why.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/screen_picture.h"
#include "lib/err.h"

enum { RECORD_DISPLAY_FD = 3, RECORD_OUT_FD = 4, RECORD_GONE = 3 /* the film is whole up to then */ };

/* While the process has one thread. Leaves what is needed to read the display's socket and write the file. */
int record_jail_enter(struct err *err);

struct record_encoder;

/* A film of this size; pictures of other sizes are scaled into it. Before the jail: libraries read their tables here. */
int record_encoder_open(bool gif, bool lossless, uint32_t width, uint32_t height, int fd, struct record_encoder **ret, struct err *err);
/* A picture that is seen from at_ms (since the beginning, more each time). */
int record_encoder_add(struct record_encoder *e, const struct picture *p, uint64_t at_ms, struct err *err);
/* The last picture is seen until at_ms. */
int record_encoder_finish(struct record_encoder *e, uint64_t at_ms, struct err *err);
void record_encoder_close(struct record_encoder *e); /* accepts NULL */

/* The picture with at most 256 colours: exactly, when it has no more, else the nearest of a fixed palette. palette: 256 entries of
 * 0xffRRGGBB. index: a byte a pixel, lines `stride` apart. */
void record_palette(const struct picture *p, uint32_t *palette, uint8_t *index, uint32_t stride);
