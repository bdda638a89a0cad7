/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer screen: the actions of screen.h on the command line.
 *
 * One table says which names an action has, which arguments and which options it takes; what it does not take is refused before
 * anything is done. cmd_screen_actions.c does the rest.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/cmd_screen.h"
#include "host/control_client.h"
#include "host/signals.h"
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
	OPT_BOOL(struct screen_options, ready, "ready", 0, "wait: until the guest's desktop is there; then for what else is asked for"),
	OPT_BOOL(struct screen_options, change, "change", 0, "wait: until something changes"),
	OPT_STRING(struct screen_options, image, "image", 0, "FILE", "wait: until this PNG is seen; its transparent pixels may be anything"),
	OPT_SECONDS(struct screen_options, timeout, "timeout", 0, "S", "wait: give up after S seconds, with status 124 (0: never)"),
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
		 "screen ID wait --ready|--stable MS|--change|--image FILE [--region X,Y,WxH] [--timeout S]\n"
		 "screen ID record -o FILE.mkv|FILE.gif [--seconds S]",
	.summary = "look at a VM's screen, click and type on it",
	.text = "X,Y are pixels of the guest's screen, counted from 0,0 at the top left. A shot taken after an\n"
		"action returned shows a frame that was drawn after it, if one came within --settle; 'wait --stable'\n"
		"waits until the guest has drawn all there is. A VM runs before its desktop is drawn: 'wait --ready'.\n"
		"CHORD is names as xdotool has them: ctrl+shift+t, Return, F5, Page_Down, super. The guest's layout\n"
		"has to be us; what it lacks is pasted (--paste) from the clipboard, which needs a desktop image.\n"
		"Names that agents use do the same: screenshot, zoom, left_click, right_click, middle_click,\n"
		"double_click, triple_click, mouse_move, left_click_drag, left_mouse_down, left_mouse_up,\n"
		"hold_key, cursor_position.",
	.options = options,
	.examples = "coffer screen desk wait --ready --timeout 60\n"
		    "coffer screen desk shot -o now.png --scale 0.5\n"
		    "coffer screen desk click 640,400 --double\n"
		    "coffer screen desk type 'Grüße, 世界' --paste shift+Insert\n"
		    "coffer screen desk key ctrl+l Return\n"
		    "coffer screen desk wait --stable 500 --timeout 10\n"
		    "coffer screen desk record -o work.mkv --seconds 30",
};

static const struct action {
	const char *names; /* between blanks */
	int min, max;      /* arguments */
	const char *needs;
	const char *takes;                 /* options between blanks, beside those of all actions */
	int (*run)(struct screen_call *c); /* NULL: record */
	bool held;                         /* something is pressed in between: a signal first lets go of it */
} actions[] = {
	{ " shot screenshot zoom ", 0, 0, "no argument; --region X,Y,WxH says what, -o FILE where to", " output scale region cursor ",
	  cmd_screen_do_shot, false },
	{ " size ", 0, 0, "no argument", "", cmd_screen_do_size, false },
	{ " position cursor_position ", 0, 0, "no argument", "", cmd_screen_do_position, false },
	{ " click ", 0, 1, "one place, X,Y", " button double triple with settle ", cmd_screen_do_click, true },
	{ " left_click right_click middle_click double_click triple_click ", 0, 1, "one place, X,Y", " with settle ", cmd_screen_do_click, true },
	{ " move mouse_move ", 1, 1, "a place, X,Y", " settle ", cmd_screen_do_move, false },
	{ " drag ", 2, 2, "two places, X,Y X,Y", " button settle ", cmd_screen_do_drag, true },
	{ " left_click_drag ", 2, 2, "two places, X,Y X,Y", " settle ", cmd_screen_do_drag, true },
	{ " down up ", 0, 0, "no argument", " button settle ", cmd_screen_do_button, false },
	{ " left_mouse_down left_mouse_up ", 0, 0, "no argument", " settle ", cmd_screen_do_button, false },
	{ " scroll ", 0, 1, "one place, X,Y; how far is --dy N or --dx N", " dx dy settle ", cmd_screen_do_scroll, false },
	{ " type ", 1, 1, "one text (in quotes), or - for stdin", " delay paste settle ", cmd_screen_do_type, true },
	{ " key ", 1, 64, "at least one chord, such as ctrl+l", " settle ", cmd_screen_do_key, true },
	{ " hold hold_key ", 2, 2, "a chord and milliseconds", " settle ", cmd_screen_do_hold, true },
	{ " wait ", 0, 0, "no argument, only options", " ready stable change image region timeout ", cmd_screen_do_wait, false },
	{ " record ", 0, 0, "no argument; the file is -o FILE", " output seconds fps lossless ", NULL, false },
};

