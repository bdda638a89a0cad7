/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random traces: what a guest might do to any device, made from a seed. The twin and fuzz tests run them.
 *
 * A trace knows a device only by its ops. For a virtio device it mixes register accesses of every width with what a driver
 * does (start with some of the offered features, well-formed and odd requests, kicks, acknowledgements) and now and then
 * rubbish in the rings. For others it is register accesses.
 */
#pragma once
#include "tests/harness/driver.h"

enum { TRACE_RAM = 1 << 20 };

/* What the guest knows: copied along with its memory, it continues on another machine. */
struct trace {
	struct driver d;
};

void trace_init(struct trace *t, struct machine *m, struct device *dev);
/* An event of the host's for this kind of device; NULL when there is none. */
typedef void trace_event_fn(struct device *d, struct rnd *r);
trace_event_fn *trace_event(const struct device_ops *ops);
/* A request as a driver of this kind makes them; NULL: any bytes will do. Returns its length, at most TRACE_REQUEST_MAX. */
enum { TRACE_REQUEST_MAX = 256 };
typedef size_t trace_request_fn(struct rnd *r, uint32_t queue, uint8_t *buf);
trace_request_fn *trace_request(const struct device_ops *ops);
trace_request_fn trace_gpu_request;
/* The same guest, on another machine. */
struct trace trace_continue(const struct trace *t, struct machine *m, struct device *dev);
/* Do the one thing that `seed` says; returns what the guest saw. What it did goes to text (may be NULL). */
uint64_t trace_step(struct trace *t, uint64_t seed, char *text, size_t len);
