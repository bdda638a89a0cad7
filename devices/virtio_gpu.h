/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu: the device's insides, shared by its files and its tests.
 *
 *   virtio_gpu.c          life, options, configuration space, queues, which command is whose
 *   virtio_gpu_resource.c resources: making them, their backing, pixels from the guest
 *   virtio_gpu_backing.c  lists of guest memory, and reading through them
 *   virtio_gpu_scanout.c  what is shown where; modes; flushes
 *   virtio_gpu_cursor.c   cursors
 *   virtio_gpu_edid.c     what a monitor of that size says about itself
 *   virtio_gpu_state.c    the part of the saved state that has no fixed size
 *   virtio_gpu_3d.c       the commands of 3D, as requests to the process that renders
 *   virtio_gpu_render.c   what that process has been asked, its answers, and the commands that wait for them
 */
#pragma once
#include "devices/backend/display.h"
#include "devices/backend/gpu_worker.h"
#include "devices/virtio.h"

enum {
	GPU_RESOURCES_MAX = 2048,      /* at once */
	GPU_SIDE_MAX = 16384,          /* pixels a side of a resource */
	GPU_CHUNKS_MAX = 4096,         /* of backing entries, in 4 MiB that are touched as they are needed */
	GPU_CHUNK_ENTRIES = 63,        /* so that a chunk has 1 KiB: 258,048 entries in all */
	GPU_ENTRIES_MAX = GPU_CHUNKS_MAX * GPU_CHUNK_ENTRIES,
	GPU_PIXEL = 4,                 /* bytes, in every format */
	GPU_CURSOR_BYTES = DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE * GPU_PIXEL,
	GPU_EDID_MAX = 256,
};
enum {
	GPU_QUERY_MAX = 64,            /* bytes of a buffer that holds the result of a query */
	GPU_STREAM_BYTES = 8 << 20,    /* for command streams on their way */
	GPU_CONTEXTS_MAX = 64,         /* as the renderer has */
	GPU_DRAIN_MS = 10000,          /* the renderer may take before a pause; then it is given up */
};
#define GPU_BLOB_MAX (1ull << 32) /* bytes of a blob */

/* Feature bits (virtio 1.2, 5.7.3) */
#define VIRTIO_GPU_F_VIRGL (1ull << 0)
#define VIRTIO_GPU_F_EDID (1ull << 1)
#define VIRTIO_GPU_F_RESOURCE_UUID (1ull << 2)
#define VIRTIO_GPU_F_RESOURCE_BLOB (1ull << 3)
#define VIRTIO_GPU_F_CONTEXT_INIT (1ull << 4)

enum { GPU_QUEUE_CONTROL, GPU_QUEUE_CURSOR, GPU_NQUEUES };

/* virtio 1.2, 5.7.6.7 and 5.7.6.10 */
enum gpu_type {
	VIRTIO_GPU_CMD_GET_DISPLAY_INFO = 0x0100,
	VIRTIO_GPU_CMD_RESOURCE_CREATE_2D,
	VIRTIO_GPU_CMD_RESOURCE_UNREF,
	VIRTIO_GPU_CMD_SET_SCANOUT,
	VIRTIO_GPU_CMD_RESOURCE_FLUSH,
	VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D,
	VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING,
	VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING,
	VIRTIO_GPU_CMD_GET_CAPSET_INFO,
	VIRTIO_GPU_CMD_GET_CAPSET,
	VIRTIO_GPU_CMD_GET_EDID,
	VIRTIO_GPU_CMD_RESOURCE_ASSIGN_UUID,
	VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB,
	VIRTIO_GPU_CMD_SET_SCANOUT_BLOB,
	VIRTIO_GPU_CMD_CTX_CREATE = 0x0200,
	VIRTIO_GPU_CMD_CTX_DESTROY,
	VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE,
	VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE,
	VIRTIO_GPU_CMD_RESOURCE_CREATE_3D,
	VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D,
	VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D,
	VIRTIO_GPU_CMD_SUBMIT_3D,
	VIRTIO_GPU_CMD_UPDATE_CURSOR = 0x0300,
	VIRTIO_GPU_CMD_MOVE_CURSOR,

