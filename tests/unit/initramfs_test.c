/* SPDX-License-Identifier: Apache-2.0 */
/* host/initramfs, host/modules, host/cpio: against a made-up kernel with a made-up module directory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <cmocka.h>

#include "host/cpio.h"
#include "host/file.h"
#include "host/initramfs.h"
#include "host/modules.h"
#include "lib/util.h"

#define VERSION "6.9.0-test-amd64"

struct fixture {
	char dir[64];          /* everything is below it; the kernel is DIR/boot/kernel */
	char kernel[256];
	char agent[256];
	char modules[256];
	bool display;
};

static void write_file(const char *path, const void *data, size_t n)
{
	struct err err = ERR_INIT;

	assert_int_equal(file_write_atomic(path, data, n, 0644, false, &err), 0);
}

static void write_text(const struct fixture *f, const char *name, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", f->modules, name);
	write_file(path, text, strlen(text));
}

static void write_bzimage(const char *path, const char *version)
{
	uint8_t image[0x1000] = { 0 };

	memcpy(image + 0x202, "HdrS", 4);
	image[0x20f] = 0x04; /* 0x400 + 0x200 */
	memcpy(image + 0x600, version, strlen(version) + 1);
	write_file(path, image, sizeof(image));
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;
	char path[PATH_MAX];

	assert_non_null(f);
	strcpy(f->dir, "/tmp/coffer-initramfs-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(path, sizeof(path), "%s/cache", f->dir);
	setenv("XDG_CACHE_HOME", path, 1);
	snprintf(f->modules, sizeof(f->modules), "%s/lib/modules/" VERSION, f->dir);
	assert_int_equal(file_make_dirs(f->modules, 0755, &err), 0);
	snprintf(path, sizeof(path), "%s/boot", f->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(f->kernel, sizeof(f->kernel), "%s/boot/kernel", f->dir);
	write_bzimage(f->kernel, VERSION " (someone@example.org) #1 SMP");
	snprintf(f->agent, sizeof(f->agent), "%s/agent", f->dir);
	write_file(f->agent, "\177ELF-agent", 10);

	/* virtio_blk lists its dependencies in the reverse order, as depmod does; ext4 is built in. */
	write_text(f, "modules.dep",
		   "k/virtio_blk.ko: k/virtio.ko k/virtio_ring.ko\n"
		   "k/virtio.ko: k/virtio_ring.ko\n"
		   "k/virtio_ring.ko:\n"
		   "k/virtio_mmio.ko: k/virtio.ko k/virtio_ring.ko\n"
		   "k/vmw_vsock_virtio_transport.ko: k/vsock.ko k/virtio.ko k/virtio_ring.ko\n"
		   "k/vsock.ko:\n"
		   "k/pvpanic-mmio.ko:\n"
		   "k/overlay.ko:\n"
		   "k/unrelated.ko:\n");
	write_text(f, "modules.builtin", "k/fs/ext4/ext4.ko\n");
	snprintf(path, sizeof(path), "%s/k", f->modules);
	assert_int_equal(mkdir(path, 0755), 0);
	static const char *const names[] = { "virtio_blk", "virtio", "virtio_ring", "virtio_mmio",
					     "vmw_vsock_virtio_transport", "vsock", "pvpanic-mmio", "overlay", "unrelated" };
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char name[64], text[64];

		snprintf(name, sizeof(name), "k/%s.ko", names[i]);
		snprintf(text, sizeof(text), "module %s", names[i]);
		write_text(f, name, text);
	}
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	file_remove_tree(AT_FDCWD, f->dir);
	free(f);
	return 0;
}

static int build(const struct fixture *f, char out[PATH_MAX], struct err *err)
{
	*err = ERR_INIT;
	return initramfs_build(f->agent, f->kernel, f->display, out, PATH_MAX, err);
}

/* What cpio(1) prints for the archive, run with `args`. */
static void run_cpio(const char *archive, const char *args, char *out, size_t len)
{
	char command[PATH_MAX + 64];
	size_t n;
	FILE *p;

	snprintf(command, sizeof(command), "cpio --quiet %s < '%s' 2>&1", args, archive);
	p = popen(command, "r");
	assert_non_null(p);
	n = fread(out, 1, len - 1, p);
	out[n] = '\0';
	assert_int_equal(pclose(p), 0);
}

static void cpio_lists_the_members(void **state)
{
	char out[PATH_MAX], text[4096];
	struct err err;

	assert_int_equal(build(*state, out, &err), 8);
	run_cpio(out, "-t", text, sizeof(text));
	assert_string_equal(text, "dev\nproc\nsys\nlib\nlib/modules\ndev/console\ninit\n"
				  "lib/modules/virtio_ring.ko\nlib/modules/virtio.ko\nlib/modules/virtio_mmio.ko\n"
				  "lib/modules/virtio_blk.ko\nlib/modules/vsock.ko\n"
				  "lib/modules/vmw_vsock_virtio_transport.ko\nlib/modules/overlay.ko\n"
				  "lib/modules/pvpanic_mmio.ko\nmodules.list\n");
}

static void init_is_executable_and_owned_by_root(void **state)
{
	char out[PATH_MAX], text[4096];
	struct err err;

	assert_true(build(*state, out, &err) >= 0);
	run_cpio(out, "-tvn init", text, sizeof(text));
	assert_memory_equal(text, "-rwxr-xr-x", 10);
	assert_non_null(strstr(text, " 0        0 "));
}

static void list_has_every_module_after_its_dependencies(void **state)
{
	char out[PATH_MAX], text[4096];
	struct err err;

	assert_true(build(*state, out, &err) >= 0);
	run_cpio(out, "-i --to-stdout modules.list", text, sizeof(text));
	static const char first[] = "/lib/modules/virtio_ring.ko\n/lib/modules/virtio.ko\n/lib/modules/virtio_mmio.ko\n";
	assert_memory_equal(text, first, strlen(first));
	assert_true(strstr(text, "/vsock.ko") < strstr(text, "/vmw_vsock_virtio_transport.ko"));
	assert_null(strstr(text, "ext4"));
	assert_null(strstr(text, "unrelated"));
}

static void a_display_brings_its_modules(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX], text[4096];
	struct err err;

	f->display = true;
	assert_int_equal(build(f, out, &err), -ENOENT);
	assert_non_null(strstr(err.text, "has no virtio_gpu"));
	assert_non_null(strstr(err.text, "linux-image-amd64"));
	write_text(f, "modules.dep",
		   "k/virtio_blk.ko: k/virtio.ko k/virtio_ring.ko\n"
		   "k/virtio.ko: k/virtio_ring.ko\n"
		   "k/virtio_ring.ko:\n"
		   "k/virtio_mmio.ko: k/virtio.ko k/virtio_ring.ko\n"
		   "k/vmw_vsock_virtio_transport.ko: k/vsock.ko k/virtio.ko k/virtio_ring.ko\n"
		   "k/vsock.ko:\n"
		   "k/overlay.ko:\n"
		   "k/drm.ko:\n"
		   "k/virtio-gpu.ko: k/drm.ko k/virtio.ko k/virtio_ring.ko\n");
	write_text(f, "modules.builtin", "k/fs/ext4/ext4.ko\nk/virtio_input.ko\nk/evdev.ko\n");
	write_text(f, "k/drm.ko", "module drm");
	write_text(f, "k/virtio-gpu.ko", "module virtio-gpu");
	assert_true(build(f, out, &err) >= 0);
	run_cpio(out, "-i --to-stdout modules.list", text, sizeof(text));
	assert_non_null(strstr(text, "/drm.ko\n/lib/modules/virtio_gpu.ko\n"));
	f->display = false;
	assert_true(build(f, out, &err) >= 0);
	run_cpio(out, "-i --to-stdout modules.list", text, sizeof(text));
	assert_null(strstr(text, "drm"));
}

