/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices/backend/remote: a disk with a remote layer against a fetcher that the test plays: what it is asked, and what becomes of
 * answers, right and wrong.
 */
#include <pthread.h>
#include <sys/socket.h>

#include "devices/backend/remote.h"
#include "devices/backend/remote_format.h"
#include "tests/device/layers_fixture.h"

enum { SIZE = 4 << 20, CHUNK = 1 << REMOTE_SHIFT };

struct fixture {
	uint8_t *want; /* the disk */
	int layer, data, table_fd, sock; /* sock: the fetcher's */
	uint64_t size;
	uint32_t n;
	uint8_t *table;
	struct remote *r;
	struct block *b;
	struct block_remote remote[2];
	pthread_t thread;
};

static void fill(struct fixture *f, uint32_t chunk)
{
	uint32_t *g = (uint32_t *)(f->table + REMOTE_HEADER);
	uint8_t buf[CHUNK];
	uint64_t n = MIN((uint64_t)CHUNK, f->size - (uint64_t)chunk * CHUNK);

	assert_int_equal(fd_pread_full(f->layer, buf, n, (off_t)chunk * CHUNK), n);
	assert_int_equal(fd_pwrite_full(f->data, buf, n, (off_t)chunk * CHUNK), 0);
	__atomic_store_n(&g[chunk], g[chunk] + 1, __ATOMIC_RELEASE);
}

