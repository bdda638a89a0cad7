/* SPDX-License-Identifier: Apache-2.0 */
/* Who is let in, and who is not; TLS and WebSocket around what is spoken. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/vnc/cert.h"
#include "host/vnc/front_internal.h"
#include "lib/loop.h"
#include "lib/util.h"

struct door {
	struct vnc_start start;
	struct front_fds fds;
	struct front f;
	int client, watch;
	pthread_t thread;
	bool view_only;
	int result;
};

static int setup(void **state)
{
	struct door *d = calloc(1, sizeof(*d));
	int connection[2], watch[2];

	assert_non_null(d);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, connection), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, watch), 0);
	d->client = connection[1];
	d->watch = watch[1];
	d->fds = (struct front_fds){ connection[0], watch[0], -1, -1, -1 };
	d->start = (struct vnc_start){ .password = "secret", .view_password = "watch" };
	d->f.start = &d->start;
	d->f.fds = &d->fds;
	d->f.t.fd = connection[0];
	d->f.t.watch = watch[0];
	d->f.until = UINT64_MAX;
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct door *d = *state;

	transport_finish(&d->f.t);
	if (d->f.credentials)
		gnutls_certificate_free_credentials(d->f.credentials);
	close(d->client);
	close(d->watch);
	close(d->fds.connection);
	close(d->fds.stream);
	free(d);
	return 0;
}

static void *run(void *arg)
{
	struct door *d = arg;

	d->result = front_let_in(&d->f, &d->view_only);
	shutdown(d->fds.connection, SHUT_WR);
	return NULL;
}

static void begin(struct door *d, uint32_t flags)
{
	d->start.flags = flags;
	assert_int_equal(pthread_create(&d->thread, NULL, run, d), 0);
}

static int finish(struct door *d)
{
	shutdown(d->client, SHUT_WR);
	pthread_join(d->thread, NULL);
	return d->result;
}

static void say(struct door *d, const void *bytes, size_t n)
{
	assert_int_equal(send(d->client, bytes, n, MSG_NOSIGNAL), n);
}

static void expect(struct door *d, const void *bytes, size_t n)
{
	uint8_t got[64];

	assert_int_equal(recv(d->client, got, n, MSG_WAITALL), n);
	assert_memory_equal(got, bytes, n);
}

static void expect_end(struct door *d)
{
	uint8_t byte;

	assert_int_equal(recv(d->client, &byte, 1, 0), 0);
}

static void greet(struct door *d, const char *version, uint8_t type)
{
	const uint8_t offer[2] = { 1, type };

	expect(d, "RFB 003.008\n", 12);
	say(d, version, 12);
	expect(d, offer, 2);
	say(d, &type, 1);
}

static void answer(struct door *d, const char *password)
{
	char key[VNC_PASSWORD_MAX + 1] = { 0 };
	uint8_t challenge[16], out[16];

	snprintf(key, sizeof(key), "%s", password);
	assert_int_equal(recv(d->client, challenge, 16, MSG_WAITALL), 16);
	front_des_response(key, challenge, out);
	say(d, out, 16);
}

static void challenges_are_answered_with_des_and_turned_bits(void **state)
{
	/* The key 133457799bbcdff1, each byte's bits the other way round, and the block that goes with it in many a textbook. */
	static const char password[] = { (char)0xc8, 0x2c, (char)0xea, (char)0x9e, (char)0xd9, 0x3d, (char)0xfb, (char)0x8f };
	static const uint8_t block[16] = { 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef };
	static const uint8_t right[8] = { 0x85, 0xe8, 0x13, 0x54, 0x0f, 0x0a, 0xb4, 0x05 };
	uint8_t out[16];

	(void)state;
	front_des_response(password, block, out);
	assert_memory_equal(out, right, 8);
	assert_memory_equal(out + 8, right, 8);
}

static void without_password_everybody_is_let_in(void **state)
{
	struct door *d = *state;

	begin(d, 0);
	greet(d, "RFB 003.008\n", 1);
	expect(d, "\0\0\0\0", 4);
	assert_int_equal(finish(d), 0);
	assert_false(d->view_only);
}

static void version_3_7_hears_no_result_without_password(void **state)
{
	struct door *d = *state;

	begin(d, 0);
	greet(d, "RFB 003.007\n", 1);
	assert_int_equal(finish(d), 0);
	expect_end(d);
}