static void same_input_is_the_same_file(void **state)
{
	char a[PATH_MAX], b[PATH_MAX];
	struct stat sa, sb;
	struct err err;

	assert_true(build(*state, a, &err) >= 0);
	assert_int_equal(stat(a, &sa), 0);
	assert_true(build(*state, b, &err) >= 0);
	assert_int_equal(stat(b, &sb), 0);
	assert_string_equal(a, b);
	assert_int_equal(sa.st_ino, sb.st_ino);
}

static void another_agent_is_another_file(void **state)
{
	struct fixture *f = *state;
	char a[PATH_MAX], b[PATH_MAX];
	struct err err;

	assert_true(build(f, a, &err) >= 0);
	write_file(f->agent, "\177ELF-AGENT", 10);
	assert_true(build(f, b, &err) >= 0);
	assert_string_not_equal(a, b);
}

static void truncated_cache_file_is_replaced(void **state)
{
	char out[PATH_MAX];
	struct stat before, after;
	struct err err;

	assert_true(build(*state, out, &err) >= 0);
	assert_int_equal(stat(out, &before), 0);
	assert_int_equal(truncate(out, 100), 0);
	assert_true(build(*state, out, &err) >= 0);
	assert_int_equal(stat(out, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
}

static void compressed_modules_are_unpacked(void **state)
{
	struct fixture *f = *state;
	static const char text[] = "unpacked contents unpacked contents unpacked contents";
	uint8_t xz[512], zst[512];
	size_t xz_size = 0, zst_size = ZSTD_compress(zst, sizeof(zst), text, strlen(text), 3);
	char out[PATH_MAX], path[PATH_MAX], got[256];
	struct err err;

	assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL, (const uint8_t *)text, strlen(text), xz, &xz_size,
						 sizeof(xz)), LZMA_OK);
	snprintf(path, sizeof(path), "%s/k/overlay.ko.xz", f->modules);
	write_file(path, xz, xz_size);
	snprintf(path, sizeof(path), "%s/k/virtio_blk.ko.zst", f->modules);
	write_file(path, zst, zst_size);
	write_text(f, "modules.dep", "k/virtio_blk.ko.zst:\nk/virtio_mmio.ko:\nk/vmw_vsock_virtio_transport.ko:\nk/overlay.ko.xz:\n");
	assert_int_equal(build(f, out, &err), 4);
	run_cpio(out, "-i --to-stdout lib/modules/overlay.ko", got, sizeof(got));
	assert_string_equal(got, text);
	run_cpio(out, "-i --to-stdout lib/modules/virtio_blk.ko", got, sizeof(got));
	assert_string_equal(got, text);
}

