/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-vsock: packets no sane driver sends. The device answers or drops, and goes on. */
#include "tests/device/vsock_driver.h"

static struct vsock_test t;
static int listener;

enum { H = 80 };

static int setup(void **state)
{
	(void)state;
	vt_setup(&t, NULL, 64);
	listener = vt_listen(H, 64);
	return 0;
}

/* After the nonsense: does a connection still work? */
static int teardown(void **state)
{
	struct vsock_packet p;
	int s;

	(void)state;
	while (vt_next(&t, &p))
		vt_give_back(&t, &p);
	s = vt_connect_to_host(&t, listener, 60000, H);
	vt_send_data(&t, 60000, H, "fine", 4, 65536, 0);
	vt_expect_bytes(&t, s, "fine", 4);
	assert_int_equal(send(s, "too", 3, 0), 3);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 60000, H).len, 3);
	close(s);
	close(listener);
	vt_teardown(&t);
	return 0;
}

static void a_header_cut_short_is_dropped(void **state)
{
	struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_REQUEST, 1, H, 0);

	(void)state;
	machine_poke(&t.m, t.tx_base, &h, sizeof(h));
	for (uint32_t len = 1; len < VT_HEADER; len += 6) {
		struct driver_buf b = { t.tx_base, len, false };

		driver_add(&t.d, VSOCK_Q_TX, &b, 1);
	}
	driver_kick(&t.d, VSOCK_Q_TX);
	vt_expect_nothing(&t);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void a_packet_without_readable_bytes_is_dropped(void **state)
{
	struct driver_buf b = { t.tx_base, 100, true };

	(void)state;
	driver_add(&t.d, VSOCK_Q_TX, &b, 1);
	driver_kick(&t.d, VSOCK_Q_TX);
	vt_expect_nothing(&t);
}

static void a_payload_shorter_than_announced_is_dropped(void **state)
{
	static const uint32_t lens[] = { 11, 4096, 65536, 1u << 31, UINT32_MAX };
	int s = vt_connect_to_host(&t, listener, 5, H);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_RW, 5, H, lens[i]);

		vt_send_header(&t, &h, 10);
	}
	vt_expect_open(&t, s);
	vt_expect_nothing(&t);
	close(s);
}

static void bytes_behind_the_payload_are_not_sent(void **state)
{
	struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_RW, 5, H, 3);
	int s = vt_connect_to_host(&t, listener, 5, H);

	(void)state;
	machine_poke(&t.m, t.tx_base + VT_PAGE, "abcdef", 6);
	vt_send_header(&t, &h, 6);
	vt_expect_bytes(&t, s, "abc", 3);
	vt_expect_open(&t, s);
	h.len = le32_make(0);
	vt_send_header(&t, &h, 6);
	vt_expect_open(&t, s);
	close(s);
}

static void packets_of_another_cid_are_dropped(void **state)
{
	static const uint64_t cids[] = { 0, 1, 2, 4, UINT32_MAX, VT_CID | 1ull << 32, UINT64_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cids); i++) {
		struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_REQUEST, 5, H, 0);

		h.src_cid = le64_make(cids[i]);
		vt_send_header(&t, &h, 0);
	}
	vt_expect_nothing(&t);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void a_packet_to_another_cid_is_reset(void **state)
{
	static const uint64_t cids[] = { 0, 1, 3, 77, VSOCK_HOST_CID | 1ull << 32 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cids); i++) {
		struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_REQUEST, 5, H, 0);
		struct vsock_packet p;

		h.dst_cid = le64_make(cids[i]);
		vt_send_header(&t, &h, 0);
		p = vt_expect(&t, VIRTIO_VSOCK_OP_RST, 5, H);
		assert_int_equal(le64_get(p.h.src_cid), cids[i]);
		h.op = le16_make(VIRTIO_VSOCK_OP_RST);
		vt_send_header(&t, &h, 0);
		vt_expect_nothing(&t);
	}
}

static void another_type_is_reset_with_that_type(void **state)
{
	static const uint16_t types[] = { 0, 2, 3, UINT16_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_REQUEST, 5, H, 0);
		struct vsock_packet p;

		h.type = le16_make(types[i]);
		vt_send_header(&t, &h, 0);
		p = vt_expect(&t, VIRTIO_VSOCK_OP_RST, 5, H);
		assert_int_equal(le16_get(p.h.type), types[i]);
	}
}