static void version_3_3_is_told_the_type(void **state)
{
	struct door *d = *state;

	begin(d, 0);
	expect(d, "RFB 003.008\n", 12);
	say(d, "RFB 003.003\n", 12);
	expect(d, "\0\0\0\1", 4);
	assert_int_equal(finish(d), 0);
}

static void versions_that_are_none_are_refused(void **state)
{
	static const char *const wrong[] = { "RFB 004.000\n", "RFB 003.008 ", "RFB 3.8\n\n\n\n\n", "RFB 003.-08\n", "GET / HTTP/1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		void *each;
		struct door *d;

		setup(&each);
		d = each;
		begin(d, 0);
		expect(d, "RFB 003.008\n", 12);
		say(d, wrong[i], 12);
		assert_int_equal(finish(d), -EPROTO);
		expect_end(d);
		teardown(&each);
	}
}

static void a_type_that_was_not_offered_is_refused(void **state)
{
	struct door *d = *state;

	begin(d, VNC_PASSWORD);
	expect(d, "RFB 003.008\n", 12);
	say(d, "RFB 003.008\n", 12);
	expect(d, "\1\2", 2);
	say(d, "\1", 1);
	assert_int_equal(finish(d), -EPROTO);
	expect_end(d);
}

static void the_password_lets_in(void **state)
{
	struct door *d = *state;

	begin(d, VNC_PASSWORD | VNC_VIEW_PASSWORD);
	greet(d, "RFB 003.008\n", 2);
	answer(d, "secret");
	expect(d, "\0\0\0\0", 4);
	assert_int_equal(finish(d), 0);
	assert_false(d->view_only);
}

static void the_password_for_viewing_lets_in_to_view(void **state)
{
	struct door *d = *state;

	begin(d, VNC_PASSWORD | VNC_VIEW_PASSWORD);
	greet(d, "RFB 003.008\n", 2);
	answer(d, "watch");
	expect(d, "\0\0\0\0", 4);
	assert_int_equal(finish(d), 0);
	assert_true(d->view_only);
}

static void a_password_that_is_not_set_lets_nobody_in(void **state)
{
	struct door *d = *state;

	begin(d, VNC_VIEW_PASSWORD);
	greet(d, "RFB 003.008\n", 2);
	answer(d, "secret");
	expect(d, "\0\0\0\1\0\0\0\16Wrong password", 22);
	assert_int_equal(finish(d), -EACCES);
}

static void a_wrong_password_is_told_and_reported(void **state)
{
	struct door *d = *state;
	struct front_hello hello;

	begin(d, VNC_PASSWORD);
	greet(d, "RFB 003.007\n", 2);
	answer(d, "");
	expect(d, "\0\0\0\1", 4); /* 3.7 has no reasons */
	assert_int_equal(finish(d), -EACCES);
	expect_end(d);
	assert_int_equal(recv(d->watch, &hello, sizeof(hello), 0), sizeof(hello));
	assert_int_equal(hello.wrong, 1);
}

static void where_tls_is_demanded_an_old_version_hears_why_not(void **state)
{
	struct door *d = *state;
	char text[128] = "";

	begin(d, VNC_TLS);
	expect(d, "RFB 003.008\n", 12);
	say(d, "RFB 003.003\n", 12);
	expect(d, "\0\0\0\0", 4);
	assert_int_equal(finish(d), -EACCES);
	assert_true(recv(d->client, text, sizeof(text) - 1, MSG_WAITALL) > 4);
	assert_non_null(strstr(text + 4, "TLS"));
}

static void the_other_process_end_ends_it(void **state)
{
	struct door *d = *state;

	begin(d, 0);
	expect(d, "RFB 003.008\n", 12);
	shutdown(d->watch, SHUT_RDWR);
	pthread_join(d->thread, NULL);
	assert_int_equal(d->result, -ECANCELED);
}

/* ---- WebSocket in TLS ---- */

static void load_certificate(struct door *d)
{
	int cert = memfd_create("cert", 0), key = memfd_create("key", 0);
	char a[65536] = "", b[65536] = "";
	FILE *null = fopen("/dev/null", "w");
	struct err err = ERR_INIT;
	gnutls_datum_t c, k;

	assert_non_null(null);
	assert_int_equal(cert_make(cert, key, null, &err), 0);
	fclose(null);
	c = (gnutls_datum_t){ (unsigned char *)a, (unsigned)pread(cert, a, sizeof(a), 0) };
	k = (gnutls_datum_t){ (unsigned char *)b, (unsigned)pread(key, b, sizeof(b), 0) };
	assert_int_equal(gnutls_certificate_allocate_credentials(&d->f.credentials), 0);
	assert_int_equal(gnutls_certificate_set_x509_key_mem(d->f.credentials, &c, &k, GNUTLS_X509_FMT_PEM), 0);
	close(cert);
	close(key);
}

