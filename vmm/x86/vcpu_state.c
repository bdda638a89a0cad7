/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture and restore of KVM's state: see arch.h.
 *
 * How it works: one table, in the order of saving, with each item's position in the order of restoring. The reasons:
 * - MP_STATE is read first: it makes KVM process pending INIT and SIPI. EVENTS are read last: reading others may
 *   change them.
 * - Restoring: the TSC frequency before anything that counts by it; CPUID before whatever it allows; SET_REGS drops a
 *   pending exception, so EVENTS come last; LAPIC after SREGS, which hold its base and mode, and before MSRS, else an
 *   armed TSC deadline is lost; among the MSRs the TSC before its deadline (msr.c).
 * - The VM's chips and clock come after all vCPUs. Interrupts that devices raise come after that, by the caller.
 * Last of all each vCPU's kvmclock is told that the guest was stopped, so that its watchdog does not bark.
 *
 * The clock continues from its saved value, and each vCPU's counter with it (tsc.h): for the guest no time passed. Wall clock time is the agent's business.
 *
 * Trust: the input is hostile. All records are checked for known id, range, size and completeness first; values are
 * KVM's to refuse. An MSR that this host's KVM does not know is an error unless it holds zero.
 */
/* syscalls(main): ioctl(1=KVM_GET_MP_STATE) ioctl(1=KVM_GET_REGS) ioctl(1=KVM_GET_SREGS) ioctl(1=KVM_GET_XSAVE)
 * ioctl(1=KVM_GET_XCRS) ioctl(1=KVM_GET_DEBUGREGS) ioctl(1=KVM_GET_LAPIC) ioctl(1=KVM_GET_VCPU_EVENTS)
 * ioctl(1=KVM_GET_PIT2) ioctl(1=KVM_GET_CLOCK) ioctl(1=KVM_GET_IRQCHIP) ioctl(1=KVM_GET_MSRS)
 * ioctl(1=KVM_GET_TSC_KHZ) ioctl(1=KVM_SET_MP_STATE) ioctl(1=KVM_SET_REGS) ioctl(1=KVM_SET_SREGS)
 * ioctl(1=KVM_SET_XSAVE) ioctl(1=KVM_SET_XCRS) ioctl(1=KVM_SET_DEBUGREGS) ioctl(1=KVM_SET_LAPIC)
 * ioctl(1=KVM_SET_VCPU_EVENTS) ioctl(1=KVM_SET_PIT2) ioctl(1=KVM_SET_CLOCK) ioctl(1=KVM_SET_IRQCHIP)
 * ioctl(1=KVM_SET_MSRS) ioctl(1=KVM_SET_TSC_KHZ) ioctl(1=KVM_GET_CPUID2) ioctl(1=KVM_SET_CPUID2)
 * ioctl(1=KVM_GET_XSAVE2) ioctl(1=KVM_CHECK_EXTENSION) ioctl(1=KVM_KVMCLOCK_CTRL)
 * ioctl(1=KVM_GET_MSR_INDEX_LIST) */
#include "vmm/x86/vcpu_state.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "vmm/arch.h"
#include "vmm/vm.h"
#include "vmm/x86/msr.h"
#include "vmm/x86/tsc.h"

#define PLAIN(i, rank, vm, label, g, s, type, cap) \
	{ .id = (i), .restore = (rank), .of_vm = (vm), .kind = VCPU_ITEM_PLAIN, .name = (label), .get = (g), .set = (s), \
	  .size = sizeof(type), .capability = (cap) }
#define CHIP(i, rank, label, number) \
	{ .id = (i), .restore = (rank), .of_vm = true, .kind = VCPU_ITEM_CHIP, .name = (label), .get = KVM_GET_IRQCHIP, \
	  .set = KVM_SET_IRQCHIP, .size = sizeof(struct kvm_irqchip), .capability = KVM_CAP_IRQCHIP, .chip = (number) }

