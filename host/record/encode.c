/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Films by libavcodec and libavformat: see record.h.
 *
 * Timestamps are milliseconds (a gif has hundredths of a second): a picture lasts until the next one, however long that is, and the last
 * one until the end. In a gif, which has 16 bits for that, it comes again when it is seen for longer. One thread encodes: the jail
 * has no others.
 */
#include <errno.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/record/record.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { BUFFER = 64 << 10, GIF_TICK_MS = 10, GIF_DELAY_MAX = 60000, ERROR_TEXT = 96 };

struct record_encoder {
	AVFormatContext *file;
	AVCodecContext *codec;
	AVFrame *frame;
	AVPacket *packet;
	struct SwsContext *scale;
	uint32_t scale_width, scale_height; /* what `scale` takes */
	uint32_t width, height;
	bool gif;
	int64_t last;
	int fd;
};

static int say(struct err *err, int r, const char *what)
{
	char text[ERROR_TEXT] = "";

	av_strerror(r, text, sizeof(text));
	return err_set(err, -EIO, "%s: %s", what, text);
}

static int write_bytes(void *opaque, uint8_t *buf, int n)
{
	struct record_encoder *e = opaque;
	int r = fd_write_full(e->fd, buf, (size_t)n);

	return r < 0 ? AVERROR(-r) : n;
}

static int64_t seek_to(void *opaque, int64_t offset, int whence)
{
	struct record_encoder *e = opaque;
	off_t at;

	if (whence == AVSEEK_SIZE) {
		off_t here = lseek(e->fd, 0, SEEK_CUR), size = lseek(e->fd, 0, SEEK_END);

		lseek(e->fd, here, SEEK_SET);
		return size;
	}
	at = lseek(e->fd, offset, whence & 0xffff);
	return at < 0 ? AVERROR(errno) : at;
}

static int open_file(struct record_encoder *e, struct err *err)
{
	uint8_t *buffer = av_malloc(BUFFER);
	int r = avformat_alloc_output_context2(&e->file, NULL, e->gif ? "gif" : "matroska", NULL);

	if (r < 0 || !e->file || !buffer) {
		av_free(buffer);
		return say(err, r < 0 ? r : AVERROR(ENOMEM), "the film's format");
	}
	e->file->pb = avio_alloc_context(buffer, BUFFER, 1, e, NULL, write_bytes, lseek(e->fd, 0, SEEK_CUR) < 0 ? NULL : seek_to);
	if (!e->file->pb) {
		av_free(buffer);
		return say(err, AVERROR(ENOMEM), "the film");
	}
	e->file->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_FLUSH_PACKETS;
	return 0;
}

static const AVCodec *pick_codec(const struct record_encoder *e, bool lossless)
{
	const AVCodec *c;

	if (e->gif)
		return avcodec_find_encoder(AV_CODEC_ID_GIF);
	c = avcodec_find_encoder_by_name(lossless ? "libx264rgb" : "libx264");
	/* A libavcodec without x264: FFV1 is always there, and lossless too. */
	return c ? c : avcodec_find_encoder(AV_CODEC_ID_FFV1);
}

static int open_codec(struct record_encoder *e, bool lossless, struct err *err)
{
	const AVCodec *codec = pick_codec(e, lossless);
	AVStream *stream = avformat_new_stream(e->file, NULL);
	AVCodecContext *c = codec ? avcodec_alloc_context3(codec) : NULL;
	int r;

	if (!c || !stream)
		return err_set(err, -ENOENT, "libavcodec has no encoder for this format");
	e->codec = c;
	if (c->codec_id == AV_CODEC_ID_H264 && !lossless) {
		/* 4:2:0 has colours for two pixels each way. */
		e->width = MAX(e->width & ~1u, 2u);
		e->height = MAX(e->height & ~1u, 2u);
	}
	c->width = (int)e->width;
	c->height = (int)e->height;
	c->time_base = e->gif ? (AVRational){ 1, 100 } : (AVRational){ 1, 1000 };
	c->pix_fmt = e->gif ? AV_PIX_FMT_PAL8 : c->codec_id == AV_CODEC_ID_FFV1 ? AV_PIX_FMT_BGR0 : lossless ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_YUV420P;
	c->thread_count = 1;
	c->gop_size = 250;
	c->max_b_frames = 0;
	if (e->file->oformat->flags & AVFMT_GLOBALHEADER)
		c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
	if (c->codec_id == AV_CODEC_ID_H264) {
		av_opt_set(c->priv_data, "preset", "veryfast", 0);
		av_opt_set(c->priv_data, "tune", "zerolatency", 0); /* no frames held back, no threads */
		av_opt_set(c->priv_data, lossless ? "qp" : "crf", lossless ? "0" : "20", 0);
	}
	r = avcodec_open2(c, codec, NULL);
	if (r >= 0)
		r = avcodec_parameters_from_context(stream->codecpar, c);
	stream->time_base = c->time_base;
	if (r >= 0)
		r = avformat_write_header(e->file, NULL);
	if (r < 0)
		return say(err, r, "the film's encoder");
	e->frame->format = c->pix_fmt;
	e->frame->width = c->width;
	e->frame->height = c->height;
	r = av_frame_get_buffer(e->frame, 0);
	return r < 0 ? say(err, r, "a frame") : 0;
}

