/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One option table drives the command line, --help, the JSON configuration and the stored configuration.
 *
 *   static const struct opt blk_options[] = {
 *           OPT_STRING(struct blk_options, path, "path", "FILE", "disk image"),
 *           OPT_BOOL(struct blk_options, ro, "ro", "refuse writes"),
 *           OPT_U64(struct blk_options, size, "queues", "N", 1, 16, "number of queues"),
 *           OPT_END };
 *
 * parses "path=disk.img,ro,queues=4" (opt_parse_list: one device on a command line; a value without a name goes to
 * the first entry) and "--queues 4" / "--queues=4" (opt_parse_args: a command) into the same struct. Strings are
 * borrowed from argv by opt_parse_args and copied by opt_parse_list (freed by opt_free).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/err.h"

enum opt_type {
	OPT_TYPE_END,
	OPT_TYPE_BOOL,   /* bool; --name, --name=on|off */
	OPT_TYPE_U64,    /* uint64_t within [min, max]; decimal or 0x */
	OPT_TYPE_SIZE,   /* uint64_t bytes with K, M, G, T suffix (powers of 1024); a bare number is bytes unless unit set */
	OPT_TYPE_STRING, /* char * */
	OPT_TYPE_LIST,   /* struct opt_strv: may be repeated */
	OPT_TYPE_SECONDS,/* double seconds: 5, 0.5, 2m, 1h */
};

enum { OPT_LIST_MAX = 64 };
struct opt_strv {
	const char *v[OPT_LIST_MAX];
	size_t n;
};

struct opt {
	enum opt_type type;
	char letter;          /* 0: none */
	const char *name;     /* long name */
	const char *metavar;  /* shown in help; NULL for flags */
	const char *help;
	size_t offset;
	uint64_t min, max;    /* numbers; SIZE: also the unit of a bare number in `unit` */
	uint64_t unit;
};

#define OPT_END { .type = OPT_TYPE_END }
#define OPT_BOOL(st, m, n, l, h) { .type = OPT_TYPE_BOOL, .name = n, .letter = l, .help = h, .offset = offsetof(st, m) }
#define OPT_U64(st, m, n, l, mv, lo, hi, h) \
	{ .type = OPT_TYPE_U64, .name = n, .letter = l, .metavar = mv, .help = h, .offset = offsetof(st, m), .min = lo, .max = hi }
#define OPT_SIZE(st, m, n, l, mv, lo, hi, u, h) \
	{ .type = OPT_TYPE_SIZE, .name = n, .letter = l, .metavar = mv, .help = h, .offset = offsetof(st, m), .min = lo, .max = hi, .unit = u }
#define OPT_STRING(st, m, n, l, mv, h) { .type = OPT_TYPE_STRING, .name = n, .letter = l, .metavar = mv, .help = h, .offset = offsetof(st, m) }
#define OPT_LIST(st, m, n, l, mv, h) { .type = OPT_TYPE_LIST, .name = n, .letter = l, .metavar = mv, .help = h, .offset = offsetof(st, m) }
#define OPT_SECONDS(st, m, n, l, mv, h) { .type = OPT_TYPE_SECONDS, .name = n, .letter = l, .metavar = mv, .help = h, .offset = offsetof(st, m) }

/* Parse argv[1..]: options until "--" or, when stop_at_operand, the first operand; otherwise operands may be mixed
 * in and are moved to the end. Returns the index of the first operand in argv (after "--" if there was one), or
 * -EINVAL with a text that names the option, the value and the accepted form. */
int opt_parse_args(const struct opt *table, void *dst, int argc, char **argv, bool stop_at_operand, struct err *err);

/* The same, with more to say. */
struct opt_line {
	bool stop_at_operand;
	bool numbers;   /* "-5" and "-1,5" are operands, not mistaken options */
	uint64_t given; /* bit i: table[i] was there, whatever its value; of the first 64 */
};
int opt_parse_line(const struct opt *table, void *dst, int argc, char **argv, struct opt_line *line, struct err *err);

/* Parse "a=b,c,d=e" (a literal comma in a value is written ",,"). 0 or -EINVAL / -ENOMEM. */
int opt_parse_list(const struct opt *table, void *dst, const char *text, struct err *err);
void opt_free(const struct opt *table, void *dst); /* strings made by opt_parse_list */

/* "  -i, --interactive      keep stdin open" lines, aligned, wrapped at 80 columns. */
void opt_print_help(const struct opt *table, FILE *out);

/* Single values, also for other parsers: 0 or -EINVAL. */
int opt_parse_u64(const char *s, uint64_t *ret);
int opt_parse_size(const char *s, uint64_t unit, uint64_t *ret);
int opt_parse_seconds(const char *s, double *ret);
