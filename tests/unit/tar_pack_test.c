/* SPDX-License-Identifier: Apache-2.0 */
/* Packing: what comes out is what was there, tar programs understand it, and it can be unpacked again. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/tar_extract.h"
#include "lib/tar_pack.h"
#include "lib/util.h"

static char top[64];
static struct tar_pack pack;
static struct err err;
static char *stream;
static size_t length;
enum { STREAM_MAX = 4 << 20 };

static void run(const char *command)
{
	char full[1024];

	snprintf(full, sizeof(full), "cd %s && %s", top, command);
	assert_int_equal(system(full), 0);
}

static int setup(void **s)
{
	(void)s;
	strcpy(top, "/tmp/coffer-pack-XXXXXX");
	assert_non_null(mkdtemp(top));
	stream = malloc(STREAM_MAX);
	length = 0;
	return 0;
}

static int teardown(void **s)
{
	char command[128];

	(void)s;
	free(stream);
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static int pack_in_steps(const char *name, const char *as, bool follow, size_t step)
{
	static char path[256]; /* the packer keeps it */
	struct stat st;
	ssize_t n;
	int rc;

	err = ERR_INIT;
	length = 0;
	snprintf(path, sizeof(path), "%s/%s", top, name);
	rc = tar_pack_init(&pack, path, as, follow, &st, &err);
	if (rc < 0)
		return rc;
	while ((n = tar_pack_read(&pack, stream + length, MIN(step, STREAM_MAX - length), &err)) > 0)
		length += (size_t)n;
	tar_pack_finish(&pack);
	return (int)n;
}

static void save(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/t.tar", top);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(fd_write_full(fd, stream, length), 0);
	close(fd);
}

#define TREE                                                                                                          \
	"mkdir -p src/sub/deep src/empty; echo hello >src/f; chmod 4750 src/f; : >src/zero; head -c 100001 /dev/urandom >src/sub/big; " \
	"ln -s ../f src/sub/l; mkfifo -m 640 src/p; chmod 1777 src/empty; n=$(printf %0200d 1); echo x >src/sub/$n; " \
	"ln -s $n$n src/longlink; touch -d @1234567890.123456789 src/f; touch -d @5 src/sub/deep; touch -d @6 src/sub"

#define SAME                                                                                                   \
	"(cd src && find . -printf '%p %y %m %s %T@ %l\\n' | sed '/ d /s/ d \\([0-9]*\\) [0-9]*/ d \\1/' | sort) >a; "   \
	"(cd dst && find . -printf '%p %y %m %s %T@ %l\\n' | sed '/ d /s/ d \\([0-9]*\\) [0-9]*/ d \\1/' | sort) >b; " \
	"diff a b && cmp src/sub/big dst/sub/big && cmp src/f dst/f"

static void gnu_tar_unpacks_it(void **s)
{
	static const size_t steps[] = { 1000, 512, 65536 };

	(void)s;
	run(TREE);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		assert_int_equal(pack_in_steps("src", "dst", false, steps[i]), 0);
		assert_int_equal(length % TAR_BLOCK, 0);
		save();
		run("rm -rf dst; tar -xpf t.tar && " SAME);
	}
}

static void our_own_reader_unpacks_it(void **s)
{
	struct tar_extract_options o = { .uid = geteuid(), .gid = getegid() };
	static struct tar_extract x;
	int dir = open(top, O_RDONLY | O_DIRECTORY);

	(void)s;
	run(TREE);
	assert_int_equal(pack_in_steps("src", "dst", false, 777), 0);
	tar_extract_init(&x, dir, &o);
	assert_int_equal(tar_extract_feed(&x, stream, length, &err), 0);
	assert_int_equal(tar_extract_finish(&x, &err), 0);
	assert_int_equal(x.entries, pack.entries);
	run(SAME);
	close(dir);
}

static void a_single_file_gets_the_name_asked_for(void **s)
{
	(void)s;
	run("echo hello >f");
	assert_int_equal(pack_in_steps("f", "other", false, 512), 0);
	save();
	run("test \"$(tar -tf t.tar)\" = other && test \"$(tar -xOf t.tar)\" = hello");
}

