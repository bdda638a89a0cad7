/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock: the device's insides.
 *
 *   virtio_vsock.c       life, descriptors, timers, events
 *   virtio_vsock_conn.c  the table of connections, their credit and their end
 *   virtio_vsock_tx.c    packets from the guest
 *   virtio_vsock_rx.c    packets to the guest
 *   virtio_vsock_pool.c  buffers behind slow peers
 *   backend/vsock_unix.c the host's sockets
 *
 * "tx" and "rx" are the guest's view, as in the names of the queues.
 */
#pragma once
#include "devices/backend/vsock_unix.h"
#include "devices/virtio.h"
#include "devices/virtio_vsock_pool.h"

enum { VSOCK_Q_RX, VSOCK_Q_TX, VSOCK_Q_EVENT, VSOCK_NQUEUES };

enum {
	VSOCK_QUEUE_SIZE = 256,
	VSOCK_MAX_CONNS = 4096,
	VSOCK_HOST_CID = 2,
	VSOCK_PACKET_MAX = 65536, /* payload of one packet to the guest */
	VSOCK_READ_MAX = 131072,  /* bytes read from a socket at once */
	VSOCK_RX_BATCH = 32,      /* guest buffers filled by one read */
	VSOCK_REPLIES = 256,      /* resets owed to the guest for packets of no connection */
	VSOCK_TX_BURST = 256,     /* packets from the guest before others get their turn */
	VSOCK_RX_BURST = 32,      /* turns of connections, likewise */

	/* What a connection may have in flight from the guest: a window each, a large one for a few that move much. */
	VSOCK_WINDOW = 16384,
	VSOCK_WINDOW_LARGE = 262144,
	VSOCK_LARGE_AFTER = 8192, /* bytes */
	VSOCK_MAX_LARGE = 128,
	/* One block more than the window: the first and the last may be partly used. */
	VSOCK_POOL_BLOCKS = VSOCK_MAX_CONNS * (VSOCK_WINDOW / VSOCK_BLOCK + 1) +
			    VSOCK_MAX_LARGE * ((VSOCK_WINDOW_LARGE - VSOCK_WINDOW) / VSOCK_BLOCK),

	VSOCK_SPARE_FDS = 256, /* descriptors left to the rest of the monitor */
	VSOCK_DIAL_RETRIES = 100,
	VSOCK_ASK_DOUBLE = 5,
	VSOCK_PORT_FIRST = 1 << 30, /* host ports of connections the host makes: up to twice this */
};

#define VSOCK_MS 1000000ull
#define VSOCK_HANDSHAKE_NS (5000 * VSOCK_MS) /* for a client's CONNECT line */
#define VSOCK_CONNECT_NS (10000 * VSOCK_MS)  /* for the guest's answer */
#define VSOCK_DIAL_NS (20 * VSOCK_MS)        /* between attempts when a listener's backlog is full */
#define VSOCK_CLOSE_NS (8000 * VSOCK_MS)     /* for the guest's reset after our shutdown */
#define VSOCK_LINGER_NS (30000 * VSOCK_MS)   /* for a peer to take more of what a closed connection left */
#define VSOCK_ASK_NS (1000 * VSOCK_MS)       /* before credit is asked for again; doubles, VSOCK_ASK_DOUBLE times */
#define VSOCK_GATE_NS (1000 * VSOCK_MS)      /* for the guest to take notice of a transport reset */
#define VSOCK_GATE_POLL_NS (VSOCK_MS / 5)    /* first look; doubles */
#define VSOCK_GATE_POLL_MAX_NS (5 * VSOCK_MS)

#define VIRTIO_VSOCK_F_STREAM (1ull << 0)

enum { VIRTIO_VSOCK_TYPE_STREAM = 1 };
enum {
	VIRTIO_VSOCK_OP_REQUEST = 1,
	VIRTIO_VSOCK_OP_RESPONSE = 2,
	VIRTIO_VSOCK_OP_RST = 3,
	VIRTIO_VSOCK_OP_SHUTDOWN = 4,
	VIRTIO_VSOCK_OP_RW = 5,
	VIRTIO_VSOCK_OP_CREDIT_UPDATE = 6,
	VIRTIO_VSOCK_OP_CREDIT_REQUEST = 7,
};
enum { VIRTIO_VSOCK_SHUTDOWN_RCV = 1, VIRTIO_VSOCK_SHUTDOWN_SEND = 2, VIRTIO_VSOCK_SHUTDOWN_BOTH = 3 };
enum { VIRTIO_VSOCK_EVENT_TRANSPORT_RESET = 0 };

