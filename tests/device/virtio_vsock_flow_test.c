/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-vsock: credit to the byte, bulk data, and peers that do not keep up. */
#include <nettle/sha2.h>

#include "tests/device/vsock_driver.h"

static struct vsock_test t;
static int listener;

enum { H = 80, BULK = 10 << 20 };

static int setup(void **state)
{
	(void)state;
	vt_setup(&t, NULL, 64);
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

/* One connection with both its ends and what each knows. */
struct flow {
	uint32_t guest_port;
	int peer;
	bool silent;                /* the guest never says what it consumed */
	uint32_t sent, alloc, fwd;  /* guest to host, and the device's word on it */
	uint32_t received, told;    /* host to guest; told: what the guest said it consumed */
	uint32_t host_sent, host_received;
	struct sha256_ctx want_h, got_h, want_g, got_g; /* towards the host, towards the guest */
};

static void flow_open(struct flow *f, uint32_t guest_port)
{
	*f = (struct flow){ .guest_port = guest_port, .alloc = VSOCK_WINDOW };
	f->peer = vt_connect_to_host(&t, listener, guest_port, H);
	sha256_init(&f->want_h);
	sha256_init(&f->got_h);
	sha256_init(&f->want_g);
	sha256_init(&f->got_g);
}

/* Take the guest's packets for the flows; data is hashed and acknowledged. */
static uint32_t take_packets(struct flow *f, uint32_t nflows, uint32_t buf_alloc)
{
	static uint8_t data[VT_RX_BUFFER];
	struct vsock_packet p;
	uint32_t n = 0;

	while (vt_next(&t, &p)) {
		struct flow *to = NULL;

		for (uint32_t i = 0; i < nflows; i++)
			if (f[i].guest_port == le32_get(p.h.dst_port))
				to = &f[i];
		assert_non_null(to);
		to->alloc = le32_get(p.h.buf_alloc);
		to->fwd = le32_get(p.h.fwd_cnt);
		if (le16_get(p.h.op) == VIRTIO_VSOCK_OP_RW) {
			machine_peek(&t.m, p.payload, data, p.len);
			sha256_update(&to->got_g, p.len, data);
			to->received += p.len;
			/* What is under way never exceeds what the guest allowed. */
			assert_true(to->silent || to->received - to->told <= buf_alloc);
		} else {
			assert_true(le16_get(p.h.op) == VIRTIO_VSOCK_OP_CREDIT_UPDATE || le16_get(p.h.op) == VIRTIO_VSOCK_OP_CREDIT_REQUEST);
		}
		vt_give_back(&t, &p);
		n++;
		if (!to->silent && (to->received - to->told >= buf_alloc / 2 || le16_get(p.h.op) == VIRTIO_VSOCK_OP_CREDIT_REQUEST)) {
			to->told = to->received;
			vt_send_credit(&t, to->guest_port, H, buf_alloc, to->told);
		}
	}
	return n;
}

/* Send a piece from the guest if credit allows: bytes sent. */
static uint32_t guest_sends(struct flow *f, uint32_t max)
{
	static uint8_t data[65536];
	uint32_t n = MIN(MIN(max, f->alloc - (f->sent - f->fwd)), (uint32_t)sizeof(data));

	if (n == 0)
		return 0;
	vt_pattern(data, n, f->guest_port, f->sent);
	sha256_update(&f->want_h, n, data);
	vt_send_data(&t, f->guest_port, H, data, n, 262144, f->told);
	f->sent += n;
	return n;
}

static uint32_t host_receives(struct flow *f)
{
	static uint8_t data[65536];
	uint32_t total = 0;
	ssize_t n;

	while ((n = vt_recv(&t, f->peer, data, sizeof(data))) > 0) {
		sha256_update(&f->got_h, (size_t)n, data);
		total += (uint32_t)n;
	}
	f->host_received += total;
	return total;
}

static uint32_t host_sends(struct flow *f, uint32_t max)
{
	static uint8_t data[65536];
	uint32_t n = MIN(max, (uint32_t)sizeof(data));
	ssize_t r;

	vt_pattern(data, n, ~f->guest_port, f->host_sent);
	r = n ? send(f->peer, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
	if (r <= 0)
		return 0;
	sha256_update(&f->want_g, (size_t)r, data);
	f->host_sent += (uint32_t)r;
	return (uint32_t)r;
}

static void assert_same(struct sha256_ctx *a, struct sha256_ctx *b)
{
	uint8_t x[SHA256_DIGEST_SIZE], y[SHA256_DIGEST_SIZE];

	sha256_digest(a, sizeof(x), x);
	sha256_digest(b, sizeof(y), y);
	assert_memory_equal(x, y, sizeof(x));
}

static void the_host_sends_exactly_what_the_guest_allows(void **state)
{
	struct flow f;
	struct vsock_packet p;

	(void)state;
	flow_open(&f, 1025);
	vt_send_credit(&t, 1025, H, 1000, 0);
	assert_int_equal(host_sends(&f, 5000), 5000);
	p = vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H);
	assert_int_equal(p.len, 1000);
	vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
	vt_expect_nothing(&t);
	vt_send_credit(&t, 1025, H, 1000, 1);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H).len, 1);
	vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
	vt_send_credit(&t, 1025, H, 3000, 1001);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H).len, 3000);
	vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
	close(f.peer);
}

