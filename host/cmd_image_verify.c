/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `coffer image verify`: every layer against what its manifest says of it, by size, SHA-256, XXH3-128 and its index.
 *
 * A file that several images have is read once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/cmd_image.h"
#include "host/image_store.h"
#include "host/json_get.h"
#include "lib/fd.h"
#include "lib/util.h"

/* A file that has been read, and what it was found to be. */
struct measured {
	dev_t dev;
	ino_t ino;
	struct image_layer facts;
	uint64_t size;
};

struct verify {
	struct measured *v;
	size_t n;
	struct progress *p;
	json_t *result; /* NULL: as text */
	size_t images, damaged;
};

static const struct measured *find(const struct verify *v, const struct stat *st)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->v[i].ino == st->st_ino && v->v[i].dev == st->st_dev)
			return &v->v[i];
	return NULL;
}

static int measure(struct verify *v, int fd, const char *name, bool raw, const struct measured **ret, struct err *err)
{
	struct measured m, *more;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s", name);
	*ret = find(v, &st);
	if (*ret != NULL)
		return 0;
	m = (struct measured){ .dev = st.st_dev, .ino = st.st_ino };
	r = image_layer_measure(fd, name, raw, &m.facts, &m.size, v->p, err);
	if (r < 0)
		return r;
	more = realloc(v->v, (v->n + 1) * sizeof(*more));
	if (more == NULL)
		return err_set(err, -ENOMEM, "no memory");
	v->v = more;
	v->v[v->n] = m;
	*ret = &v->v[v->n++];
	return 0;
}

static int check_layer(struct verify *v, const struct image *image, size_t k, struct err *err)
{
	const struct image_layer *l = &image->layer[k];
	const struct measured *m = NULL;
	char name[IMAGE_NAME_MAX + PATH_MAX + 64];
	char path[PATH_MAX];
	_cleanup_close_ int fd = image_layer_open(image, k, path, err);
	int r;

	if (fd < 0)
		return fd;
	/* Of a remote one that the cache has whole, where that is. */
	snprintf(name, sizeof(name), "image '%s': layer %zu, '%s'", image->name, k + 1, l->file != NULL ? l->file : path);
	r = measure(v, fd, name, l->raw, &m, err);
	if (r < 0 || m == NULL)
		return r;
	if (strcmp(m->facts.sha256, l->sha256) != 0)
		return err_set(err, -EBADMSG, "%s, is damaged: its SHA-256 is %s, not %s", name, m->facts.sha256, l->sha256);
	if (l->xxh[0] != '\0' && strcmp(m->facts.xxh, l->xxh) != 0)
		return err_set(err, -EBADMSG, "%s: the manifest is damaged: its XXH3-128 is %s, not %s", name, m->facts.xxh, l->xxh);
	if (l->file != NULL && m->facts.index_hash != l->index_hash)
		return err_set(err, -EBADMSG, "%s: the manifest is damaged: the hash of its index is %016" PRIx64 ", not %016" PRIx64,
			       name, m->facts.index_hash, l->index_hash);
	if (m->size > image->size)
		return err_set(err, -EBADMSG, "%s: it is for a disk of %" PRIu64 " bytes, the image has %" PRIu64, name, m->size,
			       image->size);
	return 0;
}

/* What was found of one image. */
static void tell(struct verify *v, const char *name, size_t layers, size_t remote, json_t *errors)
{
	bool sound = json_array_size(errors) == 0;

	v->images++;
	v->damaged += !sound;
	if (v->result != NULL)
		json_array_append_new(v->result, json_pack("{s:o, s:b, s:I, s:I, s:O}", "name", json_text(name), "sound", sound, "layers",
							   (json_int_t)layers, "remote", (json_int_t)remote, "errors", errors));
	else if (sound && remote > 0)
		printf("%s: %zu of %zu layers are sound, the others are remote and not all here\n", name, layers - remote, layers);
	else if (sound)
		printf("%s: sound\n", name);
}

