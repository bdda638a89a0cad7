/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of remote blobs: see blob_cache.h.
 *
 * Opening and removing race like this: who opens takes the shared flock and then looks whether the directory still has that very
 * file; who removes takes the exclusive one first. Header and sizes are written into empty files only, under a byte lock that is
 * held only for that. Data of a whole blob may have other names, in the directories of VMs and snapshots, so it is never written
 * to again: files that do not fit are removed and made anew.
 *
 * Trust: the files are the user's own, but may be damaged: a header that does not fit makes the blob new. What an image says of a
 * blob that is verified here cannot change it.
 */
#include "host/blob_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "host/file.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { OPEN_TRIES = 16, ENTRIES_MAX = 1 << 16 };
#define CHECK_LOCK (1ll << 40) /* above every chunk's number */
#define SETUP_LOCK (CHECK_LOCK + 1)

static struct remote_header *header_of(const struct blob *b) { return (struct remote_header *)b->table; }
static uint32_t *generations(const struct blob *b) { return (uint32_t *)(b->table + REMOTE_HEADER); }

int blob_cache_open(struct blob_cache *ret, struct err *err)
{
	char path[PATH_MAX];
	int r = file_cache_dir("blobs", path, sizeof(path), err);

	if (r < 0)
		return r;
	ret->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->fd < 0 ? err_errno(err, -errno, "open '%s'", path) : 0;
}

void blob_cache_close(struct blob_cache *c) { c->fd = fd_close(c->fd); }

void blob_close(struct blob *b)
{
	if (b->table == NULL)
		return;
	munmap(b->table, b->table_size);
	fd_close(b->data_fd);
	fd_close(b->chunks_fd);
	*b = BLOB_NONE;
}

static void read_boot(char ret[40])
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(ret, 0, 40);
	if (fd < 0 || fd_read_full(fd, ret, 36) != 36)
		memset(ret, 0, 40);
}

/* ---- opening ---- */

static bool name_of(const char *sha256, char ret[BLOB_CACHE_NAME + 1])
{
	if (strlen(sha256) != BLOB_CACHE_SHA256 || sha256[strspn(sha256, "0123456789abcdef")] != '\0')
		return false;
	snprintf(ret, BLOB_CACHE_NAME + 1, "sha256-%s", sha256);
	return true;
}

