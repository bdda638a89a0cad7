/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-input: a keyboard, an absolute pointer or a touch screen (virtio 1.2, 5.8).
 *
 * Guest contract: queue 0 takes events, one in each buffer, queue 1 says what the guest wants to be lit. The keyboard has the codes
 * of Linux up to KEYBOARD_LAST and leaves repetition to the guest (EV_REP); pointer and touch screen have axes from 0 to
 * DISPLAY_POINTER_MAX over the whole of the screen; touches are of protocol B, DISPLAY_TOUCHES_MAX slots. The pointer's wheels
 * have both resolutions: who sends REL_WHEEL sends REL_WHEEL_HI_RES too.
 *
 * How it works: the events of one moment, with the SYN_REPORT that ends them, wait in a ring until the guest has a buffer for each.
 * Only where they could never fit, since the driver has no more buffers than it has shown, do they go out in parts.
 * A ring without room for a moment's events refuses all of them; the sender comes again when the driver has taken what there was.
 * It has when it has made as many buffers available as it was given back: `given` counts the difference. That is asked for by the
 * notification of the last of them alone.
 *
 * Threads: queues and injection in main, the rest on vCPU threads, all under the device lock.
 * Trust: buffers, requests and the config space's selectors are the guest's. Events are checked against what the device has, so a
 * client cannot tell the guest of keys that do not exist.
 * Snapshot: selectors, pressed keys, touches, lights, the ring, `given`. Who held a key down is gone after a restore: `restored`
 * lets go of all of them.
 */
#include "devices/virtio_input.h"

#include <errno.h>
#include <linux/input.h>
#include <linux/virtio_input.h>
#include <string.h>

#include "devices/backend/display.h"
#include "devices/virtio.h"
#include "lib/util.h"

enum { QUEUE_EVENT, QUEUE_STATUS, NQUEUES };
enum {
	KEYBOARD_LAST = KEY_MICMUTE, /* 248: what X can have */
	KEYS = 0x300,                /* codes of EV_KEY; multiple of 8 */
	LEDS = 1 << LED_NUML | 1 << LED_CAPSL | 1 << LED_SCROLLL,
	TRACKING_MAX = 65535,
	WHEEL_MAX = 1 << 20,
	STATUS_BURST = 64, STATUS_EVENTS_MAX = 64,
	RELEASE_MAX = 32, /* keys let go of at one moment */
	VENDOR = 0x1af4,
};

#define VIRTIO_INPUT_STATE(F, A, S, V)                                                   \
	F(1, 1, u8, select)                                                              \
	F(2, 1, u8, subsel)                                                              \
	F(3, 1, u32, leds)                                                               \
	A(4, 1, u8, keys, KEYS / 8) /* pressed */                                        \
	F(5, 1, u16, touches)       /* slots with a finger */                            \
	F(6, 1, u16, slot)          /* the one that events of touch are about */         \
	F(7, 1, u16, given)         /* buffers given back that did not come again */     \
	F(8, 1, u16, seen)          /* the driver's index when that was counted */       \
	F(9, 1, u16, head)          /* of the ring */                                    \
	F(10, 1, u16, count)                                                             \
	A(11, 1, u16, type, VIRTIO_INPUT_PENDING)                                        \
	A(12, 1, u16, code, VIRTIO_INPUT_PENDING)                                        \
	A(13, 1, u32, value, VIRTIO_INPUT_PENDING)
STATE_STRUCT(virtio_input, VIRTIO_INPUT_STATE);
#define STATE_SELF struct virtio_input_state
STATE_SCHEMA(virtio_input, 1, VIRTIO_INPUT_STATE);
#undef STATE_SELF

struct virtio_input {
	struct virtio_device vd;
	struct virtio_input_state state;
	enum display_input_kind kind;
	bool shown;     /* the display knows us */
	bool waiting;   /* somebody wants to hear when all is taken */
	bool releasing; /* what is pressed is to be let go of */
	struct vq_chain chain;
};

static const struct {
	const char *word, *name, *serial;
} kinds[DISPLAY_INPUT_KINDS] = {
	[DISPLAY_KEYBOARD] = { "keyboard", "Coffer keyboard", "coffer-keyboard" },
	[DISPLAY_POINTER] = { "pointer", "Coffer pointer", "coffer-pointer" },
	[DISPLAY_TOUCH] = { "touch", "Coffer touch screen", "coffer-touch" },
};

