/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates of TLS: those of a user, and one for who has none: self-signed, ECDSA on P-256, for this run. Viewers show its
 * fingerprint and ask.
 */
#pragma once
#include <gnutls/gnutls.h>
#include <stdio.h>

#include "host/vnc/control.h"
#include "lib/err.h"

/* PEM into both descriptors; "SHA256:" and the fingerprint in hexadecimal, one line, to `out`. */
int cert_make(int certificate_fd, int key_fd, FILE *out, struct err *err);

/* What a server needs, of PEM in both files: 0 and *ret, to be freed by gnutls_certificate_free_credentials. Otherwise -errno, and what
 * is wrong in *ret_fault (may be NULL; VNC_CERT_FINE: neither). */
int cert_load(int certificate_fd, int key_fd, gnutls_certificate_credentials_t *ret, enum vnc_cert_fault *ret_fault, struct err *err);