static void *run_tls(void *arg)
{
	struct door *d = arg;

	d->result = transport_start_tls(&d->f.t, d->f.credentials, UINT64_MAX);
	d->f.t.framed = true;
	if (d->result == 0)
		d->result = front_let_in(&d->f, &d->view_only);
	return NULL;
}

/* Both frames are in one record: the server reads one byte where the frame of it has seven, and the socket has no more. */
static void frames_in_one_tls_record_are_all_read(void **state)
{
	static const uint8_t said[] = "\x82\x8c\0\0\0\0RFB 003.008\n\x82\x81\0\0\0\0\1";
	struct door *d = *state;
	gnutls_certificate_credentials_t none;
	gnutls_session_t s;

	load_certificate(d);
	assert_int_equal(pthread_create(&d->thread, NULL, run_tls, d), 0);
	assert_int_equal(gnutls_init(&s, GNUTLS_CLIENT), 0);
	assert_int_equal(gnutls_certificate_allocate_credentials(&none), 0);
	gnutls_set_default_priority(s);
	gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, none);
	gnutls_transport_set_int(s, d->client);
	assert_int_equal(gnutls_handshake(s), 0);
	assert_int_equal(gnutls_record_send(s, said, sizeof(said) - 1), sizeof(said) - 1);
	pthread_join(d->thread, NULL);
	assert_int_equal(d->result, 0);
	gnutls_deinit(s);
	gnutls_certificate_free_credentials(none);
}

/* Frames without a byte are something to read each time, and a deadline all the same. */
static void frames_that_carry_nothing_gain_no_time(void **state)
{
	static const uint8_t empty[6] = { 0x82, 0x80 };
	struct door *d = *state;
	uint8_t want[12];
	int left = 0;

	d->f.t.framed = true;
	for (int i = 0; i < 200; i++)
		say(d, empty, sizeof(empty));
	assert_int_equal(transport_read_all(&d->f.t, want, sizeof(want), loop_now_ns()), -ETIMEDOUT);
	assert_int_equal(ioctl(d->fds.connection, FIONREAD, &left), 0);
	assert_true(left > 0);
}

static void where_passwords_were_guessed_nobody_is_asked_for_one(void **state)
{
	static const char reason[] = "\0\0\0\0\x29Too many wrong passwords: try again later";
	struct door *d = *state;

	begin(d, VNC_PASSWORD | VNC_REFUSED);
	expect(d, "RFB 003.008\n", 12);
	say(d, "RFB 003.008\n", 12);
	expect(d, reason, sizeof(reason) - 1);
	expect_end(d);
	assert_int_equal(finish(d), -EACCES);
}

static void an_old_version_hears_too_that_passwords_were_guessed(void **state)
{
	static const char reason[] = "\0\0\0\0\0\0\0\x29Too many wrong passwords: try again later";
	struct door *d = *state;

	begin(d, VNC_PASSWORD | VNC_REFUSED);
	expect(d, "RFB 003.008\n", 12);
	say(d, "RFB 003.003\n", 12);
	expect(d, reason, sizeof(reason) - 1);
	expect_end(d);
	assert_int_equal(finish(d), -EACCES);
}

int main(void)
{
#define DOOR_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(challenges_are_answered_with_des_and_turned_bits),
		DOOR_TEST(without_password_everybody_is_let_in),
		DOOR_TEST(version_3_7_hears_no_result_without_password),
		DOOR_TEST(version_3_3_is_told_the_type),
		cmocka_unit_test(versions_that_are_none_are_refused),
		DOOR_TEST(a_type_that_was_not_offered_is_refused),
		DOOR_TEST(the_password_lets_in),
		DOOR_TEST(the_password_for_viewing_lets_in_to_view),
		DOOR_TEST(a_password_that_is_not_set_lets_nobody_in),
		DOOR_TEST(a_wrong_password_is_told_and_reported),
		DOOR_TEST(where_tls_is_demanded_an_old_version_hears_why_not),
		DOOR_TEST(the_other_process_end_ends_it),
		DOOR_TEST(frames_in_one_tls_record_are_all_read),
		DOOR_TEST(frames_that_carry_nothing_gain_no_time),
		DOOR_TEST(where_passwords_were_guessed_nobody_is_asked_for_one),
		DOOR_TEST(an_old_version_hears_too_that_passwords_were_guessed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