	VIRTIO_GPU_RESP_OK_NODATA = 0x1100,
	VIRTIO_GPU_RESP_OK_DISPLAY_INFO,
	VIRTIO_GPU_RESP_OK_CAPSET_INFO,
	VIRTIO_GPU_RESP_OK_CAPSET,
	VIRTIO_GPU_RESP_OK_EDID,

	VIRTIO_GPU_RESP_ERR_UNSPEC = 0x1200,
	VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY,
	VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID,
	VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID,
	VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID,
	VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER,

	/* Never on the wire: the answer comes when the process that renders has said its own; there is no room yet. */
	GPU_LATER = 0,
	GPU_AGAIN = 1,
};
#define VIRTIO_GPU_FLAG_FENCE 1u
#define VIRTIO_GPU_FLAG_INFO_RING_IDX 2u
#define VIRTIO_GPU_EVENT_DISPLAY 1u
#define VIRTIO_GPU_BLOB_MEM_GUEST 1u
#define VIRTIO_GPU_BLOB_FLAG_MAPPABLE 1u
#define VIRTIO_GPU_BLOB_FLAG_SHAREABLE 2u

struct gpu_header {
	le32 type;
	le32 flags;
	le64 fence_id;
	le32 ctx_id;
	uint8_t ring_idx;
	uint8_t padding[3];
};

struct gpu_rect_wire {
	le32 x, y, width, height;
};

struct gpu_create_2d {
	struct gpu_header h;
	le32 resource_id, format, width, height;
};

struct gpu_resource_only { /* unref, detach backing */
	struct gpu_header h;
	le32 resource_id, padding;
};

struct gpu_set_scanout {
	struct gpu_header h;
	struct gpu_rect_wire r;
	le32 scanout_id, resource_id;
};

struct gpu_flush {
	struct gpu_header h;
	struct gpu_rect_wire r;
	le32 resource_id, padding;
};

struct gpu_transfer {
	struct gpu_header h;
	struct gpu_rect_wire r;
	le64 offset;
	le32 resource_id, padding;
};

struct gpu_attach {
	struct gpu_header h;
	le32 resource_id, nr_entries;
	/* entries follow */
};

struct gpu_entry_wire {
	le64 addr;
	le32 length, padding;
};

struct gpu_create_blob {
	struct gpu_header h;
	le32 resource_id, blob_mem, blob_flags, nr_entries;
	le64 blob_id, size;
	/* entries follow */
};

struct gpu_set_scanout_blob {
	struct gpu_header h;
	struct gpu_rect_wire r;
	le32 scanout_id, resource_id, width, height, format, padding;
	le32 strides[4], offsets[4];
};

struct gpu_get_edid {
	struct gpu_header h;
	le32 scanout, padding;
};

struct gpu_ctx_create {
	struct gpu_header h;
	le32 nlen, context_init;
	char debug_name[64];
};

struct gpu_create_3d {
	struct gpu_header h;
	le32 resource_id, target, format, bind, width, height, depth, array_size, last_level, nr_samples, flags, padding;
};

struct gpu_transfer_3d {
	struct gpu_header h;
	le32 x, y, z, width, height, depth;
	le64 offset;
	le32 resource_id, level, stride, layer_stride;
};

struct gpu_submit_3d {
	struct gpu_header h;
	le32 size, padding;
	/* the command stream follows */
};

struct gpu_get_capset_info {
	struct gpu_header h;
	le32 index, padding;
};

struct gpu_get_capset {
	struct gpu_header h;
	le32 id, version;
};

struct gpu_cursor_command { /* update and move */
	struct gpu_header h;
	le32 scanout_id, x, y, pos_padding;
	le32 resource_id, hot_x, hot_y, padding;
};

