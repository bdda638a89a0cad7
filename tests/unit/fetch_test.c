/* SPDX-License-Identifier: Apache-2.0 */
/* host/fetch: challenges and tokens as text, origins, and the jail. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/fetch/challenge.h"
#include "host/fetch/http.h"
#include "host/fetch/jail.h"

static void bearer_has_its_parameters(void **state)
{
	struct challenge c;

	(void)state;
	assert_int_equal(challenge_parse("Bearer realm=\"https://a/t\",service=\"r,s\", scope=\"repository:a/b:pull,push\"", &c, NULL), 0);
	assert_true(c.bearer && !c.basic);
	assert_string_equal(c.realm, "https://a/t");
	assert_string_equal(c.service, "r,s");
	assert_string_equal(c.scope, "repository:a/b:pull,push");
}

static void several_challenges_are_told_apart(void **state)
{
	struct challenge c;

	(void)state;
	assert_int_equal(challenge_parse("Basic realm=\"x\", bearer Realm = http://a/t , service=\"q\\\"q\", Negotiate", &c, NULL), 0);
	assert_true(c.bearer && c.basic);
	assert_string_equal(c.realm, "http://a/t");
	assert_string_equal(c.service, "q\"q");
}

static void senseless_challenges_are_refused(void **state)
{
	static const char *const bad[] = { "",	      "Negotiate",	  "Bearer",	  "Bearer realm=\"", "Bearer realm=\"a\\",
					   "\"",      "Bearer realm=\"\n\"", "\001Basic",	  "Bearer service=\"x\"" };
	char longer[CHALLENGE_HEADER_MAX + 2], value[CHALLENGE_VALUE_MAX + 64];
	struct challenge c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(challenge_parse(bad[i], &c, NULL), -EBADMSG);
	memset(longer, ' ', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(challenge_parse(longer, &c, NULL), -EBADMSG);
	snprintf(value, sizeof(value), "Bearer realm=\"%0*d\"", CHALLENGE_VALUE_MAX, 0);
	assert_int_equal(challenge_parse(value, &c, NULL), -EBADMSG);
}

static int token_of(const char *text, const char **ret)
{
	static char buf[256]; /* tokens point into it */

	snprintf(buf, sizeof(buf), "%s", text);
	return challenge_parse_token(buf, strlen(buf), ret, NULL);
}

static void tokens_have_two_names(void **state)
{
	const char *token;

	(void)state;
	assert_int_equal(token_of("{\"expires_in\": 300, \"token\": \"abc\", \"x\": [{}]}", &token), 0);
	assert_string_equal(token, "abc");
	assert_int_equal(token_of("{\"access_token\": \"def\"}", &token), 0);
	assert_string_equal(token, "def");
}

static void tokens_that_break_a_header_are_refused(void **state)
{
	static const char *const bad[] = { "",	"{}", "[]", "{\"token\": \"\"}", "{\"token\": \"a\\r\\nX: y\"}", "{\"token\": \"a b\"}",
					   "{\"token\": 1}", "{\"token\": \"a\"} x", "{\"token\": \"a\"", "{\"token\": \"\xc3\xa4\"}" };
	const char *token;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(token_of(bad[i], &token), -EBADMSG);
}

static void origins_have_scheme_host_and_port(void **state)
{
	char o[HTTP_ORIGIN_MAX];

	(void)state;
	assert_int_equal(http_origin("https://Example.ORG/a?b", o, NULL), 0);
	assert_string_equal(o, "https://example.org:443");
	assert_int_equal(http_origin("http://[::1]:5000/", o, NULL), 0);
	assert_string_equal(o, "http://[::1]:5000");
	assert_int_equal(http_origin("http://u@h/", o, NULL), -EINVAL);
	assert_int_equal(http_origin("http://u:p@h/", o, NULL), -EINVAL);
	assert_int_equal(http_origin("file:///etc/passwd", o, NULL), -EINVAL);
	assert_int_equal(http_origin("/relative", o, NULL), -EINVAL);
}

/* How a child ends that enters the jail and then does something. */
static int in_jail(void (*act)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (jail_enter(-1, NULL, 0, NULL) < 0)
			_exit(100);
		act();
		_exit(errno);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void act_exec(void) { execl("/bin/true", "true", (char *)NULL); }
static void act_kill(void) { kill(1, 0); }
static void act_unix(void) { errno = socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? errno : 0; }
static void act_listen(void) { errno = listen(0, 1) < 0 ? errno : 0; }
static void act_inet(void) { errno = socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0; }

static void act_signal_other(void) { errno = syscall(SYS_tgkill, getppid(), getppid(), 0) < 0 ? errno : 0; }
static void act_signal_own(void) { errno = syscall(SYS_tgkill, getpid(), gettid(), 0) < 0 ? errno : 0; }
static void act_limit_other(void) { errno = prlimit(getppid(), RLIMIT_NOFILE, NULL, &(struct rlimit){ 0 }) < 0 ? errno : 0; }
static void act_limit_own(void) { errno = prlimit(0, RLIMIT_NOFILE, NULL, &(struct rlimit){ 0 }) < 0 ? errno : 0; }

static void forbidden_calls_end_the_process(void **state)
{
	int status;

	(void)state;
	status = in_jail(act_exec);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	status = in_jail(act_kill);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

static void needless_calls_fail(void **state)
{
	(void)state;
	assert_int_equal(WEXITSTATUS(in_jail(act_unix)), EACCES);
	assert_int_equal(WEXITSTATUS(in_jail(act_listen)), EPERM);
	assert_int_equal(WEXITSTATUS(in_jail(act_inet)), 0);
}

static void other_processes_are_out_of_reach(void **state)
{
	(void)state;
	assert_int_equal(WEXITSTATUS(in_jail(act_signal_other)), EPERM);
	assert_int_equal(WEXITSTATUS(in_jail(act_signal_own)), 0);
	assert_int_equal(WEXITSTATUS(in_jail(act_limit_other)), EPERM);
	assert_int_equal(WEXITSTATUS(in_jail(act_limit_own)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bearer_has_its_parameters),
		cmocka_unit_test(several_challenges_are_told_apart),
		cmocka_unit_test(senseless_challenges_are_refused),
		cmocka_unit_test(tokens_have_two_names),
		cmocka_unit_test(tokens_that_break_a_header_are_refused),
		cmocka_unit_test(origins_have_scheme_host_and_port),
		cmocka_unit_test(forbidden_calls_end_the_process),
		cmocka_unit_test(needless_calls_fail),
		cmocka_unit_test(other_processes_are_out_of_reach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