static const struct vcpu_state_item items[] = {
	PLAIN(1, 2, false, "MP_STATE", KVM_GET_MP_STATE, KVM_SET_MP_STATE, struct kvm_mp_state, KVM_CAP_MP_STATE),
	PLAIN(2, 3, false, "REGS", KVM_GET_REGS, KVM_SET_REGS, struct kvm_regs, 0),
	PLAIN(3, 4, false, "SREGS", KVM_GET_SREGS, KVM_SET_SREGS, struct kvm_sregs, 0),
	{ .id = 4, .restore = 5, .kind = VCPU_ITEM_XSAVE, .name = "XSAVE", .set = KVM_SET_XSAVE, .size = sizeof(struct kvm_xsave),
	  .capability = KVM_CAP_XSAVE },
	PLAIN(5, 6, false, "XCRS", KVM_GET_XCRS, KVM_SET_XCRS, struct kvm_xcrs, KVM_CAP_XCRS),
	PLAIN(6, 7, false, "DEBUGREGS", KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, struct kvm_debugregs, KVM_CAP_DEBUGREGS),
	PLAIN(7, 8, false, "LAPIC", KVM_GET_LAPIC, KVM_SET_LAPIC, struct kvm_lapic_state, KVM_CAP_IRQCHIP),
	{ .id = 8, .restore = 0, .kind = VCPU_ITEM_TSC_KHZ, .name = "TSC_KHZ", .size = 4, .capability = KVM_CAP_GET_TSC_KHZ },
	{ .id = 9, .restore = 1, .kind = VCPU_ITEM_CPUID, .name = "CPUID", .size = sizeof(struct kvm_cpuid_entry2),
	  .capability = KVM_CAP_EXT_CPUID },
	{ .id = 10, .restore = 9, .kind = VCPU_ITEM_MSRS, .name = "MSRS", .size = sizeof(struct kvm_msr_entry) },
	PLAIN(11, 10, false, "VCPU_EVENTS", KVM_GET_VCPU_EVENTS, KVM_SET_VCPU_EVENTS, struct kvm_vcpu_events,
	      KVM_CAP_VCPU_EVENTS),
	{ .id = 12, .restore = 11, .kind = VCPU_ITEM_TSC_OFFSET, .name = "TSC_OFFSET", .size = 8, .optional = true },
	PLAIN(32, 0, true, "PIT2", KVM_GET_PIT2, KVM_SET_PIT2, struct kvm_pit_state2, KVM_CAP_PIT_STATE2),
	PLAIN(33, 1, true, "CLOCK", KVM_GET_CLOCK, KVM_SET_CLOCK, struct kvm_clock_data, KVM_CAP_ADJUST_CLOCK),
	CHIP(34, 2, "PIC_MASTER", KVM_IRQCHIP_PIC_MASTER),
	CHIP(35, 3, "PIC_SLAVE", KVM_IRQCHIP_PIC_SLAVE),
	CHIP(36, 4, "IOAPIC", KVM_IRQCHIP_IOAPIC),
};

enum { NITEMS = ARRAY_SIZE(items), XSAVE_MAX = 64 << 10, TSC_TOLERANCE_PPM = 250 };

const struct vcpu_state_item *vcpu_state_items(size_t *ret_n)
{
	*ret_n = NITEMS;
	return items;
}

/* What an item's ioctls need, and a buffer for the longest. */
struct work {
	int kvm_fd, vm_fd;
	const int *vcpu_fd;
	uint32_t nvcpus;
	uint32_t xsave_size;
	bool xsave2;
	int nmsrs;
	uint32_t msr[MSR_MAX];
	union {
		struct kvm_msrs msrs;
		struct kvm_cpuid2 cpuid;
		struct kvm_irqchip chip;
		uint8_t bytes[XSAVE_MAX];
	} buf;
};

