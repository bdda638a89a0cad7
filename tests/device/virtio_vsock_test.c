/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-vsock: how connections begin, from both sides, and that bytes arrive as they were sent. */
#include "tests/device/vsock_driver.h"

static struct vsock_test t;

static int setup(void **state)
{
	(void)state;
	vt_setup(&t, NULL, 64);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vt_teardown(&t);
	return 0;
}

static void the_device_tells_the_cid(void **state)
{
	(void)state;
	assert_int_equal(driver_reg(&t.d, MMIO_DEVICE_ID), 19);
	assert_int_equal(driver_config(&t.d, 0, 8), VT_CID);
}

static void a_client_connects_to_a_guest_port(void **state)
{
	struct vsock_packet p;
	int s = vt_client(&t, "CONNECT 52\n");

	(void)state;
	p = vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 52, 1u << 30);
	assert_int_equal(le64_get(p.h.src_cid), VSOCK_HOST_CID);
	assert_int_equal(le16_get(p.h.type), VIRTIO_VSOCK_TYPE_STREAM);
	assert_int_equal(p.len, 0);
	assert_int_equal(le32_get(p.h.buf_alloc), VSOCK_WINDOW);
	assert_int_equal(le32_get(p.h.fwd_cnt), 0);
	vt_expect_open(&t, s);
	vt_send(&t, VIRTIO_VSOCK_OP_RESPONSE, 52, 1u << 30);
	vt_expect_bytes(&t, s, "OK 1073741824\n", 14);
	vt_expect_open(&t, s);
	close(s);
}

static void each_client_gets_a_host_port_of_its_own(void **state)
{
	uint32_t a, b, c;
	int s[3] = { vt_connect_to_guest(&t, 52, &a), vt_connect_to_guest(&t, 52, &b), vt_connect_to_guest(&t, 53, &c) };

	(void)state;
	assert_int_not_equal(a, b);
	assert_int_not_equal(b, c);
	for (int i = 0; i < 3; i++)
		close(s[i]);
}

static void a_line_in_pieces_is_put_together(void **state)
{
	int s = vt_client(&t, "CON");

	(void)state;
	vt_expect_nothing(&t);
	assert_int_equal(send(s, "NECT 1", 6, 0), 6);
	vt_expect_nothing(&t);
	assert_int_equal(send(s, "0\n", 2, 0), 2);
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 10, 1u << 30);
	close(s);
}

static void data_behind_the_line_waits_for_the_connection(void **state)
{
	struct vsock_packet p;
	char got[5];
	int s = vt_client(&t, "CONNECT 7\nhello");

	(void)state;
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 7, 1u << 30);
	vt_expect_nothing(&t);
	vt_send(&t, VIRTIO_VSOCK_OP_RESPONSE, 7, 1u << 30);
	p = vt_expect(&t, VIRTIO_VSOCK_OP_RW, 7, 1u << 30);
	assert_int_equal(p.len, 5);
	machine_peek(&t.m, p.payload, got, 5);
	assert_memory_equal(got, "hello", 5);
	close(s);
}

static void other_lines_are_refused_at_once(void **state)
{
	static const char *const lines[] = {
		"CONNECT \n", "CONNECT x\n", "CONNECT 5 \n", "CONNECT -1\n", "CONNECT 4294967295\n", "CONNECT 99999999999\n",
		"connect 5\n", "CONNECT5\n", "\n", "GET / HTTP/1.1\r\n", "CONNECT 00000000000000000000000000000001\n",
		"no newline in thirty-two characters",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		int s = vt_client(&t, lines[i]);

		/* Closed with bytes unread, or not: the end either way. */
		char c;
		ssize_t n = vt_recv(&t, s, &c, 1);

		assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
		close(s);
	}
	vt_expect_nothing(&t);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void a_silent_client_is_dropped_after_a_while(void **state)
{
	int s = vt_client(&t, "CONN");

	(void)state;
	vt_expect_open(&t, s);
	vt_elapse(&t);
	vt_expect_eof(&t, s);
	close(s);
}

static void a_refused_client_gets_end_of_file_and_no_ok(void **state)
{
	int s = vt_client(&t, "CONNECT 99\n");

	(void)state;
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 99, 1u << 30);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, 99, 1u << 30);
	vt_expect_eof(&t, s);
	vt_expect_nothing(&t);
	close(s);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void a_guest_that_never_answers_ends_the_attempt(void **state)
{
	int s = vt_client(&t, "CONNECT 99\n");

	(void)state;
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 99, 1u << 30);
	vt_elapse(&t);
	vt_expect_eof(&t, s);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 99, 1u << 30);
	close(s);
}

static void a_client_that_leaves_early_is_reset(void **state)
{
	int s = vt_client(&t, "CONNECT 99\n");

	(void)state;
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 99, 1u << 30);
	close(s);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 99, 1u << 30);
	/* The guest's answer crosses it. */
	vt_send(&t, VIRTIO_VSOCK_OP_RESPONSE, 99, 1u << 30);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 99, 1u << 30);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void the_guest_connects_to_a_listener(void **state)
{
	int l = vt_listen(80, 5), s;

	(void)state;
	s = vt_connect_to_host(&t, l, 1025, 80);
	vt_expect_open(&t, s);
	close(s);
	close(l);
}

