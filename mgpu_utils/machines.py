"""Several machines that work as one: which of them this is, where they meet, and the network that leads there."""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from dataclasses import dataclass

EXAMPLE_ENDPOINT = "10.1.0.1:29400"


class MachinesError(ValueError):
    """Machines that cannot work together as asked, said in one sentence."""


@dataclass(frozen=True)
class Machines:
    """``nnodes`` machines, of which this is number ``node_rank``; node rank 0 leads and listens on host and port."""

    nnodes: int
    node_rank: int
    host: str
    port: int

    @property
    def endpoint(self) -> str:
        """HOST:PORT as the command line takes it."""
        return endpoint_text(self.host, self.port)


@dataclass(frozen=True)
class Route:
    """How this machine reaches the endpoint: the endpoint's address, its own address, and the network interface."""

    endpoint_address: str
    address: str
    interface: str


def endpoint_text(host: str, port: int) -> str:
    """Return HOST:PORT, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(nnodes: int, node_rank: int | None, rdzv_endpoint: str | None) -> Machines | None:
    """Check what the command line says about machines; None when there is only this one.

    Raises: MachinesError naming the option, for numbers out of range and an endpoint others cannot reach.
    """
    if nnodes < 1:
        raise MachinesError(f"--nnodes is {nnodes}, but must be 1 or more.")
    if node_rank is not None and not 0 <= node_rank < nnodes:
        allowed = f"0 to {nnodes - 1} (node rank 0 leads and writes the results)" if nnodes > 1 else "0"
        raise MachinesError(f"--node-rank is {node_rank}, but with --nnodes {nnodes} it must be {allowed}.")
    if nnodes == 1:
        return None
    if node_rank is None:
        raise MachinesError(
            f"--node-rank is missing: give each of the {nnodes} machines its own number, 0 to {nnodes - 1}."
        )
    if not rdzv_endpoint:
        raise MachinesError(
            "--rdzv-endpoint is missing: give HOST:PORT of node rank 0, the same on every machine, "
            f"as in {EXAMPLE_ENDPOINT}."
        )
    return Machines(nnodes, node_rank, *_host_and_port(rdzv_endpoint))


def route(machines: Machines) -> Route:
    """Find the addresses and the network interface over which this machine meets the others.

    Raises: MachinesError for a host that is not known, not reachable, or on node rank 0 not this machine.
    """
    target = _resolve(machines)
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    if machines.node_rank == 0:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((target, 0))
            except OSError:
                raise MachinesError(
                    f"--rdzv-endpoint {machines.endpoint} is no address of this machine; it has to be the one of "
                    f"node rank 0 (this machine has {_listed(own_addresses())})."
                ) from None
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: it only makes the system choose the interface.
            probe.connect((target, machines.port))
        except OSError as error:
            raise MachinesError(
                f"no network leads from this machine to --rdzv-endpoint {machines.endpoint} "
                f"({error.strerror or error}); check the address."
            ) from None
        own = str(probe.getsockname()[0])
    interface = own_addresses().get(own)
    if interface is None:
        raise MachinesError(f"no network interface of this machine has the address {own}; check its network.")
    return Route(target, own, interface)


def own_addresses() -> dict[str, str]:
    """Return the network addresses of this machine, loopback left out, each with the name of its interface."""
    import psutil

    found: dict[str, str] = {}
    for interface, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                address = entry.address.split("%")[0]
                if not ipaddress.ip_address(address).is_loopback:
                    found[address] = interface
    return found


def spread(world_size: int, per_machine: int, nnodes: int) -> tuple[int, int]:
    """Return (machines, ranks a machine) for ``world_size`` ranks: as few machines as hold them, equally full.

    Raises: MachinesError where they do not fit or do not divide.
    """
    if world_size > per_machine * nnodes:
        raise MachinesError(
            f"world size {world_size} is above what {nnodes} machines have ({per_machine} each, "
            f"{per_machine * nnodes} in all)."
        )
    for used in range(-(-world_size // per_machine), nnodes + 1):
        if world_size % used == 0:
            return used, world_size // used
    raise MachinesError(
        f"world size {world_size} cannot be spread equally over up to {nnodes} machines with {per_machine} each; "
        f"choose a multiple of {per_machine}."
    )


def _host_and_port(endpoint: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+)):(?P<port>\d{1,5})", endpoint.strip())
    if not found or not 0 < int(found["port"]) < 2**16:
        raise MachinesError(
            f"--rdzv-endpoint is {endpoint!r}, but must be HOST:PORT with a port from 1 to 65535, "
            f"as in {EXAMPLE_ENDPOINT}."
        )
    host = found["six"] or found["host"]
    with suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    if host in ("0.0.0.0", "::"):
        raise MachinesError(
            f"--rdzv-endpoint is {endpoint}, which names no machine; give the address of node rank 0, "
            f"as in {EXAMPLE_ENDPOINT}."
        )
    if host == "localhost" or _is_loopback(host):
        raise MachinesError(
            f"--rdzv-endpoint is {endpoint}, which means every machine itself; "
            "give the address under which the other machines reach node rank 0."
        )
    return host, int(found["port"])


def _resolve(machines: Machines) -> str:
    try:
        found = socket.getaddrinfo(machines.host, machines.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise MachinesError(
            f"host {machines.host} of --rdzv-endpoint cannot be found ({error.strerror or error}); give its address."
        ) from None
    addresses = [str(entry[4][0]) for entry in found]
    outside = [address for address in addresses if not _is_loopback(address)]
    if not outside:
        raise MachinesError(
            f"host {machines.host} of --rdzv-endpoint is {addresses[0]} on this machine, which the others cannot "
            f"reach; give its address instead (this machine has {_listed(own_addresses())})."
        )
    # gloo over IPv4 is what is used everywhere; IPv6 where there is nothing else.
    return next((address for address in outside if ":" not in address), outside[0])


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _listed(addresses: dict[str, str]) -> str:
    return ", ".join(f"{address} on {name}" for address, name in addresses.items()) or "no network address"
