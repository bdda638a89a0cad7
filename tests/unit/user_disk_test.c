/* SPDX-License-Identifier: Apache-2.0 */
/* What --disk takes, and that each mistake is said in the user's words. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/user_disk.h"
#include "tests/harness/home.h"

static struct home home;

static const char *make_file(const char *name, off_t size)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", home.path, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
	return path;
}

/* The text must be refused with `code`, quote itself, and say `words`. */
static void refused(const char *text, int code, const char *words)
{
	struct user_disk d;
	struct err err = ERR_INIT;
	char quoted[400];

	assert_int_equal(user_disk_parse(text, &d, &err), code);
	snprintf(quoted, sizeof(quoted), "--disk '%s': ", text);
	assert_non_null(strstr(err.text, quoted));
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
}

static void a_path_alone_is_written_to(void **s)
{
	struct user_disk d = { .ro = true };

	(void)s;
	assert_int_equal(user_disk_parse(make_file("a", 1024), &d, NULL), 0);
	assert_false(d.ro);
	assert_non_null(strstr(d.path, "/a"));
}

static void ro_and_doubled_commas_are_understood(void **s)
{
	struct user_disk d;
	char text[300];

	(void)s;
	make_file("a,b", 512);
	snprintf(text, sizeof(text), "%s/a,,b,ro", home.path);
	assert_int_equal(user_disk_parse(text, &d, NULL), 0);
	assert_true(d.ro);
	assert_string_equal(strrchr(d.path, '/'), "/a,b");
}

static void mistakes_in_the_form_show_the_form(void **s)
{
	(void)s;
	refused("", -EINVAL, "the form is PATH[,ro|,cow]");
	refused("ro", -EINVAL, "the form is PATH[,ro|,cow]");
	refused("path=", -EINVAL, "the form is PATH[,ro|,cow]");
	refused("d,xx", -EINVAL, "unknown key 'xx': the form is PATH[,ro|,cow]");
	refused("d,,xx", -ENOENT, "No such file");
	refused("d,ro=maybe", -EINVAL, "the form is PATH[,ro|,cow]");
	refused("d,", -ENOENT, "No such file");
}

static void what_is_no_disk_is_said(void **s)
{
	char fifo[300];

	(void)s;
	snprintf(fifo, sizeof(fifo), "%s/fifo", home.path);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	refused(fifo, -EINVAL, "is a FIFO");
	refused(home.path, -EINVAL, "is a directory");
	refused("/dev/null", -EINVAL, "is a character device");
	refused("/no/disk", -ENOENT, "No such file or directory");
}

static void an_odd_size_is_said(void **s)
{
	(void)s;
	refused(make_file("empty", 0), -EINVAL, "has 0 bytes");
	refused(make_file("odd", 1000), -EINVAL, "has 1000 bytes");
}

/* Without them root is bound by modes as everybody is. For good: the test that needs it is the last one. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	assert_int_equal(syscall(SYS_capset, &head, data), 0);
}

static void a_file_that_may_not_be_written_can_be_read(void **s)
{
	struct user_disk d;
	char text[300];

	(void)s;
	drop_capabilities();
	snprintf(text, sizeof(text), "%s", make_file("read-only", 512));
	assert_int_equal(chmod(text, 0400), 0);
	refused(text, -EACCES, ",ro' opens it read-only");
	strcat(text, ",ro");
	assert_int_equal(user_disk_parse(text, &d, NULL), 0);
}

static void the_first_mistake_of_several_is_said(void **s)
{
	struct opt_strv disks = { { make_file("a", 512), "/no/disk" }, 2 };
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(user_disk_check(&disks, true, &err), -ENOENT);
	assert_non_null(strstr(err.text, "'/no/disk'"));
	disks.n = 1;
	assert_int_equal(user_disk_check(&disks, true, NULL), 0);
}

static void an_image_leaves_room_for_two_disks_less(void **s)
{
	struct opt_strv disks = { .n = 0 };
	struct err err = ERR_INIT;

	(void)s;
	for (size_t i = 0; i < 8; i++)
		disks.v[i] = make_file("a", 512);
	disks.n = 6;
	assert_int_equal(user_disk_check(&disks, true, NULL), 0);
	disks.n = 7;
	assert_int_equal(user_disk_check(&disks, true, &err), -E2BIG);
	assert_string_equal(err.text, "at most 6 --disk with a root image, 7 given");
	disks.n = 8;
	assert_int_equal(user_disk_check(&disks, false, NULL), 0);
	disks.n = 9;
	assert_int_equal(user_disk_check(&disks, false, &err), -E2BIG);
}

static void what_the_monitor_says_of_a_disk_names_the_argument(void **s)
{
	struct opt_strv disks = { { "a", "b,ro" }, 2 };
	struct err err = ERR_INIT;

	(void)s;
	err_set(&err, -EIO, "monitor: blk3: '/x' is in use by process 7");
	user_disk_name_error(&disks, 2, &err);
	assert_string_equal(err.text, "--disk 'b,ro': '/x' is in use by process 7");
	assert_int_equal(err.code, -EIO);
}

static void what_the_monitor_says_of_other_things_stays(void **s)
{
	static const char *const texts[] = { "monitor: blk1: bad", "monitor: blk4: bad", "monitor: blkx: bad", "monitor: blk2", "blk2: bad" };
	struct opt_strv disks = { { "a", "b" }, 2 };

	(void)s;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct err err = ERR_INIT;

		err_set(&err, -EIO, "%s", texts[i]);
		user_disk_name_error(&disks, 2, &err);
		assert_string_equal(err.text, texts[i]);
	}
}

#define T(name) cmocka_unit_test_prestate_setup_teardown(name, home_set_up, home_tear_down, &home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_path_alone_is_written_to),
		T(ro_and_doubled_commas_are_understood),
		T(mistakes_in_the_form_show_the_form),
		T(what_is_no_disk_is_said),
		T(an_odd_size_is_said),
		T(the_first_mistake_of_several_is_said),
		T(an_image_leaves_room_for_two_disks_less),
		T(what_the_monitor_says_of_a_disk_names_the_argument),
		T(what_the_monitor_says_of_other_things_stays),
		T(a_file_that_may_not_be_written_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
