/* SPDX-License-Identifier: Apache-2.0 */
/* coffer screen: the actions of screen.h on the command line. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "host/clipboard.h"
#include "host/cmd.h"
#include "host/cmd_screen.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

static const struct opt options[] = {
	OPT_STRING(struct screen_options, output, "output", 'o', "FILE", "write the picture to FILE ('-': stdout), the film to FILE"),
	OPT_STRING(struct screen_options, scale, "scale", 0, "WxH|FACTOR", "shot: make it this large, or so many times as large"),
	OPT_STRING(struct screen_options, region, "region", 0, "X,Y,WxH", "shot, wait: only this part of the screen"),
	OPT_BOOL(struct screen_options, cursor, "cursor", 0, "shot: draw the guest's cursor too"),
	OPT_STRING(struct screen_options, button, "button", 0, "NAME", "click, down, up, drag: left, right, middle, back, forward"),
	OPT_BOOL(struct screen_options, doubled, "double", 0, "click: twice"),
	OPT_BOOL(struct screen_options, tripled, "triple", 0, "click: three times"),
	OPT_STRING(struct screen_options, held, "with", 0, "CHORD", "click: with these keys held, such as ctrl"),
	OPT_STRING(struct screen_options, dy, "dy", 0, "N", "scroll: notches down, up when negative"),
	OPT_STRING(struct screen_options, dx, "dx", 0, "N", "scroll: notches to the right, to the left when negative"),
	OPT_U64(struct screen_options, delay, "delay", 0, "MS", 1, 10000, "type: between characters (10)"),
	OPT_STRING(struct screen_options, paste, "paste", 0, "CHORD", "type: what pastes in that program (ctrl+v; terminals: shift+Insert)"),
	OPT_U64(struct screen_options, settle, "settle", 0, "MS", 1, 60000,
		"how long an action waits for a frame that comes after it (200; 1: hardly)"),
	OPT_U64(struct screen_options, stable, "stable", 0, "MS", 1, 3600000, "wait: until nothing has changed for so long"),
	OPT_BOOL(struct screen_options, change, "change", 0, "wait: until something changes"),
	OPT_STRING(struct screen_options, image, "image", 0, "FILE", "wait: until this PNG is seen; its transparent pixels may be anything"),
	OPT_SECONDS(struct screen_options, timeout, "timeout", 0, "S", "wait: give up after S seconds, with status 124"),
	OPT_SECONDS(struct screen_options, seconds, "seconds", 0, "S", "record: end after S seconds instead of by Ctrl-C (0: by Ctrl-C)"),
	OPT_U64(struct screen_options, fps, "fps", 0, "N", 1, 120, "record: at most N frames a second (30; gif: 15)"),
	OPT_BOOL(struct screen_options, lossless, "lossless", 0, "record: keep every pixel as it is (mkv)"),
	OPT_U64(struct screen_options, screen, "screen", 0, "N", 0, DISPLAY_SCANOUTS_MAX - 1, "the screen, counted from 0 (0)"),
	OPT_BOOL(struct screen_options, json, "json", 0, "print the result as JSON"),
	CMD_OPT_HELP(struct screen_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "screen ID shot [-o FILE] [--scale WxH|FACTOR] [--region X,Y,WxH] [--cursor]\n"
		 "screen ID size | position\n"
		 "screen ID click [X,Y] [--button NAME] [--double] [--with CHORD]\n"
		 "screen ID move X,Y | drag X,Y X,Y | down | up\n"
		 "screen ID scroll [X,Y] [--dy N] [--dx N]\n"
		 "screen ID type TEXT|- | key CHORD... | hold CHORD MS\n"
		 "screen ID wait --stable MS|--change|--image FILE [--region X,Y,WxH] [--timeout S]\n"
		 "screen ID record -o FILE.mkv|FILE.gif [--seconds S]",
	.summary = "look at a VM's screen, click and type on it",
	.text = "X,Y are pixels of the guest's screen, counted from 0,0 at the top left. A shot taken after an\n"
		"action returned shows a frame that was drawn after it, if one came within --settle; 'wait --stable'\n"
		"waits until the guest has drawn all there is.\n"
		"CHORD is names as xdotool has them: ctrl+shift+t, Return, F5, Page_Down, super. The guest's layout\n"
		"has to be us; what it lacks is pasted (--paste) from the clipboard, which needs a desktop image.\n"
		"Names that agents use do the same: screenshot, zoom, left_click, right_click, middle_click,\n"
		"double_click, triple_click, mouse_move, left_click_drag, left_mouse_down, left_mouse_up,\n"
		"hold_key, cursor_position.",
	.options = options,
	.examples = "coffer screen desk shot -o now.png --scale 0.5\n"
		    "coffer screen desk click 640,400 --double\n"
		    "coffer screen desk type 'Grüße, 世界' --paste shift+Insert\n"
		    "coffer screen desk key ctrl+l Return\n"
		    "coffer screen desk wait --stable 500 --timeout 10\n"
		    "coffer screen desk record -o work.mkv --seconds 30",
};

struct call {
	const char *action;
	struct screen *s;
	const struct screen_options *o;
	int argc; /* after the action */
	char **argv;
	json_t *result;
	struct err err;
};