static void links_are_followed_when_asked(void **s)
{
	(void)s;
	run("echo hello >f; ln -s f l; ln -s nowhere m");
	assert_int_equal(pack_in_steps("l", "x", false, 512), 0);
	save();
	run("test \"$(tar -tvf t.tar | cut -c1)\" = l");
	assert_int_equal(pack_in_steps("l", "x", true, 512), 0);
	save();
	run("test \"$(tar -xOf t.tar)\" = hello");
	assert_int_equal(pack_in_steps("m", "x", true, 512), -ENOENT);
	assert_non_null(strstr(err.text, "/m': No such file"));
}

static void sockets_are_left_out(void **s)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)s;
	run("mkdir src; echo x >src/f");
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/src/sock", top);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
	assert_int_equal(pack_in_steps("src", "d", false, 4096), 0);
	assert_int_equal(pack.skipped, 1);
	save();
	run("test $(tar -tf t.tar | wc -l) = 2");
	assert_int_equal(pack_in_steps("src/sock", "d", false, 4096), -EOPNOTSUPP);
}

/* In a mount namespace of its own: 0 if only the directory that proc is mounted on was packed. */
static int pack_with_proc_inside(void)
{
	static char path[256]; /* the packer keeps it */

	snprintf(path, sizeof(path), "%s/src/proc", top);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", path, "proc", 0, NULL) < 0)
		return 2;
	if (pack_in_steps("src", "s", false, 65536) < 0)
		return 3;
	return pack.entries == 3 ? 0 : 4;
}

