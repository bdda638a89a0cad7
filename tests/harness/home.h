/* SPDX-License-Identifier: Apache-2.0 */
/* A private home for a test: HOME and the XDG directories below a fresh temporary directory. */
#pragma once

struct home {
	char path[64];
};

void home_make(struct home *h);   /* sets HOME, XDG_RUNTIME_DIR, XDG_STATE_HOME, XDG_CACHE_HOME, XDG_DATA_HOME */
void home_make_in_memory(struct home *h); /* the same where a sync costs nothing, if there is such a place */
void home_remove(struct home *h);

/* cmocka's, of a test whose state is a struct home. */
int home_set_up(void **state);
int home_tear_down(void **state);