/* What each kind has: codes first to last of a type; axes with their largest value. */
static const struct range {
	uint8_t kind;
	uint16_t type, first, last, max;
} ranges[] = {
	{ DISPLAY_KEYBOARD, EV_KEY, KEY_ESC, KEYBOARD_LAST, 0 },
	{ DISPLAY_KEYBOARD, EV_LED, LED_NUML, LED_SCROLLL, 0 },
	{ DISPLAY_KEYBOARD, EV_REP, REP_DELAY, REP_PERIOD, 0 },
	{ DISPLAY_POINTER, EV_KEY, BTN_LEFT, BTN_TASK, 0 },
	{ DISPLAY_POINTER, EV_REL, REL_HWHEEL, REL_HWHEEL, 0 },
	{ DISPLAY_POINTER, EV_REL, REL_WHEEL, REL_WHEEL, 0 },
	{ DISPLAY_POINTER, EV_REL, REL_WHEEL_HI_RES, REL_HWHEEL_HI_RES, 0 },
	{ DISPLAY_POINTER, EV_ABS, ABS_X, ABS_Y, DISPLAY_POINTER_MAX },
	{ DISPLAY_TOUCH, EV_KEY, BTN_TOUCH, BTN_TOUCH, 0 },
	{ DISPLAY_TOUCH, EV_ABS, ABS_X, ABS_Y, DISPLAY_POINTER_MAX },
	{ DISPLAY_TOUCH, EV_ABS, ABS_MT_SLOT, ABS_MT_SLOT, DISPLAY_TOUCHES_MAX - 1 },
	{ DISPLAY_TOUCH, EV_ABS, ABS_MT_POSITION_X, ABS_MT_POSITION_Y, DISPLAY_POINTER_MAX },
	{ DISPLAY_TOUCH, EV_ABS, ABS_MT_TRACKING_ID, ABS_MT_TRACKING_ID, TRACKING_MAX },
};

struct input_options {
	char *kind;
};

static const struct opt input_options[] = {
	OPT_STRING(struct input_options, kind, "kind", 0, "KIND", "keyboard (the default), pointer or touch"),
	OPT_END,
};

static struct virtio_input *from_device(struct device *d)
{
	return container_of(d, struct virtio_input, vd.dev);
}

static const struct range *find_range(const struct virtio_input *vi, uint32_t type, uint32_t code)
{
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		if (ranges[i].kind == vi->kind && ranges[i].type == type && code >= ranges[i].first && code <= ranges[i].last)
			return &ranges[i];
	return NULL;
}

/* May a client say this? */
static bool event_valid(const struct virtio_input *vi, uint32_t type, uint32_t code, uint32_t value)
{
	const struct range *r = find_range(vi, type, code);

	if (!r)
		return false;
	switch (type) {
	case EV_KEY:
		return value <= 2;
	case EV_REL:
		return (int32_t)value >= -WHEEL_MAX && (int32_t)value <= WHEEL_MAX;
	case EV_ABS:
		return value <= r->max || (code == ABS_MT_TRACKING_ID && (int32_t)value == -1);
	default:
		return false; /* lights and repetition are for the guest to say */
	}
}

/* So many events, in moments of at least one each? SYN_REPORT ends those before the last. */
static bool events_valid(const struct virtio_input *vi, const struct display_input_event *event, size_t n)
{
	bool begun = false;

	for (size_t i = 0; i < n; i++) {
		uint32_t type = le16_get(event[i].type), code = le16_get(event[i].code), value = le32_get(event[i].value);
		bool end = type == EV_SYN && code == SYN_REPORT && value == 0;

		if (end ? !begun : !event_valid(vi, type, code, value))
			return false;
		begun = !end;
	}
	return begun;
}

/* The ring. */

static uint32_t room(const struct virtio_input_state *st)
{
	return VIRTIO_INPUT_PENDING - st->count;
}

static bool is_end(const struct virtio_input_state *st, uint32_t i)
{
	return st->type[i] == EV_SYN && st->code[i] == SYN_REPORT;
}

/* Events up to the next SYN_REPORT, with it. */
static uint32_t moment_len(const struct virtio_input_state *st)
{
	uint32_t n = 0;

	while (n < st->count && !is_end(st, (st->head + n) % VIRTIO_INPUT_PENDING))
		n++;
	return MIN(n + 1, (uint32_t)st->count);
}