struct virtio_vsock_header {
	le64 src_cid;
	le64 dst_cid;
	le32 src_port;
	le32 dst_port;
	le32 len;
	le16 type;
	le16 op;
	le32 flags;
	le32 buf_alloc;
	le32 fwd_cnt;
} __attribute__((packed));
_Static_assert(sizeof(struct virtio_vsock_header) == 44, "virtio 1.2, 5.10.6");

#define VIRTIO_VSOCK_STATE(F, A, S, V)                                                  \
	F(1, 1, u64, guest_cid)                                                         \
	F(2, 1, u32, next_port)  /* host port of the next connection the host makes */  \
	F(3, 1, u8, event_owed)  /* a transport reset the guest was not told of yet */
STATE_STRUCT(virtio_vsock, VIRTIO_VSOCK_STATE);

enum vsock_conn_state {
	VSOCK_FREE,
	VSOCK_HANDSHAKE, /* a client of ours has not sent its CONNECT line yet; no key */
	VSOCK_REQUESTED, /* waiting for the guest's RESPONSE */
	VSOCK_DIALING,   /* the guest asked; the listener's backlog is full, no descriptor yet */
	VSOCK_OPEN,
	VSOCK_CLOSING,   /* the host's side is gone, the guest was told by SHUTDOWN; no descriptor */
	VSOCK_RESET,     /* a RST to the guest is pending, then the end; no descriptor */
	VSOCK_LINGER,    /* over for the guest, but the peer has not taken everything yet; no key */
};

/* Packets that a connection has to send before any data. */
enum {
	VSOCK_SEND_REQUEST = 1,
	VSOCK_SEND_RESPONSE = 2,
	VSOCK_SEND_CREDIT_UPDATE = 4,
	VSOCK_SEND_CREDIT_REQUEST = 8,
	VSOCK_SEND_SHUTDOWN = 16,
	VSOCK_SEND_RST = 32,
};

#define VSOCK_NONE UINT16_MAX /* no connection */

struct vsock_conn {
	int fd;            /* owned, -1 in some states */
	uint8_t state;     /* enum vsock_conn_state */
	uint8_t send;      /* VSOCK_SEND_* */
	uint8_t guest_shut; /* VIRTIO_VSOCK_SHUTDOWN_* the guest sent */
	uint8_t host_shut;  /* those that we sent or have pending */
	bool keyed;        /* in the hash table */
	bool queued;       /* in the list of those with something to send; kept when the slot is reused */
	bool readable;     /* the socket may have data */
	bool blocked;      /* the socket takes no more: EPOLLOUT is watched */
	bool hung_up;      /* the peer is gone in both directions */
	bool asked;        /* for credit, since it ran out */
	bool large;        /* has a large window */
	uint8_t tries;     /* DIALING: attempts; OPEN: requests for credit */
	uint16_t hash_next, ready_next;
	uint32_t generation; /* of the slot: tells events of an earlier descriptor */
	uint32_t guest_port, host_port;
	/* To the guest: what it said last, and bytes sent. */
	uint32_t peer_alloc, peer_fwd, sent;
	/* From the guest: window, bytes received and passed on; what it was told last. */
	uint32_t alloc, received, forwarded, told_alloc, told_forwarded;
	uint64_t deadline; /* CLOCK_MONOTONIC, 0: none; meaning by state */
	union {
		struct vsock_buffer buffer; /* OPEN, LINGER */
		struct {                    /* HANDSHAKE */
			char text[VSOCK_UNIX_LINE_MAX];
			uint32_t n;
		} line;
	};
};

struct vsock_reply {
	uint64_t host_cid;
	uint32_t host_port, guest_port;
	uint16_t type;
};

struct virtio_vsock {
	struct virtio_device vd;
	struct virtio_vsock_state state;
	struct vsock_host {
		char name[VSOCK_UNIX_NAME_MAX]; /* "": no host side, every connection is refused */
		uint64_t cid;
		int listen_fd, epoll_fd, timer_fd; /* -1 */
		struct loop_fd watch;              /* epoll_fd */

