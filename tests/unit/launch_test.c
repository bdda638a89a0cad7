/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided before a VM starts: its kernel, the monitor's command line, the guest's name. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/kernel.h"
#include "host/launch.h"
#include "host/launch_disks.h"
#include "host/snapshot_record.h"
#include "host/vmargs.h"
#include "lib/le.h"
#include "lib/util.h"
#include "tests/harness/home.h"

static struct home home;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	setenv("COFFER_VMM", "/bin/true", 1);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	home_remove(&home);
	return 0;
}

static const char *make_file(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", home.path, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_int_equal(ftruncate(fd, 4096), 0);
	close(fd);
	return path;
}

/* ---- the kernel ---- */

static void the_newest_version_is_chosen_by_number(void **s)
{
	char out[256];

	(void)s;
	make_file("vmlinuz-6.1.0-9-cloud-amd64");
	make_file("vmlinuz-6.1.0-10-cloud-amd64");
	make_file("vmlinuz-6.9.0-1-amd64");
	assert_int_equal(kernel_newest(home.path, "vmlinuz-*-cloud-amd64", NULL, out, sizeof(out)), 0);
	assert_string_equal(strrchr(out, '/'), "/vmlinuz-6.1.0-10-cloud-amd64");
	assert_int_equal(kernel_newest(home.path, "vmlinuz-*-amd64", "*-cloud-*", out, sizeof(out)), 0);
	assert_string_equal(strrchr(out, '/'), "/vmlinuz-6.9.0-1-amd64");
	assert_int_equal(kernel_newest(home.path, "vmlinux-*", NULL, out, sizeof(out)), -ENOENT);
}

static void make_small_kernel(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/cache/coffer", home.path);
	mkdir(path, 0755);
	strcat(path, "/kernel");
	mkdir(path, 0755);
	strcat(path, "/current");
	mkdir(path, 0755);
	make_file("cache/coffer/kernel/current/vmlinux");
}

static void the_small_kernel_comes_first_when_it_is_built(void **s)
{
	char out[256];

	(void)s;
	make_small_kernel();
	assert_int_equal(kernel_choose(NULL, false, out, sizeof(out), NULL), 0);
	assert_non_null(strstr(out, "/cache/coffer/kernel/current/vmlinux"));
}

static void with_a_display_only_a_kernel_that_draws_is_chosen(void **s)
{
	static const char *const draws = "CONFIG_DRM=y\nCONFIG_DRM_VIRTIO_GPU=y\n";
	char out[256] = "", path[256];
	int r, fd;

	(void)s;
	make_small_kernel();
	r = kernel_choose(NULL, true, out, sizeof(out), NULL);
	if (r == 0) {
		assert_null(strstr(out, "/cache/coffer/kernel/current/vmlinux"));
		assert_null(strstr(out, "cloud"));
	}
	snprintf(path, sizeof(path), "%s", make_file("cache/coffer/kernel/current/config"));
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(write(fd, draws, strlen(draws)), strlen(draws));
	close(fd);
	assert_int_equal(kernel_choose(NULL, true, out, sizeof(out), NULL), 0);
	assert_non_null(strstr(out, "/cache/coffer/kernel/current/vmlinux"));
}

static void a_kernel_that_is_not_there_is_named(void **s)
{
	struct err err = ERR_INIT;
	char out[256];

	(void)s;
	assert_int_equal(kernel_choose("/no/kernel", false, out, sizeof(out), &err), -ENOENT);
	assert_string_equal(err.text, "--kernel '/no/kernel': No such file or directory: give a bzImage or an ELF vmlinux");
}

static void what_is_no_kernel_and_no_initrd_is_said_in_the_same_words(void **s)
{
	static const char *const options[] = { "--kernel", "--initrd" };
	char out[256], expected[400], path[256];

	(void)s;
	snprintf(path, sizeof(path), "%s", make_file("empty"));
	assert_int_equal(truncate(path, 0), 0);
	for (size_t i = 0; i < 2; i++) {
		struct err err = ERR_INIT;

		assert_int_equal(kernel_resolve(options[i], home.path, "X", out, sizeof(out), &err), -EINVAL);
		snprintf(expected, sizeof(expected), "%s '%s': is a directory: give X", options[i], home.path);
		assert_string_equal(err.text, expected);
		assert_int_equal(kernel_resolve(options[i], "/dev/null", "X", out, sizeof(out), &err), -EINVAL);
		snprintf(expected, sizeof(expected), "%s '/dev/null': is not a regular file: give X", options[i]);
		assert_string_equal(err.text, expected);
		assert_int_equal(kernel_resolve(options[i], path, "X", out, sizeof(out), &err), -EINVAL);
		snprintf(expected, sizeof(expected), "%s '%s': is empty: give X", options[i], path);
		assert_string_equal(err.text, expected);
	}
	assert_int_equal(kernel_resolve("--initrd", make_file("full"), "X", out, sizeof(out), NULL), 0);
	assert_string_equal(strrchr(out, '/'), "/full");
}

