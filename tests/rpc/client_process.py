"""A client in a process of its own, on a host of its own: `python client_process.py ADDR TRANSPORT KEY_FILE`."""

import sys

from dreamfleet import rpc

CONNECT_S = 60.0

if __name__ == "__main__":
    addr, transport, key_file = sys.argv[1:]
    with rpc.make_client(addr, "client", peer="server", transport=transport, key_file=key_file) as client:
        client.call("pid").result(CONNECT_S)
        print("ready", flush=True)
        timeout_s = float(sys.stdin.readline())
        client.call("pid", repeat=True).result(timeout_s)
        print("answered", flush=True)
