/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-import: reads one archive for `coffer image import`, in a jail.
 *
 *   coffer-import members|decompress OFFSET SIZE SPOOL BYTES-MAX ENTRIES-MAX
 *
 * It is a program of its own because libarchive and the decompressors it loads are large, old and read hostile bytes: here
 * a mistake in them can do no more than write wrong records and contents. Descriptors and records: record.h.
 */
#include <errno.h>
#include <iconv.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "host/import/archive.h"
#include "host/import/jail.h"
#include "host/import/record.h"

static int parse(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno != 0 || *end != '\0' || *text == '\0' || *text == '-' ? -EINVAL : 0;
}

/*
 * The locale stays "C": in any other, libarchive would change the names in PAX headers, which are UTF-8, into what Unicode calls
 * normal. In this one it asks for a conversion, which fails for names that are not ASCII, and keeps them as they are. The C library
 * reads its table of conversions at the first time it is asked, and in the jail it could not.
 */
static void load_conversions(void)
{
	iconv_t c = iconv_open(nl_langinfo(CODESET), "UTF-8");

	if (c != (iconv_t)-1)
		iconv_close(c);
}

int main(int argc, char **argv)
{
	struct import_options o;
	struct err err = ERR_INIT;
	int r;

	if (argc != 7 || parse(argv[2], &o.offset) < 0 || parse(argv[3], &o.size) < 0 || parse(argv[4], &o.spool) < 0 ||
	    parse(argv[5], &o.bytes_max) < 0 || parse(argv[6], &o.entries_max) < 0) {
		fputs("coffer-import is run by 'coffer image import'\n", stderr);
		return 125;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would read what it says */
	close_range(IMPORT_SPOOL_FD + 1, ~0u, 0);
	load_conversions();
	r = import_jail_enter(&err);
	if (r == 0)
		r = strcmp(argv[1], "members") == 0 ? import_archive(&o, &err) : import_decompress(&o, &err);
	if (r < 0)
		import_send_error(&err);
	_exit(r < 0 ? 1 : 0);
}