/* ---- the command line ---- */

static void prepare(struct launch *l, struct launch_options *o)
{
	launch_init(l);
	*o = (struct launch_options){ .cpus = 2, .memory = MIB(512) };
	strcpy(l->dir.id, "a_b.c");
	strcpy(l->dir.path, "/run/coffer/a_b.c");
	strcpy(l->dir.disks.path, "/var/lib/coffer/vms");
	strcpy(l->kernel, "/boot/k");
	strcpy(l->initrd, "/cache/i");
	l->dir.lock_fd = 50;
}

static bool has(const struct vmargs *a, const char *word)
{
	for (size_t i = 0; i < a->argc; i++)
		if (!strcmp(a->argv[i], word))
			return true;
	return false;
}

static void the_monitor_gets_what_was_asked_for(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vmargs *a;

	(void)s;
	prepare(&l, &o);
	o.devices = (struct opt_strv){ { "console,log=c" }, 1 };
	assert_int_equal(vmargs_make(&l, &o, &a, NULL), 0);
	assert_string_equal(a->argv[0], "/bin/true");
	assert_true(has(a, "--dir=/run/coffer/a_b.c"));
	assert_true(has(a, "--kernel=/boot/k"));
	assert_true(has(a, "--initrd=/cache/i"));
	assert_true(has(a, "--cpus=2"));
	assert_true(has(a, "--memory=512M"));
	assert_true(has(a, "--keep-fd=50"));
	assert_true(has(a, "vsock,path=vsock.sock"));
	assert_true(has(a, "console,log=c"));
	assert_false(has(a, "--no-seccomp"));
	assert_int_equal(a->nfds, 1);
	assert_int_equal(a->fd[0], 50);
	vmargs_free(a);
}

/* Directories for real, so that disks can be made. */
static void prepare_disks(struct launch *l, struct launch_options *o)
{
	launch_init(l);
	*o = (struct launch_options){ .cpus = 2, .memory = MIB(512), .overlay_size = MIB(64) };
	assert_int_equal(vmdir_create("a_b.c", &l->dir, NULL), 0);
	strcpy(l->kernel, "/boot/k");
	strcpy(l->initrd, "/cache/i");
}

static void use_image(struct launch *l, const char *file)
{
	strcpy(l->image.path, make_file(file));
	l->image_fd = open(l->image.path, O_RDONLY | O_CLOEXEC);
}

/* An ext4 image of 70 MiB and a block. */
static void use_direct_image(struct launch *l)
{
	use_image(l, "img,1");
	strcpy(l->image.name, "debian");
	l->image.size = MIB(70) + 4096;
	l->direct = true;
}

/* Disks and command line; to be given to vmargs_free. */
static struct vmargs *make_all(struct launch *l, const struct launch_options *o)
{
	struct vmargs *a;

	assert_int_equal(launch_disks_make(l, o, NULL), 0);
	assert_int_equal(vmargs_make(l, o, &a, NULL), 0);
	return a;
}

static const char *disk(const struct vmargs *a, size_t number)
{
	for (size_t i = 0; i < a->argc; i++)
		if (!strncmp(a->argv[i], "blk,", 4) && number-- == 0)
			return a->argv[i];
	return "";
}

static void an_image_and_its_overlay_are_the_first_two_disks(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vmargs *a;
	char expected[300];

	(void)s;
	prepare_disks(&l, &o);
	use_image(&l, "img,1");
	o.disks = (struct opt_strv){ { make_file("own") }, 1 };
	a = make_all(&l, &o);
	snprintf(expected, sizeof(expected), "blk,path=%s/img,,1,ro", home.path);
	assert_string_equal(disk(a, 0), expected);
	snprintf(expected, sizeof(expected), "blk,backend=layers,size=67108864,cache=unsafe,layers=%d,top=%d:%d",
		 l.disks.disk[1]->layer_fd[0], l.disks.disk[1]->top_data_fd, l.disks.disk[1]->top_index_fd);
	assert_string_equal(disk(a, 1), expected);
	snprintf(expected, sizeof(expected), "--keep-fd=%d", l.disks.disk[1]->top_data_fd);
	assert_true(has(a, expected));
	assert_non_null(strstr(disk(a, 2), "/own"));
	assert_null(strstr(disk(a, 2), ",ro"));
	assert_true(l.read_write_disks);
	snprintf(expected, sizeof(expected), "--keep-fd=%d", l.image_fd);
	assert_true(has(a, expected));
	vmargs_free(a);
	launch_end(&l, false, NULL);
}

