/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel file says about itself: made by the parser of its format, carried out by load.c.
 *
 * A parser only reads the file. It promises: each segment lies in the file, ends without overflow, and starts at
 * X86_KERNEL_MIN or above; start <= entry < end. Whether that fits into this guest's memory is load.c's question.
 */
#pragma once
#include <asm/bootparam.h>
#include <stdint.h>

#include "lib/err.h"
#include "vmm/boot.h"

enum { KERNEL_MAX_SEGMENTS = 64, KERNEL_HEAD_SIZE = 4096 };

/* Linux's own buffer, with the terminating zero; formats without a header field have this limit. */
enum { KERNEL_CMDLINE_SIZE = 2048 };
/* Highest place of an initrd for formats without a header field: what Linux has always said, exclusive. */
#define KERNEL_INITRD_END 0x80000000ull

struct kernel_segment {
	uint64_t off, len; /* in the file */
	uint64_t gpa;
};

struct kernel {
	enum boot_protocol protocol;
	uint64_t entry;
	uint64_t start, end;     /* memory the kernel needs for itself, end exclusive */
	uint64_t cmdline_max;    /* bytes, without the terminating zero */
	uint64_t initrd_end;     /* the initrd must end at or below this */
	struct setup_header hdr; /* LINUX64: goes into boot_params */
	uint32_t nsegments;
	struct kernel_segment segment[KERNEL_MAX_SEGMENTS];
};

/* The file, with its first bytes (up to KERNEL_HEAD_SIZE) read once. */
struct kernel_file {
	int fd;
	const char *name;
	uint64_t size;
	uint32_t head_len;
	uint8_t head[KERNEL_HEAD_SIZE];
};

/* Fill *ret (zeroed by the caller), or refuse: -EINVAL / -ENOTSUP / -errno with a text. */
int bzimage_parse(const struct kernel_file *f, struct kernel *ret, struct err *err);
int elf_parse(const struct kernel_file *f, struct kernel *ret, struct err *err);

bool bzimage_probe(const struct kernel_file *f);
bool elf_probe(const struct kernel_file *f);
