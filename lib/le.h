/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Little-endian integers as types of their own, so that the compiler refuses to mix them with
 * native ones. Used for everything laid out by a specification: virtio structures, layer headers,
 * snapshot sections, agent frames. Unaligned access goes through the load and store functions.
 */
#pragma once
#include <endian.h>
#include <stdint.h>
#include <string.h>

typedef struct { uint16_t raw; } le16;
typedef struct { uint32_t raw; } le32;
typedef struct { uint64_t raw; } le64;

static inline uint16_t le16_get(le16 v) { return le16toh(v.raw); }
static inline uint32_t le32_get(le32 v) { return le32toh(v.raw); }
static inline uint64_t le64_get(le64 v) { return le64toh(v.raw); }
static inline le16 le16_make(uint16_t v) { return (le16){ htole16(v) }; }
static inline le32 le32_make(uint32_t v) { return (le32){ htole32(v) }; }
static inline le64 le64_make(uint64_t v) { return (le64){ htole64(v) }; }

static inline uint16_t le16_load(const void *p) { le16 v; memcpy(&v, p, sizeof(v)); return le16_get(v); }
static inline uint32_t le32_load(const void *p) { le32 v; memcpy(&v, p, sizeof(v)); return le32_get(v); }
static inline uint64_t le64_load(const void *p) { le64 v; memcpy(&v, p, sizeof(v)); return le64_get(v); }
static inline void le16_store(void *p, uint16_t v) { le16 t = le16_make(v); memcpy(p, &t, sizeof(t)); }
static inline void le32_store(void *p, uint32_t v) { le32 t = le32_make(v); memcpy(p, &t, sizeof(t)); }
static inline void le64_store(void *p, uint64_t v) { le64 t = le64_make(v); memcpy(p, &t, sizeof(t)); }
