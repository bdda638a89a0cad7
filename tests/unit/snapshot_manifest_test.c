/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: what is written is read back, nothing else is; what a hostile one may not say. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/snapshot_host.h"
#include "host/snapshot_manifest.h"
#include "lib/util.h"

static char *string(const char *s)
{
	char *p = strdup(s);

	assert_non_null(p);
	return p;
}

static struct snapshot_manifest make(void)
{
	struct snapshot_manifest m = {
		.version = string("1.2.3"), .id = "0123456789abcdef0123456789abcdef", .parent_path = string(""),
				.created_ms = 1764488685000,
		.cpus = 2, .memory = MIB(512), .cmdline = string("quiet"), .cpu = { "GenuineIntel", 6, 85, 7,
										    "0123456789abcdef" },
		.kvm = string("kvm_intel"), .state = { 1000, "00000000000000aa" }, .ram = { 2000, "" }, .ram_index =
				{ 3000, "00000000000000bb" },
		.image = string("debian"), .user = string(""), .cwd = string("/srv"), .kernel = string("/boot/k"),
				.hostname = string("work"),
	};

	m.device = calloc(2, sizeof(*m.device));
	m.device[0] = string("serial,log=console.log");
	m.device[1] = string("rng");
	m.ndevices = 2;
	m.disk = calloc(2, sizeof(*m.disk));
	m.ndisks = 2;
	m.disk[0] = (struct snapshot_disk){ .kind = SNAPSHOT_DISK_FILE, .size = 4096, .path = string("/images/debian"),
					    .path_size = 4096,
					    .path_mtime_ns = 17, .image = string("debian") };
	m.disk[1] = (struct snapshot_disk){ .kind = SNAPSHOT_DISK_LAYERS, .size = GIB(16), .path = string(""),
					    .image = string("") };
	m.disk[1].layer = calloc(1, sizeof(*m.disk[1].layer));
	m.disk[1].nlayers = 1;
	m.disk[1].layer[0] = (struct snapshot_layer){ .file = string("disk1-0.lsmt"), .size = 12345, .index_hash = 0xfeedfacecafebeef,
						      .digest = "00112233445566778899aabbccddeeff" };
	return m;
}

static char *format(const struct snapshot_manifest *m)
{
	char *text = snapshot_manifest_format(m);

	assert_non_null(text);
	return text;
}

static int parse(const char *text, size_t len, struct err *err)
{
	struct snapshot_manifest m;
	int r = snapshot_manifest_parse("m", SNAPSHOT_WHAT_SNAPSHOT, text, len, &m, err);

	if (r == 0)
		snapshot_manifest_finish(&m);
	return r;
}

static void what_is_written_is_read_back(void **s)
{
	struct snapshot_manifest m = make(), got;
	char *text = format(&m);

	(void)s;
	assert_int_equal(snapshot_manifest_parse("m", SNAPSHOT_WHAT_SNAPSHOT, text, strlen(text), &got, NULL), 0);
	assert_string_equal(got.id, m.id);
	assert_int_equal(got.memory, MIB(512));
	assert_string_equal(got.device[1], "rng");
	assert_int_equal(got.disk[1].layer[0].index_hash, 0xfeedfacecafebeef);
	assert_string_equal(got.disk[0].image, "debian");
	assert_int_equal(got.ram_index.size, 3000);
	assert_string_equal(got.cwd, "/srv");
	char *again = format(&got);

	assert_string_equal(again, text);
	free(again);
	free(text);
	snapshot_manifest_finish(&got);
	snapshot_manifest_finish(&m);
}

static void every_flipped_byte_is_refused(void **s)
{
	struct snapshot_manifest m = make();
	char *text = format(&m);
	size_t n = strlen(text);

	(void)s;
	for (size_t i = 0; i < n; i++)
		for (int bit = 0; bit < 8; bit++) {
			text[i] = (char)(text[i] ^ 1 << bit);
			if (parse(text, n, NULL) == 0)
				fail_msg("bit %d of byte %zu", bit, i);
			text[i] = (char)(text[i] ^ 1 << bit);
		}
	assert_int_equal(parse(text, n, NULL), 0);
	free(text);
	snapshot_manifest_finish(&m);
}

static void every_truncation_is_refused(void **s)
{
	struct snapshot_manifest m = make();
	char *text = format(&m);

	(void)s;
	for (size_t n = strlen(text); n-- > 0;)
		assert_int_not_equal(parse(text, n, NULL), 0);
	free(text);
	snapshot_manifest_finish(&m);
}

