/* SPDX-License-Identifier: Apache-2.0 */
/* Block backends: opening, locks, sizes; what the io_uring ring can not do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/backend/block_uring.h"
#include "lib/fd.h"
#include "lib/util.h"

static char dir[] = "/tmp/block_test_XXXXXX";

static const char *path_of(const char *name)
{
	static char path[100];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void make_file(const char *name, off_t size)
{
	int fd = open(path_of(name), O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static int try_open(const char *name, bool ro, struct block **ret, struct err *err)
{
	struct block_config c = { .path = path_of(name), .ro = ro, .depth = 16 };

	*err = ERR_INIT;
	*ret = NULL;
	return block_open(&c, ret, err);
}

static void refused(const char *name, bool ro, int code, const char *text)
{
	struct block *b;
	struct err err;

	assert_int_equal(try_open(name, ro, &b, &err), code);
	assert_null(b);
	if (!strstr(err.text, text))
		fail_msg("'%s' does not say '%s'", err.text, text);
	assert_non_null(strstr(err.text, name));
}

static void a_missing_file_is_named(void **state)
{
	(void)state;
	refused("nowhere.img", false, -ENOENT, "No such file or directory");
	refused("nowhere.img", true, -ENOENT, "No such file or directory");
}

static void a_directory_is_no_disk(void **state)
{
	(void)state;
	mkdir(path_of("dir"), 0700);
	refused("dir", false, -EINVAL, "is a directory");
	refused("dir", true, -EINVAL, "is a directory");
}

static void a_fifo_is_no_disk_and_nobody_waits(void **state)
{
	(void)state;
	assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
	refused("fifo", false, -EINVAL, "is a FIFO");
	refused("fifo", true, -EINVAL, "is a FIFO");
}

static void a_socket_is_no_disk(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path_of("sock"));
	assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	refused("sock", false, -EINVAL, "is a socket");
	close(s);
}

static void a_character_device_is_no_disk(void **state)
{
	struct block_config c = { .path = "/dev/null", .depth = 16 };
	struct err err = ERR_INIT;
	struct block *b;

	(void)state;
	assert_int_equal(block_open(&c, &b, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'/dev/null' is a character device"));
}

static void a_file_without_permission_says_what_helps(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip(); /* needs another user to be */
	make_file("secret.img", 4096);
	make_file("public.img", 4096);
	chmod(path_of("public.img"), 0444);
	chmod(dir, 0711);
	assert_int_equal(seteuid(65534), 0);
	refused("secret.img", false, -EACCES, "Permission denied");
	refused("public.img", false, -EACCES, "for writing (ro opens it read-only)");
	assert_int_equal(seteuid(0), 0);
}

static void an_empty_file_is_refused(void **state)
{
	(void)state;
	make_file("empty.img", 0);
	refused("empty.img", false, -EINVAL, "has no sector");
	make_file("tiny.img", 511);
	refused("tiny.img", true, -EINVAL, "has no sector");
}

static void an_odd_size_is_refused_for_writing_with_the_way_out(void **state)
{
	(void)state;
	make_file("odd.img", 1536 + 88);
	refused("odd.img", false, -EINVAL, "is 1624 bytes, 88 more than a multiple of 512");
	refused("odd.img", false, -EINVAL, "truncate -s 2048");
}

static void an_odd_size_is_cut_for_reading_with_a_note(void **state)
{
	struct block *b;
	struct err err;

	(void)state;
	make_file("odd.img", 1536 + 88);
	assert_int_equal(try_open("odd.img", true, &b, &err), 0);
	assert_int_equal(b->size, 1536);
	assert_non_null(strstr(b->note, "the last 88 are left out"));
	block_close(b);
}

static void a_symbolic_link_is_followed(void **state)
{
	struct block *b;
	struct err err;
	char to[100];

	(void)state;
	make_file("real.img", 4096);
	snprintf(to, sizeof(to), "%s", path_of("real.img"));
	assert_int_equal(symlink(to, path_of("link.img")), 0);
	assert_int_equal(try_open("link.img", false, &b, &err), 0);
	assert_int_equal(b->size, 4096);
	block_close(b);
}

