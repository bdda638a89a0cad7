/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that arrives through userfaultfd, with threads of this process as the guest: contents under concurrent
 * access, the recorded order, memory around the hole, damage, ends.
 */
#include "tests/unit/ram_fixture.h"

#include <pthread.h>

struct fixture {
	struct workers server, fillers, one_filler, guest;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;
	int fd = ram_lazy_open_uffd(&err);

	*state = f;
	if (!f || workers_start(&f->server, NULL, 1, "uffd", &err) < 0 ||
	    workers_start(&f->fillers, NULL, 2, "fill", &err) < 0 ||
	    workers_start(&f->one_filler, NULL, 1, "fill", &err) < 0 ||
	    workers_start(&f->guest, NULL, 3, "guest", &err) < 0)
		return -1;
	if (fd < 0)
		fprintf(stderr, "SKIPPED: MEMORY ON DEMAND IS NOT TESTED HERE: %s\n", err.text);
	fd_close(fd);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	workers_finish(&f->guest);
	workers_finish(&f->one_filler);
	workers_finish(&f->fillers);
	workers_finish(&f->server);
	free(f);
	return 0;
}

struct seen {
	_Atomic int times;
	char text[ERR_MAX];
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static void on_damage(void *arg, const char *text)
{
	struct seen *s = arg;

	pthread_mutex_lock(&s->lock);
	snprintf(s->text, sizeof(s->text), "%s", text);
	s->times++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void unexpected_damage(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "damage: %s\n", text);
	abort();
}

static struct ram_lazy *begin(struct fixture *f, struct mem *m, struct ram_lazy_config c)
{
	struct ram_lazy *l = NULL;
	struct err err = ERR_INIT;

	c.mem = m;
	c.server = &f->server;
	c.uffd = ram_lazy_open_uffd(&err);
	if (c.uffd < 0)
		skip();
	if (!c.on_damage)
		c.on_damage = unexpected_damage;
	if (ram_lazy_start(&c, &l, &err) < 0)
		fail_msg("%s", err.text);
	return l;
}

struct guest {
	struct mem *m;
	const struct mem *want;
	_Atomic int wrong;
};

/* Each thread reads all pages in an order of its own. */
static void guest_reads(void *arg, unsigned i)
{
	struct guest *g = arg;
	uint64_t n = mem_pages(g->m), step = i == 0 ? 1 : i == 1 ? n - 1 : 257;
	uint8_t a[MEM_PAGE_SIZE], b[MEM_PAGE_SIZE];

	while (n % step == 0 && step > 1)
		step++;
	for (uint64_t k = 0, page = i; k < n; k++, page = (page + step) % n) {
		mem_read(g->m, page_gpa(g->m, page % n), a, sizeof(a));
		mem_read(g->want, page_gpa(g->want, page % n), b, sizeof(b));
		if (memcmp(a, b, sizeof(a)) != 0)
			g->wrong++;
	}
}

static void lazy_round(struct fixture *f, const struct pair *pairs, unsigned n, const struct mem *want, bool fillers)
{
	struct mem m;
	struct err err = ERR_INIT;

	mem_make(&m, want->size);
	struct ram_lazy *l = begin(f, &m, (struct ram_lazy_config){
						  .image = must_open(pairs, n, want->size),
						  .fillers = fillers ? &f->fillers : NULL,
						  .order_in = -1,
						  .order_out = -1,
					  });
	struct guest g = { .m = &m, .want = want };

	workers_run(&f->guest, guest_reads, &g);
	assert_int_equal(g.wrong, 0);
	if (ram_lazy_complete(l, &err) < 0)
		fail_msg("%s", err.text);
	assert_false(m.arriving);
	assert_same_memory(&m, want);
	ram_lazy_stop(l);
	mem_finish(&m);
}

static void threads_read_the_right_pages_while_they_arrive(void **state)
{
	struct fixture *f = *state;
	struct mem m;

	mem_make(&m, MIB(8) + 3 * MEM_PAGE_SIZE);
	mem_fill(&m, 77);
	for (int level = 0; level <= 1; level++) {
		struct pair p = save(&m, &f->fillers, level, 1, 0, NULL);

		lazy_round(f, &p, 1, &m, true);
		lazy_round(f, &p, 1, &m, false);
		pair_close(&p);
	}
	mem_finish(&m);
}

static void a_chain_arrives(void **state)
{
	struct fixture *f = *state;
	struct mem m;
	struct pair chain[4];
	uint64_t seed = 8;

	mem_make(&m, MIB(4));
	mem_fill(&m, 5);
	chain[3] = save(&m, &f->fillers, 0, 1, 0, NULL);
	for (unsigned k = 1; k < 4; k++) {
		uint64_t *bits = bits_new(&m, 0);

		for (unsigned i = 0; i < 200; i++) {
			uint64_t page = rnd(&seed) % mem_pages(&m);

			page_fill(&m, page, &seed);
			bits_set(bits, page);
		}
		chain[3 - k] = save(&m, &f->fillers, k % 2, k + 1, k, bits);
		free(bits);
	}
	lazy_round(f, chain, 4, &m, true);
	for (unsigned k = 0; k < 4; k++)
		pair_close(&chain[k]);
	mem_finish(&m);
}

/* Large parts hold nothing and are released at once, on both sides of the hole. */
static void sparse_memory_around_the_hole_arrives(void **state)
{
	static const uint64_t pages[] = { 0, 5000, 786431, 786432, 786432 + 1024 + 700 };
	struct fixture *f = *state;
	struct mem m, back;
	struct err err = ERR_INIT;
	uint8_t got[MEM_PAGE_SIZE], want[MEM_PAGE_SIZE];

	mem_make(&m, MIB(3080));
	uint64_t *bits = bits_new(&m, 0);

	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		memset(want, 0x40 + (int)i, sizeof(want));
		assert_int_equal(mem_write(&m, page_gpa(&m, pages[i]), want, sizeof(want)), 0);
		bits_set(bits, pages[i]);
	}
	struct pair p = save(&m, &f->fillers, 1, 1, 0, bits);

