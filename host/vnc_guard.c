/* SPDX-License-Identifier: Apache-2.0 */
/* Counting wrong passwords: see vnc_guard.h. */
#include "host/vnc_guard.h"

#include <string.h>

#include "lib/util.h"

enum { NETWORK_BYTES = 8 };
#define SECOND_NS 1000000000ULL

struct in6_addr vnc_guard_from(const struct sockaddr_storage *sa)
{
	struct in6_addr from = { 0 };

	if (sa->ss_family == AF_INET) {
		from.s6_addr[10] = from.s6_addr[11] = 0xff;
		memcpy(&from.s6_addr[12], &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	} else if (sa->ss_family == AF_INET6) {
		from = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
		if (!IN6_IS_ADDR_V4MAPPED(&from))
			memset(&from.s6_addr[NETWORK_BYTES], 0, sizeof(from) - NETWORK_BYTES);
	}
	return from;
}

static struct vnc_guard_source *find(const struct vnc_guard *g, const struct in6_addr *from)
{
	for (size_t i = 0; i < ARRAY_SIZE(g->source); i++)
		if (g->source[i].wrong > 0 && memcmp(&g->source[i].from, from, sizeof(*from)) == 0)
			return (struct vnc_guard_source *)(uintptr_t)&g->source[i];
	return NULL;
}

bool vnc_guard_refuses(const struct vnc_guard *g, const struct in6_addr *from, uint64_t now_ns)
{
	const struct vnc_guard_source *s = find(g, from);

	return s && s->wrong >= VNC_GUARD_FREE && now_ns < s->until_ns;
}

void vnc_guard_wrong(struct vnc_guard *g, const struct in6_addr *from, uint64_t now_ns)
{
	struct vnc_guard_source *s = find(g, from);
	uint64_t pause = VNC_GUARD_FIRST_S;

	if (!s) {
		s = &g->source[0];
		for (size_t i = 0; i < ARRAY_SIZE(g->source); i++)
			if (g->source[i].until_ns < s->until_ns)
				s = &g->source[i];
		*s = (struct vnc_guard_source){ .from = *from };
	} else if (now_ns > s->until_ns && now_ns - s->until_ns > VNC_GUARD_FORGET_S * SECOND_NS) {
		s->wrong = 0;
	}
	s->wrong++;
	for (unsigned i = VNC_GUARD_FREE; i < s->wrong && pause < VNC_GUARD_LONGEST_S; i++)
		pause *= 2;
	s->until_ns = now_ns + (s->wrong >= VNC_GUARD_FREE ? MIN(pause, (uint64_t)VNC_GUARD_LONGEST_S) * SECOND_NS : 0);
}

void vnc_guard_right(struct vnc_guard *g, const struct in6_addr *from)
{
	struct vnc_guard_source *s = find(g, from);

	if (s)
		*s = (struct vnc_guard_source){ 0 };
}