static void two_writers_are_refused_and_the_first_is_named(void **state)
{
	struct block *a, *b;
	struct err err;
	char pid[32];

	(void)state;
	make_file("rw.img", 4096);
	snprintf(pid, sizeof(pid), "process %d (block_test", getpid());
	assert_int_equal(try_open("rw.img", false, &a, &err), 0);
	refused("rw.img", false, -EBUSY, pid);
	refused("rw.img", true, -EBUSY, "in use for writing");
	block_close(a);
	assert_int_equal(try_open("rw.img", false, &b, &err), 0);
	block_close(b);
}

static void many_readers_share_but_keep_writers_out(void **state)
{
	struct block *a, *b;
	struct err err;

	(void)state;
	make_file("ro.img", 4096);
	assert_int_equal(try_open("ro.img", true, &a, &err), 0);
	assert_int_equal(try_open("ro.img", true, &b, &err), 0);
	refused("ro.img", false, -EBUSY, "one VM at a time");
	block_close(a);
	block_close(b);
}

static void options_that_contradict_are_refused(void **state)
{
	static const struct {
		struct block_config c;
		const char *text;
	} cases[] = {
		{ { .backend = "tape" }, "'tape' is unknown: use file, layers, memory or null" },
		{ { 0 }, "give path=FILE" },
		{ { .backend = "memory", .path = "x" }, "takes size=SIZE" },
		{ { .backend = "memory" }, "not a positive multiple of 512" },
		{ { .backend = "null", .size = 1000 }, "size 1000" },
		{ { .path = "x", .size = 512 }, "size= is for" },
		{ { .path = "x", .cache = "big" }, "'big' is unknown: use writeback" },
		{ { .path = "x", .aio = "slow" }, "'slow' is unknown: use auto" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_INIT;
		struct block *b = NULL;

		assert_int_equal(block_open(&cases[i].c, &b, &err), -EINVAL);
		if (!strstr(err.text, cases[i].text))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
	}
}

static void failed_opens_leak_no_descriptor(void **state)
{
	int before = dup(0), after;
	struct block *b;
	struct err err;

	(void)state;
	close(before);
	make_file("odd2.img", 1000);
	for (int i = 0; i < 3; i++)
		assert_true(try_open("odd2.img", false, &b, &err) < 0);
	after = dup(0);
	close(after);
	assert_int_equal(after, before);
}

static int result_of;

static void note_result(struct block_request *r, int result)
{
	(void)r;
	result_of = result;
}

static void a_file_cut_short_under_the_guest_gives_eio(void **state)
{
	static const char *const engines[] = { "io_uring", "threads" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(engines); i++) {
		uint8_t buf[1024];
		struct iovec iov = { buf, sizeof(buf) };
		struct block_request r = { .op = BLOCK_READ, .offset = 7680, .len = 1024, .iov = &iov, .niov = 1, .done = note_result };
		struct block_config c = { .aio = engines[i], .depth = 16 };
		struct err err = ERR_INIT;
		struct block *b;

		make_file("short.img", 65536);
		c.path = path_of("short.img");
		assert_int_equal(block_open(&c, &b, &err), 0);
		assert_int_equal(truncate(c.path, 8192), 0);
		result_of = 1;
		block_submit(b, &r);
		block_kick(b);
		block_drain(b);
		assert_int_equal(result_of, -EIO);
		block_close(b);
	}
}

/* The restrictions of the ring, seen from a monitor that was taken over. */
static int ring_result(struct io_uring *ring, void (*prep)(struct io_uring_sqe *sqe))
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int r;

	assert_non_null(sqe);
	prep(sqe);
	assert_int_equal(io_uring_submit(ring), 1);
	assert_int_equal(io_uring_wait_cqe(ring, &cqe), 0);
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return r;
}

static char byte;

static void prep_open(struct io_uring_sqe *sqe) { io_uring_prep_openat(sqe, AT_FDCWD, "/etc/passwd", O_RDONLY, 0); }
static void prep_socket(struct io_uring_sqe *sqe) { io_uring_prep_connect(sqe, 0, NULL, 0); }
static void prep_nop(struct io_uring_sqe *sqe) { io_uring_prep_nop(sqe); }
static void prep_read_other(struct io_uring_sqe *sqe) { io_uring_prep_read(sqe, 0, &byte, 1, 0); }
static void prep_read(struct io_uring_sqe *sqe)
{
	io_uring_prep_read(sqe, 0, &byte, 1, 0);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}
