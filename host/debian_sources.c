/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host's apt knows about mirrors of a Debian suite, in both of its formats (sources.list(5)): one line per
 * source, and stanzas of "Field: value" lines. Only entries of the suite itself, its updates and its security that have
 * the component main are taken: other repositories are the host's business. A key that is named by its path goes along, one that
 * is written into the stanza does not.
 *
 * Trust: the files are the administrator's; still, lines are bounded and what does not parse is skipped.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "host/file.h"
#include "host/image_debian.h"
#include "lib/fd.h"

enum { APT_FILE_MAX = 256 << 10 };

struct found {
	const char *suite;
	char *text;
	size_t len;
};

static bool suite_is_wanted(const struct found *f, const char *s)
{
	size_t n = strlen(f->suite);

	return strncmp(s, f->suite, n) == 0 && (s[n] == '\0' || strcmp(s + n, "-updates") == 0 || strcmp(s + n, "-security") == 0);
}

/* Add a line unless it is there. Values have no blanks, since they were cut at them. */
static void add(struct found *f, const char *options, const char *uri, const char *suite)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "deb %s%s %s main\n", options, uri, suite);

	if (n < 0 || (size_t)n >= sizeof(line) || f->len + (size_t)n >= DEBIAN_SOURCES_MAX || strstr(f->text, line) != NULL)
		return;
	memcpy(f->text + f->len, line, (size_t)n + 1);
	f->len += (size_t)n;
}

static bool has_word(char *words, const char *word)
{
	_cleanup_free_ char *copy = words == NULL ? NULL : strdup(words);
	char *rest = copy, *w;

	while (rest != NULL && (w = strsep(&rest, " \t\n")) != NULL)
		if (strcmp(w, word) == 0)
			return true;
	return false;
}

/* "deb [options] URI SUITE COMPONENT..." */
static void parse_line(struct found *f, char *line)
{
	char options[512] = "", *rest = line, *words[2];
	size_t n = 0;

	rest += strspn(rest, " \t");
	if (strncmp(rest, "deb", 3) != 0 || !isspace((unsigned char)rest[3]))
		return;
	rest += 3 + strspn(rest + 3, " \t");
	if (*rest == '[') {
		char *end = strchr(rest, ']'), *list = rest + 1, *o;

		if (end == NULL)
			return;
		*end = '\0';
		rest = end + 1;
		while ((o = strsep(&list, " \t")) != NULL) {
			size_t used = strlen(options);

			if (strncmp(o, "signed-by=/", 11) == 0 || strcmp(o, "trusted=yes") == 0)
				snprintf(options + used, sizeof(options) - used, "%s%s", used == 0 ? "[" : " ", o);
		}
		size_t len = strlen(options);

		if (len > 0 && len + 2 < sizeof(options))
			memcpy(options + len, "] ", 3);
		else
			*options = '\0';
	}
	while (n < 2 && rest != NULL) {
		char *word = strsep(&rest, " \t\n");

		if (*word != '\0')
			words[n++] = word;
	}
	if (n == 2 && suite_is_wanted(f, words[1]) && has_word(rest, "main"))
		add(f, options, words[0], words[1]);
}

struct stanza {
	char *types, *uris, *suites, *components, *signed_by, *trusted, *enabled;
};

static void end_stanza(struct found *f, struct stanza *s)
{
	char options[512] = "", *uris, *uri;

	if (has_word(s->types, "deb") && has_word(s->components, "main") && s->uris != NULL && s->suites != NULL &&
	    !has_word(s->enabled, "no")) {
		const char *key = s->signed_by == NULL ? "" : s->signed_by + strspn(s->signed_by, " \t");
		bool trusted = has_word(s->trusted, "yes");

		if (*key == '/' && strpbrk(key, " \t\n") == NULL && strlen(key) < sizeof(options) - 64)
			snprintf(options, sizeof(options), "[signed-by=%s%s] ", key, trusted ? " trusted=yes" : "");
		else if (trusted)
			strcpy(options, "[trusted=yes] ");
		for (uris = s->uris; (uri = strsep(&uris, " \t\n")) != NULL;) {
			_cleanup_free_ char *suites = strdup(s->suites);
			char *rest = suites, *suite;

			while (*uri != '\0' && rest != NULL && (suite = strsep(&rest, " \t\n")) != NULL)
				if (suite_is_wanted(f, suite))
					add(f, options, uri, suite);
		}
	}
	*s = (struct stanza){ 0 };
}

/* Values may go on in lines that begin with a blank; the newline between them counts as one. */
static void parse_stanzas(struct found *f, char *text)
{
	struct stanza s = { 0 };
	char *line = text;

	while (*line != '\0') {
		char *end = line + strcspn(line, "\n"), *colon;
		bool last;

		while (end[0] == '\n' && (end[1] == ' ' || end[1] == '\t'))
			end += 1 + strcspn(end + 1, "\n");
		last = *end == '\0';
		*end = '\0';
		colon = strchr(line, ':');
		if (line[strspn(line, " \t\r\n")] == '\0') {
			end_stanza(f, &s);
		} else if (*line != '#' && colon != NULL) {
			const struct {
				const char *name;
				char **to;
			} fields[] = { { "Types", &s.types },           { "URIs", &s.uris },
				       { "Suites", &s.suites },         { "Components", &s.components },
				       { "Signed-By", &s.signed_by },   { "Trusted", &s.trusted },
				       { "Enabled", &s.enabled } };

			*colon = '\0';
			for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
				if (strcasecmp(line, fields[i].name) == 0)
					*fields[i].to = colon + 1;
		}
		line = last ? end : end + 1;
	}
	end_stanza(f, &s);
}

/* Remove whole lines, since in a stanza an empty one would be its end. */
static void drop_comments(char *text)
{
	char *to = text;

	for (const char *line = text; *line != '\0';) {
		size_t n = strcspn(line, "\n");

		n += line[n] == '\n';
		if (*line != '#') {
			memmove(to, line, n);
			to += n;
		}
		line += n;
	}
	*to = '\0';
}

static void read_file(struct found *f, const char *path)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t size, n = strlen(path);
	char *text, *line;

	if (file_read(path, APT_FILE_MAX, &data, &size, NULL) < 0 || memchr(data, '\0', size) != NULL)
		return;
	text = (char *)data;
	drop_comments(text);
	if (n > 8 && strcmp(path + n - 8, ".sources") == 0)
		parse_stanzas(f, text);
	else if (n > 5 && strcmp(path + n - 5, ".list") == 0)
		while ((line = strsep(&text, "\n")) != NULL)
			parse_line(f, line);
}

size_t debian_sources_find(const char *apt_dir, const char *suite, char ret[DEBIAN_SOURCES_MAX])
{
	struct found f = { .suite = suite, .text = ret };
	struct dirent **names = NULL;
	char path[4096];
	int n;

	*ret = '\0';
	if (snprintf(path, sizeof(path), "%s/sources.list", apt_dir) < (int)sizeof(path))
		read_file(&f, path);
	if (snprintf(path, sizeof(path), "%s/sources.list.d", apt_dir) >= (int)sizeof(path))
		return f.len;
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.' &&
		    snprintf(path, sizeof(path), "%s/sources.list.d/%s", apt_dir, names[i]->d_name) < (int)sizeof(path))
			read_file(&f, path);
		free(names[i]);
	}
	free(names);
	return f.len;
}