enum { GPU_INFO_SCANOUTS = 16 }; /* in a response, whatever there are */
struct gpu_display_info {
	struct gpu_header h;
	struct {
		struct gpu_rect_wire r;
		le32 enabled, flags;
	} mode[GPU_INFO_SCANOUTS];
};

struct gpu_edid_response {
	struct gpu_header h;
	le32 size, padding;
	uint8_t edid[1024];
};

struct gpu_capset_info_response {
	struct gpu_header h;
	le32 id, max_version, max_size, padding;
};

struct gpu_capset_response {
	struct gpu_header h;
	uint8_t data[GPU_CAPSET_SIZE_MAX];
};

struct gpu_config {
	le32 events_read, events_clear, num_scanouts, num_capsets;
};

_Static_assert(sizeof(struct gpu_header) == 24 && sizeof(struct gpu_display_info) == 408 && sizeof(struct gpu_edid_response) == 1056 &&
		       sizeof(struct gpu_create_blob) == 56 && sizeof(struct gpu_set_scanout_blob) == 96 && sizeof(struct gpu_transfer) == 56 &&
		       sizeof(struct gpu_cursor_command) == 56 && sizeof(struct gpu_ctx_create) == 96 && sizeof(struct gpu_create_3d) == 72 &&
		       sizeof(struct gpu_transfer_3d) == 72,
	       "virtio 1.2, 5.7.6");

#define VIRTIO_GPU_CURSOR_STATE(F, A, S, V)                        \
	F(1, 1, u8, visible) /* and its image is in the extra part */ \
	F(2, 1, u32, x)      /* as the driver gives it: of the image's corner */ \
	F(3, 1, u32, y)                                            \
	F(4, 1, u32, hot_x)                                        \
	F(5, 1, u32, hot_y)
STATE_STRUCT(virtio_gpu_cursor, VIRTIO_GPU_CURSOR_STATE);

#define VIRTIO_GPU_SCANOUT_STATE(F, A, S, V)                                         \
	F(1, 1, u32, resource) /* 0: shows nothing, and all that follows but the mode is 0 */ \
	F(2, 1, u32, x)        /* what of the resource (of a blob: of its frame) is shown */  \
	F(3, 1, u32, y)                                                              \
	F(4, 1, u32, width)                                                          \
	F(5, 1, u32, height)                                                         \
	F(6, 1, u32, format)   /* of a blob's frame, and so on */                    \
	F(7, 1, u32, frame_width)                                                    \
	F(8, 1, u32, frame_height)                                                   \
	F(9, 1, u32, stride)                                                         \
	F(10, 1, u32, offset)                                                        \
	F(11, 1, u32, mode_width) /* wanted by the host */                           \
	F(12, 1, u32, mode_height)                                                   \
	S(13, 1, virtio_gpu_cursor, cursor)
STATE_STRUCT(virtio_gpu_scanout, VIRTIO_GPU_SCANOUT_STATE);

#define VIRTIO_GPU_STATE(F, A, S, V)     \
	F(1, 1, u32, events)             \
	F(2, 1, u32, nscanouts)          \
	V(3, 1, virtio_gpu_scanout, scanout, DISPLAY_SCANOUTS_MAX)
STATE_STRUCT(virtio_gpu, VIRTIO_GPU_STATE);

/* In the extra part, one for each resource. */
#define VIRTIO_GPU_RESOURCE_STATE(F, A, S, V) \
	F(1, 1, u32, id)                      \
	F(2, 1, u32, format) /* 0: a blob */  \
	F(3, 1, u32, width)                   \
	F(4, 1, u32, height)                  \
	F(5, 1, u64, blob_size)               \
	F(6, 1, u32, nentries) /* of its backing; 0: none */ \
	F(7, 2, u8, lost)     /* 1: of 3D, and the renderer that had it is gone */
