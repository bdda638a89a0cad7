/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a guest of a few instructions in a real coffer-vmm, and monitors that start from them.
 *
 * The guest counts, writes a page of its own memory with every count, says 'A' when it begins, and whenever its generation id has
 * changed 'B' if its memory holds what it wrote, else 'X'.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram.h"
#include "tests/harness/monitor.h"

/* COUNT: pages from PAGES on get their own address and the count at which they were written. PAGES is the operand of the first
 * instruction. */
__asm__(".pushsection .rodata\n"
	".code32\n"
	"payload_begin:\n"
	"	mov $0x400000, %edi\n"          /* PAGES */
	"	xor %ecx, %ecx\n"               /* pages written */
	"	mov 0xe0000, %ebx\n"            /* the generation id's first word */
	"	mov $0x3f8, %dx\n"
	"	mov $'A', %al\n"
	"	out %al, %dx\n"
	"1:	cmp $0x800, %ecx\n"             /* 2048 of them, 8 MiB */
	"	jae 2f\n"
	"	mov %ecx, %esi\n"
	"	shl $12, %esi\n"
	"	mov %ecx, (%edi,%esi)\n"
	"	mov %edi, 4(%edi,%esi)\n"
	"	inc %ecx\n"
	"2:	mov 0xe0000, %eax\n"
	"	cmp %ebx, %eax\n"
	"	je 1b\n"
	"	mov %eax, %ebx\n"
	"	xor %ebp, %ebp\n"               /* look at all pages written */
	"3:	cmp %ecx, %ebp\n"
	"	jae 4f\n"
	"	mov %ebp, %esi\n"
	"	shl $12, %esi\n"
	"	cmp %ebp, (%edi,%esi)\n"
	"	jne 5f\n"
	"	cmp %edi, 4(%edi,%esi)\n"
	"	jne 5f\n"
	"	inc %ebp\n"
	"	jmp 3b\n"
	"4:	mov $'B', %al\n"
	"	out %al, %dx\n"
	"	jmp 1b\n"
	"5:	mov $'X', %al\n"
	"	out %al, %dx\n"
	"	jmp 1b\n"
	"payload_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t payload_begin[], payload_end[];

enum { FILES = 3, CHAIN_MAX = 10, PAGES_AT = 0x400000, PAGES_BYTES = 0x800000 };

struct fixture {
	char work[64], kernel[96];
	const char *memory; /* MiB */
	struct monitor vm, clone;
	int file[CHAIN_MAX][FILES]; /* state, ram, ram.index of each snapshot */
	int nsnapshots;
	struct control_reply reply;
};

static int setup(void **ctx)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	f.memory = "64";
	snprintf(f.work, sizeof(f.work), "/tmp/snapshot.XXXXXX");
	if (!mkdtemp(f.work))
		return -1;
	snprintf(f.kernel, sizeof(f.kernel), "%s/payload", f.work);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;
	char command[96];

	monitor_end(&f->vm);
	monitor_end(&f->clone);
	for (int i = 0; i < f->nsnapshots; i++)
		for (int k = 0; k < FILES; k++)
			fd_close(f->file[i][k]);
	snprintf(command, sizeof(command), "rm -rf %s", f->work);
	return system(command) == 0 ? 0 : -1;
}

static void boot_with_pages_at(struct fixture *f, uint32_t pages)
{
	const char *args[] = { "--kernel", f->kernel, "--memory", f->memory, NULL };
	uint8_t code[MONITOR_PAYLOAD_MAX];
	size_t len = (size_t)(payload_end - payload_begin);
	le32 operand = le32_make(pages);

	monitor_require();
	assert_true(len <= sizeof(code));
	memcpy(code, payload_begin, len);
	memcpy(code + 1, &operand, sizeof(operand));
	monitor_write_payload(f->kernel, code, len);
	monitor_start(&f->vm, f->work, args);
	monitor_hear(&f->vm, 'A');
}

