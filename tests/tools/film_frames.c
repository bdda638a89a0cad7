/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a film: for tests of recordings.
 *
 *   film_frames FILE [FIRST.ppm [LAST.ppm]]
 *
 * Prints `size WIDTH HEIGHT`, `frame MILLISECONDS` for each frame with the time at which it is shown, and `end MILLISECONDS`;
 * writes the first and the last frame as pictures in RGB. Status 1 with a line when anything in it cannot be decoded.
 */
#include <errno.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct film {
	AVFormatContext *file;
	AVCodecContext *codec;
	AVFrame *frame;
	struct SwsContext *scale;
	uint8_t *rgb;
	int stream;
	unsigned frames;
	int64_t last, last_duration;
};

static int fail(const char *what)
{
	fprintf(stderr, "film_frames: %s\n", what);
	return -1;
}

static int open_film(struct film *f, const char *path)
{
	const AVCodec *codec = NULL;
	const AVCodecParameters *p;

	if (avformat_open_input(&f->file, path, NULL, NULL) < 0 || avformat_find_stream_info(f->file, NULL) < 0)
		return fail("this is no film");
	f->stream = av_find_best_stream(f->file, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
	if (f->stream < 0)
		return fail("no pictures are in it");
	p = f->file->streams[f->stream]->codecpar;
	f->codec = avcodec_alloc_context3(codec);
	f->frame = av_frame_alloc();
	f->rgb = p->width > 0 && p->height > 0 ? malloc((size_t)p->width * (size_t)p->height * 3) : NULL;
	if (!f->codec || !f->frame || !f->rgb || avcodec_parameters_to_context(f->codec, p) < 0 || avcodec_open2(f->codec, codec, NULL) < 0)
		return fail("its codec cannot be opened");
	printf("size %d %d\n", p->width, p->height);
	return 0;
}

static int64_t milliseconds(const struct film *f, int64_t t)
{
	return av_rescale_q(t, f->file->streams[f->stream]->time_base, (AVRational){ 1, 1000 });
}

static int write_ppm(struct film *f, const char *path)
{
	FILE *out = fopen(path, "wb");
	const size_t n = (size_t)f->codec->width * (size_t)f->codec->height * 3;
	bool bad;

	if (!out)
		return fail(path);
	fprintf(out, "P6\n%d %d\n255\n", f->codec->width, f->codec->height);
	bad = fwrite(f->rgb, 1, n, out) != n;
	return fclose(out) != 0 || bad ? fail(path) : 0;
}

static int take_frame(struct film *f, const char *first)
{
	uint8_t *const to[4] = { f->rgb };
	const int stride[4] = { f->codec->width * 3 };
	const AVFrame *p = f->frame;

	if (p->width != f->codec->width || p->height != f->codec->height)
		return fail("a frame has another size");
	f->scale = sws_getCachedContext(f->scale, p->width, p->height, (enum AVPixelFormat)p->format, p->width, p->height,
					AV_PIX_FMT_RGB24, SWS_POINT, NULL, NULL, NULL);
	if (!f->scale || sws_scale(f->scale, (const uint8_t *const *)p->data, p->linesize, 0, p->height, to, stride) != p->height)
		return fail("a frame cannot be shown");
	f->last = p->best_effort_timestamp;
	f->last_duration = p->pkt_duration;
	printf("frame %lld\n", (long long)milliseconds(f, f->last));
	return f->frames++ == 0 && first ? write_ppm(f, first) : 0;
}

static int take_frames(struct film *f, const AVPacket *packet, const char *first)
{
	int r = avcodec_send_packet(f->codec, packet);

	if (r < 0)
		return fail("a frame is broken");
	while ((r = avcodec_receive_frame(f->codec, f->frame)) == 0)
		if (take_frame(f, first) < 0)
			return -1;
	return r == AVERROR(EAGAIN) || r == AVERROR_EOF ? 0 : fail("a frame is broken");
}

int main(int argc, char **argv)
{
	struct film f = { .stream = -1 };
	AVPacket *packet = av_packet_alloc();
	int r = argc >= 2 && argc <= 4 && packet ? open_film(&f, argv[1]) : fail("usage: film_frames FILE [FIRST.ppm [LAST.ppm]]");

	while (r == 0 && av_read_frame(f.file, packet) == 0) {
		if (packet->stream_index == f.stream)
			r = take_frames(&f, packet, argc > 2 ? argv[2] : NULL);
		av_packet_unref(packet);
	}
	if (r == 0)
		r = take_frames(&f, NULL, argc > 2 ? argv[2] : NULL);
	if (r == 0 && f.frames == 0)
		r = fail("no frame is in it");
	if (r == 0 && argc > 3)
		r = write_ppm(&f, argv[3]);
	if (r == 0)
		printf("end %lld\n", (long long)milliseconds(&f, f.last + f.last_duration));
	av_packet_free(&packet);
	av_frame_free(&f.frame);
	avcodec_free_context(&f.codec);
	avformat_close_input(&f.file);
	sws_freeContext(f.scale);
	free(f.rgb);
	return r < 0;
}