static bool has(const struct work *w, const struct vcpu_state_item *it)
{
	if (it->kind == VCPU_ITEM_TSC_OFFSET)
		return tsc_has_offset(w->vcpu_fd[0]);
	return it->capability == 0 || ioctl(w->kvm_fd, KVM_CHECK_EXTENSION, it->capability) > 0;
}

static uint32_t xsave_size(int vm_fd)
{
	int n = ioctl(vm_fd, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);

	return n > (int)sizeof(struct kvm_xsave) && n <= XSAVE_MAX ? (uint32_t)n : sizeof(struct kvm_xsave);
}

static uint32_t bound(const struct vcpu_state_item *it, uint32_t xsave)
{
	switch (it->kind) {
	case VCPU_ITEM_PLAIN:
	case VCPU_ITEM_CHIP:
	case VCPU_ITEM_TSC_KHZ:
	case VCPU_ITEM_TSC_OFFSET:
		return it->size;
	case VCPU_ITEM_XSAVE:
		return xsave;
	case VCPU_ITEM_CPUID:
		return it->size * ARCH_CPUID_MAX;
	case VCPU_ITEM_MSRS:
		return it->size * MSR_MAX;
	}
	return 0;
}

size_t arch_vm_state_bound(int kvm_fd, int vm_fd, uint32_t nvcpus)
{
	uint32_t xsave = xsave_size(vm_fd);
	size_t sum = 0;

	(void)kvm_fd;
	for (size_t i = 0; i < NITEMS; i++)
		sum += (items[i].of_vm ? 1 : nvcpus) * (VCPU_STATE_RECORD + (size_t)bound(&items[i], xsave));
	return sum;
}

static struct work *work_new(int kvm_fd, int vm_fd, const int *vcpu_fd, uint32_t nvcpus, struct err *err)
{
	struct work *w = calloc(1, sizeof(*w));

	_Static_assert(sizeof(struct kvm_msrs) + MSR_MAX * sizeof(struct kvm_msr_entry) <= XSAVE_MAX, "buffer holds MSRs");
	_Static_assert(sizeof(struct kvm_cpuid2) + ARCH_CPUID_MAX * sizeof(struct kvm_cpuid_entry2) <= XSAVE_MAX,
		       "buffer holds CPUID");
	if (!w) {
		err_errno(err, -ENOMEM, "vCPU state");
		return NULL;
	}
	w->kvm_fd = kvm_fd;
	w->vm_fd = vm_fd;
	w->vcpu_fd = vcpu_fd;
	w->nvcpus = nvcpus;
	w->xsave_size = xsave_size(vm_fd);
	w->xsave2 = w->xsave_size > sizeof(struct kvm_xsave);
	return w;
}

/* Read what can be read; an MSR that KVM lists but does not give is left out. Returns bytes in buf.msrs.entries. */
static int get_msrs(struct work *w, int fd)
{
	union {
		struct kvm_msrs msrs;
		uint8_t room[sizeof(struct kvm_msrs) + MSR_MAX * sizeof(struct kvm_msr_entry)];
	} in;
	struct kvm_msr_entry *e = in.msrs.entries;
	uint32_t kept = 0;

	/* KVM stops at the first MSR that it cannot read: go on behind it. */
	for (uint32_t next = 0; next < (uint32_t)w->nmsrs;) {
		uint32_t want = (uint32_t)w->nmsrs - next;
		int got;

		memset(&in.msrs, 0, sizeof(in.msrs));
		in.msrs.nmsrs = want;
		for (uint32_t i = 0; i < want; i++)
			e[i] = (struct kvm_msr_entry){ .index = w->msr[next + i] };
		got = ioctl(fd, KVM_GET_MSRS, &in);
		if (got < 0)
			return -errno;
		memcpy(w->buf.msrs.entries + kept, e, (size_t)got * sizeof(e[0]));
		kept += (uint32_t)got;
		next += (uint32_t)got + 1;
	}
	return (int)(kept * sizeof(e[0]));
}