static void boot(struct fixture *f)
{
	boot_with_pages_at(f, PAGES_AT);
}

/* Take one of m; the reply's status. Its files are the next in f->file. */
static int try_take(struct fixture *f, struct monitor *m, uint64_t flags, uint64_t level)
{
	const uint64_t arg[4] = { flags, level, 0, 0 };
	char name[96];

	assert_true(f->nsnapshots < CHAIN_MAX);
	for (int k = 0; k < FILES; k++) {
		snprintf(name, sizeof(name), "%s/file%d.%d", f->work, f->nsnapshots, k);
		f->file[f->nsnapshots][k] = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		assert_true(f->file[f->nsnapshots][k] >= 0);
	}
	f->nsnapshots++;
	return monitor_request(m, CONTROL_SNAPSHOT, arg, f->file[f->nsnapshots - 1], FILES, &f->reply);
}

static void forget_last(struct fixture *f)
{
	char name[96];

	f->nsnapshots--;
	for (int k = 0; k < FILES; k++) {
		snprintf(name, sizeof(name), "%s/file%d.%d", f->work, f->nsnapshots, k);
		unlink(name);
		close(f->file[f->nsnapshots][k]);
	}
}

static void exchange(struct fixture *f, int a, int b)
{
	int files[FILES];

	memcpy(files, f->file[a], sizeof(files));
	memcpy(f->file[a], f->file[b], sizeof(files));
	memcpy(f->file[b], files, sizeof(files));
}

static void take(struct fixture *f, struct monitor *m, uint64_t flags, uint64_t level)
{
	if (try_take(f, m, flags, level) != 0)
		fail_msg("%s", f->reply.text);
}

/* Start f->clone from snapshot `last` and the `n` - 1 before it; the reply's status. */
static int try_restore(struct fixture *f, int last, int n, enum control_restore_mode mode, uint64_t flags)
{
	const char *args[] = { "--restore", "--memory", f->memory, NULL };
	const uint64_t arg[4] = { (uint64_t)mode, (uint64_t)n, 0, flags };
	int fds[1 + 2 * CHAIN_MAX], nfds = 0;

	monitor_start(&f->clone, f->work, args);
	fds[nfds++] = f->file[last][0];
	for (int i = last; i > last - n; i--) {
		fds[nfds++] = f->file[i][1];
		fds[nfds++] = f->file[i][2];
	}
	return monitor_request(&f->clone, CONTROL_RESTORE, arg, fds, (size_t)nfds, &f->reply);
}

static void restore(struct fixture *f, int last, int n, enum control_restore_mode mode)
{
	if (try_restore(f, last, n, mode, CONTROL_RESTORE_TRACK) != 0)
		fail_msg("%s", f->reply.text);
	monitor_hear(&f->clone, 'B');
}

static void a_mapped_clone_goes_on_and_so_does_the_guest(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 0);
	assert_int_equal(monitor_request(&f->vm, CONTROL_STATUS, NULL, NULL, 0, &f->reply), 0);
	assert_int_equal(le64_get(f->reply.value[CONTROL_V_STATE]), VM_RUNNING);
	restore(f, 0, 1, CONTROL_RESTORE_MAP);
}

static void a_filled_clone_goes_on(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 3);
	restore(f, 0, 1, CONTROL_RESTORE_EAGER);
}

static void a_clone_whose_memory_arrives_on_demand_goes_on(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 3);
	restore(f, 0, 1, CONTROL_RESTORE_LAZY);
}

static void the_highest_pages_of_a_large_guest_come_back(void **ctx)
{
	struct fixture *f = *ctx;

	f->memory = "2560";
	boot_with_pages_at(f, (uint32_t)(MIB(2560) - PAGES_BYTES));
	take(f, &f->vm, 0, 0);
	restore(f, 0, 1, CONTROL_RESTORE_MAP);
	monitor_end(&f->clone);
	restore(f, 0, 1, CONTROL_RESTORE_EAGER);
}

