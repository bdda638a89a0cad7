/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer-fetch get`: small documents, one after the other (get.c). */
#pragma once
#include "lib/log.h"

enum { GET_MESSAGE_MAX = 64 << 10, GET_BODY_MAX = 16 << 20 };

/* Serve the requests of a SOCK_SEQPACKET until it closes. Enters the jail after the first message. 0 or -errno. */
int get_run(int sock, const struct log *log);
