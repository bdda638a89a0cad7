/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device is.
 *
 * Every device is `{ struct device dev; struct X_state state; struct X_host host; }`: guest-visible state
 * described by a field list, host resources apart, and one const ops table. To add one: a file in devices/
 * with its option table, field list and ops, and a line in registry.c. See docs/adding-a-device.md.
 *
 * Life: open (the only step that may fail for host reasons) -> reset -> [restore: state decoded, check] ->
 * callbacks ... quiesce / resume ... -> close.
 *
 * Locks: `lock` is taken by the framework (bus glue, transport, machine) around every callback but open, close:
 * a device never takes it itself, except in its own loop_fd and timer callbacks, which begin with
 * device_lock(&d->dev) and end with device_unlock. Order: device lock before anything a backend owns.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "lib/opt.h"
#include "snapshot/state.h"
#include "vmm/irq.h"
#include "vmm/memory.h"
#include "vmm/vm.h"

struct device;

enum device_bus { DEVICE_PIO, DEVICE_MMIO, DEVICE_VIRTIO };

/* State that no list of fixed size can hold, since there may be little or much of it: bytes after the lists. Called with
 * the device's lock, in a device that is paused. */
struct device_extra {
	const struct state_schema *schema; /* of the records in it; may be NULL. Stored with the golden files as the device's own is */
	size_t (*max)(const struct device *d);   /* no device with these options ever saves more bytes */
	size_t (*bound)(const struct device *d); /* nor this one now; found without looking at everything */
	size_t (*save)(const struct device *d, uint8_t *buf); /* bytes, at most bound. The guest waits: copies, nothing slower */
	/* The lists are decoded and checked. Hostile input, all of it to be read. After a failure the device is reset. */
	int (*load)(struct device *d, const uint8_t *buf, size_t len, struct err *err);
};

struct device_ops {
	const char *name;      /* option and registry name: "serial", "blk" */
	const char *help;      /* one line */
	enum device_bus bus;
	uint64_t base, size;   /* PIO: fixed; MMIO and VIRTIO: base 0, placed by the machine */
	uint32_t gsi;          /* PIO: fixed, 0 = none; others placed by the machine */
	bool needs_irq;
	const char *hid;       /* ACPI hardware id; NULL: not announced (virtio ones get LNRO0005) */
	uint32_t instances;    /* how many may exist */
	bool implicit;         /* always present, without an option */
	size_t instance_size;  /* of the struct that starts with struct device */
	const struct opt *options; /* may be NULL; parsed into the struct named by opt_size */
	size_t opt_size;
	const struct state_schema *schema; /* NULL: no state of its own */
	size_t state_offset;   /* of struct X_state in the instance */
	const struct device_extra *extra; /* NULL: the lists are all */
	const struct virtio_ops *virtio; /* DEVICE_VIRTIO: see virtio.h */
	/* Options that make one without any host resource, and the same every time: how the twin, golden and fuzz
	 * tests open it. NULL: no options. */
	const char *test_options;

	int (*open)(struct device *dev, const void *options, struct err *err);
	/* May be NULL. Inside the jail, before system calls are filtered: threads are created here, no earlier. */
	int (*start)(struct device *dev, struct err *err);
	void (*reset)(struct device *dev);
	/* DEVICE_PIO and DEVICE_MMIO only. Accept anything. */
	void (*read)(struct device *dev, uint64_t offset, void *data, uint32_t len);
	void (*write)(struct device *dev, uint64_t offset, const void *data, uint32_t len);
	/* May be NULL: nothing. What does a state saved now leave out, which a restored guest will miss? 0, or the length of a text. */
	int (*left_out)(const struct device *dev, char *text, size_t size);
	int (*quiesce)(struct device *dev);  /* drain requests in flight; after it nothing touches guest memory */
	void (*resume)(struct device *dev);
	/* After a decode: is this state one the device could have been in? Hostile input. */
	int (*check)(struct device *dev, struct err *err);
	/* May be NULL. After a load into a new process, before resume: whoever was at the other end is gone. */
	void (*restored)(struct device *dev);
	void (*close)(struct device *dev); /* accepts a zeroed device and a half-opened one */
};

struct device {
	const struct device_ops *ops;
	struct vm *vm;         /* memory, loop, log, stop requests */
	pthread_mutex_t lock;
	struct irq_line irq;   /* fd -1 when the device has none */
	uint64_t base;         /* where the machine placed it */
	uint32_t index;        /* position in the machine */
	char name[24];         /* "blk0" */
	struct log_limit log_limit;
	bool quiesced;         /* between device_quiesce and device_resume */
};

static inline void device_lock(struct device *d) { pthread_mutex_lock(&d->lock); }
static inline void device_unlock(struct device *d) { pthread_mutex_unlock(&d->lock); }
static inline void *device_state(struct device *d) { return (char *)d + d->ops->state_offset; }

/* Where the machine puts a device. */
struct device_place {
	uint32_t index;  /* position in the machine */
	uint32_t number; /* among those of its kind: the 0 of "blk0" */
	uint64_t base;   /* MMIO and VIRTIO; PIO devices bring their own */
	uint32_t gsi;    /* likewise */
};

/* Make one: parse `options` ("a=b,c=d", may be NULL), open, reset, and claim its place on the bus (and, with KVM, its
 * interrupt line and ioeventfds). The bus must not be frozen. 0 or -errno with a text that begins with the device's
 * name. Main thread. */
int device_create(struct vm *vm, const struct device_ops *ops, const struct device_place *place, const char *options,
		  struct device **ret, struct err *err);
void device_destroy(struct device *d); /* accepts NULL; the bus must not be used afterwards */

/* Main thread, vCPUs at the barrier. Between the two nothing of the device touches guest memory. Each may be called
 * again without effect. Resume makes virtio devices look at every queue again. */
int device_quiesce(struct device *d);
void device_resume(struct device *d);

/* The whole guest-visible state of a quiesced device as one blob: for virtio ones the common list, then the device's, then
 * what it has as extra, each as le32 length and encoding. device_load expects a quiesced or never run device; it resets, decodes
 * and checks. After a failure the device is in its reset state. */
size_t device_saved_size(const struct device *d); /* no more than this; just this when there is no extra part */
size_t device_saved_max(const struct device *d);  /* whatever the guest does */
long device_save(const struct device *d, void *buf, size_t len); /* bytes; -ENOSPC when len is below device_saved_size */
int device_load(struct device *d, const void *buf, size_t len, struct err *err);

/* The registry: one explicit ordered array. Its order fixes addresses, interrupts and ids. */
extern const struct device_ops *const device_registry[];
extern const size_t device_registry_count;
const struct device_ops *device_find(const char *name); /* NULL if unknown */
