/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a command: see environment.h. */
#include "guest/agent/environment.h"

#include <stdio.h>
#include <string.h>

static void set(struct environment *e, const char *entry)
{
	size_t name = strcspn(entry, "=") + 1;

	for (size_t i = 0; i < e->n; i++)
		if (strncmp(e->v[i], entry, name) == 0) {
			e->v[i] = entry;
			return;
		}
	if (e->n < sizeof(e->v) / sizeof(e->v[0]) - 1)
		e->v[e->n++] = entry;
}

void environment_make(struct environment *e, const struct user *u, bool tty, const struct agent_env *defaults,
		      const char *const *extra, size_t nextra)
{
	const char *name = u->name[0] ? u->name : u->uid == 0 ? "root" : NULL, *p = defaults->text;

	e->n = 0;
	set(e, "PATH=" ENVIRONMENT_PATH);
	snprintf(e->home, sizeof(e->home), "HOME=%s", u->home);
	set(e, e->home);
	if (name) {
		snprintf(e->user, sizeof(e->user), "USER=%s", name);
		snprintf(e->logname, sizeof(e->logname), "LOGNAME=%s", name);
		set(e, e->user);
		set(e, e->logname);
	}
	if (u->shell[0]) {
		snprintf(e->shell, sizeof(e->shell), "SHELL=%s", u->shell);
		set(e, e->shell);
	}
	if (tty)
		set(e, "TERM=xterm");
	for (uint32_t i = 0; i < defaults->count; i++, p += strlen(p) + 1)
		set(e, p);
	for (size_t i = 0; i < nextra; i++)
		set(e, extra[i]);
	e->v[e->n] = NULL;
}

const char *environment_get(const struct environment *e, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < e->n; i++)
		if (strncmp(e->v[i], name, n) == 0 && e->v[i][n] == '=')
			return e->v[i] + n + 1;
	return NULL;
}