static void a_stopped_guest_ends_with_its_snapshot(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, CONTROL_SNAPSHOT_STOP, 0);
	assert_int_equal(monitor_wait(&f->vm), VM_EXIT_BASE + VM_STOP_SAVED);
	restore(f, 0, 1, CONTROL_RESTORE_MAP);
}

static void a_paused_guest_stays_paused(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	assert_int_equal(monitor_request(&f->vm, CONTROL_PAUSE, NULL, NULL, 0, &f->reply), 0);
	take(f, &f->vm, 0, 0);
	assert_int_equal(monitor_request(&f->vm, CONTROL_STATUS, NULL, NULL, 0, &f->reply), 0);
	assert_int_equal(le64_get(f->reply.value[CONTROL_V_STATE]), VM_PAUSED);
	restore(f, 0, 1, CONTROL_RESTORE_MAP);
}

static void a_chain_of_diffs_is_the_whole(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, CONTROL_SNAPSHOT_TRACK, 1);
	for (int i = 1; i < 6; i++)
		take(f, &f->vm, CONTROL_SNAPSHOT_DIFF | CONTROL_SNAPSHOT_TRACK, 1);
	restore(f, 5, 6, CONTROL_RESTORE_EAGER);
}

static void generations_follow_one_another(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 0);
	for (int i = 0; i < 4; i++) {
		restore(f, i, 1, CONTROL_RESTORE_MAP);
		take(f, &f->clone, 0, 0);
		monitor_end(&f->clone);
	}
	restore(f, 4, 1, CONTROL_RESTORE_MAP);
}

static void a_diff_follows_a_restore(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 0);
	restore(f, 0, 1, CONTROL_RESTORE_MAP);
	take(f, &f->clone, CONTROL_SNAPSHOT_DIFF, 0);
	monitor_end(&f->clone);
	restore(f, 1, 2, CONTROL_RESTORE_MAP);
}

/* Most of memory was never asked for when the next one is taken: it has to be there all the same. */
static void what_follows_a_lazy_restore_is_the_whole(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 1);
	restore(f, 0, 1, CONTROL_RESTORE_LAZY);
	take(f, &f->clone, CONTROL_SNAPSHOT_DIFF | CONTROL_SNAPSHOT_TRACK, 1);
	take(f, &f->clone, 0, 0);
	monitor_end(&f->clone);
	restore(f, 1, 2, CONTROL_RESTORE_EAGER);
	monitor_end(&f->clone);
	restore(f, 2, 1, CONTROL_RESTORE_MAP);
}

static void a_diff_with_nothing_before_it_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	assert_int_equal(try_take(f, &f->vm, CONTROL_SNAPSHOT_DIFF, 0), -EINVAL);
	assert_non_null(strstr(f->reply.text, "take a full one first"));
}

/* The logs are on from then, but complete from no snapshot. */
static void a_diff_after_a_first_that_failed_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const uint64_t arg[4] = { 0 };
	int full[FILES];

	boot(f);
	for (int k = 0; k < FILES; k++)
		assert_true((full[k] = open("/dev/full", O_RDWR | O_CLOEXEC)) >= 0);
	assert_true(monitor_request(&f->vm, CONTROL_SNAPSHOT, arg, full, FILES, &f->reply) < 0);
	for (int k = 0; k < FILES; k++)
		close(full[k]);
	assert_int_equal(try_take(f, &f->vm, CONTROL_SNAPSHOT_DIFF, 0), -EINVAL);
	assert_non_null(strstr(f->reply.text, "take a full one first"));
}

static void an_announced_snapshot_is_cut_when_it_is_told_to(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	assert_int_equal(try_take(f, &f->vm, CONTROL_SNAPSHOT_ANNOUNCE, 0), CONTROL_STAGE_READY);
	assert_int_equal(monitor_request(&f->vm, CONTROL_SNAPSHOT_CUT, NULL, NULL, 0, &f->reply), CONTROL_STAGE_CUT);
	assert_int_equal(monitor_reply(&f->vm, &f->reply), 0);
	restore(f, 0, 1, CONTROL_RESTORE_MAP);
}

