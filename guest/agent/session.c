/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of a VM with a display: SESSION_PROGRAM of the image, started at boot when the kernel's command line has
 * coffer.display=, and again whenever it ends.
 *
 * A process of its own does that, so the supervisor knows nothing of it: it waits for the session, ends what is left of the session's
 * process group, and starts the next after a pause that doubles as long as sessions are short. Like everything in the guest it
 * is sent SIGTERM at power-off. An image without that program has none: then the console is what the display shows.
 *
 * The session alone knows when its desktop is there. It says so by writing a line to descriptor SESSION_READY_FD, whose number
 * COFFER_READY_FD tells; who asks (the operation `session`) finds that in memory that all processes of the agent share.
 *
 * Trust: the program is the image's. What it writes is not looked at.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "guest/agent/environment.h"
#include "guest/agent/handler.h"
#include "lib/fd.h"
#include "lib/util.h"

#define SESSION_LOG "/var/log/coffer-session.log"

enum {
	SESSION_PAUSE_S = 1,
	SESSION_PAUSE_MAX_S = 64,
	SESSION_LONG_MS = 60000,     /* one that lasts as long has not failed */
	SESSION_LOG_MAX = 1 << 20,   /* bytes after which it begins anew with the next session */
	SESSION_READY_FD = 3,
	SESSION_POLL_MS = 50,        /* of those who wait for it */
};

static int open_log(void)
{
	struct stat st;
	int fd = open(SESSION_LOG, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd >= 0 && (fstat(fd, &st) < 0 || (st.st_size > SESSION_LOG_MAX && ftruncate(fd, 0) < 0)))
		return fd_close(fd);
	return fd;
}

static _Noreturn void become_session(const struct agent *a, const char *program, const char *display, int ready)
{
	char *argv[] = { (char *)program, NULL }, word[BOOT_WORD_MAX + 32], number[32];
	char *env[] = { (char *)"PATH=" ENVIRONMENT_PATH, (char *)"HOME=/root", word, number, NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), log = a->mode == AGENT_UNIX ? a->console : open_log();

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	snprintf(word, sizeof(word), "COFFER_DISPLAY=%s", display);
	snprintf(number, sizeof(number), "COFFER_READY_FD=%d", SESSION_READY_FD);
	setsid();
	dup2(null, 0);
	dup2(log >= 0 ? log : null, 1);
	dup2(log >= 0 ? log : null, 2);
	if (ready == SESSION_READY_FD)
		fcntl(ready, F_SETFD, 0);
	else
		dup2(ready, SESSION_READY_FD);
	execve(program, argv, env);
	_exit(127);
}

/* Until the session says that it is ready, or has ended: what it leaves behind may have the descriptor open for ever. */
static void await_ready(const struct agent *a, pid_t pid, int fd)
{
	_cleanup_close_ int process = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = process, .events = POLLIN } };
	char byte;

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (p[0].revents & POLLIN && read(fd, &byte, 1) == 1)
		atomic_store(&a->session->state, AGENT_SESSION_READY);
}

/* From its start to its end. */
static void run_session(const struct agent *a, const char *program, const char *display)
{
	int ready[2] = { -1, -1 };
	pid_t pid;

	atomic_store(&a->session->state, AGENT_SESSION_STARTING);
	if (pipe2(ready, O_CLOEXEC) < 0)
		agent_say(a, "session: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		become_session(a, program, display, ready[1]);
	fd_close(ready[1]);
	if (pid > 0) {
		await_ready(a, pid, ready[0]);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		kill(-pid, SIGKILL);
	}
	fd_close(ready[0]);
	atomic_fetch_add(&a->session->ended, 1);
	atomic_store(&a->session->state, AGENT_SESSION_ENDED);
}

static _Noreturn void keep(const struct agent *a, const char *program, const char *display)
{
	unsigned pause_s = SESSION_PAUSE_S;

	for (;;) {
		uint64_t start = agent_now_ms();

		run_session(a, program, display);
		pause_s = agent_now_ms() - start >= SESSION_LONG_MS ? SESSION_PAUSE_S :
			  pause_s < SESSION_PAUSE_MAX_S		   ? pause_s * 2 :
								     SESSION_PAUSE_MAX_S;
		agent_say(a, "the session has ended (%s says why); the next starts in %u s", SESSION_LOG, pause_s);
		sleep(pause_s);
	}
}

void boot_start_session(struct agent *a, const char *program, const char *display)
{
	struct agent_session *shared;
	pid_t pid;

	if (access(program, X_OK) < 0)
		return;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		agent_say(a, "session: %s", strerror(errno));
		return;
	}
	a->session = shared;
	pid = fork();
	if (pid < 0)
		agent_say(a, "session: %s", strerror(errno));
	if (pid != 0)
		return;
	if (a->mode == AGENT_UNIX) /* the machine is not ours: nothing is left of us on it */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	else
		boot_leave_protection();
	keep(a, program, display);
}

/* ---- the operation ---- */

static int answer(struct handler *h, const char *state)
{
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;
	int rc;

	channel_answer_begin(&w, buf);
	json_write_string(&w, "state", state);
	json_write_uint(&w, "ended", h->agent->session ? atomic_load(&h->agent->session->ended) : 0);
	rc = channel_answer_end(&h->channel, &w);
	return rc < 0 ? err_errno(&h->err, rc, "session") : 0;
}

/* When it is ready, or the time is over, or nothing is to be waited for. */
int session_wait(struct handler *h)
{
	static const char *const names[] = {
		[AGENT_SESSION_STARTING] = "starting", [AGENT_SESSION_READY] = "ready", [AGENT_SESSION_ENDED] = "ended",
	};
	struct pollfd p = { .fd = h->channel.fd, .events = POLLIN };
	const uint64_t end = agent_now_ms() + (uint64_t)h->request.timeout_ms;
	char byte;

	if (!h->agent->session)
		return answer(h, "none");
	for (;;) {
		uint32_t state = atomic_load(&h->agent->session->state);
		uint64_t now = agent_now_ms();

		if (state == AGENT_SESSION_READY || now >= end)
			return answer(h, names[state]);
		if (poll(&p, 1, (int)MIN(end - now, (uint64_t)SESSION_POLL_MS)) <= 0)
			continue;
		ssize_t n = read(p.fd, &byte, 1);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -ECONNRESET; /* nobody waits any more */
	}
}
