/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bus: see bus.h.
 *
 * How it works: ranges are kept sorted on insertion, so a look-up is a binary search over at most BUS_MAX_RANGES
 * entries that never change once the bus is frozen.
 *
 * Trust: addresses and lengths come from the guest; KVM may also deliver odd lengths (a page-crossing access arrives
 * in pieces). Handlers only ever see naturally sized accesses inside their range.
 */
#include "vmm/bus.h"

#include <errno.h>
#include <string.h>

static const char *const space_names[] = { "port", "address" };

int bus_add(struct bus *b, enum bus_space space, uint64_t base, uint64_t size, const struct bus_ops *ops,
	    void *opaque, const char *name, struct err *err)
{
	struct bus_range *r = b->range[space];
	uint64_t limit = space == BUS_PIO ? 0xffff : UINT64_MAX;
	int at = 0;

	if (b->frozen)
		return err_set(err, -EBUSY, "bus: %s cannot be added to a machine that has started", name);
	if (size == 0 || base > limit || size - 1 > limit - base)
		return err_set(err, -EINVAL, "bus: %s has an impossible %s range 0x%llx+0x%llx", name,
			       space_names[space], (unsigned long long)base, (unsigned long long)size);
	if (b->n[space] == BUS_MAX_RANGES)
		return err_set(err, -ENOSPC, "bus: %s is one %s range too many, the limit is %d", name,
			       space_names[space], BUS_MAX_RANGES);
	while (at < b->n[space] && r[at].base <= base)
		at++;
	/* Only the neighbours can overlap: the one below by its end, the one above by its start. */
	const struct bus_range *hit = NULL;

	if (at > 0 && base - r[at - 1].base < r[at - 1].size)
		hit = &r[at - 1];
	else if (at < b->n[space] && r[at].base - base < size)
		hit = &r[at];
	if (hit)
		return err_set(err, -EEXIST, "bus: %s at %s 0x%llx+0x%llx overlaps %s at 0x%llx+0x%llx", name,
			       space_names[space], (unsigned long long)base, (unsigned long long)size, hit->name,
			       (unsigned long long)hit->base, (unsigned long long)hit->size);
	memmove(&r[at + 1], &r[at], (size_t)(b->n[space] - at) * sizeof(*r));
	r[at] = (struct bus_range){ .base = base, .size = size, .ops = ops, .opaque = opaque, .name = name };
	b->n[space]++;
	return 0;
}

void bus_freeze(struct bus *b)
{
	b->frozen = true;
}

const struct bus_range *bus_find(const struct bus *b, enum bus_space space, uint64_t addr)
{
	const struct bus_range *r = b->range[space];
	int lo = 0, hi = b->n[space];

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (addr < r[mid].base)
			hi = mid;
		else if (addr - r[mid].base >= r[mid].size)
			lo = mid + 1;
		else
			return &r[mid];
	}
	return NULL;
}

/* The range that takes all of the access; NULL when nobody does. */
static const struct bus_range *claim(const struct bus *b, enum bus_space space, uint64_t addr, uint32_t len)
{
	const struct bus_range *r;

	if (len != 1 && len != 2 && len != 4 && (len != 8 || space == BUS_PIO))
		return NULL;
	r = bus_find(b, space, addr);
	if (!r || len > r->size - (addr - r->base))
		return NULL;
	return r;
}

bool bus_read(const struct bus *b, enum bus_space space, uint64_t addr, void *data, uint32_t len)
{
	const struct bus_range *r = claim(b, space, addr, len);

	/* Also before a handler runs, in case it has nothing to say about this offset. */
	memset(data, 0xff, len);
	if (!r)
		return false;
	r->ops->read(r->opaque, addr - r->base, data, len);
	return true;
}

bool bus_write(const struct bus *b, enum bus_space space, uint64_t addr, const void *data, uint32_t len)
{
	const struct bus_range *r = claim(b, space, addr, len);

	if (!r)
		return false;
	r->ops->write(r->opaque, addr - r->base, data, len);
	return true;
}