static void a_lost_credit_update_is_asked_for_again(void **state)
{
	struct flow f;

	(void)state;
	flow_open(&f, 1025);
	vt_send_credit(&t, 1025, H, 100, 0);
	assert_int_equal(host_sends(&f, 200), 200);
	vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H);
	vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
	for (int i = 0; i < 10; i++) {
		vt_elapse(&t);
		vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
		vt_expect_nothing(&t);
	}
	vt_send_credit(&t, 1025, H, 100, 100);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H).len, 100);
	close(f.peer);
}

static void a_guest_that_takes_credit_back_gets_nothing_more(void **state)
{
	struct flow f;

	(void)state;
	flow_open(&f, 1025);
	vt_send_credit(&t, 1025, H, 1000, 0);
	assert_int_equal(host_sends(&f, 600), 600);
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H).len, 600);
	vt_send_credit(&t, 1025, H, 100, 0);           /* 600 are under way */
	assert_int_equal(host_sends(&f, 600), 600);
	vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
	vt_send_credit(&t, 1025, H, 100, 5000);        /* more consumed than was ever sent */
	vt_expect_nothing(&t);
	vt_send_credit(&t, 1025, H, UINT32_MAX, 600);  /* everything */
	assert_int_equal(vt_expect(&t, VIRTIO_VSOCK_OP_RW, 1025, H).len, 600);
	close(f.peer);
}

static void a_request_for_credit_is_answered(void **state)
{
	struct flow f;
	struct vsock_packet p;

	(void)state;
	flow_open(&f, 1025);
	guest_sends(&f, 100);
	vt_send(&t, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 1025, H);
	p = vt_expect(&t, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 1025, H);
	assert_int_equal(le32_get(p.h.fwd_cnt), 100);
	assert_int_equal(le32_get(p.h.buf_alloc), VSOCK_WINDOW);
	close(f.peer);
}

/* Send until the device says stop: the socket's buffer is full, then the window behind it. */
static void guest_fills(struct flow *f)
{
	do
		take_packets(f, 1, 262144);
	while (guest_sends(f, 4096));
}

static void the_guest_may_send_exactly_its_window(void **state)
{
	struct flow f;

	(void)state;
	flow_open(&f, 1025);
	guest_fills(&f);
	assert_int_equal(f.alloc, VSOCK_WINDOW_LARGE);
	assert_int_equal(f.sent - f.fwd, f.alloc);
	vt_expect_nothing(&t);
	while (host_receives(&f))
		take_packets(&f, 1, 262144);
	assert_int_equal(f.host_received, f.sent);
	assert_same(&f.want_h, &f.got_h);
	assert_int_equal(vt_vsock(&t)->host.pool.used, 0);
	close(f.peer);
}

