/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a Debian a desktop: its packages, a user, and the programs of ours that agent, host and session find in it
 * (guest/desktop).
 *
 * The session is described in docs/display.md. Nothing in the image needs a network, systemd as init, or root's rights but the X server
 * and udevd.
 */
#pragma once
#include "host/fstree.h"
#include "host/image.h"
#include "lib/err.h"
#include "lib/opt.h"

/* Without GTK, which a browser alone needs: xfe is the file manager, and has the editor xfwrite and the viewer xfimage. */
#define IMAGE_DESKTOP_PACKAGES                                                                   \
	"python3,ca-certificates,xserver-xorg-core,xserver-xorg-input-libinput,udev,jwm,xterm,xfe," \
	"fonts-dejavu-core,xfonts-base,x11-xserver-utils,xclip,dbus-daemon"
#define IMAGE_DESKTOP_USER "user"
#define IMAGE_DESKTOP_HOOK                                                                                       \
	"--customize-hook=chroot \"$1\" useradd --create-home --uid 1000 --shell /bin/bash --groups video,input " \
	IMAGE_DESKTOP_USER

/* Values of --with: 0 or -EINVAL. */
int image_desktop_check_with(const struct opt_strv *with, struct err *err);

/* Add our programs to the tree of a tar whose file is `tar`: their contents go behind its end. image: user, directory and
 * environment of commands become the desktop's. */
int image_desktop_add(struct fstree *t, int tar, struct image *image, struct err *err);