/* KVM of some versions leaves `nent` as it was asked for: what it did not fill is zero. */
static uint32_t cpuid_used(const struct kvm_cpuid2 *c)
{
	static const struct kvm_cpuid_entry2 none;
	uint32_t n = MIN(c->nent, (uint32_t)ARCH_CPUID_MAX);

	while (n > 1 && memcmp(&c->entries[n - 1], &none, sizeof(none)) == 0)
		n--;
	return n;
}

/* Leave the payload in w->buf and set *ret to it: its length or -errno. */
static int get_item(struct work *w, const struct vcpu_state_item *it, int fd, const void **ret)
{
	uint64_t offset = 0;
	int r = 0;

	*ret = w->buf.bytes;
	switch (it->kind) {
	case VCPU_ITEM_PLAIN:
		memset(w->buf.bytes, 0, it->size);
		r = ioctl(fd, it->get, w->buf.bytes);
		return r < 0 ? -errno : (int)it->size;
	case VCPU_ITEM_CHIP:
		memset(&w->buf.chip, 0, sizeof(w->buf.chip));
		w->buf.chip.chip_id = it->chip;
		r = ioctl(fd, it->get, &w->buf.chip);
		return r < 0 ? -errno : (int)it->size;
	case VCPU_ITEM_XSAVE:
		memset(w->buf.bytes, 0, w->xsave_size);
		r = ioctl(fd, w->xsave2 ? KVM_GET_XSAVE2 : KVM_GET_XSAVE, w->buf.bytes);
		return r < 0 ? -errno : (int)w->xsave_size;
	case VCPU_ITEM_TSC_KHZ:
		r = ioctl(fd, KVM_GET_TSC_KHZ);
		if (r < 0)
			return -errno;
		le32_store(w->buf.bytes, (uint32_t)r);
		return (int)it->size;
	case VCPU_ITEM_TSC_OFFSET:
		r = tsc_get_offset(fd, &offset);
		le64_store(w->buf.bytes, offset);
		return r < 0 ? r : (int)it->size;
	case VCPU_ITEM_CPUID:
		memset(&w->buf.cpuid, 0, sizeof(w->buf.cpuid));
		w->buf.cpuid.nent = ARCH_CPUID_MAX;
		r = ioctl(fd, KVM_GET_CPUID2, &w->buf.cpuid);
		*ret = w->buf.cpuid.entries;
		return r < 0 ? -errno : (int)(cpuid_used(&w->buf.cpuid) * it->size);
	case VCPU_ITEM_MSRS:
		*ret = w->buf.msrs.entries;
		return get_msrs(w, fd);
	}
	return -EINVAL;
}

struct writer {
	uint8_t *buf;
	size_t len, at;
};

static int save_one(struct work *w, const struct vcpu_state_item *it, uint32_t vcpu, struct writer *out, struct err *err)
{
	const void *payload;
	int n;

	if (!has(w, it))
		return 0;
	n = get_item(w, it, it->of_vm ? w->vm_fd : w->vcpu_fd[vcpu], &payload);
	if (n < 0)
		return err_errno(err, n, "save %s of vCPU %u", it->name, vcpu);
	if (out->len - out->at < VCPU_STATE_RECORD + (size_t)n)
		return err_set(err, -ENOSPC, "save: no room for %s", it->name);
	le16_store(out->buf + out->at, it->id);
	le16_store(out->buf + out->at + 2, (uint16_t)(it->of_vm ? (uint32_t)VCPU_STATE_OF_VM : vcpu));
	le32_store(out->buf + out->at + 4, (uint32_t)n);
	memcpy(out->buf + out->at + VCPU_STATE_RECORD, payload, (size_t)n);
	out->at += VCPU_STATE_RECORD + (size_t)n;
	return 0;
}

