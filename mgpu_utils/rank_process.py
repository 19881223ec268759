"""What runs inside a rank: an IPython kernel that joins the process group and delivers results.

`python -m mgpu_utils.rank_process CONNECTION_FILE` is started by `rank_kernel.py`. Results and errors
travel as messages with binary buffers on the kernel's own output channel, so they work for any size and
do not depend on how the interpreter exits later.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import linecache
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Collection
from typing import Any

from .collective_log import mapped
from .learner_code import is_learner_file

_STORE: Any = None
_TOLD: set[str] = set()


def main(connection_file: str) -> None:
    """Run the kernel of this rank until it is told to leave or its parent dies."""
    _end_with_parent()
    _write_stacks_to_parent()
    # Imports make hundreds of thousands of objects that stay: to look through them again and again costs a sixth of the
    # start. `join` switches collections on.
    gc.disable()
    from ipykernel.kernelapp import IPKernelApp

    class RankApp(IPKernelApp):
        def init_iopub(self, context: Any) -> None:
            # A result must never be dropped because a rank printed more than 1,000 messages before it.
            context.sndhwm = 0
            super().init_iopub(context)

    app = RankApp.instance()
    options = ["-f", connection_file, "--HistoryManager.enabled=False"]
    options.append("--IPKernelApp.outstream_class=mgpu_utils.rank_stream.RankStream")
    if sys.platform != "win32":
        # What C++ code writes must reach the pipe even when the process aborts in the next instant.
        options.append("--IPKernelApp.capture_fd_output=False")
    app.initialize(options)
    app.kernel.shell._showtraceback = _report_error
    warnings.filterwarnings("ignore", message="To exit: use")
    app.start()


def _end_with_parent() -> None:
    """Have Linux kill this process, and the processes it forks, when the parent dies.

    ipykernel polls its parent once a second, but a thread that polls cannot run while other code holds
    the GIL. The kernel's own signal always arrives.
    """
    if sys.platform != "linux" or os.environ.pop("MGPU_DIE_WITH_PARENT", "0") != "1":
        return
    libc = ctypes.CDLL(None)
    pr_set_pdeathsig = 1

    def die_with_parent() -> None:
        libc.prctl(pr_set_pdeathsig, signal.SIGKILL)

    forked_by_main_thread = False

    def before() -> None:
        nonlocal forked_by_main_thread
        forked_by_main_thread = threading.current_thread() is threading.main_thread()

    def in_child() -> None:
        if forked_by_main_thread:
            die_with_parent()

    die_with_parent()
    os.register_at_fork(before=before, after_in_child=in_child)
    if os.getppid() != int(os.environ.get("JPY_PARENT_PID", os.getppid())):
        os._exit(1)


def _write_stacks_to_parent() -> None:
    descriptor = os.environ.pop("MGPU_REPORT_FD", None)
    if descriptor is None:
        return
    report = int(descriptor)
    os.set_inheritable(report, False)
    faulthandler.enable(file=report, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=report, all_threads=True)


def join(
    rank: int,
    world_size: int,
    device: str,
    backend: str,
    store_port: int,
    generation: str,
    threads: int,
    timeout: float,
    path: list[str],
) -> None:
    """Join the default process group and put the names every rank cell may use into the namespace.

    The rendezvous is the store that the notebook hosts on 127.0.0.1; nothing is resolved by name.
    Ends with one `all_reduce`, so a group that starts is a group that communicates.
    """
    global _STORE
    log = os.environ.pop("MGPU_COLLECTIVE_LOG_FD", None)
    sys.path[:] = [*sys.path, *(entry for entry in path if entry not in sys.path)]
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from IPython import get_ipython

    from .collective_notes import note_collectives

    torch.set_num_threads(threads)
    rank_device = torch.device(device)
    if rank_device.type != "cpu":
        torch.accelerator.set_device_index(rank_device.index or 0)
    _STORE = dist.TCPStore(
        "127.0.0.1", store_port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout)
    )
    options: dict[str, Any] = {}
    if backend == "nccl":
        options["device_id"] = rank_device
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(generation, _STORE),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout),
        **options,
    )
    total = torch.ones(1, device=rank_device)
    dist.all_reduce(total)
    if int(total.item()) != world_size:
        raise RuntimeError(f"the first all_reduce counted {int(total.item())} ranks, not {world_size}")

    if log is not None:
        note_collectives(mapped(int(log)))

    import mgpu_utils

    get_ipython().user_ns.update(
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        device=rank_device,
        torch=torch,
        dist=dist,
        mgpu=mgpu_utils,
    )
    gc.freeze()
    gc.enable()


def run_function() -> None:
    """Call the function that came with the current request and deliver what it returns."""
    from IPython import get_ipython

    from .by_value import dump_result

    shell = get_ipython()
    payload = shell.kernel.get_parent("shell")["buffers"][0]
    function, args, kwargs = pickle.loads(payload)
    for value in (function, *args, *kwargs.values()):
        _tell_shadowed(_give_rank_names(value, shell.user_ns, shell.user_ns_hidden))
    result = function(*args, **kwargs)
    _publish("mgpu_result", {}, [dump_result(result, getattr(function, "__name__", "the function"))])


def _give_rank_names(function: Any, user_ns: dict[str, Any], hidden: Collection[str]) -> list[str]:
    """Let a function that came from the notebook see this rank's names; returns the names it hides from itself.

    It arrives with the globals that it uses, and those count, except for the names that tell a rank who it is.
    """
    from .shadowed_names import OWN_NAMES, shadowed

    names = getattr(function, "__globals__", None)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if names is None or names is getattr(module, "__dict__", None):
        return []
    names.update({name: user_ns[name] for name in OWN_NAMES if name in user_ns})
    hides = shadowed(names, user_ns, hidden)
    for name, value in user_ns.items():
        if not name.startswith("_"):
            names.setdefault(name, value)
    return hides


def _tell_shadowed(names: list[str]) -> None:
    """Say once for each name that the notebook's value is used. What all ranks say is shown as one line."""
    new = [name for name in names if name not in _TOLD]
    _TOLD.update(new)
    if new:
        listed = " and ".join(f"`{name}`" for name in new)
        print(
            f"Note: the function uses the notebook's {listed}, not what a `%%ranks` cell put on the ranks under the "
            "same name; rename one of the two if you meant the ranks' own.",
            file=sys.stderr,
        )