static const char all_take[] = " screen json help ";

/* Is it one of the words, which stand between blanks? */
static bool has_word(const char *words, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = words; (at = strchr(at, ' ')) != NULL && at[1]; at++)
		if (strncmp(at + 1, name, n) == 0 && at[1 + n] == ' ')
			return n > 0;
	return false;
}

static const struct action *find_action(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (has_word(actions[i].names, name))
			return &actions[i];
	return NULL;
}

/* The actions that take an option, by their first names. */
static const char *who_takes(const char *option, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
		const char *name = actions[i].names + 1;

		if (has_word(actions[i].takes, option) && n < size)
			n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n ? ", " : "", (int)strcspn(name, " "), name);
	}
	return buf;
}

static int refuse_other_options(const struct action *a, const char *name, uint64_t given, struct err *err)
{
	char who[256];

	for (size_t i = 0; options[i].type != OPT_TYPE_END; i++)
		if (given >> i & 1 && !has_word(all_take, options[i].name) && !has_word(a->takes, options[i].name))
			return err_set(err, -EINVAL, "screen: %s does not take --%s, which is for %s", name, options[i].name,
				       who_takes(options[i].name, who, sizeof(who)));
	return 0;
}

static int status_of(struct screen_call *c, int r)
{
	char *text;

	if (r < 0) {
		err_prefix(&c->err, "screen: ");
		cmd_fail(&c->err);
		return r == -ETIMEDOUT && c->o->timeout > 0 ? CMD_EXIT_TIMEOUT : r == -ECANCELED ? CMD_EXIT_SIGNAL + c->signal : CMD_EXIT_FAILED;
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

static int perform(const struct action *a, struct screen_call *c)
{
	sigset_t old;
	int signal_fd = -1;
	struct screen s;
	/* Right after the start of a VM, maybe by another process. */
	const uint64_t end = c->o->timeout > 0 ? control_deadline((uint64_t)(c->o->timeout * 1000)) : 0;
	int r = c->o->ready ? vm_wait_started(c->vm, -1, end, &c->err) : 0;

	if (r == 0)
		r = screen_open(c->vm->dir.fd, (uint32_t)c->o->screen, &s, &c->err);
	if (r == 0) {
		c->s = &s;
		s.settle_ms = c->o->settle ? (uint32_t)c->o->settle : SCREEN_SETTLE_MS;
		s.type_ms = c->o->delay ? (uint32_t)c->o->delay : SCREEN_TYPE_MS;
		if (a->held)
			signal_fd = signals_open_ends(&old, &c->err);
		s.interrupt_fd = signal_fd;
		r = a->held && signal_fd < 0 ? signal_fd : a->run(c);
		if (r == -ECANCELED)
			c->signal = signals_next(signal_fd);
		signals_close(signal_fd, &old);
		screen_close(&s);
	}
	if (r == -ECONNRESET || r == -EPIPE)
		vm_explain_end(c->vm, NULL, &c->err);
	return status_of(c, r);
}

int cmd_screen(int argc, char **argv)
{
	struct opt_line line = { .numbers = true };
	struct screen_options o = { 0 };
	struct screen_call c = { .o = &o, .err = ERR_INIT };
	const struct action *a;
	struct vm_handle vm;
	int status, first = cmd_parse_line(&help, &o, argc, argv, &line, &status);

	if (first < 0)
		return status;
	if (argc - first < 2)
		return cmd_failf("screen: the name of a VM and an action are needed, such as 'coffer screen desk shot -o now.png'");
	c.action = argv[first + 1];
	c.argc = argc - first - 2;
	c.argv = argv + first + 2;
	a = find_action(c.action);
	if (!a)
		return cmd_failf("screen: '%.60s' is no action: shot, size, position, click, move, drag, down, up, scroll, type, key, hold, wait, record",
				 c.action);
	if (c.argc < a->min || c.argc > a->max)
		return cmd_failf("screen: %s takes %s", c.action, a->needs);
	if (refuse_other_options(a, c.action, line.given, &c.err) < 0 || vm_open(argv[first], &vm, &c.err) < 0)
		return cmd_fail(&c.err);
	c.vm = &vm;
	c.result = json_object();
	if (!c.result)
		status = cmd_failf("screen: out of memory");
	else
		status = a->run ? perform(a, &c) : cmd_screen_record(&c);
	json_decref(c.result);
	vm_close(&vm);
	return status;
}
