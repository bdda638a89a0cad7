/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's own counter (x86: the time-stamp counter) and the host's wall clock at one moment. A message that carries both
 * tells a guest the time exactly, however long it is under way: the guest adds what its counter has gone on since.
 *
 * How it works: KVM names the host's counter and its wall clock of one moment; the guest's counter is the host's and an offset.
 * Offsets can only be asked for while vCPUs are parked, so they are learnt each time before these run; the guest that moves
 * its counter itself meanwhile is told a wrong time. Where counters are scaled, stand apart from one another, or KVM does not
 * name the pair (no master clock, Linux before 5.16), there is none.
 */
#pragma once
#include <stdint.h>

struct guest_counter {
	uint64_t offset; /* from the host's, modulo 2^64 */
	uint32_t khz;    /* 0: the guest's counter cannot be told */
};

struct counter_moment {
	uint64_t realtime_ns; /* since 1970 */
	uint64_t value;       /* of the guest's counter then */
	uint32_t khz;
};

/* Main thread, all vCPUs parked. Without KVM or where it fails: khz is 0. */
void counter_learn(struct guest_counter *c, int vm_fd, const int *vcpu_fd, uint32_t nvcpus);
/* 0 or -ENOTSUP. At any time. */
int counter_now(const struct guest_counter *c, int vm_fd, struct counter_moment *ret);
