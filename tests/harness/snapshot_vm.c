/* SPDX-License-Identifier: Apache-2.0 */
/* A VM whose monitor is a program of the test: see snapshot_vm.h. */
#include "tests/harness/snapshot_vm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/control_client.h"
#include "host/launch_disks.h"
#include "host/snapshot_take.h"
#include "host/sock.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram.h"

/* ---- the monitor ---- */

struct monitor {
	int data, index; /* the top */
	int old[100];    /* data files of layers: kept open, as a monitor does */
	size_t nold;
	uint8_t id;
	bool tracking, paused;
	volatile unsigned *cuts;
};

/* Memory has its snapshot's number in one page of its own, and in one that all have. */
static int write_memory(const int *fd, const struct ram_id *id, const struct ram_id *parent)
{
	const uint64_t pages[MIB(64) / MEM_PAGE_SIZE / 64] = { 1ull << 1 | 1ull << (2 + id->b[0] % 32) };
	struct ram_writer_config c = { .data_fd = fd[1], .index_fd = fd[2], .id = *id, .parent = *parent };
	struct ram_writer *w = NULL;
	struct ram_writer_stats stats;
	struct mem mem;
	int r = mem_init(&mem, -1, MIB(64), NULL);

	if (r < 0)
		return r;
	c.mem = &mem;
	mem_write(&mem, GPA(MEM_PAGE_SIZE), id, sizeof(*id));
	mem_write(&mem, GPA((2 + id->b[0] % 32) * (uint64_t)MEM_PAGE_SIZE), id, sizeof(*id));
	r = ram_writer_new(&c, &w, NULL);
	if (r == 0)
		r = ram_writer_put(w, NULL, pages, NULL);
	if (r == 0)
		r = ram_writer_finish(w, &stats, NULL);
	ram_writer_free(w);
	mem_finish(&mem);
	return r;
}

static int snapshot(struct monitor *m, const struct control_request *q, int *fd, size_t nfds, enum behaviour how,
		    struct control_reply *r)
{
	int old_index = m->index;

	if (how == REFUSES || nfds != 5 || le64_get(q->arg[2]) != 1 || (le64_get(q->arg[0]) & CONTROL_SNAPSHOT_DIFF &&
									!m->tracking)) {
		for (size_t i = 0; i < nfds; i++)
			close(fd[i]);
		return -ENOSPC;
	}
	if (how == IS_AT_IT) { /* before the cut: the pair is open, and not yet the top */
		m->old[m->nold++] = fd[3];
		for (int i = 0; i < 5; i++)
			if (i != 3)
				close(fd[i]);
		return -ECANCELED;
	}
	m->old[m->nold++] = m->data;
	++*m->cuts;
	m->data = fd[3];
	m->index = fd[4];
	int status = how == FAILS_TO_SEAL ? 0 : lsmt_seal_pair(m->old[m->nold - 1], old_index, "old", NULL);

	if (status == 0)
		status = fd_write_full(fd[0], "state", 5);
	if (status == 0 && how != FAILS_TO_SEAL) {
		bool diff = le64_get(q->arg[0]) & CONTROL_SNAPSHOT_DIFF;
		const struct ram_id id = { { (uint8_t)(m->id + 1) } }, parent = { { diff ? m->id : 0 } };

		status = write_memory(fd, &id, &parent);
	}
	close(old_index);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	if (how == FAILS_AFTER_THE_CUT || how == FAILS_TO_SEAL)
		return -ENOSPC;
	r->value[CONTROL_SV_PARENT_LOW] = le64_make(le64_get(q->arg[0]) & CONTROL_SNAPSHOT_DIFF ? m->id : 0);
	r->value[CONTROL_SV_ID_LOW] = le64_make(++m->id);
	r->value[CONTROL_SV_PAUSE_NS] = le64_make(1234);
	m->tracking = le64_get(q->arg[0]) & CONTROL_SNAPSHOT_TRACK;
	return status;
}

/* Each request for a snapshot is served as the next byte of the pipe says. */
static void __attribute__((noreturn)) serve(struct monitor *m, int listener, int how_fd)
{
	for (;;) {
		struct control_request q;
		struct control_reply r = { 0 };
		int conn = accept(listener, NULL, NULL), fd[8], status = 0;
		size_t nfds = 0;

		if (fd_recv(conn, &q, sizeof(q), fd, 8, &nfds) == sizeof(q)) {
			r.seq = q.seq;
			if (le16_get(q.op) == CONTROL_PAUSE || le16_get(q.op) == CONTROL_RESUME)
				m->paused = le16_get(q.op) == CONTROL_PAUSE;
			r.value[CONTROL_V_STATE] = le64_make(m->paused ? VM_PAUSED : VM_RUNNING);
			if (le16_get(q.op) == CONTROL_SNAPSHOT) {
				uint8_t how = 0;

				if (read(how_fd, &how, 1) != 1)
					_exit(1);
				status = snapshot(m, &q, fd, nfds, (enum behaviour)how, &r);
			}
			r.status = le32_make((uint32_t)status);
			send(conn, &r, sizeof(r), MSG_NOSIGNAL);
		}
		close(conn);
	}
}