long arch_vm_save(int kvm_fd, int vm_fd, const int *vcpu_fd, uint32_t nvcpus, void *buf, size_t len, struct err *err)
{
	_cleanup_free_ struct work *w = work_new(kvm_fd, vm_fd, vcpu_fd, nvcpus, err);
	struct writer out = { .buf = buf, .len = len };
	int r = 0;

	if (!w)
		return -ENOMEM;
	w->nmsrs = msr_list(kvm_fd, w->msr, err);
	if (w->nmsrs < 0)
		return w->nmsrs;
	for (uint32_t v = 0; v < nvcpus; v++)
		for (size_t i = 0; i < NITEMS && r == 0; i++)
			if (!items[i].of_vm)
				r = save_one(w, &items[i], v, &out, err);
	for (size_t i = 0; i < NITEMS && r == 0; i++)
		if (items[i].of_vm)
			r = save_one(w, &items[i], 0, &out, err);
	return r < 0 ? r : (long)out.at;
}

struct record {
	const uint8_t *payload; /* NULL: not there */
	uint32_t len;
};

/* Row nvcpus is the VM's own. */
struct records {
	uint32_t nvcpus;
	struct record r[VM_MAX_VCPUS + 1][NITEMS];
};

static bool right_size(const struct vcpu_state_item *it, uint32_t len)
{
	switch (it->kind) {
	case VCPU_ITEM_PLAIN:
	case VCPU_ITEM_CHIP:
	case VCPU_ITEM_TSC_KHZ:
	case VCPU_ITEM_TSC_OFFSET:
		return len == it->size;
	case VCPU_ITEM_XSAVE:
		return len >= it->size && len <= XSAVE_MAX && len % 8 == 0;
	case VCPU_ITEM_CPUID:
		return len > 0 && len % it->size == 0 && len / it->size <= ARCH_CPUID_MAX;
	case VCPU_ITEM_MSRS:
		return len > 0 && len % it->size == 0 && len / it->size <= MSR_MAX;
	}
	return false;
}

static int read_record(struct records *ret, const uint8_t *p, uint32_t len, struct err *err)
{
	uint16_t id = le16_load(p), vcpu = le16_load(p + 2);
	size_t i = 0;

	while (i < NITEMS && items[i].id != id)
		i++;
	if (i == NITEMS)
		return err_set(err, -ENOTSUP, "vCPU state: unknown item %u: saved by a newer monitor?", id);
	if (items[i].of_vm ? vcpu != VCPU_STATE_OF_VM : vcpu >= ret->nvcpus)
		return err_set(err, -EINVAL, "vCPU state: %s of vCPU %u, this VM has %u", items[i].name, vcpu, ret->nvcpus);
	if (!right_size(&items[i], len))
		return err_set(err, -EINVAL, "vCPU state: %s of vCPU %u has %u bytes", items[i].name, vcpu, len);
	struct record *r = &ret->r[items[i].of_vm ? ret->nvcpus : vcpu][i];

	if (r->payload)
		return err_set(err, -EINVAL, "vCPU state: %s of vCPU %u is there twice", items[i].name, vcpu);
	*r = (struct record){ p + VCPU_STATE_RECORD, len };
	return 0;
}

static int read_records(struct records *ret, const uint8_t *buf, size_t len, struct err *err)
{
	while (len > 0) {
		uint32_t n = len >= VCPU_STATE_RECORD ? le32_load(buf + 4) : 0;
		int r;

		if (len < VCPU_STATE_RECORD || n > len - VCPU_STATE_RECORD)
			return err_set(err, -EINVAL, "vCPU state: cut off");
		r = read_record(ret, buf, n, err);
		if (r < 0)
			return r;
		buf += VCPU_STATE_RECORD + n;
		len -= VCPU_STATE_RECORD + n;
	}
	for (uint32_t v = 0; v <= ret->nvcpus; v++)
		for (size_t i = 0; i < NITEMS; i++)
			if (items[i].of_vm == (v == ret->nvcpus) && !ret->r[v][i].payload && items[i].capability == 0 &&
			    !items[i].optional)
				return err_set(err, -EINVAL, "vCPU state: %s of vCPU %u is missing", items[i].name, v);
	return 0;
}

