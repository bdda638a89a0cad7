/* SPDX-License-Identifier: Apache-2.0 */
/* The twin test: see twin.h. */
#include "tests/harness/twin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"

enum { STEPS = 80, FULL_COMPARISON = 8, PAGES = TRACE_RAM / MEM_PAGE_SIZE, WORDS = PAGES / 64 };

struct twin {
	struct machine m;
	struct device *dev;
	struct trace t;
	uint64_t dirty[WORDS]; /* since it was made, a bit a page */
};

static bool begin(struct twin *t, const struct device_ops *ops, char *text, size_t len)
{
	struct err err = ERR_INIT;

	machine_init(&t->m, TRACE_RAM);
	if (machine_try_add(&t->m, ops, ops->test_options, &t->dev, &err) < 0) {
		snprintf(text, len, "cannot be made with its test options: %s", err.text);
		return false;
	}
	/* Untouched pages are not looked at most of the time: each costs a fault. */
	if (mem_dirty_start(&t->m.vm.mem, &err) < 0) {
		snprintf(text, len, "%s", err.text);
		return false;
	}
	trace_init(&t->t, &t->m, t->dev);
	return true;
}

/* The saved state, allocated; NULL with a text on failure. */
static void *save(struct twin *t, size_t *ret_len, char *text, size_t len)
{
	size_t n = device_saved_size(t->dev);
	void *blob = malloc(n);
	int r = device_quiesce(t->dev);
	long saved = r < 0 || !blob ? -1 : device_save(t->dev, blob, n);

	if (saved < 0 || saved > (long)n) {
		snprintf(text, len, "could not be quiesced and saved (%d)", r);
		free(blob);
		return NULL;
	}
	*ret_len = (size_t)saved;
	return blob;
}

static void take_dirty(struct twin *t)
{
	mem_dirty_collect(&t->m.vm.mem, t->dirty, NULL);
}

static void copy_memory(struct twin *from, struct twin *to)
{
	uint8_t page[MEM_PAGE_SIZE];

	take_dirty(from);
	for (uint64_t i = 0; i < PAGES; i++) {
		if (!(from->dirty[i / 64] >> (i % 64) & 1))
			continue;
		machine_peek(&from->m, i * sizeof(page), page, sizeof(page));
		machine_poke(&to->m, i * sizeof(page), page, sizeof(page));
	}
}

/* Of the pages that one of them wrote, or of all: what was written without being marked shows only there. */
static bool compare_memory(struct twin *a, struct twin *b, bool all, char *text, size_t len)
{
	uint8_t x[MEM_PAGE_SIZE], y[MEM_PAGE_SIZE];

	take_dirty(a);
	take_dirty(b);
	for (uint64_t p = 0; p < PAGES; p++) {
		if (!all && !((a->dirty[p / 64] | b->dirty[p / 64]) >> (p % 64) & 1))
			continue;
		machine_peek(&a->m, p * sizeof(x), x, sizeof(x));
		machine_peek(&b->m, p * sizeof(y), y, sizeof(y));
		if (memcmp(x, y, sizeof(x)) == 0)
			continue;
		for (uint32_t i = 0; i < sizeof(x); i++) {
			if (x[i] != y[i]) {
				snprintf(text, len, "memory at 0x%llx is 0x%02x, 0x%02x in the loaded one",
					 (unsigned long long)p * sizeof(x) + i, x[i], y[i]);
				return false;
			}
		}
	}
	return true;
}

static bool compare_states(struct twin *a, struct twin *b, const char *when, char *text, size_t len)
{
	size_t na = 0, nb = 0;
	_cleanup_free_ uint8_t *x = save(a, &na, text, len);
	_cleanup_free_ uint8_t *y = x ? save(b, &nb, text, len) : NULL;

	if (!y)
		return false;
	for (size_t i = 0; i < na; i++) {
		if (na != nb || x[i] != y[i]) {
			snprintf(text, len, "%s the saved states differ at byte %zu", when, i);
			return false;
		}
	}
	return true;
}

static bool compare_step(struct twin *a, struct twin *b, uint64_t seed, char *text, size_t len)
{
	char what[256] = "";
	uint64_t va = trace_step(&a->t, seed, what, sizeof(what));
	uint64_t vb = trace_step(&b->t, seed, NULL, 0);
	uint64_t ia = machine_irqs(a->dev), ib = machine_irqs(b->dev);

	if (va != vb)
		snprintf(text, len, "'%s' gave 0x%llx, 0x%llx in the loaded one", what, (unsigned long long)va,
			 (unsigned long long)vb);
	else if (ia != ib)
		snprintf(text, len, "'%s' raised %llu interrupts, %llu in the loaded one", what,
			 (unsigned long long)ia, (unsigned long long)ib);
	else
		return true;
	return false;
}

static bool run(struct twin *a, struct twin *b, const struct device_ops *ops, struct rnd *r, char *text, size_t len)
{
	uint32_t before = rnd_below(r, STEPS), after = 1 + rnd_below(r, STEPS);
	struct err err = ERR_INIT;
	size_t n = 0;

	if (!begin(a, ops, text, len))
		return false;
	for (uint32_t i = 0; i < before; i++)
		trace_step(&a->t, rnd_next(r), NULL, 0);
	machine_irqs(a->dev);

	_cleanup_free_ void *blob = save(a, &n, text, len);

	if (!blob || !begin(b, ops, text, len))
		return false;
	copy_memory(a, b);
	if (device_load(b->dev, blob, n, &err) < 0) {
		snprintf(text, len, "its own state was refused: %s", err.text);
		return false;
	}
	b->t = trace_continue(&a->t, &b->m, b->dev);
	if (!compare_states(a, b, "right after loading", text, len))
		return false;
	device_resume(a->dev);
	device_resume(b->dev);
	machine_settle(&a->m);
	machine_settle(&b->m);
	uint64_t ia = machine_irqs(a->dev), ib = machine_irqs(b->dev);

	/* A pending cause is raised again on resume: what reached the guest before is not known to the loaded one. */
	if ((ia != 0) != (ib != 0)) {
		snprintf(text, len, "resuming raised %llu interrupts, %llu in the loaded one", (unsigned long long)ia,
			 (unsigned long long)ib);
		return false;
	}
	for (uint32_t i = 0; i < after; i++)
		if (!compare_step(a, b, rnd_next(r), text, len))
			return false;
	return compare_states(a, b, "at the end", text, len) &&
	       compare_memory(a, b, rnd_below(r, FULL_COMPARISON) == 0, text, len);
}

bool twin_run(const struct device_ops *ops, uint64_t seed, char *text, size_t len)
{
	struct twin a = { 0 }, b = { 0 };
	struct rnd r = { seed };
	bool ok = run(&a, &b, ops, &r, text, len);

	machine_finish(&a.m);
	machine_finish(&b.m);
	return ok;
}
