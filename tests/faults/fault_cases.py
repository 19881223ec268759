"""The faults that are tried on ranks: what a learner types, what they see, and how the group is afterwards.

The tests hold this list against real ranks, and `fault_table.py` writes docs/robustness.md from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mgpu_utils.memory_kills import out_of_memory_kills
from mgpu_utils.rank_errors import number_ranks


@dataclass(frozen=True)
class Fault:
    """One fault. In the texts `{odd}` is the last rank, `{others}` the ranks before it, `{all}` all of them.

    Attributes:
        about: heading under which it stands.
        name: what goes wrong, in a few words.
        code: the cell; `odd` in it is true on the last rank.
        sees: the first line of the message; empty where the cell ends with a result.
        says: what else the message holds.
        error: name of the exception's class.
        waits: whether only the group's timeout ends the cell.
        restart: whether the group needs `ranks.restart()` afterwards.
        stop: whether the stop button is pressed after a while.
        patience: seconds of the group's timeout, where that is what ends the cell.
        explained: whether the message ends with the page that has more.
        before: a cell before it, for what a cell must not have to wait for.
    """

    about: str
    name: str
    code: str = ""
    sees: str = ""
    says: tuple[str, ...] = ()
    error: str = "RankError"
    waits: bool = False
    restart: bool = False
    stop: bool = False
    patience: float = 3.0
    explained: bool = True
    before: str = ""


# Every fault is made with so many ranks.
SIZES = (2, 3)
_COLLECTIVES = "Collectives that do not fit"
_NO_MATCH = "{all} do not match in their {nth} collective of this cell: {what} differ."


def _mismatch(name: str, nth: str, what: str, code: str, *says: str) -> Fault:
    sees = _NO_MATCH.replace("{nth}", nth).replace("{what}", what)
    return Fault(_COLLECTIVES, name, code, sees, (*says, "Why: Every rank must call the same"), restart=True)


_TIMEOUT = "the ranks did not finish within 3 s."
COLLECTIVES = [
    Fault(
        _COLLECTIVES,
        "a collective that one rank never joins",
        "x = torch.ones(10)\nif not odd:\n    dist.all_reduce(x)",
        _TIMEOUT,
        (
            "rank 0 waits inside all_reduce   cell, line 4: dist.all_reduce(x)",
            "rank {odd} has finished the cell",
            "for rank {odd}, which has already finished and will never join",
            "Rank 0 is in its 1st collective of this cell, all_reduce (shape (10,), float32, SUM); ",
            "rank {odd} has made 0.",
        ),
        "RankTimeout",
        waits=True,
        restart=True,
    ),
    Fault(
        _COLLECTIVES,
        "`barrier` in one branch",
        "if odd:\n    dist.barrier()",
        _TIMEOUT,
        ("rank {odd} waits inside barrier   cell, line 3: dist.barrier()", "rank 0 has made 0"),
        "RankTimeout",
        waits=True,
        restart=True,
    ),
    _mismatch(
        "different collectives",
        "1st",
        "operations",
        "x = torch.ones(1)\nif odd:\n    dist.broadcast(x, 0)\nelse:\n    dist.all_reduce(x)",
        "rank {odd} called broadcast (shape (1,), float32, root rank 0)   cell, line 4: dist.broadcast(x, 0)",
        "called all_reduce (shape (1,), float32, SUM)   cell, line 6: dist.all_reduce(x)",
    ),
    _mismatch(
        "two collectives in another order",
        "2nd",
        "operations",
        "x, y = torch.ones(1), torch.ones(3)\ndist.all_reduce(x)\nif odd:\n    dist.barrier()\n    dist.all_reduce(y)\n"
        "else:\n    dist.all_reduce(y)\n    dist.barrier()",
        "rank {odd} called barrier   cell, line 5",
        "called all_reduce (shape (3,), float32, SUM)   cell, line 8",
        "Usually two calls are swapped",
    ),
    _mismatch(
        "different shapes",
        "1st",
        "shapes",
        "x = torch.ones(3 if odd else 2)\ndist.all_reduce(x)",
        "rank {odd} called all_reduce (shape (3,), float32, SUM)   cell, line 3: dist.all_reduce(x)",
        "called all_reduce (shape (2,), float32, SUM)",
    ),
    _mismatch(
        "different dtypes",
        "1st",
        "dtypes",
        "x = torch.ones(2, dtype=torch.int64 if odd else torch.float32)\ndist.all_reduce(x)",
        "rank {odd} called all_reduce (shape (2,), int64, SUM)",
        "called all_reduce (shape (2,), float32, SUM)",
    ),
    Fault(
        _COLLECTIVES,
        "another number of steps on one rank (uneven data)",
        "x = torch.ones(1)\nfor step in range(3 if odd else 4):\n    dist.all_reduce(x)",
        _TIMEOUT,
        (
            "rank 0 waits inside all_reduce   cell, line 4: dist.all_reduce(x)",
            "Rank 0 is in its 4th collective of this cell, all_reduce (shape (1,), float32, SUM); ",
            "rank {odd} has made 3.",
            "different number of steps",
        ),
        "RankTimeout",
        waits=True,
        restart=True,
    ),
    Fault(
        _COLLECTIVES,
        "another number of DDP steps on one rank",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\n"
        "for step in range(1 if odd else 2):\n    model(torch.ones(1, 2)).sum().backward()",
        _TIMEOUT,
        ("rank 0 waits inside ", "The numbers of DDP training steps differ: rank 0 has begun 2, "),
        "RankTimeout",
        waits=True,
        restart=True,
        # The first DDP of a process imports for seconds.
        before="torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))(torch.ones(1, 2)).sum().backward()",
    ),
]

_EXCEPTIONS = "Exceptions"
EXCEPTIONS = [
    Fault(
        _EXCEPTIONS,
        "an exception on one rank, the others wait in a collective",
        "if odd:\n    raise ValueError('bad sample')\ndist.all_reduce(torch.ones(1))",
        "rank {odd} raised ValueError: bad sample",
        ("at cell, line 3: raise ValueError('bad sample')", "meanwhile: rank 0 waits inside all_reduce   cell, line 4"),
        restart=True,
        explained=False,
    ),
    Fault(
        _EXCEPTIONS,
        "an exception on all ranks",
        "1 / 0",
        "{all} raised ZeroDivisionError: division by zero",
        ("at cell, line 2: 1 / 0",),
        explained=False,
    ),
    Fault(
        _EXCEPTIONS,
        "an exception in a DataLoader worker",
        "class Data(torch.utils.data.Dataset):\n    def __len__(self):\n        return 4\n"
        "    def __getitem__(self, i):\n        raise OSError('broken image')\n"
        "for batch in torch.utils.data.DataLoader(Data(), num_workers=1 if odd else 0):\n    pass",
        "{others} raised OSError: broken image",
        ("at cell, line 6, in __getitem__: raise OSError('broken image')", "rank {odd} raised OSError"),
        explained=False,
    ),
    Fault(
        _EXCEPTIONS,
        "an exception in a backward hook",
        "x = torch.ones(2, requires_grad=True)\ndef check(grad):\n    raise ValueError('not finite')\n"
        "x.register_hook(check)\n(x * 2).sum().backward()",
        "{all} raised ValueError: not finite",
        ("cell, line 4, in check: raise ValueError('not finite')",),
        explained=False,
    ),
    Fault(
        _EXCEPTIONS,
        "`sys.exit`",
        "import sys\nsys.exit(3)",
        "{all} raised SystemExit: 3",
        ("line 3: sys.exit(3)",),
        explained=False,
    ),
    Fault(
        _EXCEPTIONS,
        "`os._exit` on one rank",
        "import os\nif odd:\n    os._exit(3)\ndist.barrier()",
        "rank {odd} ended itself with exit code 3 (`os._exit`, or a library that calls it)",
        restart=True,
    ),
    Fault(
        _EXCEPTIONS,
        "`KeyboardInterrupt` raised by the code",
        "raise KeyboardInterrupt",
        "{all} raised KeyboardInterrupt",
        ("line 2: raise KeyboardInterrupt",),
        explained=False,
    ),
    Fault(
        _EXCEPTIONS,
        "more memory than there is (a limit on one rank)",
        "import resource\nif odd:\n    before = resource.getrlimit(resource.RLIMIT_AS)\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, before[1]))\n"
        "    try:\n        x = torch.ones(16 << 30, dtype=torch.uint8)\n"
        "    finally:\n        resource.setrlimit(resource.RLIMIT_AS, before)",
        "rank {odd} raised RuntimeError: ",
        ("can't allocate memory", "Memory ran out on that rank. Usual cures: fewer ranks"),
    ),
]

_PROCESSES = "Ranks that die or stand still"
PROCESSES = [
    Fault(
        _PROCESSES,
        "a rank killed (SIGKILL)",
        "import os, signal\nif odd:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()",
        "rank {odd} was ended by signal 9 (SIGKILL): {killed}",
        restart=True,
    ),
    Fault(
        _PROCESSES,
        "a crash in compiled code (SIGSEGV)",
        "import ctypes\nif odd:\n    ctypes.string_at(0)\ndist.barrier()",
        "rank {odd} was ended by signal 11 (SIGSEGV): C++ code used memory that is not its own",
        ("at cell, line 4: ctypes.string_at(0)",),
        restart=True,
    ),
    Fault(
        _PROCESSES,
        "a rank stopped (SIGSTOP)",
        "import os, signal\nif odd:\n    os.kill(os.getpid(), signal.SIGSTOP)\ndist.barrier()",
        _TIMEOUT,
        ("rank {odd} is stopped (SIGSTOP)", "rank 0 waits inside barrier   cell, line 5", "somebody stopped (SIGSTOP)"),
        "RankTimeout",
        waits=True,
        restart=True,
    ),
    Fault(
        _PROCESSES,
        "an endless loop in Python",
        "while True:\n    pass",
        _TIMEOUT,
        ("rank 0 is still at work   cell, line ", "or an endless loop"),
        "RankTimeout",
        waits=True,
    ),
    Fault(
        _PROCESSES,
        "an endless call in C that holds the GIL",
        "import itertools\nany(itertools.repeat(0))",
        _TIMEOUT,
        ("rank 0 is still at work   cell, line 3: any(itertools.repeat(0))",),
        "RankTimeout",
        waits=True,
        restart=True,
    ),
]

_STOP = "The stop button"
_DATA = (
    "import time\nclass Slow(torch.utils.data.Dataset):\n    def __len__(self):\n        return 100\n"
    "    def __getitem__(self, i):\n        time.sleep(600)\n"
    "for batch in torch.utils.data.DataLoader(Slow(), num_workers=1):\n    pass"
)
STOPS = [
    Fault(_STOP, "pressed in a Python loop", "while True:\n    pass", "stopped.", (), "RankInterrupt", stop=True),
    Fault(
        _STOP,
        "pressed in a collective",
        "if not odd:\n    dist.barrier()",
        "stopped.",
        ("rank 0 waits inside barrier   cell, line 3: dist.barrier()", "has already finished and will never join"),
        "RankInterrupt",
        restart=True,
        stop=True,
    ),
    Fault(_STOP, "pressed while a DataLoader loads", _DATA, "stopped.", (), "RankInterrupt", stop=True),
    Fault(
        _STOP,
        "pressed in `sleep`",
        "import time\ntime.sleep(600)",
        "stopped.",
        ("rank 0 is still at work   cell, line 3: time.sleep(600)",),
        "RankInterrupt",
        stop=True,
    ),
    Fault(
        _STOP,
        "pressed where Python ignores exceptions",
        "import time\nclass Late:\n    def __del__(self):\n        time.sleep(600)\nLate()\ntime.sleep(600)",
        "stopped.",
        ("rank 0 is still at work   cell, line 5, in __del__: time.sleep(600)",),
        "RankInterrupt",
        stop=True,
    ),
]

ON_RANKS = [*COLLECTIVES, *EXCEPTIONS, *PROCESSES, *STOPS]


def filled(text: str, world_size: int) -> str:
    """The text with the ranks' numbers for `{odd}`, `{others}` and `{all}`."""
    killed = "somebody killed it; there was no lack of memory"
    if out_of_memory_kills() is None:
        killed = "somebody killed it, or the machine ran out of memory"
    names = {"odd": str(world_size - 1), "all": number_ranks(list(range(world_size))), "killed": killed}
    names["others"] = number_ranks(list(range(world_size - 1)))
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], text)