STATE_STRUCT(virtio_gpu_resource, VIRTIO_GPU_RESOURCE_STATE);

/* A list of pieces of guest memory, in chunks of the device's pool. */
struct gpu_entry {
	uint64_t gpa;
	uint32_t len; /* not 0, inside memory */
};

struct gpu_chunk {
	uint64_t bytes;
	uint32_t next; /* index + 1; 0: the last */
	uint32_t n;
	struct gpu_entry entry[GPU_CHUNK_ENTRIES];
};
_Static_assert(sizeof(struct gpu_chunk) == 1024, "a chunk is 1 KiB");

struct gpu_pool {
	struct gpu_chunk *chunk; /* owned */
	uint32_t free;           /* index + 1 of one that was used before */
	uint32_t fresh;          /* from here on nobody ever was: their memory does not exist yet */
};

struct gpu_backing {
	uint32_t first, last; /* chunks, index + 1 */
	uint32_t nentries;
	uint64_t bytes;
};

struct gpu_resource {
	struct virtio_gpu_resource_state st;
	struct gpu_backing backing;
	uint64_t pixels;   /* offset in the display's memory, st.height lines without anything between; not of a blob */
	uint32_t from, to; /* lines outside were never written and are zero */
	struct gpu_resource_3d {
		bool is;           /* its pixels are the renderer's; st is what it was made with, and saved as lost */
		bool going;        /* unref'ed: waits for the renderer */
		uint32_t target, bind;
		uint64_t copy, copy_size; /* in the display's memory: what the renderer sees of the backing; size 0: there is none */
		uint8_t seen[GPU_QUERY_MAX]; /* of a query's result: what the guest has there as far as we know */
	} three_d;
};

struct gpu_resources {
	struct gpu_resource slot[GPU_RESOURCES_MAX];
	uint16_t order[GPU_RESOURCES_MAX]; /* the slots, sorted by id; behind the first n the free ones */
	uint32_t n;
};

/* What is answered to one command. */
union gpu_answer {
	struct gpu_header h;
	struct gpu_display_info info;
	struct gpu_edid_response edid;
	struct gpu_capset_info_response capset_info;
	struct gpu_capset_response capset;
};

/* A command of the control queue that has not been answered. They are answered in the order they came: fences rely on it. */
struct gpu_pending {
	struct vq_chain chain;
	struct gpu_header in;
	union gpu_answer out;
	size_t out_len; /* of a capability set: bytes */
	enum gpu_type answer;
	bool ready;
	bool fence;   /* the renderer was asked to say when it is through */
	uint32_t seq; /* of the last request for it */
};

enum gpu_sent_kind {
	GPU_SENT_PLAIN, GPU_SENT_CTX_CREATE, GPU_SENT_CTX_DESTROY, GPU_SENT_CREATE, GPU_SENT_UNREF, GPU_SENT_DETACH, GPU_SENT_FROM,
	GPU_SENT_PICTURE, GPU_SENT_CURSOR, GPU_SENT_STREAM,
};

/* A request to the renderer without its answer. */
struct gpu_sent {
	enum gpu_sent_kind kind;
	bool dead;        /* answered, or the device was reset since */
	uint32_t pending; /* whose it is: number, GPU_NOBODY */
	uint32_t resource, scanout;
	struct display_rect rect;
	uint64_t offset, size; /* FROM: of the backing; STREAM: bytes of the streams' memory */
};
enum { GPU_NOBODY = 0xffffffffu };

/* 3D: virtio_gpu_render.c. */
struct gpu_render {
	struct gpu_worker worker;
	struct gpu_sent sent[GPU_INFLIGHT_MAX]; /* by seq */
	uint64_t stream;            /* in the display's memory */
	uint32_t stream_at, stream_used; /* a ring: the next byte, bytes in use */
	uint32_t last_fence;
	uint32_t nresources, nqueries; /* alive as far as the guest knows */
	struct gpu_context {
		uint32_t id; /* 0: free */
		bool used;   /* a stream was submitted: it holds more than its name */
		bool lost;   /* that was in a renderer which is gone: the guest may destroy it, and nothing else */
	} context[GPU_CONTEXTS_MAX];
	bool reset_wanted;          /* the renderer still has what was before the driver's reset */
	bool waiting;               /* the control queue waits for room */
	struct log_limit limit;
};

