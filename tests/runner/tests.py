# SPDX-License-Identifier: Apache-2.0
"""What can be run: the tests of each group, found by directory."""
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# In the order in which they run. need: which KVM; limit: seconds for one program on an idle machine; apart: only when it is asked for.
GROUPS = {
    "unit": {"need": "none", "limit": 120},
    "device": {"need": "none", "limit": 120},
    "twin": {"need": "none", "limit": 120},
    "golden": {"need": "none", "limit": 60},
    "fuzz": {"need": "none", "limit": 120},
    "style": {"need": "none", "limit": 120},
    "long": {"need": "none", "limit": 300},
    "payload": {"need": "any", "limit": 120},
    "boot": {"need": "full", "limit": 300},
    "lab": {"need": "none", "limit": 600},
    "desktop": {"need": "full", "limit": 600, "apart": True},
}


class Test:
    """One program. kind says how its output reads: cmocka, tap, or script (one result, from the exit status)."""

    def __init__(self, group, name, argv, kind):
        self.group = group
        self.name = f"{group}/{name}"
        self.argv = argv
        self.kind = kind

    @property
    def need(self):
        return GROUPS[self.group]["need"]

    @property
    def limit(self):
        return GROUPS[self.group]["limit"]


def programs(build, group):
    """Test programs built from tests/GROUP/NAME_test.c; a source that is not built is a test all the same."""
    source = os.path.join(TOP, "tests", group)
    for entry in sorted(os.listdir(source)) if os.path.isdir(source) else []:
        if entry.endswith("_test.c"):
            yield Test(group, entry[:-len("_test.c")], [os.path.join(build, "tests", group, entry[:-2])], "cmocka")


def scripts(group):
    source = os.path.join(TOP, "tests", group)
    for entry in sorted(os.listdir(source)) if os.path.isdir(source) else []:
        path = os.path.join(source, entry)
        if not os.path.isfile(path) or not os.access(path, os.X_OK):
            continue
        if re.search(r"_test(\.sh|\.py)?$", entry) and group == "lab":
            yield Test(group, re.sub(r"_test(\.sh|\.py)?$", "", entry), [path], "tap")
        elif group != "lab" and not re.search(r"\.(c|h)$", entry):
            yield Test(group, re.sub(r"\.(sh|py)$", "", entry), [path], "script")


def replays(build):
    """tests/fuzz/NAME_fuzz.c over the files below tests/fuzz/corpus/NAME."""
    source = os.path.join(TOP, "tests", "fuzz")
    for entry in sorted(os.listdir(source)) if os.path.isdir(source) else []:
        if not entry.endswith("_fuzz.c"):
            continue
        name = entry[:-len("_fuzz.c")]
        corpus = os.path.join(source, "corpus", name)
        yield Test("fuzz", name, [os.path.join(build, "tests", "fuzz", entry[:-2] + "_replay"), corpus], "script")


def discover(build, groups):
    found = []
    for group in groups:
        if group == "fuzz":
            found += replays(build)
        else:
            found += programs(build, group)
        found += scripts(group)
    return found
