/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of a VM with a display: SESSION_PROGRAM of the image, started at boot when the kernel's command line has
 * coffer.display=, and again whenever it ends.
 *
 * A process of its own does that, so the supervisor knows nothing of it: it waits for the session, ends what is left of the session's
 * process group, and starts the next after a pause that doubles as long as sessions are short. Like everything in the guest it
 * is sent SIGTERM at power-off. An image without that program has none: then the console is what the display shows.
 *
 * Trust: the program is the image's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "guest/agent/environment.h"
#include "lib/fd.h"

#define SESSION_PROGRAM "/usr/lib/coffer/session"
#define SESSION_LOG "/var/log/coffer-session.log"

enum {
	SESSION_PAUSE_S = 1,
	SESSION_PAUSE_MAX_S = 64,
	SESSION_LONG_MS = 60000,     /* one that lasts as long has not failed */
	SESSION_LOG_MAX = 1 << 20,   /* bytes after which it begins anew with the next session */
};

static int open_log(void)
{
	struct stat st;
	int fd = open(SESSION_LOG, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd >= 0 && (fstat(fd, &st) < 0 || (st.st_size > SESSION_LOG_MAX && ftruncate(fd, 0) < 0)))
		return fd_close(fd);
	return fd;
}

static _Noreturn void become_session(const char *display)
{
	char *argv[] = { (char *)SESSION_PROGRAM, NULL }, word[BOOT_WORD_MAX + 32];
	char *env[] = { (char *)"PATH=" ENVIRONMENT_PATH, (char *)"HOME=/root", word, NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), log = open_log();

	strcpy(word, "COFFER_DISPLAY=");
	strncat(word, display, BOOT_WORD_MAX);
	setsid();
	dup2(null, 0);
	dup2(log >= 0 ? log : null, 1);
	dup2(log >= 0 ? log : null, 2);
	execve(SESSION_PROGRAM, argv, env);
	_exit(127);
}

static _Noreturn void keep(const struct agent *a, const char *display)
{
	unsigned pause_s = SESSION_PAUSE_S;

	for (;;) {
		uint64_t start = agent_now_ms();
		pid_t pid = fork();

		if (pid == 0)
			become_session(display);
		if (pid > 0) {
			while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
				;
			kill(-pid, SIGKILL);
		}
		pause_s = agent_now_ms() - start >= SESSION_LONG_MS ? SESSION_PAUSE_S :
			  pause_s < SESSION_PAUSE_MAX_S		   ? pause_s * 2 :
								     SESSION_PAUSE_MAX_S;
		agent_say(a, "the session has ended (%s says why); the next starts in %u s", SESSION_LOG, pause_s);
		sleep(pause_s);
	}
}

void boot_start_session(const struct agent *a, const char *display)
{
	if (!display[0] || access(SESSION_PROGRAM, X_OK) < 0)
		return;
	pid_t pid = fork();

	if (pid < 0)
		agent_say(a, "session: %s", strerror(errno));
	if (pid != 0)
		return;
	boot_leave_protection();
	keep(a, display);
}
