/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX ACLs: from the text that archives have to the bytes that extended attributes have, and whether those are right. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POSIX_ACL_ACCESS "system.posix_acl_access"
#define POSIX_ACL_DEFAULT "system.posix_acl_default"

/* What archives call the texts of the two. */
#define POSIX_ACL_TEXT_ACCESS "SCHILY.acl.access"
#define POSIX_ACL_TEXT_DEFAULT "SCHILY.acl.default"

/* The attribute that such a text becomes, or NULL when it is none. */
const char *posix_acl_attribute(const char *text_name);

/* What stands in messages for one with names that nobody knows. */
#define POSIX_ACL_WITHOUT_IDS "ACL with a name that is not in its /etc/passwd or /etc/group (see --numeric-owner of tar)"

enum { POSIX_ACL_HEAD = 4, POSIX_ACL_ENTRY = 8, POSIX_ACL_ENTRIES_MAX = 128, POSIX_ACL_SIZE_MAX = POSIX_ACL_HEAD + POSIX_ACL_ENTRIES_MAX * POSIX_ACL_ENTRY };

/* Finds the id of a name; false: not known. */
typedef bool posix_acl_find(void *arg, bool group, const char *name, size_t n, uint32_t *ret);

/* The text of pax headers ("SCHILY.acl.access"): "user::rw-,user:lp:r--:7,group::r--,mask::r--,other::r--", entries separated by
 * commas or ends of lines, ids as names' fourth field or in place of names. Returns bytes, 0 for none, or -EINVAL; -ENOENT when it has a name
 * without an id that `find` (NULL: nobody is asked) does not know. */
int posix_acl_from_text(const char *text, size_t len, posix_acl_find *find, void *arg, uint8_t ret[POSIX_ACL_SIZE_MAX]);

/* Whether the kernel would take the attribute. *ret_mode (may be NULL) are the nine bits that belong to it. */
bool posix_acl_is_valid(const void *value, size_t size, uint32_t *ret_mode);
