#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_layout.py IMAGE_DIRECTORY LAYOUT: an OCI layout, named "base", with the layers of an image of Coffer's store as overlaybd blobs."""
import hashlib
import json
import os
import shutil
import sys

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NOTE = "containerd.io/snapshot/overlaybd/blob-"


def main(image, layout):
    blobs = os.path.join(layout, "blobs", "sha256")
    os.makedirs(blobs)
    with open(os.path.join(image, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)

    def write(data):
        data = json.dumps(data).encode()
        name = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, name), "wb") as f:
            f.write(data)
        return {"digest": "sha256:" + name, "size": len(data)}

    layers = []
    for layer in manifest["layers"]:
        shutil.copyfile(os.path.join(image, layer["file"]), os.path.join(blobs, layer["sha256"]))
        layers.append({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + layer["sha256"], "size": layer["bytes"],
                       "annotations": {NOTE + "digest": "sha256:" + layer["sha256"], NOTE + "size": str(layer["bytes"])}})
    config = {"mediaType": "application/vnd.oci.image.config.v1+json",
              **write({"architecture": "amd64", "os": "linux", "config": {},
                       "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}})}
    entry = {"mediaType": MANIFEST, "annotations": {"org.opencontainers.image.ref.name": "base"},
             **write({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})}
    with open(os.path.join(layout, "index.json"), "w", encoding="utf-8") as f:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, f)
    with open(os.path.join(layout, "oci-layout"), "w", encoding="ascii") as f:
        f.write('{"imageLayoutVersion": "1.0.0"}')


main(*sys.argv[1:])
