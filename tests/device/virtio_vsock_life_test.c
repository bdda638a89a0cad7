/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-vsock through reset, pause, save and restore. */
#include "tests/device/vsock_driver.h"

static struct vsock_test t;
static int listener;

enum { H = 80, G = 1025 };

static int setup(void **state)
{
	(void)state;
	vt_setup(&t, NULL, 128);
	listener = vt_listen(H, 64);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(listener);
	vt_teardown(&t);
	return 0;
}

static void a_reset_closes_every_connection(void **state)
{
	int s = vt_connect_to_host(&t, listener, G, H);
	int c = vt_client(&t, "CONNECT 7\n");

	(void)state;
	driver_set_reg(&t.d, MMIO_STATUS, 0);
	vt_expect_eof(&t, s);
	vt_expect_eof(&t, c);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
	close(s);
	close(c);
	vt_start_driver(&t, 0, 64);
	s = vt_connect_to_host(&t, listener, G, H);
	close(s);
}

static void a_client_before_the_driver_waits_for_it(void **state)
{
	int s;

	(void)state;
	driver_set_reg(&t.d, MMIO_STATUS, 0);
	s = vt_client(&t, "CONNECT 7\n");
	vt_expect_open(&t, s);
	vt_start_driver(&t, 0, 64);
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 7, 1u << 30);
	close(s);
}

static void a_pause_keeps_connections_and_moves_nothing(void **state)
{
	int s = vt_connect_to_host(&t, listener, G, H);

	(void)state;
	assert_int_equal(device_quiesce(t.dev), 0);
	assert_int_equal(send(s, "hello", 5, 0), 5);
	vt_expect_nothing(&t);
	vt_send_data(&t, G, H, "world", 5, 65536, 0);
	vt_expect_open(&t, s);
	device_resume(t.dev);
	vt_expect_bytes(&t, s, "world", 5);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, G, H).len, 5);
	close(s);
}

static void deadlines_do_not_pass_in_a_pause(void **state)
{
	int s = vt_client(&t, "CONNECT 7\n");
	struct vsock_conn *c;
	uint64_t left;

	(void)state;
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 7, 1u << 30);
	c = vsock_conn_find(vt_vsock(&t), 7, 1u << 30);
	left = c->deadline - loop_now_ns();
	assert_int_equal(device_quiesce(t.dev), 0);
	vt_vsock(&t)->host.paused_at -= 3600 * 1000 * VSOCK_MS; /* an hour */
	c->deadline -= 3600 * 1000 * VSOCK_MS;
	device_resume(t.dev);
	assert_true(c->deadline > loop_now_ns() + left / 2);
	vt_expect_open(&t, s);
	close(s);
}

static uint8_t blob[4096];
static long blob_len;

/* Save, and go on in another device on the same guest memory: what a restore does. */
static void restore(const char *options)
{
	struct err err = ERR_INIT;
	struct device *old = t.dev;

	assert_int_equal(device_quiesce(old), 0);
	blob_len = device_save(old, blob, sizeof(blob));
	assert_true(blob_len > 0);
	/* The monitor that saved is gone: its sockets with it. */
	t.m.ndev--;
	device_destroy(old);
	memset(&t.m.vm.bus, 0, sizeof(t.m.vm.bus));
	t.dev = t.d.dev = machine_add(&t.m, "vsock", options);
	assert_int_equal(device_load(t.dev, blob, (size_t)blob_len, &err), 0);
	t.dev->ops->restored(t.dev);
	device_resume(t.dev);
}

/* The guest handles its event: checks the id, gives the buffer back. */
static void handle_event(void)
{
	uint32_t head, used, id;

	machine_settle(&t.m);
	assert_true(driver_used(&t.d, VSOCK_Q_EVENT, &head, &used));
	assert_int_equal(used, 4);
	uint64_t desc = t.d.q[VSOCK_Q_EVENT].desc + 16ull * head, gpa;

	machine_peek(&t.m, desc, &gpa, 8);
	id = machine_peek32(&t.m, gpa);
	assert_int_equal(id, VIRTIO_VSOCK_EVENT_TRANSPORT_RESET);
	driver_publish(&t.d, VSOCK_Q_EVENT, (uint16_t)head);
	driver_kick(&t.d, VSOCK_Q_EVENT);
}

static void wait_for_the_gate(void)
{
	for (int i = 0; i < 120 && vt_vsock(&t)->host.gated; i++)
		loop_step(&t.m.vm.loop, 1000);
	assert_false(vt_vsock(&t)->host.gated);
	machine_settle(&t.m);
}

static void a_restored_guest_is_told_that_its_connections_are_gone(void **state)
{
	int s = vt_connect_to_host(&t, listener, G, H);

	(void)state;
	restore("path=vsock.sock");
	vt_expect_eof(&t, s);
	close(s);
	handle_event();
	wait_for_the_gate();
	/* What the guest says of the old connection is answered by a reset. */
	vt_send_data(&t, G, H, "old", 3, 65536, 0);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, G, H);
	s = vt_connect_to_host(&t, listener, G, H);
	close(s);
}

