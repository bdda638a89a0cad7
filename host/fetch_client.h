/* SPDX-License-Identifier: Apache-2.0 */
/* Starting coffer-fetch and asking it for documents (docs/remote.md). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/progress.h"
#include "lib/err.h"

/* One repository on one host. */
struct fetch_auth {
	const char *origin, *user, *password; /* no user: NULL, NULL */
};

/* Start `coffer-fetch MODE` with these for its stdin and stderr (-1: ours), and descriptors that it inherits. It is out of the
 * terminal's reach. Its pid, to be waited for or not, or -errno. */
pid_t fetch_spawn(const char *mode, int in, int err_fd, const int *keep, size_t nkeep, struct err *err);

/* The last line that it wrote into a log (to be read from the begin), without its name and the level: why something failed. False: there is
 * none. */
bool fetch_last_line(int log_fd, char *ret, size_t len);

/* `coffer-fetch get` */
struct fetch_session {
	int sock;
	pid_t pid;
};
#define FETCH_SESSION_NONE ((struct fetch_session){ .sock = -1 })

int fetch_session_open(const struct fetch_auth *auth, size_t nauths, const char *ca_file, struct fetch_session *ret,
		       struct err *err);
void fetch_session_close(struct fetch_session *s);

/* A document of at most `max` bytes; *ret_data (a zero byte is put behind it) to be freed. `type` and `digest`: what the reply's headers
 * say, 128 and 80 bytes, may be NULL. -EINTR when the user wants to end. */
int fetch_document(struct fetch_session *s, const char *url, const char *accept, size_t auth, size_t max, struct progress *p,
		   char **ret_data, size_t *ret_len, char *type, char *digest, struct err *err);