/* What this host's KVM has must be there, and the other way round. */
static int check_host(const struct work *w, const struct records *rec, struct err *err)
{
	for (size_t i = 0; i < NITEMS; i++) {
		bool here = has(w, &items[i]);

		for (uint32_t v = 0; v <= rec->nvcpus; v++) {
			const struct record *r = &rec->r[v][i];

			if (items[i].of_vm != (v == rec->nvcpus) || items[i].optional)
				continue;
			if (!r->payload && here)
				return err_set(err, -EINVAL, "vCPU state: %s is missing", items[i].name);
			if (r->payload && !here)
				return err_set(err, -ENOTSUP, "vCPU state: this host's KVM has no %s", items[i].name);
			if (r->payload && items[i].kind == VCPU_ITEM_XSAVE && r->len > w->xsave_size)
				return err_set(err, -ENOTSUP,
					       "vCPU state: saved on a processor with more registers (%u bytes) than this one "
					       "(%u)", r->len, w->xsave_size);
		}
	}
	return 0;
}

static int set_tsc_khz(int fd, uint32_t want, struct err *err)
{
	int now = ioctl(fd, KVM_GET_TSC_KHZ);
	uint64_t diff = now < 0 ? want : want > (uint32_t)now ? want - (uint32_t)now : (uint32_t)now - want;

	if (diff == 0 || want == 0)
		return 0;
	if (ioctl(fd, KVM_SET_TSC_KHZ, (unsigned long)want) == 0)
		return 0;
	if (diff * 1000000 <= (uint64_t)want * TSC_TOLERANCE_PPM)
		return 0;
	return err_set(err, -ENOTSUP, "vCPU state: saved with a TSC of %u kHz, this host has %d and cannot scale it", want, now);
}

static int set_msrs(struct work *w, int fd, const struct record *rec, struct err *err)
{
	uint32_t n = rec->len / sizeof(struct kvm_msr_entry);

	for (uint32_t next = 0; next < n;) {
		struct kvm_msrs *m = &w->buf.msrs;
		int done;

		memset(m, 0, sizeof(*m));
		m->nmsrs = n - next;
		memcpy(m->entries, rec->payload + next * sizeof(m->entries[0]), m->nmsrs * sizeof(m->entries[0]));
		done = ioctl(fd, KVM_SET_MSRS, m);
		if (done < 0)
			return err_errno(err, -errno, "restore MSRS");
		if ((uint32_t)done < m->nmsrs && m->entries[done].data != 0)
			return err_set(err, -ENOTSUP, "vCPU state: this host's KVM refuses MSR 0x%x = 0x%llx",
				       m->entries[done].index, (unsigned long long)m->entries[done].data);
		next += (uint32_t)done + 1;
	}
	return 0;
}

static int set_item(struct work *w, const struct vcpu_state_item *it, int fd, const struct record *rec, struct err *err)
{
	int r = -1;

	switch (it->kind) {
	case VCPU_ITEM_TSC_KHZ:
		return set_tsc_khz(fd, le32_load(rec->payload), err);
	case VCPU_ITEM_MSRS:
		return set_msrs(w, fd, rec, err);
	case VCPU_ITEM_TSC_OFFSET:
		return 0; /* when the clock is set */
	case VCPU_ITEM_PLAIN:
		memcpy(w->buf.bytes, rec->payload, rec->len);
		if (it->set == KVM_SET_CLOCK) /* plain continuation, not by real time */
			memset(&((struct kvm_clock_data *)(void *)w->buf.bytes)->flags, 0, sizeof(__u32));
		r = ioctl(fd, it->set, w->buf.bytes);
		break;
	case VCPU_ITEM_XSAVE:
		memset(w->buf.bytes, 0, w->xsave_size);
		memcpy(w->buf.bytes, rec->payload, rec->len);
		r = ioctl(fd, it->set, w->buf.bytes);
		break;
	case VCPU_ITEM_CHIP:
		memcpy(&w->buf.chip, rec->payload, rec->len);
		w->buf.chip.chip_id = it->chip;
		r = ioctl(fd, it->set, &w->buf.chip);
		break;
	case VCPU_ITEM_CPUID:
		memset(&w->buf.cpuid, 0, sizeof(w->buf.cpuid));
		w->buf.cpuid.nent = rec->len / it->size;
		memcpy(w->buf.cpuid.entries, rec->payload, rec->len);
		r = ioctl(fd, KVM_SET_CPUID2, &w->buf.cpuid);
		break;
	}
	return r < 0 ? err_errno(err, -errno, "restore %s", it->name) : 0;
}