static void damaged_compressed_module_is_named(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_text(f, "k/overlay.ko.xz", "not xz at all");
	write_text(f, "modules.dep", "k/virtio_blk.ko:\nk/virtio_mmio.ko:\nk/vmw_vsock_virtio_transport.ko:\nk/overlay.ko.xz:\n");
	assert_int_equal(build(f, out, &err), -EINVAL);
	assert_non_null(strstr(err.text, "overlay.ko.xz"));
}

static void missing_required_module_is_named(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_text(f, "modules.dep", "k/virtio_blk.ko:\nk/vmw_vsock_virtio_transport.ko:\nk/overlay.ko:\n");
	assert_int_equal(build(f, out, &err), -ENOENT);
	assert_non_null(strstr(err.text, "virtio_mmio"));
}

static void circular_table_ends(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_text(f, "modules.dep",
		   "k/virtio_blk.ko: k/virtio.ko\nk/virtio.ko: k/virtio_blk.ko\nk/virtio_mmio.ko: k/virtio_mmio.ko\n"
		   "k/vmw_vsock_virtio_transport.ko:\nk/overlay.ko:\n");
	assert_int_equal(build(f, out, &err), 5);
}

static void endless_chain_is_refused(void **state)
{
	struct fixture *f = *state;
	static const char head[] = "k/virtio_mmio.ko: k/m0.ko\n";
	char *table = malloc(64 * 1000), out[PATH_MAX];
	size_t n = (size_t)sprintf(table, "%s", head);
	struct err err;

	for (unsigned i = 0; i < 1000; i++)
		n += (size_t)sprintf(table + n, "k/m%u.ko: k/m%u.ko\n", i, i + 1);
	sprintf(table + n, "k/m1000.ko:\n");
	write_text(f, "modules.dep", table);
	free(table);
	assert_int_equal(build(f, out, &err), -E2BIG);
}

static void path_outside_is_refused(void **state)
{
	static const char *const tables[] = { "/etc/virtio_mmio.ko:\n", "../virtio_mmio.ko:\n", "k/../../virtio_mmio.ko:\n",
					      "k/..: \n", ": k/a.ko\n" };
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		write_text(f, "modules.dep", tables[i]);
		assert_int_equal(build(f, out, &err), -EINVAL);
		assert_non_null(strstr(err.text, "modules.dep"));
	}
}

static void dependency_without_a_line_is_refused(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_text(f, "modules.dep", "k/virtio_mmio.ko: k/absent.ko\n");
	assert_int_equal(build(f, out, &err), -EINVAL);
	assert_non_null(strstr(err.text, "absent"));
}

