# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# An image with 8 MiB of noise in a registry on loopback, pulled as IMAGE=base; sourced, after common.sh. start_registry and stop_registry
# may be called again.
command -v docker-registry >/dev/null || skip "no docker-registry: install docker-registry"
command -v skopeo >/dev/null || skip "no skopeo: install skopeo"
busybox=$(command -v busybox) || skip "no busybox: install busybox-static"
export XDG_DATA_HOME="$T/data" XDG_CACHE_HOME="$T/cache"
make_root "$T/root"
head -c 8M /dev/urandom >"$root/big"
"$COFFER" image build "$root" --name made --root-owner >/dev/null
python3 "$TOP/tests/harness/make_layout.py" "$XDG_DATA_HOME/coffer/images/made" "$T/layout"
# What every VM needs is not made anew.
mkdir -p "$XDG_CACHE_HOME/coffer"
[ ! -d "$cache/initramfs" ] || ln -s "$cache/initramfs" "$XDG_CACHE_HOME/coffer/initramfs"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$T/config.yml" <<-END
	version: 0.1
	log: { level: error }
	storage: { filesystem: { rootdirectory: $T/registry } }
	http: { addr: "127.0.0.1:$port" }
END

registry=
start_registry() {
	docker-registry serve "$T/config.yml" >"$T/registry.log" 2>&1 &
	registry=$!
	until_true python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null
}

stop_registry() {
	kill $registry
	wait $registry || :
	registry=
}

trap '[ -z "$registry" ] || kill $registry; "$COFFER" kill --all >/dev/null 2>&1 || :' EXIT
start_registry
skopeo copy --insecure-policy --preserve-digests --dest-tls-verify=false "oci:$T/layout:base" "docker://127.0.0.1:$port/base:1" >/dev/null
same "$("$COFFER" image pull "docker://127.0.0.1:$port/base:1")" base
IMAGE=base
