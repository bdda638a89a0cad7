/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on commands: exec, attach, ps, kill. The loop that serves a running one is in command.c. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "guest/agent/cgroup.h"
#include "guest/agent/command_loop.h"
#include "guest/agent/kill.h"
#include "guest/agent/supervisor.h"
#include "lib/fd.h"
#include "lib/util.h"

/* ---- exec ---- */

static int open_signals(struct command *c, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return c->signal_fd < 0 ? err_errno(err, -errno, "signalfd") : 0;
}

/* argv joined by blanks, cut to what fits. */
static void join(char *dst, size_t size, const char *const *argv, size_t argc)
{
	size_t n = 0;

	for (size_t i = 0; i < argc && n + 1 < size; i++) {
		size_t len = strlen(argv[i]), room;

		if (i > 0)
			dst[n++] = ' ';
		room = size - 1 - n;
		len = MIN(len, room);
		memcpy(dst + n, argv[i], len);
		n += len;
	}
	dst[n] = '\0';
}

/* Enter the command into the shared list, where ps finds it once it has a process. */
static uint64_t enlist(struct handler *h)
{
	struct agent_command *e = &h->slot->command;
	uint64_t id = atomic_fetch_add(&h->agent->shared->next_id, 1);

	join(e->text, sizeof(e->text), h->request.argv, h->request.argc);
	atomic_store(&e->pid, 0);
	atomic_store(&e->ended, false);
	atomic_store(&e->tty, h->request.tty);
	atomic_store(&e->detached, h->request.detach);
	atomic_store(&e->resume, h->request.resume);
	atomic_store(&e->uid, h->u.command.user.uid);
	atomic_store(&e->started_ms, agent_now_ms());
	atomic_store(&e->id, id);
	return id;
}

static void delist(struct handler *h)
{
	uint64_t id = atomic_exchange(&h->slot->command.id, 0);

	if (h->u.command.cgroup >= 0) {
		h->u.command.cgroup = fd_close(h->u.command.cgroup);
		cgroup_remove(h->agent->cgroup_fd, id); /* while something lives on, the supervisor does it later */
	}
}

static int prepare(struct handler *h)
{
	struct command *c = &h->u.command;
	const struct request *r = &h->request;
	char self[32];
	int rc;

	c->cgroup = c->signal_fd = -1;
	c->tty = r->tty;
	c->stdin_allowed = r->stdin_open;
	c->detached = r->detach;
	c->resume = r->resume != 0;
	c->grace_ms = r->grace_ms;
	c->err_ended = r->tty;
	ring_init(&c->input, c->input_buf, sizeof(c->input_buf));
	outq_init(&c->out);
	c->out.keep = c->resume;
	snprintf(self, sizeof(self), "%u:%u", geteuid(), getegid()); /* root, but in tests */
	rc = user_lookup("/etc/passwd", "/etc/group", r->user ? r->user : self, &c->user, &h->err);
	if (rc < 0)
		return rc;
	environment_make(&c->env, &c->user, r->tty, &h->agent->env, r->env, r->nenv);
	return open_signals(c, &h->err);
}

/* Start it. Needs delist afterwards whatever happens. */
static int start(struct handler *h)
{
	struct command *c = &h->u.command;
	const struct request *r = &h->request;
	struct spawn s = {
		.argv = r->argv,
		.env = &c->env,
		.user = &c->user,
		.cwd = r->cwd ? r->cwd : "/",
		.tty = r->tty,
		.stdin_open = r->stdin_open,
		.rows = (uint16_t)r->rows,
		.cols = (uint16_t)r->cols,
		.cgroup_fd = -1,
	};
	uint64_t id = enlist(h);
	int rc;

	if (r->detach) {
		struct supervisor_message m = { .type = SUPERVISOR_DETACH };

		rc = supervisor_call(h->supervisor, &m, NULL, 0, -1);
		if (rc < 0)
			return err_set(&h->err, rc, "%d detached commands run already", AGENT_DETACHED_MAX);
	}
	if (h->agent->cgroup_fd >= 0) {
		atomic_store(&h->slot->has_cgroup, true);
		c->cgroup = cgroup_create(h->agent->cgroup_fd, id);
		if (c->cgroup < 0)
			return err_errno(&h->err, c->cgroup, "make a control group for the command");
		s.cgroup_fd = c->cgroup;
	}
	rc = spawn_command(&s, &c->io, &h->err);
	if (rc < 0)
		return rc;
	c->group = c->io.pid;
	c->running = c->io.pid > 0;
	if (!r->stdin_open && c->io.in >= 0) /* a terminal that nobody types into */
		c->io.in = fd_close(c->io.in);
	if (r->timeout_ms)
		c->deadline = agent_now_ms() + (uint64_t)r->timeout_ms;
	atomic_store(&h->slot->command.pid, c->group);
	return 0;
}

static int answer(struct handler *h)
{
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;

	channel_answer_begin(&w, buf);
	json_write_uint(&w, "id", atomic_load(&h->slot->command.id));
	json_write_int(&w, "pid", h->u.command.group);
	json_write_uint(&w, "stdin_window", AGENT_STDIN_WINDOW);
	if (h->u.command.resume)
		json_write_bool(&w, "resume", true);
	return channel_answer_end(&h->channel, &w);
}

