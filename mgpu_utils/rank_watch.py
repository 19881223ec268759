"""Wait for the ranks to finish a request, and turn whatever goes wrong into one clear exception.

Nothing here waits without a limit. A rank that cannot be stopped otherwise is ended.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .collective_log import What
from .collective_match import CollectiveMatch, Mismatch
from .hangs import RankState, StackFrame, describe_exit, locate, main_stack, split_report, waits_for_work
from .memory_kills import out_of_memory_kills
from .private_text import without_private
from .rank_errors import Place, RankFailure, RankInterrupt
from .rank_history import RankHistory, histories
from .rank_outcome import Outcome, Report, Request
from .rank_output import OutputView
from .rank_texts import interrupt_text, mismatch_error, rank_error, timeout_error, uneven_error

if TYPE_CHECKING:
    from .ranks import RankGroup

# After one rank has failed the others get this long to finish or to fail by themselves.
_GRACE_SECONDS = {"raised": 0.5, "died": 0.3, "mismatched": 0.3}
# What PyTorch compares itself it refuses on all ranks, and they can go on: that must not be cut short.
_COMPARED_SECONDS = 10.0
_STACK_SECONDS = 0.5
# Python loses an interrupt that arrives where it ignores exceptions, as in a callback of `fork`: hence more than one.
_INTERRUPT_SECONDS = (1.5, 1.0, 1.0)
_LOOK_SECONDS = 0.2


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
        RankError: a rank raised an exception, its process ended, or the ranks' collectives do not match.
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
        self.memory_kills = out_of_memory_kills()
        self.began = self.gave_up_at = time.monotonic()
        self.match = CollectiveMatch(
            {rank: log for rank in requests if (log := group._kernels[rank].collectives) is not None}
        )
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
                # Being asked takes a moment, in which a rank may still finish.
                timed_out = timed_out and bool(self.running)
                self._stop_running(states)
        except KeyboardInterrupt:
            raise RankInterrupt(self._stop_by_hand()) from None
        finally:
            self._finish_output()
        mismatch = self.match.look()
        if mismatch is not None and not self._refused_by_torch(mismatch):
            if not mismatch.harmless:
                self._lose(list(mismatch.calls), "its collectives do not match those of the others")
            raise mismatch_error(self.group, mismatch, self.failures, self._place_of_call, self._history(states))
        if self.failures:
            raise rank_error(self.group, self.failures, states, self._history(states))
        if timed_out:
            told = self.match.history()
            raise timeout_error(self.group, self.timeout, states, told, self._history(states))
        counts = self.match.uneven() if len(self.outcomes) == self.group.world_size else None
        if counts is not None:
            self._lose(list(counts), "it made another number of collectives than the others")
            last = {rank: self._told(call.what) for rank in counts if (call := self.match.last(rank)) is not None}
            raise uneven_error(self.group, counts, last, self._history(states))
        return list(self.outcomes.values())

    def _wait(self) -> bool:
        """Handle messages until all ranks have answered or waiting longer is of no use; False at the timeout."""
        deadline = time.monotonic() + self.timeout
        trouble_at: float | None = None
        look_at = time.monotonic() + _LOOK_SECONDS
        mismatch: Mismatch | None = None
        waited: set[RankState] = set()
        grace = _COMPARED_SECONDS if self.group._compared_by_torch else _GRACE_SECONDS["mismatched"]
        while self.running:
            now = time.monotonic()
            if now >= deadline:
                return False
            self._handle_messages(min(0.05, deadline - now))
            self._notice_deaths()
            if self.show_output:
                self.view.refresh()
            if now >= look_at:
                # Twice in a row: a call whose arguments are wrong is taken back a moment later.
                found = self.match.look()
                if found is not None and mismatch is not None:
                    return True
                mismatch = found
                look_at = now + (grace if mismatch else _LOOK_SECONDS)
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
            outcome.take_report()
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
                said = without_private(content["message"])
                outcome.failure = RankFailure(
                    outcome.rank,
                    "raised",
                    f"raised {content['name']}: {said}".rstrip(": "),
                    places,
                    content["name"],
                    said,
                    without_private(content["full"]),
                )
            case "execute_reply":
                outcome.replied = True
                outcome.ended_at = time.monotonic()
                outcome.seconds = outcome.ended_at - outcome.sent_at
                if content["status"] != "ok" and outcome.failure is None:
                    name, text = content.get("ename", "Error"), without_private(content.get("evalue", ""))
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
            stacks, said = split_report(outcome.report.text)
            _, place = locate(main_stack(stacks), self._place)
            if place is None and (call := self.match.last(outcome.rank)) is not None:
                place = self._place_of_call(call.what)
            kills = out_of_memory_kills()
            more_kills = None if kills is None or self.memory_kills is None else kills - self.memory_kills
            summary = describe_exit(code, said, more_kills)
            full = without_private(outcome.report.text)
            outcome.failure = RankFailure(outcome.rank, "died", summary, (place,) if place else (), full=full)
            outcome.ended_at = time.monotonic()
            self.group._lost[outcome.rank] = f"it {summary}"

    def _place(self, frame: StackFrame) -> Place | None:
        return self.group.cells.place(frame.file, frame.line, frame.name)

    def _place_of_call(self, call: What) -> Place | None:
        return self.group.cells.place(call.file, call.line, call.function) if call.file else None

    def _told(self, call: What) -> str:
        where = self._place_of_call(call)
        return f"{call}   {where}" if where else str(call)

    def _ask_where(self) -> list[RankState]:
        """Where every rank stands now, from the stacks that faulthandler writes for the running ones."""
        self.gave_up_at = time.monotonic()
        asked = self.running
        for outcome in asked:
            outcome.stacks = Report()
            outcome.kernel.request_stack()
        end = time.monotonic() + _STACK_SECONDS
        while time.monotonic() < end and any(
            not main_stack(outcome.stacks.text) for outcome in asked if outcome.running and outcome.stacks
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
            frames = main_stack(outcome.stacks.text if outcome.stacks else "")
            waits_in, place = locate(frames, self._place)
            if waits_in is None and place is not None and waits_for_work(frames, place):
                call = self.match.newest(outcome.rank)
                waits_in = call.what.operation if call else "wait"
            stopped = place is None and outcome.kernel.is_stopped()
            states.append(RankState(outcome.rank, "running", waits_in, place, stopped))
        return states

    def _stop_running(self, states: list[RankState]) -> None:
        """Interrupt what still runs; end the ranks that do not react, at once if they cannot."""
        stuck = {state.rank: "it was stuck in a collective" for state in states if state.waits_in}
        stuck |= {state.rank: "its process was stopped" for state in states if state.stopped}
        stopped = [outcome for outcome in self.running if outcome.rank not in stuck]
        self.interrupted = True
        for patience in _INTERRUPT_SECONDS:
            for outcome in stopped:
                if outcome.running:
                    outcome.kernel.interrupt()
            end = time.monotonic() + patience
            while time.monotonic() < end and any(outcome.running for outcome in stopped):
                self._handle_messages(0.02)
                self._notice_deaths()
        for outcome in stopped:
            # The KeyboardInterrupt that we caused is no failure of the learner's code.
            if outcome.failure is not None and outcome.failure.name == "KeyboardInterrupt":
                outcome.failure = None
        for outcome in self.running:
            self._end_rank(outcome, stuck.get(outcome.rank, "it did not react to an interrupt"))

    def _stop_by_hand(self) -> str:
        """Stop all ranks because the learner stopped the cell; pressing twice ends those that still run."""
        try:
            states = self._ask_where()
            self._stop_running(states)
        except KeyboardInterrupt:
            for outcome in self.running:
                self._end_rank(outcome, "the cell was stopped twice")
            states = []
        return interrupt_text(self.group, states)

    def _end_rank(self, outcome: Outcome, why: str) -> None:
        outcome.kernel.process.kill()
        outcome.kernel.process.wait()
        self.group._lost[outcome.rank] = f"{why} and was ended"

    def _refused_by_torch(self, mismatch: Mismatch) -> bool:
        """Whether TORCH_DISTRIBUTED_DEBUG=DETAIL compared the calls: nothing was sent then, its message counts."""
        refused = {failure.rank for failure in self.failures if "Detected mismatch between coll" in failure.message}
        return refused >= set(mismatch.calls)

    def _lose(self, ranks: list[int], why: str) -> None:
        for rank in ranks:
            self.group._lost.setdefault(rank, why)

    def _history(self, states: list[RankState]) -> tuple[RankHistory, ...]:
        at_the_end = {state.rank: state for state in states}
        named: dict[int, str] = {}
        for rank, outcome in self.outcomes.items():
            state = at_the_end.get(rank)
            if outcome.failure is not None:
                named[rank] = "died" if outcome.failure.kind == "died" else "failed"
            elif state is not None and state.state == "running":
                named[rank] = "waits" if state.waits_in else "at work"
            else:
                named[rank] = "finished"
        ends = {rank: outcome.ended_at or self.gave_up_at for rank, outcome in self.outcomes.items()}
        return histories(self.match, named, ends, self.began)

    def _finish_output(self) -> None:
        for outcome in self.outcomes.values():
            said = outcome.said
            if said.strip():
                self.view.write(outcome.rank, said.strip("\n") + "\n", "stderr")
            outcome.text = self.view.texts[outcome.rank].text
        if self.show_output or self.failures:
            self.view.finish()
