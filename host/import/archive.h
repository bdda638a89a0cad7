/* SPDX-License-Identifier: Apache-2.0 */
/* A tar, however compressed, as records and a spool: see record.h. Uses only the descriptors of record.h. */
#pragma once
#include <stdint.h>

#include "lib/err.h"

struct import_options {
	uint64_t offset, size; /* of the archive in the input */
	uint64_t spool;        /* where to go on in the spool */
	uint64_t bytes_max;    /* that the archive may have without its compression */
	uint64_t entries_max;
};

/* Read the archive and send its records, the last of them IMPORT_END. On failure nothing is sent of the error. */
int import_archive(const struct import_options *o, struct err *err);
/* Write what the input is without its compression to the spool, from its beginning; IMPORT_END is sent. */
int import_decompress(const struct import_options *o, struct err *err);

/* Send the error. */
void import_send_error(const struct err *err);
