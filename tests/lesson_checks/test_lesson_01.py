"""What learners answer in lesson 01, what its checks tell them, and what its made-up machines are like."""

from __future__ import annotations

import pytest
import torch
from answer_cards import assert_wrong
from learner_cells import LearnerCell

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup
from mgpu_utils.sample_machines import MACHINES, Gpu, Machine, runs_on

written = LearnerCell("import torch").answer

REFUSE = """
if wanted < 1:
    raise ValueError("at least one")
if wanted > usable:
    raise ValueError(f"{wanted} wanted, {usable} usable")
"""
PICK_RIGHT = {
    "devices": REFUSE + "return [torch.device('cuda', i) for i in range(wanted)]",
    "names": REFUSE + "return tuple(f'cuda:{i}' for i in range(wanted))",
    "one condition": """
        if not 1 <= wanted <= usable:
            raise ValueError(f"asked for {wanted}, but there are {usable}")
        return [torch.device(f"cuda:{i}") for i in range(wanted)]""",
}
PICK_WRONG = {
    "fewer in silence": ("return [torch.device('cuda', i) for i in range(min(wanted, usable))]", "nobody is told"),
    "no check": ("return [torch.device('cuda', i) for i in range(wanted)]", "raised no ValueError"),
    "assert": (
        "assert 1 <= wanted <= usable\nreturn [torch.device('cuda', i) for i in range(wanted)]",
        "disappears when Python runs with -O",
    ),
    "no numbers": (
        REFUSE.replace("{wanted} wanted, {usable} usable", "too few") + "return [f'cuda:{i}' for i in range(wanted)]",
        "both numbers",
    ),
    "one number": (
        REFUSE.replace("{wanted} wanted, {usable} usable", "only {usable}")
        + "return [f'cuda:{i}' for i in range(wanted)]",
        "both numbers",
    ),
    "zero goes through": (
        REFUSE.replace("wanted < 1", "wanted < 0") + "return [f'cuda:{i}' for i in range(wanted)]",
        "asked for 0 of 2",
    ),
    "all of them": (REFUSE + "return [f'cuda:{i}' for i in range(usable)]", "returned 4 devices"),
    "from one": (REFUSE + "return [f'cuda:{i + 1}' for i in range(wanted)]", "numbers start at 0"),
    "no number": (REFUSE + "return ['cuda'] * wanted", "name each by its number"),
    "the same": (REFUSE + "return ['cuda:0'] * wanted", "more than once"),
    "numbers": (REFUSE + "return list(range(wanted))", "a device such as `cuda:1`"),
    "one device": (REFUSE + "return torch.device('cuda', wanted - 1)", "a list of devices"),
    "on the CPU": (REFUSE + "return ['cpu'] * wanted", "have to be GPUs"),
    "no return": (REFUSE + "[f'cuda:{i}' for i in range(wanted)]", "returned nothing"),
    "no such name": (REFUSE + "return [f'gpu{i}' for i in range(wanted)]", "not the name of a device"),
}


@pytest.mark.parametrize("lines", PICK_RIGHT.values(), ids=PICK_RIGHT)
def test_right_picks_pass(lines: str) -> None:
    card = check("01/pick", written("wanted, usable", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), PICK_WRONG.values(), ids=PICK_WRONG)
def test_wrong_picks_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("01/pick", written("wanted, usable", lines)), words)


ENTRIES = """
entries = []
for entry in value.split(","):
    if not entry.strip().isdigit():
        break
    entries.append(int(entry))
"""
UNIQUE = "if len(set(entries)) < len(entries):\n    return None\n"
LOOK_UP = "return entries[number] if number < len(entries) else None"
PHYSICAL_RIGHT = {
    "list": ENTRIES + UNIQUE + LOOK_UP,
    "takewhile": """
        from itertools import takewhile
        kept = [int(e) for e in takewhile(lambda e: e.strip().isdecimal(), value.split(","))]
        if len(kept) != len(set(kept)):
            kept = []
        return dict(enumerate(kept)).get(number)""",
}
PHYSICAL_WRONG = {
    "own number": ("return number", "renumbers the GPUs"),
    "other direction": (
        ENTRIES + UNIQUE + "return entries.index(number) if number in entries else None",
        "the other direction",
    ),
    "repeats kept": (ENTRIES + LOOK_UP, "named twice"),
    "past the end": (ENTRIES + UNIQUE + "return entries[number]", "stopped with IndexError"),
    "all entries": ("return int(value.split(',')[number])", "stopped with IndexError"),
    "minus one kept": (
        "entries = [int(e) for e in value.split(',') if e]\n" + UNIQUE + LOOK_UP,
        "ends at the first entry that is no GPU",
    ),
    "minus one skipped": (
        "entries = [int(e) for e in value.split(',') if e and int(e) >= 0]\n" + UNIQUE + LOOK_UP,
        "ends at the first entry that is no GPU",
    ),
    "text": (ENTRIES + UNIQUE + LOOK_UP.replace("entries[number]", "str(entries[number])"), "a number is wanted"),
    "one digit": (
        "entries = [int(c) for c in value if c.isdigit()]\n" + LOOK_UP,
        "two digits",
    ),
    "empty means all": ("if not value:\n    return number\n" + ENTRIES + UNIQUE + LOOK_UP, "hides every GPU"),
    "only the first": (
        ENTRIES + UNIQUE + "return entries[0] if entries and number == 0 else None",
        "the process has this device",
    ),
    "wraps around": (ENTRIES + UNIQUE + "return entries[number % len(entries)]", "has only 2 devices"),
}  # fmt: skip


