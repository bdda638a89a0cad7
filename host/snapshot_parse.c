/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading manifests of snapshots: see snapshot_manifest.h.
 *
 * Each member is taken with its type and bounds; the first that is wrong is named. That nothing else is in the text,
 * and nothing written in another way, is found by writing what was taken and comparing.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/image.h"
#include "host/json_get.h"
#include "host/snapshot_manifest.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/memory.h"
#include "vmm/vm.h"

struct reader {
	const char *name;
	enum snapshot_what what;
	struct err *err;
};

/* Puts before an error which file it is of, and what its member is in. */
static int told(const struct reader *rd, const char *where, int r)
{
	static const char damaged[] = "the file is damaged or was not written by Coffer";
	char *text = rd->err ? rd->err->text : NULL;

	if (r == -ENOMEM)
		err_prefix(rd->err, "%s: ", rd->name);
	if (r >= 0 || r == -ENOMEM || !text)
		return r;
	if (*text == '"') {
		memmove(text, text + 1, strlen(text));
		err_prefix(rd->err, "%s: %s: \"%s", rd->name, damaged, where);
	} else {
		err_prefix(rd->err, "%s: %s: ", rd->name, damaged);
	}
	return r;
}

static int wrong(const struct reader *rd, const char *where, const char *key, const char *why)
{
	return told(rd, where, err_set(rd->err, -EINVAL, "\"%s\" %s", key, why));
}

static int no_memory(const struct reader *rd)
{
	return told(rd, "", err_set(rd->err, -ENOMEM, "no memory"));
}

static int take_u64(const struct reader *rd, const json_t *o, const char *where, const char *key, uint64_t min, uint64_t max,
		    uint64_t *ret)
{
	return told(rd, where, json_get_u64(o, key, min, max, ret, rd->err));
}

static const char *get_string(const struct reader *rd, const json_t *o, const char *where, const char *key, size_t max)
{
	const char *s = NULL;

	told(rd, where, json_get_string(o, key, max, true, &s, rd->err));
	return s;
}

static int take_string(const struct reader *rd, const json_t *o, const char *where, const char *key, char **ret)
{
	return told(rd, where, json_get_copy(o, key, SNAPSHOT_STRING_MAX, true, ret, rd->err));
}

/* Exactly `len` digits, or none when `optional`. */
static int take_hex(const struct reader *rd, const json_t *o, const char *where, const char *key, size_t len, bool optional,
		    char *ret)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (optional && s && !*s) {
		*ret = 0;
		return 0;
	}
	return told(rd, where, json_get_hex(o, key, len, true, ret, rd->err));
}

/* At most `max` elements; *ret_n may be 0. */
static int take_array(const struct reader *rd, const json_t *o, const char *where, const char *key, size_t max,
		      const json_t **ret, size_t *ret_n)
{
	int r = told(rd, where, json_get_array(o, key, 0, max, ret, rd->err));

	*ret_n = json_array_size(*ret);
	return r;
}

static bool is_file_name(const char *s)
{
	return *s && strlen(s) <= SNAPSHOT_FILE_NAME_MAX && *s != '.' &&
	       s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-")] == 0;
}

/* ---- disks ---- */

/* The blob that a layer is, or was, when it is one of a registry. */
static int take_blob(const struct reader *rd, const json_t *o, const char *where, struct snapshot_layer *l)
{
	bool url = json_object_get(o, "url"), sha256 = json_object_get(o, "sha256");
	int r = sha256 ? take_hex(rd, o, where, "sha256", SNAPSHOT_SHA256_LEN, false, l->sha256) : 0;

	if (r < 0 || !url)
		return r;
	const char *s = get_string(rd, o, where, "url", SNAPSHOT_URL_MAX);

	if (!s)
		return -EINVAL;
	if (!image_url_is_valid(s))
		return wrong(rd, where, "url", "is no http:// or https:// address");
	if (!sha256)
		return wrong(rd, where, "sha256", "is missing");
	l->url = strdup(s);
	return l->url ? 0 : no_memory(rd);
}