static void one_more_byte_is_refused(void **s)
{
	struct snapshot_manifest m = make();
	char *text = format(&m), *more;

	(void)s;
	assert_true(asprintf(&more, "%s ", text) > 0);
	assert_int_equal(parse(more, strlen(more), NULL), -EINVAL);
	free(more);
	free(text);
	snapshot_manifest_finish(&m);
}

/* A manifest that is whole and right but for what `change` did. */
static void refused(void (*change)(struct snapshot_manifest *m), const char *member)
{
	struct snapshot_manifest m = make();
	struct err err = ERR_INIT;

	change(&m);
	char *text = format(&m);

	assert_int_equal(parse(text, strlen(text), &err), -EINVAL);
	if (!strstr(err.text, member))
		fail_msg("'%s' does not name '%s'", err.text, member);
	free(text);
	snapshot_manifest_finish(&m);
}

static void set(char **to, const char *value)
{
	free(*to);
	*to = string(value);
}

static void layer_above(struct snapshot_manifest *m) { set(&m->disk[1].layer[0].file, "../x"); }
static void layer_absolute(struct snapshot_manifest *m) { set(&m->disk[1].layer[0].file, "/etc/shadow"); }
static void layer_dot(struct snapshot_manifest *m) { set(&m->disk[1].layer[0].file, ".."); }
static void layer_empty(struct snapshot_manifest *m) { set(&m->disk[1].layer[0].file, ""); }
static void disk_relative(struct snapshot_manifest *m) { set(&m->disk[0].path, "images/debian"); }
static void disk_odd(struct snapshot_manifest *m) { m->disk[1].size = 513; }
static void disk_none(struct snapshot_manifest *m) { m->disk[1].size = 0; }
static void device_path(struct snapshot_manifest *m) { set(&m->device[0], "serial,log=/etc/passwd"); }
static void device_up(struct snapshot_manifest *m) { set(&m->device[0], "serial,log=.."); }
static void device_disk(struct snapshot_manifest *m) { set(&m->device[0], "blk,path=x"); }
static void device_space(struct snapshot_manifest *m) { set(&m->device[0], "serial --no-seccomp"); }
static void device_empty(struct snapshot_manifest *m) { set(&m->device[0], ""); }
static void no_cpus(struct snapshot_manifest *m) { m->cpus = 0; }
static void many_cpus(struct snapshot_manifest *m) { m->cpus = 1000; }
static void no_memory(struct snapshot_manifest *m) { m->memory = 0; }
static void odd_memory(struct snapshot_manifest *m) { m->memory = MIB(512) + 1; }
static void raw_disk(struct snapshot_manifest *m) { m->disk[0].kind = SNAPSHOT_DISK_RAW; }
static void no_id(struct snapshot_manifest *m) { m->id[0] = 0; }
static void bad_id(struct snapshot_manifest *m) { m->id[3] = 'g'; }
static void no_digest(struct snapshot_manifest *m) { m->disk[1].layer[0].digest[0] = 0; }
static void to_remote(struct snapshot_manifest *m)
{
	struct snapshot_layer *l = &m->disk[1].layer[0];

	set(&l->file, "");
	l->index_hash = 0;
	l->digest[0] = 0;
	l->url = string("https://registry.test/v2/base/blobs/sha256:1");
	snprintf(l->sha256, sizeof(l->sha256), "%064d", 7);
}

static void remote_file(struct snapshot_manifest *m) { to_remote(m); set(&m->disk[1].layer[0].url, "file:///etc/shadow"); }
static void remote_control(struct snapshot_manifest *m) { to_remote(m); set(&m->disk[1].layer[0].url, "http://a/\033[2J"); }
static void remote_anything(struct snapshot_manifest *m) { to_remote(m); m->disk[1].layer[0].sha256[0] = 0; }
static void remote_upper(struct snapshot_manifest *m) { to_remote(m); m->disk[1].layer[0].sha256[0] = 'A'; }
static void remote_empty(struct snapshot_manifest *m) { to_remote(m); m->disk[1].layer[0].size = 0; }
static void remote_digest(struct snapshot_manifest *m) { to_remote(m); memset(m->disk[1].layer[0].digest, '0', SNAPSHOT_DIGEST_LEN); }
static void remote_and_file(struct snapshot_manifest *m)
{
	to_remote(m);
	set(&m->disk[1].layer[0].file, "disk1-0.lsmt");
	memset(m->disk[1].layer[0].digest, '0', SNAPSHOT_DIGEST_LEN);
}

static void is_a_vm(struct snapshot_manifest *m) { m->what = SNAPSHOT_WHAT_VM; }
static void high_level(struct snapshot_manifest *m) { m->level = 23; }

