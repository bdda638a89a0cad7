/* SPDX-License-Identifier: Apache-2.0 */
/* coffer-import, which reads archives in a jail: one for all layers of an image, each of which it reads in a process of its own. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "host/import/record.h"
#include "lib/err.h"

struct import_reader {
	int sock; /* with `pid` 0: none is started yet */
	pid_t pid;
};

#define IMPORT_READER_NONE ((struct import_reader){ .sock = -1 })

/* Begin with an archive in `input`; the process is started when there is none. Returns the descriptor to read records from, to be closed. */
int import_reader_begin(struct import_reader *r, const struct import_job *job, int input, int spool, struct err *err);

/* Wait until the archive's process has ended; `status` is how its records were: 0, -EPIPE (they end too early), which becomes an error with a
 * reason here, or another error, whose text is kept. */
int import_reader_end(struct import_reader *r, int status, struct err *err);

void import_reader_close(struct import_reader *r);