	for (int background = 0; background <= 1; background++) {
		mem_make(&back, m.size);
		struct ram_lazy *l = begin(f, &back, (struct ram_lazy_config){
							     .image = must_open(&p, 1, m.size),
							     .fillers = background ? &f->fillers : NULL,
							     .order_in = -1,
							     .order_out = -1,
						     });

		for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
			memset(want, 0x40 + (int)i, sizeof(want));
			assert_int_equal(mem_read(&back, page_gpa(&back, pages[i]), got, sizeof(got)), 0);
			assert_memory_equal(got, want, sizeof(got));
		}
		memset(want, 0, sizeof(want));
		assert_int_equal(mem_read(&back, page_gpa(&back, 400000), got, sizeof(got)), 0);
		assert_memory_equal(got, want, sizeof(got));
		if (background)
			assert_int_equal(ram_lazy_complete(l, &err), 0);
		ram_lazy_stop(l);
		mem_finish(&back);
	}
	free(bits);
	pair_close(&p);
	mem_finish(&m);
}

static void what_the_guest_asks_for_is_recorded_in_order(void **state)
{
	static const uint32_t asks[] = { 9, 3, 60, 0, 3, 9 }, want[] = { 9, 3, 60, 0 };
	struct fixture *f = *state;
	struct mem m, back;
	int out = memfd_create("order", MFD_CLOEXEC);
	uint32_t got[ARRAY_SIZE(want)];
	uint8_t b;

	mem_make(&m, MIB(4));
	for (uint64_t page = 0; page < mem_pages(&m); page++)
		assert_int_equal(mem_write(&m, page_gpa(&m, page), "x", 1), 0);
	struct pair p = save(&m, &f->fillers, 1, 1, 0, NULL);

	mem_make(&back, m.size);
	struct ram_lazy *l = begin(
	    f, &back, (struct ram_lazy_config){.image = must_open(&p, 1, m.size), .order_in = -1, .order_out = dup(out)});

	for (unsigned i = 0; i < ARRAY_SIZE(asks); i++) {
		assert_int_equal(mem_read(&back, GPA((uint64_t)asks[i] * RAM_CHUNK_SIZE + 4096 * i), &b, 1), 0);
		assert_int_equal(b, 'x');
	}
	assert_true(back.arriving);
	ram_lazy_stop(l);
	assert_int_equal(file_size(out), sizeof(got));
	assert_int_equal(fd_pread_full(out, got, sizeof(got), 0), sizeof(got));
	for (unsigned i = 0; i < ARRAY_SIZE(want); i++)
		assert_int_equal(le32_load(&got[i]), want[i]);
	fd_close(out);
	pair_close(&p);
	mem_finish(&back);
	mem_finish(&m);
}

