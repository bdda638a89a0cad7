/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of snapshots: see snapshot_manifest.h. Writing and hashes; reading is snapshot_parse.c. */
#include "host/snapshot_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/fd.h"

enum { HASH_BUFFER = 1 << 20 };

/* ---- hashes ---- */

void snapshot_hash(const void *p, size_t n, char ret[SNAPSHOT_HASH_LEN + 1])
{
	snprintf(ret, SNAPSHOT_HASH_LEN + 1, "%016" PRIx64, (uint64_t)XXH3_64bits(p, n));
}

static int hash_contents(int fd, const char *name, bool wide, XXH3_state_t *state, uint64_t *ret_size, struct err *err)
{
	_cleanup_free_ uint8_t *buffer = malloc(HASH_BUFFER);
	off_t at = 0;

	if (!buffer)
		return err_set(err, -ENOMEM, "no memory for the checksum");
	for (;;) {
		ssize_t n = fd_pread_full(fd, buffer, HASH_BUFFER, at);

		if (n < 0)
			return err_errno(err, (int)n, "read '%s'", name);
		if (wide)
			XXH3_128bits_update(state, buffer, (size_t)n);
		else
			XXH3_64bits_update(state, buffer, (size_t)n);
		at += n;
		if (n < HASH_BUFFER)
			break;
	}
	if (ret_size)
		*ret_size = (uint64_t)at;
	return 0;
}