static void an_ext4_image_is_one_disk_with_a_top_of_its_own(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vmargs *a;
	char expected[300];

	(void)s;
	prepare_disks(&l, &o);
	use_direct_image(&l);
	o.overlay_size = MIB(71) - 4096;
	o.disks = (struct opt_strv){ { make_file("own") }, 1 };
	a = make_all(&l, &o);
	snprintf(expected, sizeof(expected), "blk,backend=layers,size=%llu,cache=unsafe,base=%d,top=%d:%d",
		 (unsigned long long)MIB(71), l.disks.disk[0]->base_fd, l.disks.disk[0]->top_data_fd, l.disks.disk[0]->top_index_fd);
	assert_string_equal(disk(a, 0), expected);
	assert_string_equal(l.disks.disk[0]->d.image, "debian");
	assert_non_null(strstr(disk(a, 1), "/own"));
	assert_int_equal(l.first_user_disk, 1);
	vmargs_free(a);
	launch_end(&l, false, NULL);
}

static void as_many_layers_as_an_image_has_are_inherited(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vm_disk *d;
	struct vmargs *a;
	char *word = NULL;
	size_t n = 0;

	(void)s;
	prepare_disks(&l, &o);
	assert_int_equal(vm_disks_add_layers(&l.disks, MIB(64), NULL, NULL, &d, NULL), 0);
	for (int k = 0; k < IMAGE_LAYERS_MAX; k++) {
		int data = open("/dev/null", O_RDWR | O_CLOEXEC), table = open("/dev/null", O_RDWR | O_CLOEXEC);

		assert_int_equal(vm_disk_add_remote_layer(d, 0, data, table, &(struct snapshot_layer){ .size = 4096 }, NULL), 0);
	}
	assert_int_equal(vmargs_make(&l, &o, &a, NULL), 0);
	for (size_t i = 0; i < a->argc; i++)
		if (!strncmp(a->argv[i], "--keep-fd=", 10) && strchr(a->argv[i], ':')) {
			word = strdup(a->argv[i] + 9);
			for (char *p = word; p; p = strchr(p + 1, ':'))
				n++;
		}
	assert_int_equal(n, 2 * IMAGE_LAYERS_MAX);
	assert_true(a->nfds >= n);
	free(word);
	vmargs_free(a);
	launch_end(&l, false, NULL);
}

static void a_root_smaller_than_its_image_is_refused(void **s)
{
	struct launch l;
	struct launch_options o;
	struct err err = ERR_INIT;

	(void)s;
	prepare_disks(&l, &o);
	use_direct_image(&l);
	assert_int_equal(launch_disks_prepare(&l, &o, &err), -EINVAL);
	assert_non_null(strstr(err.text, "64 MiB is less than the 71 MiB of the image 'debian'"));
	assert_int_equal(launch_disks_make(&l, &o, NULL), -EINVAL);
	o.overlay_size = 0;
	assert_int_equal(launch_disks_prepare(&l, &o, &err), 0);
	launch_end(&l, false, NULL);
}

static void only_an_ext4_that_can_be_written_is_one_disk(void **s)
{
	static uint8_t b[2048];
	struct image image = { .format = IMAGE_FORMAT_EXT4 };
	FILE *f;

	(void)s;
	strcpy(image.path, make_file("ext4"));
	for (uint32_t features = 0; features <= 0x1000; features += 0x1000) {
		le32_store(b + 1024 + 100, 0x46b | features);
		f = fopen(image.path, "we");
		assert_non_null(f);
		assert_int_equal(fwrite(b, 1, sizeof(b), f), sizeof(b));
		fclose(f);
		assert_int_equal(launch_disks_direct(&image), features == 0);
	}
	le32_store(b + 1024 + 100, 0);
	image.format = IMAGE_FORMAT_EROFS;
	assert_false(launch_disks_direct(&image));
}

static void a_disk_of_the_user_s_may_be_read_only(void **s)
{
	struct launch l;
	struct launch_options o;
	char text[300];

	(void)s;
	prepare_disks(&l, &o);
	snprintf(text, sizeof(text), "%s,ro", make_file("own"));
	o.disks = (struct opt_strv){ { text }, 1 };
	assert_int_equal(launch_disks_make(&l, &o, NULL), 0);
	assert_false(l.read_write_disks);
	launch_end(&l, false, NULL);
}

