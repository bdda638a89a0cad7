/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option tables: see opt.h.
 *
 * Both parsers end in set_value, so that a value means the same wherever it was written. Help is laid out
 * from the same table: names in a column of HELP_COLUMN, descriptions wrapped at HELP_WIDTH.
 */
#include "lib/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 80, NAME_MAX_LEN = 64 };

int opt_parse_u64(const char *s, uint64_t *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s)) /* strtoull would take a sign and blanks */
		return -EINVAL;
	errno = 0;
	int base = s[0] == '0' && (s[1] == 'x' || s[1] == 'X') ? 16 : 10;
	unsigned long long v = strtoull(s, &end, base);

	if (errno || *end || end == s)
		return -EINVAL;
	*ret = v;
	return 0;
}

int opt_parse_size(const char *s, uint64_t unit, uint64_t *ret)
{
	static const char suffixes[] = "KMGT";
	char *end;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	unsigned long long v = strtoull(s, &end, 10);
	uint64_t scale = unit ? unit : 1;

	if (errno)
		return -EINVAL;
	if (*end) {
		const char *p = strchr(suffixes, toupper((unsigned char)*end));

		if (!p || !*p)
			return -EINVAL;
		scale = 1ull << (10 * (p - suffixes + 1));
		end++;
		if (!strcasecmp(end, "iB"))
			end += 2;
		else if (!strcasecmp(end, "B"))
			end += 1;
		if (*end)
			return -EINVAL;
	}
	return __builtin_mul_overflow((uint64_t)v, scale, ret) ? -EINVAL : 0;
}

int opt_parse_seconds(const char *s, double *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s) && *s != '.')
		return -EINVAL;
	if (strpbrk(s, "xXpPnN")) /* no hexadecimal, no nan */
		return -EINVAL;
	errno = 0;
	double v = strtod(s, &end);

	if (errno || end == s)
		return -EINVAL;
	if (!strcmp(end, "ms"))
		v /= 1000;
	else if (!strcmp(end, "m"))
		v *= 60;
	else if (!strcmp(end, "h"))
		v *= 3600;
	else if (*end && strcmp(end, "s") != 0)
		return -EINVAL;
	if (!isfinite(v) || v > 1e9)
		return -EINVAL;
	*ret = v;
	return 0;
}

static int parse_bool(const char *s, bool *ret)
{
	if (!strcmp(s, "on") || !strcmp(s, "yes") || !strcmp(s, "true") || !strcmp(s, "1"))
		*ret = true;
	else if (!strcmp(s, "off") || !strcmp(s, "no") || !strcmp(s, "false") || !strcmp(s, "0"))
		*ret = false;
	else
		return -EINVAL;
	return 0;
}

/* Write a size the way a user would: 512M, 1T; plain bytes when no unit divides it. */
static const char *size_text(uint64_t v, char buf[32])
{
	static const char suffixes[] = "TGMK";

	for (int i = 0; i < 4; i++) {
		int shift = 40 - 10 * i;

		if (v && v % (1ull << shift) == 0) {
			snprintf(buf, 32, "%llu%c", (unsigned long long)(v >> shift), suffixes[i]);
			return buf;
		}
	}
	snprintf(buf, 32, "%llu", (unsigned long long)v);
	return buf;
}

static int bad_range(const struct opt *o, const char *show, const char *value, struct err *err)
{
	char lo[32], hi[32];

	/* A number without a unit is rarely meant as bytes where so few bytes make no sense. */
	if (o->type == OPT_TYPE_SIZE && o->unit <= 1 && isdigit((unsigned char)value[strlen(value) - 1]))
		return err_set(err, -EINVAL, "%s: '%s' is in bytes, outside the range from %s to %s: a unit is K, M, G or T, as in 512M",
			       show, value, size_text(o->min, lo), size_text(o->max, hi));
	if (o->type == OPT_TYPE_SIZE)
		return err_set(err, -EINVAL, "%s: '%s' is outside the range from %s to %s", show, value,
			       size_text(o->min, lo), size_text(o->max, hi));
	return err_set(err, -EINVAL, "%s: '%s' is outside the range from %llu to %llu", show, value,
		       (unsigned long long)o->min, (unsigned long long)o->max);
}