int command_exec(struct handler *h)
{
	struct command *c = &h->u.command;
	int rc = prepare(h);

	if (rc < 0)
		return rc;
	rc = start(h);
	if (rc < 0) {
		delist(h);
		return rc;
	}
	rc = answer(h);
	if (rc == 0 && !c->running) {
		rc = channel_send_exit(&h->channel, AGENT_EXIT_NOEXEC, (uint32_t)c->io.exec_errno);
	} else {
		if (h->request.attach)
			command_connected(h);
		else
			command_disconnect(h);
		/* if the answer could not be sent, the loop finds the connection dead */
		rc = command_loop(h);
	}
	delist(h);
	return rc;
}

/* ---- others' commands ---- */

static struct agent_command *find(struct handler *h, uint64_t id)
{
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++) {
		struct agent_slot *s = &h->agent->shared->slot[i];

		if (atomic_load(&s->used) && atomic_load(&s->command.id) == id)
			return &s->command;
	}
	return NULL;
}

int command_attach(struct handler *h)
{
	const struct request *r = &h->request;
	struct supervisor_message m = { .type = SUPERVISOR_ATTACH, .value = r->resume != 0, .id = (uint64_t)r->id,
					.received = (uint64_t)r->received };
	struct agent_command *e = find(h, m.id);
	int rc;

	if (!e)
		return err_set(&h->err, -ENOENT, "command %llu: there is none", (unsigned long long)m.id);
	if (r->resume && atomic_load(&e->resume) != r->resume)
		return err_set(&h->err, -ESTALE, "command %llu is another one than the one to be resumed",
			       (unsigned long long)m.id);
	if (!r->resume && (!atomic_load(&e->detached) || atomic_load(&e->resume)))
		return err_set(&h->err, -EPERM, "command %llu was not started with 'detach'", (unsigned long long)m.id);
	if (channel_has_input(&h->channel))
		return err_set(&h->err, -EPROTO, "attach: frames must wait for the answer");
	rc = supervisor_call(h->supervisor, &m, NULL, 0, h->channel.fd);
	if (rc < 0)
		return err_errno(&h->err, rc, "command %llu", (unsigned long long)m.id);
	/* The connection is another handler's now; this process must not shut it down. */
	h->channel.fd = fd_close(h->channel.fd);
	return 0;
}

static size_t describe(const struct agent_command *e, char *buf, size_t size)
{
	bool done = atomic_load(&e->ended);
	char text[AGENT_COMMAND_TEXT];
	struct json_writer w;
	int n;

	memcpy(text, e->text, sizeof(text)); /* may change meanwhile */
	text[sizeof(text) - 1] = '\0';
	json_writer_init(&w, buf, size);
	json_write_object(&w, NULL);
	json_write_uint(&w, "id", atomic_load(&e->id));
	json_write_int(&w, "pid", atomic_load(&e->pid));
	json_write_string(&w, "command", text);
	json_write_uint(&w, "uid", atomic_load(&e->uid));
	json_write_bool(&w, "tty", atomic_load(&e->tty));
	json_write_bool(&w, "detached", atomic_load(&e->detached));
	json_write_bool(&w, "attached", atomic_load(&e->attached));
	json_write_string(&w, "state", done ? "ended" : "running");
	json_write_uint(&w, "age_ms", agent_now_ms() - atomic_load(&e->started_ms));
	if (done) {
		json_write_uint(&w, "kind", atomic_load(&e->kind));
		json_write_uint(&w, "value", atomic_load(&e->value));
	}
	json_write_object_end(&w);
	n = json_writer_finish(&w);
	return n < 0 ? 0 : (size_t)n;
}

int command_ps(struct handler *h)
{
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;
	int rc;

	channel_answer_begin(&w, buf);
	rc = channel_answer_end(&h->channel, &w);
	for (size_t i = 0; rc == 0 && i < AGENT_CONNECTIONS_MAX; i++) {
		struct agent_slot *s = &h->agent->shared->slot[i];
		size_t n;

		if (!atomic_load(&s->used) || !atomic_load(&s->command.id) ||
		    (!atomic_load(&s->command.pid) && !atomic_load(&s->command.ended)))
			continue;
		n = describe(&s->command, buf, sizeof(buf));
		if (n > 0)
			rc = channel_send_frame(&h->channel, AGENT_DATA, buf, n);
	}
	if (rc == 0)
		rc = channel_send_frame(&h->channel, AGENT_DATA, NULL, 0);
	if (rc == 0)
		rc = channel_send_exit(&h->channel, AGENT_EXIT_STATUS, 0);
	return rc < 0 ? err_errno(&h->err, rc, "ps") : 0;
}

int command_kill(struct handler *h)
{
	struct supervisor_message m = { .type = SUPERVISOR_SIGNAL, .id = (uint64_t)h->request.id, .value = (int32_t)h->request.signal };
	struct agent_command *e = find(h, m.id);
	int rc;

	if (!e || atomic_load(&e->ended))
		return err_set(&h->err, -ESRCH, "command %llu: none such runs", (unsigned long long)m.id);
	rc = supervisor_call(h->supervisor, &m, NULL, 0, -1);
	return rc < 0 ? err_errno(&h->err, rc, "command %llu", (unsigned long long)m.id) : channel_answer_ok(&h->channel);
}
