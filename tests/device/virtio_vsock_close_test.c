/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-vsock: how connections end. Half-close and reset from both sides; nothing is lost, nothing is left over. */
#include "tests/device/vsock_driver.h"

static struct vsock_test t;
static int listener, peer; /* a connection from guest port 1025 to host port 80 */

enum { G = 1025, H = 80 };

static int setup(void **state)
{
	(void)state;
	vt_setup(&t, NULL, 64);
	listener = vt_listen(H, 16);
	peer = vt_connect_to_host(&t, listener, G, H);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(peer);
	close(listener);
	vt_teardown(&t);
	return 0;
}

static uint32_t conns(void)
{
	return vt_vsock(&t)->host.nconns;
}

static void the_host_shuts_writing_and_the_guest_still_answers(void **state)
{
	struct vsock_packet p;

	(void)state;
	assert_int_equal(send(peer, "question", 8, 0), 8);
	shutdown(peer, SHUT_WR);
	p = vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H);
	assert_int_equal(p.len, 8);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	vt_send_data(&t, G, H, "answer", 6, 65536, 8);
	vt_expect_bytes(&t, peer, "answer", 6);
	vt_expect_open(&t, peer);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	vt_expect_eof(&t, peer);
	assert_int_equal(conns(), 0);
}

static void the_guest_shuts_writing_and_the_host_still_answers(void **state)
{
	struct vsock_packet p;

	(void)state;
	vt_send_data(&t, G, H, "question", 8, 65536, 0);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	vt_expect_bytes(&t, peer, "question", 8);
	vt_expect_eof(&t, peer);
	vt_expect_nothing(&t);
	assert_int_equal(send(peer, "answer", 6, 0), 6);
	p = vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H);
	assert_int_equal(p.len, 6);
	close(peer);
	peer = -1;
	/* Both directions are over now. */
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

static void half_close_by_both_ends_the_connection(void **state)
{
	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	vt_expect_eof(&t, peer);
	shutdown(peer, SHUT_WR);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

static void half_close_in_the_other_order_ends_it_too(void **state)
{
	(void)state;
	shutdown(peer, SHUT_WR);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	vt_expect_eof(&t, peer);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

static void a_guest_that_stops_reading_breaks_the_hosts_pipe(void **state)
{
	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_RCV, G, H);
	assert_int_equal(send(peer, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	vt_send_data(&t, G, H, "still", 5, 65536, 0);
	vt_expect_bytes(&t, peer, "still", 5);
	vt_expect_nothing(&t);
}

static void a_host_that_stops_reading_is_announced(void **state)
{
	(void)state;
	shutdown(peer, SHUT_RD);
	vt_send_data(&t, G, H, "lost", 4, 65536, 0);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_RCV, G, H);
	vt_send_data(&t, G, H, "lost too", 8, 65536, 0);
	vt_expect_nothing(&t);
	assert_int_equal(send(peer, "hello", 5, 0), 5);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H).len, 5);
}

static void a_guests_close_is_answered_at_once_and_the_port_is_free(void **state)
{
	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	vt_expect_eof(&t, peer);
	close(peer);
	peer = vt_connect_to_host(&t, listener, G, H);
	vt_send_data(&t, G, H, "again", 5, 65536, 0);
	vt_expect_bytes(&t, peer, "again", 5);
}

static void shutdown_flags_add_up(void **state)
{
	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	vt_send_shutdown(&t, 0, G, H);
	vt_expect_nothing(&t);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_RCV, G, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

/* Fill the socket and the window behind it; returns what was sent. */
static uint32_t fill(void)
{
	static uint8_t data[4096];
	uint32_t sent = 0, alloc = VSOCK_WINDOW, fwd = 0;
	struct vsock_packet p;

	for (;;) {
		uint32_t n = MIN((uint32_t)sizeof(data), alloc - (sent - fwd));

		if (n == 0)
			return sent;
		vt_pattern(data, n, 11, sent);
		vt_send_data(&t, G, H, data, n, 65536, 0);
		sent += n;
		while (vt_next(&t, &p)) {
			assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_CREDIT_UPDATE);
			alloc = le32_get(p.h.buf_alloc);
			fwd = le32_get(p.h.fwd_cnt);
			vt_give_back(&t, &p);
		}
	}
}

static void expect_pattern(uint32_t len)
{
	uint8_t *want = malloc(len);

	vt_pattern(want, len, 11, 0);
	vt_expect_bytes(&t, peer, want, len);
	free(want);
}

static void what_the_guest_sent_before_closing_still_arrives(void **state)
{
	uint32_t sent = fill();

	(void)state;
	assert_true(vt_vsock(&t)->host.pool.used > 0);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 1); /* lingers */
	expect_pattern(sent);
	vt_expect_eof(&t, peer);
	assert_int_equal(conns(), 0);
	assert_int_equal(vt_vsock(&t)->host.pool.used, 0);
	vt_expect_nothing(&t);
}

static void what_the_guest_sent_before_half_closing_still_arrives(void **state)
{
	uint32_t sent = fill();

	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, G, H);
	expect_pattern(sent);
	vt_expect_eof(&t, peer);
	assert_int_equal(conns(), 1);
}

static void the_port_is_free_while_the_rest_is_delivered(void **state)
{
	uint32_t sent = fill();
	int second;

	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	second = vt_connect_to_host(&t, listener, G, H);
	vt_send_data(&t, G, H, "new", 3, 65536, 0);
	vt_expect_bytes(&t, second, "new", 3);
	expect_pattern(sent);
	vt_expect_eof(&t, peer);
	close(second);
}

static void a_peer_that_never_takes_the_rest_is_given_up(void **state)
{
	(void)state;
	fill();
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_elapse(&t);
	assert_int_equal(conns(), 0);
	assert_int_equal(vt_vsock(&t)->host.pool.used, 0);
}