struct virtio_gpu {
	struct virtio_device vd;
	struct virtio_gpu_state state;
	struct virtio_gpu_host {
		struct display *display;
		struct gpu_resources *resources; /* owned */
		struct gpu_pool pool;
		uint32_t nscanouts;
		struct { uint32_t width, height; } mode[DISPLAY_SCANOUTS_MAX]; /* outlive the driver's reset */
		/* In the display's memory. */
		int64_t cursor[DISPLAY_SCANOUTS_MAX]; /* the images */
		struct gpu_shadow {
			uint64_t offset, size; /* size 0: there is none */
		} shadow[DISPLAY_SCANOUTS_MAX]; /* what a scanout that shows a blob shows */
		uint64_t copied; /* bytes, since the queue was looked at */
		struct vq_chain cursor_chain;
		struct gpu_pending *pending; /* owned; a ring */
		uint32_t pending_max, pending_first, pending_n;
		struct gpu_render *render;   /* owned; NULL: 2D only */
	} host;
};

static inline struct virtio_gpu *virtio_gpu_from(struct device *d) { return (struct virtio_gpu *)d; }

extern const struct device_ops virtio_gpu_device;
extern const struct device_extra virtio_gpu_extra;
extern const struct state_schema virtio_gpu_schema;

/* A command being served. */
struct gpu_call {
	struct virtio_gpu *gpu;
	struct virtio_queue *q;
	const struct vq_chain *chain;
	uint32_t number; /* of its struct gpu_pending */
	union {
		struct gpu_header h;
		struct gpu_create_2d create_2d;
		struct gpu_resource_only resource;
		struct gpu_set_scanout set_scanout;
		struct gpu_flush flush;
		struct gpu_transfer transfer;
		struct gpu_attach attach;
		struct gpu_create_blob create_blob;
		struct gpu_set_scanout_blob set_scanout_blob;
		struct gpu_get_edid get_edid;
		struct gpu_cursor_command cursor;
		struct gpu_ctx_create ctx_create;
		struct gpu_create_3d create_3d;
		struct gpu_transfer_3d transfer_3d;
		struct gpu_submit_3d submit_3d;
		struct gpu_get_capset_info capset_info;
		struct gpu_get_capset capset;
	} in; /* a copy; as much as the command's table entry says */
	union gpu_answer out; /* zeroed; the header is filled in by the caller */
	size_t out_len;       /* of a capability set: bytes */
};

/* Each serves one command and says what the response is. */
typedef enum gpu_type gpu_command_fn(struct gpu_call *c);
gpu_command_fn gpu_get_display_info, gpu_get_edid, gpu_set_scanout, gpu_set_scanout_blob, gpu_flush;
gpu_command_fn gpu_resource_create_2d, gpu_resource_create_blob, gpu_resource_unref, gpu_attach_backing, gpu_detach_backing,
	gpu_transfer_to_host_2d;
gpu_command_fn gpu_update_cursor, gpu_move_cursor;
gpu_command_fn gpu_get_capset_info, gpu_get_capset, gpu_ctx_create, gpu_ctx_destroy, gpu_ctx_attach, gpu_ctx_detach, gpu_create_3d,
	gpu_transfer_to_host_3d, gpu_transfer_from_host_3d, gpu_submit_3d;