static void prep_linked(struct io_uring_sqe *sqe)
{
	prep_read(sqe);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE | IOSQE_IO_LINK);
}

static void the_ring_does_file_io_on_its_own_files_only(void **state)
{
	struct block_io *io;
	struct io_uring *ring;
	struct err err = ERR_INIT;
	int fd, ev = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	make_file("ring.img", 4096);
	fd = open(path_of("ring.img"), O_RDWR | O_CLOEXEC);
	if (block_uring_open(&fd, 1, ev, 16, &io, &err) < 0) {
		print_message("skipped: %s\n", err.text);
		skip();
	}
	ring = &((struct block_uring *)io)->ring;
	assert_int_equal(ring_result(ring, prep_open), -EACCES);
	assert_int_equal(ring_result(ring, prep_socket), -EACCES);
	assert_int_equal(ring_result(ring, prep_nop), -EACCES);
	assert_int_equal(ring_result(ring, prep_read_other), -EACCES);
	assert_int_equal(ring_result(ring, prep_linked), -EACCES);
	assert_int_equal(ring_result(ring, prep_read), 1);
	assert_int_equal(syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_FILES_UPDATE, NULL, 0), -1);
	assert_int_equal(errno, EACCES);
	io->ops->close(io);
	close(fd);
	close(ev);
}

/* Places left empty can be filled: with files, and by that call only. */
static void a_ring_with_empty_places_takes_files_and_nothing_else(void **state)
{
	struct block_io *io;
	struct io_uring *ring;
	struct err err = ERR_INIT;
	int files[] = { -1, -1 }, fd, ev = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	make_file("ring.img", 4096);
	fd = open(path_of("ring.img"), O_RDWR | O_CLOEXEC);
	if (block_uring_open(files, 2, ev, 16, &io, &err) < 0) {
		print_message("skipped: %s\n", err.text);
		skip();
	}
	ring = &((struct block_uring *)io)->ring;
	assert_int_equal(ring_result(ring, prep_read), -EBADF);
	assert_int_equal(io->ops->set_file(io, 0, fd), 0);
	assert_int_equal(ring_result(ring, prep_read), 1);
	assert_int_equal(io->ops->set_file(io, 0, -1), 0);
	assert_int_equal(ring_result(ring, prep_read), -EBADF);
	assert_true(io->ops->set_file(io, 2, fd) < 0);
	assert_int_equal(ring_result(ring, prep_open), -EACCES);
	assert_int_equal(ring_result(ring, prep_read_other), -EACCES);
	assert_int_equal(syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_EVENTFD, &ev, 1), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(syscall(SYS_io_uring_register, ring->ring_fd, IORING_UNREGISTER_FILES, NULL, 0), -1);
	assert_int_equal(errno, EACCES);
	io->ops->close(io);
	close(fd);
	close(ev);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char cmd[160];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_missing_file_is_named),
		cmocka_unit_test(a_directory_is_no_disk),
		cmocka_unit_test(a_fifo_is_no_disk_and_nobody_waits),
		cmocka_unit_test(a_socket_is_no_disk),
		cmocka_unit_test(a_character_device_is_no_disk),
		cmocka_unit_test(a_file_without_permission_says_what_helps),
		cmocka_unit_test(an_empty_file_is_refused),
		cmocka_unit_test(an_odd_size_is_refused_for_writing_with_the_way_out),
		cmocka_unit_test(an_odd_size_is_cut_for_reading_with_a_note),
		cmocka_unit_test(a_symbolic_link_is_followed),
		cmocka_unit_test(two_writers_are_refused_and_the_first_is_named),
		cmocka_unit_test(many_readers_share_but_keep_writers_out),
		cmocka_unit_test(options_that_contradict_are_refused),
		cmocka_unit_test(failed_opens_leak_no_descriptor),
		cmocka_unit_test(a_file_cut_short_under_the_guest_gives_eio),
		cmocka_unit_test(the_ring_does_file_io_on_its_own_files_only),
		cmocka_unit_test(a_ring_with_empty_places_takes_files_and_nothing_else),
	};

	return cmocka_run_group_tests_name("block", tests, make_dir, remove_dir);
}
