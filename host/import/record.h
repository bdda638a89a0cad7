/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said to coffer-import and by it. Both ends are built together and run on one machine, so all of it is structs.
 *
 * Its stdin is a SOCK_SEQPACKET. A packet with a struct import_job and three descriptors (the archive, a regular file; a pipe; the spool, a
 * regular file that contents are written to) has it read one archive, in a process of its own. When that has ended, and it always ends before the
 * next one begins, its wait status is sent back, an int.
 *
 * What is found goes into the pipe as records, each a fixed head and the bytes it announces:
 *
 *   IMPORT_ENTRY     name, target (of a symbolic link), then `nxattrs` times a struct import_xattr with name and value
 *   IMPORT_LINK      name, target: a hard link
 *   IMPORT_PROGRESS  size: bytes of the input that are read
 *   IMPORT_END       the archive is whole. size: bytes of it without compression; offset: where the spool goes on; name: SHA-256
 *                    of them, in hexadecimal
 *   IMPORT_ERROR     mode: the errno; name: the text. Nothing comes after it
 *
 * Contents of files are in the spool at `offset`, a multiple of IMPORT_ALIGN; what is a hole in the file is one there.
 *
 * Trust: whoever reads them takes the writer for hostile: it may have been taken over by an archive.
 */
#pragma once
#include <stdint.h>

enum { IMPORT_ENTRY = 1, IMPORT_LINK, IMPORT_PROGRESS, IMPORT_END, IMPORT_ERROR };

enum {
	IMPORT_ALIGN = 4096,
	IMPORT_NAME_MAX = 4095,        /* bytes of a name, of a target; the final zero is not sent */
	IMPORT_XATTRS_MAX = 64,        /* of one member */
	IMPORT_XATTR_NAME_MAX = 255,
	IMPORT_XATTR_VALUE_MAX = 2048,
	IMPORT_INPUT_FD = 3,           /* descriptors of the process that reads: the archive, */
	IMPORT_RECORDS_FD = 4,         /* the pipe, */
	IMPORT_SPOOL_FD = 5,           /* and the spool */
	IMPORT_JOB_FDS = 3,
};

#define IMPORT_FILE_MAX (1ull << 40)  /* bytes of one file, with its holes */
#define IMPORT_SPOOL_MAX (8ull << 40) /* and of the spool */

enum { IMPORT_MEMBERS = 1, IMPORT_DECOMPRESS };

struct import_job {
	uint32_t mode;         /* IMPORT_MEMBERS; IMPORT_DECOMPRESS: only its bytes into the spool, from its beginning */
	uint64_t offset, size; /* of the archive in the file */
	uint64_t spool;        /* where to go on in the spool */
	uint64_t bytes_max;    /* that the archive may have without its compression */
	uint64_t entries_max;
};

struct import_record {
	uint32_t type;
	uint32_t mode; /* with the type's bits */
	uint32_t uid, gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t nxattrs;
	uint32_t major, minor;
	uint64_t size, offset;
	uint64_t holes; /* bytes of the contents that are holes */
	uint32_t name_len, target_len;
};

struct import_xattr {
	uint32_t name_len, value_len;
};