static void packets_of_no_connection_are_reset_and_resets_ignored(void **state)
{
	static const uint16_t ops[] = { 0, VIRTIO_VSOCK_OP_RESPONSE, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_OP_RW,
					VIRTIO_VSOCK_OP_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 8, UINT16_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		vt_send(&t, ops[i], 5, 6);
		vt_expect(&t, VIRTIO_VSOCK_OP_RST, 5, 6);
	}
	vt_send(&t, VIRTIO_VSOCK_OP_RST, 5, 6);
	vt_expect_nothing(&t);
}

static void unknown_operations_end_a_connection(void **state)
{
	static const uint16_t ops[] = { 0, 8, UINT16_MAX, VIRTIO_VSOCK_OP_RESPONSE };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		int s = vt_connect_to_host(&t, listener, 5, H);

		vt_send(&t, ops[i], 5, H);
		vt_expect(&t, VIRTIO_VSOCK_OP_RST, 5, H);
		vt_expect_eof(&t, s);
		close(s);
	}
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void a_second_request_resets_an_open_connection(void **state)
{
	int s = vt_connect_to_host(&t, listener, 5, H);

	(void)state;
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 5, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 5, H);
	vt_expect_eof(&t, s);
	close(s);
	s = vt_connect_to_host(&t, listener, 5, H);
	close(s);
}

static void nothing_but_an_answer_is_accepted_before_the_connection_is_open(void **state)
{
	static const uint16_t ops[] = { VIRTIO_VSOCK_OP_REQUEST, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_OP_RW, 99 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		int s = vt_client(&t, "CONNECT 7\n");
		uint32_t port = (1u << 30) + (uint32_t)i;

		vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 7, port);
		vt_send(&t, ops[i], 7, port);
		vt_expect(&t, VIRTIO_VSOCK_OP_RST, 7, port);
		vt_expect_eof(&t, s);
		close(s);
	}
}

static void an_answer_before_the_question_opens_nothing(void **state)
{
	struct vsock_packet p;
	int s;

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, 0); /* no buffers: the request cannot go out */
	close(listener);
	listener = vt_listen(H, 16);
	s = vt_client(&t, "CONNECT 7\n");
	vt_send(&t, VIRTIO_VSOCK_OP_RESPONSE, 7, 1u << 30);
	vt_expect_eof(&t, s);
	vt_post(&t, 4);
	assert_true(vt_next(&t, &p));
	assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_RST);
	close(s);
}

static void data_after_the_guests_own_end_resets(void **state)
{
	int s = vt_connect_to_host(&t, listener, 5, H);

	(void)state;
	vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_SEND, 5, H);
	vt_send_data(&t, 5, H, "x", 1, 65536, 0);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 5, H);
	vt_expect_eof(&t, s);
	close(s);
}

static void buffers_too_small_for_a_packet_come_back_empty(void **state)
{
	static const uint32_t lens[] = { 1, 8, 43 };
	uint32_t head, used;
	int s;

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, 0);
	close(listener);
	listener = vt_listen(H, 16);
	for (uint16_t i = 0; i < ARRAY_SIZE(lens); i++)
		vt_post_one(&t, i, lens[i]);
	vt_post_one(&t, 3, VT_HEADER); /* enough for a control packet */
	driver_kick(&t.d, VSOCK_Q_RX);
	s = vt_client(&t, "CONNECT 7\n");
	for (int i = 0; i < 4; i++) {
		assert_true(driver_used(&t.d, VSOCK_Q_RX, &head, &used));
		assert_int_equal(head, i);
		assert_int_equal(used, i == 3 ? VT_HEADER : 0);
	}
	close(s);
	vt_post(&t, 64);
}

static void buffers_without_room_for_data_are_skipped(void **state)
{
	struct vsock_packet p;
	uint32_t head, used, port, n = 0;
	int s = vt_connect_to_guest(&t, 7, &port);

	(void)state;
	for (int i = 0; i < 64; i++) { /* use up the good ones */
		assert_int_equal(send(s, "x", 1, 0), 1);
		machine_settle(&t.m);
	}
	while (driver_used(&t.d, VSOCK_Q_RX, NULL, NULL))
		n++;
	assert_true(n >= 60);
	/* Now good and useless ones in turn. */
	for (uint16_t i = 0; i < 16; i++)
		vt_post_one(&t, i, i % 2 ? VT_HEADER + 10 : VT_HEADER);
	driver_kick(&t.d, VSOCK_Q_RX);
	assert_int_equal(send(s, "0123456789abcdefghij", 20, 0), 20);
	machine_settle(&t.m);
	n = 0;
	while (driver_used(&t.d, VSOCK_Q_RX, &head, &used))
		n += used ? used - VT_HEADER : 0;
	assert_true(n >= 20);
	vt_post(&t, 64);
	while (vt_next(&t, &p))
		;
	vt_post(&t, 64);
	close(s);
}