/* Whoever asked for it is gone: nothing has changed, and the next one can be taken. */
static void an_announced_snapshot_that_nobody_cuts_changes_nothing(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	assert_int_equal(try_take(f, &f->vm, CONTROL_SNAPSHOT_ANNOUNCE, 0), CONTROL_STAGE_READY);
	close(f->vm.control);
	monitor_connect(&f->vm);
	while (try_take(f, &f->vm, 0, 0) == -EBUSY) /* until it has seen the end of the connection */
		forget_last(f);
	assert_string_equal(f->reply.text, "");
	restore(f, 1, 1, CONTROL_RESTORE_MAP);
}

static void an_announced_snapshot_that_is_not_cut_in_time_changes_nothing(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t arg[4] = { CONTROL_SNAPSHOT_ANNOUNCE, 0, 0, CONTROL_CUT_WAIT_MS + 1 };

	boot(f);
	assert_int_equal(try_take(f, &f->vm, CONTROL_SNAPSHOT_DIFF, 0), -EINVAL); /* makes its files, which are left empty */
	assert_int_equal(monitor_request(&f->vm, CONTROL_SNAPSHOT, arg, f->file[0], FILES, &f->reply), -EINVAL);
	assert_non_null(strstr(f->reply.text, "90001 ms are too long"));
	arg[3] = 1;
	assert_int_equal(monitor_request(&f->vm, CONTROL_SNAPSHOT, arg, f->file[0], FILES, &f->reply), CONTROL_STAGE_READY);
	assert_int_equal(monitor_reply(&f->vm, &f->reply), -ETIMEDOUT);
	assert_non_null(strstr(f->reply.text, "did not say in time"));
	take(f, &f->vm, 0, 0);
	restore(f, 1, 1, CONTROL_RESTORE_MAP);
}

/* What was written before the one without a name is in the diff after it too. */
static void a_diff_passes_over_one_without_a_name(void **ctx)
{
	struct fixture *f = *ctx;
	struct ram_id first, parent;

	boot(f);
	take(f, &f->vm, CONTROL_SNAPSHOT_TRACK, 0);
	memcpy(&first, &f->reply.value[CONTROL_SV_ID_LOW], sizeof(first));
	take(f, &f->vm, CONTROL_SNAPSHOT_UNNAMED, 0);
	take(f, &f->vm, CONTROL_SNAPSHOT_DIFF, 0);
	memcpy(&parent, &f->reply.value[CONTROL_SV_PARENT_LOW], sizeof(parent));
	assert_memory_equal(&parent, &first, sizeof(parent));
	exchange(f, 1, 2);
	restore(f, 1, 2, CONTROL_RESTORE_MAP);
}

/* It switches the logs on for itself alone. */
static void one_without_a_name_makes_no_diff_possible(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, CONTROL_SNAPSHOT_UNNAMED, 0);
	assert_int_equal(try_take(f, &f->vm, CONTROL_SNAPSHOT_DIFF, 0), -EINVAL);
}

