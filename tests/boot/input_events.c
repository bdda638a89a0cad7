/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in the guest of input-events: reads all of /dev/input that is Coffer's, as a program would, until F12 is let go of; then says what
 * came. Whenever ten keys have been let go of it switches Caps Lock's light, for the host to see that they were read: the kernel keeps
 * 64 events for a program and throws away what it gets beyond that.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/input.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEVICES = 3, KEYBOARD = 0, POINTER = 1, TOUCH = 2, BATCH = 10, NEVER_MS = 1000000 };

struct state {
	int fd[DEVICES];
	unsigned pressed, released, wrong, dropped, syn;
	int last_key, x, y, buttons, wheel, fingers, slot;
	int touch_x[10];
};

static int find(struct state *s)
{
	static const char *const names[DEVICES] = { "Coffer keyboard", "Coffer pointer", "Coffer touch screen" };
	char path[64], name[64];
	int found = 0;

	for (int i = 0; i < 32; i++) {
		snprintf(path, sizeof(path), "/dev/input/event%d", i);
		int fd = open(path, O_RDWR | O_NONBLOCK);

		if (fd < 0)
			continue;
		if (ioctl(fd, EVIOCGNAME(sizeof(name)), name) < 0)
			name[0] = 0;
		for (int k = 0; k < DEVICES; k++) {
			if (strcmp(name, names[k]) == 0) {
				s->fd[k] = fd;
				found++;
				fd = -1;
			}
		}
		if (fd >= 0)
			close(fd);
	}
	return found;
}

static void describe(const struct state *s)
{
	struct input_absinfo abs = { 0 };
	unsigned char prop[4] = { 0 }, ev[4] = { 0 };

	ioctl(s->fd[POINTER], EVIOCGABS(ABS_X), &abs);
	printf("pointer_max=%d\n", abs.maximum);
	ioctl(s->fd[TOUCH], EVIOCGABS(ABS_MT_SLOT), &abs);
	printf("slots=%d\n", abs.maximum + 1);
	ioctl(s->fd[TOUCH], EVIOCGPROP(sizeof(prop)), prop);
	printf("direct=%d\n", prop[INPUT_PROP_DIRECT / 8] >> INPUT_PROP_DIRECT % 8 & 1);
	ioctl(s->fd[KEYBOARD], EVIOCGBIT(0, sizeof(ev)), ev);
	printf("repeats=%d\n", ev[EV_REP / 8] >> EV_REP % 8 & 1);
}

static void light(int fd, int on)
{
	const struct input_event e[] = { { .type = EV_LED, .code = LED_CAPSL, .value = on }, { .type = EV_SYN, .code = SYN_REPORT } };

	if (write(fd, e, sizeof(e)) != sizeof(e))
		printf("light: %s\n", strerror(errno));
}

static void take(struct state *s, const struct input_event *e)
{
	if (e->type == EV_SYN && e->code == SYN_DROPPED)
		s->dropped++;
	else if (e->type == EV_SYN)
		s->syn++;
	else if (e->type == EV_KEY && e->code >= BTN_MISC)
		s->buttons = s->buttons * 2 + e->value;
	else if (e->type == EV_KEY && e->value == 1) {
		s->wrong += s->last_key != 0;
		s->last_key = e->code;
		s->pressed++;
	} else if (e->type == EV_KEY && e->value == 0) {
		s->wrong += s->last_key != e->code;
		s->last_key = 0;
		s->released++;
	} else if (e->type == EV_ABS && e->code == ABS_X)
		s->x = e->value;
	else if (e->type == EV_ABS && e->code == ABS_Y)
		s->y = e->value;
	else if (e->type == EV_REL && e->code == REL_WHEEL)
		s->wheel += e->value;
	else if (e->type == EV_ABS && e->code == ABS_MT_SLOT)
		s->slot = e->value;
	else if (e->type == EV_ABS && e->code == ABS_MT_TRACKING_ID)
		s->fingers += e->value >= 0;
	else if (e->type == EV_ABS && e->code == ABS_MT_POSITION_X)
		s->touch_x[s->slot] = e->value;
}

int main(void)
{
	struct state s = { .fd = { -1, -1, -1 } };
	int over = 0;

	if (find(&s) < DEVICES) {
		printf("missing: %d, %d, %d\n", s.fd[KEYBOARD], s.fd[POINTER], s.fd[TOUCH]);
		return 1;
	}
	describe(&s);
	ioctl(s.fd[KEYBOARD], EVIOCSREP, (unsigned[]){ NEVER_MS, NEVER_MS }); /* a slow machine would repeat keys */
	printf("LISTENING\n");
	fflush(stdout);
	/* What the others were given before the end may be seen after it. */
	for (bool more = true; !over || more;) {
		struct pollfd p[DEVICES] = { { s.fd[0], POLLIN, 0 }, { s.fd[1], POLLIN, 0 }, { s.fd[2], POLLIN, 0 } };
		struct input_event e[64];

		more = false;
		poll(p, DEVICES, over ? 0 : -1);
		for (int i = DEVICES - 1; i >= 0; i--) {
			ssize_t n;

			while ((n = read(s.fd[i], e, sizeof(e))) > 0) {
				more = true;
				for (size_t k = 0; k < (size_t)n / sizeof(*e); k++) {
					if (e[k].type == EV_KEY && e[k].code == KEY_F12)
						over |= e[k].value == 0;
					else
						take(&s, &e[k]);
					if (i == KEYBOARD && e[k].type == EV_KEY && e[k].value == 0 && s.released % BATCH == 0)
						light(s.fd[KEYBOARD], s.released / BATCH % 2);
				}
			}
		}
	}
	printf("pressed=%u\nreleased=%u\nwrong=%u\ndropped=%u\n", s.pressed, s.released, s.wrong, s.dropped);
	printf("pointer=%d,%d\nbuttons=%d\nwheel=%d\nfingers=%d\ntouch=%d,%d\n", s.x, s.y, s.buttons, s.wheel, s.fingers, s.touch_x[0],
	       s.touch_x[1]);
	return 0;
}