static void what_the_kernel_makes_up_is_left_out(void **s)
{
	int status;
	pid_t pid;

	(void)s;
	if (geteuid() != 0) {
		print_message("mounting needs root\n");
		skip();
	}
	run("mkdir -p src/proc; touch src/f");
	pid = fork();
	if (pid == 0)
		_exit(pack_with_proc_inside());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* After "pack 'TOP". */
static void expect_error(const char *rest)
{
	char text[256];

	snprintf(text, sizeof(text), "pack '%s%s", top, rest);
	assert_string_equal(err.text, text);
}

static int pack_while(const char *change)
{
	static char path[256]; /* the packer keeps it */
	struct stat st;
	ssize_t n;

	err = ERR_INIT;
	run("mkdir src; head -c 100000 /dev/zero | tr '\\0' x >src/f");
	snprintf(path, sizeof(path), "%s/src", top);
	assert_int_equal(tar_pack_init(&pack, path, "s", false, &st, &err), 0);
	n = tar_pack_read(&pack, stream, 5000, &err);
	assert_int_equal(n, 5000);
	length = 5000;
	run(change);
	while ((n = tar_pack_read(&pack, stream + length, 4096, &err)) > 0)
		length += (size_t)n;
	tar_pack_finish(&pack);
	return (int)n;
}

static void a_file_that_shrinks_is_an_error(void **s)
{
	(void)s;
	assert_int_equal(pack_while("truncate -s 10000 src/f"), -EIO);
	expect_error("/src/f': it became shorter while it was copied: 10000 of 100000 bytes are there");
}

static void a_file_that_grows_is_an_error_after_all_the_rest(void **s)
{
	(void)s;
	assert_int_equal(pack_while("echo more >>src/f; mkdir -p t"), -EIO);
	expect_error("/src/f': it became longer while it was copied: only its first bytes were");
	save();
	run("tar -C t -xf t.tar && test $(stat -c %s t/s/f) = 100000 && test $(tr -d x <t/s/f | wc -c) = 0");
}

static void pack_absolute(const char *path, const char *as)
{
	struct stat st;
	ssize_t n;

	err = ERR_INIT;
	length = 0;
	assert_int_equal(tar_pack_init(&pack, path, as, false, &st, &err), 0);
	while ((n = tar_pack_read(&pack, stream + length, STREAM_MAX - length, &err)) > 0)
		length += (size_t)n;
	tar_pack_finish(&pack);
	assert_int_equal(n, 0);
	save();
}

static void files_whose_size_says_nothing_have_their_content(void **s)
{
	(void)s;
	pack_absolute("/proc/version", "v"); /* its size is 0 */
	run("tar -xOf t.tar v | cmp - /proc/version");
	pack_absolute("/sys/kernel/mm/transparent_hugepage/enabled", "e"); /* its size is a page */
	run("tar -xOf t.tar e | cmp - /sys/kernel/mm/transparent_hugepage/enabled");
}

static void a_tree_of_such_files_has_their_content(void **s)
{
	(void)s;
	pack_absolute("/proc/sys/fs/mqueue", "m");
	run("mkdir t && tar -C t -xf t.tar && cmp t/m/msg_max /proc/sys/fs/mqueue/msg_max");
}

static void what_does_not_tell_its_size_is_bounded(void **s)
{
	struct stat st;

	(void)s;
	err = ERR_INIT;
	assert_int_equal(tar_pack_init(&pack, "/proc/self/pagemap", "k", false, &st, &err), -EFBIG);
	assert_string_equal(err.text, "pack '/proc/self/pagemap': a file that does not tell its size has more than 16 MiB");
	assert_int_equal(pack.file, -1);
}

static void a_file_that_vanishes_is_left_out(void **s)
{
	static char path[256]; /* the packer keeps it */
	struct stat st;
	ssize_t n;

	(void)s;
	run("mkdir src; touch src/a src/b src/c");
	snprintf(path, sizeof(path), "%s/src", top);
	assert_int_equal(tar_pack_init(&pack, path, "src", false, &st, &err), 0);
	/* through the first entry: the directory has been listed by then */
	for (length = 0; pack.entries < 2; length += (size_t)n) {
		n = tar_pack_read(&pack, stream + length, 512, &err);
		assert_true(n > 0);
	}
	run("rm src/*");
	while ((n = tar_pack_read(&pack, stream + length, 4096, &err)) > 0)
		length += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(pack.entries, 2);
	tar_pack_finish(&pack);
	save();
	run("test $(tar -tf t.tar | wc -l) = 2");
}

static void too_deep_is_an_error_with_a_name(void **s)
{
	(void)s;
	run("p=src; i=0; while [ $i -lt 130 ]; do p=$p/d; i=$((i+1)); done; mkdir -p $p");
	assert_int_equal(pack_in_steps("src", "s", false, 65536), -ELOOP);
	assert_non_null(strstr(err.text, "128 directories deep"));
	run("test ! -e t.tar");
}

static void many_entries_need_no_more_memory(void **s)
{
	(void)s;
	run("mkdir src; cd src; for i in $(seq 1000); do echo $i >file-with-a-somewhat-long-name-$i; done");
	assert_int_equal(pack_in_steps("src", "s", false, 65536), 0);
	assert_int_equal(pack.entries, 1001);
	save();
	run("test $(tar -tf t.tar | wc -l) = 1001");
}

static void names_must_fit(void **s)
{
	char *name = malloc(TAR_PATH_MAX + 1);

	(void)s;
	run("touch f");
	memset(name, 'n', TAR_PATH_MAX);
	name[TAR_PATH_MAX] = '\0';
	assert_int_equal(pack_in_steps("f", name, false, 512), -ENAMETOOLONG);
	assert_int_equal(pack_in_steps("f", "", false, 512), -ENAMETOOLONG);
	free(name);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(gnu_tar_unpacks_it),
		T(our_own_reader_unpacks_it),
		T(a_single_file_gets_the_name_asked_for),
		T(links_are_followed_when_asked),
		T(sockets_are_left_out),
		T(what_the_kernel_makes_up_is_left_out),
		T(a_file_that_shrinks_is_an_error),
		T(a_file_that_grows_is_an_error_after_all_the_rest),
		T(files_whose_size_says_nothing_have_their_content),
		T(a_tree_of_such_files_has_their_content),
		T(what_does_not_tell_its_size_is_bounded),
		T(a_file_that_vanishes_is_left_out),
		T(too_deep_is_an_error_with_a_name),
		T(many_entries_need_no_more_memory),
		T(names_must_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