def _publish(kind: str, content: dict[str, Any], buffers: list[bytes]) -> None:
    from IPython import get_ipython

    kernel = get_ipython().kernel
    sys.stdout.flush()
    sys.stderr.flush()
    kernel.session.send(
        kernel.iopub_socket, kind, content, parent=kernel.get_parent("shell"), ident=b"mgpu", buffers=buffers
    )


def _cut(text: str, most: int = 20_000) -> str:
    """The text, or its head and tail where it is long: some libraries put a whole tensor into a message."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... ({len(text) - most:,} characters are not shown)\n{text[-most // 2 :]}"


def _report_error(etype: type[BaseException], value: BaseException, shown: list[str]) -> None:
    """Send an exception as data: its name, its text, and the frames of the learner's own code."""
    from IPython import get_ipython

    entries = []
    for frame, line in traceback.walk_tb(value.__traceback__):
        file = frame.f_code.co_filename
        if is_learner_file(file):
            text = linecache.getline(file, line).strip()
            entries.append({"file": file, "line": line, "name": frame.f_code.co_name, "text": text})
    if isinstance(value, SyntaxError) and value.filename and is_learner_file(value.filename):
        text = (value.text or "").strip()
        entries.append({"file": value.filename, "line": value.lineno or 0, "name": "<module>", "text": text})
    full = "".join(traceback.format_exception(etype, value, value.__traceback__))
    message = value.msg if isinstance(value, SyntaxError) else str(value)
    content = {"name": etype.__name__, "message": _cut(message, 4_000), "frames": entries, "full": _cut(full)}
    _publish("mgpu_error", content, [])
    get_ipython()._last_traceback = shown
    # What the frames hold would live until the next error: data loader workers, activations, whole models.
    sys.last_value = sys.last_traceback = get_ipython().InteractiveTB.tb = None
    chain: BaseException | None = value
    while chain is not None:
        chain.__traceback__, chain = None, chain.__cause__ or chain.__context__
    events = get_ipython().events

    def collect(*_: Any) -> None:
        events.unregister("post_run_cell", collect)
        gc.collect()

    events.register("post_run_cell", collect)


def leave() -> None:
    """End this process at once, with all output written.

    A process that used gloo sometimes aborts while its interpreter exits, after all work is done, so a
    rank leaves without the interpreter's exit. What counts is the result that it delivered before.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
