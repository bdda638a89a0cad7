/* SPDX-License-Identifier: Apache-2.0 */
/* Packing a VM's root disk: see pack.h. */
#include "host/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/agent_client.h"
#include "host/control_client.h"
#include "host/image_store.h"
#include "host/pack_layer.h"
#include "host/snapshot_layers.h"
#include "host/snapshot_record.h"
#include "host/snapshot_take.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/opt.h"
#include "lib/util.h"

enum { FREEZE_MS = 60000, CUT_MS = 10 * 60 * 1000, PING_MS = 10000 };

#define NEW_LAYER "layer"

/* ---- is it one that can be packed? ---- */

/* Only a root that is one disk is an image's: an overlay is spread over two. */
static int check_root(struct vm_handle *vm, int signal_fd, struct err *err)
{
	static const char ping[] = "{\"op\":\"ping\"}";
	char root[32] = "", overlay[32] = "";
	struct agent_conn *c;
	struct agent_line line;
	int r = vm_connect_agent(vm, signal_fd, &c, err);

	if (r < 0)
		return r;
	r = agent_request(c, ping, sizeof(ping) - 1, control_deadline(PING_MS), &line, err);
	agent_close(c);
	if (r < 0)
		return r;
	agent_line_string(&line, "root", root, sizeof(root));
	agent_line_string(&line, "overlay", overlay, sizeof(overlay));
	if (strcmp(root, "disk") != 0)
		return err_set(err, -ENOTSUP, "it has no root disk that could be packed");
	if (strcmp(overlay, "none") != 0)
		return err_set(err, -ENOTSUP,
			       "its image is not an ext4 that can be written, so what it changed is an overlay on another disk: only VMs of an ext4 image can be packed");
	return 0;
}

/* Of what was remote, one may know no XXH3-128. */
static bool is_layer(const struct snapshot_layer *have, const struct image_layer *want)
{
	if (have->size != want->bytes)
		return false;
	return *have->sha256 ? !strcmp(have->sha256, want->sha256) : *have->digest && !strcmp(have->digest, want->xxh);
}

/* The VM's lowest layers must be the image's: it may have been made anew since the snapshot that the VM comes from. Sets
 * how many of the VM's layers are the image's. */
