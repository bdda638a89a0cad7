/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default image and the desktop's: mmdebstrap makes a minimal Debian and writes it as a tar, as root or, in a user namespace,
 * as anybody.
 *
 * Mirrors are the host's own for that suite (debian_sources.c), and what its apt is told about proxies and dates goes
 * along for the time of the build. mmdebstrap looks at neither by itself.
 *
 * The finished tar is kept compressed under $XDG_CACHE_HOME/coffer/debian, named by a hash of everything that decides
 * what is in it but the day. It is used when asked for (--cached) or when no mirror answers.
 */
#include "host/image_debian.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "host/file.h"
#include "host/image_desktop.h"
#include "host/sha256.h"
#include "host/spawn.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { ARGUMENTS_MAX = 64, APT_OPTIONS_MAX = 24, INCLUDE_MAX = 4096, APT_CONFIG_MAX = 512 << 10 };

#define DEFAULT_SUITE "bookworm"
#define DEFAULT_INCLUDE "python3,git,ca-certificates"
#define APT_DIR "/etc/apt"

struct recipe {
	const char *suite;
	const char *hook;                 /* run at the end; NULL: none */
	char include[INCLUDE_MAX];
	char sources[DEBIAN_SOURCES_MAX]; /* empty: mmdebstrap's default */
	char cache[PATH_MAX];             /* of the kept tar; empty: none */
};

static int check_word(const char *what, const char *s, const char *more, struct err *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

	for (const char *p = s; *p != '\0'; p++)
		if (strchr(letters, *p) == NULL && (p == s || strchr(more, *p) == NULL))
			return err_set(err, -EINVAL, "%s '%s': the character '%c' cannot be in it", what, TEXT_CUT(s), *p);
	return *s == '\0' ? err_set(err, -EINVAL, "%s is empty", what) : 0;
}

static int fill_recipe(const struct image_build_options *o, struct recipe *r, struct err *err)
{
	size_t used;
	int rc;

	r->suite = o->suite != NULL ? o->suite : DEFAULT_SUITE;
	rc = check_word("suite", r->suite, ".-_", err);
	r->hook = strcmp(o->source, IMAGE_DESKTOP) == 0 ? IMAGE_DESKTOP_HOOK : NULL;
	strcpy(r->include, r->hook != NULL ? IMAGE_DESKTOP_PACKAGES : DEFAULT_INCLUDE);
	for (size_t i = 0; rc == 0 && i < o->include.n + o->with.n; i++) {
		const char *more = i < o->include.n ? o->include.v[i] : o->with.v[i - o->include.n];

		rc = check_word("package", more, ".-+:,_", err);
		used = strlen(r->include);
		if (rc == 0 && (size_t)snprintf(r->include + used, sizeof(r->include) - used, ",%s", more) >=
				       sizeof(r->include) - used)
			rc = err_set(err, -E2BIG, "the list of packages has more than %d bytes", INCLUDE_MAX);
	}
	if (rc < 0)
		return rc;
	if (o->mirror != NULL) {
		if (strstr(o->mirror, "://") == NULL || strpbrk(o->mirror, " \t\n[]") != NULL ||
		    snprintf(r->sources, sizeof(r->sources), "deb %s %s main\n", o->mirror, r->suite) >= (int)sizeof(r->sources))
			return err_set(err, -EINVAL, "mirror '%s': not a URL such as http://deb.debian.org/debian", TEXT_CUT(o->mirror));
	} else {
		debian_sources_find(APT_DIR, r->suite, r->sources);
	}
	return 0;
}

static void name_cache(struct recipe *r)
{
	char dir[PATH_MAX - 64], hex[SHA256_HEX_SIZE], text[INCLUDE_MAX + 512];
	struct sha256_ctx s;

	if (file_cache_dir("debian", dir, sizeof(dir), NULL) < 0)
		return;
	snprintf(text, sizeof(text), "1 %s %s amd64\n%s", r->suite, r->include, r->hook != NULL ? r->hook : "");
	sha256_init(&s);
	sha256_update(&s, strlen(text), (const uint8_t *)text);
	sha256_update(&s, strlen(r->sources), (const uint8_t *)r->sources);
	sha256_end_hex(&s, hex);
	snprintf(r->cache, sizeof(r->cache), "%s/%s-%.24s.tar.zst", dir, r->suite, hex);
}