static int check_layer(const struct reader *rd, const char *where, const struct snapshot_layer *l)
{
	bool vm = rd->what == SNAPSHOT_WHAT_VM;

	if (snapshot_layer_is_remote(l)) {
		if (!vm && (l->index_hash || *l->digest))
			return wrong(rd, where, "digest", "is that of a file, which is not there");
		return l->size ? 0 : wrong(rd, where, "size", "is out of range");
	}
	if (!is_file_name(l->file) && !(vm && l->file[0] == '/'))
		return wrong(rd, where, "file", "is not the name of a file in the snapshot's directory");
	if (!vm && l->url)
		return wrong(rd, where, "url", "is of no use: the layer is a file");
	return vm || *l->digest ? 0 : wrong(rd, where, "digest", "is not a checksum or an id");
}

static int take_layer(const struct reader *rd, const json_t *o, const char *where, struct snapshot_layer *l)
{
	char hash[SNAPSHOT_HASH_LEN + 1];
	int r = take_string(rd, o, where, "file", &l->file);

	if (r == 0)
		r = take_u64(rd, o, where, "size", 0, INT64_MAX, &l->size);
	if (r == 0)
		r = take_hex(rd, o, where, "index_hash", SNAPSHOT_HASH_LEN, false, hash);
	if (r == 0)
		l->index_hash = strtoull(hash, NULL, 16);
	if (r == 0)
		r = take_hex(rd, o, where, "digest", SNAPSHOT_DIGEST_LEN, true, l->digest);
	if (r == 0)
		r = take_blob(rd, o, where, l);
	return r < 0 ? r : check_layer(rd, where, l);
}