static void a_port_nobody_listens_on_is_refused_at_once(void **state)
{
	(void)state;
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1025, 81);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1025, 81);
	/* A socket left behind by a listener that is gone. */
	close(vt_listen(82, 5));
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1025, 82);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1025, 82);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void the_largest_port_has_a_name_too(void **state)
{
	int l = vt_listen(UINT32_MAX - 1, 5), s;

	(void)state;
	s = vt_connect_to_host(&t, l, UINT32_MAX - 1, UINT32_MAX - 1);
	close(s);
	close(l);
}

static void a_full_backlog_is_waited_for(void **state)
{
	int l = vt_listen(80, 0), s;

	(void)state;
	/* A backlog of 0 holds one. */
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1001, 80);
	vt_expect(&t, VIRTIO_VSOCK_OP_RESPONSE, 1001, 80);
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1002, 80);
	vt_expect_nothing(&t);
	vt_elapse(&t);
	vt_expect_nothing(&t);
	s = accept(l, NULL, NULL);
	assert_true(s >= 0);
	close(s);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 1001, 80);
	vt_elapse(&t);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1001, 80);
	vt_expect(&t, VIRTIO_VSOCK_OP_RESPONSE, 1002, 80);
	close(l);
}

static void a_backlog_that_stays_full_ends_in_a_reset(void **state)
{
	int l = vt_listen(80, 0);

	(void)state;
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1001, 80);
	vt_expect(&t, VIRTIO_VSOCK_OP_RESPONSE, 1001, 80);
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1002, 80);
	for (int i = 0; i <= VSOCK_DIAL_RETRIES + 1; i++)
		vt_elapse(&t);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1002, 80);
	close(l);
}

static void bytes_from_the_guest_arrive(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 511, 4096, 4097, 8000 };
	static uint8_t data[8000];
	int l = vt_listen(80, 5), s = vt_connect_to_host(&t, l, 1025, 80);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		vt_pattern(data, sizes[i], i, 0);
		vt_send_data(&t, 1025, 80, data, sizes[i], 65536, 0);
		vt_expect_bytes(&t, s, data, sizes[i]);
	}
	close(s);
	close(l);
}

static void a_payload_in_many_pieces_arrives(void **state)
{
	struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_RW, 1025, 80, 3000);
	struct driver_buf b[200];
	uint8_t data[3000];
	int l = vt_listen(80, 5), s = vt_connect_to_host(&t, l, 1025, 80);

	(void)state;
	vt_pattern(data, sizeof(data), 3, 0);
	/* The header cut in two, its end together with the first bytes; then odd pieces, and a tail that is not payload. */
	machine_poke(&t.m, t.tx_base, &h, VT_HEADER);
	machine_poke(&t.m, t.tx_base + VT_HEADER, data, sizeof(data));
	b[0] = (struct driver_buf){ t.tx_base, 20, false };
	b[1] = (struct driver_buf){ t.tx_base + 20, 30, false };
	uint64_t at = t.tx_base + 50, end = t.tx_base + VT_HEADER + sizeof(data) + 100;
	uint16_t n = 2;

	while (at < end && n < ARRAY_SIZE(b)) {
		uint32_t len = (uint32_t)MIN((uint64_t)(1 + (n * 7) % 97), end - at);

		b[n++] = (struct driver_buf){ at, len, false };
		at += len;
	}
	driver_add_indirect(&t.d, VSOCK_Q_TX, b, n);
	driver_kick(&t.d, VSOCK_Q_TX);
	vt_expect_bytes(&t, s, data, sizeof(data));
	vt_expect_open(&t, s);
	close(s);
	close(l);
}

static void bytes_from_the_host_arrive(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 511, 4052, 4053, 30000 };
	static uint8_t data[30000], got[30000];
	uint32_t port;
	int s = vt_connect_to_guest(&t, 9, &port);
	uint32_t total = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint32_t n = 0;

		vt_pattern(data, sizes[i], i, 0);
		assert_int_equal(send(s, data, sizes[i], 0), sizes[i]);
		while (n < sizes[i]) {
			struct vsock_packet p = vt_expect(&t, VIRTIO_VSOCK_OP_RW, 9, port);

			assert_true(p.len > 0 && n + p.len <= sizes[i]);
			machine_peek(&t.m, p.payload, got + n, p.len);
			n += p.len;
		}
		assert_memory_equal(got, data, sizes[i]);
		vt_expect_nothing(&t);
		total += n;
		vt_send_credit(&t, 9, port, 262144, total);
	}
	close(s);
}

