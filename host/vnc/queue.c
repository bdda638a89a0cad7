/* SPDX-License-Identifier: Apache-2.0 */
/* Input on its way to the display: see queue.h. */
#include "host/vnc/queue.h"

int queue_go_on(struct queue *q)
{
	const struct queue_moment *m = &q->moment[q->head];

	if (q->display->waiting || q->count == 0)
		return 0;
	q->head = (q->head + 1) % QUEUE_MAX;
	q->count--;
	return display_client_input(q->display, (enum display_input_kind)m->kind, m->event, m->n, NULL);
}

bool queue_put(struct queue *q, const struct queue_moment *m)
{
	struct queue_moment *last = &q->moment[(q->head + q->count + QUEUE_MAX - 1) % QUEUE_MAX];

	if (q->count > 0 && m->motion && last->motion && last->kind == m->kind) {
		*last = *m;
		return true;
	}
	if (q->count == QUEUE_MAX || (m->motion && q->count >= QUEUE_PRESS_MAX))
		return false;
	q->moment[(q->head + q->count++) % QUEUE_MAX] = *m;
	return queue_go_on(q) == 0;
}
