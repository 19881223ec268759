"""How the launchers of several machines meet in one run: at a store that is there already, in a fixed order.

PyTorch's own ways do not fit a series of runs. ``static`` makes node rank 0's launcher listen at one port on
every interface, run after run; ``c10d`` numbers the machines by their addresses, not as they were told.
Written against https://docs.pytorch.org/docs/stable/elastic/rendezvous.html ("registry").
"""

from __future__ import annotations

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

BACKEND = "mgpu"


class MeetingAtStore(StaticTCPRendezvous):
    """A fixed number of machines with fixed numbers, all of them guests at the endpoint's store."""

    def get_backend(self) -> str:
        """Return the name under which ``--rdzv-backend`` finds it."""
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        """Connect, and hand out this machine's number and where its ranks find the store."""
        store = TCPStore(self.master_addr, self.master_port, is_master=False, timeout=self.timeout)
        return RendezvousInfo(
            PrefixStore(self.run_id, store),
            self.rank,
            self.world_size,
            RendezvousStoreInfo(self.master_addr, self.master_port),
        )


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    host, port = parse_rendezvous_endpoint(parameters.endpoint, -1)
    rank, seconds = parameters.get_as_int("rank"), parameters.get_as_int("timeout")
    assert rank is not None
    assert seconds is not None
    return MeetingAtStore(host, port, rank, parameters.max_nodes, parameters.run_id, seconds)


def register() -> None:
    """Make the backend known to ``torch.distributed.run`` in this process."""
    rendezvous_handler_registry.register(BACKEND, _create)