static int take_layers(const struct reader *rd, const json_t *o, const char *where, struct snapshot_disk *d)
{
	const json_t *list = NULL;
	char inner[64];
	size_t n;
	int r = take_array(rd, o, where, "layers", SNAPSHOT_LAYERS_MAX, &list, &n);

	if (r < 0)
		return r;
	if (n && !(d->layer = calloc(n, sizeof(*d->layer))))
		return no_memory(rd);
	for (size_t i = 0; i < n; i++) {
		snprintf(inner, sizeof(inner), "%slayers[%zu].", where, i);
		d->nlayers = i + 1;
		r = take_layer(rd, json_array_get(list, i), inner, &d->layer[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_kind(const struct reader *rd, const json_t *o, const char *where, struct snapshot_disk *d)
{
	const char *kind = get_string(rd, o, where, "kind", 16);

	if (!kind)
		return -EINVAL;
	if (!strcmp(kind, "file"))
		d->kind = SNAPSHOT_DISK_FILE;
	else if (!strcmp(kind, "layers"))
		d->kind = SNAPSHOT_DISK_LAYERS;
	else if (!strcmp(kind, "raw") && rd->what == SNAPSHOT_WHAT_VM)
		d->kind = SNAPSHOT_DISK_RAW;
	else
		return wrong(rd, where, "kind", "is of no known kind");
	return 0;
}

static int check_disk(const struct reader *rd, const char *where, const struct snapshot_disk *d)
{
	bool layers = d->kind == SNAPSHOT_DISK_LAYERS;

	if (*d->path ? d->path[0] != '/' : !layers)
		return wrong(rd, where, "path", "is not an absolute path");
	if (d->nlayers && !layers)
		return wrong(rd, where, "layers", "is not empty for a disk without layers");
	/* What is not used has one value. */
	if (!*d->path && (d->path_size || d->path_mtime_ns))
		return wrong(rd, where, "path_size", "describes no file");
	return 0;
}

static int take_disk(const struct reader *rd, const json_t *o, size_t number, struct snapshot_disk *d)
{
	char where[32];
	uint64_t n = 0, mtime = 0;

	snprintf(where, sizeof(where), "disks[%zu].", number);
	int r = take_u64(rd, o, where, "number", number, number, &n);

	if (r == 0)
		r = take_kind(rd, o, where, d);
	if (r == 0)
		r = take_u64(rd, o, where, "size", 512, INT64_MAX, &d->size);
	if (r == 0 && d->size % 512)
		r = wrong(rd, where, "size", "is not a multiple of 512");
	if (r == 0)
		r = take_string(rd, o, where, "path", &d->path);
	if (r == 0)
		r = take_u64(rd, o, where, "path_size", 0, INT64_MAX, &d->path_size);
	if (r == 0)
		r = take_u64(rd, o, where, "path_mtime_ns", 0, INT64_MAX, &mtime);
	d->path_mtime_ns = (int64_t)mtime;
	if (r == 0)
		r = take_string(rd, o, where, "image", &d->image);
	if (r == 0)
		r = take_layers(rd, o, where, d);
	return r != 0 ? r : check_disk(rd, where, d);
}

static int take_disks(const struct reader *rd, const json_t *o, struct snapshot_manifest *m)
{
	const json_t *list = NULL;
	size_t n;
	int r = take_array(rd, o, "", "disks", SNAPSHOT_DISKS_MAX, &list, &n);

	if (r < 0)
		return r;
	if (n && !(m->disk = calloc(n, sizeof(*m->disk))))
		return no_memory(rd);
	for (size_t i = 0; i < n; i++) {
		m->ndisks = i + 1;
		r = take_disk(rd, json_array_get(list, i), i, &m->disk[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the machine ---- */

/* NAME[,KEY[=VALUE]...] with values that are no paths: whoever made the snapshot chooses no files of the host. */
bool snapshot_device_is_plain(const char *s)
{
	static const char word[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
	size_t n = strspn(s, word);

	if (n == 0 || (n == 3 && !strncmp(s, "blk", 3)))
		return false;
	for (s += n; *s; s += n) {
		if (*s++ != ',')
			return false;
		n = strspn(s, word);
		if (n == 0)
			return false;
		s += n;
		n = 0;
		if (*s != '=')
			continue;
		s++;
		n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-");
		if (*s == '.')
			return false;
	}
	return true;
}

static int take_machine(const struct reader *rd, const json_t *root, struct snapshot_manifest *m)
{
	const json_t *o = json_object_get(root, "machine");
	const json_t *list = NULL;
	size_t n = 0;
	int r = take_u64(rd, o, "machine.", "cpus", 1, VM_MAX_VCPUS, &m->cpus);

	if (r == 0)
		r = take_u64(rd, o, "machine.", "memory", MEM_MIN, MEM_MAX, &m->memory);
	if (r == 0 && m->memory % MIB(1))
		r = wrong(rd, "machine.", "memory", "is not a multiple of 1 MiB");
	if (r == 0)
		r = take_string(rd, o, "machine.", "cmdline", &m->cmdline);
	if (r == 0)
		r = take_array(rd, o, "machine.", "devices", SNAPSHOT_DEVICES_MAX, &list, &n);
	if (r < 0)
		return r;
	if (n && !(m->device = calloc(n, sizeof(*m->device))))
		return no_memory(rd);
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (!s || strlen(s) > SNAPSHOT_STRING_MAX || (rd->what == SNAPSHOT_WHAT_SNAPSHOT &&
							      !snapshot_device_is_plain(s)))
			return wrong(rd, "machine.", "devices", "has an entry that is no device");
		m->device[i] = strdup(s);
		m->ndevices = i + 1;
		if (!m->device[i])
			return no_memory(rd);
	}
	return 0;
}

static int take_cpu(const struct reader *rd, const json_t *root, struct snapshot_manifest *m)
{
	const json_t *o = json_object_get(root, "cpu");
	const char *vendor = get_string(rd, o, "cpu.", "vendor", sizeof(m->cpu.vendor) - 1);
	uint64_t family = 0, model = 0, stepping = 0;
	int r = vendor ? take_u64(rd, o, "cpu.", "family", 0, UINT32_MAX, &family) : -EINVAL;

	if (r == 0)
		r = take_u64(rd, o, "cpu.", "model", 0, UINT32_MAX, &model);
	if (r == 0)
		r = take_u64(rd, o, "cpu.", "stepping", 0, UINT32_MAX, &stepping);
	if (r == 0)
		r = take_hex(rd, o, "cpu.", "features", SNAPSHOT_HASH_LEN, true, m->cpu.features);
	if (r < 0)
		return r;
	snprintf(m->cpu.vendor, sizeof(m->cpu.vendor), "%s", vendor);
	m->cpu.family = (uint32_t)family;
	m->cpu.model = (uint32_t)model;
	m->cpu.stepping = (uint32_t)stepping;
	return take_string(rd, root, "", "kvm", &m->kvm);
}

/* ---- the rest ---- */

static int take_file(const struct reader *rd, const json_t *files, const char *name, bool hashed, struct snapshot_file *f)
{
	char where[32];
	const json_t *o = json_object_get(files, name);
	bool vm = rd->what == SNAPSHOT_WHAT_VM;

	snprintf(where, sizeof(where), "files.%s.", name);
	int r = take_u64(rd, o, where, "size", 0, INT64_MAX, &f->size);

	if (r == 0)
		r = take_hex(rd, o, where, "xxh3", SNAPSHOT_HASH_LEN, vm || !hashed, f->hash);
	if (r == 0 && !hashed && f->hash[0])
		r = wrong(rd, where, "xxh3", "is not empty");
	return r;
}

static int take_files(const struct reader *rd, const json_t *root, struct snapshot_manifest *m)
{
	const json_t *files = json_object_get(root, "files");
	int r = take_file(rd, files, SNAPSHOT_STATE, true, &m->state);

	if (r == 0)
		r = take_file(rd, files, SNAPSHOT_RAM, false, &m->ram);
	if (r == 0)
		r = take_file(rd, files, SNAPSHOT_RAM_INDEX, true, &m->ram_index);
	return r < 0 ? r : take_u64(rd, root, "", "zstd_level", 0, 22, &m->level);
}

static int take_vm(const struct reader *rd, const json_t *root, struct snapshot_manifest *m)
{
	const struct {
		const char *key;
		char **to;
	} strings[] = { { "image", &m->image }, { "user", &m->user }, { "cwd", &m->cwd }, { "kernel", &m->kernel },
			{ "hostname", &m->hostname } };
	const json_t *o = json_object_get(root, "vm");
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(strings) && r == 0; i++)
		r = take_string(rd, o, "vm.", strings[i].key, strings[i].to);
	return r;
}

static int take_identity(const struct reader *rd, const json_t *root, struct snapshot_manifest *m)
{
	const json_t *parent = json_object_get(root, "parent");
	bool vm = rd->what == SNAPSHOT_WHAT_VM;
	uint64_t created = 0;
	int r = take_string(rd, root, "", "coffer", &m->version);

	if (r == 0)
		r = take_hex(rd, root, "", "id", SNAPSHOT_ID_LEN, vm, m->id);
	if (r == 0 && vm && m->id[0])
		r = wrong(rd, "", "id", "is not empty");
	if (r == 0)
		r = take_u64(rd, root, "", "created_ms", 0, INT64_MAX, &created);
	m->created_ms = (int64_t)created;
	if (r == 0)
		r = take_hex(rd, parent, "parent.", "id", SNAPSHOT_ID_LEN, true, m->parent_id);
	return r < 0 ? r : take_string(rd, parent, "parent.", "path", &m->parent_path);
}

static int take_all(const struct reader *rd, const json_t *root, struct snapshot_manifest *m)
{
	const char *what = get_string(rd, root, "", "what", 16);
	uint64_t format = 0;

	if (!what)
		return -EINVAL;
	int r = take_u64(rd, root, "", "format", 1, INT64_MAX, &format);

	if (r < 0)
		return r;
	if (format > SNAPSHOT_FORMAT)
		return err_set(rd->err, -ENOTSUP,
			       "%s: format %" PRIu64 " is newer than this version of Coffer (%s) can read, up to %d: use the version that wrote it",
			       rd->name, format, COFFER_VERSION, SNAPSHOT_FORMAT);
	if (strcmp(what, rd->what == SNAPSHOT_WHAT_VM ? "vm" : "snapshot") != 0)
		return wrong(rd, "", "what", "says that it is something else");
	m->what = rd->what;
	r = take_identity(rd, root, m);
	if (r == 0)
		r = take_machine(rd, root, m);
	if (r == 0)
		r = take_cpu(rd, root, m);
	if (r == 0)
		r = take_disks(rd, root, m);
	if (r == 0)
		r = take_files(rd, root, m);
	return r < 0 ? r : take_vm(rd, root, m);
}

int snapshot_manifest_parse(const char *name, enum snapshot_what what, const char *text, size_t len,
			    struct snapshot_manifest *ret, struct err *err)
{
	const struct reader rd = { name, what, err };
	struct snapshot_manifest m = { 0 };
	json_t *root = json_get_document(text, len, SNAPSHOT_MANIFEST_MAX, JSON_OBJECT, err);

	if (!root)
		return told(&rd, "", -EINVAL);
	int r = take_all(&rd, root, &m);

	json_decref(root);
	_cleanup_free_ char *same = r == 0 ? snapshot_manifest_format(&m) : NULL;

	if (r == 0 && !same)
		r = err_set(err, -ENOMEM, "%s: out of memory", name);
	if (r == 0 && (strlen(same) != len || memcmp(same, text, len) != 0))
		r = err_set(err, -EINVAL, "%s: its checksum is wrong: the file is damaged or was edited", name);
	if (r < 0) {
		snapshot_manifest_finish(&m);
		return r;
	}
	*ret = m;
	return 0;
}
