/* SPDX-License-Identifier: Apache-2.0 */
/* The display is this machine's: libxcb needs no resolver, which would want the libc of the image (--wrap in the Makefile). */
#include <netdb.h>

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
	(void)node;
	(void)service;
	(void)hints;
	(void)ret;
	return EAI_FAIL;
}