int record_encoder_open(bool gif, bool lossless, uint32_t width, uint32_t height, int fd, struct record_encoder **ret, struct err *err)
{
	struct record_encoder *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return err_set(err, -ENOMEM, "out of memory");
	av_log_set_level(AV_LOG_QUIET);
	*e = (struct record_encoder){ .width = width, .height = height, .gif = gif, .fd = fd, .last = -1,
				      .frame = av_frame_alloc(), .packet = av_packet_alloc() };
	if (!e->frame || !e->packet) {
		record_encoder_close(e);
		return err_set(err, -ENOMEM, "out of memory");
	}
	r = open_file(e, err);
	if (r == 0)
		r = open_codec(e, lossless, err);
	if (r < 0)
		record_encoder_close(e);
	else
		*ret = e;
	return r;
}

/* frame NULL: what the encoder still has. */
static int encode(struct record_encoder *e, AVFrame *frame, struct err *err)
{
	int r = avcodec_send_frame(e->codec, frame);

	while (r >= 0) {
		r = avcodec_receive_packet(e->codec, e->packet);
		if (r == AVERROR(EAGAIN) || r == AVERROR_EOF)
			return 0;
		if (r < 0)
			break;
		av_packet_rescale_ts(e->packet, e->codec->time_base, e->file->streams[0]->time_base);
		e->packet->stream_index = 0;
		r = av_write_frame(e->file, e->packet);
		av_packet_unref(e->packet);
		if (r >= 0 && e->file->pb->error < 0)
			r = e->file->pb->error;
	}
	return say(err, r, "write the film");
}

static int convert(struct record_encoder *e, const struct picture *p, struct err *err)
{
	const uint8_t *from[4] = { p->rgba };
	const int from_stride[4] = { (int)p->width * 4 };

	if (p->width != e->scale_width || p->height != e->scale_height) {
		sws_freeContext(e->scale);
		e->scale = sws_getContext((int)p->width, (int)p->height, AV_PIX_FMT_RGBA, (int)e->width, (int)e->height, e->codec->pix_fmt,
					  p->width == e->width && p->height == e->height ? SWS_POINT : SWS_BILINEAR, NULL, NULL, NULL);
		e->scale_width = p->width;
		e->scale_height = p->height;
	}
	if (!e->scale)
		return err_set(err, -EINVAL, "a picture of %ux%u cannot be put into the film", p->width, p->height);
	sws_scale(e->scale, from, from_stride, 0, (int)p->height, e->frame->data, e->frame->linesize);
	return 0;
}

static int convert_gif(struct record_encoder *e, const struct picture *p, struct err *err)
{
	struct picture scaled = { 0 };

	if (p->width != e->width || p->height != e->height) {
		int r = picture_scale(p, e->width, e->height, &scaled);

		if (r < 0)
			return err_errno(err, r, "scale a picture");
		p = &scaled;
	}
	record_palette(p, (uint32_t *)(void *)e->frame->data[1], e->frame->data[0], (uint32_t)e->frame->linesize[0]);
	picture_free(&scaled);
	return 0;
}

/* The last picture, as often as it takes to be seen until `at`. */
static int hold(struct record_encoder *e, int64_t at, struct err *err)
{
	int r = 0;

	while (r == 0 && e->gif && e->last >= 0 && at - e->last > GIF_DELAY_MAX) {
		e->last += GIF_DELAY_MAX;
		e->frame->pts = e->last;
		r = encode(e, e->frame, err);
	}
	return r;
}

int record_encoder_add(struct record_encoder *e, const struct picture *p, uint64_t at_ms, struct err *err)
{
	const int64_t at = (int64_t)(e->gif ? at_ms / GIF_TICK_MS : at_ms);
	int r = hold(e, at, err);

	if (r < 0)
		return r;
	r = av_frame_make_writable(e->frame);
	if (r < 0)
		return say(err, r, "a frame");
	r = e->gif ? convert_gif(e, p, err) : convert(e, p, err);
	if (r < 0)
		return r;
	e->last = MAX(at, e->last + 1);
	e->frame->pts = e->last;
	return encode(e, e->frame, err);
}

int record_encoder_finish(struct record_encoder *e, uint64_t at_ms, struct err *err)
{
	int64_t at = (int64_t)(e->gif ? at_ms / GIF_TICK_MS : at_ms);
	int r = hold(e, at, err);

	if (r == 0 && e->gif && e->last >= 0)
		av_opt_set_int(e->file->priv_data, "final_delay", MAX(at - e->last, (int64_t)1), 0);
	if (r == 0 && !e->gif && e->last >= 0 && at > e->last) {
		e->frame->pts = at;
		r = encode(e, e->frame, err);
	}
	if (r == 0)
		r = encode(e, NULL, err);
	if (r == 0) {
		r = av_write_trailer(e->file);
		avio_flush(e->file->pb);
		if (r < 0 || e->file->pb->error < 0)
			return say(err, r < 0 ? r : e->file->pb->error, "write the film");
	}
	return r;
}

void record_encoder_close(struct record_encoder *e)
{
	if (!e)
		return;
	sws_freeContext(e->scale);
	av_frame_free(&e->frame);
	av_packet_free(&e->packet);
	avcodec_free_context(&e->codec);
	if (e->file && e->file->pb) {
		av_freep(&e->file->pb->buffer);
		avio_context_free(&e->file->pb);
	}
	avformat_free_context(e->file);
	free(e);
}
