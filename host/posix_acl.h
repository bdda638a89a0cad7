/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX ACLs: from the text that archives have to the bytes that extended attributes have, and whether those are right. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POSIX_ACL_ACCESS "system.posix_acl_access"
#define POSIX_ACL_DEFAULT "system.posix_acl_default"

/* What stands for one in messages that names users whose ids the archive does not have. */
#define POSIX_ACL_WITHOUT_IDS "ACL with names but no ids (write the archive with --numeric-owner)"

enum { POSIX_ACL_HEAD = 4, POSIX_ACL_ENTRY = 8, POSIX_ACL_ENTRIES_MAX = 128, POSIX_ACL_SIZE_MAX = POSIX_ACL_HEAD + POSIX_ACL_ENTRIES_MAX * POSIX_ACL_ENTRY };

/* The text of pax headers ("SCHILY.acl.access"): "user::rw-,user:lp:r--:7,group::r--,mask::r--,other::r--", entries separated by
 * commas or ends of lines, ids as names' fourth field or in place of names. Returns bytes, 0 for none, or -EINVAL; -ENOENT when it has a name
 * without an id. */
int posix_acl_from_text(const char *text, size_t len, uint8_t ret[POSIX_ACL_SIZE_MAX]);

/* Whether the kernel would take the attribute. *ret_mode (may be NULL) are the nine bits that belong to it. */
bool posix_acl_is_valid(const void *value, size_t size, uint32_t *ret_mode);