static void append(struct virtio_input_state *st, uint32_t type, uint32_t code, uint32_t value)
{
	uint32_t i = (uint32_t)(st->head + st->count++) % VIRTIO_INPUT_PENDING;

	st->type[i] = (uint16_t)type;
	st->code[i] = (uint16_t)code;
	st->value[i] = value;
}

static void remember(struct virtio_input_state *st, uint32_t type, uint32_t code, uint32_t value)
{
	if (type == EV_KEY && value)
		st->keys[code / 8] |= (uint8_t)(1u << code % 8);
	else if (type == EV_KEY)
		st->keys[code / 8] &= (uint8_t)~(1u << code % 8);
	else if (type == EV_ABS && code == ABS_MT_SLOT)
		st->slot = (uint16_t)value;
	else if (type == EV_ABS && code == ABS_MT_TRACKING_ID && (int32_t)value < 0)
		st->touches &= (uint16_t)~(1u << st->slot);
	else if (type == EV_ABS && code == ABS_MT_TRACKING_ID)
		st->touches |= (uint16_t)(1u << st->slot);
}

static void say(struct virtio_input_state *st, uint32_t type, uint32_t code, uint32_t value)
{
	append(st, type, code, value);
	remember(st, type, code, value);
}

static bool anything_pressed(const struct virtio_input_state *st)
{
	static const uint8_t none[KEYS / 8];

	return st->touches || memcmp(st->keys, none, sizeof(none)) != 0;
}

/* Let go of what is pressed, as far as the ring has room: what is left comes with the next call. */
static void release(struct virtio_input *vi)
{
	struct virtio_input_state *st = &vi->state;
	uint32_t n = 0;

	if (!vi->releasing || room(st) < RELEASE_MAX + 2 * DISPLAY_TOUCHES_MAX + 1)
		return;
	for (uint32_t i = 0; i < DISPLAY_TOUCHES_MAX; i++) {
		if (st->touches >> i & 1) {
			say(st, EV_ABS, ABS_MT_SLOT, i);
			say(st, EV_ABS, ABS_MT_TRACKING_ID, (uint32_t)-1);
			n++;
		}
	}
	for (uint32_t code = 0; code < KEYS && n < RELEASE_MAX; code++) {
		if (st->keys[code / 8] >> code % 8 & 1) {
			say(st, EV_KEY, code, 0);
			n++;
		}
	}
	if (n)
		append(st, EV_SYN, SYN_REPORT, 0);
	vi->releasing = anything_pressed(st);
}

/* The queue of events. */

static bool listening(const struct virtio_input *vi)
{
	return vi->vd.active && !(vi->vd.common.status & VIRTIO_S_NEEDS_RESET) && vi->vd.common.queues[QUEUE_EVENT].ready;
}

static bool idle(const struct virtio_input *vi)
{
	return vi->state.count == 0 && vi->state.given == 0 && !vi->releasing;
}

static void tell_taken(struct virtio_input *vi)
{
	if (!vi->waiting)
		return;
	vi->waiting = false;
	if (vi->vd.dev.vm->display)
		display_taken(vi->vd.dev.vm->display, vi->kind);
}

/* `available` buffers are there: how many of those given back have come again? */
static void account(struct virtio_input *vi, uint32_t available)
{
	struct virtio_input_state *st = &vi->state;
	uint16_t now = (uint16_t)(vi->vd.common.queues[QUEUE_EVENT].next_avail + available);
	uint16_t added = (uint16_t)(now - st->seen);

	st->given = (uint16_t)(st->given - MIN(added, st->given));
	st->seen = now;
}

static int send_one(struct virtio_input *vi)
{
	struct virtio_input_state *st = &vi->state;
	struct virtio_queue *q = &vi->vd.vq[QUEUE_EVENT];
	const struct virtio_input_event e = {
		.type = htole16(st->type[st->head]),
		.code = htole16(st->code[st->head]),
		.value = htole32(st->value[st->head]),
	};
	int r = vq_pop(q, &vi->chain);

	if (r <= 0)
		return r < 0 ? r : -EBADMSG; /* it was announced */
	if (vq_chain_write(q, &vi->chain, 0, &e, sizeof(e)) != sizeof(e))
		return -EBADMSG;
	st->head = (uint16_t)((st->head + 1u) % VIRTIO_INPUT_PENDING);
	st->count--;
	st->given++;
	return vq_push(q, vi->chain.head, sizeof(e));
}