/* Refused, and the monitor is gone or of no use; never a guest that runs. */
static void new_pair(const struct fixture *f, const char *name, int fd[2])
{
	struct err err = ERR_INIT;
	char path[96];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s.%d", f->work, name, i);
		int low = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		fd[i] = fcntl(low, F_DUPFD, 20); /* inherited by the monitor, which has others below */
		assert_true(fd[i] >= 20);
		close(low);
	}
	if (lsmt_create(fd[0], fd[1], MIB(1), NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

static int cut_disks(struct fixture *f, uint64_t flags, uint64_t mask, const int pair[2])
{
	const uint64_t arg[4] = { CONTROL_SNAPSHOT_DISKS | flags, mask, 1, 0 };

	return monitor_request(&f->vm, CONTROL_SNAPSHOT, arg, pair, 2, &f->reply);
}

static void a_cut_of_a_disk_alone_seals_its_top_and_the_guest_runs_on(void **ctx)
{
	struct fixture *f = *ctx;
	char device[96], keep[2][32];
	const char *args[] = { "--kernel", f->kernel, "--memory", "64", "--device", device, keep[0], keep[1], NULL };
	int top[3][2];
	struct err err = ERR_INIT;
	struct lsmt_info info;

	monitor_require();
	monitor_write_payload(f->kernel, payload_begin, (size_t)(payload_end - payload_begin));
	for (int i = 0; i < 3; i++) {
		char name[8] = { 't', (char)('0' + i), 0 };

		new_pair(f, name, top[i]);
	}
	snprintf(device, sizeof(device), "blk,backend=layers,size=1M,top=%d:%d", top[0][0], top[0][1]);
	for (int i = 0; i < 2; i++)
		snprintf(keep[i], sizeof(keep[i]), "--keep-fd=%d", top[0][i]);
	monitor_start(&f->vm, f->work, args);
	monitor_hear(&f->vm, 'A');
	assert_int_equal(cut_disks(f, 0, 2, top[1]), -EINVAL);
	assert_non_null(strstr(f->reply.text, "no disks 0x2"));
	assert_int_equal(cut_disks(f, CONTROL_SNAPSHOT_TRACK, 1, top[1]), -EINVAL);
	assert_true(lsmt_inspect(top[0][0], "first", &info, &err) < 0);
	assert_int_equal(cut_disks(f, CONTROL_SNAPSHOT_ANNOUNCE, 1, top[1]), CONTROL_STAGE_READY);
	assert_int_equal(monitor_request(&f->vm, CONTROL_SNAPSHOT_CUT, NULL, NULL, 0, &f->reply), CONTROL_STAGE_CUT);
	assert_int_equal(monitor_reply(&f->vm, &f->reply), 0);
	assert_int_equal(lsmt_inspect(top[0][0], "first", &info, &err), 0);
	assert_int_equal(cut_disks(f, 0, 1, top[2]), 0);
	assert_int_equal(lsmt_inspect(top[1][0], "second", &info, &err), 0);
	assert_int_equal(monitor_request(&f->vm, CONTROL_STATUS, NULL, NULL, 0, &f->reply), 0);
	assert_int_equal(le64_get(f->reply.value[CONTROL_V_STATE]), VM_RUNNING);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 2; k++)
			close(top[i][k]);
}

static void refuses(struct fixture *f, enum control_restore_mode mode, const char *text)
{
	assert_true(try_restore(f, 0, 1, mode, 0) < 0);
	if (!strstr(f->reply.text, text))
		fail_msg("'%s' does not say '%s'", f->reply.text, text);
	monitor_end(&f->clone);
}

static void flip(int fd, off_t at)
{
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, at), 1);
	b ^= 1;
	assert_int_equal(pwrite(fd, &b, 1, at), 1);
}

static void damage_is_named_before_the_guest_runs(void **ctx)
{
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 1);
	flip(f->file[0][0], 200);
	refuses(f, CONTROL_RESTORE_EAGER, "state");
	flip(f->file[0][0], 200);
	flip(f->file[0][2], 100);
	refuses(f, CONTROL_RESTORE_EAGER, "ram.index");
	flip(f->file[0][2], 100);
	flip(f->file[0][1], RAM_DATA_START + 10);
	refuses(f, CONTROL_RESTORE_EAGER, "ram");
	flip(f->file[0][1], RAM_DATA_START + 10);
	restore(f, 0, 1, CONTROL_RESTORE_EAGER);
}

