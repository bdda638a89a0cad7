/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-vsock: thousands of connections, and the limits on them. */
#include "tests/device/vsock_driver.h"

#include <sys/resource.h>

static struct vsock_test t;
static int listener;
static int peer[VSOCK_MAX_CONNS];

enum { H = 80 };

/* Both ends of every connection are in this process. */
static uint32_t how_many(void)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = MIN(l.rlim_max, (rlim_t)(2 * VSOCK_MAX_CONNS + 1000));
	setrlimit(RLIMIT_NOFILE, &l);
	return (uint32_t)MIN((l.rlim_cur - 500) / 2, (rlim_t)VSOCK_MAX_CONNS);
}

static int setup(void **state)
{
	uint32_t n = how_many();

	(void)state;
	if (n < VSOCK_MAX_CONNS)
		print_message("only %u connections: raise the limit on open files to %d\n", n, 2 * VSOCK_MAX_CONNS + 1000);
	vt_setup(&t, NULL, 128);
	vt_vsock(&t)->host.max_conns = n;
	listener = vt_listen(H, 4096);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(listener);
	vt_teardown(&t);
	return 0;
}

static void thousands_of_guest_connections_each_with_its_own_bytes(void **state)
{
	uint32_t n = how_many();
	struct vsock_packet p;

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < n; i++)
			peer[i] = vt_connect_to_host(&t, listener, 1000 + i, H);
		assert_int_equal(vt_vsock(&t)->host.nconns, n);
		/* One more is refused at once; its neighbours stay. */
		vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 999, H);
		vt_expect(&t, VIRTIO_VSOCK_OP_RST, 999, H);
		for (uint32_t i = 0; i < n; i++) {
			char text[32];
			int len = snprintf(text, sizeof(text), "message %u of %d", i, round);

			vt_send_data(&t, 1000 + i, H, text, (uint32_t)len, 65536, 0);
			vt_expect_bytes(&t, peer[i], text, (size_t)len);
			assert_int_equal(send(peer[i], text, (size_t)len, 0), len);
			assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1000 + i, H).len, len);
		}
		for (uint32_t i = 0; i < n; i++) {
			if (i % 2) {
				close(peer[i]);
				vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 1000 + i, H);
				vt_send(&t, VIRTIO_VSOCK_OP_RST, 1000 + i, H);
			} else {
				vt_send_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 1000 + i, H);
				vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1000 + i, H);
				close(peer[i]);
			}
		}
		assert_false(vt_next(&t, &p));
		assert_int_equal(vt_vsock(&t)->host.nconns, 0);
	}
}

static void thousands_of_clients(void **state)
{
	uint32_t n = how_many() / 2;

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t port;

		peer[i] = vt_connect_to_guest(&t, 7, &port);
		assert_int_equal(port, (1u << 30) + i);
	}
	assert_int_equal(vt_vsock(&t)->host.nconns, n);
	/* All leave at once, without a word. */
	for (uint32_t i = 0; i < n; i++)
		close(peer[i]);
	for (uint32_t i = 0; i < n; i++) {
		struct vsock_packet p;

		assert_true(vt_next(&t, &p));
		assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_SHUTDOWN);
		vt_give_back(&t, &p);
		vt_send(&t, VIRTIO_VSOCK_OP_RST, 7, le32_get(p.h.src_port));
	}
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
}

static void a_full_table_turns_clients_away_at_once(void **state)
{
	uint32_t port;
	int a, b, c;

	(void)state;
	vt_vsock(&t)->host.max_conns = 1;
	a = vt_connect_to_guest(&t, 7, &port);
	b = vt_client(&t, "");
	vt_expect_eof(&t, b);
	close(a);
	vt_expect_shutdown(&t, VIRTIO_VSOCK_SHUTDOWN_BOTH, 7, port);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, 7, port);
	c = vt_connect_to_guest(&t, 7, &port);
	close(b);
	close(c);
}

static void clients_wait_while_there_are_no_descriptors(void **state)
{
	struct rlimit old, none;
	uint32_t port;
	int a = vt_connect_to_guest(&t, 7, &port), b, spare;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &old);
	b = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	spare = dup(0);
	none = (struct rlimit){ (rlim_t)spare, old.rlim_max };
	close(spare);
	setrlimit(RLIMIT_NOFILE, &none);
	struct sockaddr_un sa = vt_address("vsock.sock");

	assert_int_equal(connect(b, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(send(b, "CONNECT 8\n", 10, 0), 10);
	machine_settle(&t.m); /* returns: the loop does not spin on the listener */
	assert_true(vt_vsock(&t)->host.out_of_fds);
	vt_expect_nothing(&t);
	/* A guest's request fails for the same reason. */
	vt_send(&t, VIRTIO_VSOCK_OP_REQUEST, 500, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 500, H);
	vt_send(&t, VIRTIO_VSOCK_OP_RST, 7, port);
	vt_expect(&t, VIRTIO_VSOCK_OP_REQUEST, 8, port + 1);
	setrlimit(RLIMIT_NOFILE, &old);
	close(a);
	close(b);
}

static void large_windows_are_few_and_come_back(void **state)
{
	static uint8_t data[VSOCK_LARGE_AFTER + 1];
	struct vsock_packet p;
	uint32_t n = MIN(how_many(), (uint32_t)VSOCK_MAX_LARGE + 10);

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		peer[i] = vt_connect_to_host(&t, listener, 1000 + i, H);
		vt_send_data(&t, 1000 + i, H, data, sizeof(data), 65536, 0);
		while (vt_next(&t, &p))
			vt_give_back(&t, &p);
	}
	assert_int_equal(vt_vsock(&t)->host.nlarge, MIN(n, (uint32_t)VSOCK_MAX_LARGE));
	assert_int_equal(vsock_conn_find(vt_vsock(&t), 1000 + n - 1, H)->alloc, VSOCK_WINDOW);
	/* One with a small window goes on all the same. */
	vt_send_data(&t, 1000 + n - 1, H, data, 4000, 65536, 0);
	for (uint32_t i = 0; i < n; i++) {
		vt_send(&t, VIRTIO_VSOCK_OP_RST, 1000 + i, H);
		close(peer[i]);
	}
	assert_int_equal(vt_vsock(&t)->host.nlarge, 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(thousands_of_guest_connections_each_with_its_own_bytes),
		TEST(thousands_of_clients),
		TEST(a_full_table_turns_clients_away_at_once),
		TEST(clients_wait_while_there_are_no_descriptors),
		TEST(large_windows_are_few_and_come_back),
	};

	return cmocka_run_group_tests_name("virtio_vsock_many", tests, NULL, NULL);
}
