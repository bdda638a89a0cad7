/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk: the device's insides, shared by virtio_blk.c (life, configuration), virtio_blk_request.c
 * (requests) and its tests; and the control operation.
 */
#pragma once
#include "devices/backend/block.h"
#include "devices/virtio.h"

enum {
	BLK_INSTANCES_MAX = 8, /* disks of a VM */
	BLK_QUEUES_MAX = 8,
	BLK_QUEUE_SIZE = 256,
	BLK_SEG_MAX = BLK_QUEUE_SIZE - 2, /* data segments of a request */
	BLK_SERIAL_LEN = 20,
	BLK_RANGES_MAX = 32,              /* of one discard or write zeroes request */
	BLK_DISCARD_SECTORS_MAX = 1 << 22, /* 2 GiB a range */
	BLK_ZEROES_SECTORS_MAX = 1 << 19,  /* 256 MiB a range: written out where the host cannot punch holes */
	BLK_PHYSICAL_BLOCK = 4096,
};

/* Feature bits (virtio 1.2, 5.2.3) */
#define VIRTIO_BLK_F_SEG_MAX (1ull << 2)
#define VIRTIO_BLK_F_RO (1ull << 5)
#define VIRTIO_BLK_F_BLK_SIZE (1ull << 6)
#define VIRTIO_BLK_F_FLUSH (1ull << 9)
#define VIRTIO_BLK_F_TOPOLOGY (1ull << 10)
#define VIRTIO_BLK_F_CONFIG_WCE (1ull << 11)
#define VIRTIO_BLK_F_MQ (1ull << 12)
#define VIRTIO_BLK_F_DISCARD (1ull << 13)
#define VIRTIO_BLK_F_WRITE_ZEROES (1ull << 14)

enum {
	VIRTIO_BLK_T_IN = 0,
	VIRTIO_BLK_T_OUT = 1,
	VIRTIO_BLK_T_FLUSH = 4,
	VIRTIO_BLK_T_GET_ID = 8,
	VIRTIO_BLK_T_DISCARD = 11,
	VIRTIO_BLK_T_WRITE_ZEROES = 13,
};
enum { VIRTIO_BLK_S_OK = 0, VIRTIO_BLK_S_IOERR = 1, VIRTIO_BLK_S_UNSUPP = 2 };

struct virtio_blk_header {
	le32 type;
	le32 reserved;
	le64 sector;
};

struct virtio_blk_range {
	le64 sector;
	le32 sectors;
	le32 flags;
};
#define VIRTIO_BLK_RANGE_UNMAP 1u

struct virtio_blk_config {
	le64 capacity;
	le32 size_max;
	le32 seg_max;
	le16 cylinders;
	uint8_t heads;
	uint8_t sectors;
	le32 blk_size;
	uint8_t physical_block_exp;
	uint8_t alignment_offset;
	le16 min_io_size;
	le32 opt_io_size;
	uint8_t writeback;
	uint8_t unused0;
	le16 num_queues;
	le32 max_discard_sectors;
	le32 max_discard_seg;
	le32 discard_sector_alignment;
	le32 max_write_zeroes_sectors;
	le32 max_write_zeroes_seg;
	uint8_t write_zeroes_may_unmap;
	uint8_t unused1[3];
};
enum { BLK_CONFIG_SIZE = 60 }; /* the struct ends with padding */
_Static_assert(offsetof(struct virtio_blk_config, write_zeroes_may_unmap) == BLK_CONFIG_SIZE - 4, "virtio 1.2, 5.2.4");

enum { BLK_WRITEBACK_UNSET = 2 };

#define VIRTIO_BLK_STATE(F, A, S, V)                                                     \
	F(1, 1, u64, capacity)  /* sectors the guest was told of */                      \
	F(2, 1, u8, writeback)  /* as the driver wrote it, or BLK_WRITEBACK_UNSET */     \
	F(3, 1, u8, read_only)                                                           \
	F(4, 1, u16, num_queues)                                                         \
	A(5, 1, u8, serial, BLK_SERIAL_LEN)
STATE_STRUCT(virtio_blk, VIRTIO_BLK_STATE);

struct virtio_blk;

/* A request in flight. */
struct blk_slot {
	struct block_request req;
	struct virtio_blk *blk;
	struct blk_slot *next_free;
	uint16_t queue, head;
	uint16_t next_range, nranges;
	uint32_t type;
	uint32_t written; /* used length when it succeeds */
	gpa_t status;
	uint16_t nbuf;    /* IN: what becomes dirty */
	union {
		struct {
			struct vq_buf buf[BLK_SEG_MAX];
			struct iovec iov[BLK_SEG_MAX];
		};
		struct virtio_blk_range range[BLK_RANGES_MAX];
	};
};

struct virtio_blk {
	struct virtio_device vd;
	struct virtio_blk_state state;
	struct virtio_blk_host {
		struct block *block;
		struct log_limit faults, notes;
		struct remote *remote; /* of remote layers; NULL */
		struct loop_fd remote_watch, wanted_watch;
		struct loop_fd watch; /* the backend's event_fd */
		struct blk_slot *slots;
		struct blk_slot *free;
		uint32_t nslots, fresh; /* slots[fresh ..] were never used: their memory does not exist yet */
		uint32_t busy;
		uint32_t starved;  /* queues that wait for a slot, a bit each */
		uint32_t unsignalled; /* queues with completions the driver was not told of */
		bool dropping;     /* a reset is draining: complete nothing to the guest */
		uint16_t nqueues;
		uint8_t serial[BLK_SERIAL_LEN];
		struct vq_chain chain;
	} host;
};

static inline struct virtio_blk *virtio_blk_from(struct virtio_device *vd) { return (struct virtio_blk *)vd; }

extern const struct device_ops virtio_blk_device;

/* The disk becomes `bytes` long (0: as long as its file is now), never shorter; the driver is told. Main thread,
 * takes the device lock. -ENOTSUP when d is no disk. */
int virtio_blk_resize(struct device *d, uint64_t bytes, struct err *err);

/* A disk's stack of layers, block_layers_attach under the device lock. Main thread. -ENOTSUP when d is no disk of layers. */
int virtio_blk_attach(struct device *d, const struct block_stack *s, struct err *err);
/* The backend, for snapshots: to be used under the device lock only. NULL when d is no disk. */
struct block *virtio_blk_block(struct device *d);

/* Between the two files. */
bool virtio_blk_is_writeback(const struct virtio_blk *blk); /* does a completed write wait for a flush? */
void virtio_blk_serve(struct virtio_blk *blk, uint32_t q);
void virtio_blk_settle(struct virtio_blk *blk); /* after anything that may have completed requests */