/* Whole moments, into `available` buffers; returns how many are left, or what is wrong with one. */
static int send(struct virtio_input *vi, uint32_t available)
{
	bool sent = false;
	int r = 0;

	while (vi->state.count && available && r == 0) {
		uint32_t n = moment_len(&vi->state);

		if (n > available) {
			if (vi->state.given)
				break;
			n = available; /* it has no more of them than these */
		}
		for (uint32_t i = 0; i < n && r == 0; i++)
			r = send_one(vi);
		available -= n;
		sent = true;
	}
	if (sent)
		virtio_signal_queue(&vi->vd, QUEUE_EVENT);
	return r < 0 ? r : (int)available;
}

static void serve_events(struct virtio_input *vi)
{
	struct virtio_input_state *st = &vi->state;
	struct virtio_queue *q = &vi->vd.vq[QUEUE_EVENT];
	int left;

	if (!virtio_queue_live(&vi->vd, QUEUE_EVENT))
		return;
	do {
		left = vq_available(q);
		if (left >= 0) {
			account(vi, (uint32_t)left);
			release(vi);
			left = send(vi, (uint32_t)left);
		}
		if (left < 0) {
			virtio_fail(&vi->vd, "malformed event buffer");
			break;
		}
		vq_disable_notify(q);
	} while (!idle(vi) && vq_notify_at(q, (uint16_t)((uint32_t)left + (st->count ? 1u : MAX(st->given, 1u)))));
	if (left < 0 || idle(vi))
		tell_taken(vi);
}

static int take(struct virtio_input *vi, const struct display_input_event *event, size_t n)
{
	struct virtio_input_state *st = &vi->state;

	if (n < 1 || n > DISPLAY_EVENTS_MAX)
		return -EINVAL;
	if (!listening(vi))
		return -ENODEV;
	if (!events_valid(vi, event, n))
		return -EINVAL;
	vi->waiting = true;
	if (vi->vd.dev.quiesced || vi->releasing || room(st) < n + 1)
		return -EAGAIN;
	for (size_t i = 0; i < n; i++)
		say(st, le16_get(event[i].type), le16_get(event[i].code), le32_get(event[i].value));
	append(st, EV_SYN, SYN_REPORT, 0);
	serve_events(vi);
	return 0;
}

int virtio_input_inject(struct device *d, const struct display_input_event *event, size_t n)
{
	int r;

	device_lock(d);
	r = take(from_device(d), event, n);
	device_unlock(d);
	return r;
}

bool virtio_input_idle(struct device *d)
{
	bool yes;

	device_lock(d);
	yes = idle(from_device(d));
	device_unlock(d);
	return yes;
}

uint32_t virtio_input_leds(struct device *d)
{
	uint32_t leds;

	device_lock(d);
	leds = from_device(d)->state.leds;
	device_unlock(d);
	return leds;
}

static int input_inject(void *opaque, const struct display_input_event *event, size_t n)
{
	return virtio_input_inject(opaque, event, n);
}

static const struct display_input_ops display_ops = { .inject = input_inject };

/* The queue of what is to be lit. */

static void take_status(struct virtio_input *vi)
{
	struct virtio_queue *q = &vi->vd.vq[QUEUE_STATUS];
	struct virtio_input_event e;
	uint32_t leds = vi->state.leds;

	for (uint32_t i = 0; i < STATUS_EVENTS_MAX; i++) {
		if (vq_chain_read(q, &vi->chain, (uint64_t)i * sizeof(e), &e, sizeof(e)) != sizeof(e))
			break;
		uint32_t type = le16toh(e.type), code = le16toh(e.code);

		if (type == EV_LED && find_range(vi, type, code))
			leds = le32toh(e.value) ? leds | 1u << code : leds & ~(1u << code);
	}
	if (leds == vi->state.leds)
		return;
	vi->state.leds = leds;
	if (vi->vd.dev.vm->display)
		display_leds(vi->vd.dev.vm->display, leds);
}

static void serve_status(struct virtio_input *vi)
{
	struct virtio_queue *q = &vi->vd.vq[QUEUE_STATUS];
	int served = 0, r;

	do {
		vq_disable_notify(q);
		while ((r = vq_pop(q, &vi->chain)) > 0) {
			take_status(vi);
			vq_push(q, vi->chain.head, 0);
			if (++served == STATUS_BURST) {
				virtio_kick(&vi->vd, QUEUE_STATUS);
				virtio_signal_queue(&vi->vd, QUEUE_STATUS);
				return;
			}
		}
	} while (r == 0 && vq_enable_notify(q));
	virtio_signal_queue(&vi->vd, QUEUE_STATUS);
	if (r < 0)
		virtio_fail(&vi->vd, "malformed status request");
}