static void receive_buffers_of_two_descriptors_are_filled(void **state)
{
	struct driver_buf b[] = { { 0, VT_HEADER, true }, { 0, 1000, true } };
	uint32_t head, used;
	uint8_t data[1500], got[1000];
	int s;

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, 0);
	uint64_t at = driver_alloc(&t.d, 8 * 2048, 4096);

	for (int i = 0; i < 8; i++) {
		b[0].gpa = at + (uint64_t)i * 2048;
		b[1].gpa = b[0].gpa + 500;
		driver_add(&t.d, VSOCK_Q_RX, b, 2);
	}
	driver_kick(&t.d, VSOCK_Q_RX);
	s = vt_client(&t, "CONNECT 9\n");
	assert_true(driver_used(&t.d, VSOCK_Q_RX, &head, &used));
	vt_send(&t, VIRTIO_VSOCK_OP_RESPONSE, 9, 1u << 30);
	vt_pattern(data, sizeof(data), 1, 0);
	assert_int_equal(send(s, data, sizeof(data), 0), sizeof(data));
	machine_settle(&t.m);
	assert_true(driver_used(&t.d, VSOCK_Q_RX, &head, &used));
	assert_int_equal(used, VT_HEADER + 1000);
	machine_peek(&t.m, at + (uint64_t)head / 2 * 2048 + 500, got, 1000);
	assert_memory_equal(got, data, 1000);
	assert_true(driver_used(&t.d, VSOCK_Q_RX, &head, &used));
	assert_int_equal(used, VT_HEADER + 500);
	machine_peek(&t.m, at + (uint64_t)head / 2 * 2048 + 500, got, 500);
	assert_memory_equal(got, data + 1000, 500);
	close(s);
}

static void descriptors_sent_along_are_not_kept(void **state)
{
	uint32_t port;
	int s = vt_connect_to_guest(&t, 9, &port), before = dup(0), after;
	int fds[2] = { 0, 1 };

	(void)state;
	close(before);
	for (int i = 0; i < 4; i++)
		assert_int_equal(fd_send(s, "x", 1, fds, 2), 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 9, port).len, 1);
	after = dup(0);
	close(after);
	assert_int_equal(after, before);
	close(s);
}

static void without_a_path_everything_is_refused(void **state)
{
	(void)state;
	vt_teardown(&t);
	vt_setup(&t, "cid=3", 64);
	close(vt_listen(80, 5));
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 1025, 80);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1025, 80);
}

static void names_that_would_leave_the_directory_are_refused(void **state)
{
	static const char *const names[] = { "path=/tmp/x.sock", "path=../x.sock", "path=a/b", "path=." };
	struct device *d;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct err err = ERR_INIT;

		assert_true(machine_try_add(&t.m, &virtio_vsock_device, names[i], &d, &err) < 0);
		assert_non_null(strstr(err.text, "vsock1: "));
	}
}

static void a_file_in_the_place_of_the_socket_is_kept(void **state)
{
	struct err err = ERR_INIT;
	struct device *d;
	int fd = open("other.sock", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	(void)state;
	close(fd);
	assert_int_equal(machine_try_add(&t.m, &virtio_vsock_device, "path=other.sock", &d, &err), -EEXIST);
	assert_non_null(strstr(err.text, "'other.sock' is there already and is no socket"));
	assert_int_equal(access("other.sock", F_OK), 0);
}

static void a_socket_left_behind_is_replaced(void **state)
{
	struct sockaddr_un sa = vt_address("left.sock");
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err err = ERR_INIT;
	struct device *d;

	(void)state;
	assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(s);
	assert_int_equal(machine_try_add(&t.m, &virtio_vsock_device, "path=left.sock,cid=7", &d, &err), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_device_tells_the_cid),
		TEST(a_client_connects_to_a_guest_port),
		TEST(each_client_gets_a_host_port_of_its_own),
		TEST(a_line_in_pieces_is_put_together),
		TEST(data_behind_the_line_waits_for_the_connection),
		TEST(other_lines_are_refused_at_once),
		TEST(a_silent_client_is_dropped_after_a_while),
		TEST(a_refused_client_gets_end_of_file_and_no_ok),
		TEST(a_guest_that_never_answers_ends_the_attempt),
		TEST(a_client_that_leaves_early_is_reset),
		TEST(the_guest_connects_to_a_listener),
		TEST(a_port_nobody_listens_on_is_refused_at_once),
		TEST(the_largest_port_has_a_name_too),
		TEST(a_full_backlog_is_waited_for),
		TEST(a_backlog_that_stays_full_ends_in_a_reset),
		TEST(bytes_from_the_guest_arrive),
		TEST(a_payload_in_many_pieces_arrives),
		TEST(bytes_from_the_host_arrive),
		TEST(receive_buffers_of_two_descriptors_are_filled),
		TEST(descriptors_sent_along_are_not_kept),
		TEST(without_a_path_everything_is_refused),
		TEST(names_that_would_leave_the_directory_are_refused),
		TEST(a_file_in_the_place_of_the_socket_is_kept),
		TEST(a_socket_left_behind_is_replaced),
	};

	return cmocka_run_group_tests_name("virtio_vsock", tests, NULL, NULL);
}
