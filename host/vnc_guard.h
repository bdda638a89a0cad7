/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong passwords, by the address that they come from. A VNC password is short, and who guesses opens as many connections as it likes and
 * waits for no answer; so after VNC_GUARD_FREE wrong ones the address is refused for VNC_GUARD_FIRST_S seconds, after each further one for
 * twice as long, at most VNC_GUARD_LONGEST_S. The right one, or VNC_GUARD_FORGET_S without a wrong one, make that forgotten.
 *
 * An address of IPv6 stands for its network of 64 bits. Of VNC_GUARD_SOURCES addresses the one that may come back soonest makes room.
 * On loopback all users of this machine are one address.
 */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { VNC_GUARD_FREE = 5, VNC_GUARD_FIRST_S = 10, VNC_GUARD_LONGEST_S = 320, VNC_GUARD_FORGET_S = 600, VNC_GUARD_SOURCES = 64 };

/* All zeros at first. */
struct vnc_guard {
	struct vnc_guard_source {
		struct in6_addr from;
		unsigned wrong; /* 0: free */
		uint64_t until_ns;
	} source[VNC_GUARD_SOURCES];
};

/* What the guard calls this address. */
struct in6_addr vnc_guard_from(const struct sockaddr_storage *sa);
/* now_ns: loop_now_ns(). */
bool vnc_guard_refuses(const struct vnc_guard *g, const struct in6_addr *from, uint64_t now_ns);
void vnc_guard_wrong(struct vnc_guard *g, const struct in6_addr *from, uint64_t now_ns);
void vnc_guard_right(struct vnc_guard *g, const struct in6_addr *from);
