#!/usr/bin/env python3
"""Checks that arrows of #include point down only:

    launcher  ->  agent  ->  library (include/dlaunch, src):  outside-world files  ->  pure files  ->  result, log

A pure file knows no sockets, processes, clocks or files; what touches them is listed in OUTSIDE below, and
a pure file must not include a system header or a file of that list. The trainer may use only what any
user's program could: the store's client and the worker's environment. Boost.Process is known to one file.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Nouns of the library (path without folder and suffix) that touch the outside world, on purpose.
OUTSIDE = {
    "asio", "console", "control/session", "devices", "held_port", "kernel", "log", "machine", "net", "port_holder",
    "process", "process_tree", "pty", "resolver", "signals", "store/client", "store/server", "terminal", "this_machine",
}
GROUND = {"result", "log"}  # below everything; they include nothing of ours but each other

SYSTEM = re.compile(
    r"(sys/(?!types\.h)|unistd\.h|fcntl\.h|poll\.h|dirent\.h|spawn\.h|pthread\.h|netinet/|arpa/|net/|netdb\.h|ifaddrs\.h"
    r"|termios\.h|pty\.h|ares|boost/asio|boost/process|filesystem$|fstream$|thread$)")
TRAINER_MAY = {"dlaunch/store/client.hpp", "dlaunch/store/server.hpp", "dlaunch/environment.hpp", "dlaunch/result.hpp"}

# What names may not be looked up with: a static binary would load the image's own modules, and may abort.
FORBIDDEN_CALL = re.compile(r"\b(getaddrinfo|getnameinfo|gethostby\w+|getpw\w+|getgr(nam|gid|ent)\w*|getservby\w+)\s*\(")


def part_of(path):
    """("launcher" | "agent" | "trainer" | "library", noun) of a file, from its path below the root."""
    top, _, rest = path.partition("/")
    if top == "include":
        rest = rest[len("dlaunch/"):]
    noun = rest.rsplit(".", 1)[0]
    return (top if top in ("launcher", "agent", "trainer") else "library"), noun


def part_of_include(name, path):
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if os.path.exists(os.path.join(ROOT, beside)):
        return part_of(beside)
    return part_of("include/" + name if name.startswith("dlaunch/") else name)


def layer(noun):
    return 0 if noun in GROUND else 2 if noun in OUTSIDE else 1


def faults_of(path, text):
    part, noun = part_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        at = "%s:%d: " % (path, number)
        call = FORBIDDEN_CALL.search(line.split("//")[0])
        if call and part != "trainer":
            yield at + "%s loads the image's own modules in a static binary; use resolver.hpp" % call[1]
        include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not include:
            continue
        name = include[2]
        if name.startswith("boost/process") and path != "src/process.cpp":
            yield at + "Boost.Process is for src/process.cpp alone"
        if include[1] == "<":
            if part == "library" and layer(noun) == 1 and SYSTEM.match(name):
                yield at + "<%s> in a pure file; if it belongs here, list '%s' as OUTSIDE in %s" % (
                    name, noun, os.path.relpath(__file__, ROOT))
            continue
        to_part, to_noun = part_of_include(name, path)
        if part == "trainer":
            if to_part != "trainer" and name not in TRAINER_MAY:
                yield at + "the trainer may use only %s" % ", ".join(sorted(TRAINER_MAY))
        elif part == "library":
            if to_part != "library":
                yield at + "the library includes nothing of %s/" % to_part
            elif layer(noun) < layer(to_noun) and to_noun != noun:
                yield at + "%s file includes the %s file '%s'" % (
                    ("a ground", "a pure", "an outside")[layer(noun)], ("ground", "pure", "outside-world")[layer(to_noun)],
                    to_noun)
        elif part == "agent" and to_part not in ("agent", "library"):
            yield at + "agent/ includes nothing of %s/" % to_part
        elif part == "launcher" and to_part not in ("launcher", "agent", "library"):
            yield at + "launcher/ includes nothing of %s/" % to_part


def main():
    faults, count = [], 0
    for top in ("include", "src", "agent", "launcher", "trainer"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".hpp", ".cpp", ".cu", ".cuh")):
                    path = os.path.relpath(os.path.join(folder, name), ROOT)
                    count += 1
                    with open(os.path.join(ROOT, path)) as file:
                        faults += faults_of(path, file.read())
    for fault in faults:
        print(fault)
    print("include direction: %d files, %s" % (count, "%d faults" % len(faults) if faults else "no fault"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
