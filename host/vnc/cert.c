/* SPDX-License-Identifier: Apache-2.0 */
/* Making and reading certificates: see cert.h. */
#include "host/vnc/cert.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static int read_file(int fd, gnutls_datum_t *ret)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > VNC_PEM_MAX)
		return -EFBIG;
	ret->data = malloc((size_t)st.st_size + 1);
	if (!ret->data)
		return -ENOMEM;
	n = fd_pread_full(fd, ret->data, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	ret->size = (unsigned)n;
	ret->data[n] = 0;
	return 0;
}

/* VNC_CERT_FINE, or GnuTLS' reason in *ret_reason. Each for itself first: what it says of the pair does not tell them apart. */
static enum vnc_cert_fault load_pair(gnutls_certificate_credentials_t c, const gnutls_datum_t *certificate, const gnutls_datum_t *key, int *ret_reason)
{
	enum vnc_cert_fault fault = VNC_CERT_NO_PAIR;
	gnutls_x509_privkey_t parsed = NULL;
	gnutls_x509_crt_t *list = NULL;
	unsigned n = 0;
	int r = gnutls_x509_crt_list_import2(&list, &n, certificate, GNUTLS_X509_FMT_PEM, 0);

	if (r < 0)
		fault = VNC_CERT_BAD_CERTIFICATE;
	for (unsigned i = 0; i < n; i++)
		gnutls_x509_crt_deinit(list[i]);
	gnutls_free(list);
	if (r >= 0) {
		r = gnutls_x509_privkey_init(&parsed);
		if (r >= 0)
			r = gnutls_x509_privkey_import2(parsed, key, GNUTLS_X509_FMT_PEM, NULL, 0);
		if (r < 0)
			fault = VNC_CERT_BAD_KEY;
		gnutls_x509_privkey_deinit(parsed);
	}
	if (r >= 0)
		r = gnutls_certificate_set_x509_key_mem(c, certificate, key, GNUTLS_X509_FMT_PEM);
	*ret_reason = r;
	return r >= 0 ? VNC_CERT_FINE : fault;
}

int cert_load(int certificate_fd, int key_fd, gnutls_certificate_credentials_t *ret, enum vnc_cert_fault *ret_fault, struct err *err)
{
	gnutls_datum_t certificate = { 0 }, key = { 0 };
	gnutls_certificate_credentials_t c = NULL;
	enum vnc_cert_fault fault = VNC_CERT_FINE;
	int r = read_file(certificate_fd, &certificate), reason = 0;

	if (r == 0)
		r = read_file(key_fd, &key);
	if (r == 0 && gnutls_certificate_allocate_credentials(&c) < 0)
		r = -ENOMEM;
	if (r < 0) {
		err_errno(err, r, "certificate and key");
	} else {
		fault = load_pair(c, &certificate, &key, &reason);
		if (fault != VNC_CERT_FINE)
			r = err_set(err, -EINVAL, "%s", gnutls_strerror(reason));
	}
	if (key.data)
		explicit_bzero(key.data, key.size);
	free(certificate.data);
	free(key.data);
	if (ret_fault)
		*ret_fault = fault;
	if (r == 0)
		*ret = TAKE_PTR(c);
	if (c)
		gnutls_certificate_free_credentials(c);
	return r;
}