static void expect_status_file(const struct monitor *m, const char *text)
{
	char path[MONITOR_PATH + 16], said[1024];

	snprintf(path, sizeof(path), "%s/status", m->dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	ssize_t n = read(fd, said, sizeof(said) - 1);

	close(fd);
	assert_true(n > 0);
	said[n] = 0;
	if (!strstr(said, text))
		fail_msg("'%s' does not say '%s'", said, text);
}

/* Found when it is wanted, perhaps by the restore itself, or in the background: the VM ends, whether it has run or not. */
static void a_damaged_frame_ends_a_vm_whose_memory_arrives(void **ctx)
{
	const char *args[] = { "--restore", "--memory", "64", NULL };
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make(CONTROL_RESTORE), .seq = le32_make(1),
				     .arg = { le64_make(CONTROL_RESTORE_LAZY), le64_make(1) } };
	struct fixture *f = *ctx;

	boot(f);
	take(f, &f->vm, 0, 1);
	flip(f->file[0][1], RAM_DATA_START + 10);
	monitor_start(&f->clone, f->work, args);
	assert_int_equal(fd_send(f->clone.control, &q, sizeof(q), f->file[0], FILES), sizeof(q));
	assert_int_equal(monitor_wait(&f->clone), VM_EXIT_BASE + VM_STOP_ERROR);
	expect_status_file(&f->clone, "memory of the snapshot: ram: damaged: chunk ");
}

static void parts_of_two_snapshots_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	int other;

	boot(f);
	take(f, &f->vm, 0, 0);
	take(f, &f->vm, 0, 0);
	other = f->file[0][0];
	f->file[0][0] = f->file[1][0];
	f->file[1][0] = other;
	refuses(f, CONTROL_RESTORE_MAP, "two different snapshots");
}

/* Whichever of the files finds no space. */
static void a_full_disk_leaves_the_guest_running(void **ctx)
{
	struct fixture *f = *ctx;
	const uint64_t arg[4] = { 0 };

	boot(f);
	take(f, &f->vm, 0, 0);
	for (int k = 0; k < FILES; k++) {
		int full = open("/dev/full", O_RDWR | O_CLOEXEC), mine = f->file[0][k];

		f->file[0][k] = full;
		assert_int_equal(monitor_request(&f->vm, CONTROL_SNAPSHOT, arg, f->file[0], FILES, &f->reply), -ENOSPC);
		f->file[0][k] = mine;
		close(full);
		assert_int_equal(monitor_request(&f->vm, CONTROL_STATUS, NULL, NULL, 0, &f->reply), 0);
		assert_int_equal(le64_get(f->reply.value[CONTROL_V_STATE]), VM_RUNNING);
	}
	take(f, &f->vm, 0, 0);
	restore(f, 1, 1, CONTROL_RESTORE_MAP);
}

/* The request to end comes while memory is still being copied, at the slowest level. */
static void the_end_of_a_vm_waits_for_no_snapshot(void **ctx)
{
	struct fixture *f = *ctx;
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make(CONTROL_SNAPSHOT), .seq = le32_make(1) };
	struct monitor killer;

	boot(f);
	for (int k = 0; k < FILES; k++) {
		char name[96];

		snprintf(name, sizeof(name), "%s/file0.%d", f->work, k);
		f->file[0][k] = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	f->nsnapshots = 1;
	q.arg[1] = le64_make(RAM_LEVEL_MAX);
	assert_int_equal(fd_send(f->vm.control, &q, sizeof(q), f->file[0], FILES), sizeof(q));
	killer = f->vm;
	monitor_connect(&killer);
	assert_int_equal(monitor_request(&killer, CONTROL_KILL, NULL, NULL, 0, &f->reply), 0);
	close(killer.control);
	assert_int_equal(monitor_wait(&f->vm), VM_EXIT_BASE + VM_STOP_KILLED);
}

/*
 * Both requests lie before a monitor that stands still: it takes the second in the same turn of its loop as the first, so that memory
 * cannot be known to be full by then, whatever the machine's speed. The status of the first.
 */
