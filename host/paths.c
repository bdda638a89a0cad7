/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are: see paths.h. */
#include "host/paths.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int format_path(char *out, size_t len, struct err *err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int format_path(char *out, size_t len, struct err *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(out, len, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= len)
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is longer than %zu bytes", out, len - 1);
	return 0;
}

static const char *absolute_env(const char *name)
{
	const char *v = getenv(name);

	return v && v[0] == '/' ? v : NULL;
}

static const char *home_directory(void)
{
	const char *home = absolute_env("HOME");

	if (home)
		return home;
	const struct passwd *pw = getpwuid(geteuid());

	return pw && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

static int in_home(char *out, size_t len, const char *below, const char *variable, struct err *err)
{
	const char *home = home_directory();

	if (!home)
		return err_set(err, -ENOENT, "no home directory: set HOME or %s", variable);
	return format_path(out, len, err, "%s/%s/coffer", home, below);
}

int paths_runtime(char *out, size_t len, struct err *err)
{
	const char *base = absolute_env("XDG_RUNTIME_DIR");
	char dir[64];

	if (base)
		return format_path(out, len, err, "%s/coffer", base);
	if (geteuid() == 0)
		return format_path(out, len, err, "/run/coffer");
	snprintf(dir, sizeof(dir), "/run/user/%u", (unsigned)geteuid());
	if (access(dir, W_OK | X_OK) < 0)
		return err_set(err, -ENOENT, "XDG_RUNTIME_DIR is not set and %s cannot be used (%s): set it to a directory of your own",
			       dir, strerror(errno));
	return format_path(out, len, err, "%s/coffer", dir);
}

int paths_state(char *out, size_t len, struct err *err)
{
	const char *base = absolute_env("XDG_STATE_HOME");

	if (base)
		return format_path(out, len, err, "%s/coffer", base);
	if (geteuid() == 0)
		return format_path(out, len, err, "/var/lib/coffer");
	return in_home(out, len, ".local/state", "XDG_STATE_HOME", err);
}

int paths_program(const char *name, const char *env, char *out, size_t len, struct err *err)
{
	const char *given = getenv(env);
	char self[PATH_MAX];

	if (given && *given) {
		if (access(given, R_OK | X_OK) < 0)
			return err_errno(err, -errno, "%s='%s'", env, given);
		return format_path(out, len, err, "%s", given);
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return err_errno(err, -errno, "find %s: /proc/self/exe", name);
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (int installed = 0; installed <= 1; installed++) {
		char path[PATH_MAX + 64];

		snprintf(path, sizeof(path), "%s/%s%s", self, installed ? "../libexec/coffer/" : "", name);
		if (access(path, R_OK | X_OK) == 0)
			return format_path(out, len, err, "%s", path);
	}
	return err_set(err, -ENOENT, "%s is neither in %s nor in %s/../libexec/coffer: install it there or set %s", name,
		       self, self, env);
}
