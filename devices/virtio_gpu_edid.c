/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: what a monitor says about itself: an EDID (VESA E-EDID 1.4) with one preferred mode.
 *
 * The timing is VESA CVT 1.1 with reduced blanking at 60 Hz, so the width need not be a multiple of 8. A mode that EDID's own
 * descriptor cannot hold (more than 4095 pixels a side, a clock above 655.35 MHz) is in a second block, a DisplayID 1.3 extension
 * with a type I timing, whose fields are wide enough for everything a scanout can have. Sizes are those of 96 dots an inch.
 */
#include <string.h>

#include "devices/virtio_gpu.h"
#include "lib/le.h"
#include "lib/util.h"

enum { BLOCK = 128, DESCRIPTOR = 18, REFRESH = 60, DPI = 96 };
enum { RB_H_BLANK = 160, RB_H_SYNC = 32, RB_H_FRONT = 48, RB_V_FRONT = 3, RB_V_BACK_MIN = 6, RB_V_BLANK_US = 460 };
enum { DTD_SIDE_MAX = 4095, DTD_CLOCK_MAX = 65535 };
#define RB_CLOCK_STEP 25u /* 250 kHz in units of 10 kHz */

struct timing {
	uint32_t width, height;
	uint32_t v_sync, v_blank;
	uint32_t clock; /* 10 kHz */
	uint32_t mm_width, mm_height;
};

/* CVT tells aspect ratios apart by the length of the vertical sync. */
static uint32_t v_sync_of(uint32_t width, uint32_t height)
{
	static const struct {
		uint8_t w, h, lines;
	} known[] = { { 4, 3, 4 }, { 16, 9, 5 }, { 16, 10, 6 }, { 5, 4, 7 }, { 15, 9, 7 } };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (width * known[i].h == height * known[i].w)
			return known[i].lines;
	return 10;
}

static struct timing make_timing(uint32_t width, uint32_t height)
{
	struct timing t = { .width = width, .height = height, .v_sync = v_sync_of(width, height) };
	/* Lines that take the blanking time, when the rest of a frame is the picture. */
	uint32_t picture_us = 1000000 / REFRESH - RB_V_BLANK_US;

	t.v_blank = MAX((uint32_t)RB_V_BLANK_US * height / picture_us + 1, RB_V_FRONT + t.v_sync + RB_V_BACK_MIN);
	t.clock = (uint32_t)((uint64_t)(width + RB_H_BLANK) * (height + t.v_blank) * REFRESH / 10000);
	t.clock -= t.clock % RB_CLOCK_STEP;
	t.mm_width = width * 254 / (DPI * 10);
	t.mm_height = height * 254 / (DPI * 10);
	return t;
}

static bool fits_descriptor(const struct timing *t)
{
	return t->width <= DTD_SIDE_MAX && t->height <= DTD_SIDE_MAX && t->clock <= DTD_CLOCK_MAX;
}

static void put_timing(uint8_t *p, const struct timing *t)
{
	uint32_t mm_w = MIN(t->mm_width, 4095u), mm_h = MIN(t->mm_height, 4095u);

	le16_store(p, (uint16_t)t->clock);
	p[2] = (uint8_t)t->width;
	p[3] = (uint8_t)RB_H_BLANK;
	p[4] = (uint8_t)(t->width >> 8 << 4 | RB_H_BLANK >> 8);
	p[5] = (uint8_t)t->height;
	p[6] = (uint8_t)t->v_blank;
	p[7] = (uint8_t)(t->height >> 8 << 4 | t->v_blank >> 8);
	p[8] = RB_H_FRONT;
	p[9] = RB_H_SYNC;
	p[10] = (uint8_t)(RB_V_FRONT << 4 | t->v_sync);
	p[11] = 0; /* the high bits of the four */
	p[12] = (uint8_t)mm_w;
	p[13] = (uint8_t)mm_h;
	p[14] = (uint8_t)(mm_w >> 8 << 4 | mm_h >> 8);
	p[17] = 0x1a; /* separate syncs, horizontal positive, vertical negative: what reduced blanking has */
}

static void put_text(uint8_t *p, uint8_t tag, const char *text)
{
	size_t i = 5;

	p[3] = tag;
	for (; *text; text++)
		p[i++] = (uint8_t)*text;
	p[i++] = '\n';
	while (i < DESCRIPTOR)
		p[i++] = ' ';
}

static void put_range(uint8_t *p)
{
	p[3] = 0xfd;
	p[4] = 0x0a;  /* 255 is added to both maximal rates */
	p[5] = 50;    /* Hz */
	p[6] = 125;
	p[7] = 30;    /* kHz */
	p[8] = 255;
	p[9] = 255;   /* 2550 MHz */
	p[10] = 0x01; /* nothing but the limits */
	p[11] = '\n';
	memset(p + 12, ' ', 6);
}