/* What commands of 2D mean for a resource of 3D. */
enum gpu_type gpu_3d_unref(struct gpu_call *c, struct gpu_resource *r);
enum gpu_type gpu_3d_attached(struct gpu_call *c, struct gpu_resource *r); /* its backing has just been read */
enum gpu_type gpu_3d_detach(struct gpu_call *c, struct gpu_resource *r);
enum gpu_type gpu_3d_flush(struct gpu_call *c, const struct gpu_resource *r, const struct display_rect *rect);
enum gpu_type gpu_3d_cursor(struct virtio_gpu *g, const struct gpu_resource *r, uint32_t scanout); /* its image will come */
void gpu_3d_removed(struct virtio_gpu *g, struct gpu_resource *r);
bool gpu_is_query(const struct gpu_resource *r); /* does the renderer write results of queries there? */

/* The process that renders. */
int gpu_render_open(struct virtio_gpu *g, int sock, uint32_t memory_mib, struct err *err);
void gpu_render_close(struct virtio_gpu *g); /* accepts one without */
/* Before a command is served: is there room for all it may ask, and does the renderer know of the last reset? */
bool gpu_render_room(struct virtio_gpu *g);
/* Ask it. 0, or -EPIPE when it is gone. Room there is. */
int gpu_render_send(struct virtio_gpu *g, struct gpu_request *q, const struct gpu_sent *what);
/* The same for a command, whose answer is that of the request: GPU_LATER, or ERR_UNSPEC when it is gone. */
enum gpu_type gpu_render_ask(struct gpu_call *c, struct gpu_request *q, const struct gpu_sent *what);
/* `size` bytes for a command stream: the offset in the display's memory, or -EAGAIN. `*ret_used` is what gpu_sent.size has to be. */
int64_t gpu_render_stream(struct virtio_gpu *g, uint32_t size, uint32_t *ret_used);
void gpu_render_reset(struct virtio_gpu *g); /* the driver's: any thread */
void gpu_render_main(struct virtio_gpu *g);  /* main, after it */
/* Everything that waits has its answer afterwards. 0, or -EPIPE when the process is gone, given up too. */
int gpu_render_quiesce(struct virtio_gpu *g);
/* Contexts that hold nothing yet, which a saved guest finds again, or those whose contents are lost to it. ret: GPU_CONTEXTS_MAX ids; their
 * number. */
uint32_t gpu_render_contexts(const struct virtio_gpu *g, bool lost, uint32_t *ret);
int gpu_render_restore(struct virtio_gpu *g, const uint32_t *id, uint32_t n); /* make them anew: 0, -EPIPE without a renderer, -ENOMEM when it did not make all */
/* The context, NULL: none. */
struct gpu_context *gpu_render_context(struct virtio_gpu *g, uint32_t id);
void gpu_render_lost(struct virtio_gpu *g, const uint32_t *id, uint32_t n); /* or that they are lost */
/* What a state saved now leaves out: 0 when nothing, else a text. */
int gpu_render_left_out(const struct virtio_gpu *g, char *text, size_t size);
/* Bytes of what the guest has behind a resource, to the renderer's copy or back. */
void gpu_copy_in(struct virtio_gpu *g, struct gpu_resource *r, uint64_t offset, uint64_t len);
void gpu_copy_out(struct virtio_gpu *g, struct gpu_resource *r, uint64_t offset, uint64_t len);

/* Commands that wait (virtio_gpu.c). */
void gpu_pending_ready(struct virtio_gpu *g, uint32_t number, enum gpu_type answer);
void gpu_pending_flush(struct virtio_gpu *g); /* answer what is ready at the head */

