/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `state` of a snapshot: everything about a machine but its memory and disks, as named sections.
 *
 * Bytes (little-endian): a header of STATE_FILE_HEADER bytes: magic "COFFRST\0", le32 version, le32 number of sections, the
 * snapshot's id (16 bytes), le64 zero, le64 XXH3 of the header before it; then per section a head of
 * STATE_FILE_SECTION bytes: name (32 bytes, zero padded), le32 length of the payload, le32 zero, le64 XXH3 of head
 * (before the hash) and payload together; and the payload. Nothing follows the last one.
 *
 * Trust: hostile when read. Every byte is covered by a hash or compared; state_file_open checks them all before anything
 * looks at a section, and errors name the section.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "snapshot/ram.h"

enum {
	STATE_FILE_VERSION = 1,
	STATE_FILE_HEADER = 48,
	STATE_FILE_SECTION = 48,
	STATE_FILE_NAME = 32,
	STATE_FILE_SECTIONS_MAX = 64,
	STATE_FILE_SIZE_MAX = 64 << 20, /* of a machine whose devices have no extra part */
};

/* ---- writing: into one buffer, without system calls but for memory ---- */

struct state_file_writer {
	uint8_t *buf; /* owned */
	size_t len, room;
	uint32_t nsections;
	size_t open_at; /* of the section being written; 0: none */
};

/* Room for `size` bytes in `sections` sections. 0 or -ENOMEM. */
int state_file_begin(struct state_file_writer *w, size_t size, uint32_t sections, struct err *err);
/* Where the payload goes: at most `max` bytes; state_file_end_section says how many there were. -ENOSPC: began with too little. */
int state_file_section(struct state_file_writer *w, const char *name, size_t max, uint8_t **ret, struct err *err);
void state_file_end_section(struct state_file_writer *w, size_t len);
/* Complete the header and all checksums: buf[0 .. len) is the file. May take its time, the VM runs again. */
void state_file_finish(struct state_file_writer *w, const struct ram_id *id);
void state_file_writer_free(struct state_file_writer *w); /* accepts a zeroed one */

/* ---- reading ---- */

struct state_file_part {
	char name[STATE_FILE_NAME];
	const uint8_t *data;
	size_t len;
};

struct state_file {
	uint8_t *buf; /* owned */
	size_t len;
	struct ram_id id;
	uint32_t nparts;
	struct state_file_part part[STATE_FILE_SECTIONS_MAX];
};

/* Read all of it, if it has no more than `max` bytes: 0, -EINVAL (damaged), -ENOTSUP (newer), or an I/O error, with a text that begins with "state". */
int state_file_open(struct state_file *f, int fd, size_t max, struct err *err);
/* The same for bytes in memory, which are taken over (malloc) whatever is returned. */
int state_file_parse(struct state_file *f, uint8_t *buf, size_t len, struct err *err);
const struct state_file_part *state_file_find(const struct state_file *f, const char *name); /* NULL: not there */
void state_file_close(struct state_file *f); /* accepts a zeroed one */
