/* SPDX-License-Identifier: Apache-2.0 */
/* A certificate for who has none: self-signed, ECDSA on P-256, for this run. Viewers show its fingerprint and ask. */
#pragma once
#include <stdio.h>

#include "lib/err.h"

/* PEM into both descriptors; "SHA256:" and the fingerprint in hexadecimal, one line, to `out`. */
int cert_make(int certificate_fd, int key_fd, FILE *out, struct err *err);
