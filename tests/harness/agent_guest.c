/* SPDX-License-Identifier: Apache-2.0 */
/* An agent in a child process: see agent_guest.h. */
#include "tests/harness/agent_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest/agent/agent.h"
#include "guest/agent/cgroup.h"
#include "guest/agent/supervisor.h"
#include "lib/fd.h"

static int unix_socket(const char *path, bool listening)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(a.sun_path, path);
	if (listening) {
		assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(listen(fd, 1), 0);
	} else {
		assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	}
	return fd;
}

static _Noreturn void run_agent(const struct agent_guest *g, const char *ready, const char *cgroup)
{
	struct agent a = { .mode = AGENT_UNIX, .console = 2, .writable_fd = -1, .cgroup_fd = -1, .root = "service", .overlay = "none" };

	a.listen_path = g->socket;
	a.ready_path = ready;
	if (cgroup)
		a.cgroup_fd = cgroup_open_base(cgroup, NULL);
	_exit(supervisor_run(&a));
}

void agent_guest_start(struct agent_guest *g, const char *cgroup)
{
	char ready[96];
	ssize_t n;
	int fd, conn;

	memset(g, 0, sizeof(*g));
	strcpy(g->dir, "/tmp/coffer-agent-XXXXXX");
	assert_non_null(mkdtemp(g->dir));
	snprintf(g->socket, sizeof(g->socket), "%s/agent", g->dir);
	snprintf(ready, sizeof(ready), "%s/ready", g->dir);
	fd = unix_socket(ready, true);
	g->pid = fork();
	assert_true(g->pid >= 0);
	if (g->pid == 0) {
		close(fd);
		run_agent(g, ready, cgroup);
	}
	conn = accept(fd, NULL, NULL);
	assert_true(conn >= 0);
	n = fd_read_full(conn, g->ready, sizeof(g->ready) - 1);
	assert_true(n > 0);
	close(conn);
	close(fd);
}

int agent_guest_stop(struct agent_guest *g)
{
	char command[128];
	int status;

	kill(g->pid, SIGTERM);
	assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
	snprintf(command, sizeof(command), "rm -rf %s", g->dir);
	assert_int_equal(system(command), 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int agent_guest_run_tests(struct agent_guest *g, const struct CMUnitTest *tests, size_t n)
{
	int failed, status;

	agent_guest_start(g, NULL);
	failed = _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
	status = agent_guest_stop(g);
	if (status)
		fprintf(stderr, "the agent ended with status %d\n", status);
	return failed || status;
}

void agent_peer_connect(struct agent_peer *p, const struct agent_guest *g)
{
	p->fd = unix_socket(g->socket, false);
	p->line[0] = '\0';
}

void agent_peer_send(struct agent_peer *p, const void *data, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = send(p->fd, (const char *)data + done, n - done, MSG_NOSIGNAL);

		if (r < 0 && (errno == EPIPE || errno == ECONNRESET))
			return;
		assert_true(r > 0);
		done += (size_t)r;
	}
}

bool agent_peer_line(struct agent_peer *p)
{
	size_t n = 0;

	for (;;) {
		ssize_t r = read(p->fd, p->line + n, 1);

		if (r <= 0) {
			p->line[n] = '\0';
			assert_int_equal(n, 0);
			return false;
		}
		if (p->line[n] == '\n')
			break;
		assert_true(++n < AGENT_REPLY_MAX);
	}
	p->line[n] = '\0';
	return true;
}

void agent_peer_request(struct agent_peer *p, const struct agent_guest *g, const char *request)
{
	agent_peer_connect(p, g);
	agent_peer_send(p, request, strlen(request));
	agent_peer_send(p, "\n", 1);
	assert_true(agent_peer_line(p));
}

bool agent_peer_frame(struct agent_peer *p)
{
	struct agent_frame h;
	ssize_t n = fd_read_full(p->fd, &h, sizeof(h));

	if (n <= 0) /* end of file, or a reset: the agent closed with bytes of ours unread */
		return false;
	assert_int_equal(n, sizeof(h));
	p->type = h.type;
	p->length = le32_get(h.length);
	assert_true(p->length <= AGENT_FRAME_MAX);
	assert_int_equal(h.zero[0] | h.zero[1] | h.zero[2], 0);
	assert_int_equal(fd_read_full(p->fd, p->payload, p->length), p->length);
	return true;
}

void agent_peer_put(struct agent_peer *p, uint8_t type, const void *payload, size_t n)
{
	struct agent_frame h = { .length = le32_make((uint32_t)n), .type = type };

	agent_peer_send(p, &h, sizeof(h));
	if (n > 0)
		agent_peer_send(p, payload, n);
}

void agent_peer_close(struct agent_peer *p)
{
	p->fd = fd_close(p->fd);
}

int64_t agent_peer_number(const struct agent_peer *p, const char *key)
{
	char quoted[64];
	const char *at;

	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	at = strstr(p->line, quoted);
	if (!at)
		print_error("no '%s' in: %s\n", key, p->line);
	assert_non_null(at);
	return strtoll(at + strlen(quoted), NULL, 10);
}

static void append(char *buf, size_t size, size_t *n, const struct agent_peer *p)
{
	if (*n + p->length < size)
		memcpy(buf + *n, p->payload, p->length);
	*n += p->length;
	buf[*n < size ? *n : size - 1] = '\0';
}

static void collect(struct agent_peer *p, struct agent_result *r, bool ack)
{
	memset(r, 0, sizeof(*r));
	while (agent_peer_frame(p)) {
		switch (p->type) {
		case AGENT_STDOUT:
			assert_false(r->out_ended);
			r->out_ended = p->length == 0;
			append(r->out, sizeof(r->out), &r->nout, p);
			break;
		case AGENT_STDERR:
			assert_false(r->err_ended);
			r->err_ended = p->length == 0;
			append(r->err, sizeof(r->err), &r->nerr, p);
			break;
		case AGENT_CREDIT: assert_int_equal(p->length, 4); break;
		case AGENT_DATA: break;
		case AGENT_EXIT:
			assert_int_equal(r->final, 0);
			assert_int_equal(p->length, 8);
			r->final = AGENT_EXIT;
			r->kind = le32_load(p->payload);
			r->value = le32_load(p->payload + 4);
			if (ack)
				agent_peer_put(p, AGENT_EXIT, NULL, 0);
			break;
		case AGENT_ERROR:
			assert_int_equal(r->final, 0);
			assert_true(p->length >= 4 && p->length - 4 <= AGENT_ERROR_TEXT_MAX);
			r->final = AGENT_ERROR;
			r->error_errno = (int)le32_load(p->payload);
			memcpy(r->error, p->payload + 4, p->length - 4);
			r->error[p->length - 4] = '\0';
			break;
		default: fail_msg("frame of type %u from the agent", p->type);
		}
	}
}

void agent_peer_collect(struct agent_peer *p, struct agent_result *r)
{
	collect(p, r, false);
}

void agent_peer_collect_and_ack(struct agent_peer *p, struct agent_result *r)
{
	collect(p, r, true);
}

void agent_guest_run(const struct agent_guest *g, const char *request, struct agent_result *r)
{
	struct agent_peer *p = malloc(sizeof(*p));

	assert_non_null(p);
	agent_peer_request(p, g, request);
	if (strncmp(p->line, "{\"ok\":true", 10) != 0)
		fail_msg("%s: %s", request, p->line);
	agent_peer_collect(p, r);
	agent_peer_close(p);
	free(p);
}
