/* SPDX-License-Identifier: Apache-2.0 */
/* Starting coffer-gpu: see gpu_program.h. */
#include "tests/harness/gpu_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

pid_t gpu_program_start(int *ret_sock)
{
	char program[512];
	int s[2];
	pid_t pid;

	snprintf(program, sizeof(program), "%s/coffer-gpu", getenv("B"));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	pid = fork();
	if (pid == 0) {
		dup2(s[1], 0);
		execl(program, "coffer-gpu", NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	close(s[1]);
	*ret_sock = s[0];
	return pid;
}
