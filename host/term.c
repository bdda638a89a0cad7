/* SPDX-License-Identifier: Apache-2.0 */
/* The user's terminal: see term.h. */
#include "host/term.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/util.h"

static int set_raw(int fd, const struct termios *saved)
{
	struct termios raw = *saved;

	cfmakeraw(&raw);
	return tcsetattr(fd, TCSADRAIN, &raw) < 0 ? -errno : 0;
}

int term_raw(struct term *t, int fd, struct err *err)
{
	*t = TERM_NONE;
	if (tcgetattr(fd, &t->saved) < 0)
		return err_errno(err, -errno, "read the terminal's settings");
	int r = set_raw(fd, &t->saved);

	if (r < 0)
		return err_errno(err, r, "make the terminal raw");
	t->fd = fd;
	return 0;
}

void term_raw_again(const struct term *t)
{
	if (t->fd >= 0)
		set_raw(t->fd, &t->saved);
}

void term_restore(struct term *t)
{
	if (t->fd >= 0)
		tcsetattr(t->fd, TCSADRAIN, &t->saved);
	t->fd = -1;
}

bool term_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
	static const int fds[] = { STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct winsize w;

		if (ioctl(fds[i], TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
			*ret_rows = w.ws_row;
			*ret_cols = w.ws_col;
			return true;
		}
	}
	return false;
}
