"""What the trace event format asks of a file, and what Perfetto needs to draw it."""

from __future__ import annotations

from typing import Any


def nests(events: list[dict[str, Any]]) -> bool:
    """Whether on one track any two slices lie one after the other or one inside the other."""
    ends: list[float] = []
    for event in events:
        while ends and ends[-1] <= event["ts"] + 1e-6:
            ends.pop()
        if ends and event["ts"] + event["dur"] > ends[-1] + 1e-6:
            return False
        ends.append(event["ts"] + event["dur"])
    return True


def check_trace(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Check a trace against the trace event format; return its slices by process and track."""
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    named = set()
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            named.add((event["name"], event["pid"], event["tid"]))
        else:
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["name"]
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for (process, track), events in tracks.items():
        assert ("process_name", process, 0) in named
        assert ("thread_name", process, track) in named
        assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
        assert nests(events)
    return tracks