/* The chunk named first is damaged: it is met although nothing asks for it and lower ones are many. */
static void the_recorded_order_goes_first(void **state)
{
	struct fixture *f = *state;
	struct seen seen = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	int order = memfd_create("order", MFD_CLOEXEC);
	const le32 list[] = { le32_make(4000000000u), le32_make(800) };
	struct mem m, back;
	struct err err = ERR_INIT;
	uint8_t text[64];

	mem_make(&m, MIB(64));
	mem_fill(&m, 6);
	assert_int_equal(mem_write(&m, GPA(800ull * RAM_CHUNK_SIZE), "x", 1), 0);
	struct pair p = save(&m, &f->fillers, 0, 1, 0, NULL);

	file_flip(p.data, RAM_DATA_START + 800ull * RAM_CHUNK_SIZE + 1);
	assert_int_equal(fd_write_full(order, list, sizeof(list)), 0);
	assert_int_equal(fd_write_full(order, "odd", 3), 0);
	mem_make(&back, m.size);
	struct ram_lazy *l = begin(f, &back, (struct ram_lazy_config){
						     .image = must_open(&p, 1, m.size),
						     .fillers = &f->one_filler,
						     .order_in = dup(order),
						     .order_out = -1,
						     .on_damage = on_damage,
						     .arg = &seen,
					     });

	assert_int_equal(ram_lazy_complete(l, &err), -EIO);
	assert_int_equal(seen.times, 1);
	assert_non_null(strstr(seen.text, "chunk 800"));
	ram_lazy_stop(l);
	/* Address order would have brought everything below first. */
	for (uint64_t page = 0; page < 800ull * RAM_CHUNK_PAGES; page++) {
		assert_int_equal(mem_read(&back, page_gpa(&back, page), text, sizeof(text)), 0);
		for (unsigned i = 0; i < sizeof(text); i++)
			assert_int_equal(text[i], 0);
	}
	fd_close(order);
	pair_close(&p);
	mem_finish(&back);
	mem_finish(&m);
}

struct reader {
	struct mem *m;
	_Atomic bool got;
	uint8_t b;
};

static void read_damaged(void *arg, unsigned i)
{
	struct reader *r = arg;

	if (i == 0) {
		mem_read(r->m, GPA(5 * RAM_CHUNK_SIZE), &r->b, 1);
		r->got = true;
	}
}

static void a_damaged_frame_is_told_once_and_never_served(void **state)
{
	struct fixture *f = *state;

	for (int level = 0; level <= 1; level++) {
		struct seen seen = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
		struct mem m, back;
		struct err err = ERR_INIT;

		mem_make(&m, MIB(1));
		assert_int_equal(mem_write(&m, GPA(5 * RAM_CHUNK_SIZE), "secret", 6), 0);
		struct pair p = save(&m, &f->fillers, level, 1, 0, NULL);

		file_flip(p.data, level ? RAM_DATA_START + 3 : RAM_DATA_START + 5 * RAM_CHUNK_SIZE + 100);
		mem_make(&back, m.size);
		struct ram_lazy *l = begin(f, &back, (struct ram_lazy_config){
							     .image = must_open(&p, 1, m.size),
							     .order_in = -1,
							     .order_out = -1,
							     .on_damage = on_damage,
							     .arg = &seen,
						     });
		struct reader r = { .m = &back };

		workers_begin(&f->guest, read_damaged, &r);
		assert_int_equal(ram_lazy_complete(l, &err), -EIO);
		assert_int_equal(seen.times, 1);
		assert_non_null(strstr(seen.text, "ram: damaged: chunk 5: checksum"));
		assert_false(r.got);
		assert_true(back.arriving);
		/* The end of userfaultfd lets the thread go on, with zeros: in the monitor the process has ended by
		 * then. */
		ram_lazy_stop(l);
		workers_wait(&f->guest);
		assert_int_equal(r.b, 0);
		pair_close(&p);
		mem_finish(&back);
		mem_finish(&m);
	}
}