static void put_checksum(uint8_t *block, size_t n)
{
	uint8_t sum = 0;

	for (size_t i = 0; i + 1 < n; i++)
		sum = (uint8_t)(sum + block[i]);
	block[n - 1] = (uint8_t)-sum;
}

/* A second one for the standard timings: all of 60 Hz, aspect 0: 16:10, 1: 4:3, 2: 5:4, 3: 16:9. */
static void put_standard(uint8_t *p)
{
	static const struct {
		uint16_t width;
		uint8_t aspect;
	} mode[8] = { { 1280, 0 }, { 1280, 3 }, { 1280, 2 }, { 1440, 0 }, { 1600, 3 }, { 1680, 0 }, { 1920, 3 }, { 1920, 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(mode); i++) {
		p[2 * i] = (uint8_t)(mode[i].width / 8 - 31);
		p[2 * i + 1] = (uint8_t)(mode[i].aspect << 6 | (REFRESH - 60));
	}
}

static void put_display_id(uint8_t *p, const struct timing *t)
{
	uint8_t *d = p + 5 + 3;

	p[0] = 0x70; /* a DisplayID section in an extension block */
	p[1] = 0x13;
	p[2] = BLOCK - 7; /* bytes between the header and the section's checksum */
	p[3] = 0;
	p[4] = 0;
	p[5] = 0x03; /* type I timing, 20 bytes */
	p[7] = 20;
	d[0] = (uint8_t)(t->clock - 1);
	d[1] = (uint8_t)((t->clock - 1) >> 8);
	d[2] = (uint8_t)((t->clock - 1) >> 16);
	d[3] = 0x88; /* preferred, no stereo, aspect not given */
	le16_store(d + 4, (uint16_t)(t->width - 1));
	le16_store(d + 6, RB_H_BLANK - 1);
	le16_store(d + 8, (RB_H_FRONT - 1) | 0x8000); /* positive */
	le16_store(d + 10, RB_H_SYNC - 1);
	le16_store(d + 12, (uint16_t)(t->height - 1));
	le16_store(d + 14, (uint16_t)(t->v_blank - 1));
	le16_store(d + 16, RB_V_FRONT - 1);
	le16_store(d + 18, (uint16_t)(t->v_sync - 1));
	put_checksum(p + 1, BLOCK - 2);
}

size_t gpu_edid(uint32_t width, uint32_t height, uint32_t number, uint8_t ret[GPU_EDID_MAX])
{
	struct timing t = make_timing(width, height);
	bool fits = fits_descriptor(&t);
	struct timing basic = fits ? t : make_timing(1920, 1080);
	uint8_t *e = ret;

	memset(ret, 0, GPU_EDID_MAX);
	memset(e + 1, 0xff, 6);
	e[8] = 0x0c; /* "CFF", five bits a letter */
	e[9] = 0xc6;
	le16_store(e + 10, 1);                  /* product */
	le32_store(e + 12, number + 1);         /* serial number */
	e[16] = 0xff;                           /* a model year follows */
	e[17] = 2026 - 1990;
	e[18] = 1; /* 1.4 */
	e[19] = 4;
	e[20] = 0xa5; /* digital, 8 bits a colour, DisplayPort */
	e[21] = (uint8_t)MIN(MAX(t.mm_width / 10, 1u), 255u); /* cm */
	e[22] = (uint8_t)MIN(MAX(t.mm_height / 10, 1u), 255u);
	e[23] = 120;  /* gamma 2.2 */
	e[24] = 0x06; /* RGB 4:4:4, sRGB, and the preferred mode is the native one */
	memcpy(e + 25, (const uint8_t[]){ 0xee, 0x91, 0xa3, 0x54, 0x4c, 0x99, 0x26, 0x0f, 0x50, 0x54 }, 10); /* sRGB */
	e[35] = 0x21; /* 640x480, 800x600 */
	e[36] = 0x08; /* 1024x768 */
	put_standard(e + 38);
	put_timing(e + 54, &basic);
	put_text(e + 54 + DESCRIPTOR, 0xfc, "Coffer");
	put_range(e + 54 + 2 * DESCRIPTOR);
	e[54 + 3 * DESCRIPTOR + 3] = 0x10; /* nothing more */
	if (!fits) {
		e[126] = 1;
		put_display_id(e + BLOCK, &t);
		put_checksum(e + BLOCK, BLOCK);
	}
	put_checksum(e, BLOCK);
	return fits ? BLOCK : 2 * BLOCK;
}
