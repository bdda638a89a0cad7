/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual CPUs: one thread each, which runs KVM_RUN and the bus and nothing else.
 *
 * Life: vcpu_create_all (descriptors and run areas; register set-up follows, see x86/) -> vcpu_start_all (threads, parked)
 * -> vcpu_resume_all <-> vcpu_pause_all -> vcpu_stop_all (joined) -> vcpu_finish_all.
 *
 * The barrier: when vcpu_pause_all returns, every vCPU is parked outside KVM_RUN with no port or memory access
 * half done, so that its registers are what the guest would see between two instructions.
 *
 * Threads: all calls here from main, except vcpu_kick, which any thread may make.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct kvm_run;
struct vm;

enum vcpu_want { VCPU_PARK, VCPU_RUN, VCPU_QUIT };

/* What main wants of all vCPUs and how many do it. One for the VM, embedded in struct vm. */
struct vcpu_barrier {
	pthread_mutex_t lock;   /* innermost: nothing else is taken under it */
	pthread_cond_t parked_cond, want_cond;
	_Atomic int want;       /* enum vcpu_want; written under lock, read by vCPUs without it */
	uint32_t parked;        /* under lock */
};

/* A cache line of its own for each: neighbours count without disturbing one another. */
struct vcpu {
	struct vm *vm;
	uint32_t index;
	int fd;              /* KVM vCPU; -1 without */
	struct kvm_run *run; /* shared with the kernel */
	size_t run_size;
	pthread_t thread;
	bool started;        /* thread exists (main only) */
	bool parked;         /* under the barrier's lock */
	bool dead;           /* its own thread's: hit an exit it cannot go on from */
	/* Written by the vCPU's thread alone, read by any: no locked operation on the hot path. */
	_Atomic uint64_t exits;
	_Atomic uint64_t unclaimed;
} __attribute__((aligned(64)));

void vcpu_barrier_init(struct vcpu_barrier *b);
void vcpu_barrier_finish(struct vcpu_barrier *b);

/* Make n vCPUs (1..VM_MAX_VCPUS) of vm->vm_fd: 0 or -errno. */
int vcpu_create_all(struct vm *vm, uint32_t n, struct err *err);
/* Start their threads, parked. */
int vcpu_start_all(struct vm *vm, struct err *err);
void vcpu_pause_all(struct vm *vm);  /* returns when all are parked; accepts parked, stopped and absent ones */
void vcpu_resume_all(struct vm *vm);
void vcpu_stop_all(struct vm *vm);   /* end and join the threads */
void vcpu_finish_all(struct vm *vm); /* stop, close, free; accepts none */

/* Make the vCPU leave KVM_RUN soon; harmless at any other time. */
void vcpu_kick(struct vcpu *v);

/* Sums over all vCPUs. */
uint64_t vcpu_exits(const struct vm *vm);     /* VM exits seen by user space */
uint64_t vcpu_unclaimed(const struct vm *vm); /* accesses nobody claimed */