static void discarding_waits_until_all_pages_are_there(void **state)
{
	struct fixture *f = *state;
	struct mem m, back;
	struct err err = ERR_INIT;
	uint8_t b;

	mem_make(&m, MIB(1));
	assert_int_equal(mem_write(&m, GPA(0), "x", 1), 0);
	struct pair p = save(&m, &f->fillers, 0, 1, 0, NULL);

	mem_make(&back, m.size);
	struct ram_lazy *l = begin(
	    f, &back, (struct ram_lazy_config){.image = must_open(&p, 1, m.size), .order_in = -1, .order_out = -1});

	assert_int_equal(mem_discard(&back, GPA(0), MEM_PAGE_SIZE), 0);
	assert_int_equal(mem_read(&back, GPA(0), &b, 1), 0);
	assert_int_equal(b, 'x');
	for (uint64_t page = 0; page < mem_pages(&back); page++)
		assert_int_equal(mem_read(&back, page_gpa(&back, page), &b, 1), 0);
	assert_int_equal(ram_lazy_complete(l, &err), 0);
	assert_int_equal(mem_discard(&back, GPA(0), MEM_PAGE_SIZE), 0);
	assert_int_equal(mem_read(&back, GPA(0), &b, 1), 0);
	assert_int_equal(b, 0);
	ram_lazy_stop(l);
	pair_close(&p);
	mem_finish(&back);
	mem_finish(&m);
}

/* As KVM does, and disks. */
static void the_kernel_itself_may_ask_for_pages(void **state)
{
	struct fixture *f = *state;
	struct mem m, back;
	int file = memfd_create("file", MFD_CLOEXEC);
	uint8_t got[4 * MEM_PAGE_SIZE], want[sizeof(got)];
	struct iovec iov;

	mem_make(&m, MIB(1));
	mem_fill(&m, 31);
	struct pair p = save(&m, &f->fillers, 1, 1, 0, NULL);
	struct ram_lazy_config c = { .image = must_open(&p, 1, m.size), .order_in = -1, .order_out = -1 };

	mem_make(&back, m.size);
	struct ram_lazy *l = begin(f, &back, c);

	/* Over the border of two chunks. */
	assert_int_equal(mem_iov(&back, GPA(RAM_CHUNK_SIZE * 3 - 8192), sizeof(got), false, &iov), 0);
	assert_int_equal(writev(file, &iov, 1), sizeof(got));
	assert_int_equal(fd_pread_full(file, got, sizeof(got), 0), sizeof(got));
	assert_int_equal(mem_read(&m, GPA(RAM_CHUNK_SIZE * 3 - 8192), want, sizeof(want)), 0);
	assert_memory_equal(got, want, sizeof(want));
	ram_lazy_stop(l);
	fd_close(file);
	pair_close(&p);
	mem_finish(&back);
	mem_finish(&m);
}

static void another_size_of_memory_is_refused(void **state)
{
	struct fixture *f = *state;
	struct mem m, back;
	struct err err = ERR_INIT;
	struct ram_lazy *l = NULL;

	mem_make(&m, MIB(1));
	struct pair p = save(&m, &f->fillers, 0, 1, 0, NULL);

	mem_make(&back, MIB(2));
	struct ram_lazy_config c = {.image = must_open(&p, 1, m.size),
				    .mem = &back,
				    .server = &f->server,
				    .order_in = -1,
				    .order_out = -1,
				    .on_damage = unexpected_damage,
				    .uffd = ram_lazy_open_uffd(&err)};

	assert_int_equal(ram_lazy_start(&c, &l, &err), -EINVAL);
	assert_null(l);
	ram_lazy_stop(NULL);
	pair_close(&p);
	mem_finish(&back);
	mem_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_read_the_right_pages_while_they_arrive),
		cmocka_unit_test(a_chain_arrives),
		cmocka_unit_test(sparse_memory_around_the_hole_arrives),
		cmocka_unit_test(what_the_guest_asks_for_is_recorded_in_order),
		cmocka_unit_test(the_recorded_order_goes_first),
		cmocka_unit_test(a_damaged_frame_is_told_once_and_never_served),
		cmocka_unit_test(discarding_waits_until_all_pages_are_there),
		cmocka_unit_test(the_kernel_itself_may_ask_for_pages),
		cmocka_unit_test(another_size_of_memory_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