/* Both files, which are those that the directory has, held. */
static int open_held(const struct blob_cache *c, const char *name, int flags, int *ret_data, int *ret_chunks, struct err *err)
{
	for (int i = 0; i < OPEN_TRIES; i++) {
		_cleanup_close_ int dir = -1, data = -1, chunks = -1;
		struct stat held, there, data_held, data_there;

		if (flags & O_CREAT && mkdirat(c->fd, name, 0700) < 0 && errno != EEXIST)
			return err_errno(err, -errno, "create '%s' in the cache of blobs", name);
		dir = openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir < 0 && errno == ENOENT && flags & O_CREAT)
			continue;
		if (dir < 0)
			return err_errno(err, -errno, "open '%s' in the cache of blobs", name);
		chunks = openat(dir, "chunks", flags | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (chunks >= 0)
			data = openat(dir, "data", flags | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (data < 0 && errno == ENOENT && flags & O_CREAT)
			continue;
		if (data < 0)
			return err_errno(err, -errno, "open the files of '%s' in the cache of blobs", name);
		if (flock(chunks, LOCK_SH) < 0 || fstat(chunks, &held) < 0 || fstat(data, &data_held) < 0)
			return err_errno(err, -errno, "lock '%s' in the cache of blobs", name);
		if (fstatat(dir, "chunks", &there, AT_SYMLINK_NOFOLLOW) < 0 || there.st_ino != held.st_ino ||
		    fstatat(dir, "data", &data_there, AT_SYMLINK_NOFOLLOW) < 0 || data_there.st_ino != data_held.st_ino)
			continue;
		*ret_data = TAKE_FD(data);
		*ret_chunks = TAKE_FD(chunks);
		return 0;
	}
	return err_set(err, -EBUSY, "'%s' in the cache of blobs is removed again and again by another process", name);
}

/* Does the file hold the table of such a blob? */
static bool is_table(int chunks_fd, int data_fd, uint64_t size, unsigned *ret_shift)
{
	struct remote_header h;
	struct stat st, data;

	if (fstat(chunks_fd, &st) < 0 || fstat(data_fd, &data) < 0 || fd_pread_full(chunks_fd, &h, sizeof(h), 0) != sizeof(h) ||
	    !remote_header_check(&h, size, (uint64_t)st.st_size) || (uint64_t)data.st_size != size)
		return false;
	*ret_shift = le32_get(h.chunk_shift);
	return true;
}

/* Of empty files. */
static int make_table(int chunks_fd, int data_fd, uint64_t size)
{
	struct remote_header h = { .version = le32_make(REMOTE_VERSION),
				   .chunk_shift = le32_make(REMOTE_SHIFT),
				   .size = le64_make(size) };

	memcpy(h.magic, REMOTE_MAGIC, sizeof(h.magic));
	read_boot(h.boot);
	if (ftruncate(data_fd, (off_t)size) < 0 || ftruncate(chunks_fd, (off_t)remote_table_bytes(size, REMOTE_SHIFT)) < 0)
		return -errno;
	return fd_pwrite_full(chunks_fd, &h, sizeof(h), 0);
}

static int map_table(struct blob *b)
{
	void *p = mmap(NULL, b->table_size, PROT_READ | PROT_WRITE, MAP_SHARED, b->chunks_fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	b->table = p;
	return 0;
}

static bool is_other_boot(const struct blob *b)
{
	char boot[40];

	read_boot(boot);
	return b->table != NULL && memcmp(header_of(b)->boot, boot, sizeof(boot)) != 0;
}

static int lock_bytes(int fd, int cmd, short type, int64_t start, int64_t n)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = n };

	if (fcntl(fd, cmd, &l) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* Where a file system has no holes, the space stays taken and the data unused. */
static void punch(const struct blob *b, uint32_t first, uint32_t n)
{
	if (fallocate(b->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first << b->shift, (off_t)n << b->shift) < 0)
		return;
}

/* With their locks held. The table first: after a power cut it must not call present what is a hole. */
static void punch_absent(const struct blob *b, uint32_t first, uint32_t n)
{
	if (fdatasync(b->chunks_fd) < 0)
		return;
	for (uint32_t i = first, end; i < first + n; i = end + 1) {
		for (end = i; end < first + n && blob_generation(b, end) == 0; end++)
			;
		if (end > i)
			punch(b, i, end - i);
	}
}

static void forget(const struct blob *b, uint32_t chunk) { __atomic_store_n(&generations(b)[chunk], 0, __ATOMIC_SEQ_CST); }

/* Filled in another boot: what was not synced may be anything. */
static void drop_unsynced(struct blob *b)
{
	struct remote_header *h = header_of(b);
	uint32_t synced = le32_get(h->synced);

	if (!is_other_boot(b))
		return;
	if (!blob_is_verified(b) && lock_bytes(b->chunks_fd, F_OFD_SETLKW, F_WRLCK, 0, b->nchunks) == 0) {
		for (uint32_t i = 0; i < b->nchunks; i++)
			if (blob_generation(b, i) > synced)
				forget(b, i);
		punch_absent(b, 0, b->nchunks);
		blob_unlock(b, 0, b->nchunks);
	}
	read_boot(h->boot);
}

/* The size of a whole blob that is here; 0: there is none. */
static uint64_t whole_size(int chunks_fd, int data_fd)
{
	struct remote_header h;
	unsigned shift;
	uint64_t size;

	if (fd_pread_full(chunks_fd, &h, sizeof(h), 0) != sizeof(h) || !(le32_get(h.flags) & REMOTE_FLAG_VERIFIED))
		return 0;
	size = le64_get(h.size);
	return is_table(chunks_fd, data_fd, size, &shift) ? size : 0;
}

/* With the exclusive flock on its chunks. Data first: a table without it is nothing, and who opens both meanwhile waits for us. */
static int remove_held(const struct blob_cache *c, int dir, const char *name)
{
	if ((unlinkat(dir, "data", 0) < 0 && errno != ENOENT) || unlinkat(dir, "chunks", 0) < 0)
		return -errno;
	unlinkat(c->fd, name, AT_REMOVEDIR);
	return 0;
}

static int discard(const struct blob_cache *c, int chunks_fd, int data_fd, uint64_t size, const char *name, struct err *err)
{
	_cleanup_close_ int dir = openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	uint64_t whole = whole_size(chunks_fd, data_fd);
	struct stat held, there;
	int r = 0;

	if (whole != 0)
		return err_set(err, -EBADMSG, "blob %s has %llu bytes here, the image says %llu", name, (unsigned long long)whole,
			       (unsigned long long)size);
	if (flock(chunks_fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, -EBUSY, "'%s' in the cache of blobs is in use with another size than %llu bytes", name,
			       (unsigned long long)size);
	/* Taking the exclusive lock lets go of the shared one for a moment. */
	if (dir >= 0 && fstat(chunks_fd, &held) == 0 && fstatat(dir, "chunks", &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	    held.st_ino == there.st_ino)
		r = remove_held(c, dir, name);
	return r < 0 ? err_errno(err, r, "remove '%s' from the cache of blobs", name) : 0;
}

/* No valid table: make one, or make room for one, unless somebody has done so by now. */
static int set_up(const struct blob_cache *c, int chunks_fd, int data_fd, uint64_t size, const char *name, struct err *err)
{
	unsigned shift;
	struct stat st, data;
	int r = lock_bytes(chunks_fd, F_OFD_SETLKW, F_WRLCK, SETUP_LOCK, 1);

	if (r < 0 || fstat(chunks_fd, &st) < 0 || fstat(data_fd, &data) < 0)
		return err_errno(err, r < 0 ? r : -errno, "lock '%s' in the cache of blobs", name);
	if (!is_table(chunks_fd, data_fd, size, &shift)) {
		if (st.st_size > 0 || data.st_size > 0)
			r = discard(c, chunks_fd, data_fd, size, name, err);
		else if ((r = make_table(chunks_fd, data_fd, size)) < 0)
			err_errno(err, r, "write '%s' in the cache of blobs", name);
	}
	lock_bytes(chunks_fd, F_OFD_SETLK, F_UNLCK, SETUP_LOCK, 1);
	return r;
}

int blob_adopt(int data_fd, int chunks_fd, uint64_t size, const char *name, struct blob *ret, struct err *err)
{
	struct blob b = { .data_fd = data_fd, .chunks_fd = chunks_fd, .size = size };
	int r;

	if (!is_table(chunks_fd, data_fd, size, &b.shift))
		return err_set(err, -EBADMSG, "%s: these are not the cache's files of a blob of %llu bytes", name,
			       (unsigned long long)size);
	b.nchunks = remote_chunks(size, b.shift);
	b.table_size = remote_table_bytes(size, b.shift);
	r = map_table(&b);
	if (r < 0)
		return err_errno(err, r, "%s: map the table of chunks", name);
	*ret = b;
	return 0;
}

int blob_cache_get(const struct blob_cache *c, const char *sha256, uint64_t size, struct blob *ret, struct err *err)
{
	char name[BLOB_CACHE_NAME + 1];
	struct blob b = BLOB_NONE;
	unsigned shift;
	int r;

	if (!name_of(sha256, name))
		return err_set(err, -EINVAL, "'%.80s' is not a SHA-256 in hexadecimal", sha256);
	if (size == 0 || size > REMOTE_SIZE_MAX)
		return err_set(err, -EFBIG, "blob %.12s: %llu bytes; Coffer reads blobs of 1 byte to 1 TiB", sha256,
			       (unsigned long long)size);
	for (int i = 0; i < OPEN_TRIES; i++) {
		_cleanup_close_ int data = -1, chunks = -1;

		r = open_held(c, name, O_RDWR | O_CREAT, &data, &chunks, err);
		if (r < 0)
			return r;
		if (!is_table(chunks, data, size, &shift)) {
			r = set_up(c, chunks, data, size, name, err);
			if (r < 0)
				return r;
			continue; /* holding it may have been interrupted */
		}
		r = blob_adopt(data, chunks, size, name, &b, err);
		if (r < 0)
			return r;
		TAKE_FD(data);
		TAKE_FD(chunks);
		if (is_other_boot(&b)) {
			if (lock_bytes(b.chunks_fd, F_OFD_SETLKW, F_WRLCK, SETUP_LOCK, 1) == 0)
				drop_unsynced(&b);
			lock_bytes(b.chunks_fd, F_OFD_SETLK, F_UNLCK, SETUP_LOCK, 1);
		}
		__atomic_store_n(&header_of(&b)->used.raw, htole64((uint64_t)time(NULL)), __ATOMIC_RELAXED);
		*ret = b;
		return 0;
	}
	return err_set(err, -EBUSY, "'%s' in the cache of blobs is not left alone by another process", name);
}

int blob_cache_readers(const struct blob_cache *c, const char *sha256, int *ret_data, int *ret_chunks, struct err *err)
{
	char name[BLOB_CACHE_NAME + 1];

	if (!name_of(sha256, name))
		return err_set(err, -EINVAL, "'%.80s' is not a SHA-256 in hexadecimal", sha256);
	return open_held(c, name, O_RDONLY, ret_data, ret_chunks, err);
}

int blob_cache_open_whole(const char *sha256, uint64_t size, char *ret_path)
{
	char path[PATH_MAX], name[BLOB_CACHE_NAME + 1];
	_cleanup_close_ int data = -1, chunks = -1;
	struct blob_cache c = { .fd = -1 };
	int r;

	if (!name_of(sha256, name) || file_cache_dir("blobs", path, sizeof(path), NULL) < 0)
		return -ENOENT;
	c.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = c.fd < 0 ? -ENOENT : open_held(&c, name, O_RDONLY, &data, &chunks, NULL);
	blob_cache_close(&c);
	if (r < 0 || whole_size(chunks, data) != size)
		return -ENOENT;
	if (ret_path != NULL && snprintf(ret_path, PATH_MAX, "%.3900s/%s/data", path, name) >= PATH_MAX)
		return -ENOENT;
	return TAKE_FD(data);
}

/* ---- chunks ---- */

uint64_t blob_chunk_size(const struct blob *b, uint32_t chunk)
{
	uint64_t at = (uint64_t)chunk << b->shift;

	return MIN(1ull << b->shift, b->size - at);
}

uint32_t blob_count_present(const struct blob *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->nchunks; i++)
		n += blob_generation(b, i) != 0;
	return n;
}

int blob_lock(const struct blob *b, uint32_t chunk) { return lock_bytes(b->chunks_fd, F_OFD_SETLK, F_WRLCK, chunk, 1); }
void blob_unlock(const struct blob *b, uint32_t first, uint32_t n) { lock_bytes(b->chunks_fd, F_OFD_SETLK, F_UNLCK, first, n); }
int blob_lock_check(const struct blob *b) { return lock_bytes(b->chunks_fd, F_OFD_SETLK, F_WRLCK, CHECK_LOCK, 1); }
void blob_unlock_check(const struct blob *b) { lock_bytes(b->chunks_fd, F_OFD_SETLK, F_UNLCK, CHECK_LOCK, 1); }

uint32_t blob_counter(const struct blob *b)
{
	return le32toh(__atomic_load_n(&header_of(b)->counter.raw, __ATOMIC_RELAXED));
}

/* A generation never given before; after four thousand million of them the first ones come again, which no reader
 * is old enough to take for its own. */
static uint32_t next_generation(struct blob *b)
{
	uint32_t *counter = &header_of(b)->counter.raw, old = __atomic_load_n(counter, __ATOMIC_RELAXED), next;

	do {
		next = le32toh(old) + 1;
		next += next == 0;
	} while (!__atomic_compare_exchange_n(counter, &old, htole32(next), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return next;
}

int blob_fill(struct blob *b, uint32_t chunk, const void *data)
{
	int r = fd_pwrite_full(b->data_fd, data, blob_chunk_size(b, chunk), (off_t)chunk << b->shift);

	if (r < 0)
		return r;
	__atomic_store_n(&generations(b)[chunk], htole32(next_generation(b)), __ATOMIC_RELEASE);
	return 0;
}

void blob_drop(struct blob *b, uint32_t first, uint32_t n)
{
	if (lock_bytes(b->chunks_fd, F_OFD_SETLKW, F_WRLCK, first, n) < 0)
		return;
	for (uint32_t i = first; i < first + n; i++)
		forget(b, i);
	punch_absent(b, first, n);
	blob_unlock(b, first, n);
}

int blob_sync(struct blob *b)
{
	uint32_t upto = blob_counter(b);

	/* A generation up to this one may still be on its way into the table; its chunk is then not called synced on disk
	 * before its data is, because whoever fills it has written the data first. */
	if (fdatasync(b->data_fd) < 0)
		return -errno;
	__atomic_store_n(&header_of(b)->synced.raw, htole32(upto), __ATOMIC_RELEASE);
	return 0;
}

void blob_set_verified(struct blob *b)
{
	__atomic_fetch_or(&header_of(b)->flags.raw, htole32(REMOTE_FLAG_VERIFIED), __ATOMIC_RELEASE);
}

/* ---- the bound ---- */

struct entry {
	char name[BLOB_CACHE_NAME + 1];
	uint64_t bytes, used; /* bytes: that removing it would free */
	bool linked;          /* data have other names */
};

static int by_use(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->used < y->used ? -1 : x->used > y->used;
}

static bool measure(const struct blob_cache *c, const char *name, struct entry *ret)
{
	_cleanup_close_ int dir = openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), chunks = -1;
	struct remote_header h = { .version = le32_make(0) };
	struct stat data, table;

	if (dir < 0 || fstatat(dir, "data", &data, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fstatat(dir, "chunks", &table, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	chunks = openat(dir, "chunks", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (chunks >= 0 && fd_pread_full(chunks, &h, sizeof(h), 0) != sizeof(h))
		h.used = le64_make(0);
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->linked = data.st_nlink > 1;
	ret->bytes = ((ret->linked ? 0 : (uint64_t)data.st_blocks) + (uint64_t)table.st_blocks) * 512;
	ret->used = le64_get(h.used);
	return true;
}

/* All blobs; *ret to be freed. */
static size_t list(const struct blob_cache *c, struct entry **ret)
{
	int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct entry *entries = NULL;
	size_t n = 0, room = 0;
	struct dirent *e;

	*ret = NULL;
	if (dir == NULL) {
		fd_close(fd);
		return 0;
	}
	while (n < ENTRIES_MAX && (e = readdir(dir)) != NULL) {
		if (strncmp(e->d_name, "sha256-", 7) != 0 || strlen(e->d_name) != BLOB_CACHE_NAME)
			continue;
		if (n == room) {
			struct entry *more = realloc(entries, (room = room * 2 + 16) * sizeof(*entries));

			if (more == NULL)
				break;
			entries = more;
		}
		n += measure(c, e->d_name, &entries[n]);
	}
	closedir(dir);
	*ret = entries;
	return n;
}

uint64_t blob_cache_usage(const struct blob_cache *c)
{
	_cleanup_free_ struct entry *e = NULL;
	size_t n = list(c, &e);
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += e[i].bytes;
	return sum;
}

int blob_cache_remove(const struct blob_cache *c, const char *name)
{
	_cleanup_close_ int dir = openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), chunks = -1;
	struct stat held, there;

	if (dir < 0)
		return -errno;
	chunks = openat(dir, "chunks", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (chunks < 0)
		return -errno;
	if (flock(chunks, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	/* Removed and made anew since it was opened: in use. */
	if (fstat(chunks, &held) < 0 || fstatat(dir, "chunks", &there, AT_SYMLINK_NOFOLLOW) < 0 || held.st_ino != there.st_ino)
		return -EBUSY;
	return remove_held(c, dir, name);
}

uint64_t blob_cache_evict(const struct blob_cache *c, uint64_t bytes)
{
	_cleanup_free_ struct entry *e = NULL;
	size_t n = list(c, &e);
	uint64_t freed = 0;

	if (n == 0)
		return 0;
	qsort(e, n, sizeof(*e), by_use);
	for (size_t i = 0; i < n && freed < bytes; i++)
		if (!e[i].linked && blob_cache_remove(c, e[i].name) == 0)
			freed += e[i].bytes;
	return freed;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t blob_evict_chunks(struct blob *b, uint64_t bytes, uint32_t keep)
{
	_cleanup_free_ uint32_t *g = malloc((size_t)b->nchunks * sizeof(*g));
	uint64_t want = (bytes + (1ull << b->shift) - 1) >> b->shift, freed = 0;
	uint32_t n = 0, limit;
	bool synced;

	if (g == NULL || bytes == 0 || blob_lock_check(b) < 0)
		return 0; /* also when another process is about to call it verified */
	for (uint32_t i = 0; i < b->nchunks && !blob_is_verified(b); i++) {
		uint32_t one = blob_generation(b, i);

		if (one != 0 && one <= keep)
			g[n++] = one;
	}
	if (n > 0)
		qsort(g, n, sizeof(*g), by_number);
	limit = n > 0 ? g[MIN(want, (uint64_t)n) - 1] : 0;
	n = 0;
	for (uint32_t i = 0; i < b->nchunks && limit > 0; i++) {
		uint32_t one = blob_generation(b, i);

		if (one == 0 || one > limit || blob_lock(b, i) < 0)
			continue;
		forget(b, i);
		g[n++] = i;
		freed += blob_chunk_size(b, i);
	}
	/* As in punch_absent: once for all of them. */
	synced = n == 0 || fdatasync(b->chunks_fd) == 0;
	for (uint32_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && g[end] == g[end - 1] + 1; end++)
			;
		if (synced)
			punch(b, g[i], end - i);
		blob_unlock(b, g[i], end - i);
	}
	blob_unlock_check(b);
	return freed;
}
