"""One of two ranks of the pre-flight: `python -m mgpu_utils.doctor.preflight_rank RANK`, started by `preflight`.

It reports each step in JSON, and reads from its standard input where to meet and whether to go on with nccl. When
that input ends, the process that asked is gone, and this one leaves too, also from inside a collective.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from datetime import timedelta
from typing import Any

_ELEMENTS = 2**18


def main(rank: int) -> None:
    """Import torch, meet the other rank, add up a tensor over gloo and, when told to, over nccl."""
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    try:
        import torch
        import torch.distributed as dist

        from mgpu_utils.rendezvous import loopback_store

        say("imported")
        patience = timedelta(seconds=60)
        if rank == 0:
            store = loopback_store(patience.total_seconds())
            say("store", port=store.port)
        else:
            port = int(commands.get())
            store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=patience)
        dist.init_process_group("gloo", store=dist.PrefixStore("doctor", store), rank=rank, world_size=2)
        say("gloo", right=_adds_up(torch.device("cpu"), rank, None))
        if commands.get() == "nccl":
            device = torch.device("cuda", rank)
            torch.cuda.set_device(device)
            say("nccl", right=_adds_up(device, rank, dist.new_group(backend="nccl")))
            commands.get()
    except Exception as error:
        say("failed", error=f"{type(error).__name__}: {error}".splitlines()[0])
    os._exit(0)


def _adds_up(device: Any, rank: int, group: Any) -> bool:
    import torch
    import torch.distributed as dist

    # Large enough to take the path between devices that batches take; broken peer access gives wrong sums.
    total = torch.full((_ELEMENTS,), float(rank + 1), device=device)
    dist.all_reduce(total, group=group)
    return bool((total == 3.0).all().item())


def say(event: str, **values: object) -> None:
    """Report to the process that asked."""
    print(json.dumps({"event": event, **values}), flush=True)


def _listen(commands: queue.Queue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
