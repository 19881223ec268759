"""Timelines as a file that https://ui.perfetto.dev opens: the trace event format, a process for each rank.

Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu_utils.step_lanes import Slice
from mgpu_utils.whole_file import write_whole

_MICRO = 1e6


def trace(ranks: Sequence[Mapping[str, Iterable[Slice]]]) -> dict[str, Any]:
    """The trace of all ranks: `ranks[r]` holds rank r's lanes, their slices in seconds on one clock for all ranks.

    A lane becomes a track; where its slices overlap without one holding the other, a second track of the same name.
    Times count from the earliest slice, in microseconds.
    """
    starts = [piece.start for lanes in ranks for held in lanes.values() for piece in held]
    origin = min(starts, default=0.0)
    named: list[dict[str, Any]] = []
    drawn: list[dict[str, Any]] = []
    for rank, lanes in enumerate(ranks):
        named.append(_name("process_name", rank, 0, f"rank {rank}"))
        named.append({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}})
        tracks = [(lane, track) for lane, held in lanes.items() for track in _tracks(held)]
        for number, (lane, track) in enumerate(tracks):
            named.append(_name("thread_name", rank, number, lane))
            sort = {"sort_index": number}
            named.append({"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": number, "args": sort})
            drawn += [_complete(piece, lane, rank, number, origin) for piece in track]
    return {"traceEvents": named + drawn, "displayTimeUnit": "ms"}


def write(path: Path, ranks: Sequence[Mapping[str, Iterable[Slice]]]) -> Path:
    """Write the trace of all ranks to `path`, whole or not at all; return the path."""
    write_whole(path, json.dumps(trace(ranks), separators=(",", ":")))
    return path


def _name(kind: str, rank: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": track, "args": {"name": name}}


def _complete(piece: Slice, lane: str, rank: int, track: int, origin: float) -> dict[str, Any]:
    # The end is rounded, not the duration: neighbours must not overlap by a rounding.
    start, end = round((piece.start - origin) * _MICRO, 3), round((piece.end - origin) * _MICRO, 3)
    name = piece.name.replace("_", " ")
    return {
        "ph": "X",
        "name": name,
        "cat": lane,
        "ts": start,
        "dur": round(end - start, 3),
        "pid": rank,
        "tid": track,
    }


def _tracks(held: Iterable[Slice]) -> list[list[Slice]]:
    """Spread slices over tracks such that on each, any two lie one after the other or one inside the other."""
    tracks: list[list[Slice]] = []
    open_ends: list[list[float]] = []
    for piece in sorted(held, key=lambda s: (s.start, -s.end)):
        for track, ends in zip(tracks, open_ends, strict=True):
            while ends and ends[-1] <= piece.start:
                ends.pop()
            if not ends or piece.end <= ends[-1]:
                track.append(piece)
                ends.append(piece.end)
                break
        else:
            tracks.append([piece])
            open_ends.append([piece.end])
    return tracks
