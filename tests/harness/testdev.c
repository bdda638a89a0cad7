/* SPDX-License-Identifier: Apache-2.0 */
/* A virtio device made for tests: see testdev.h. */
#include "tests/harness/testdev.h"

#include <errno.h>
#include <string.h>

#define STATE_SELF struct testdev_state
STATE_SCHEMA(testdev, 1, TESTDEV_STATE);
#undef STATE_SELF

static struct testdev *from(struct virtio_device *vd)
{
	return (struct testdev *)vd;
}

static uint64_t features(struct virtio_device *vd)
{
	(void)vd;
	return TESTDEV_F_ONE | TESTDEV_F_HIGH;
}

static void config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	from(vd)->config_len = len;
	memcpy(data, from(vd)->state.config + offset, len);
}

static void config_write(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len)
{
	from(vd)->config_len = len;
	memcpy(from(vd)->state.config + offset, data, len);
}

static void activate(struct virtio_device *vd)
{
	from(vd)->activated++;
}

static void deactivate(struct virtio_device *vd)
{
	from(vd)->deactivated++;
	from(vd)->state.held = 0;
}

static void queue_ready(struct virtio_device *vd, uint32_t qi)
{
	struct testdev *t = from(vd);
	struct virtio_queue *q = &vd->vq[qi];
	int r = 0;

	t->ready[qi]++;
	while ((qi == 0 || !t->state.held) && (r = vq_pop(q, &t->chain)) > 0) {
		if (qi == 1) {
			t->state.held = 1;
			t->state.held_head = t->chain.head;
		} else {
			vq_push(q, t->chain.head, (uint32_t)t->chain.write_len);
		}
	}
	if (r < 0)
		virtio_fail(vd, "malformed request");
	else if (qi == 0)
		virtio_signal_queue(vd, qi);
	vq_enable_notify(q);
}

void testdev_complete(struct device *d)
{
	struct testdev *t = testdev_from(d);

	device_lock(d);
	if (t->state.held) {
		t->state.held = 0;
		vq_push(&t->vd.vq[1], t->state.held_head, 0);
		virtio_signal_queue(&t->vd, 1);
	}
	device_unlock(d);
}

static void queue_stop(struct virtio_device *vd, uint32_t q)
{
	from(vd)->stopped++;
	if (q == 1)
		from(vd)->state.held = 0;
}

static void reset(struct device *d)
{
	testdev_from(d)->resets++;
	memset(&testdev_from(d)->state, 0, sizeof(testdev_from(d)->state));
}

static int quiesce(struct device *d)
{
	testdev_from(d)->quiesced++;
	return 0;
}

static void resume(struct device *d)
{
	testdev_from(d)->resumed++;
}

static int check(struct device *d, struct err *err)
{
	const struct testdev_state *s = &testdev_from(d)->state;

	if (s->held > 1)
		return err_set(err, -EINVAL, "held is %u", s->held);
	return 0;
}

static const struct virtio_ops virtio = {
	.device_id = TESTDEV_ID,
	.nqueues_max = 2,
	.queue_size = TESTDEV_QUEUE_SIZE,
	.features = features,
	.config_size = TESTDEV_CONFIG,
	.config_read = config_read,
	.config_write = config_write,
	.activate = activate,
	.queue_ready = queue_ready,
	.deactivate = deactivate,
	.queue_stop = queue_stop,
};

const struct device_ops testdev_device = {
	.name = "testdev",
	.help = "for tests",
	.bus = DEVICE_VIRTIO,
	.instances = 4,
	.instance_size = sizeof(struct testdev),
	.schema = &testdev_schema,
	.state_offset = offsetof(struct testdev, state),
	.virtio = &virtio,
	.reset = reset,
	.quiesce = quiesce,
	.resume = resume,
	.check = check,
};