static void a_peer_that_leaves_while_the_rest_waits_frees_everything(void **state)
{
	(void)state;
	fill();
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	close(peer);
	peer = -1;
	machine_settle(&t.m);
	assert_int_equal(conns(), 0);
	assert_int_equal(vt_vsock(&t)->host.pool.used, 0);
}

static void what_the_host_sent_before_closing_still_arrives(void **state)
{
	struct vsock_packet p;
	uint32_t n = 0;
	static uint8_t data[60000], got[60000];

	(void)state;
	vt_pattern(data, sizeof(data), 4, 0);
	assert_int_equal(send(peer, data, sizeof(data), 0), sizeof(data));
	close(peer);
	peer = -1;
	while (n < sizeof(data)) {
		p = vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H);
		machine_peek(&t.m, p.payload, got + n, p.len);
		n += p.len;
	}
	assert_memory_equal(got, data, sizeof(data));
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect_nothing(&t);
	assert_int_equal(conns(), 1);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

static void closing_waits_for_the_guests_credit(void **state)
{
	(void)state;
	vt_send_credit(&t, G, H, 10, 0);
	assert_int_equal(send(peer, "0123456789abcdef", 16, 0), 16);
	close(peer);
	peer = -1;
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H).len, 10);
	vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, G, H);
	vt_expect_nothing(&t);
	vt_send_credit(&t, G, H, 10, 10);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H).len, 6);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
}

static void a_guest_that_ignores_the_shutdown_is_reset(void **state)
{
	(void)state;
	close(peer);
	peer = -1;
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_send_data(&t, G, H, "late", 4, 65536, 0); /* crossed it */
	vt_expect_nothing(&t);
	vt_elapse(&t);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

static void closing_on_both_sides_at_once_ends_cleanly(void **state)
{
	(void)state;
	close(peer);
	peer = -1;
	machine_settle(&t.m);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	assert_int_equal(conns(), 0);
}

static void a_new_request_takes_the_place_of_a_closing_connection(void **state)
{
	(void)state;
	close(peer);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, G, H);
	peer = vt_connect_to_host(&t, listener, G, H);
	assert_int_equal(conns(), 1);
}

static void a_peer_that_drops_data_on_closing_resets_the_guest(void **state)
{
	(void)state;
	vt_send_data(&t, G, H, "unread", 6, 65536, 0);
	close(peer);
	peer = -1;
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	vt_expect_nothing(&t);
	assert_int_equal(conns(), 0);
}

static void a_guests_reset_closes_the_hosts_socket(void **state)
{
	(void)state;
	vt_send(&t, VIRTIO_VSOCK_OP_RST, G, H);
	vt_expect_eof(&t, peer);
	vt_expect_nothing(&t);
	assert_int_equal(conns(), 0);
}

static void a_client_made_connection_ends_the_same_way(void **state)
{
	uint32_t port, again;
	int s = vt_connect_to_guest(&t, 7, &port);

	(void)state;
	close(s);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 7, port);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, 7, port);
	s = vt_connect_to_guest(&t, 7, &again);
	assert_int_not_equal(again, port);
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 7, again);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 7, again);
	vt_expect_eof(&t, s);
	close(s);
	assert_int_equal(conns(), 1);
}

static void no_end_leaves_a_descriptor(void **state)
{
	int before = dup(0), after;

	(void)state;
	close(before);
	for (int i = 0; i < 40; i++) {
		int s = vt_connect_to_host(&t, listener, 2000, H);
		struct vsock_packet p;

		if (i % 4 == 0)
			vt_send(&t, VIRTIO_VSOCK_OP_RST, 2000, H);
		else if (i % 4 == 1)
			vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 2000, H);
		close(s);
		if (i % 4 == 2)
			vt_send(&t, VIRTIO_VSOCK_OP_RST, 2000, H);
		while (vt_next(&t, &p))
			vt_give_back(&t, &p);
	}
	vt_send(&t, VIRTIO_VSOCK_OP_RST, 2000, H);
	assert_int_equal(conns(), 1);
	after = dup(0);
	close(after);
	assert_int_equal(after, before);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_host_shuts_writing_and_the_guest_still_answers),
		TEST(the_guest_shuts_writing_and_the_host_still_answers),
		TEST(half_close_by_both_ends_the_connection),
		TEST(half_close_in_the_other_order_ends_it_too),
		TEST(a_guest_that_stops_reading_breaks_the_hosts_pipe),
		TEST(a_host_that_stops_reading_is_announced),
		TEST(a_guests_close_is_answered_at_once_and_the_port_is_free),
		TEST(shutdown_flags_add_up),
		TEST(what_the_guest_sent_before_closing_still_arrives),
		TEST(what_the_guest_sent_before_half_closing_still_arrives),
		TEST(the_port_is_free_while_the_rest_is_delivered),
		TEST(a_peer_that_never_takes_the_rest_is_given_up),
		TEST(a_peer_that_leaves_while_the_rest_waits_frees_everything),
		TEST(what_the_host_sent_before_closing_still_arrives),
		TEST(closing_waits_for_the_guests_credit),
		TEST(a_guest_that_ignores_the_shutdown_is_reset),
		TEST(closing_on_both_sides_at_once_ends_cleanly),
		TEST(a_new_request_takes_the_place_of_a_closing_connection),
		TEST(a_peer_that_drops_data_on_closing_resets_the_guest),
		TEST(a_guests_reset_closes_the_hosts_socket),
		TEST(a_client_made_connection_ends_the_same_way),
		TEST(no_end_leaves_a_descriptor),
	};

	return cmocka_run_group_tests_name("virtio_vsock_close", tests, NULL, NULL);
}
