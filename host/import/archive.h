/* SPDX-License-Identifier: Apache-2.0 */
/* A tar, however compressed, as records and a spool: see record.h. Uses only the descriptors of record.h. */
#pragma once
#include "host/import/record.h"
#include "lib/err.h"

/* Do the job and send its records, the last of them IMPORT_END. On failure nothing is sent of the error. */
int import_archive(const struct import_job *job, struct err *err);

/* Send the error. */
void import_send_error(const struct err *err);