static void data_beyond_the_window_ends_the_connection(void **state)
{
	struct flow f;

	(void)state;
	flow_open(&f, 1025);
	guest_fills(&f);
	vt_send_data(&t, 1025, H, "x", 1, 65536, 0);
	vt_expect(&t, VIRTIO_VSOCK_OP_RST, 1025, H);
	assert_int_equal(vt_vsock(&t)->host.pool.used, 0);
	assert_int_equal(vt_vsock(&t)->host.nconns, 0);
	close(f.peer);
}

static void a_guest_without_credit_hears_of_more_as_soon_as_there_is(void **state)
{
	struct flow f;
	static uint8_t data[300000];
	uint32_t total = 0;

	(void)state;
	flow_open(&f, 1025);
	guest_fills(&f);
	/* However little the host takes at a time, the guest can always go on in the end. */
	for (int i = 0; i < 200; i++) {
		ssize_t n = vt_recv(&t, f.peer, data, 3000);

		assert_true(n > 0);
		sha256_update(&f.got_h, (size_t)n, data);
		total += (uint32_t)n;
		take_packets(&f, 1, 262144);
		guest_sends(&f, 3000);
	}
	assert_true(f.sent > 600000 - 10000);
	f.host_received = total;
	while (host_receives(&f))
		take_packets(&f, 1, 262144);
	assert_int_equal(f.host_received, f.sent);
	assert_same(&f.want_h, &f.got_h);
	close(f.peer);
}

static void bulk_data_goes_both_ways_intact(void **state)
{
	struct flow f;

	(void)state;
	flow_open(&f, 1025);
	while (f.sent < BULK || f.host_sent < BULK || f.received < BULK || f.host_received < BULK) {
		uint32_t did = guest_sends(&f, BULK - f.sent) + host_sends(&f, BULK - f.host_sent);

		did += take_packets(&f, 1, 100000);
		did += host_receives(&f);
		assert_true(did); /* otherwise nothing would ever move again */
	}
	assert_same(&f.want_h, &f.got_h);
	assert_same(&f.want_g, &f.got_g);
	close(f.peer);
}

static void peers_that_never_read_stall_nobody(void **state)
{
	static struct flow f[9];

	(void)state;
	/* Eight peers take nothing; neither does the guest take anything of four of them. */
	for (uint32_t i = 0; i < 8; i++) {
		flow_open(&f[i], 2000 + i);
		guest_fills(&f[i]);
		if (i >= 4)
			continue;
		f[i].silent = true;
		vt_send_credit(&t, f[i].guest_port, H, 1, f[i].received);
		host_sends(&f[i], 65536);
		take_packets(f, i + 1, 262144);
	}
	flow_open(&f[8], 1025);
	struct flow *g = &f[8];

	while (g->sent < BULK || g->host_sent < BULK || g->received < BULK || g->host_received < BULK) {
		uint32_t did = guest_sends(g, BULK - g->sent) + host_sends(g, BULK - g->host_sent);

		did += take_packets(f, 9, 100000);
		did += host_receives(g);
		assert_true(did);
	}
	assert_same(&g->want_h, &g->got_h);
	assert_same(&g->want_g, &g->got_g);
	for (uint32_t i = 0; i < 8; i++) {
		assert_true(f[i].sent > VSOCK_WINDOW_LARGE);
		close(f[i].peer);
	}
	close(g->peer);
}