static int compare_image(const struct image *image, const struct snapshot_disk *d, size_t *ret, struct err *err)
{
	size_t k = 0, n = 0;
	uint64_t size = 0;
	int64_t mtime = 0;
	bool same = true;

	if (image->nlayers == 0 || image->layer[0].raw) {
		_cleanup_close_ int fd = open(d->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

		same = fd >= 0 && vm_disk_file_facts(fd, &size, &mtime) == 0 && size == d->path_size && mtime == d->path_mtime_ns;
		k = image->nlayers > 0;
	} else {
		same = !*d->path;
	}
	for (; k < image->nlayers && same; k++, n++)
		same = n < d->nlayers && is_layer(&d->layer[n], &image->layer[k]);
	*ret = n;
	return same ? 0 : err_set(err, -ESTALE, "its image '%s' is not what the VM's disk begins with: it was made anew or changed since the start, or the VM is of a flattened snapshot",
				  image->name[0] ? image->name : image->path);
}

/* ---- the cut ---- */

struct cut {
	struct vm_handle *vm;
	struct pack *p;
	struct agent_conn *frozen; /* until it is closed */
	uint64_t since_ns;
};

static int freeze(struct cut *c, struct err *err)
{
	static const char request[] = "{\"op\":\"freeze\",\"anonymous\":true}";
	uint64_t deadline = control_deadline(FREEZE_MS);
	struct agent_line line;
	int r = agent_connect(c->vm->dir.fd, AGENT_PORT, c->p->signal_fd, deadline, &c->frozen, err);

	c->since_ns = loop_now_ns();
	if (r == 0)
		r = agent_request(c->frozen, request, sizeof(request) - 1, deadline, &line, err);
	return r < 0 ? err_prefix(err, "the guest's root file system cannot be frozen: "), r : 0;
}

/* The agent ends a freeze that lasts too long: then the cut is of a file system that was written meanwhile. */
static int thaw(struct cut *c, struct err *err)
{
	int r = 0;

	if (!c->frozen || agent_fill(c->frozen, NULL) < 0)
		r = err_set(err, -ETIMEDOUT, "the guest let its file system go on before the cut: try again");
	c->p->frozen_ns = loop_now_ns() - c->since_ns;
	agent_close(c->frozen);
	c->frozen = NULL;
	return r;
}

static int at_stage(void *opaque, enum control_stage stage, struct err *err)
{
	return stage == CONTROL_STAGE_READY ? freeze(opaque, err) : thaw(opaque, err);
}

static int wanted(void *opaque, struct err *err)
{
	struct cut *c = opaque;

	return progress_bytes(c->p->progress, 0, 0, err);
}

/* Disk 0 is the root. */
static int cut(struct vm_handle *vm, struct pack *p, struct snapshot_layers_disk *d, struct err *err)
{
	struct cut c = { .vm = vm, .p = p };
	struct control_message q = { .op = CONTROL_SNAPSHOT, .arg = { CONTROL_SNAPSHOT_DISKS | CONTROL_SNAPSHOT_ANNOUNCE, 1, 1 },
				     .nfds = 2, .tick = wanted, .stage = at_stage, .opaque = &c };
	struct control_reply reply;
	int r = vm_disk_create_pair(vm->dir.disk_dir_fd, 0, d->next, d->size, d->new_fd, err);

	if (r < 0)
		return r;
	q.fd = d->new_fd;
	r = control_call_message(vm->dir.fd, &q, control_deadline(CUT_MS), &reply, err);
	agent_close(c.frozen);
	if (r == 0)
		p->pause_ns = le64_get(reply.value[CONTROL_SV_PAUSE_NS]);
	return r;
}

/* ---- the layer ---- */

static int write_layer(struct pack *p, const struct snapshot_layers_disk *d, size_t first, int out, struct image_layer *ret,
		       struct err *err)
{
	const char *name[SNAPSHOT_LAYERS_MAX];
	struct pack_layer_facts facts = { 0 };
	int fd[SNAPSHOT_LAYERS_MAX], r;
	size_t n = 0;

	for (size_t k = first; k < d->nlayers; k++, n++) {
		fd[n] = d->layer[k].fd;
		name[n] = d->layer[k].file;
	}
	r = pack_layer_file(fd, name, n, p->compress ? &p->zfile : NULL, out, p->progress, &facts, ret, err);
	p->size = facts.size;
	p->data = facts.data;
	return r;
}

static int add_layer(struct pack *p, struct image_draft *draft, const struct snapshot_layers_disk *d, size_t first, struct err *err)
{
	struct image_layer facts = { 0 };
	_cleanup_close_ int fd = openat(draft->fd, NEW_LAYER, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, -errno, "make '%s/" NEW_LAYER "'", draft->path);
	progress_stage(p->progress, "writing the layer");
	int r = write_layer(p, d, first, fd, &facts, err);

	if (r < 0)
		return r;
	facts.message = (char *)(uintptr_t)p->message;
	p->bytes = facts.bytes;
	return image_draft_add_layer(draft, fd, NEW_LAYER, &facts, err);
}

/* ---- the image ---- */

/* A disk given as a path becomes the image's lowest layer: a copy, since its owner may change it. */
static int add_base(struct image_draft *draft, const struct image *image, struct progress *progress, struct err *err)
{
	struct image_layer facts;

	if (image->nlayers > 0)
		return image_draft_add_image(draft, image, err);
	_cleanup_close_ int fd = open(image->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "image: open '%s'", image->path);
	progress_stage(progress, "reading the image");
	int r = image_layer_measure(fd, image->path, true, &facts, NULL, progress, err);

	return r < 0 ? r : image_draft_add_layer(draft, fd, NULL, &facts, err);
}

static int publish(struct image_draft *draft, const struct image *image, const char *vm, struct pack *p, struct err *err)
{
	/* Borrowed but for the layers, which it gets from the draft. */
	struct image result = { .format = IMAGE_FORMAT_EXT4, .size = p->size, .user = image->user, .cwd = image->cwd,
				.env = image->env, .cmd = image->cmd };

	snprintf(result.name, sizeof(result.name), "%s", p->to);
	snprintf(result.source, sizeof(result.source), "pack of %.80s on %.300s", p->from ? p->from : vm,
		 image->name[0] ? image->name : image->path);
	int r = image_draft_publish(draft, &result, p->replace, p->progress, err);

	p->layers = result.nlayers;
	memcpy(p->id, result.id, sizeof(p->id));
	for (size_t k = 0; k < result.nlayers; k++)
		image_layer_finish(&result.layer[k]);
	free(result.layer);
	return r;
}

static int with_draft(struct vm_handle *vm, struct pack *p, const struct image *image, struct image_draft *draft,
		      struct snapshot_layers *layers, size_t first, struct err *err)
{
	struct snapshot_layers_disk *d = &layers->disk[0];
	int r = add_base(draft, image, p->progress, err);

	progress_stage(p->progress, "cutting the disk");
	if (r == 0)
		r = cut(vm, p, d, err);
	for (size_t k = first; k < d->nlayers && r == 0; k++)
		r = snapshot_layers_seal_late(layers, d, k, err);
	if (r == 0)
		r = add_layer(p, draft, d, first, err);
	return r < 0 ? r : publish(draft, image, vm->dir.id, p, err);
}

static int pack_on(struct vm_handle *vm, struct pack *p, const struct snapshot_manifest *record, const struct image *image,
		   struct err *err)
{
	struct snapshot_layers layers = SNAPSHOT_LAYERS_NONE;
	struct snapshot_manifest root = { .disk = record->disk, .ndisks = 1 }; /* no other disk is touched */
	struct image_draft draft = IMAGE_DRAFT_NONE;
	struct image_store store;
	size_t first = 0;
	int r = compare_image(image, &record->disk[0], &first, err);

	if (r == 0 && image->nlayers + 1 > IMAGE_LAYERS_MAX)
		r = err_set(err, -E2BIG, "its image has %zu layers already: 'coffer image export' and 'import' make it one", image->nlayers);
	if (r == 0)
		r = image_store_init(&store, NULL, err);
	if (r == 0)
		r = snapshot_layers_open(&layers, &vm->dir, &root, false, err);
	if (r == 0)
		r = image_draft_begin(&store, &draft, err);
	if (r == 0)
		r = with_draft(vm, p, image, &draft, &layers, first, err);
	snapshot_layers_close(&layers);
	image_draft_end(&draft);
	return r;
}

int pack_vm(struct vm_handle *vm, struct pack *p, struct err *err)
{
	struct snapshot_manifest record = { 0 };
	struct image image = { 0 };
	_cleanup_close_ int lock = -1, held = -1;
	struct image_store store;
	int r = image_store_init(&store, NULL, err);

	if (r == 0)
		r = image_store_check_free(&store, p->to, p->replace, err);
	if (r == 0)
		r = check_root(vm, p->signal_fd, err);
	if (r < 0)
		return r;
	lock = snapshot_lock_vm(vm, err);
	if (lock < 0)
		return lock;
	r = snapshot_record_read(vm->dir.fd, &record, err);
	if (r == 0 && (record.ndisks == 0 || record.disk[0].kind != SNAPSHOT_DISK_LAYERS))
		r = err_set(err, -ENOTSUP, "its root disk is none that could be packed");
	if (r == 0) {
		const struct snapshot_disk *d = &record.disk[0];

		r = image_resolve(*d->image ? d->image : d->path, &image, err);
	}
	if (r == 0) {
		held = image_open(&image, err);
		r = held < 0 ? held : pack_on(vm, p, &record, &image, err);
	}
	image_finish(&image);
	snapshot_manifest_finish(&record);
	return r;
}

int pack_parse_compress(const char *text, struct pack *p, struct err *err)
{
	static const struct {
		const char *name;
		enum zfile_algo algo;
		uint64_t max;
	} algos[] = { { "zstd", ZFILE_ZSTD, 19 }, { "lz4", ZFILE_LZ4, 12 } };
	uint64_t level = 0;

	text = text ? text : PACK_COMPRESS_DEFAULT;
	p->compress = strcmp(text, "none") != 0;
	for (size_t i = 0; i < ARRAY_SIZE(algos) && p->compress; i++) {
		size_t n = strlen(algos[i].name);

		if (strncmp(text, algos[i].name, n) != 0 || (text[n] && text[n] != ':'))
			continue;
		if (text[n] && (opt_parse_u64(text + n + 1, &level) < 0 || level < 1 || level > algos[i].max))
			break;
		p->zfile = (struct zfile_options){ .algo = algos[i].algo, .level = (int)level };
		return 0;
	}
	return p->compress ? err_set(err, -EINVAL,
				     "--compress '%s': the form is none, zstd, zstd:LEVEL with LEVEL from 1 to 19, lz4 or lz4:LEVEL from 1 to 12",
				     text) :
			     0;
}
