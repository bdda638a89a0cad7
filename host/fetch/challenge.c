/* SPDX-License-Identifier: Apache-2.0 */
/* Challenges and tokens: see challenge.h. Lists of challenges and lists of parameters both use commas: a word that is followed
 * by '=' is a parameter of the challenge before it, any other begins a challenge. */
#include "host/fetch/challenge.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "lib/json.h"

enum { NAME_MAX_ = 64 };

static bool is_token_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static const char *skip(const char *s, const char *chars) { return s + strspn(s, chars); }

/* A name; *s is behind it. Empty when there is none, or it is too long. */
static void take_name(const char **s, char ret[NAME_MAX_])
{
	size_t n = 0;

	for (; is_token_char(**s); (*s)++)
		if (n < NAME_MAX_)
			ret[n++] = **s;
	ret[n < NAME_MAX_ ? n : 0] = '\0';
}

/* A token or a quoted string into ret (CHALLENGE_VALUE_MAX bytes). False when it is not ended, too long, or has control characters. */
static bool take_value(const char **s, char *ret)
{
	bool quoted = **s == '"', fits = true;
	size_t n = 0;

	*s += quoted;
	while (quoted ? **s != '"' : is_token_char(**s) || **s == '/' || **s == ':' || **s == '=') {
		if (quoted && **s == '\\')
			(*s)++;
		if ((unsigned char)**s < ' ' || **s == 0x7f)
			return false;
		if (n < CHALLENGE_VALUE_MAX - 1)
			ret[n++] = **s;
		else
			fits = false;
		(*s)++;
	}
	*s += quoted;
	ret[n] = '\0';
	return fits;
}

int challenge_parse(const char *header, struct challenge *ret, struct err *err)
{
	struct challenge c = { .basic = false };
	char value[CHALLENGE_VALUE_MAX], name[NAME_MAX_];
	bool in_bearer = false;
	const char *s = header;

	if (strlen(header) > CHALLENGE_HEADER_MAX)
		return err_set(err, -EBADMSG, "WWW-Authenticate has more than %d bytes", CHALLENGE_HEADER_MAX);
	while (*(s = skip(s, " \t,")) != '\0') {
		if (!is_token_char(*s))
			return err_set(err, -EBADMSG, "WWW-Authenticate is not understood: '%.80s'", header);
		take_name(&s, name);
		s = skip(s, " \t");
		if (*s != '=') {
			in_bearer = strcasecmp(name, "Bearer") == 0 && !c.bearer;
			c.bearer |= in_bearer;
			c.basic |= strcasecmp(name, "Basic") == 0;
			continue;
		}
		s = skip(s + 1, " \t");
		if (!take_value(&s, value))
			return err_set(err, -EBADMSG, "WWW-Authenticate has a value that is not ended or too long: '%.80s'", header);
		if (!in_bearer)
			continue;
		if (strcasecmp(name, "realm") == 0)
			memcpy(c.realm, value, sizeof(value));
		else if (strcasecmp(name, "service") == 0)
			memcpy(c.service, value, sizeof(value));
		else if (strcasecmp(name, "scope") == 0)
			memcpy(c.scope, value, sizeof(value));
	}
	if (c.bearer && c.realm[0] == '\0')
		c.bearer = false;
	if (!c.bearer && !c.basic)
		return err_set(err, -EBADMSG, "it wants a way of authentication other than Basic and Bearer: '%.80s'", header);
	*ret = c;
	return 0;
}

static bool is_token(const struct json_token *t)
{
	if (t->type != JSON_TOKEN_STRING || t->len == 0 || t->len > CHALLENGE_TOKEN_MAX)
		return false;
	for (size_t i = 0; i < t->len; i++)
		if (t->s[i] <= ' ' || t->s[i] >= 0x7f)
			return false;
	return true;
}

int challenge_parse_token(char *text, size_t len, const char **ret_token, struct err *err)
{
	const char *token = NULL, *access = NULL;
	struct json_token t;
	struct json j;

	json_init(&j, text, len);
	if (json_next(&j, &t) != JSON_TOKEN_OBJECT)
		return err_set(err, -EBADMSG, "the token server's reply is not a JSON object");
	while (json_next(&j, &t) == JSON_TOKEN_KEY) {
		const char **to = json_token_is(&t, "token") ? &token : json_token_is(&t, "access_token") ? &access : NULL;

		if (to == NULL) {
			json_skip(&j);
			continue;
		}
		json_next(&j, &t);
		if (!is_token(&t))
			return err_set(err, -EBADMSG, "the token server's reply has a token that is none");
		*to = t.s;
	}
	if (t.type != JSON_TOKEN_OBJECT_END || json_next(&j, &t) != JSON_TOKEN_END)
		return err_set(err, -EBADMSG, "the token server's reply is not JSON");
	if (token == NULL && access == NULL)
		return err_set(err, -EBADMSG, "the token server's reply has no token");
	*ret_token = token != NULL ? token : access;
	return 0;
}