static void fifty_connections_right_after_a_restore(void **state)
{
	int s[50], l[50];
	struct vsock_packet p;

	(void)state;
	restore("path=vsock.sock");
	for (int i = 0; i < 50; i++)
		s[i] = vt_client(&t, "CONNECT 7\n");
	for (uint32_t i = 0; i < 50; i++) {
		struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_REQUEST, 100 + i, H, 0);

		h.src_cid = le64_make(VT_CID);
		/* The queue is not served yet: every packet needs memory of its own. */
		struct driver_buf b = { driver_alloc(&t.d, VT_HEADER, 4), VT_HEADER, false };

		machine_poke(&t.m, b.gpa, &h, sizeof(h));
		driver_add(&t.d, VSOCK_Q_TX, &b, 1);
	}
	driver_kick(&t.d, VSOCK_Q_TX);
	/* A guest that handled these first would drop them again at the event. */
	vt_expect_nothing(&t);
	handle_event();
	wait_for_the_gate();
	for (int i = 0, requests = 0, responses = 0; i < 100; i++) {
		assert_true(vt_next(&t, &p));
		if (le16_get(p.h.op) == VIRTIO_VSOCK_OP_REQUEST) {
			vt_send(&t, VIRTIO_VSOCK_OP_RESPONSE, 7, le32_get(p.h.src_port));
			requests++;
		} else {
			assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_RESPONSE);
			l[responses++] = accept(listener, NULL, NULL);
		}
		vt_give_back(&t, &p);
		assert_true(requests <= 50 && responses <= 50);
	}
	for (int i = 0; i < 50; i++) {
		char ok[3];

		assert_int_equal(vt_recv(&t, s[i], ok, 3), 3);
		assert_memory_equal(ok, "OK ", 3);
		assert_true(l[i] >= 0);
		close(s[i]);
		close(l[i]);
	}
}

static void a_guest_that_takes_no_events_is_waited_for_only_so_long(void **state)
{
	(void)state;
	restore("path=vsock.sock");
	vt_elapse(&t); /* never gives the buffer back */
	assert_false(vt_vsock(&t)->host.gated);
	close(vt_connect_to_host(&t, listener, G, H));
}

static void an_event_without_a_buffer_is_owed(void **state)
{
	(void)state;
	/* A guest with no event buffers at all. */
	driver_set_reg(&t.d, MMIO_STATUS, 0);
	driver_start(&t.d, VIRTIO_F_EVENT_IDX, 0);
	t.rx_base = driver_alloc(&t.d, (uint64_t)VSOCK_QUEUE_SIZE * VT_RX_BUFFER, VT_PAGE);
	t.tx_base = driver_alloc(&t.d, MIB(1), VT_PAGE);
	vt_post(&t, 64);
	restore("path=vsock.sock");
	assert_false(driver_used(&t.d, VSOCK_Q_EVENT, NULL, NULL));
	/* Saved again before it could be told. */
	restore("path=vsock.sock");
	vt_post_event_buffers(&t, 2);
	handle_event();
	wait_for_the_gate();
	assert_int_equal(vt_vsock(&t)->state.event_owed, 0);
	close(vt_connect_to_host(&t, listener, G, H));
}

static void a_clone_can_have_a_cid_of_its_own(void **state)
{
	(void)state;
	restore("path=vsock.sock,cid=99");
	handle_event();
	wait_for_the_gate();
	assert_int_equal(driver_config(&t.d, 0, 8), 99);
}

static void host_ports_go_on_after_a_restore(void **state)
{
	uint32_t before, after;
	int s = vt_connect_to_guest(&t, 7, &before);

	(void)state;
	close(s);
	restore("path=vsock.sock");
	handle_event();
	wait_for_the_gate();
	s = vt_connect_to_guest(&t, 7, &after);
	assert_int_equal(after, before + 1);
	close(s);
}

static void a_guest_without_a_driver_is_owed_nothing(void **state)
{
	(void)state;
	driver_set_reg(&t.d, MMIO_STATUS, 0);
	restore("path=vsock.sock");
	assert_int_equal(vt_vsock(&t)->state.event_owed, 0);
	assert_false(vt_vsock(&t)->host.gated);
	vt_start_driver(&t, 0, 64);
	close(vt_connect_to_host(&t, listener, G, H));
}

static void impossible_states_are_refused(void **state)
{
	static const struct { struct virtio_vsock_state s; const char *text; } cases[] = {
		{ { 2, 1u << 30, 0 }, "CID 2 is reserved" },
		{ { UINT32_MAX, 1u << 30, 0 }, "CID 4294967295 is reserved" },
		{ { 1ull << 32, 1u << 30, 0 }, "is reserved" },
		{ { 3, 5, 0 }, "host port 5" },
		{ { 3, 1u << 31, 0 }, "host port 2147483648" },
		{ { 3, 1u << 30, 2 }, "event_owed 2" },
	};

	(void)state;
	assert_int_equal(device_quiesce(t.dev), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_INIT;

		vt_vsock(&t)->state = cases[i].s;
		blob_len = device_save(t.dev, blob, sizeof(blob));
		assert_true(device_load(t.dev, blob, (size_t)blob_len, &err) < 0);
		if (!strstr(err.text, cases[i].text))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_reset_closes_every_connection),
		TEST(a_client_before_the_driver_waits_for_it),
		TEST(a_pause_keeps_connections_and_moves_nothing),
		TEST(deadlines_do_not_pass_in_a_pause),
		TEST(a_restored_guest_is_told_that_its_connections_are_gone),
		TEST(fifty_connections_right_after_a_restore),
		TEST(a_guest_that_takes_no_events_is_waited_for_only_so_long),
		TEST(an_event_without_a_buffer_is_owed),
		TEST(a_clone_can_have_a_cid_of_its_own),
		TEST(host_ports_go_on_after_a_restore),
		TEST(a_guest_without_a_driver_is_owed_nothing),
		TEST(impossible_states_are_refused),
	};

	return cmocka_run_group_tests_name("virtio_vsock_life", tests, NULL, NULL);
}
