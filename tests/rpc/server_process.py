"""A server in a process of its own, which tests kill: `python server_process.py ADDR TRANSPORT KEY_FILE`."""

import itertools
import os
import sys
import threading

from dreamfleet import rpc


def say(word):
    os.write(1, f"{word}\n".encode())  # one write, which keeps lines of several threads apart


def block(data):
    say("blocked")
    threading.Event().wait()


if __name__ == "__main__":
    addr, transport, key_file = sys.argv[1:]
    server = rpc.make_server(addr, "server", transport=transport, key_file=key_file or None)
    server.bind("pid", lambda data: os.getpid())
    server.bind("block", block)
    calls = itertools.count(1)
    server.bind("count", lambda data: next(calls))
    with server:
        say("ready")
        sys.stdin.read()
