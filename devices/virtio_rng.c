/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-rng: entropy for the guest (virtio 1.2, 5.4).
 *
 * Guest contract: one queue; each request's writable part is filled with random bytes, at most RNG_REQUEST_MAX of
 * them; the used length says how many. A request without a writable part completes with 0.
 * How it works: getrandom through a small buffer on the stack, or a file of the user's choice. After RNG_BURST requests
 * the device yields to the rest of the main loop and kicks itself.
 * Threads: main, under the device lock.
 * Snapshot: requests complete at once, so there is no state but the queue.
 */
/* syscalls(main): getrandom read write */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "devices/virtio.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { RNG_REQUEST_MAX = 64 << 10, RNG_CHUNK = 256, RNG_BURST = 64 };

struct virtio_rng {
	struct virtio_device vd;
	int fd; /* source, -1: getrandom */
	struct vq_chain chain;
};

struct rng_options {
	char *source;
};

static const struct opt rng_options[] = {
	OPT_STRING(struct rng_options, source, "source", 0, "FILE",
		   "take entropy from this file or device instead of the kernel's generator"),
	OPT_END,
};

static struct virtio_rng *from_device(struct device *d)
{
	return container_of(d, struct virtio_rng, vd.dev);
}

static int rng_open(struct device *d, const void *options, struct err *err)
{
	const struct rng_options *o = options;
	struct virtio_rng *rng = from_device(d);

	rng->fd = -1;
	if (!o->source)
		return 0;
	/* O_NONBLOCK: a source that has nothing must not hold up the main loop. */
	rng->fd = open(o->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (rng->fd < 0)
		return err_errno(err, -errno, "open '%s'", o->source);
	return 0;
}

static void rng_close(struct device *d)
{
	struct virtio_rng *rng = from_device(d);

	if (rng->fd > 0)
		fd_close(rng->fd);
	rng->fd = -1;
}

/* Up to len bytes, fewer when the source has no more now. */
static size_t fill(struct virtio_rng *rng, void *buf, size_t len)
{
	ssize_t n = rng->fd < 0 ? getrandom(buf, len, 0) : read(rng->fd, buf, len);

	return n < 0 ? 0 : (size_t)n;
}

static uint32_t serve(struct virtio_rng *rng, struct virtio_queue *q)
{
	uint64_t want = MIN(rng->chain.write_len, (uint64_t)RNG_REQUEST_MAX);
	uint64_t done = 0;

	while (done < want) {
		uint8_t buf[RNG_CHUNK];
		size_t n = fill(rng, buf, MIN(want - done, (uint64_t)sizeof(buf)));

		if (n == 0)
			break;
		n = vq_chain_write(q, &rng->chain, done, buf, n);
		explicit_bzero(buf, sizeof(buf));
		done += n;
	}
	return (uint32_t)done;
}

static void rng_queue_ready(struct virtio_device *vd, uint32_t qi)
{
	struct virtio_rng *rng = from_device(&vd->dev);
	struct virtio_queue *q = &vd->vq[qi];
	int served = 0, r;

	do {
		vq_disable_notify(q);
		while ((r = vq_pop(q, &rng->chain)) > 0) {
			vq_push(q, rng->chain.head, serve(rng, q));
			if (++served == RNG_BURST) {
				virtio_signal_queue(vd, qi);
				virtio_kick(vd, qi);
				return;
			}
		}
	} while (r == 0 && vq_enable_notify(q));
	virtio_signal_queue(vd, qi);
	if (r < 0)
		virtio_fail(vd, "malformed request");
}

static const struct virtio_ops rng_virtio = {
	.device_id = 4,
	.nqueues_max = 1,
	.queue_size = 64,
	.queue_ready = rng_queue_ready,
};

const struct device_ops virtio_rng_device = {
	.name = "rng",
	.help = "entropy source (virtio-rng)",
	.bus = DEVICE_VIRTIO,
	.instances = 1,
	.instance_size = sizeof(struct virtio_rng),
	.options = rng_options,
	.opt_size = sizeof(struct rng_options),
	.test_options = "source=/dev/zero",
	.virtio = &rng_virtio,
	.open = rng_open,
	.close = rng_close,
};
