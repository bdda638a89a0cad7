/* SPDX-License-Identifier: Apache-2.0 */
/* A VM's display: see vm_display.h. */
#include "host/vm_display.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/vmargs.h"
#include "lib/display_proto.h"
#include "lib/text.h"
#include "lib/util.h"

#define GPU "gpu,"
#define THREE_D "3d"

enum { PIXEL_BYTES = 4, PICTURES = 4, MEMORY_USUAL = 256 << 20 /* what the device has when it is not told */ };

/* In the order of the kinds in lib/display_proto.h. */
static const char *const inputs[] = { "input,kind=keyboard", "input,kind=pointer", "input,kind=touch" };

static bool take_side(const char **p, char end, uint32_t *ret)
{
	uint32_t n = 0;
	size_t digits = 0;

	for (; **p >= '0' && **p <= '9' && digits < 5; (*p)++, digits++)
		n = n * 10 + (uint32_t)(**p - '0');
	*ret = n;
	return digits > 0 && **p == end && n >= DISPLAY_SIZE_MIN && n <= DISPLAY_SIZE_MAX;
}

static int parse_size(const char *text, struct vm_display *d, struct err *err)
{
	const char *p = text;

	if (take_side(&p, 'x', &d->width) && p++ && take_side(&p, '\0', &d->height))
		return 0;
	return err_set(err, -EINVAL, "--display '%s': wanted is WIDTHxHEIGHT, each from %d to %d, such as 1280x800", TEXT_CUT(text),
		       DISPLAY_SIZE_MIN, DISPLAY_SIZE_MAX);
}

static int check_tier(const char *tier, bool display, struct err *err)
{
	if (!tier || !strcmp(tier, "vm"))
		return 0;
	if (!strcmp(tier, "microvm") && display)
		return err_set(err, -EINVAL, "--tier microvm has no display: leave out --display and --gpu, or take --tier vm");
	if (!strcmp(tier, "microvm"))
		return 0;
	if (!strcmp(tier, "function") || !strcmp(tier, "container"))
		return err_set(err, -ENOTSUP, "--tier %s is not started by run yet: take microvm or vm", tier);
	return err_set(err, -EINVAL, "--tier '%s': wanted is microvm or vm", TEXT_CUT(tier));
}

int vm_display_parse(const char *tier, const char *size, const char *gpu, struct vm_display *ret, struct err *err)
{
	bool wanted = size || gpu || (tier && !strcmp(tier, "vm"));
	struct vm_display d = { .width = wanted ? VM_DISPLAY_WIDTH : 0, .height = wanted ? VM_DISPLAY_HEIGHT : 0 };
	int r = check_tier(tier, size || gpu, err);

	if (r == 0 && size)
		r = parse_size(size, &d, err);
	d.three_d = gpu && !strcmp(gpu, "virgl");
	if (r == 0 && gpu && !d.three_d && strcmp(gpu, "2d") != 0)
		r = err_set(err, -EINVAL, "--gpu '%s': wanted is 2d or virgl", TEXT_CUT(gpu));
	if (r == 0)
		*ret = d;
	return r;
}

int vm_display_add_devices(struct vm_display *d, struct opt_strv *devices, struct err *err)
{
	if (!d->width)
		return 0;
	if (vmargs_device_replaced(devices, "gpu") || vmargs_device_replaced(devices, "input"))
		return err_set(err, -EINVAL, "--device gpu and --device input: a VM with a display has them already: leave them out, or leave out --display, --gpu and --tier vm");
	if (devices->n + 1 + ARRAY_SIZE(inputs) > OPT_LIST_MAX)
		return err_set(err, -E2BIG, "too many --device besides those of the display");
	/* A console's picture, the session's, and two more while the mode changes. */
	bool large = (uint64_t)d->width * d->height * PIXEL_BYTES * PICTURES > MEMORY_USUAL;

	snprintf(d->gpu, sizeof(d->gpu), GPU "width=%u,height=%u%s%s,socket=" DISPLAY_SOCKET, d->width, d->height,
		 large ? ",memory=1G" : "", d->three_d ? "," THREE_D : "");
	devices->v[devices->n++] = d->gpu;
	for (size_t i = 0; i < ARRAY_SIZE(inputs); i++)
		devices->v[devices->n++] = inputs[i];
	return 0;
}

static uint32_t value_of(const char *device, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = device; (p = strchr(p, ',')) != NULL;)
		if (!strncmp(++p, key, n) && p[n] == '=')
			return (uint32_t)strtoul(p + n + 1, NULL, 10);
	return 0;
}

bool vm_display_is_3d(const char *device)
{
	if (strncmp(device, GPU, strlen(GPU)) != 0)
		return false;
	for (const char *p = device; (p = strchr(p, ',')) != NULL;)
		if (strcspn(++p, ",") == strlen(THREE_D) && !strncmp(p, THREE_D, strlen(THREE_D)))
			return true;
	return false;
}

void vm_display_find(char *const *device, size_t n, char ret[VM_DISPLAY_TEXT])
{
	ret[0] = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t width, height;

		if (strncmp(device[i], GPU, strlen(GPU)) != 0)
			continue;
		width = value_of(device[i], "width");
		height = value_of(device[i], "height");
		if (MIN(width, height) >= DISPLAY_SIZE_MIN && MAX(width, height) <= DISPLAY_SIZE_MAX)
			snprintf(ret, VM_DISPLAY_TEXT, "%ux%u", width, height);
	}
}