static void what_is_written_to_a_cow_disk_goes_into_a_layer(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vmargs *a;
	char text[300], expected[300];

	(void)s;
	prepare_disks(&l, &o);
	snprintf(text, sizeof(text), "%s,cow", make_file("own"));
	o.disks = (struct opt_strv){ { text }, 1 };
	a = make_all(&l, &o);
	assert_false(l.read_write_disks);
	snprintf(expected, sizeof(expected), "blk,backend=layers,size=4096,cache=unsafe,base=%d,top=%d:%d", l.disks.disk[0]->base_fd,
		 l.disks.disk[0]->top_data_fd, l.disks.disk[0]->top_index_fd);
	assert_string_equal(disk(a, 0), expected);
	vmargs_free(a);
	launch_end(&l, false, NULL);
}

static void as_many_cow_disks_as_a_vm_can_have_are_passed_on_beside_an_image(void **s)
{
	char text[6][300], devices[OPT_LIST_MAX][16], name[8];
	struct launch l;
	struct launch_options o;
	struct vmargs *a;

	(void)s;
	prepare_disks(&l, &o);
	use_image(&l, "img");
	for (size_t i = 0; i < ARRAY_SIZE(text); i++) {
		snprintf(name, sizeof(name), "k%zu", i);
		snprintf(text[i], sizeof(text[i]), "%s,cow", make_file(name));
		o.disks.v[o.disks.n++] = text[i];
	}
	for (size_t i = 0; i < OPT_LIST_MAX; i++) {
		snprintf(devices[i], sizeof(devices[i]), "console,log=%zu", i);
		o.devices.v[o.devices.n++] = devices[i];
	}
	o.log_level = (char[]){ "debug" };
	o.no_seccomp = true;
	a = make_all(&l, &o);
	assert_int_equal(l.disks.n, 8);
	/* overlay and cow: three each; the image; the locks of the two directories */
	assert_int_equal(a->nfds, 3 * 7 + 1 + 2);
	assert_true(has(a, devices[OPT_LIST_MAX - 1]));
	assert_non_null(strstr(disk(a, 7), "backend=layers"));
	vmargs_free(a);
	launch_end(&l, false, NULL);
}

static void more_than_fits_is_an_error_and_exactly_what_fits_is_not(void **s)
{
	struct vmargs *a = calloc(1, sizeof(*a));
	struct err err = ERR_INIT;

	(void)s;
	assert_non_null(a);
	for (int i = 0; i < VMARGS_FDS_MAX; i++)
		vmargs_inherit_fd(a, i);
	assert_int_equal(vmargs_check(a, &err), 0);
	vmargs_inherit_fd(a, VMARGS_FDS_MAX);
	assert_int_equal(vmargs_check(a, &err), -E2BIG);
	a->full = false;
	while (a->argc < VMARGS_MAX)
		assert_int_equal(vmargs_add(a, "x"), 0);
	assert_int_equal(vmargs_check(a, &err), 0);
	assert_int_equal(vmargs_add(a, "x"), -E2BIG);
	assert_int_equal(vmargs_check(a, &err), -E2BIG);
	vmargs_free(a);
}

static void a_device_of_the_user_s_replaces_the_one_of_its_kind(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vmargs *a;

	(void)s;
	prepare(&l, &o);
	o.devices = (struct opt_strv){ { "rng,source=/dev/hwrng" }, 1 };
	assert_int_equal(vmargs_make(&l, &o, &a, NULL), 0);
	assert_true(has(a, "rng,source=/dev/hwrng"));
	assert_false(has(a, "rng"));
	assert_true(has(a, "balloon"));
	vmargs_free(a);
	assert_int_equal(vmargs_check_devices(&o.devices, NULL), 0);
	o.devices.v[0] = "vsock,path=x";
	assert_int_equal(vmargs_check_devices(&o.devices, NULL), -EINVAL);
}

static void a_disk_that_is_not_there_is_named(void **s)
{
	struct launch l;
	struct launch_options o;
	struct err err = ERR_INIT;

	(void)s;
	prepare_disks(&l, &o);
	o.disks = (struct opt_strv){ { "/no/disk" }, 1 };
	assert_int_equal(launch_disks_make(&l, &o, &err), -ENOENT);
	assert_string_equal(err.text, "--disk '/no/disk': No such file or directory");
	launch_end(&l, false, NULL);
}

