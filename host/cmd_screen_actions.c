/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer screen: from words and options to the functions of screen.h, one function for each action. Which words and options an action
 * takes is in cmd_screen.c's table, so nothing is left out silently here.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/clipboard.h"
#include "host/cmd_screen.h"
#include "host/desktop.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/opt.h"
#include "lib/util.h"

static int parse_point(struct screen_call *c, const char *text, struct screen_point *ret)
{
	const char *at = text;
	struct screen_point p = { 0, 0 };

	if (!picture_parse_number(&at, &p.x) || *at++ != ',' || !picture_parse_number(&at, &p.y) || *at)
		return err_set(&c->err, -EINVAL, "%s: '%.60s' is no place: X,Y in pixels from 0,0 on are expected, such as 640,400", c->action,
			       text);
	*ret = p;
	return 0;
}

static int parse_region(struct screen_call *c, struct picture_rect *ret)
{
	const char *at = c->o->region;
	struct picture_rect p = { 0, 0, 0, 0 };

	if (at && (!picture_parse_number(&at, &p.x) || *at++ != ',' || !picture_parse_number(&at, &p.y) || *at++ != ',' ||
		   !picture_parse_number(&at, &p.width) || *at++ != 'x' || !picture_parse_number(&at, &p.height) || *at))
		return err_set(&c->err, -EINVAL, "--region '%.60s': X,Y,WIDTHxHEIGHT is expected, such as 0,0,640x400", c->o->region);
	if (at && (!p.width || !p.height))
		return err_set(&c->err, -EINVAL, "--region '%.60s': a region has at least one pixel, such as 0,0,1x1", c->o->region);
	*ret = p;
	return 0;
}

static int parse_notches(struct screen_call *c, const char *name, const char *text, int32_t *ret)
{
	char *end = NULL;
	long v = text ? strtol(text, &end, 10) : 0;

	if (text && (end == text || *end || v < -SCREEN_SCROLL_MAX || v > SCREEN_SCROLL_MAX))
		return err_set(&c->err, -EINVAL, "--%s '%.60s': a number from %d to %d is expected", name, text, -SCREEN_SCROLL_MAX,
			       SCREEN_SCROLL_MAX);
	*ret = (int32_t)v;
	return 0;
}

static int parse_button(struct screen_call *c, enum screen_button *ret)
{
	*ret = SCREEN_LEFT;
	if (c->o->button && !screen_button_find(c->o->button, ret))
		return err_set(&c->err, -EINVAL, "--button '%.60s' is none of left, right, middle, back, forward", c->o->button);
	return 0;
}

static void add_number(struct screen_call *c, const char *name, int64_t v)
{
	json_object_set_new(c->result, name, json_integer(v));
}