static int parse_point(struct call *c, const char *text, struct screen_point *ret)
{
	const char *at = text;
	struct screen_point p = { 0, 0 };

	if (!picture_parse_number(&at, &p.x) || *at++ != ',' || !picture_parse_number(&at, &p.y) || *at)
		return err_set(&c->err, -EINVAL, "'%.60s' is no place: X,Y in pixels, such as 640,400", text);
	*ret = p;
	return 0;
}

static int parse_region(struct call *c, struct picture_rect *ret)
{
	const char *at = c->o->region;
	struct picture_rect p = { 0, 0, 0, 0 };

	if (at && (!picture_parse_number(&at, &p.x) || *at++ != ',' || !picture_parse_number(&at, &p.y) || *at++ != ',' ||
		   !picture_parse_number(&at, &p.width) || *at++ != 'x' || !picture_parse_number(&at, &p.height) || *at || !p.width ||
		   !p.height))
		return err_set(&c->err, -EINVAL, "--region '%.60s': X,Y,WIDTHxHEIGHT is expected, such as 0,0,640x400", c->o->region);
	*ret = p;
	return 0;
}

static int parse_notches(struct call *c, const char *name, const char *text, int32_t *ret)
{
	char *end = NULL;
	long v = text ? strtol(text, &end, 10) : 0;

	if (text && (end == text || *end || v < -SCREEN_SCROLL_MAX || v > SCREEN_SCROLL_MAX))
		return err_set(&c->err, -EINVAL, "--%s '%.60s': a number from %d to %d is expected", name, text, -SCREEN_SCROLL_MAX,
			       SCREEN_SCROLL_MAX);
	*ret = (int32_t)v;
	return 0;
}

static int parse_button(struct call *c, enum screen_button *ret)
{
	*ret = SCREEN_LEFT;
	if (c->o->button && !screen_button_find(c->o->button, ret))
		return err_set(&c->err, -EINVAL, "--button '%.60s' is none of left, right, middle, back, forward", c->o->button);
	return 0;
}

static void add_number(struct call *c, const char *name, int64_t v)
{
	json_object_set_new(c->result, name, json_integer(v));
}

/* Where the picture goes: 1 stands for stdout, which stays open. */
static int open_output(struct call *c, bool *ret_own)
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

static int do_shot(struct call *c)
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

static int do_size(struct call *c)
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

static int do_position(struct call *c)
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

static int do_click(struct call *c)
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

static int do_move(struct call *c)
{
	struct screen_point to = { 0, 0 };
	int r = parse_point(c, c->argv[0], &to);

	return r < 0 ? r : screen_mouse_move(c->s, to, &c->err);
}

static int do_button(struct call *c)
{
	enum screen_button button = SCREEN_LEFT;
	int r = parse_button(c, &button);

	return r < 0 ? r : screen_mouse_button(c->s, button, strstr(c->action, "down") != NULL, &c->err);
}

static int do_drag(struct call *c)
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

static int do_scroll(struct call *c)
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

static int do_key(struct call *c)
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

static int do_hold(struct call *c)
{
	struct screen_chord chord = { .n = 0 };
	uint64_t ms = 0;
	int r = screen_chord_parse(c->argv[0], &chord, &c->err);

	if (r == 0 && (opt_parse_u64(c->argv[1], &ms) < 0 || ms > SCREEN_HOLD_MS_MAX))
		r = err_set(&c->err, -EINVAL, "hold: '%.60s' is no time: milliseconds up to %d are expected", c->argv[1],
			    SCREEN_HOLD_MS_MAX);
	return r < 0 ? r : screen_hold_key(c->s, &chord, (uint32_t)ms, &c->err);
}

static int do_type(struct call *c)
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
	return screen_type(c->s, text, (size_t)n, &c->err);
}