static void connections_take_turns(void **state)
{
	struct flow f[3];
	uint32_t seen[3] = { 0 }, head, used;

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, VSOCK_RX_BATCH);
	close(listener);
	listener = vt_listen(H, 16);
	for (uint32_t i = 0; i < 3; i++) {
		flow_open(&f[i], 100 + i);
		vt_send_credit(&t, 100 + i, H, 8 << 20, 0);
	}
	/* As long as all three have data, none gets two batches before the others had one. */
	for (int batch = 0; batch < 9; batch++) {
		uint32_t port = 0;

		for (uint32_t i = 0; i < 3; i++)
			while (host_sends(&f[i], 65536))
				;
		machine_settle(&t.m);
		for (uint16_t i = 0; i < VSOCK_RX_BATCH; i++) {
			struct virtio_vsock_header h;

			assert_true(driver_used(&t.d, VSOCK_Q_RX, &head, &used));
			machine_peek(&t.m, t.rx_base + (uint64_t)head * VT_RX_BUFFER, &h, sizeof(h));
			assert_int_equal(le16_get(h.op), VIRTIO_VSOCK_OP_RW);
			if (i)
				assert_int_equal(le32_get(h.dst_port), port);
			port = le32_get(h.dst_port);
			seen[port - 100]++;
		}
		assert_in_range(seen[0] > seen[1] ? seen[0] - seen[1] : seen[1] - seen[0], 0, VSOCK_RX_BATCH);
		assert_in_range(seen[1] > seen[2] ? seen[1] - seen[2] : seen[2] - seen[1], 0, VSOCK_RX_BATCH);
		vt_post(&t, VSOCK_RX_BATCH);
	}
	for (uint32_t i = 0; i < 3; i++)
		close(f[i].peer);
}

static void without_guest_buffers_everything_waits_and_nothing_is_lost(void **state)
{
	struct flow f;
	struct vsock_packet p;
	uint32_t n = 0;
	static uint8_t want[50000], got[50000];

	(void)state;
	vt_teardown(&t);
	vt_setup(&t, NULL, 1);
	close(listener);
	listener = vt_listen(H, 16);
	flow_open(&f, 1025);
	/* The only buffer is not given back. */
	assert_int_equal(host_sends(&f, 50000), 50000);
	assert_true(vt_next(&t, &p));
	machine_peek(&t.m, p.payload, got, p.len);
	n = p.len;
	vt_expect_nothing(&t);
	vt_send_data(&t, 1025, H, "from the guest", 14, 262144, 0);
	vt_expect_bytes(&t, f.peer, "from the guest", 14);
	while (n < 50000) {
		vt_give_back(&t, &p);
		assert_true(vt_next(&t, &p));
		assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_RW);
		machine_peek(&t.m, p.payload, got + n, p.len);
		n += p.len;
	}
	vt_pattern(want, sizeof(want), ~(uint32_t)1025, 0);
	assert_memory_equal(got, want, sizeof(want));
	close(f.peer);
}

static void counters_wrap_around(void **state)
{
	struct flow f;
	struct vsock_conn *c;
	uint32_t start = UINT32_MAX - 5000;

	(void)state;
	flow_open(&f, 1025);
	/* As after four gigabytes in each direction. */
	c = vsock_conn_find(vt_vsock(&t), 1025, H);
	c->received = c->forwarded = c->told_forwarded = start;
	c->sent = start;
	f.sent = f.fwd = f.received = f.told = start;
	vt_send_credit(&t, 1025, H, 3000, start);
	f.host_sent = 0;
	for (int i = 0; i < 100; i++) {
		guest_sends(&f, 1000);
		host_sends(&f, 1000);
		take_packets(&f, 1, 3000);
		host_receives(&f);
	}
	assert_int_equal(f.sent - start, 100000);
	assert_int_equal(f.host_received, 100000);
	assert_int_equal(f.received - start, 100000);
	assert_same(&f.want_h, &f.got_h);
	assert_same(&f.want_g, &f.got_g);
	close(f.peer);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_host_sends_exactly_what_the_guest_allows),
		TEST(a_lost_credit_update_is_asked_for_again),
		TEST(a_guest_that_takes_credit_back_gets_nothing_more),
		TEST(a_request_for_credit_is_answered),
		TEST(the_guest_may_send_exactly_its_window),
		TEST(data_beyond_the_window_ends_the_connection),
		TEST(a_guest_without_credit_hears_of_more_as_soon_as_there_is),
		TEST(bulk_data_goes_both_ways_intact),
		TEST(peers_that_never_read_stall_nobody),
		TEST(connections_take_turns),
		TEST(without_guest_buffers_everything_waits_and_nothing_is_lost),
		TEST(counters_wrap_around),
	};

	return cmocka_run_group_tests_name("virtio_vsock_flow", tests, NULL, NULL);
}