int snapshot_hash_file(int fd, const char *name, uint64_t *ret_size, char ret[SNAPSHOT_HASH_LEN + 1], struct err *err)
{
	XXH3_state_t *state = XXH3_createState();

	if (!state)
		return err_set(err, -ENOMEM, "no memory for the checksum");
	XXH3_64bits_reset(state);
	int r = hash_contents(fd, name, false, state, ret_size, err);

	if (r == 0)
		snprintf(ret, SNAPSHOT_HASH_LEN + 1, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
	XXH3_freeState(state);
	return r;
}

int snapshot_digest_file(int fd, const char *name, char ret[SNAPSHOT_DIGEST_LEN + 1], struct err *err)
{
	XXH3_state_t *state = XXH3_createState();

	if (!state)
		return err_set(err, -ENOMEM, "no memory for the checksum");
	XXH3_128bits_reset(state);
	int r = hash_contents(fd, name, true, state, NULL, err);

	if (r == 0) {
		XXH128_hash_t h = XXH3_128bits_digest(state);

		snprintf(ret, SNAPSHOT_DIGEST_LEN + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64,
			 (uint64_t)h.low64);
	}
	XXH3_freeState(state);
	return r;
}

/* ---- writing ---- */

static const char *text_of(const char *s)
{
	return s ? s : "";
}

static json_t *format_layer(const struct snapshot_layer *l)
{
	char hash[SNAPSHOT_HASH_LEN + 1];

	snprintf(hash, sizeof(hash), "%016" PRIx64, l->index_hash);
	return json_pack("{s:s s:I s:s s:s s:s* s:s*}", "file", text_of(l->file), "size", (json_int_t)l->size, "index_hash", hash,
			 "digest", l->digest, "url", l->url, "sha256", *l->sha256 ? l->sha256 : NULL);
}

static int format_of(const struct snapshot_manifest *m)
{
	for (size_t i = 0; i < m->ndisks; i++)
		for (size_t k = 0; k < m->disk[i].nlayers; k++)
			if (*m->disk[i].layer[k].sha256)
				return SNAPSHOT_FORMAT;
	return 1;
}

static json_t *format_disk(const struct snapshot_disk *d, size_t number)
{
	static const char *const kinds[] = { "file", "layers", "raw" };
	json_t *layers = json_array();

	for (size_t i = 0; i < d->nlayers; i++)
		if (json_array_append_new(layers, format_layer(&d->layer[i])) < 0) {
			json_decref(layers);
			return NULL;
		}
	return json_pack("{s:I s:s s:I s:s s:I s:I s:s s:o}", "number", (json_int_t)number, "kind", kinds[d->kind],
			 "size",
			 (json_int_t)d->size, "path", text_of(d->path), "path_size", (json_int_t)d->path_size,
					"path_mtime_ns",
			 (json_int_t)d->path_mtime_ns, "image", text_of(d->image), "layers", layers);
}

static json_t *format_disks(const struct snapshot_manifest *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->ndisks; i++)
		if (json_array_append_new(list, format_disk(&m->disk[i], i)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *format_machine(const struct snapshot_manifest *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->ndevices; i++)
		if (json_array_append_new(list, json_string(m->device[i])) < 0) {
			json_decref(list);
			return NULL;
		}
	return json_pack("{s:I s:I s:s s:o}", "cpus", (json_int_t)m->cpus, "memory", (json_int_t)m->memory, "cmdline",
			 text_of(m->cmdline), "devices", list);
}

static json_t *format_file(const struct snapshot_file *f)
{
	return json_pack("{s:I s:s}", "size", (json_int_t)f->size, "xxh3", f->hash);
}

static json_t *format_body(const struct snapshot_manifest *m, const char *checksum)
{
	json_t *machine = format_machine(m), *disks = format_disks(m);
	json_t *state = format_file(&m->state), *ram = format_file(&m->ram), *index = format_file(&m->ram_index);

	/* `o` takes the objects over, also when it fails; a NULL makes it fail. */
	return json_pack("{s:i s:s s:s s:s s:I s:{s:s s:s} s:o s:{s:s s:I s:I s:I s:s} s:s s:o s:{s:o s:o s:o} s:I"
			 " s:{s:s s:s s:s s:s s:s} s:s}",
			 "format", format_of(m), "what", m->what == SNAPSHOT_WHAT_VM ? "vm" : "snapshot", "coffer",
			 text_of(m->version), "id", m->id, "created_ms", (json_int_t)m->created_ms, "parent", "id",
					m->parent_id,
			 "path", text_of(m->parent_path), "machine", machine, "cpu", "vendor", m->cpu.vendor, "family",
			 (json_int_t)m->cpu.family, "model", (json_int_t)m->cpu.model, "stepping",
					(json_int_t)m->cpu.stepping,
			 "features", m->cpu.features, "kvm", text_of(m->kvm), "disks", disks, "files", SNAPSHOT_STATE,
					state,
			 SNAPSHOT_RAM, ram, SNAPSHOT_RAM_INDEX, index, "zstd_level", (json_int_t)m->level, "vm",
					"image",
			 text_of(m->image), "user", text_of(m->user), "cwd", text_of(m->cwd), "kernel",
					text_of(m->kernel),
			 "hostname", text_of(m->hostname), "checksum", checksum);
}

static char *dump(const struct snapshot_manifest *m, const char *checksum, size_t *ret_len)
{
	json_t *o = format_body(m, checksum);
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	char *line = NULL;
	size_t len = text ? strlen(text) : 0;

	json_decref(o);
	if (text && (line = realloc(text, len + 2))) {
		text = line;
		memcpy(text + len, "\n", 2);
		*ret_len = len + 1;
	} else {
		free(text);
		text = NULL;
	}
	return text;
}

char *snapshot_manifest_format(const struct snapshot_manifest *m)
{
	char checksum[SNAPSHOT_HASH_LEN + 1];
	size_t len = 0;
	_cleanup_free_ char *without = dump(m, "", &len);

	if (!without)
		return NULL;
	snapshot_hash(without, len, checksum);
	return dump(m, checksum, &len);
}

/* ---- memory ---- */

int snapshot_layer_copy(const struct snapshot_layer *from, const char *file, struct snapshot_layer *ret)
{
	*ret = *from;
	ret->file = strdup(text_of(file ? file : from->file));
	ret->url = from->url ? strdup(from->url) : NULL;
	return ret->file && (ret->url || !from->url) ? 0 : -ENOMEM;
}

void snapshot_layer_finish(struct snapshot_layer *l)
{
	free(l->file);
	free(l->url);
	*l = (struct snapshot_layer){ 0 };
}

bool snapshot_layer_is_remote(const struct snapshot_layer *l)
{
	return l->url && !(l->file && *l->file);
}

void snapshot_manifest_finish(struct snapshot_manifest *m)
{
	for (size_t i = 0; i < m->ndisks; i++) {
		struct snapshot_disk *d = &m->disk[i];

		for (size_t k = 0; k < d->nlayers; k++)
			snapshot_layer_finish(&d->layer[k]);
		free(d->layer);
		free(d->path);
		free(d->image);
	}
	free(m->disk);
	for (size_t i = 0; i < m->ndevices; i++)
		free(m->device[i]);
	free(m->device);
	char *const strings[] = { m->version, m->parent_path, m->cmdline, m->kvm, m->image, m->user, m->cwd, m->kernel,
				  m->hostname };

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++)
		free(strings[i]);
	*m = (struct snapshot_manifest){ 0 };
}

int snapshot_manifest_copy(const struct snapshot_manifest *m, struct snapshot_manifest *ret)
{
	_cleanup_free_ char *text = snapshot_manifest_format(m);

	return text ? snapshot_manifest_parse("manifest", m->what, text, strlen(text), ret, NULL) : -ENOMEM;
}