/* Resources. */
struct gpu_resource *gpu_find(const struct virtio_gpu *g, uint32_t id); /* NULL: there is none */
/* A new one, without backing and pixels; NULL when the id is 0 or taken, or there are too many. */
struct gpu_resource *gpu_resource_add(struct virtio_gpu *g, uint32_t id);
void gpu_resource_remove(struct virtio_gpu *g, struct gpu_resource *r);
void gpu_resources_clear(struct virtio_gpu *g);
static inline bool gpu_is_blob(const struct gpu_resource *r) { return r->st.format == 0 && !r->three_d.is; }
static inline uint32_t gpu_stride(const struct gpu_resource *r) { return r->st.width * GPU_PIXEL; }
/* Not of a blob: whole pages, and what of them are pixels. */
static inline uint64_t gpu_pixel_bytes(const struct gpu_resource *r) { return (uint64_t)gpu_stride(r) * r->st.height; }
bool gpu_format_is_known(uint32_t format);
/* Does the rectangle lie in width x height? */
bool gpu_rect_fits(const struct display_rect *r, uint32_t width, uint32_t height);
struct display_rect gpu_rect(const struct gpu_rect_wire *r);
/* The common part of two rectangles, relative to b. False: there is none. */
bool gpu_intersect(const struct display_rect *a, const struct display_rect *b, struct display_rect *ret);

/* Backing. */
int gpu_backing_add(struct virtio_gpu *g, struct gpu_backing *b, uint64_t gpa, uint32_t len); /* -EFAULT, -ENOSPC */
void gpu_backing_clear(struct virtio_gpu *g, struct gpu_backing *b);
/* `lines` times `line` bytes from guest memory, of which the first is at `offset` of the backing and each next one `stride` (at least
 * `line`) further, to dst in steps of dst_stride. All of it must lie in the backing: else -ERANGE. */
int gpu_backing_read(struct virtio_gpu *g, const struct gpu_backing *b, uint64_t offset, uint64_t stride, uint8_t *dst, uint64_t dst_stride,
		     uint64_t line, uint32_t lines);
/* The other way, `len` bytes: marks guest memory as written. */
int gpu_backing_write(struct virtio_gpu *g, const struct gpu_backing *b, uint64_t offset, const uint8_t *src, uint64_t len);
/* The entries in order: fn for each run of them, until it does not return 0. */
int gpu_backing_each(const struct virtio_gpu *g, const struct gpu_backing *b, int (*fn)(void *arg, const struct gpu_entry *e, uint32_t n),
		     void *arg);

/* Scanouts. */
void gpu_scanout_hide(struct virtio_gpu *g, uint32_t scanout);
void gpu_scanouts_reset(struct virtio_gpu *g); /* all show nothing, and no cursors */
void gpu_scanouts_forget(struct virtio_gpu *g, const struct gpu_resource *r); /* it is going away */
void gpu_mode(struct virtio_gpu *g, uint32_t scanout, uint32_t width, uint32_t height); /* what the host wants; lock held */
/* Is this decoded state possible, whatever the resource is? */
int gpu_scanout_check(const struct virtio_gpu_scanout_state *s, uint32_t number, struct err *err);
/* One that this display does not have: everything is 0. */
bool gpu_scanout_is_unused(const struct virtio_gpu_scanout_state *s);
/* With a resource that exists. */
bool gpu_scanout_fits(const struct virtio_gpu_scanout_state *s, const struct gpu_resource *r);
/* Does it show a picture of its own, as those of blobs and of 3D do? */
bool gpu_scanout_has_shadow(const struct virtio_gpu *g, const struct virtio_gpu_scanout_state *s);
/* A place for it; false: no memory. */
bool gpu_shadow_make(struct virtio_gpu *g, uint32_t scanout, uint64_t size);
static inline uint64_t gpu_shadow_bytes(const struct virtio_gpu_scanout_state *s) { return (uint64_t)s->width * s->height * GPU_PIXEL; }
void gpu_scanout_show(struct virtio_gpu *g, uint32_t scanout); /* tell the display what the state says */

/* Cursors. */
void gpu_cursor_show(struct virtio_gpu *g, uint32_t scanout); /* likewise */

/* EDID 1.4 of a monitor with this preferred size; bytes, 128 or 256. `number` tells monitors apart. */
size_t gpu_edid(uint32_t width, uint32_t height, uint32_t number, uint8_t ret[GPU_EDID_MAX]);
