"""What a forked rank does before its script: forget what it inherited from the launcher.

``torch.distributed.run`` runs this file in each rank with ``--run-path --start-method=fork``; the first argument is
the script, the others are the script's own. See `mgpu_utils.torchrun.Launcher`.
"""

from __future__ import annotations

import io
import os
import runpy
import signal
import sys
import time

from mgpu_utils.torchrun_logs import is_echo

# A rank whose failure follows from another one's waits so long; it is ended as soon as the other one is found.
_ECHO_SECONDS = 2.0
# What the launcher turns into an orderly end of its ranks would be an exception in a rank's own code.
_HANDLED = ("SIGTERM", "SIGHUP", "SIGQUIT")


def main() -> None:
    """Run the script as a new interpreter would: signals, threads, output and ``sys.argv`` are its own."""
    import torch
    import torch.distributed as dist

    from mgpu_utils import torchrun

    # As torchrun starts a script. Linux shares cores out among sessions: where all ranks were in the launcher's,
    # steps with many small collectives took 7 % longer than in a plain torchrun script.
    os.setsid()
    for name in _HANDLED:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The variable was read long ago, in the launcher.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(write_through=True)
    del sys.argv[0]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        # torch.distributed.run waits for what its function returns: an exit without an error is a return.
        if end.code not in (None, 0):
            raise
    except Exception as error:
        # torch.distributed.run names one failing rank of those it finds at one look; let it find the cause first.
        if is_echo(str(error)):
            time.sleep(_ECHO_SECONDS)
        raise
    # A script that is over keeps its connections, since its process waits for the others: they would wait for it.
    if dist.is_available() and dist.is_initialized() and not torchrun.has_delivered():
        raise RuntimeError("it ended (sys.exit?) before it left its group of ranks or delivered a result")


if __name__ == "__main__":
    main()