/* show: the option as the user wrote it, for errors. copy: strings are duplicated. */
static int set_value(const struct opt *o, void *dst, const char *show, const char *value, bool copy, struct err *err)
{
	char *at = (char *)dst + o->offset;

	switch (o->type) {
	case OPT_TYPE_BOOL:
		if (parse_bool(value, (bool *)at) < 0)
			return err_set(err, -EINVAL, "%s: '%s' is neither on nor off", show, value);
		return 0;
	case OPT_TYPE_U64:
	case OPT_TYPE_SIZE: {
		uint64_t v;
		int r = o->type == OPT_TYPE_U64 ? opt_parse_u64(value, &v) : opt_parse_size(value, o->unit, &v);

		if (r < 0)
			return err_set(err, -EINVAL, "%s: '%s' is not a %s", show, value,
				       o->type == OPT_TYPE_U64 ? "number" : "size (like 512M or 2G)");
		if (o->max && (v < o->min || v > o->max))
			return bad_range(o, show, value, err);
		*(uint64_t *)at = v;
		return 0;
	}
	case OPT_TYPE_SECONDS:
		if (opt_parse_seconds(value, (double *)at) < 0)
			return err_set(err, -EINVAL, "%s: '%s' is not a time (like 30, 0.5, 500ms, 2m or 1h)", show,
				       value);
		return 0;
	case OPT_TYPE_STRING:
		if (copy) {
			char *s = strdup(value);

			if (!s)
				return err_set(err, -ENOMEM, "%s: out of memory", show);
			free(*(char **)at);
			*(char **)at = s;
		} else {
			*(const char **)at = value;
		}
		return 0;
	case OPT_TYPE_LIST: {
		struct opt_strv *list = (struct opt_strv *)at;
		const char *s = value;

		if (list->n == OPT_LIST_MAX)
			return err_set(err, -EINVAL, "%s: given more than %d times", show, OPT_LIST_MAX);
		if (copy && !(s = strdup(value)))
			return err_set(err, -ENOMEM, "%s: out of memory", show);
		list->v[list->n++] = s;
		return 0;
	}
	case OPT_TYPE_END:
		break;
	}
	return err_set(err, -EINVAL, "%s: broken option table", show);
}

static const struct opt *find_name(const struct opt *table, const char *name, size_t len)
{
	for (const struct opt *o = table; o->type != OPT_TYPE_END; o++)
		if (strlen(o->name) == len && !memcmp(o->name, name, len))
			return o;
	return NULL;
}

static const struct opt *find_letter(const struct opt *table, char letter)
{
	for (const struct opt *o = table; o->type != OPT_TYPE_END; o++)
		if (o->letter && o->letter == letter)
			return o;
	return NULL;
}

/* The value of an option that needs one: attached, or the next argument. */
static const char *next_value(int argc, char **argv, int *i, const char *attached)
{
	if (attached)
		return attached;
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static void note_given(struct opt_line *line, const struct opt *table, const struct opt *o)
{
	if (o - table < 64)
		line->given |= 1ull << (o - table);
}

static int parse_long(const struct opt *table, void *dst, int argc, char **argv, int *i, struct opt_line *line, struct err *err)
{
	const char *name = argv[*i] + 2;
	const char *eq = strchr(name, '=');
	size_t len = eq ? (size_t)(eq - name) : strlen(name);
	char show[NAME_MAX_LEN];
	const struct opt *o = find_name(table, name, len);

	snprintf(show, sizeof(show), "--%.*s", (int)MIN(len, (size_t)48), name);
	if (!o)
		return err_set(err, -EINVAL, "unknown option '%s': see --help", show);
	note_given(line, table, o);
	if (o->type == OPT_TYPE_BOOL)
		return set_value(o, dst, show, eq ? eq + 1 : "on", false, err);
	const char *value = next_value(argc, argv, i, eq ? eq + 1 : NULL);

	if (!value)
		return err_set(err, -EINVAL, "%s: needs a value (%s)", show, o->metavar);
	return set_value(o, dst, show, value, false, err);
}

/* "-it", "-n4", "-n 4" */
static int parse_letters(const struct opt *table, void *dst, int argc, char **argv, int *i, struct opt_line *line, struct err *err)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		char show[4] = { '-', *p, 0 };
		const struct opt *o = find_letter(table, *p);

		if (!o && *p >= '0' && *p <= '9')
			return err_set(err, -EINVAL, "'%.60s' begins like an option and is none: what may be negative is told by an option (see --help)", argv[*i]);
		if (!o)
			return err_set(err, -EINVAL, "unknown option '%s': see --help", show);
		note_given(line, table, o);
		if (o->type == OPT_TYPE_BOOL) {
			*((bool *)((char *)dst + o->offset)) = true;
			continue;
		}
		const char *value = next_value(argc, argv, i, p[1] ? p + 1 : NULL);

		if (!value)
			return err_set(err, -EINVAL, "%s: needs a value (%s)", show, o->metavar);
		return set_value(o, dst, show, value, false, err);
	}
	return 0;
}

int opt_parse_args(const struct opt *table, void *dst, int argc, char **argv, bool stop_at_operand, struct err *err)
{
	struct opt_line line = { .stop_at_operand = stop_at_operand };

	return opt_parse_line(table, dst, argc, argv, &line, err);
}

