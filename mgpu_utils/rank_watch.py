"""Wait for the ranks to finish a request, and turn whatever goes wrong into one clear exception.

Nothing here waits without a limit. A rank that cannot be stopped otherwise is ended.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .hangs import RankState, StackFrame, describe_exit, explain, locate, main_stack, split_report
from .rank_errors import (
    Place,
    RankError,
    RankFailure,
    RankInterrupt,
    RankTimeout,
    notebook_only,
    number_ranks,
    shown_places,
)
from .rank_kernel import RankKernel
from .rank_output import OutputView

if TYPE_CHECKING:
    from .ranks import RankGroup

# After one rank has failed the others get this long to finish or to fail by themselves.
_GRACE_SECONDS = {"raised": 0.5, "died": 0.3}
_STACK_SECONDS = 0.5
_INTERRUPT_SECONDS = 1.0
_FOLLOW_UP_ERRORS = ("Connection closed by peer", "Connection reset by peer", "Socket Timeout", "Broken pipe")


@dataclass(frozen=True)
class Request:
    """Source code for one rank, with binary data that it may ask for."""

    code: str
    buffers: list[bytes] = field(default_factory=list)


@dataclass
class Outcome:
    """What has come back from one rank so far."""

    rank: int
    kernel: RankKernel
    message_id: str
    sent_at: float
    replied: bool = False
    idle: bool = False
    result: bytes = b""
    failure: RankFailure | None = None
    report: str = ""
    seconds: float = 0.0
    text: str = ""

    @property
    def running(self) -> bool:
        return not self.finished and not self.dead

    @property
    def finished(self) -> bool:
        return self.replied and self.idle

    @property
    def dead(self) -> bool:
        return self.failure is not None and self.failure.kind == "died"


def watch(
    group: RankGroup,
    requests: dict[int, Request],
    view: OutputView,
    timeout: float | None = None,
    show_output: bool = True,
) -> list[Outcome]:
    """Send each rank its request and wait until all have answered; returns the outcomes in rank order.

    With `show_output=False` what the ranks print is shown only if something fails.

    Raises:
        RankError: a rank raised an exception or its process ended.
        RankTimeout: not all ranks answered within `timeout` (the group's, by default).
        RankInterrupt: KeyboardInterrupt arrived; the ranks were interrupted as well.
    """
    return _Watch(group, requests, view, group.timeout if timeout is None else timeout, show_output).run()


class _Watch:
    def __init__(
        self, group: RankGroup, requests: dict[int, Request], view: OutputView, timeout: float, show_output: bool
    ) -> None:
        from zmq import POLLIN, Poller  # type: ignore[attr-defined]

        self.group, self.view, self.timeout, self.show_output = group, view, timeout, show_output
        self.outcomes: dict[int, Outcome] = {}
        self.interrupted = False
        self.poller = Poller()
        for rank, request in sorted(requests.items()):
            kernel = group._kernels[rank]
            kernel.read_report()
            for _ in kernel.receive():
                continue  # leftovers of an earlier, abandoned cell
            for channel in (*kernel.sockets, kernel.report_fd):
                if channel is not None:
                    self.poller.register(channel, POLLIN)
            sent = kernel.send(request.code, request.buffers)
            self.outcomes[rank] = Outcome(rank, kernel, sent, time.monotonic())

    @property
    def running(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes.values() if outcome.running]

    @property
    def failures(self) -> list[RankFailure]:
        return [outcome.failure for outcome in self.outcomes.values() if outcome.failure is not None]

    def run(self) -> list[Outcome]:
        timed_out = False
        states: list[RankState] = []
        try:
            timed_out = not self._wait()
            if self.running:
                states = self._ask_where()
                self._stop_running(states)
        except KeyboardInterrupt:
            states = self._ask_where()
            self._stop_running(states)
            raise RankInterrupt(self._interrupt_text(states)) from None
        finally:
            self._finish_output()
        if self.failures:
            raise self._rank_error(states)
        if timed_out:
            raise RankTimeout(self._timeout_text(states), tuple(states))
        return list(self.outcomes.values())

    def _wait(self) -> bool:
        """Handle messages until all ranks have answered or waiting longer is of no use; False at the timeout."""
        deadline = time.monotonic() + self.timeout
        trouble_at: float | None = None
        waited: set[RankState] = set()
        while self.running:
            now = time.monotonic()
            if now >= deadline:
                return False
            self._handle_messages(min(0.05, deadline - now))
            self._notice_deaths()
            if self.show_output:
                self.view.refresh()
            if self.failures:
                trouble_at = trouble_at or time.monotonic()
                kind = "died" if any(failure.kind == "died" for failure in self.failures) else "raised"
                if time.monotonic() - trouble_at > _GRACE_SECONDS[kind]:
                    # Who stands in the same collective at two looks waits for the rank that failed.
                    waits = {state for state in self._ask_where() if state.waits_in}
                    if kind == "died" or waits & waited:
                        return True
                    waited, trouble_at = waits, time.monotonic()
        return True

    def _handle_messages(self, seconds: float) -> None:
        self.poller.poll(max(1, int(seconds * 1000)))
        for outcome in self.outcomes.values():
            outcome.report += outcome.kernel.read_report()
            for message in outcome.kernel.receive():
                if message["parent_header"].get("msg_id") == outcome.message_id:
                    self._handle(outcome, message)
                elif message["msg_type"] == "stream":
                    # A thread or data loader worker that an earlier cell started still prints.
                    self.view.write(outcome.rank, message["content"]["text"], message["content"]["name"])

    def _handle(self, outcome: Outcome, message: dict[str, Any]) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                # IPython reports an interrupt by printing; this one is ours and is told of elsewhere.
                if not (self.interrupted and content["text"].strip() == "KeyboardInterrupt"):
                    self.view.write(outcome.rank, content["text"], content["name"])
            case "display_data" | "execute_result":
                self.view.show_value(outcome.rank, content["data"], content["metadata"])
            case "mgpu_result":
                outcome.result = bytes(message["buffers"][0])
            case "mgpu_error":
                found = (self.group.cells.place(f["file"], f["line"], f["name"], f["text"]) for f in content["frames"])
                places = tuple(place for place in found if place is not None)
                outcome.failure = RankFailure(
                    outcome.rank,
                    "raised",
                    f"raised {content['name']}: {content['message']}".rstrip(": "),
                    places,
                    content["name"],
                    content["message"],
                    content["full"],
                )
            case "execute_reply":
                outcome.replied = True
                outcome.seconds = time.monotonic() - outcome.sent_at
                if content["status"] != "ok" and outcome.failure is None:
                    name, text = content.get("ename", "Error"), content.get("evalue", "")
                    summary = f"raised {name}: {text}".rstrip(": ")
                    outcome.failure = RankFailure(outcome.rank, "raised", summary, (), name, text)
            case "status" if content["execution_state"] == "idle":
                outcome.idle = True

    def _notice_deaths(self) -> None:
        for outcome in self.running:
            code = outcome.kernel.process.poll()
            if code is None:
                continue
            # What it sent before it died may still be on the way.
            self._handle_messages(0.02)
            if outcome.finished:
                continue
            stacks, said = split_report(outcome.report)
            _, place = locate(main_stack(stacks), self._place)
            summary = describe_exit(code, said)
            outcome.failure = RankFailure(outcome.rank, "died", summary, (place,) if place else (), full=outcome.report)
            self.group._lost[outcome.rank] = f"it {summary}"

    def _place(self, frame: StackFrame) -> Place | None:
        return self.group.cells.place(frame.file, frame.line, frame.name)

    def _ask_where(self) -> list[RankState]:
        """Where every rank stands now, from the stacks that faulthandler writes for the running ones."""
        asked = {outcome.rank: len(outcome.report) for outcome in self.running}
        for outcome in self.running:
            outcome.kernel.request_stack()
        end = time.monotonic() + _STACK_SECONDS
        while time.monotonic() < end and any(
            not main_stack(outcome.report[asked[outcome.rank] :]) for outcome in self.running if outcome.rank in asked
        ):
            self._handle_messages(0.02)
        states = []
        for outcome in self.outcomes.values():
            if not outcome.running:
                kind = {None: "finished", "raised": "failed", "died": "died"}[
                    outcome.failure.kind if outcome.failure else None
                ]
                states.append(RankState(outcome.rank, kind))
                continue
            stack = main_stack(outcome.report[asked.get(outcome.rank, 0) :])
            waits_in, place = locate(stack, self._place)
            states.append(RankState(outcome.rank, "running", waits_in, place))
        return states

    def _stop_running(self, states: list[RankState]) -> None:
        """Interrupt what still runs; end the ranks that do not react, at once if they stand in a collective."""
        stuck = {state.rank for state in states if state.waits_in}
        stopped = [outcome for outcome in self.running if outcome.rank not in stuck]
        self.interrupted = True
        for outcome in stopped:
            outcome.kernel.interrupt()
        end = time.monotonic() + _INTERRUPT_SECONDS
        while time.monotonic() < end and any(outcome.running for outcome in stopped):
            self._handle_messages(0.02)
            self._notice_deaths()
        for outcome in stopped:
            # The KeyboardInterrupt that we caused is no failure of the learner's code.
            if outcome.failure is not None and outcome.failure.name == "KeyboardInterrupt":
                outcome.failure = None
        for outcome in self.running:
            outcome.kernel.process.kill()
            outcome.kernel.process.wait()
            where = "it was stuck in a collective" if outcome.rank in stuck else "it did not react to an interrupt"
            self.group._lost[outcome.rank] = f"{where} and was ended"

    def _finish_output(self) -> None:
        for outcome in self.outcomes.values():
            _, said = split_report(outcome.report)
            if said.strip():
                self.view.write(outcome.rank, said.strip("\n") + "\n", "stderr")
            outcome.text = self.view.texts[outcome.rank].text
        if self.show_output or self.failures:
            self.view.finish()

    def _after(self) -> str:
        if self.group._lost:
            return "Call `ranks.restart()` for a fresh group (names defined on the ranks are gone)."
        return "The ranks are still alive and can be used."

    def _rank_error(self, states: list[RankState]) -> RankError:
        # A lost connection is what the others see when one rank is gone; it is not the cause.
        ordered = sorted(
            self.failures,
            key=lambda f: (f.kind != "died", any(text in f.message for text in _FOLLOW_UP_ERRORS), f.rank),
        )
        first = ordered[0]
        same = [f.rank for f in ordered if (f.summary, f.places) == (first.summary, first.places)]
        summary = first.summary.replace("was ended", "were ended", 1) if len(same) > 1 else first.summary
        lines = [f"{number_ranks(sorted(same))} {summary}", *shown_places(first.places)]
        lines += [f"  also: rank {f.rank} {f.summary.splitlines()[0]}" for f in ordered if f.rank not in same]
        failed = {f.rank for f in ordered}
        lines += [f"  meanwhile: {s}" for s in states if s.state == "running" and s.rank not in failed]
        if first.name == "NameError" and (hint := notebook_only(first.message)):
            lines.append(hint)
        if "Default process group has not been initialized" in first.message:
            lines.append("The process group of these ranks was destroyed; `ranks.restart()` makes a new one.")
        if self.group._lost:
            lines.append(self._after())
        return RankError("\n".join(lines), tuple(ordered))

    def _timeout_text(self, states: list[RankState]) -> str:
        lines = [f"the ranks did not finish within {self.timeout:g} s."]
        lines += [f"  {state}" for state in states]
        if sys.platform == "win32":
            lines.append("Windows has no way to ask a rank for its line; on Linux and macOS it would stand here.")
        lines.append(f"Why: {explain(states)}")
        if not any(state.waits_in for state in states):
            lines.append("If the work simply takes longer, allow more time: `ranks.timeout = 600`.")
        lines.append(self._after())
        return "\n".join(lines)

    def _interrupt_text(self, states: list[RankState]) -> str:
        lines = ["stopped."] + [f"  {state}" for state in states if state.state == "running"]
        return "\n".join([*lines, self._after()])