/* Set one row of records in the order of restoring. */
static int restore_row(struct work *w, const struct record *row, bool of_vm, int fd, struct err *err)
{
	int r = 0;

	for (size_t rank = 0; rank < NITEMS && r == 0; rank++)
		for (size_t i = 0; i < NITEMS && r == 0; i++)
			if (items[i].of_vm == of_vm && items[i].restore == rank && row[i].payload)
				r = set_item(w, &items[i], fd, &row[i], err);
	return r;
}

static const struct record *find(const struct records *rec, uint32_t row, enum vcpu_item_kind kind, unsigned long set)
{
	for (size_t i = 0; i < NITEMS; i++)
		if (items[i].kind == kind && items[i].set == set && rec->r[row][i].payload)
			return &rec->r[row][i];
	return NULL;
}

/* After everything else: the counters back to where they stood beside the clock. */
static void align_counters(const struct work *w, const struct records *rec)
{
	const struct record *clock = find(rec, rec->nvcpus, VCPU_ITEM_PLAIN, KVM_SET_CLOCK);
	const struct record *khz = find(rec, 0, VCPU_ITEM_TSC_KHZ, 0);
	struct kvm_clock_data saved;
	uint64_t shift;

	/* A scaled counter has no offset from the host's. */
	if (!clock || !khz || !tsc_is_unscaled(w->vm_fd, le32_load(khz->payload)))
		return;
	memcpy(&saved, clock->payload, sizeof(saved));
	if (tsc_shift(w->vm_fd, &saved, le32_load(khz->payload), &shift) < 0)
		return;
	for (uint32_t v = 0; v < rec->nvcpus; v++) {
		const struct record *offset = find(rec, v, VCPU_ITEM_TSC_OFFSET, 0);

		if (offset)
			tsc_set_offset(w->vcpu_fd[v], le64_load(offset->payload) + shift);
	}
}

int arch_vm_restore(int kvm_fd, int vm_fd, const int *vcpu_fd, uint32_t nvcpus, const void *buf, size_t len,
		    struct err *err)
{
	_cleanup_free_ struct records *rec = calloc(1, sizeof(*rec));
	_cleanup_free_ struct work *w = NULL;
	int r;

	if (!rec || nvcpus > VM_MAX_VCPUS)
		return err_errno(err, rec ? -EINVAL : -ENOMEM, "vCPU state");
	rec->nvcpus = nvcpus;
	r = read_records(rec, buf, len, err);
	if (r < 0)
		return r;
	w = work_new(kvm_fd, vm_fd, vcpu_fd, nvcpus, err);
	if (!w)
		return -ENOMEM;
	r = check_host(w, rec, err);
	for (uint32_t v = 0; v < nvcpus && r == 0; v++) {
		r = restore_row(w, rec->r[v], false, vcpu_fd[v], err);
		if (r < 0)
			err_prefix(err, "vCPU %u: ", v);
		else
			ioctl(vcpu_fd[v], KVM_KVMCLOCK_CTRL); /* fails for a guest without kvmclock */
	}
	if (r == 0)
		r = restore_row(w, rec->r[nvcpus], true, vm_fd, err);
	if (r == 0)
		align_counters(w, rec);
	return r;
}