static int end_while_memory_comes(struct fixture *f, enum control_restore_mode mode, uint64_t flags)
{
	const char *args[] = { "--restore", "--memory", "64", NULL };
	struct control_request q = { .version = le16_make(CONTROL_VERSION), .op = le16_make(CONTROL_RESTORE), .seq = le32_make(1) };
	struct control_request end = { .version = le16_make(CONTROL_VERSION), .op = le16_make(CONTROL_KILL), .seq = le32_make(2) };
	struct control_reply r = { 0 };
	struct monitor killer;
	int status;

	boot(f);
	take(f, &f->vm, 0, 1);
	monitor_start(&f->clone, f->work, args);
	killer = f->clone;
	monitor_connect(&killer);
	assert_int_equal(monitor_request(&killer, CONTROL_STATUS, NULL, NULL, 0, &f->reply), 0); /* accepted */
	assert_int_equal(kill(f->clone.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(f->clone.pid, &status, WUNTRACED), f->clone.pid);
	assert_true(WIFSTOPPED(status));
	q.arg[0] = le64_make((uint64_t)mode);
	q.arg[1] = le64_make(1);
	q.arg[3] = le64_make(flags);
	assert_int_equal(fd_send(f->clone.control, &q, sizeof(q), f->file[0], FILES), sizeof(q));
	assert_int_equal(fd_send(killer.control, &end, sizeof(end), NULL, 0), sizeof(end));
	assert_int_equal(kill(f->clone.pid, SIGCONT), 0);
	assert_int_equal(monitor_reply(&killer, &f->reply), 0);
	close(killer.control);
	assert_int_equal(monitor_wait(&f->clone), VM_EXIT_BASE + VM_STOP_KILLED);
	return recv(f->clone.control, &r, sizeof(r), 0) <= 0 ? -ECONNRESET : (int)le32_get(r.status);
}

static void the_end_of_a_vm_waits_for_no_restore(void **ctx)
{
	assert_true(end_while_memory_comes(*ctx, CONTROL_RESTORE_EAGER, 0) < 0); /* it was never restored */
}

static void the_end_of_a_vm_waits_for_no_page(void **ctx)
{
	assert_int_equal(end_while_memory_comes(*ctx, CONTROL_RESTORE_LAZY, 0), 0);
}

static void the_end_of_a_paused_vm_waits_for_no_page(void **ctx)
{
	assert_int_equal(end_while_memory_comes(*ctx, CONTROL_RESTORE_LAZY, CONTROL_RESTORE_PAUSED), 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_mapped_clone_goes_on_and_so_does_the_guest),
		T(a_filled_clone_goes_on),
		T(a_clone_whose_memory_arrives_on_demand_goes_on),
		T(the_highest_pages_of_a_large_guest_come_back),
		T(a_stopped_guest_ends_with_its_snapshot),
		T(a_paused_guest_stays_paused),
		T(a_chain_of_diffs_is_the_whole),
		T(generations_follow_one_another),
		T(a_diff_follows_a_restore),
		T(what_follows_a_lazy_restore_is_the_whole),
		T(a_diff_with_nothing_before_it_is_refused),
		T(a_diff_after_a_first_that_failed_is_refused),
		T(damage_is_named_before_the_guest_runs),
		T(a_damaged_frame_ends_a_vm_whose_memory_arrives),
		T(parts_of_two_snapshots_are_refused),
		T(an_announced_snapshot_is_cut_when_it_is_told_to),
		T(an_announced_snapshot_that_nobody_cuts_changes_nothing),
		T(an_announced_snapshot_that_is_not_cut_in_time_changes_nothing),
		T(a_diff_passes_over_one_without_a_name),
		T(one_without_a_name_makes_no_diff_possible),
		T(a_cut_of_a_disk_alone_seals_its_top_and_the_guest_runs_on),
		T(a_full_disk_leaves_the_guest_running),
		T(the_end_of_a_vm_waits_for_no_snapshot),
		T(the_end_of_a_vm_waits_for_no_restore),
		T(the_end_of_a_vm_waits_for_no_page),
		T(the_end_of_a_paused_vm_waits_for_no_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
