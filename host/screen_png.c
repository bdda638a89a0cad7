/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures as PNG files, by libpng: see screen_picture.h. A file that is read is the user's own; its size is
 * checked before anything is allocated, and libpng's errors come back as texts.
 */
#include <errno.h>
#include <fcntl.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/screen_picture.h"
#include "lib/fd.h"
#include "lib/util.h"

static FILE *stream(int fd, const char *mode)
{
	_cleanup_close_ int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	FILE *f = copy < 0 ? NULL : fdopen(copy, mode);

	if (f)
		(void)TAKE_FD(copy);
	return f;
}

/* What libpng would print. errno is the stream's when a write has failed. */
static void keep_error(png_structp png, png_const_charp text)
{
	*(int *)png_get_error_ptr(png) = errno > 0 ? -errno : -EIO;
	(void)text;
	longjmp(png_jmpbuf(png), 1);
}

static void no_warning(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

int picture_write_png(const struct picture *p, int fd, struct err *err)
{
	int failed = -EIO;
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &failed, keep_error, no_warning);
	png_infop info = png ? png_create_info_struct(png) : NULL;
	FILE *f = info ? stream(fd, "wb") : NULL;
	volatile int r = 0; /* kept over longjmp */

	if (!f) {
		png_destroy_write_struct(&png, &info);
		return err_errno(err, -ENOMEM, "PNG");
	}
	if (setjmp(png_jmpbuf(png))) {
		r = failed;
	} else {
		errno = 0;
		png_init_io(png, f);
		png_set_IHDR(png, info, p->width, p->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
			     PNG_FILTER_TYPE_DEFAULT);
		/* Screens are flat: the fastest level with one filter is a third of the default's time and little larger. */
		png_set_compression_level(png, 2);
		png_set_filter(png, 0, PNG_FILTER_SUB | PNG_FILTER_UP | PNG_FILTER_NONE);
		png_write_info(png, info);
		png_set_filler(png, 0, PNG_FILLER_AFTER);
		for (uint32_t y = 0; y < p->height; y++)
			png_write_row(png, p->rgba + (size_t)y * p->width * 4);
		png_write_end(png, info);
	}
	png_destroy_write_struct(&png, &info);
	if (fclose(f) != 0 && r == 0)
		r = -errno;
	return r < 0 ? err_errno(err, r, "write the PNG") : 0;
}

int picture_read_png(int fd, uint32_t max_width, uint32_t max_height, struct picture *ret, struct err *err)
{
	png_image image = { .version = PNG_IMAGE_VERSION };
	FILE *f = stream(fd, "rb");
	struct picture p = { 0 };
	int ok;

	if (!f)
		return err_errno(err, -ENOMEM, "PNG");
	ok = png_image_begin_read_from_stdio(&image, f);
	if (ok && (image.width > max_width || image.height > max_height)) {
		err_set(err, -EFBIG, "the image has %ux%u pixels, at most %ux%u can be there", image.width, image.height, max_width, max_height);
		png_image_free(&image);
		fclose(f);
		return -EFBIG;
	}
	image.format = PNG_FORMAT_RGBA;
	if (ok)
		p = (struct picture){ image.width, image.height, malloc(PNG_IMAGE_SIZE(image)) };
	if (ok && p.rgba)
		ok = png_image_finish_read(&image, NULL, p.rgba, 0, NULL);
	fclose(f);
	if (!ok || !p.rgba) {
		err_set(err, ok ? -ENOMEM : -EINVAL, "no PNG that can be read: %.60s", ok ? "out of memory" : image.message);
		png_image_free(&image);
		picture_free(&p);
		return ok ? -ENOMEM : -EINVAL;
	}
	*ret = p;
	return 0;
}