static void resets_owed_hold_up_the_guest_not_the_device(void **state)
{
	uint32_t seen = 0;
	struct vsock_packet p;
	struct virtio_vsock_header h;

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, 0);
	close(listener);
	listener = vt_listen(H, 16);
	/* 600 packets of no connection while there is no buffer to answer. */
	for (uint32_t i = 0; i < 600; i++) {
		h = vt_header(VIRTIO_VSOCK_OP_RW, i, 6, 0);
		/* Descriptors are used again while packets wait: keep each header where it is. */
		struct driver_buf b = { driver_alloc(&t.d, VT_HEADER, 4), VT_HEADER, false };

		if (i >= VSOCK_REPLIES + 100)
			break;
		machine_poke(&t.m, b.gpa, &h, sizeof(h));
		driver_add(&t.d, VSOCK_Q_TX, &b, 1);
		driver_kick(&t.d, VSOCK_Q_TX);
	}
	assert_int_equal(vt_vsock(&t)->host.nreplies, VSOCK_REPLIES);
	assert_true(vt_vsock(&t)->host.tx_stalled);
	vt_post(&t, 64);
	while (vt_next(&t, &p)) {
		assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_RST);
		assert_int_equal(le32_get(p.h.dst_port), seen);
		seen++;
		vt_give_back(&t, &p);
	}
	assert_int_equal(seen, VSOCK_REPLIES + 100);
	assert_false(vt_vsock(&t)->host.tx_stalled);
}

static void a_flood_of_requests_is_served_in_bursts(void **state)
{
	uint32_t resets = 0;
	struct vsock_packet p;

	(void)state;
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < 200; i++) {
			struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_REQUEST, i, 4000, 0);

			vt_queue(&t, &h, 0);
		}
		driver_kick(&t.d, VSOCK_Q_TX);
		while (vt_next(&t, &p)) {
			resets += le16_get(p.h.op) == VIRTIO_VSOCK_OP_RST;
			vt_give_back(&t, &p);
		}
		while (driver_used(&t.d, VSOCK_Q_TX, NULL, NULL))
			;
	}
	assert_int_equal(resets, 4000);
}

static void a_looping_chain_stops_the_device_until_reset(void **state)
{
	(void)state;
	driver_desc(&t.d, t.d.q[VSOCK_Q_TX].desc, 0, t.tx_base, 44, DRIVER_DESC_NEXT, 0);
	driver_publish(&t.d, VSOCK_Q_TX, 0);
	driver_kick(&t.d, VSOCK_Q_TX);
	assert_true(driver_needs_reset(&t.d));
	vt_start_driver(&t, 0, 64);
}

static void a_bad_receive_buffer_stops_the_device_until_reset(void **state)
{
	struct driver_buf b = { MIB(64) - 10, 4096, true };
	int s;

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, 0);
	close(listener);
	listener = vt_listen(H, 16);
	driver_add(&t.d, VSOCK_Q_RX, &b, 1);
	driver_kick(&t.d, VSOCK_Q_RX);
	s = vt_client(&t, "CONNECT 7\n");
	assert_true(driver_needs_reset(&t.d));
	vt_start_driver(&t, 0, 64);
	vt_expect_eof(&t, s);
	close(s);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_header_cut_short_is_dropped),
		TEST(a_packet_without_readable_bytes_is_dropped),
		TEST(a_payload_shorter_than_announced_is_dropped),
		TEST(bytes_behind_the_payload_are_not_sent),
		TEST(packets_of_another_cid_are_dropped),
		TEST(a_packet_to_another_cid_is_reset),
		TEST(another_type_is_reset_with_that_type),
		TEST(packets_of_no_connection_are_reset_and_resets_ignored),
		TEST(unknown_operations_end_a_connection),
		TEST(a_second_request_resets_an_open_connection),
		TEST(nothing_but_an_answer_is_accepted_before_the_connection_is_open),
		TEST(an_answer_before_the_question_opens_nothing),
		TEST(data_after_the_guests_own_end_resets),
		TEST(buffers_too_small_for_a_packet_come_back_empty),
		TEST(buffers_without_room_for_data_are_skipped),
		TEST(resets_owed_hold_up_the_guest_not_the_device),
		TEST(a_flood_of_requests_is_served_in_bursts),
		TEST(a_looping_chain_stops_the_device_until_reset),
		TEST(a_bad_receive_buffer_stops_the_device_until_reset),
	};

	return cmocka_run_group_tests_name("virtio_vsock_hostile", tests, NULL, NULL);
}