@pytest.mark.parametrize("lines", PHYSICAL_RIGHT.values(), ids=PHYSICAL_RIGHT)
def test_right_numbers_pass(lines: str) -> None:
    card = check("01/physical", written("value, number", lines))
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), PHYSICAL_WRONG.values(), ids=PHYSICAL_WRONG)
def test_wrong_numbers_are_told_what_is_wrong(lines: str, words: str) -> None:
    assert_wrong(check("01/physical", written("value, number", lines)), words)


NO_GPU = "if gpus == 0:\n    return 'cpu'\n"
FULL = "if local_rank >= gpus:\n    raise ValueError(f'{local_rank} of {gpus}')\n"
DEVICE_RIGHT = {
    "device": NO_GPU + FULL + "return torch.device('cuda', local_rank)",
    "name": FULL.replace("if ", "if gpus and ") + "return f'cuda:{local_rank}' if gpus else torch.device('cpu')",
}
DEVICE_WRONG = {
    "rank for local rank": (NO_GPU + FULL + "return f'cuda:{rank}'", "numbers start at 0 on each machine"),
    "all on the first": (NO_GPU + FULL + "return 'cuda:0'", "belongs to another rank"),
    "no number": (NO_GPU + FULL + "return 'cuda'", "the same GPU for every rank"),
    "wraps around": (NO_GPU + "return f'cuda:{local_rank % gpus}'", "no GPU is left for it"),
    "CPU when full": (NO_GPU + FULL.replace("raise ValueError(f'{local_rank} of {gpus}')", "return 'cpu'")
                      + "return f'cuda:{local_rank}'", "no GPU is left for it"),
    "CPU forgotten": ("if gpus and local_rank >= gpus:\n    raise ValueError\nreturn f'cuda:{local_rank}'",
                      "which is not there"),
    "always CPU": ("return 'cpu'", "although there is a GPU for it"),
    "a number": (NO_GPU + FULL + "return local_rank", "a device such as `cuda:1`"),
    "printed": (NO_GPU + FULL + "print(f'cuda:{local_rank}')", "nothing was returned"),
}  # fmt: skip


@pytest.mark.parametrize("lines", DEVICE_RIGHT.values(), ids=DEVICE_RIGHT)
def test_right_devices_pass_and_the_ranks_use_them(lines: str, two_ranks: RankGroup) -> None:
    card = check("01/device", written("rank, local_rank, gpus", lines), ranks=two_ranks)
    assert card.passed, card


@pytest.mark.parametrize(("lines", "words"), DEVICE_WRONG.values(), ids=DEVICE_WRONG)
def test_wrong_devices_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("01/device", written("rank, local_rank, gpus", lines), ranks=two_ranks), words)


def test_a_device_that_loses_the_data_is_found_on_the_ranks(two_ranks: RankGroup) -> None:
    # Right on every made-up machine, and wrong only for the process which really has to use it.
    lines = NO_GPU.replace("'cpu'", "'cpu' if rank != 1 else 'meta'") + FULL + "return f'cuda:{local_rank}'"
    card = check("01/device", written("rank, local_rank, gpus", lines), ranks=two_ranks)
    assert_wrong(card, "rank 1 could not add up its share of the digits on meta")
    assert two_ranks.run(lambda: 1) == [1, 1]


@pytest.mark.parametrize("name", ["01/pick", "01/physical", "01/device"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str, two_ranks: RankGroup) -> None:
    context = {"ranks": two_ranks} if name == "01/device" else {}
    assert check(name, ..., **context).kind == "open"
    assert str(hint(name)) != str(hint(name))


@pytest.mark.parametrize("device", [(3, 7), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0)])
def test_code_runs_on_the_gpus_on_which_pytorch_says_it_does(device: tuple[int, int]) -> None:
    built_for = MACHINES["workstation"].built_for
    said = any(
        torch.cuda._code_compatible_with_device(10 * device[0] + device[1], 10 * major + minor)
        for major, minor in built_for
    )
    assert runs_on(device, built_for) == said


def test_made_up_machines_count_what_is_visible_and_not_what_is_usable() -> None:
    assert {name: machine.counted for name, machine in MACHINES.items()} == {
        "workstation": 2,
        "shared server": 2,
        "old card": 2,
        "Windows PC": 2,
        "wrong wheel": 0,
        "cluster job": 2,
        "typing error": 0,
        "big server": 4,
    }
    second_first = Machine((Gpu((8, 6)), Gpu((9, 0))), variable="1,0,5,1")
    assert [gpu.capability for gpu in second_first.visible] == []
    second_first = Machine((Gpu((8, 6)), Gpu((9, 0))), variable="1,5,0")
    assert [gpu.capability for gpu in second_first.visible] == [(9, 0)]
