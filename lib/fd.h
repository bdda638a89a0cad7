/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scoped ownership of descriptors and memory, and whole-buffer I/O.
 *
 * `_cleanup_close_ int fd = -1;` closes at the end of the scope; `TAKE_FD(fd)` hands it on.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* Close if >= 0, keep errno; always returns -1 so that `fd = fd_close(fd)` resets. */
int fd_close(int fd);

static inline void fd_closep(int *fd)
{
	fd_close(*fd);
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

#define _cleanup_close_ __attribute__((cleanup(fd_closep)))
#define _cleanup_free_ __attribute__((cleanup(freep)))

#define TAKE_FD(fd)                    \
	({                             \
		int *_fd_ = &(fd);     \
		int _take_ = *_fd_;    \
		*_fd_ = -1;            \
		_take_;                \
	})

#define TAKE_PTR(p)                         \
	({                                  \
		__typeof__(p) *_p_ = &(p);  \
		__typeof__(p) _t_ = *_p_;   \
		*_p_ = NULL;                \
		_t_;                        \
	})

/* Transfer the whole buffer on a blocking descriptor, retrying EINTR and short transfers.
 * fd_read_full returns the bytes read (less than n only at end of file) or -errno.
 * fd_write_full returns 0 or -errno. */
ssize_t fd_read_full(int fd, void *buf, size_t n);
int fd_write_full(int fd, const void *buf, size_t n);

/* Same at an offset. */
ssize_t fd_pread_full(int fd, void *buf, size_t n, off_t off);
int fd_pwrite_full(int fd, const void *buf, size_t n, off_t off);

int fd_set_nonblock(int fd, int on); /* 0 or -errno */
int fd_set_cloexec(int fd, int on);  /* 0 or -errno */

/* Send or receive one message with up to `nfds` descriptors over a Unix socket. fd_recv sets
 * close-on-exec, stores at most max_fds and closes surplus ones. Returns bytes or -errno;
 * a truncated message is -EMSGSIZE. */
enum { FD_PASS_MAX = 253 /* the kernel's own limit */ };
ssize_t fd_send(int sock, const void *buf, size_t n, const int *fds, size_t nfds);
ssize_t fd_recv(int sock, void *buf, size_t n, int *ret_fds, size_t max_fds, size_t *ret_nfds);
