/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a registry says about who may read: WWW-Authenticate (RFC 7235, Basic and Bearer), and the reply of a token server.
 * Trust: hostile text.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

enum { CHALLENGE_HEADER_MAX = 8 << 10, CHALLENGE_VALUE_MAX = 1024, CHALLENGE_TOKEN_MAX = 32 << 10 };

struct challenge {
	bool basic, bearer;               /* schemes that are offered */
	char realm[CHALLENGE_VALUE_MAX];  /* of Bearer: the token server's URL; "" when not said */
	char service[CHALLENGE_VALUE_MAX];
	char scope[CHALLENGE_VALUE_MAX];
};

/* One or several challenges, separated by commas. 0, or -EBADMSG for what is neither Basic nor a Bearer with a realm. */
int challenge_parse(const char *header, struct challenge *ret, struct err *err);

/* The token in a reply (changed while it is read); *ret_token is in `text`. 0 or -EBADMSG. */
int challenge_parse_token(char *text, size_t len, const char **ret_token, struct err *err);
