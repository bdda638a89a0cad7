/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile agent says to the host: an answer line and frames.
 *
 * Input: the bytes of the connection. The client must take them without reading beyond its buffer, must hand out only
 * frames within the protocol's limits, and must come to an end.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/agent_client.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

static void use_line(const struct agent_line *l)
{
	char text[16];
	int64_t i;
	bool b;

	FUZZ_REQUIRE(l->len <= AGENT_REPLY_MAX && l->text[l->len] == 0);
	agent_line_bool(l, "ok", &b);
	agent_line_int(l, "errno", &i);
	if (agent_line_string(l, "error", text, sizeof(text)) == 0)
		FUZZ_REQUIRE(strlen(text) < sizeof(text));
}

static void use_frame(const struct agent_received *f)
{
	struct err err = ERR_INIT;
	volatile uint8_t sum = 0;

	FUZZ_REQUIRE(f->length <= AGENT_FRAME_MAX);
	for (uint32_t i = 0; i < f->length; i++)
		sum = (uint8_t)(sum + f->payload[i]);
	if (f->type == AGENT_ERROR) {
		FUZZ_REQUIRE(agent_frame_error(f, &err) < 0);
		for (const char *p = err.text; *p; p++)
			FUZZ_REQUIRE((unsigned char)*p >= 0x20 && *p != 0x7f);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct agent_conn *c;
	struct agent_line line;
	struct agent_received f;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	/* All of it fits into the socket, so this one thread can play both. */
	size = MIN(size, (size_t)64 * 1024);
	if (fd_write_full(pair[1], data, size) < 0 || agent_conn_new(pair[0], &c, NULL) < 0)
		abort();
	shutdown(pair[1], SHUT_WR);
	if (agent_read_line(c, 0, &line, NULL) == 0) {
		use_line(&line);
		while (agent_frame_wait(c, 0, &f, NULL) == 0)
			use_frame(&f);
	}
	agent_close(c);
	close(pair[1]);
	return 0;
}
