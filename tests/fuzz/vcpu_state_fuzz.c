/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of vCPU state of any content, without KVM behind them.
 *
 * Input: the number of vCPUs, then the records. What must hold: nothing is ever accepted (there is no KVM), the
 * refusal has a text, and no read goes beyond the input.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "vmm/arch.h"
#include "vmm/vm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint32_t n = 1 + fuzz_u8(&in) % VM_MAX_VCPUS;
	int fd[VM_MAX_VCPUS];
	struct err err = ERR_INIT;
	/* A copy of just that size, so that a sanitizer sees the first byte too many. */
	uint8_t *copy = malloc(in.left ? in.left : 1);

	memset(fd, 0xff, sizeof(fd));
	memcpy(copy, in.p, in.left);
	FUZZ_REQUIRE(arch_vm_restore(-1, -1, fd, n, copy, in.left, &err) < 0);
	FUZZ_REQUIRE(err.text[0] != 0);
	free(copy);
	return 0;
}
