/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image ls|show|tree`: what is in the store. Texts of manifests are escaped (lib/text.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "host/cmd_image.h"
#include "host/image_store.h"
#include "host/json_get.h"
#include "lib/text.h"
#include "lib/util.h"

struct list_options {
	bool help, json;
};

static const struct opt list_table[] = {
	OPT_BOOL(struct list_options, json, "json", 0, "print JSON"),
	CMD_OPT_HELP(struct list_options),
	OPT_END,
};

static void format_time(int64_t t, char *out, size_t len)
{
	time_t when = (time_t)t;
	struct tm tm;

	if (gmtime_r(&when, &tm) == NULL || strftime(out, len, "%Y-%m-%d %H:%M", &tm) == 0)
		snprintf(out, len, "?");
}

static int read_store(const struct cmd_help *help, int argc, char **argv, struct list_options *o, struct image_entry **ret,
		      size_t *ret_n, uint64_t *ret_total, int *ret_status)
{
	struct image_store store;
	struct err err = ERR_INIT;
	int first = cmd_parse(help, o, argc, argv, false, ret_status);

	if (first < 0)
		return -1;
	if (first < argc)
		*ret_status = cmd_failf("%s: '%s' is one argument too many", argv[0], TEXT_CUT(argv[first]));
	else if (image_store_init(&store, NULL, &err) < 0 ||
		 image_store_list_total(&store, ret, ret_n, ret_total, &err) < 0)
		*ret_status = cmd_fail(&err);
	else
		return 0;
	return -1;
}

/* ---- ls ---- */

static const struct cmd_help ls_help = {
	.usage = "image ls [--json]",
	.summary = "list the root disk images",
	.text = "SIZE is that of the disk, DISK what its layers take up on this machine, SHARED how\n"
		"much of that other images have too.",
	.options = list_table,
	.examples = "coffer image ls --json | jq -r '.[].name'",
};

static json_t *entry_to_json(const struct image_entry *e)
{
	const struct image *image = &e->image;
	char when[IMAGE_TIME_SIZE];

	if (e->problem.code != 0)
		return json_pack("{s:s, s:o}", "name", image->name, "error", json_text(e->problem.text));
	image_time_format(image->created, when);
	return json_pack("{s:s, s:o, s:s, s:I, s:i, s:I, s:I, s:s, s:s, s:s, s:s?}", "name", image->name, "path",
			 json_text(image->path), "format", image_format_name(image->format), "size", (json_int_t)image->size,
			 "layers", (int)image->nlayers, "disk", (json_int_t)e->disk, "shared", (json_int_t)e->shared, "id",
			 image->id, "created", when, "source", image->source, "parent",
			 e->parent != NULL ? e->parent->image.name : NULL);
}

static int print_json(const struct image_entry *list, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, entry_to_json(&list[i]));
	return cmd_print_json(array, 0);
}

static void print_table(const struct image_entry *list, size_t n, uint64_t total)
{
	int width = 4;

	for (size_t i = 0; i < n; i++)
		width = MAX(width, (int)strlen(list[i].image.name));
	printf("%-*s  %-8s  %6s  %9s  %9s  %9s  %-16s  %s\n", width, "NAME", "FORMAT", "LAYERS", "SIZE", "DISK", "SHARED", "CREATED",
	       "SOURCE");
	for (size_t i = 0; i < n; i++) {
		const struct image_entry *e = &list[i];
		char when[32];

		if (e->problem.code != 0) {
			printf("%-*s  unusable: ", width, e->image.name);
			text_print(stdout, e->problem.text);
		} else {
			format_time(e->image.created, when, sizeof(when));
			printf("%-*s  %-8s  %6zu  %9s  %9s  %9s  %s  ", width, e->image.name, image_format_name(e->image.format),
			       e->image.nlayers, TEXT_SIZE(e->image.size), TEXT_SIZE(e->disk), TEXT_SIZE(e->shared), when);
			text_print(stdout, e->image.source);
		}
		putchar('\n');
	}
	if (n > 1)
		printf("%zu images take up %s\n", n, TEXT_SIZE(total));
}

int cmd_image_ls(int argc, char **argv)
{
	struct list_options o = { 0 };
	struct image_entry *list;
	uint64_t total;
	size_t n;
	int status;

	if (read_store(&ls_help, argc, argv, &o, &list, &n, &total, &status) < 0)
		return status;
	if (o.json)
		status = print_json(list, n);
	else
		print_table(list, n, total);
	image_store_list_free(list, n);
	return o.json ? status : cmd_finish_stdout(0);
}

/* ---- tree ---- */

static const struct cmd_help tree_help = {
	.usage = "image tree [--json]",
	.summary = "show which image is made on which",
	.text = "An image stands below the one whose layers its own begin with. What it adds is the\n"
		"size of the layers above these, and what was said when the last one was made. In\n"
		"JSON \"images\" are those made on it.",
	.options = list_table,
	.examples = "coffer image tree\ncoffer image tree --json | jq -r '.. | .name? // empty'",
};

/* What an image has that its parent has not. */
struct added {
	size_t layers;
	uint64_t bytes;
	const char *message; /* of the last layer, or NULL */
};

static struct added added_by(const struct image_entry *e)
{
	size_t from = e->parent != NULL ? e->parent->image.nlayers : 0, n = e->image.nlayers;
	struct added a = { .layers = n - from };

	for (size_t k = from; k < n; k++)
		a.bytes += e->image.layer[k].bytes;
	if (from < n)
		a.message = e->image.layer[n - 1].message;
	return a;
}

static void print_node(const struct image_entry *e, int depth)
{
	struct added a = added_by(e);

	printf("%*s%s  ", 2 * depth, "", e->image.name);
	if (e->problem.code != 0) {
		printf("unusable: ");
		text_print(stdout, e->problem.text);
	} else {
		printf("%s%zu layer%s, %s", depth > 0 ? "+" : "", a.layers, a.layers == 1 ? "" : "s", TEXT_SIZE(a.bytes));
		if (a.message != NULL) {
			printf("  \"");
			text_print(stdout, a.message);
			putchar('"');
		}
	}
	putchar('\n');
}

static void print_children(const struct image_entry *list, size_t n, const struct image_entry *parent, int depth)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].parent == parent) {
			print_node(&list[i], depth);
			print_children(list, n, &list[i], depth + 1);
		}
}

static json_t *children_to_json(const struct image_entry *list, size_t n, const struct image_entry *parent)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++) {
		const struct image_entry *e = &list[i];
		struct added a = added_by(e);

		if (e->parent != parent)
			continue;
		if (e->problem.code != 0)
			json_array_append_new(array, json_pack("{s:s, s:o}", "name", e->image.name, "error", json_text(e->problem.text)));
		else
			json_array_append_new(array, json_pack("{s:s, s:I, s:I, s:s?, s:o}", "name", e->image.name, "added_layers",
							       (json_int_t)a.layers, "added_bytes", (json_int_t)a.bytes, "message",
							       a.message, "images", children_to_json(list, n, e)));
	}
	return array;
}

int cmd_image_tree(int argc, char **argv)
{
	struct list_options o = { 0 };
	struct image_entry *list;
	uint64_t total;
	size_t n;
	int status;

	if (read_store(&tree_help, argc, argv, &o, &list, &n, &total, &status) < 0)
		return status;
	if (o.json)
		status = cmd_print_json(children_to_json(list, n, NULL), 0);
	else
		print_children(list, n, NULL, 0);
	if (!o.json && n == 0)
		fprintf(stderr, "coffer: there are no images\n");
	image_store_list_free(list, n);
	return o.json ? status : cmd_finish_stdout(0);
}

/* ---- show ---- */

static const struct cmd_help show_help = {
	.usage = "image show NAME [--json]",
	.summary = "show an image and its layers",
	.text = "The layers are listed lowest first, as they were put on each other.",
	.options = list_table,
	.examples = "coffer image show debian\ncoffer image show app --json | jq -r '.layers[].sha256'",
};

static void print_fact(const char *name, const char *value)
{
	printf("%-8s  ", name);
	text_print(stdout, value);
	putchar('\n');
}

static void print_list(const char *name, char *const *v)
{
	for (; v != NULL && *v != NULL; v++)
		print_fact(name, *v);
}

static void print_layer(const struct image_layer *l, size_t k)
{
	char when[32];

	format_time(l->created, when, sizeof(when));
	printf("layer %zu   %s, %" PRIu64 " bytes, %s%s\n", k + 1, l->raw ? "raw" : "lsmt", l->bytes, when,
	       l->url != NULL ? ", remote" : "");
	printf("          sha256 %s\n", l->sha256);
	if (l->url != NULL) {
		printf("          ");
		text_print(stdout, l->url);
		putchar('\n');
	}
	if (l->message != NULL) {
		printf("          \"");
		text_print(stdout, l->message);
		printf("\"\n");
	}
}

static void print_image(const struct image *image)
{
	char when[32];

	format_time(image->created, when, sizeof(when));
	print_fact("name", image->name);
	print_fact("path", image->path);
	print_fact("source", image->source);
	print_fact("created", when);
	print_fact("format", image_format_name(image->format));
	printf("%-8s  %" PRIu64 " bytes\n", "size", image->size);
	print_fact("id", image->id);
	if (image->user != NULL)
		print_fact("user", image->user);
	if (image->cwd != NULL)
		print_fact("cwd", image->cwd);
	print_list("env", image->env);
	print_list("cmd", image->cmd);
	for (size_t k = 0; k < image->nlayers; k++)
		print_layer(&image->layer[k], k);
}

int cmd_image_show(int argc, char **argv)
{
	struct list_options o = { 0 };
	struct image_store store;
	struct err err = ERR_INIT;
	struct image image;
	int status, first = cmd_parse(&show_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("image show: %s", argc == first ? "the name is missing" : "one name at a time");
	status = cmd_image_check_name(argv[0], argv[first]);
	if (status != 0)
		return status;
	if (image_store_init(&store, NULL, &err) < 0 || image_store_resolve(&store, argv[first], &image, &err) < 0)
		return cmd_fail(&err);
	if (o.json) {
		json_t *j = image_to_json(&image);

		json_object_set_new(j, "path", json_text(image.path));
		status = cmd_print_json(j, 0);
	} else {
		print_image(&image);
		status = cmd_finish_stdout(0);
	}
	image_finish(&image);
	return status;
}