/* Where the picture goes: 1 stands for stdout, which stays open. */
static int open_output(struct screen_call *c, bool *ret_own)
{
	const char *path = c->o->output;
	int fd;

	*ret_own = false;
	if (!path || strcmp(path, "-") == 0) {
		if (isatty(STDOUT_FILENO))
			return err_set(&c->err, -EINVAL, "a terminal shows no PNG: use -o FILE, or a pipe");
		if (c->o->json)
			return err_set(&c->err, -EINVAL, "--json needs -o FILE, or both would go to stdout");
		return STDOUT_FILENO;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	*ret_own = fd >= 0;
	return fd < 0 ? err_errno(&c->err, -errno, "'%.200s'", path) : fd;
}

int cmd_screen_do_shot(struct screen_call *c)
{
	struct screen_shot how = { .scale = c->o->scale, .cursor = c->o->cursor };
	struct picture p = { 0 };
	bool own;
	int r = parse_region(c, &how.region), fd;

	if (r == 0)
		r = screen_screenshot(c->s, &how, &p, &c->err);
	if (r < 0)
		return r;
	fd = open_output(c, &own);
	r = fd < 0 ? fd : picture_write_png(&p, fd, &c->err);
	if (r < 0 && fd >= 0)
		err_prefix(&c->err, "'%.200s': ", own ? c->o->output : "stdout");
	if (own && close(fd) < 0 && r == 0)
		r = err_errno(&c->err, -errno, "'%.200s'", c->o->output);
	add_number(c, "width", p.width);
	add_number(c, "height", p.height);
	if (c->o->output)
		json_object_set_new(c->result, "file", json_string(c->o->output));
	picture_free(&p);
	return r;
}

int cmd_screen_do_size(struct screen_call *c)
{
	uint32_t w = 0, h = 0;
	int r = screen_size(c->s, &w, &h, &c->err);

	if (r < 0)
		return r;
	add_number(c, "width", w);
	add_number(c, "height", h);
	if (!c->o->json)
		printf("%ux%u\n", w, h);
	return 0;
}

int cmd_screen_do_position(struct screen_call *c)
{
	int32_t x = 0, y = 0;
	int r = screen_cursor_position(c->s, &x, &y, &c->err);

	if (r < 0)
		return r;
	add_number(c, "x", x);
	add_number(c, "y", y);
	if (!c->o->json)
		printf("%d,%d\n", x, y);
	return 0;
}

int cmd_screen_do_click(struct screen_call *c)
{
	uint32_t count = c->o->tripled ? 3 : c->o->doubled ? 2 : 1;
	enum screen_button button = SCREEN_LEFT, named;
	struct screen_chord held = { .n = 0 };
	struct screen_point at = { 0, 0 };
	int r = parse_button(c, &button);

	if (r == 0 && c->o->tripled && c->o->doubled)
		r = err_set(&c->err, -EINVAL, "click: --double or --triple, not both");
	if (screen_click_find(c->action, &named, &count))
		button = named;
	if (r == 0 && c->argc)
		r = parse_point(c, c->argv[0], &at);
	if (r == 0 && c->o->held)
		r = screen_chord_parse(c->o->held, &held, &c->err);
	if (r < 0)
		return r;
	return screen_click(c->s, button, count, c->argc ? &at : NULL, c->o->held ? &held : NULL, &c->err);
}

int cmd_screen_do_move(struct screen_call *c)
{
	struct screen_point to = { 0, 0 };
	int r = parse_point(c, c->argv[0], &to);

	return r < 0 ? r : screen_mouse_move(c->s, to, &c->err);
}

int cmd_screen_do_button(struct screen_call *c)
{
	enum screen_button button = SCREEN_LEFT;
	int r = parse_button(c, &button);

	return r < 0 ? r : screen_mouse_button(c->s, button, strstr(c->action, "down") != NULL, &c->err);
}

int cmd_screen_do_drag(struct screen_call *c)
{
	enum screen_button button = SCREEN_LEFT;
	struct screen_point from = { 0, 0 }, to = { 0, 0 };
	int r = parse_button(c, &button);

	if (r == 0)
		r = parse_point(c, c->argv[0], &from);
	if (r == 0)
		r = parse_point(c, c->argv[1], &to);
	return r < 0 ? r : screen_drag(c->s, button, from, to, &c->err);
}

int cmd_screen_do_scroll(struct screen_call *c)
{
	struct screen_point at = { 0, 0 };
	int32_t dx = 0, dy = 0;
	int r = c->argc ? parse_point(c, c->argv[0], &at) : 0;

	if (r == 0)
		r = parse_notches(c, "dx", c->o->dx, &dx);
	if (r == 0)
		r = parse_notches(c, "dy", c->o->dy, &dy);
	if (r == 0 && dx == 0 && dy == 0)
		r = err_set(&c->err, -EINVAL, "scroll: --dy N or --dx N is needed");
	return r < 0 ? r : screen_scroll(c->s, c->argc ? &at : NULL, dx, dy, &c->err);
}

int cmd_screen_do_key(struct screen_call *c)
{
	struct screen_chord chord[64];
	int r = 0;

	if (c->argc > (int)ARRAY_SIZE(chord))
		return err_set(&c->err, -EINVAL, "key: at most %zu chords", ARRAY_SIZE(chord));
	for (int i = 0; i < c->argc && r == 0; i++)
		r = screen_chord_parse(c->argv[i], &chord[i], &c->err);
	for (int i = 0; i < c->argc && r == 0; i++)
		r = screen_key(c->s, &chord[i], &c->err);
	return r;
}

int cmd_screen_do_hold(struct screen_call *c)
{
	struct screen_chord chord = { .n = 0 };
	uint64_t ms = 0;
	int r = screen_chord_parse(c->argv[0], &chord, &c->err);

	if (r == 0 && (opt_parse_u64(c->argv[1], &ms) < 0 || ms > SCREEN_HOLD_MS_MAX))
		r = err_set(&c->err, -EINVAL, "%s: '%.60s' is no time: milliseconds from 0 to %d are expected, such as 500", c->action,
			    c->argv[1], SCREEN_HOLD_MS_MAX);
	return r < 0 ? r : screen_hold_key(c->s, &chord, (uint32_t)ms, &c->err);
}

/* A signal ends it too. */
static int connect_agent(void *arg, struct agent_conn **ret, struct err *err)
{
	struct screen_call *c = arg;

	return vm_connect_agent(c->vm, c->s->interrupt_fd, ret, err);
}

static int set_clipboard(void *arg, const char *text, size_t n, struct err *err)
{
	const struct clipboard_guest g = { .connect = connect_agent, .arg = arg };

	return clipboard_set(&g, text, n, err);
}

int cmd_screen_do_type(struct screen_call *c)
{
	_cleanup_free_ char *input = NULL;
	const char *text = c->argv[0];
	ssize_t n = (ssize_t)strlen(text);
	int r = c->o->paste ? screen_chord_parse(c->o->paste, &c->s->paste, &c->err) : 0;

	if (r < 0)
		return r;
	if (strcmp(text, "-") == 0) {
		input = malloc(SCREEN_TYPE_MAX + 1);
		n = input ? fd_read_full(STDIN_FILENO, input, SCREEN_TYPE_MAX + 1) : -ENOMEM;
		text = input;
		if (n < 0)
			return err_errno(&c->err, (int)n, "stdin");
	}
	c->s->clipboard_set = set_clipboard;
	c->s->clipboard_arg = c;
	return screen_type(c->s, text, (size_t)n, &c->err);
}

static int read_image(struct screen_call *c, struct picture *ret)
{
	_cleanup_close_ int fd = open(c->o->image, O_RDONLY | O_CLOEXEC);
	uint32_t width = DISPLAY_SIZE_MAX, height = DISPLAY_SIZE_MAX;
	int r = fd < 0 ? err_errno(&c->err, -errno, "'%.200s'", c->o->image) : 0;

	if (r < 0)
		return r;
	/* One that is larger than what is shown now would be waited for in vain, and one of that size takes memory. */
	screen_size(c->s, &width, &height, NULL);
	r = picture_read_png(fd, width, height, ret, &c->err);
	if (r < 0)
		err_prefix(&c->err, "'%.200s': ", c->o->image);
	return r;
}

static int connect_agent_until(void *arg, struct agent_conn **ret, struct err *err)
{
	const struct screen_call *c = arg;

	return vm_connect_agent_until(c->vm, -1, c->deadline, ret, err);
}

static int wait_desktop(void *arg, unsigned long long deadline_ms, struct err *err)
{
	struct screen_call *c = arg;
	const struct desktop_guest g = { .connect = connect_agent_until, .arg = c };
	int r;

	c->deadline = deadline_ms;
	r = desktop_wait_ready(&g, deadline_ms, err);
	if (r < 0 && r != -ETIMEDOUT && r != -ENOENT)
		vm_explain_end(c->vm, NULL, err);
	return r;
}

int cmd_screen_do_wait(struct screen_call *c)
{
	const struct screen_options *o = c->o;
	struct screen_wait w = { .stable_ms = (uint32_t)o->stable, .timeout_ms = (uint64_t)(o->timeout * 1000) };
	const uint64_t start = loop_now_ns();
	struct picture image = { 0 };
	struct screen_point at = { 0, 0 };
	int r = parse_region(c, &w.region), conditions = (o->stable != 0) + o->change + (o->image != NULL);

	if (r == 0 && (conditions > 1 || (conditions == 0 && !o->ready)))
		r = err_set(&c->err, -EINVAL, "wait: just one of --stable MS, --change and --image FILE is needed, or --ready, alone or before it");
	if (r == 0 && o->image)
		r = read_image(c, &image);
	w.ready = o->ready;
	w.kind = o->image ? SCREEN_WAIT_IMAGE : o->change ? SCREEN_WAIT_CHANGE : o->stable ? SCREEN_WAIT_STABLE : SCREEN_WAIT_DRAWN;
	c->s->desktop_ready = wait_desktop;
	c->s->desktop_arg = c;
	w.image = &image;
	if (r == 0)
		r = screen_wait(c->s, &w, &at, &c->err);
	picture_free(&image);
	if (r < 0)
		return r;
	add_number(c, "ms", (int64_t)((loop_now_ns() - start) / 1000000));
	if (o->image) {
		add_number(c, "x", at.x);
		add_number(c, "y", at.y);
		if (!o->json)
			printf("%u,%u\n", at.x, at.y);
	}
	return 0;
}
