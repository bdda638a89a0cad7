/* SPDX-License-Identifier: Apache-2.0 */
/* A coffer-vmm process under test: see monitor.h. */
#include "tests/harness/monitor.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/payload.h"

extern char **environ;

enum { CODE_AT = 0x1000, NOTE_AT = 0x180 };

/* Beside the test: build/tests/payload/NAME -> build/coffer-vmm. */
static void find_vmm(char *ret, size_t len)
{
	const char *b = getenv("B");
	char self[MONITOR_PATH - 16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = 0;
	for (int up = 0; up < 3; up++)
		*strrchr(self, '/') = 0;
	snprintf(ret, len, "%s/coffer-vmm", self);
	if (access(ret, X_OK) < 0 && b)
		snprintf(ret, len, "%s/coffer-vmm", b);
}

void monitor_require(void)
{
	char vmm[MONITOR_PATH];

	payload_require_kvm();
	find_vmm(vmm, sizeof(vmm));
	if (access(vmm, X_OK) < 0)
		fail_msg("no %s", vmm);
}

void monitor_write_payload(const char *path, const void *code, size_t len)
{
	struct {
		Elf64_Ehdr e;
		Elf64_Phdr p[2];
	} h = {
		.e = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		       .e_type = ET_EXEC,
		       .e_machine = EM_X86_64,
		       .e_entry = MONITOR_PAYLOAD_BASE,
		       .e_phoff = sizeof(Elf64_Ehdr),
		       .e_phentsize = sizeof(Elf64_Phdr),
		       .e_phnum = 2 },
		.p = { { .p_type = PT_LOAD, .p_offset = CODE_AT, .p_filesz = MONITOR_PAYLOAD_MAX, .p_memsz = MONITOR_PAYLOAD_MAX,
			 .p_paddr = MONITOR_PAYLOAD_BASE },
		       { .p_type = PT_NOTE, .p_offset = NOTE_AT, .p_filesz = 20, .p_align = 4 } },
	};
	const uint32_t note[] = { 4, 4, 18, 0x006e6558, MONITOR_PAYLOAD_BASE }; /* "Xen", PHYS32_ENTRY */
	uint8_t file[CODE_AT + MONITOR_PAYLOAD_MAX] = { 0 };
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && len <= MONITOR_PAYLOAD_MAX);
	memcpy(file, &h, sizeof(h));
	memcpy(file + NOTE_AT, note, sizeof(note));
	memcpy(file + CODE_AT, code, len);
	assert_int_equal(fd_write_full(fd, file, sizeof(file)), 0);
	close(fd);
}

static void spawn(struct monitor *m, const char *const args[], int ready, int console)
{
	posix_spawn_file_actions_t actions;
	char vmm[MONITOR_PATH], ready_text[16], *argv[MONITOR_ARGS];
	size_t n = 0;

	find_vmm(vmm, sizeof(vmm));
	snprintf(ready_text, sizeof(ready_text), "%d", ready);
	char *const fixed[] = { vmm, "--dir", m->dir, "--ready-fd", ready_text, "--device", "serial,stdio" };

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		argv[n++] = fixed[i];
	for (size_t i = 0; args[i]; i++) {
		assert_true(n < MONITOR_ARGS - 1);
		argv[n++] = (char *)(uintptr_t)args[i];
	}
	argv[n] = NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, console, 1);
	assert_int_equal(posix_spawn(&m->pid, vmm, &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
}

void monitor_connect(struct monitor *m)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/%s", m->dir, CONTROL_SOCKET);
	m->control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(m->control, (struct sockaddr *)&a, sizeof(a)), 0);
}

void monitor_start(struct monitor *m, const char *work, const char *const args[])
{
	int ready[2], console[2];
	char line[8];

	*m = (struct monitor){ .console = -1, .control = -1, .status = -1 };
	snprintf(m->dir, sizeof(m->dir), "%s/vm.XXXXXX", work);
	assert_non_null(mkdtemp(m->dir));
	assert_int_equal(pipe2(console, O_CLOEXEC), 0);
	m->console = console[0];
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	fd_set_cloexec(ready[1], 0);
	spawn(m, args, ready[1], console[1]);
	close(ready[1]);
	close(console[1]);
	if (fd_read_full(ready[0], line, 6) != 6)
		fail_msg("coffer-vmm did not come to be ready");
	close(ready[0]);
	monitor_connect(m);
}

int monitor_request(struct monitor *m, enum control_op op, const uint64_t arg[4], const int *fds, size_t nfds,
		    struct control_reply *ret)
{
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make((uint16_t)op), .seq = le32_make(1) };

	for (int i = 0; arg && i < 4; i++)
		q.arg[i] = le64_make(arg[i]);
	assert_int_equal(fd_send(m->control, &q, sizeof(q), fds, nfds), sizeof(q));
	return monitor_reply(m, ret);
}

int monitor_reply(struct monitor *m, struct control_reply *ret)
{
	struct control_reply r;

	if (recv(m->control, &r, sizeof(r), 0) != (ssize_t)sizeof(r))
		fail_msg("coffer-vmm ended without a reply");
	if (ret)
		*ret = r;
	return (int)le32_get(r.status);
}

void monitor_hear(struct monitor *m, char want)
{
	char c;

	assert_int_equal(read(m->console, &c, 1), 1);
	if (c != want)
		fail_msg("the guest said '%c', not '%c'", c, want);
}

int monitor_wait(struct monitor *m)
{
	int status;

	if (m->pid <= 0)
		return m->status;
	assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
	m->pid = 0;
	m->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return m->status;
}

void monitor_end(struct monitor *m)
{
	char command[MONITOR_PATH + 16];

	if (m->pid > 0) {
		kill(m->pid, SIGKILL);
		monitor_wait(m);
	}
	if (!m->dir[0])
		return;
	m->console = fd_close(m->console);
	m->control = fd_close(m->control);
	snprintf(command, sizeof(command), "rm -rf %s", m->dir);
	assert_int_equal(system(command), 0);
	m->dir[0] = 0;
}