void snapshot_vm_start(struct snapshot_vm *v)
{
	struct launch_options o = { .cpus = 1, .memory = MIB(64) };
	char disk[200], option[220];
	int pipes[2];

	home_make_in_memory(&v->home);
	snprintf(disk, sizeof(disk), "%s/disk", v->home.path);
	int fd = open(disk, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, MIB(1)), 0);
	close(fd);
	snprintf(option, sizeof(option), "%s,cow", disk);
	o.disks = (struct opt_strv){ { option }, 1 };
	launch_init(&v->launch);
	assert_int_equal(vmdir_create("vm", &v->launch.dir, NULL), 0);
	const struct vm_config c = { .cpus = 1, .memory = MIB(64), .image = (char[]){ "none" } };

	assert_int_equal(vmdir_write_config(&v->launch.dir, &c, NULL), 0);
	assert_int_equal(launch_disks_make(&v->launch, &o, NULL), 0);
	o.image = (char[]){ "none" };
	assert_int_equal(launch_disks_record(&v->launch, &o, NULL), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	int listener = sock_listen_at(v->launch.dir.fd, CONTROL_SOCKET, SOCK_SEQPACKET, NULL);
	unsigned *cuts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(cuts != MAP_FAILED);
	v->cuts = cuts;
	v->monitor = fork();
	if (v->monitor == 0) {
		const struct vm_disk *d = v->launch.disks.disk[0];
		struct monitor m = { .data = d->top_data_fd, .index = d->top_index_fd, .cuts = cuts };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipes[1]);
		serve(&m, listener, pipes[0]);
	}
	close(listener);
	close(pipes[0]);
	v->how_fd = pipes[1];
	vm_disks_finish(&v->launch.disks);
}

void snapshot_vm_end(struct snapshot_vm *v)
{
	kill(v->monitor, SIGKILL);
	waitpid(v->monitor, NULL, 0);
	v->monitor = 0;
	close(v->how_fd);
	munmap((void *)(uintptr_t)v->cuts, 4096);
	launch_end(&v->launch, false, NULL);
	home_remove(&v->home);
}

void snapshot_vm_serve(const struct snapshot_vm *v, enum behaviour how, unsigned n)
{
	uint8_t byte = (uint8_t)how;

	while (n-- > 0)
		assert_int_equal(write(v->how_fd, &byte, 1), 1);
}

int snapshot_vm_take(const char *to, bool diff, struct err *err)
{
	struct snapshot_take t = { .to = to, .diff = diff, .track = true };
	struct vm_handle handle;
	int r = vm_open("vm", &handle, err);

	if (r < 0)
		return r;
	r = snapshot_take(&handle, &t, err);
	if (r == 0)
		r = snapshot_draft_publish(&t.draft, &t.m, false, err);
	if (r == 0)
		r = snapshot_take_remember(&handle, &t, err);
	snapshot_take_finish(&t);
	vm_close(&handle);
	return r;
}

size_t snapshot_vm_layers_of(const char *name)
{
	struct snapshot s;

	assert_int_equal(snapshot_open(name, &s, NULL), 0);
	size_t n = s.m.disk[0].nlayers;

	for (size_t i = 0; i < n; i++) {
		const struct snapshot_layer *l = &s.m.disk[0].layer[i];
		int fd = snapshot_open_file(&s, l->file, l->size, NULL);
		char digest[SNAPSHOT_DIGEST_LEN + 1];
		struct lsmt_info info;

		assert_true(fd >= 0);
		assert_int_equal(lsmt_inspect(fd, "layer", &info, NULL), 0);
		assert_int_equal(info.index_hash, l->index_hash);
		assert_int_equal(snapshot_digest_file(fd, "layer", digest, NULL), 0);
		assert_string_equal(digest, l->digest);
		close(fd);
	}
	snapshot_close(&s);
	return n;
}

void snapshot_vm_change(const char *name, void (*fn)(struct snapshot_manifest *m))
{
	struct snapshot s;

	assert_int_equal(snapshot_open(name, &s, NULL), 0);
	fn(&s.m);
	_cleanup_free_ char *text = snapshot_manifest_format(&s.m);

	assert_non_null(text);
	assert_int_equal(vmdir_write_file(s.fd, SNAPSHOT_MANIFEST, text, strlen(text), NULL), 0);
	snapshot_close(&s);
}