static void input_queue_ready(struct virtio_device *vd, uint32_t q)
{
	if (q == QUEUE_EVENT)
		serve_events(from_device(&vd->dev));
	else
		serve_status(from_device(&vd->dev));
}

/* The config space. */

static void set_bits(const struct virtio_input *vi, uint32_t type, struct virtio_input_config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		const struct range *r = &ranges[i];

		if (r->kind != vi->kind || r->type != type)
			continue;
		for (uint32_t code = r->first; code <= r->last; code++)
			c->u.bitmap[code / 8] |= (uint8_t)(1u << code % 8);
		c->size = (uint8_t)MAX((uint32_t)c->size, r->last / 8u + 1);
	}
}

static void set_text(struct virtio_input_config *c, const char *text)
{
	c->size = (uint8_t)strlen(text);
	memcpy(c->u.string, text, c->size);
}

static void set_axis(const struct virtio_input *vi, uint32_t code, struct virtio_input_config *c)
{
	const struct range *r = find_range(vi, EV_ABS, code);

	if (!r)
		return;
	c->u.abs.max = htole32(r->max);
	c->size = sizeof(c->u.abs);
}

static void describe(const struct virtio_input *vi, struct virtio_input_config *c)
{
	uint8_t subsel = vi->state.subsel;

	c->select = vi->state.select;
	c->subsel = subsel;
	switch (c->select) {
	case VIRTIO_INPUT_CFG_ID_NAME:
		if (subsel == 0)
			set_text(c, kinds[vi->kind].name);
		break;
	case VIRTIO_INPUT_CFG_ID_SERIAL:
		if (subsel == 0)
			set_text(c, kinds[vi->kind].serial);
		break;
	case VIRTIO_INPUT_CFG_ID_DEVIDS:
		if (subsel == 0) {
			c->u.ids.bustype = htole16(BUS_VIRTUAL);
			c->u.ids.vendor = htole16(VENDOR);
			c->u.ids.product = htole16((uint16_t)(vi->kind + 1));
			c->u.ids.version = htole16(1);
			c->size = sizeof(c->u.ids);
		}
		break;
	case VIRTIO_INPUT_CFG_PROP_BITS:
		if (subsel == 0 && vi->kind == DISPLAY_TOUCH) {
			c->u.bitmap[INPUT_PROP_DIRECT / 8] = 1u << INPUT_PROP_DIRECT % 8;
			c->size = 1;
		}
		break;
	case VIRTIO_INPUT_CFG_EV_BITS:
		set_bits(vi, subsel, c);
		break;
	case VIRTIO_INPUT_CFG_ABS_INFO:
		set_axis(vi, subsel, c);
		break;
	default:
		break;
	}
}

static void input_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	struct virtio_input_config c = { 0 };

	describe(from_device(&vd->dev), &c);
	memcpy(data, (const char *)&c + offset, len);
}

static void input_config_write(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len)
{
	struct virtio_input_state *st = &from_device(&vd->dev)->state;
	struct virtio_input_config c = { .select = st->select, .subsel = st->subsel };

	memcpy((char *)&c + offset, data, len);
	st->select = c.select;
	st->subsel = c.subsel;
}

/* Life. */

static void forget(struct virtio_input *vi)
{
	struct virtio_input_state *st = &vi->state;

	*st = (struct virtio_input_state){ .select = st->select, .subsel = st->subsel, .leds = st->leds };
	vi->releasing = false;
}

static void input_queue_stop(struct virtio_device *vd, uint32_t q)
{
	struct virtio_input *vi = from_device(&vd->dev);

	if (q != QUEUE_EVENT)
		return;
	forget(vi);
	tell_taken(vi);
}

static void input_deactivate(struct virtio_device *vd)
{
	tell_taken(from_device(&vd->dev)); /* whoever asks again hears that nobody listens */
}

