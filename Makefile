# SPDX-License-Identifier: Apache-2.0
# Coffer: `make demo` and `make check` each set up, build and run on a fresh Debian 12 machine.
#
#   make            build everything into $(B)
#   make setup      install what packages.txt lists (does nothing when it is there)
#   make check      all tests; check-fast: without guests and long ones; check-desktop; check-asan, check-tidy, fuzz,
#                   golden-update (new versions of saved state)
#   make demo       a Debian guest runs commands
#   make bench-NAME one benchmark (bench/NAME*)
#   make guest-kernel  the small guest kernel, cached outside the tree
#   make install    PREFIX=/usr/local
#
# Sources are found by directory: lib/ -> libcore.a, vmm/ devices/ snapshot/ -> libvmm.a, host/ -> coffer,
# host/fetch/ -> coffer-fetch, host/import/ -> coffer-import, host/record/ -> coffer-record, host/gpu/ -> coffer-gpu,
# guest/agent/ -> coffer-agent (static), guest/desktop/ -> coffer-session, coffer-clipboard and coffer-ready (static). Tests: tests/{unit,device,twin,golden,payload,long}/NAME_test.c,
# fuzzers: tests/fuzz/NAME_fuzz.c, each one program.

B ?= build
# make's built-in default is cc; the environment and the command line win.
ifeq ($(origin CC),default)
CC = gcc
endif
VERSION := 0.1.0
PREFIX ?= /usr/local
ARCH := x86
JOBS ?= $(shell nproc)

WARN := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wimplicit-fallthrough -Werror
OPT ?= -O2 -g
HARDEN ?= -D_FORTIFY_SOURCE=2 -fstack-protector-strong
SANITIZE ?=
CPPFLAGS += -I. -I$(B) -D_GNU_SOURCE -DCOFFER_VERSION='"$(VERSION)"'
CFLAGS += -std=gnu11 $(OPT) $(WARN) $(HARDEN) $(SANITIZE) -fPIE -pthread -MMD -MP
LDFLAGS += -pie -pthread -Wl,-z,relro,-z,now $(SANITIZE)

PKG_VMM := liburing libzstd liblz4
PKG_HOST := jansson libpng libzstd liblzma zlib ext2fs com_err nettle
PKG_FETCH := libcurl jansson nettle
PKG_IMPORT := libarchive zlib nettle
PKG_GPU := virglrenderer
PKG_VNC := libvncserver gnutls nettle zlib
PKG_RECORD := libavformat libavcodec libswscale libavutil
PKG_DESKTOP := xcb-xfixes xcb
PKG_TEST := cmocka libvncclient
pkg = $(shell pkg-config --libs $(1))