static int read_image(struct call *c, struct picture *ret)
{
	_cleanup_close_ int fd = open(c->o->image, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? err_errno(&c->err, -errno, "'%.200s'", c->o->image) : picture_read_png(fd, ret, &c->err);

	if (r < 0 && fd >= 0)
		err_prefix(&c->err, "'%.200s': ", c->o->image);
	return r;
}

static int do_wait(struct call *c)
{
	const struct screen_options *o = c->o;
	struct screen_wait w = { .stable_ms = (uint32_t)o->stable, .timeout_ms = (uint64_t)(o->timeout * 1000) };
	const uint64_t start = loop_now_ns();
	struct picture image = { 0 };
	struct screen_point at = { 0, 0 };
	int r = parse_region(c, &w.region);

	if (r == 0 && (o->stable != 0) + o->change + (o->image != NULL) != 1)
		r = err_set(&c->err, -EINVAL, "wait: just one of --stable MS, --change and --image FILE is needed");
	if (r == 0 && o->image)
		r = read_image(c, &image);
	w.kind = o->image ? SCREEN_WAIT_IMAGE : o->change ? SCREEN_WAIT_CHANGE : SCREEN_WAIT_STABLE;
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

static const struct action {
	const char *names; /* between blanks */
	int min, max;      /* arguments */
	const char *needs;
	int (*run)(struct call *c); /* NULL: record */
	bool held; /* something is pressed in between: a signal first lets go of it */
} actions[] = {
	{ " shot screenshot zoom ", 0, 0, "no argument; --region X,Y,WxH says what, -o FILE where to", do_shot, false },
	{ " size ", 0, 0, "no argument", do_size, false },
	{ " position cursor_position ", 0, 0, "no argument", do_position, false },
	{ " click left_click right_click middle_click double_click triple_click ", 0, 1, "one place, X,Y", do_click, true },
	{ " move mouse_move ", 1, 1, "a place, X,Y", do_move, false },
	{ " drag left_click_drag ", 2, 2, "two places, X,Y X,Y", do_drag, true },
	{ " down up left_mouse_down left_mouse_up ", 0, 0, "no argument", do_button, false },
	{ " scroll ", 0, 1, "one place, X,Y", do_scroll, false },
	{ " type ", 1, 1, "one text (in quotes), or - for stdin", do_type, true },
	{ " key ", 1, 64, "at least one chord, such as ctrl+l", do_key, true },
	{ " hold hold_key ", 2, 2, "a chord and milliseconds", do_hold, true },
	{ " wait ", 0, 0, "no argument, only options", do_wait, false },
	{ " record ", 0, 0, "no argument; the file is -o FILE", NULL, false },
};

static const struct action *find_action(const char *name)
{
	char word[64];

	if (*name && !strchr(name, ' ') && snprintf(word, sizeof(word), " %s ", name) < (int)sizeof(word))
		for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
			if (strstr(actions[i].names, word))
				return &actions[i];
	return NULL;
}

static int set_clipboard(void *arg, const char *text, size_t n, struct err *err)
{
	const struct clipboard_guest g = { .connect = clipboard_connect_vm, .arg = arg };

	return clipboard_set(&g, text, n, err);
}

static int status_of(struct call *c, int r)
{
	char *text;

	if (r < 0) {
		err_prefix(&c->err, "screen: ");
		cmd_fail(&c->err);
		return r == -ETIMEDOUT && c->o->timeout > 0 ? CMD_EXIT_TIMEOUT : r == -ECANCELED ? CMD_EXIT_SIGNAL + SIGINT : CMD_EXIT_FAILED;
	}
	if (!c->o->json)
		return cmd_finish_stdout(0);
	text = json_dumps(c->result, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	if (!text)
		return cmd_failf("screen: out of memory");
	puts(text);
	free(text);
	return cmd_finish_stdout(0);
}

static int perform(const struct action *a, struct call *c, struct vm_handle *vm)
{
	_cleanup_close_ int signal_fd = -1;
	struct screen s;
	sigset_t set;
	int r = screen_open(vm->dir.fd, (uint32_t)c->o->screen, &s, &c->err), status;

	if (r == 0) {
		c->s = &s;
		s.settle_ms = c->o->settle ? (uint32_t)c->o->settle : SCREEN_SETTLE_MS;
		s.type_ms = c->o->delay ? (uint32_t)c->o->delay : SCREEN_TYPE_MS;
		s.clipboard_set = set_clipboard;
		s.clipboard_arg = vm;
		if (a->held) {
			sigemptyset(&set);
			sigaddset(&set, SIGINT);
			sigaddset(&set, SIGTERM);
			sigaddset(&set, SIGHUP);
			sigprocmask(SIG_BLOCK, &set, NULL);
			signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
			s.interrupt_fd = signal_fd;
		}
		r = a->run(c);
		screen_close(&s);
	}
	status = status_of(c, r);
	return status;
}

int cmd_screen(int argc, char **argv)
{
	struct screen_options o = { 0 };
	struct call c = { .o = &o, .err = ERR_INIT };
	const struct action *a;
	struct vm_handle vm;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first < 2)
		return cmd_failf("screen: the name of a VM and an action are needed, such as 'coffer screen desk shot -o now.png'");
	c.action = argv[first + 1];
	c.argc = argc - first - 2;
	c.argv = argv + first + 2;
	a = find_action(c.action);
	if (!a)
		return cmd_failf("screen: '%.60s' is no action: shot, size, click, move, drag, scroll, type, key, hold, wait, record, ...",
				 c.action);
	if (c.argc < a->min || c.argc > a->max)
		return cmd_failf("screen: %s takes %s", c.action, a->needs);
	if (vm_open(argv[first], &vm, &c.err) < 0)
		return cmd_fail(&c.err);
	c.result = json_object();
	if (c.result && a->run)
		status = perform(a, &c, &vm);
	else
		status = c.result ? cmd_screen_record(&vm, &o) : cmd_failf("screen: out of memory");
	json_decref(c.result);
	vm_close(&vm);
	return status;
}
