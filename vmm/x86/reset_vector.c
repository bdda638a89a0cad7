/* SPDX-License-Identifier: Apache-2.0 */
/* The reset vector: see reset_vector.h. */
#include "vmm/x86/reset_vector.h"

#include <string.h>

#include "vmm/x86/layout.h"

int reset_vector_write(struct mem *m, const struct boot_config *config)
{
	for (size_t i = 0; i < config->ndevices; i++) {
		const struct boot_device *d = &config->device[i];

		if (!d->hid || strcmp(d->hid, BOOT_HID_GED) != 0)
			continue;
		uint16_t port = (uint16_t)(d->base + GED_REG_RESET);
		const uint8_t code[] = {
			0xba, (uint8_t)port, (uint8_t)(port >> 8), /* mov dx, port */
			0xb0, GED_RESET_VALUE,                     /* mov al, value */
			0xee,                                      /* out dx, al */
			0xf4,                                      /* halt: hlt */
			0xeb, 0xfd,                                /* jmp halt */
		};

		_Static_assert(sizeof(code) <= X86_TABLES_END - X86_RESET_VECTOR, "fits below 1 MiB");
		return mem_write(m, GPA(X86_RESET_VECTOR), code, sizeof(code));
	}
	return 0;
}
