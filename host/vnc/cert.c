/* SPDX-License-Identifier: Apache-2.0 */
/* Making certificates: see cert.h. */
#include "host/vnc/cert.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>
#include <time.h>

#include "lib/fd.h"

enum { DAYS = 365, SERIAL = 16, DIGEST = 32, BACKDATE_S = 3600 };

/* GnuTLS' code of the first step that fails. */
static int fill(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key)
{
	static const char name[] = "Coffer VNC";
	unsigned char serial[SERIAL];
	time_t now = time(NULL);
	int r = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));

	serial[0] &= 0x7f; /* positive */
	if (r >= 0)
		r = gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
	if (r >= 0)
		r = gnutls_x509_crt_set_version(crt, 3);
	if (r >= 0)
		r = gnutls_x509_crt_set_serial(crt, serial, sizeof(serial));
	if (r >= 0)
		r = gnutls_x509_crt_set_activation_time(crt, now - BACKDATE_S);
	if (r >= 0)
		r = gnutls_x509_crt_set_expiration_time(crt, now + (time_t)DAYS * 86400);
	if (r >= 0)
		r = gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, name, sizeof(name) - 1);
	if (r >= 0)
		r = gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, "localhost", 9, GNUTLS_FSAN_SET);
	if (r >= 0)
		r = gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, "\x7f\0\0\1", 4, GNUTLS_FSAN_APPEND);
	if (r >= 0)
		r = gnutls_x509_crt_set_basic_constraints(crt, 0, -1);
	if (r >= 0)
		r = gnutls_x509_crt_set_key(crt, key);
	return r >= 0 ? gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0) : r;
}

static int store(int fd, gnutls_datum_t *d)
{
	int r = fd_write_full(fd, d->data, d->size);

	explicit_bzero(d->data, d->size);
	gnutls_free(d->data);
	return r;
}

int cert_make(int certificate_fd, int key_fd, FILE *out, struct err *err)
{
	gnutls_x509_crt_t crt = NULL;
	gnutls_x509_privkey_t key = NULL;
	gnutls_datum_t pem;
	unsigned char digest[DIGEST];
	size_t n = sizeof(digest);
	int r = gnutls_x509_crt_init(&crt);

	if (r >= 0)
		r = gnutls_x509_privkey_init(&key);
	if (r >= 0)
		r = fill(crt, key);
	if (r >= 0)
		r = gnutls_x509_crt_get_fingerprint(crt, GNUTLS_DIG_SHA256, digest, &n);
	if (r < 0) {
		err_set(err, -EIO, "make a certificate: %s", gnutls_strerror(r));
		r = -EIO;
		goto out;
	}
	r = gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &pem) < 0 ? -EIO : store(certificate_fd, &pem);
	if (r == 0)
		r = gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem) < 0 ? -EIO : store(key_fd, &pem);
	if (r < 0) {
		err_errno(err, r, "write the certificate");
		goto out;
	}
	fputs("SHA256:", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s%02X", i ? ":" : "", digest[i]);
	fputc('\n', out);
	r = fflush(out) == 0 ? 0 : err_errno(err, -errno, "write the fingerprint");
out:
	gnutls_x509_privkey_deinit(key);
	gnutls_x509_crt_deinit(crt);
	return r;
}