		struct vsock_conn *conn;
		uint16_t *bucket;
		uint32_t max_conns, nconns, nlarge;
		uint32_t fresh; /* slots from here on were never used */
		uint16_t free;  /* list, by hash_next */
		uint16_t ready_head, ready_tail;
		struct vsock_pool pool;

		struct vsock_reply reply[VSOCK_REPLIES];
		uint32_t first_reply, nreplies;

		bool listening;   /* the listener is watched */
		bool out_of_fds;  /* until a connection ends */
		bool gated;       /* the guest has not noticed a transport reset yet: no packets either way */
		bool tx_stalled;  /* no room for replies: the guest's packets wait */
		uint64_t next_timer; /* 0: not armed */
		uint64_t paused_at;
		uint64_t gate_until, gate_poll_ns;
		uint32_t gate_buffers; /* event buffers the guest had given when it was told */
		uint32_t unsignalled;  /* queues, a bit each */

		struct iovec iov[VQ_MAX_SIZE];
		struct vq_chain chain[VSOCK_RX_BATCH];
	} host;
};

static inline struct virtio_vsock *virtio_vsock_from(struct virtio_device *vd) { return (struct virtio_vsock *)vd; }

extern const struct device_ops virtio_vsock_device;

/* virtio_vsock.c */
void vsock_set_deadline(struct virtio_vsock *vs, struct vsock_conn *c, uint64_t after_ns); /* 0: none */
void vsock_update_listener(struct virtio_vsock *vs);
int vsock_watch(struct virtio_vsock *vs, struct vsock_conn *c);        /* begin to watch c->fd */
void vsock_set_blocked(struct virtio_vsock *vs, struct vsock_conn *c, bool blocked);
void vsock_log(struct virtio_vsock *vs, const char *what, uint32_t guest_port, uint32_t host_port);

/* The guest's context id from the next reset or load on. 0 or -EINVAL. */
int virtio_vsock_set_cid(struct device *d, uint64_t cid, struct err *err);

/* virtio_vsock_conn.c */
int vsock_table_init(struct virtio_vsock *vs, struct err *err);
void vsock_table_finish(struct virtio_vsock *vs);
struct vsock_conn *vsock_conn_new(struct virtio_vsock *vs, enum vsock_conn_state state, int fd); /* NULL: full; takes fd */
struct vsock_conn *vsock_conn_find(struct virtio_vsock *vs, uint32_t guest_port, uint32_t host_port);
void vsock_conn_set_key(struct virtio_vsock *vs, struct vsock_conn *c, uint32_t guest_port, uint32_t host_port);
void vsock_conn_drop_key(struct virtio_vsock *vs, struct vsock_conn *c);
bool vsock_pick_port(struct virtio_vsock *vs, uint32_t guest_port, uint32_t *ret_port);
void vsock_conn_ready(struct virtio_vsock *vs, struct vsock_conn *c); /* it has something to send */
struct vsock_conn *vsock_next_ready(struct virtio_vsock *vs);
void vsock_conn_free(struct virtio_vsock *vs, struct vsock_conn *c);  /* at once, telling nobody */
void vsock_conn_reset(struct virtio_vsock *vs, struct vsock_conn *c); /* the guest gets a RST */
void vsock_conn_host_gone(struct virtio_vsock *vs, struct vsock_conn *c); /* both directions: SHUTDOWN, then wait for RST */
void vsock_free_all(struct virtio_vsock *vs);
uint32_t vsock_credit(const struct vsock_conn *c);                    /* bytes the guest can take now */
void vsock_tell_credit(struct virtio_vsock *vs, struct vsock_conn *c); /* queue an update if the guest needs it */
void vsock_forward(struct virtio_vsock *vs, struct vsock_conn *c);    /* buffered bytes to the socket, as far as it goes */

/* virtio_vsock_tx.c */
void vsock_run_tx(struct virtio_vsock *vs);
void vsock_on_line(struct virtio_vsock *vs, struct vsock_conn *c);    /* HANDSHAKE: the client sent something */
void vsock_redial(struct virtio_vsock *vs, struct vsock_conn *c);     /* DIALING: try again */

/* virtio_vsock_rx.c */
void vsock_run_rx(struct virtio_vsock *vs);
bool vsock_reply_rst(struct virtio_vsock *vs, const struct virtio_vsock_header *to); /* false: no room */