static int input_open(struct device *d, const void *options, struct err *err)
{
	const struct input_options *o = options;
	struct virtio_input *vi = from_device(d);
	uint32_t kind = DISPLAY_KEYBOARD;

	while (o->kind && kind < DISPLAY_INPUT_KINDS && strcmp(o->kind, kinds[kind].word) != 0)
		kind++;
	if (kind == DISPLAY_INPUT_KINDS)
		return err_set(err, -EINVAL, "kind '%s' is none of keyboard, pointer, touch", o->kind);
	vi->kind = (enum display_input_kind)kind;
	if (d->vm->display) {
		display_set_input(d->vm->display, vi->kind, &display_ops, d);
		vi->shown = true;
	}
	return 0;
}

static void input_close(struct device *d)
{
	struct virtio_input *vi = from_device(d);

	if (vi->shown && d->vm->display)
		display_set_input(d->vm->display, vi->kind, NULL, NULL);
	vi->shown = false;
}

static void input_reset(struct device *d)
{
	struct virtio_input *vi = from_device(d);
	bool lit = vi->state.leds != 0;

	vi->state = (struct virtio_input_state){ 0 };
	vi->releasing = false;
	if (lit && d->vm->display)
		display_leds(d->vm->display, 0);
}

static int check_ring(const struct virtio_input *vi, struct err *err)
{
	const struct virtio_input_state *st = &vi->state;

	if (st->head >= VIRTIO_INPUT_PENDING || st->count > VIRTIO_INPUT_PENDING)
		return err_set(err, -EINVAL, "%u pending events from %u are impossible", st->count, st->head);
	for (uint32_t n = 0; n < st->count; n++) {
		uint32_t i = (st->head + n) % VIRTIO_INPUT_PENDING;
		bool end = is_end(st, i) && st->value[i] == 0;

		if (!end && (n + 1u == st->count || !event_valid(vi, st->type[i], st->code[i], st->value[i])))
			return err_set(err, -EINVAL, "a pending event %u/%u/%u is impossible", st->type[i], st->code[i], st->value[i]);
	}
	return 0;
}

static int input_check(struct device *d, struct err *err)
{
	const struct virtio_input *vi = from_device(d);
	const struct virtio_input_state *st = &vi->state;
	const struct virtio_queue_state *q = &vi->vd.common.queues[QUEUE_EVENT];

	for (uint32_t code = 0; code < KEYS; code++)
		if (st->keys[code / 8] >> code % 8 & 1 && !find_range(vi, EV_KEY, code))
			return err_set(err, -EINVAL, "key %u is pressed, and the %s has none", code, kinds[vi->kind].word);
	if (st->leds & ~(uint32_t)(vi->kind == DISPLAY_KEYBOARD ? LEDS : 0))
		return err_set(err, -EINVAL, "lights 0x%x are impossible", st->leds);
	if (st->slot >= DISPLAY_TOUCHES_MAX || st->touches >> DISPLAY_TOUCHES_MAX ||
	    ((st->slot || st->touches) && vi->kind != DISPLAY_TOUCH))
		return err_set(err, -EINVAL, "touches 0x%x and slot %u are impossible", st->touches, st->slot);
	if (st->given > (q->ready ? q->size : 0))
		return err_set(err, -EINVAL, "%u buffers are out, and the queue has %u", st->given, q->ready ? q->size : 0u);
	return check_ring(vi, err);
}

static void input_restored(struct device *d)
{
	struct virtio_input *vi = from_device(d);

	vi->releasing = anything_pressed(&vi->state);
	if (d->vm->display)
		display_leds(d->vm->display, vi->state.leds);
}

static const struct virtio_ops input_virtio = {
	.device_id = 18,
	.nqueues_max = NQUEUES,
	.queue_size = 64,
	.config_size = sizeof(struct virtio_input_config),
	.config_read = input_config_read,
	.config_write = input_config_write,
	.queue_ready = input_queue_ready,
	.deactivate = input_deactivate,
	.queue_stop = input_queue_stop,
};

const struct device_ops virtio_input_device = {
	.name = "input",
	.help = "keyboard, pointer or touch screen (virtio-input)",
	.bus = DEVICE_VIRTIO,
	.instances = DISPLAY_INPUT_KINDS,
	.instance_size = sizeof(struct virtio_input),
	.options = input_options,
	.opt_size = sizeof(struct input_options),
	.schema = &virtio_input_schema,
	.state_offset = offsetof(struct virtio_input, state),
	.virtio = &input_virtio,
	.open = input_open,
	.reset = input_reset,
	.restored = input_restored,
	.check = input_check,
	.close = input_close,
};
