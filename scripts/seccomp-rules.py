#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collect the system calls that the monitor's sources say they need.

Beside code that makes system calls stands a comment: `syscalls(ROLE): a b c` opened and closed as any C
comment, where ROLE is a kind of thread (main, vcpu, worker), several with commas between, or `all`. An item
is a call's name, or the name with one condition on an argument:

    socket(0=AF_UNIX)      argument 0 must equal the constant
    mmap(2!PROT_EXEC)      argument 2 must have none of the constant's bits
    tgkill(0=SELF)         argument 0 must be the monitor's own process id

The same call may stand several times: any of its forms is allowed; a form without a condition allows all.
Output: lines `RULE(ROLE, name)`, `RULE_EQ(ROLE, name, arg, CONST)` and `RULE_CLEAR(...)`, sorted, for
vmm/seccomp/compile.c. Exits 1 and names the place of an item that cannot be read.
"""
import re
import sys

ROLES = ("main", "vcpu", "worker")
COMMENT = re.compile(r"/\*(?:(?!\*/).)*?\*/", re.S)
HEAD = re.compile(r"syscalls\(([a-z, ]+)\):([^:]*?)(?=syscalls\(|\*/)", re.S)
ITEM = re.compile(r"^([a-z_0-9]+)(?:\(([0-5])([=!])([A-Za-z_0-9]+)\))?$")


def main(paths):
    rules = set()
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for comment in COMMENT.finditer(text):
            for head in HEAD.finditer(comment.group(0)):
                roles, body = head.groups()
                line = text.count("\n", 0, comment.start() + head.start()) + 1
                roles = [r.strip() for r in roles.split(",")]
                for role in roles:
                    if role not in ROLES and role != "all":
                        sys.exit(f"{path}:{line}: unknown role '{role}': use all, {', '.join(ROLES)}")
                for item in re.sub(r"^\s*\*", " ", body, flags=re.M).split():
                    m = ITEM.match(item)
                    if not m:
                        sys.exit(f"{path}:{line}: cannot read '{item}' in syscalls({role})")
                    for r in ROLES if "all" in roles else roles:
                        rules.add((r, *m.groups()))
    free = {(r[0], r[1]) for r in rules if r[2] is None}
    for role, name, arg, op, const in sorted(rules, key=str):
        if arg is None:
            print(f"RULE({role}, {name})")
        elif (role, name) not in free:
            kind = "RULE_EQ" if op == "=" else "RULE_CLEAR"
            print(f"{kind}({role}, {name}, {arg}, {const})")


main(sys.argv[1:])