LIB_SRC := $(wildcard lib/*.c)
VMM_SRC := $(filter-out vmm/main.c,$(wildcard vmm/*.c vmm/$(ARCH)/*.c devices/*.c devices/backend/*.c snapshot/*.c))
HOST_SRC := $(filter-out host/main.c,$(wildcard host/*.c))
FETCH_SRC := $(filter-out host/fetch/main.c,$(wildcard host/fetch/*.c))
IMPORT_SRC := $(filter-out host/import/main.c,$(wildcard host/import/*.c))
GPU_SRC := $(filter-out host/gpu/main.c,$(wildcard host/gpu/*.c))
VNC_SRC := $(filter-out host/vnc/main.c,$(wildcard host/vnc/*.c))
RECORD_SRC := $(filter-out host/record/main.c,$(wildcard host/record/*.c))
AGENT_SRC := $(filter-out guest/agent/main.c,$(wildcard guest/agent/*.c))
objs = $(patsubst %.c,$(B)/%.o,$(1))

LIBCORE := $(B)/libcore.a
LIBVMM := $(B)/libvmm.a
LIBHOST := $(B)/libhost.a
LIBFETCH := $(B)/libfetch.a
LIBIMPORT := $(B)/libimport.a
LIBGPU := $(B)/libgpu.a
LIBVNC := $(B)/libvnc.a
LIBRECORD := $(B)/librecord.a
LIBAGENT := $(B)/libagent.a
PROGRAMS := $(B)/coffer $(B)/coffer-vmm $(B)/coffer-fetch $(B)/coffer-import $(B)/coffer-gpu $(B)/coffer-vnc $(B)/coffer-record $(B)/coffer-agent
DESKTOP_PROGRAMS := $(B)/coffer-session $(B)/coffer-clipboard $(B)/coffer-ready

TEST_SRC := $(wildcard tests/unit/*_test.c tests/device/*_test.c tests/twin/*_test.c tests/golden/*_test.c tests/payload/*_test.c \
	tests/long/*_test.c)
TESTS := $(patsubst %.c,$(B)/%,$(TEST_SRC))
HARNESS := $(B)/libharness.a
GUEST_TOOLS := $(patsubst %.c,$(B)/%,$(wildcard tests/boot/*.c))
LAB_TOOLS := $(patsubst %.c,$(B)/%,$(wildcard tests/lab/*.c tests/tools/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/*_fuzz.c)
FUZZERS := $(patsubst %.c,$(B)/%,$(FUZZ_SRC))
FUZZ_REPLAY := $(patsubst %.c,$(B)/%_replay,$(FUZZ_SRC))
BENCH_SRC := $(wildcard bench/*.c)
BENCH_PROGS := $(patsubst %.c,$(B)/%,$(BENCH_SRC))

.PHONY: all setup check check-fast check-desktop check-asan check-tidy fuzz fuzzers golden-update demo guest-kernel clean install tests programs
.DELETE_ON_ERROR:
all: programs tests
programs: $(PROGRAMS) $(DESKTOP_PROGRAMS)
tests: $(TESTS) $(LAB_TOOLS) $(GUEST_TOOLS) $(FUZZ_REPLAY) $(BENCH_PROGS)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# System call filters: comments in the sources -> rules -> BPF made by libseccomp on the build machine.
SECCOMP_SRC := $(LIB_SRC) $(VMM_SRC) $(wildcard vmm/main.c)
$(B)/seccomp_rules.inc: scripts/seccomp-rules.py $(SECCOMP_SRC)
	@mkdir -p $(@D)
	@scripts/seccomp-rules.py $(SECCOMP_SRC) > $@.tmp && (cmp -s $@.tmp $@ && rm $@.tmp && touch $@ || mv $@.tmp $@)
$(B)/seccomp-compile: vmm/seccomp/compile.c vmm/seccomp/self.h $(B)/seccomp_rules.inc
	$(CC) $(CPPFLAGS) -std=gnu11 -O1 $(WARN) -o $@ $< -lseccomp
$(B)/seccomp_filter.h: $(B)/seccomp-compile
	@$< > $@.tmp && mv $@.tmp $@
$(B)/vmm/isolate.o: $(B)/seccomp_filter.h

$(LIBCORE): $(call objs,$(LIB_SRC))
$(LIBVMM): $(call objs,$(VMM_SRC))
$(LIBHOST): $(call objs,$(HOST_SRC))
$(LIBFETCH): $(call objs,$(FETCH_SRC))
$(LIBIMPORT): $(call objs,$(IMPORT_SRC))
$(LIBGPU): $(call objs,$(GPU_SRC))
$(LIBVNC): $(call objs,$(VNC_SRC))
$(LIBRECORD): $(call objs,$(RECORD_SRC))
$(HARNESS): $(call objs,$(wildcard tests/harness/*.c))
$(LIBCORE) $(LIBVMM) $(LIBHOST) $(LIBFETCH) $(LIBIMPORT) $(LIBGPU) $(LIBVNC) $(LIBRECORD) $(HARNESS):
	@rm -f $@
	$(AR) rcs $@ $^

# The monitor is static: it starts in half the time without a dynamic linker, and needs no library in its jail. Sanitizers need one.
VMM_LINK := $(if $(SANITIZE),$(LDFLAGS),-static-pie $(filter-out -pie,$(LDFLAGS)))
$(B)/coffer-vmm: $(B)/vmm/main.o $(LIBVMM) $(LIBCORE)
	$(CC) $(VMM_LINK) -o $@ $^ $(if $(SANITIZE),$(call pkg,$(PKG_VMM)),$(shell pkg-config --static --libs $(PKG_VMM)))
# Ten libraries take the dynamic linker longer than a short command takes in all: they are static. libc is not: names of users and hosts
# come from where this machine has them.
$(B)/coffer: $(B)/host/main.o $(LIBHOST) $(LIBVMM) $(LIBCORE)
	$(CC) $(LDFLAGS) -o $@ $^ -Wl,-Bstatic $(call pkg,$(PKG_HOST) $(PKG_VMM)) -Wl,-Bdynamic -lm
# The only user of libcurl, whose libraries take longer to load than a whole short command.
$(B)/coffer-fetch: $(B)/host/fetch/main.o $(LIBFETCH) $(LIBHOST) $(LIBCORE)
	$(CC) $(LDFLAGS) -o $@ $^ $(call pkg,$(PKG_FETCH))

# The only user of libarchive, which reads what may be hostile, and loads a dozen libraries.
$(B)/coffer-import: $(B)/host/import/main.o $(LIBIMPORT) $(LIBHOST) $(LIBCORE)
	$(CC) $(LDFLAGS) -o $@ $^ $(call pkg,$(PKG_IMPORT))

# The only user of virglrenderer, which brings Mesa and a compiler.
$(B)/coffer-gpu: $(B)/host/gpu/main.o $(LIBGPU) $(LIBCORE)
	$(CC) $(LDFLAGS) -o $@ $^ $(call pkg,$(PKG_GPU))
# The only user of libvncserver and GnuTLS: what viewers send is read in its jail.
$(B)/coffer-vnc: $(B)/host/vnc/main.o $(LIBVNC) $(LIBHOST) $(LIBCORE)
	$(CC) $(LDFLAGS) -o $@ $^ $(call pkg,$(PKG_VNC))

# The only user of libavcodec, which loads a hundred libraries.
$(B)/coffer-record: $(B)/host/record/main.o $(LIBRECORD) $(LIBHOST) $(LIBCORE)
	$(CC) $(LDFLAGS) -o $@ $^ $(call pkg,$(PKG_RECORD)) -lm

# The agent is static and small: its own objects, no sanitizers, sections collected.
AGENT_CFLAGS := -std=gnu11 -Os -g $(WARN) $(HARDEN) -fno-pie -ffunction-sections -fdata-sections -MMD -MP
$(B)/agent/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(AGENT_CFLAGS) -c -o $@ $<
AGENT_OBJS := $(patsubst %.c,$(B)/agent/%.o,$(AGENT_SRC) $(LIB_SRC))
$(LIBAGENT): $(call objs,$(AGENT_SRC))
	@rm -f $@
	$(AR) rcs $@ $^
$(B)/coffer-agent: $(B)/agent/guest/agent/main.o $(AGENT_OBJS)
	$(CC) -static -Wl,--gc-sections -s -o $@ $^

# What `coffer image build desktop` puts into its image: static, too, since the image may be older or newer than this machine.
$(B)/coffer-clipboard $(B)/coffer-ready: $(B)/coffer-%: $(B)/agent/guest/desktop/%.o $(B)/agent/guest/desktop/no_resolver.o $(patsubst %.c,$(B)/agent/%.o,$(LIB_SRC))
	$(CC) -static -Wl,--gc-sections -Wl,--wrap=getaddrinfo -s -o $@ $^ $(shell pkg-config --static --libs $(PKG_DESKTOP))
$(B)/coffer-session: guest/desktop/session
	@mkdir -p $(@D)
	install -m 755 $< $@

# What boot tests run inside their guests: static, one file each.
$(GUEST_TOOLS): $(B)/%: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(AGENT_CFLAGS) -static -s -o $@ $<

# Every test may use any library; the archives are listed twice over by group.
ARCHIVES := $(HARNESS) $(LIBVMM) $(LIBHOST) $(LIBFETCH) $(LIBIMPORT) $(LIBGPU) $(LIBVNC) $(LIBRECORD) $(LIBAGENT) $(LIBCORE)
ALL_LIBS = -Wl,--start-group $(ARCHIVES) -Wl,--end-group $(call pkg,$(PKG_TEST) $(PKG_VMM) $(PKG_HOST)) -Wl,--as-needed $(call pkg,$(PKG_FETCH) $(PKG_IMPORT) $(PKG_GPU) $(PKG_VNC) $(PKG_RECORD)) -lm
$(TESTS): $(B)/%: $(B)/%.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $< $(ALL_LIBS)
$(LAB_TOOLS) $(BENCH_PROGS): $(B)/%: $(B)/%.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $< $(ALL_LIBS)
# A replay program runs the fuzz target over the files it is given.
$(FUZZ_REPLAY): $(B)/%_replay: $(B)/%.o $(B)/tests/fuzz/replay.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -o $@ $< $(B)/tests/fuzz/replay.o $(ALL_LIBS)

# The same with libFuzzer, for scripts/fuzz.sh (clang, in a build directory of its own).
$(FUZZERS): $(B)/%: $(B)/%.o $(ARCHIVES)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $< $(ALL_LIBS)
fuzzers: $(FUZZERS)

setup:
	@scripts/setup.sh

check: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@B=$(B) tests/run
# A whole desktop in a VM. Its image takes minutes to build and the lab minutes to run it, so it is not part of check.
check-desktop: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@B=$(B) scripts/desktop-image.sh >/dev/null
	@B=$(B) tests/run --group desktop
check-fast: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@B=$(B) tests/run --group unit --group device --group twin --group golden --group style --group fuzz
check-asan: setup
	@$(MAKE) --no-print-directory B=$(B)-asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined" HARDEN= OPT="-O1 -g" -j$(JOBS) all
	@B=$(B)-asan tests/run --factor 3 --group unit --group device --group twin --group golden --group long --group fuzz
check-tidy: setup
	@scripts/tidy.sh
fuzz: setup
	@scripts/fuzz.sh
# Store the texts and blobs of state lists with a new version.
golden-update: $(B)/tests/golden/golden_test
	@$< --update
demo: setup
	@$(MAKE) --no-print-directory -j$(JOBS) programs
	@B=$(B) scripts/demo.sh
guest-kernel: setup
	@guest/kernel/build.sh
bench-%: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@B=$(B) bench/$*.sh

install: programs
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/coffer $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(B)/coffer $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(B)/coffer-vmm $(B)/coffer-import $(B)/coffer-fetch $(B)/coffer-gpu $(B)/coffer-vnc $(B)/coffer-record $(B)/coffer-agent $(DESTDIR)$(PREFIX)/libexec/coffer/
	install -m 755 $(DESKTOP_PROGRAMS) $(DESTDIR)$(PREFIX)/libexec/coffer/
	install -m 644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/

clean:
	rm -rf $(B) $(B)-asan $(B)-fuzz

-include $(shell find $(B) -name '*.d' 2>/dev/null)