static void the_record_says_what_the_vm_is_made_of(void **s)
{
	struct snapshot_manifest m;
	struct launch l;
	struct launch_options o;
	char text[300];

	(void)s;
	prepare_disks(&l, &o);
	snprintf(text, sizeof(text), "%s,cow", make_file("own"));
	o.disks = (struct opt_strv){ { text }, 1 };
	o.devices = (struct opt_strv){ { "console,log=c" }, 1 };
	assert_int_equal(launch_disks_make(&l, &o, NULL), 0);
	assert_int_equal(launch_disks_record(&l, &o, NULL), 0);
	assert_int_equal(snapshot_record_read(l.dir.fd, &m, NULL), 0);
	assert_int_equal(m.cpus, 2);
	assert_int_equal(m.memory, MIB(512));
	assert_int_equal(m.ndisks, 1);
	assert_int_equal(m.disk[0].kind, SNAPSHOT_DISK_LAYERS);
	assert_int_equal(m.disk[0].path_size, 4096);
	assert_string_equal(m.device[m.ndevices - 1], "console,log=c");
	assert_string_equal(m.parent_id, "");
	snapshot_manifest_finish(&m);
	launch_end(&l, false, NULL);
}

static void the_kernel_s_command_line_carries_names_and_roots(void **s)
{
	struct launch l;
	struct launch_options o;

	(void)s;
	prepare(&l, &o);
	char *line = vmargs_cmdline(&l, &o);

	assert_non_null(strstr(line, "console=ttyS0"));
	assert_non_null(strstr(line, " coffer.hostname=a-b.c"));
	assert_null(strstr(line, "coffer.root"));
	free(line);
	l.image_fd = 51;
	o.append = (char[]){ "loglevel=7 x=y" };
	line = vmargs_cmdline(&l, &o);
	assert_non_null(strstr(line, " coffer.root=/dev/vda coffer.overlay=/dev/vdb"));
	assert_string_equal(line + strlen(line) - strlen(" loglevel=7 x=y"), " loglevel=7 x=y");
	free(line);
	l.direct = true;
	line = vmargs_cmdline(&l, &o);
	assert_non_null(strstr(line, " coffer.root=/dev/vda rw loglevel"));
	assert_null(strstr(line, "overlay"));
	free(line);
}

static void a_command_line_that_is_too_long_names_append(void **s)
{
	struct launch l;
	struct launch_options o;
	struct vmargs *a;
	struct err err = ERR_INIT;
	char words[2049];

	(void)s;
	prepare(&l, &o);
	memset(words, 'x', sizeof(words) - 1);
	words[sizeof(words) - 1] = 0;
	char *line = vmargs_cmdline(&l, &o);
	size_t room = VMARGS_CMDLINE_MAX - strlen(line) - 1; /* a blank */

	free(line);
	o.append = words;
	words[room] = 0;
	assert_int_equal(vmargs_make(&l, &o, &a, &err), 0);
	vmargs_free(a);
	words[room] = 'x';
	words[room + 1] = 0;
	assert_int_equal(vmargs_make(&l, &o, &a, &err), -E2BIG);
	assert_non_null(strstr(err.text, "--append: "));
	assert_non_null(strstr(err.text, "2048 bytes"));
	assert_non_null(strstr(err.text, "2047"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_newest_version_is_chosen_by_number),
		T(the_small_kernel_comes_first_when_it_is_built),
		T(with_a_display_only_a_kernel_that_draws_is_chosen),
		T(a_kernel_that_is_not_there_is_named),
		T(what_is_no_kernel_and_no_initrd_is_said_in_the_same_words),
		T(the_monitor_gets_what_was_asked_for),
		T(an_image_and_its_overlay_are_the_first_two_disks),
		T(an_ext4_image_is_one_disk_with_a_top_of_its_own),
		T(as_many_layers_as_an_image_has_are_inherited),
		T(a_root_smaller_than_its_image_is_refused),
		T(only_an_ext4_that_can_be_written_is_one_disk),
		T(a_disk_of_the_user_s_may_be_read_only),
		T(as_many_cow_disks_as_a_vm_can_have_are_passed_on_beside_an_image),
		T(more_than_fits_is_an_error_and_exactly_what_fits_is_not),
		T(a_device_of_the_user_s_replaces_the_one_of_its_kind),
		T(a_disk_that_is_not_there_is_named),
		T(what_is_written_to_a_cow_disk_goes_into_a_layer),
		T(the_record_says_what_the_vm_is_made_of),
		T(the_kernel_s_command_line_carries_names_and_roots),
		T(a_command_line_that_is_too_long_names_append),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
