/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual machine generation id (Microsoft, "Virtual Machine Generation ID").
 *
 * Guest contract: 16 bytes in a reserved page, whose address the tables give (vmm/x86/acpi.c). They change when the
 * guest may be running from the same past as another; a notification through the event device follows, and the guest's
 * kernel reseeds its random number generator.
 *
 * How it works: no registers. The device writes the identifier at reset and when asked (vmgenid.h).
 * Threads: main, under the device lock.
 * Snapshot: the identifier, which the guest's memory holds too; whoever restores a copy renews it.
 */
#include "devices/vmgenid.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "lib/util.h"
#include "vmm/boot.h"

#define VMGENID_STATE(F, A, S, V) A(1, 1, u8, id, VMGENID_SIZE)
STATE_STRUCT(vmgenid, VMGENID_STATE);
#define STATE_SELF struct vmgenid_state
STATE_SCHEMA(vmgenid, 1, VMGENID_STATE);
#undef STATE_SELF

struct vmgenid {
	struct device dev;
	struct vmgenid_state st;
	uint8_t first[VMGENID_SIZE]; /* the value at reset */
};

struct vmgenid_options {
	char *id;
};

static const struct opt vmgenid_options[] = {
	OPT_STRING(struct vmgenid_options, id, "id", 0, "HEX", "32 hexadecimal digits (random)"),
	OPT_END,
};

static struct vmgenid *from_device(struct device *d)
{
	return container_of(d, struct vmgenid, dev);
}

int vmgenid_set(struct device *d, const uint8_t id[VMGENID_SIZE])
{
	memcpy(from_device(d)->st.id, id, VMGENID_SIZE);
	return mem_write(&d->vm->mem, GPA(BOOT_VMGENID_GPA), id, VMGENID_SIZE);
}

static int random_id(uint8_t id[VMGENID_SIZE])
{
	return getrandom(id, VMGENID_SIZE, 0) == VMGENID_SIZE ? 0 : -EIO;
}

int vmgenid_renew(struct device *d)
{
	uint8_t id[VMGENID_SIZE];
	int r = random_id(id);

	return r < 0 ? r : vmgenid_set(d, id);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_id(const char *s, uint8_t id[VMGENID_SIZE], struct err *err)
{
	bool good = strlen(s) == 2 * VMGENID_SIZE;

	for (int i = 0; good && i < 2 * VMGENID_SIZE; i++) {
		int v = hex_digit(s[i]);

		good = v >= 0;
		id[i / 2] = (uint8_t)(id[i / 2] << 4 | (v & 0xf));
	}
	return good ? 0 : err_set(err, -EINVAL, "id '%s': give 32 hexadecimal digits", s);
}

static int vmgenid_open(struct device *d, const void *options, struct err *err)
{
	const struct vmgenid_options *o = options;
	struct vmgenid *g = from_device(d);
	int r;

	if (o->id)
		return parse_id(o->id, g->first, err);
	r = random_id(g->first);
	return r < 0 ? err_errno(err, r, "getrandom") : 0;
}

static void vmgenid_reset(struct device *d)
{
	/* A fake machine may be too small to have the page. */
	(void)vmgenid_set(d, from_device(d)->first);
}

/* Loading begins with a reset, which wrote the first identifier. */
static void vmgenid_resume(struct device *d)
{
	(void)mem_write(&d->vm->mem, GPA(BOOT_VMGENID_GPA), from_device(d)->st.id, VMGENID_SIZE);
}

const struct device_ops vmgenid_device = {
	.name = "vmgenid",
	.help = "generation id: tells the guest that it is a copy",
	.bus = DEVICE_PIO, /* no ports */
	.hid = BOOT_HID_VMGENID,
	.instances = 1,
	.implicit = true,
	.instance_size = sizeof(struct vmgenid),
	.options = vmgenid_options,
	.opt_size = sizeof(struct vmgenid_options),
	.schema = &vmgenid_schema,
	.state_offset = offsetof(struct vmgenid, st),
	.test_options = "id=000102030405060708090a0b0c0d0e0f",
	.open = vmgenid_open,
	.reset = vmgenid_reset,
	.resume = vmgenid_resume,
};
