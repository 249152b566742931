"""What the names of hosts stand for on this machine."""

import socket

from dreamfleet.base.addresses import Address, is_loopback


def find_hosts(host: str) -> list[str]:
    """The IP addresses of a host, IPv4 first as those of most peers are; none for a name that is not known."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(info[4][0]) for info in sorted(infos, key=lambda info: info[0] != socket.AF_INET)]


def is_ipv6_only(host: str) -> bool:
    """Whether a host can be reached over IPv6 alone; of one that is not known, nothing is said."""
    return all(":" in found for found in (find_hosts(host) or [host]))


def explain_host(addr: Address) -> str | None:
    """Why nobody may ever answer at the host that an address names, if its name tells."""
    if addr.is_ipc or addr.is_loopback:
        return None  # as somebody meant it
    found = find_hosts(addr.host)
    if not found:
        return f"{addr.text} names a host that is not known here; check the name, or use its IP address"
    if is_loopback(found[0]):
        where = f"{addr.text} is {found[0]} here, which is this machine itself"
        return f"{where}; if another one is meant, use its IP address or correct /etc/hosts"
    return None