int opt_parse_line(const struct opt *table, void *dst, int argc, char **argv, struct opt_line *line, struct err *err)
{
	int operands = 0; /* found so far, kept in argv[1 .. operands] */

	line->given = 0;
	for (int i = 1; i < argc; i++) {
		char *a = argv[i];
		int r;

		if (!strcmp(a, "--")) {
			/* Operands seen before move up to stand right before what follows. */
			memmove(&argv[i + 1 - operands], &argv[1], sizeof(*argv) * (size_t)operands);
			return i + 1 - operands;
		}
		if (a[0] != '-' || !a[1] || (line->numbers && isdigit((unsigned char)a[1]) && !find_letter(table, a[1]))) {
			if (line->stop_at_operand)
				return i;
			argv[++operands] = a;
			continue;
		}
		if (a[1] == '-')
			r = parse_long(table, dst, argc, argv, &i, line, err);
		else
			r = parse_letters(table, dst, argc, argv, &i, line, err);
		if (r < 0)
			return r;
	}
	memmove(&argv[argc - operands], &argv[1], sizeof(*argv) * (size_t)operands);
	return argc - operands;
}

/* Take one item up to an unescaped comma into buf; advances *p behind the comma. */
static int take_item(const char **p, char *buf, size_t len, struct err *err)
{
	size_t n = 0;

	for (; **p; (*p)++) {
		if (**p == ',') {
			if ((*p)[1] != ',') {
				(*p)++;
				break;
			}
			(*p)++;
		}
		if (n + 1 >= len)
			return err_set(err, -EINVAL, "'%.40s...': longer than %zu bytes", buf, len - 1);
		buf[n++] = **p;
		buf[n] = 0;
	}
	buf[n] = 0;
	return 0;
}

int opt_parse_list(const struct opt *table, void *dst, const char *text, struct err *err)
{
	_cleanup_free_ char *item = malloc(4097);
	bool first = true;

	if (!item)
		return err_set(err, -ENOMEM, "out of memory");
	for (const char *p = text; *p; first = false) {
		int r = take_item(&p, item, 4097, err);

		if (r < 0)
			return r;
		if (!*item)
			return err_set(err, -EINVAL, "'%s': an empty item (write ',,' for a comma in a value)", text);
		char *eq = strchr(item, '=');
		const struct opt *o = find_name(table, item, eq ? (size_t)(eq - item) : strlen(item));

		if (!o && first && table->type != OPT_TYPE_END && table->type != OPT_TYPE_BOOL) {
			r = set_value(table, dst, table->name, item, true, err);
			if (r < 0)
				return r;
			continue;
		}
		if (!o) {
			if (eq)
				*eq = 0;
			return err_set(err, -EINVAL, "unknown key '%.60s'", item);
		}
		if (!eq && o->type != OPT_TYPE_BOOL)
			return err_set(err, -EINVAL, "%s: needs a value (%s=%s)", o->name, o->name, o->metavar);
		r = set_value(o, dst, o->name, eq ? eq + 1 : "on", true, err);
		if (r < 0)
			return r;
	}
	return 0;
}

void opt_free(const struct opt *table, void *dst)
{
	for (const struct opt *o = table; o && o->type != OPT_TYPE_END; o++) {
		char *at = (char *)dst + o->offset;

		if (o->type == OPT_TYPE_STRING) {
			free(*(char **)at);
			*(char **)at = NULL;
		} else if (o->type == OPT_TYPE_LIST) {
			struct opt_strv *list = (struct opt_strv *)at;

			while (list->n > 0)
				free((char *)(uintptr_t)list->v[--list->n]);
		}
	}
}

static void print_wrapped(FILE *out, const char *text, int column)
{
	int width = HELP_WIDTH - HELP_COLUMN;

	if (column > HELP_COLUMN - 2)
		fprintf(out, "\n%*s", HELP_COLUMN, "");
	else
		fprintf(out, "%*s", HELP_COLUMN - column, "");
	while ((int)strlen(text) > width) {
		int cut = width;

		while (cut > 0 && text[cut] != ' ')
			cut--;
		if (cut == 0)
			cut = width;
		fprintf(out, "%.*s\n%*s", cut, text, HELP_COLUMN, "");
		text += cut + (text[cut] == ' ');
	}
	fprintf(out, "%s\n", text);
}

void opt_print_help(const struct opt *table, FILE *out)
{
	for (const struct opt *o = table; o->type != OPT_TYPE_END; o++) {
		int n;

		if (o->letter)
			n = fprintf(out, "  -%c, --%s", o->letter, o->name);
		else
			n = fprintf(out, "      --%s", o->name);
		if (o->metavar)
			n += fprintf(out, " %s", o->metavar);
		print_wrapped(out, o->help, n);
	}
}