static void send_arrived(struct fixture *f, uint32_t blob, uint32_t first, uint32_t n, int result)
{
	struct remote_arrived m = { .type = le32_make(REMOTE_ARRIVED), .blob = le32_make(blob), .first = le32_make(first),
				    .n = le32_make(n), .result = le32_make((uint32_t)result) };

	assert_int_equal(send(f->sock, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
}

/* What is wanted now: 0, or 1 and the range. */
static int take_want(struct fixture *f, uint32_t *first, uint32_t *n)
{
	struct remote_want m;

	if (recv(f->sock, &m, sizeof(m), MSG_DONTWAIT) != sizeof(m))
		return 0;
	assert_int_equal(le32_get(m.type), REMOTE_WANT);
	assert_int_equal(le32_get(m.blob), 0);
	*first = le32_get(m.first);
	*n = le32_get(m.n);
	assert_true(*n > 0 && *n <= REMOTE_WANT_CHUNKS && *first + *n <= f->n);
	return 1;
}

/* While the disk is attached: all that is wanted comes. */
static void *fetch_all(void *arg)
{
	struct fixture *f = arg;
	struct remote_want m;

	while (recv(f->sock, &m, sizeof(m), 0) == sizeof(m) && le32_get(m.type) == REMOTE_WANT) {
		for (uint32_t i = 0; i < le32_get(m.n); i++)
			fill(f, le32_get(m.first) + i);
		send_arrived(f, 0, le32_get(m.first), le32_get(m.n), 0);
	}
	return NULL;
}

static void make_layer(struct fixture *f)
{
	struct remote_header h = { .version = le32_make(REMOTE_VERSION), .chunk_shift = le32_make(REMOTE_SHIFT) };
	struct err err = ERR_INIT;
	int raw = file_new();
	struct stat st;

	f->want = malloc(SIZE);
	for (uint32_t i = 0; i < SIZE; i++)
		f->want[i] = (uint8_t)(i >> 9 ^ i * 7);
	assert_int_equal(fd_pwrite_full(raw, f->want, SIZE, 0), 0);
	f->layer = file_new();
	assert_int_equal(lsmt_pack_raw(raw, SIZE, f->layer, NULL, &err), 0);
	close(raw);
	assert_int_equal(fstat(f->layer, &st), 0);
	f->size = (uint64_t)st.st_size;
	f->n = remote_chunks(f->size, REMOTE_SHIFT);
	f->data = file_new();
	f->table_fd = file_new();
	memcpy(h.magic, REMOTE_MAGIC, sizeof(h.magic));
	h.size = le64_make(f->size);
	assert_int_equal(ftruncate(f->data, st.st_size), 0);
	assert_int_equal(ftruncate(f->table_fd, (off_t)remote_table_bytes(f->size, REMOTE_SHIFT)), 0);
	assert_int_equal(fd_pwrite_full(f->table_fd, &h, sizeof(h), 0), 0);
	f->table = mmap(NULL, remote_table_bytes(f->size, REMOTE_SHIFT), PROT_READ | PROT_WRITE, MAP_SHARED, f->table_fd, 0);
	assert_ptr_not_equal(f->table, MAP_FAILED);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;
	int fds[2], fd;

	make_layer(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	f->sock = fds[1];
	assert_int_equal(remote_create(fds[0], &f->r, &err), 0);
	assert_int_equal(remote_add(f->r, 0, f->table_fd, f->size, "layer 1", &f->remote[0], &err), 0);
	assert_int_equal(block_layers_open(&(struct block_config){ .ro = true, .aio = "threads" }, &f->b, &err), 0);
	remote_set_block(f->r, f->b);
	fd = fcntl(f->data, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(pthread_create(&f->thread, NULL, fetch_all, f), 0);
	assert_int_equal(block_layers_attach(f->b,
					     &(struct block_stack){ .base_fd = -1, .layer_fd = &fd, .nlayers = 1, .top_data_fd = -1,
								    .top_index_fd = -1, .remote = f->remote, .remote_ops = &remote_ops,
								    .remote_ctx = f->r },
					     &err),
			 0);
	/* Something else than a want, from our end, ends the thread; the disk's end is untouched. */
	assert_int_equal(send(fds[0], "end", 3, 0), 3);
	assert_int_equal(pthread_join(f->thread, NULL), 0);
	assert_int_equal(f->b->size, SIZE);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	remote_shutdown(f->r);
	block_close(f->b);
	remote_destroy(f->r);
	munmap(f->table, remote_table_bytes(f->size, REMOTE_SHIFT));
	fd_close(f->sock);
	close(f->layer);
	close(f->data);
	close(f->table_fd);
	free(f->want);
	free(f);
	return 0;
}

struct one {
	struct block_request r;
	struct iovec iov;
	uint8_t *buf;
	int result; /* 1: not yet */
};

static void on_done(struct block_request *r, int result)
{
	container_of(r, struct one, r)->result = result;
}

static void begin(struct fixture *f, struct one *o, uint64_t off, uint64_t len)
{
	*o = (struct one){ .result = 1, .buf = calloc(1, len) };
	o->iov = (struct iovec){ o->buf, len };
	o->r = (struct block_request){ .op = BLOCK_READ, .offset = off, .len = len, .iov = &o->iov, .niov = 1, .done = on_done };
	block_submit(f->b, &o->r);
	block_kick(f->b);
}

static void finish(struct fixture *f, struct one *o, int result)
{
	struct pollfd p = { .fd = f->b->event_fd, .events = POLLIN };

	while (o->result == 1) {
		assert_int_equal(poll(&p, 1, 60000), 1);
		block_complete(f->b);
	}
	assert_int_equal(o->result, result);
	if (result == 0)
		assert_memory_equal(o->buf, f->want + o->r.offset, o->r.len);
	free(o->buf);
}

static void a_read_is_one_want(void **state)
{
	struct fixture *f = *state;
	uint32_t first, n;
	struct one o;

	begin(f, &o, 1 << 20, 8 * CHUNK);
	assert_int_equal(o.result, 1);
	assert_int_equal(take_want(f, &first, &n), 0);
	assert_true(remote_run(f->r));
	assert_int_equal(take_want(f, &first, &n), 1);
	assert_true(n >= 8 && n <= 9);
	assert_int_equal(take_want(f, &first, &(uint32_t){ 0 }), 0);
	for (uint32_t i = 0; i < n; i++)
		fill(f, first + i);
	send_arrived(f, 0, first, 3, 0); /* in parts */
	send_arrived(f, 0, first + 3, n - 3, 0);
	assert_true(remote_run(f->r));
	finish(f, &o, 0);
}

static void sending_takes_no_answers(void **state)
{
	struct fixture *f = *state;
	struct pollfd p = { .fd = remote_socket(f->r), .events = POLLIN };
	uint32_t first, n;
	struct one o;

	begin(f, &o, 1 << 20, CHUNK);
	assert_true(remote_send(f->r));
	assert_int_equal(take_want(f, &first, &n), 1);
	for (uint32_t i = 0; i < n; i++)
		fill(f, first + i);
	send_arrived(f, 0, first, n, 0);
	assert_true(remote_send(f->r));
	assert_int_equal(poll(&p, 1, 0), 1); /* so that who waits for the socket is woken up */
	assert_true(remote_run(f->r));
	finish(f, &o, 0);
}

static void what_cannot_be_had_fails_and_can_be_had_later(void **state)
{
	struct fixture *f = *state;
	uint32_t first, n;
	struct one o;

	begin(f, &o, 2 << 20, 512);
	assert_true(remote_run(f->r));
	assert_int_equal(take_want(f, &first, &n), 1);
	send_arrived(f, 0, first, n, -ETIMEDOUT);
	assert_true(remote_run(f->r));
	finish(f, &o, -EIO);
	begin(f, &o, 2 << 20, 512);
	assert_true(remote_run(f->r));
	assert_int_equal(take_want(f, &first, &n), 1);
	for (uint32_t i = 0; i < n; i++)
		fill(f, first + i);
	send_arrived(f, 0, first, n, 0);
	assert_true(remote_run(f->r));
	finish(f, &o, 0);
}

static void the_end_of_the_fetcher_fails_what_waits_and_leaves_the_rest(void **state)
{
	struct fixture *f = *state;
	char note[128];
	struct one o;

	begin(f, &o, 2 << 20, 512);
	assert_true(remote_run(f->r));
	f->sock = fd_close(f->sock);
	assert_false(remote_run(f->r));
	finish(f, &o, -EIO);
	assert_true(remote_note(f->r, note, sizeof(note)));
	assert_non_null(strstr(note, "has ended"));
	assert_false(remote_note(f->r, note, sizeof(note)));
	begin(f, &o, 3 << 20, 512); /* later ones, too */
	assert_false(remote_run(f->r));
	finish(f, &o, -EIO);
	fill(f, (2 << 20) / CHUNK);
	fill(f, (2 << 20) / CHUNK + 1);
	begin(f, &o, 2 << 20, 512);
	finish(f, &o, 0);
}

static void senseless_answers_end_the_connection(void **state)
{
	static const struct {
		uint32_t blob, first, n;
		int result;
	} bad[] = { { 1, 0, 1, 0 }, { 0, 0, 0, 0 }, { 0, 0, 257, 0 }, { 0, 0, 1, 1 }, { 0, 0, 1, -4096 }, { 0, 0xffffffff, 2, 0 }, { 0, 0, 1, 0 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct fixture *f;
		struct one o;

		setup((void **)&f);
		begin(f, &o, 2 << 20, 512);
		assert_true(remote_run(f->r));
		send_arrived(f, bad[i].blob, bad[i].first, bad[i].n, bad[i].result);
		assert_false(remote_run(f->r));
		finish(f, &o, -EIO);
		teardown((void **)&f);
	}
}

static void a_chunk_is_answered_once(void **state)
{
	struct fixture *f = *state;
	uint32_t first, n;
	struct one o;

	begin(f, &o, 2 << 20, 4 * CHUNK);
	assert_true(remote_run(f->r));
	assert_int_equal(take_want(f, &first, &n), 1);
	fill(f, first);
	send_arrived(f, 0, first, 1, 0);
	send_arrived(f, 0, first, 1, 0);
	assert_false(remote_run(f->r));
	finish(f, &o, -EIO);
}

static void notes_are_said(void **state)
{
	struct fixture *f = *state;
	struct remote_note m = { .type = le32_make(REMOTE_NOTE), .result = le32_make((uint32_t)-ECONNREFUSED), .seconds = le32_make(7) };
	char note[128];

	assert_int_equal(send(f->sock, &m, sizeof(m), 0), sizeof(m));
	assert_true(remote_run(f->r));
	assert_true(remote_note(f->r, note, sizeof(note)));
	assert_string_equal(note, "layer 1: reads wait for its server, for 7 s now: Connection refused");
	assert_false(remote_note(f->r, note, sizeof(note)));
}

static void waiting_for_a_server_lasts_until_it_answers(void **state)
{
	struct fixture *f = *state;
	struct remote_note m = { .type = le32_make(REMOTE_NOTE), .result = le32_make((uint32_t)-ECONNREFUSED), .seconds = le32_make(1) };
	uint32_t first, n;
	struct one o;

	begin(f, &o, 2 << 20, 512);
	assert_true(remote_run(f->r));
	assert_int_equal(take_want(f, &first, &n), 1);
	assert_true(remote_waiting_since(f->r) == 0);
	assert_int_equal(send(f->sock, &m, sizeof(m), 0), sizeof(m));
	assert_true(remote_run(f->r));
	assert_in_range(remote_waiting_since(f->r), 1, loop_now_ns() - 1000000000);
	for (uint32_t i = 0; i < n; i++)
		fill(f, first + i);
	send_arrived(f, 0, first, n, 0);
	assert_true(remote_run(f->r));
	assert_true(remote_waiting_since(f->r) == 0);
	finish(f, &o, 0);
}

static void tables_of_other_blobs_are_refused(void **state)
{
	struct fixture *f = *state;
	struct block_remote ret;
	struct err err = ERR_INIT;

	assert_int_equal(remote_add(f->r, 1, f->table_fd, f->size + 1, "layer 2", &ret, &err), -EBADMSG);
	f->table[0] ^= 1;
	assert_int_equal(remote_add(f->r, 1, f->table_fd, f->size, "layer 2", &ret, &err), -EBADMSG);
	f->table[0] ^= 1;
	f->table[12] = 13;
	assert_int_equal(remote_add(f->r, 1, f->table_fd, f->size, "layer 2", &ret, &err), -EBADMSG);
	assert_int_equal(remote_add(f->r, 1, f->data, f->size, "layer 2", &ret, &err), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_read_is_one_want, setup, teardown),
		cmocka_unit_test_setup_teardown(sending_takes_no_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(what_cannot_be_had_fails_and_can_be_had_later, setup, teardown),
		cmocka_unit_test_setup_teardown(the_end_of_the_fetcher_fails_what_waits_and_leaves_the_rest, setup, teardown),
		cmocka_unit_test(senseless_answers_end_the_connection),
		cmocka_unit_test_setup_teardown(a_chunk_is_answered_once, setup, teardown),
		cmocka_unit_test_setup_teardown(notes_are_said, setup, teardown),
		cmocka_unit_test_setup_teardown(waiting_for_a_server_lasts_until_it_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(tables_of_other_blobs_are_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