static void elf_kernel_has_no_modules(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX], text[4096];
	struct err err;

	write_file(f->kernel, "\177ELF kernel", 11);
	assert_int_equal(build(f, out, &err), 0);
	run_cpio(out, "-t", text, sizeof(text));
	assert_null(strstr(text, ".ko"));
	assert_null(strstr(text, "modules.list"));
}

static void named_elf_kernel_has_the_modules_of_its_name(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	snprintf(f->kernel, sizeof(f->kernel), "%s/boot/vmlinux-" VERSION, f->dir);
	write_file(f->kernel, "\177ELF kernel", 11);
	assert_int_equal(build(f, out, &err), 8);
}

static void kernel_may_have_everything_built_in(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_bzimage(f->kernel, "6.9.9-own");
	assert_int_equal(build(f, out, &err), 0);
}

static void installed_kernel_without_its_modules_is_refused(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	snprintf(f->kernel, sizeof(f->kernel), "%s/boot/vmlinuz-6.9.9-gone", f->dir);
	write_bzimage(f->kernel, "6.9.9-gone (x)");
	assert_int_equal(build(f, out, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/lib/modules/6.9.9-gone"));
}

static void hostile_version_is_refused(void **state)
{
	static const char *const versions[] = { "../../../etc", "..", ".", "a/b", "", "a\tb/../c",
						"01234567890123456789012345678901234567890123456789012345678901234567890" };
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		write_bzimage(f->kernel, versions[i]);
		if (strcmp(versions[i], "a\tb/../c") == 0) /* cut at the tab: a version by itself */
			assert_int_equal(build(f, out, &err), 0);
		else
			assert_int_equal(build(f, out, &err), -EINVAL);
	}
}

static void what_is_no_kernel_is_refused(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_file(f->kernel, "", 0);
	assert_int_equal(build(f, out, &err), -EINVAL);
	write_file(f->kernel, "\037\213 gzip", 7);
	assert_int_equal(build(f, out, &err), -EINVAL);
	unlink(f->kernel);
	assert_int_equal(build(f, out, &err), -ENOENT);
	assert_int_equal(mkdir(f->kernel, 0755), 0);
	assert_int_equal(build(f, out, &err), -EINVAL);
	assert_int_equal(rmdir(f->kernel), 0);
	assert_int_equal(mkfifo(f->kernel, 0644), 0);
	assert_int_equal(build(f, out, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a regular file"));
}

static void agent_has_to_be_a_program(void **state)
{
	struct fixture *f = *state;
	char out[PATH_MAX];
	struct err err;

	write_file(f->agent, "#!/bin/sh\n", 10);
	assert_int_equal(build(f, out, &err), -EINVAL);
	assert_non_null(strstr(err.text, f->agent));
	unlink(f->agent);
	assert_int_equal(build(f, out, &err), -ENOENT);
}

static void archive_has_a_limit(void **state)
{
	struct cpio c = { 0 };
	char name[CPIO_NAME_MAX + 2];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(cpio_add_dir(&c, name, 0755), -ENAMETOOLONG);
	assert_int_equal(cpio_add_file(&c, "f", 0644, NULL, (size_t)CPIO_SIZE_MAX + 1), -EFBIG);
	cpio_finish(&c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(cpio_lists_the_members),
		TEST(init_is_executable_and_owned_by_root),
		TEST(list_has_every_module_after_its_dependencies),
		TEST(a_display_brings_its_modules),
		TEST(same_input_is_the_same_file),
		TEST(another_agent_is_another_file),
		TEST(truncated_cache_file_is_replaced),
		TEST(compressed_modules_are_unpacked),
		TEST(damaged_compressed_module_is_named),
		TEST(missing_required_module_is_named),
		TEST(circular_table_ends),
		TEST(endless_chain_is_refused),
		TEST(path_outside_is_refused),
		TEST(dependency_without_a_line_is_refused),
		TEST(elf_kernel_has_no_modules),
		TEST(named_elf_kernel_has_the_modules_of_its_name),
		TEST(kernel_may_have_everything_built_in),
		TEST(installed_kernel_without_its_modules_is_refused),
		TEST(hostile_version_is_refused),
		TEST(what_is_no_kernel_is_refused),
		TEST(agent_has_to_be_a_program),
		TEST(archive_has_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