/* In JSON the errors are in the result, else they are told at once. */
static void add_error(struct verify *v, json_t *errors, const struct err *err)
{
	progress_end(v->p);
	json_array_append_new(errors, json_text(err->text));
	if (v->result == NULL)
		cmd_fail(err);
}

/* An image that cannot even be opened. */
static void tell_problem(struct verify *v, const char *name, const struct err *problem)
{
	json_t *errors = json_array();

	add_error(v, errors, problem);
	tell(v, name, 0, 0, errors);
	json_decref(errors);
}

/* All damage is told, not only the first. Only a signal ends it early. */
static int verify_image(struct verify *v, const char *name, struct err *err)
{
	struct image image;
	_cleanup_close_ int lock = cmd_image_hold(name, &image, err);
	json_t *errors;
	size_t remote = 0;
	int r = 0;

	if (lock < 0)
		return tell_problem(v, name, err), 0;
	errors = json_array();
	for (size_t k = 0; k < image.nlayers && r != -EINTR; k++) {
		*err = ERR_INIT;
		r = check_layer(v, &image, k, err);
		remote += r == -EREMOTE;
		if (r < 0 && r != -EINTR && r != -EREMOTE)
			add_error(v, errors, err);
	}
	progress_end(v->p);
	if (r != -EINTR)
		tell(v, name, image.nlayers, remote, errors);
	json_decref(errors);
	image_finish(&image);
	return r == -EINTR ? r : 0;
}

struct verify_options {
	bool help, json;
};

static const struct opt verify_table[] = {
	OPT_BOOL(struct verify_options, json, "json", 0, "print JSON, damage too"),
	CMD_OPT_HELP(struct verify_options),
	OPT_END,
};

static const struct cmd_help verify_help = {
	.usage = "image verify [NAME...] [--json]",
	.summary = "read the layers of images and check them",
	.text = "All images when none is named. Each damaged layer is told, and the exit status is\n"
		"then 125. A remote layer is read here only when all of it is in the cache; any is\n"
		"checked when a VM reads it.",
	.options = verify_table,
	.examples = "coffer image verify\ncoffer image verify debian\n"
		    "coffer image verify --json | jq -r '.[] | select(.sound | not) | .name'",
};

static int verify_all(struct verify *v, struct err *err)
{
	struct image_store store;
	struct image_entry *list = NULL;
	size_t n = 0;
	int r = image_store_init(&store, NULL, err);

	if (r == 0)
		r = image_store_list(&store, &list, &n, err);
	for (size_t i = 0; i < n && r == 0; i++) {
		if (list[i].problem.code != 0)
			tell_problem(v, list[i].image.name, &list[i].problem);
		else
			r = verify_image(v, list[i].image.name, err);
	}
	image_store_list_free(list, n);
	return r;
}

int cmd_image_verify(int argc, char **argv)
{
	struct verify_options o = { 0 };
	struct cmd_image_watch watch;
	struct verify v = { .p = &watch.progress };
	struct err err = ERR_INIT;
	int status, r, first = cmd_parse(&verify_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	for (int i = first; i < argc; i++) {
		status = cmd_image_check_name(argv[0], argv[i]);
		if (status != 0)
			return status;
	}
	if (cmd_image_watch_begin(&watch, &err) < 0)
		return cmd_fail(&err);
	v.result = o.json ? json_array() : NULL;
	progress_stage(&watch.progress, "reading the layers");
	r = first == argc ? verify_all(&v, &err) : 0;
	for (int i = first; i < argc && r == 0; i++)
		r = verify_image(&v, argv[i], &err);
	cmd_image_watch_end(&watch);
	free(v.v);
	if (r < 0) {
		json_decref(v.result);
		return cmd_fail(&err);
	}
	status = v.damaged > 0 ? CMD_EXIT_FAILED : 0;
	if (o.json)
		return cmd_print_json(v.result, status);
	if (first == argc)
		fprintf(stderr, "coffer: images checked: %zu, of them damaged: %zu\n", v.images, v.damaged);
	return cmd_finish_stdout(status);
}
