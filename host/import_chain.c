/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of overlaybd: see import_chain.h. */
#include "host/import_chain.h"

int import_chain_add(struct image_draft *d, struct image *image, const struct import_blob *blob, struct progress *p, struct err *err)
{
	(void)d, (void)image, (void)blob, (void)p;
	return err_set(err, -95, "layers of overlaybd cannot be imported yet");
}
int import_chain_finish(struct image_draft *d, struct image *image, struct err *err)
{
	(void)d, (void)image, (void)err;
	return 0;
}
int import_chain_file(struct image_draft *d, struct image *image, int fd, const char *name, struct progress *p, struct err *err)
{
	(void)d, (void)image, (void)fd, (void)name, (void)p, (void)err;
	return 0;
}
int import_chain_dir(struct image_draft *d, struct image *image, int dir, const char *name, struct progress *p, struct err *err)
{
	(void)d, (void)image, (void)dir, (void)name, (void)p, (void)err;
	return 0;
}