static void hostile_values_are_refused_by_name(void **s)
{
	(void)s;
	refused(layer_above, "disks[1].layers[0].file");
	refused(layer_absolute, "disks[1].layers[0].file");
	refused(layer_dot, "disks[1].layers[0].file");
	refused(layer_empty, "disks[1].layers[0].file");
	refused(disk_relative, "disks[0].path");
	refused(disk_odd, "disks[1].size");
	refused(disk_none, "disks[1].size");
	refused(device_path, "machine.devices");
	refused(device_up, "machine.devices");
	refused(device_disk, "machine.devices");
	refused(device_space, "machine.devices");
	refused(device_empty, "machine.devices");
	refused(no_cpus, "machine.cpus");
	refused(many_cpus, "machine.cpus");
	refused(no_memory, "machine.memory");
	refused(odd_memory, "machine.memory");
	refused(raw_disk, "disks[0].kind");
	refused(no_id, "id");
	refused(bad_id, "id");
	refused(no_digest, "disks[1].layers[0].digest");
	refused(remote_file, "disks[1].layers[0].url");
	refused(remote_control, "disks[1].layers[0].url");
	refused(remote_anything, "disks[1].layers[0].sha256");
	refused(remote_upper, "disks[1].layers[0].sha256");
	refused(remote_empty, "disks[1].layers[0].size");
	refused(remote_digest, "disks[1].layers[0].digest");
	refused(remote_and_file, "disks[1].layers[0].url");
	refused(is_a_vm, "what");
	refused(high_level, "zstd_level");
}

static void a_remote_layer_is_an_address_and_a_digest(void **s)
{
	struct snapshot_manifest m = make(), got;

	(void)s;
	to_remote(&m);
	char *text = format(&m);

	assert_non_null(strstr(text, "\"format\": 2,"));
	assert_int_equal(snapshot_manifest_parse("m", SNAPSHOT_WHAT_SNAPSHOT, text, strlen(text), &got, NULL), 0);
	assert_true(snapshot_layer_is_remote(&got.disk[1].layer[0]));
	assert_string_equal(got.disk[1].layer[0].url, m.disk[1].layer[0].url);
	assert_string_equal(got.disk[1].layer[0].sha256, m.disk[1].layer[0].sha256);
	free(text);
	snapshot_manifest_finish(&got);
	snapshot_manifest_finish(&m);
}

static void what_older_versions_can_read_is_written_for_them(void **s)
{
	struct snapshot_manifest m = make();
	char *text = format(&m);

	(void)s;
	assert_non_null(strstr(text, "\"format\": 1,"));
	assert_null(strstr(text, "sha256"));
	free(text);
	snapshot_manifest_finish(&m);
}

static void a_newer_format_says_so(void **s)
{
	static const char text[] = "{\"format\":3,\"what\":\"snapshot\"}";
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(parse(text, strlen(text), &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "newer"));
}

static void a_vm_s_may_name_paths_and_has_no_id(void **s)
{
	struct snapshot_manifest m = make(), got;

	(void)s;
	m.what = SNAPSHOT_WHAT_VM;
	m.id[0] = 0;
	device_path(&m);
	layer_absolute(&m);
	raw_disk(&m);
	no_digest(&m);
	char *text = format(&m);

	assert_int_equal(snapshot_manifest_parse("m", SNAPSHOT_WHAT_VM, text, strlen(text), &got, NULL), 0);
	free(text);
	snapshot_manifest_finish(&got);
	snapshot_manifest_finish(&m);
}

static void another_machine_is_told(void **s)
{
	struct snapshot_cpu a = { "GenuineIntel", 6, 85, 7, "0123456789abcdef" }, b = a;
	struct err err = ERR_INIT;

	(void)s;
	b.stepping = 4;
	assert_int_equal(snapshot_host_check(&a, "kvm_intel", &b, "kvm_intel", &err), 0);
	assert_int_equal(snapshot_host_check(&a, "kvm_intel", &b, "kvm_pvm", &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "kvm_pvm"));
	b.model = 86;
	assert_int_equal(snapshot_host_check(&a, "kvm_intel", &b, "kvm_intel", &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "model 86"));
	b = a;
	b.features[0] = 'f';
	assert_int_equal(snapshot_host_check(&a, "kvm_intel", &b, "kvm_intel", &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "features"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_back),
		cmocka_unit_test(every_flipped_byte_is_refused),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(one_more_byte_is_refused),
		cmocka_unit_test(hostile_values_are_refused_by_name),
		cmocka_unit_test(a_remote_layer_is_an_address_and_a_digest),
		cmocka_unit_test(what_older_versions_can_read_is_written_for_them),
		cmocka_unit_test(a_newer_format_says_so),
		cmocka_unit_test(a_vm_s_may_name_paths_and_has_no_id),
		cmocka_unit_test(another_machine_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