/* ---- the kept tar ---- */

static int run_filter(const char *const argv[], const char *package, int in, int out, struct progress *p, struct err *err)
{
	return spawn_run(&(struct spawn){ .argv = argv, .in = in, .out = out, .package = package, .progress = p, .show_size = true },
			 err);
}

static int take_cached(const struct recipe *r, int out, time_t *ret_when, struct progress *p, struct err *err)
{
	static const char *const argv[] = { "zstd", "-q", "-d", "-c", NULL };
	_cleanup_close_ int in = open(r->cache, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int rc;

	if (in < 0 || fstat(in, &st) < 0)
		return err_set(err, -ENOENT, "no packages of an earlier build with these options are kept");
	*ret_when = st.st_mtime;
	if (ftruncate(out, 0) < 0 || lseek(out, 0, SEEK_SET) < 0)
		return err_errno(err, -errno, "empty the work file");
	progress_stage(p, "unpacking the kept packages");
	rc = run_filter(argv, "zstd", in, out, p, err);
	if (rc < 0 && rc != -EINTR)
		err_prefix(err, "%s: ", r->cache);
	return rc;
}

/* Not being able to keep it is no failure of the build; being asked to end is. */
static int keep(const struct recipe *r, int tar, struct progress *p, struct err *err)
{
	static const char *const argv[] = { "zstd", "-q", "-3", "-c", NULL };
	_cleanup_free_ char *tmp = NULL;
	_cleanup_close_ int out = -1;
	int rc;

	if (*r->cache == '\0' || lseek(tar, 0, SEEK_SET) < 0 || asprintf(&tmp, "%s.XXXXXX", r->cache) < 0)
		return 0;
	out = mkostemp(tmp, O_CLOEXEC);
	if (out < 0)
		return 0;
	progress_stage(p, "keeping the packages for later");
	rc = run_filter(argv, "zstd", tar, out, p, err);
	if (rc == 0 && (fsync(out) < 0 || rename(tmp, r->cache) < 0))
		rc = -EIO;
	if (rc < 0)
		unlink(tmp);
	return rc == -EINTR ? rc : 0;
}

/* ---- mmdebstrap ---- */

/* Lines of `apt-config dump` that decide how a mirror is reached, each as "--aptopt=LINE" in `text`. */
static size_t apt_options(int scratch, const char *argv[], size_t max, char **ret_text)
{
	static const char *const dump[] = { "apt-config", "dump", NULL };
	static const char *const keys[] = { "Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries",
					    "Acquire::ForceIPv", "Acquire::Max-" };
	_cleanup_free_ char *raw = malloc(APT_CONFIG_MAX + 1);
	size_t n = 0, used = 0;
	ssize_t len;
	char *rest, *line;

	*ret_text = malloc(APT_CONFIG_MAX);
	if (raw == NULL || *ret_text == NULL || ftruncate(scratch, 0) < 0 || lseek(scratch, 0, SEEK_SET) < 0)
		return 0;
	if (spawn_run(&(struct spawn){ .argv = dump, .in = -1, .out = scratch }, NULL) < 0)
		return 0;
	len = fd_pread_full(scratch, raw, APT_CONFIG_MAX, 0);
	if (len < 0)
		return 0;
	raw[len] = '\0';
	for (rest = raw; n < max && (line = strsep(&rest, "\n")) != NULL;) {
		size_t size = strlen(line) + sizeof("--aptopt=");
		bool wanted = false;

		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			wanted |= strncasecmp(line, keys[i], strlen(keys[i])) == 0;
		if (!wanted || strstr(line, " \"\";") != NULL || used + size > APT_CONFIG_MAX)
			continue;
		argv[n++] = *ret_text + used;
		used += (size_t)snprintf(*ret_text + used, APT_CONFIG_MAX - used, "--aptopt=%s", line) + 1;
	}
	return n;
}

/* Run mmdebstrap with its tar going to `out`. `scratch` is an empty file for what it reads. */
static int run_mmdebstrap(const struct recipe *r, int out, int scratch, struct progress *p, struct err *err)
{
	/* What the build alone needs does not stay in the image; manuals and translations do not come into it. */
	static const char *const fixed[] = {
		"--variant=minbase",
		"--mode=auto",
		"--format=tar",
		"--dpkgopt=force-unsafe-io",
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/info/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-include=/usr/share/locale/locale.alias",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright",
		"--customize-hook=rm -f \"$1\"/etc/apt/apt.conf.d/99mmdebstrap; sed -i /force-unsafe-io/d \"$1\"/etc/dpkg/dpkg.cfg.d/99mmdebstrap",
		"--customize-hook=rm -f \"$1\"/etc/resolv.conf \"$1\"/etc/hostname; : > \"$1\"/etc/machine-id",
	};
	const char *argv[ARGUMENTS_MAX] = { "mmdebstrap" };
	char include[INCLUDE_MAX + 16];
	_cleanup_free_ char *apt_text = NULL;
	size_t n = 1;

	_Static_assert(ARRAY_SIZE(fixed) + APT_OPTIONS_MAX + 9 < ARGUMENTS_MAX, "room for all arguments");
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		argv[n++] = fixed[i];
	snprintf(include, sizeof(include), "--include=%s", r->include);
	argv[n++] = include;
	if (r->hook != NULL)
		argv[n++] = r->hook;
	n += apt_options(scratch, argv + n, APT_OPTIONS_MAX, &apt_text);
	argv[n++] = r->suite;
	argv[n++] = "-"; /* the tar to stdout */
	if (*r->sources != '\0') {
		argv[n++] = "-"; /* sources from stdin */
		if (ftruncate(scratch, 0) < 0 || fd_pwrite_full(scratch, r->sources, strlen(r->sources), 0) < 0 ||
		    lseek(scratch, 0, SEEK_SET) < 0)
			return err_errno(err, -errno, "write the list of mirrors");
	}
	argv[n] = NULL;
	progress_stage(p, "debian");
	return spawn_run(&(struct spawn){ .argv = argv, .in = *r->sources != '\0' ? scratch : -1, .out = out,
					  .package = "mmdebstrap", .progress = p },
			 err);
}

int image_debian_tar(const struct image_build_options *o, int out, char ret_what[IMAGE_SOURCE_MAX + 1], struct progress *p,
		     struct err *note, struct err *err)
{
	_cleanup_free_ struct recipe *r = calloc(1, sizeof(*r));
	_cleanup_close_ int scratch = -1;
	struct err why = ERR_INIT;
	time_t when = 0;
	char day[32];
	int rc;

	if (r == NULL)
		return err_set(err, -ENOMEM, "no memory");
	rc = fill_recipe(o, r, err);
	if (rc < 0)
		return rc;
	name_cache(r);
	snprintf(ret_what, IMAGE_SOURCE_MAX + 1, "%s %.64s: %.400s", o->source, r->suite, r->include);
	if (o->cached)
		return take_cached(r, out, &when, p, err);

	scratch = memfd_create("sources", MFD_CLOEXEC);
	if (scratch < 0)
		return err_errno(err, -errno, "memfd_create");
	rc = run_mmdebstrap(r, out, scratch, p, &why);
	if (rc == 0)
		return keep(r, out, p, err);
	if (rc == -EINTR || take_cached(r, out, &when, p, err) < 0)
		return err_set(err, rc, "%s", why.text);
	strftime(day, sizeof(day), "%Y-%m-%d", gmtime(&when));
	err_set(note, rc, "%s; took the packages of %s instead", why.text, day);
	return 0;
}
