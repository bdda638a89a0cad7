/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's request line from a hostile host: what is accepted is within every limit that its user relies on. */
#include <stdlib.h>
#include <string.h>

#include "guest/agent/request.h"
#include "tests/fuzz/fuzz.h"

static void check_list(const char *const *list, size_t n, size_t max)
{
	FUZZ_REQUIRE(n <= max);
	for (size_t i = 0; i < n; i++)
		FUZZ_REQUIRE(list[i] && strlen(list[i]) <= AGENT_REQUEST_MAX);
	FUZZ_REQUIRE(list[n] == NULL);
}

static void check(const struct request *r)
{
	FUZZ_REQUIRE(request_op_name(r->op));
	check_list(r->argv, r->argc, AGENT_ARGV_MAX);
	check_list(r->env, r->nenv, AGENT_ENV_MAX);
	for (size_t i = 0; i < r->nenv; i++)
		FUZZ_REQUIRE(strchr(r->env[i], '=') > r->env[i]);
	if (r->op == REQUEST_EXEC) {
		FUZZ_REQUIRE(r->argc > 0 && r->argv[0][0]);
		FUZZ_REQUIRE(!r->cwd || r->cwd[0] == '/');
		FUZZ_REQUIRE(r->rows >= 1 && r->rows <= 65535 && r->cols >= 1 && r->cols <= 65535);
		FUZZ_REQUIRE(r->timeout_ms >= 0 && r->timeout_ms <= INT32_MAX && r->grace_ms >= 0 && r->grace_ms <= 600000);
	}
	if (r->op == REQUEST_STAT || r->op == REQUEST_PUT || r->op == REQUEST_GET)
		FUZZ_REQUIRE(r->path && r->path[0] == '/');
	if (r->op == REQUEST_KILL)
		FUZZ_REQUIRE(r->id > 0 && r->signal >= 1 && r->signal <= 64);
	if (r->op == REQUEST_POWEROFF || r->op == REQUEST_REBOOT)
		FUZZ_REQUIRE(r->grace_ms >= 0 && r->grace_ms <= 60000);
	FUZZ_REQUIRE(r->nentropy == 0 || (r->nentropy >= REQUEST_ENTROPY_MIN && r->nentropy <= REQUEST_ENTROPY_MAX));
	FUZZ_REQUIRE(!r->has_clock || r->clock_ns >= 0);
	FUZZ_REQUIRE(!r->has_counter || (r->has_clock && r->counter >= 0 && r->counter_khz > 0));
	FUZZ_REQUIRE(!r->machine_id || strlen(r->machine_id) == AGENT_MACHINE_ID);
	FUZZ_REQUIRE(!r->hostname || (strlen(r->hostname) >= 1 && strlen(r->hostname) <= REQUEST_HOSTNAME_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request *r = malloc(sizeof(*r));
	char *text = malloc(size ? size : 1);
	struct err err = ERR_INIT;

	if (!r || !text)
		abort();
	memcpy(text, data, size);
	if (request_parse(r, text, size, &err) == 0)
		check(r);
	else
		FUZZ_REQUIRE(err.code < 0 && err.text[0]);
	free(text);
	free(r);
	return 0;
}
