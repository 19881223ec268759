"""What learners really answer, and what the checks of the lessons tell them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from mgpu_utils.exercises import check, hint
from mgpu_utils.ranks import RankGroup


@pytest.fixture(autouse=True)
def _own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_HOME", str(tmp_path))
    monkeypatch.delenv("MGPU_STRICT", raising=False)


def written(code: str, *names: str) -> list[Any]:
    """Functions as a notebook cell defines them: in `__main__`, with the lesson's imports."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec("import copy\nimport torch\nfrom torch.nn.functional import cross_entropy", cell)
    exec(textwrap.dedent(code), cell)
    return [cell[name] for name in names]


def written_for_ranks(name: str, lines: str) -> Any:
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(f"def {name}(number):\n" + textwrap.indent(textwrap.dedent(lines), "    "), cell)
    return cell[name]


AVERAGE_RIGHT = {
    "sum, then divide": "t = torch.tensor(number)\ndist.all_reduce(t)\nreturn (t / world_size).item()",
    "divide, then sum": "t = torch.tensor(number) / world_size\ndist.all_reduce(t)\nreturn float(t)",
    "gather everything": "got = [None] * world_size\ndist.all_gather_object(got, number)\nreturn sum(got) / len(got)",
}
AVERAGE_WRONG = {
    "forgot to divide": ("t = torch.tensor(number)\ndist.all_reduce(t)\nreturn t.item()", "the sum of the numbers"),
    "own number only": ("return number / world_size", "divided its own number"),
    "looked at the wrong tensor": (
        "t = torch.tensor(number)\ndist.all_reduce(t / world_size)\nreturn t.item()",
        "own number unchanged",
    ),
    "rank 0 only": (
        "t = torch.tensor(number)\ndist.reduce(t, 0)\nreturn t.item() / world_size",
        "rank 0 has the right answer, but rank 1 does not",
    ),
    "sum of the others": (
        "t = torch.tensor(number)\ndist.all_reduce(t)\nreturn t.item() - number",
        "the ranks returned different numbers",
    ),
    "printed": ("t = torch.tensor(number)\ndist.all_reduce(t)\nprint(t / world_size)", "returned nothing"),
    "a list": ("t = torch.tensor([number, 1.0])\ndist.all_reduce(t)\nreturn t.tolist()", "a plain number is wanted"),
}
SLOWEST_RIGHT = {
    "largest": "t = torch.tensor(number)\ndist.all_reduce(t, op=dist.ReduceOp.MAX)\nreturn t.item()",
    "largest of all": "got = [None] * world_size\ndist.all_gather_object(got, number)\nreturn max(got)",
}
SLOWEST_WRONG = {
    "sum by default": ("t = torch.tensor(number)\ndist.all_reduce(t)\nreturn t.item()", "the sum of all times"),
    "fastest": (
        "t = torch.tensor(number)\ndist.all_reduce(t, op=dist.ReduceOp.MIN)\nreturn t.item()",
        "the shortest time",
    ),
    "own time": ("return number", "own number unchanged"),
}


@pytest.mark.parametrize("lines", AVERAGE_RIGHT.values(), ids=AVERAGE_RIGHT)
def test_right_averages_pass(lines: str, two_ranks: RankGroup) -> None:
    assert check("00/average", written_for_ranks("average", lines), ranks=two_ranks).passed


@pytest.mark.parametrize(("lines", "words"), AVERAGE_WRONG.values(), ids=AVERAGE_WRONG)
def test_wrong_averages_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("00/average", written_for_ranks("average", lines), ranks=two_ranks), words)


@pytest.mark.parametrize("lines", SLOWEST_RIGHT.values(), ids=SLOWEST_RIGHT)
def test_right_slowest_times_pass(lines: str, two_ranks: RankGroup) -> None:
    assert check("00/slowest", written_for_ranks("slowest", lines), ranks=two_ranks).passed


@pytest.mark.parametrize(("lines", "words"), SLOWEST_WRONG.values(), ids=SLOWEST_WRONG)
def test_wrong_slowest_times_are_told_what_is_wrong(lines: str, words: str, two_ranks: RankGroup) -> None:
    assert_wrong(check("00/slowest", written_for_ranks("slowest", lines), ranks=two_ranks), words)


def test_three_ranks_average_too(three_ranks: RankGroup) -> None:
    average = written_for_ranks("average", AVERAGE_RIGHT["sum, then divide"])
    assert check("00/average", average, ranks=three_ranks).passed
    halved = written_for_ranks("average", "t = torch.tensor(number)\ndist.all_reduce(t)\nreturn t.item() / 2")
    assert_wrong(check("00/average", halved, ranks=three_ranks), "for the numbers 7, 2.5, 4.25 each rank returned")


def test_an_answer_that_freezes_the_ranks_is_explained_and_the_ranks_work_again(
    two_ranks: RankGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpu_utils.lesson_checks.answers_on_ranks.PATIENCE", 2.0)
    stuck = written_for_ranks(
        "average", "t = torch.tensor(number)\nif rank == 0:\n    dist.all_reduce(t)\nreturn t.item()"
    )
    card = check("00/average", stuck, ranks=two_ranks)
    assert_wrong(card, "the ranks got stuck")
    assert "waits inside all_reduce" in str(card)
    assert two_ranks.timeout == 60.0
    assert two_ranks.run(lambda: 1) == [1, 1]


def test_an_error_on_a_rank_is_shown_as_the_learners_own(two_ranks: RankGroup) -> None:
    card = check("00/average", written_for_ranks("average", "return numbr"), ranks=two_ranks)
    assert card.kind == "error"
    assert "numbr" in str(card)


CUT = {
    "chunk": "def cut(batch, count):\n    return batch.chunk(count)",
    "slices": """
        def cut(batch, count):
            size = (len(batch) + count - 1) // count
            return [batch[start : start + size] for start in range(0, len(batch), size)]""",
    "split by size": "def cut(batch, count):\n    return torch.split(batch, -(-len(batch) // count))",
}
JOIN = {
    "cat": "def join(pieces):\n    return torch.cat(pieces)",
    "stack of samples": "def join(pieces):\n    return torch.stack([row for piece in pieces for row in piece])",
}
CUT_WRONG = {
    "every n-th sample": ("return [batch[i::count] for i in range(min(count, len(batch)))]", "not in the order"),
    "rounded down": (
        "size = max(1, len(batch) // count)\n    return [batch[i * size : (i + 1) * size] for i in range(count)]",
        "hold 8 samples together",
    ),
    "as even as possible": ("return torch.tensor_split(batch, count)", "your pieces have the sizes [3, 3, 2, 2]"),
    "count taken for a size": ("return batch.split(count)", "at most one a device"),
    "rest on the last": (
        "size = max(1, len(batch) // count)\n"
        "    return [batch[i * size : (i + 1) * size if i + 1 < count else None] for i in range(count)]",
        "your pieces have the sizes [2, 2, 2, 4]",
    ),
    "empty pieces": (
        "size = -(-len(batch) // count)\n    return [batch[i * size : (i + 1) * size] for i in range(count)]",
        "a piece is empty",
    ),
    "one tensor": ("return batch", "a list of tensors is wanted"),
    "no return": ("batch.chunk(count)", "scatter returned nothing"),
    "plain numbers": ("return [piece.tolist() for piece in batch.chunk(count)]", "has to be a tensor"),
    "a column lost": ("return [piece[:, :1] for piece in batch.chunk(count)]", "only the first dimension is cut"),
    "cut the other way": ("return batch.chunk(count, dim=1)", "samples together"),
    "copies": ("return [batch for _ in range(count)]", "hold 128 samples together"),
}
JOIN_WRONG = {
    "a list": ("return list(pieces)", "gather returned a list"),
    "backwards": ("return torch.cat(pieces[::-1])", "changed the order"),
    "new tensor": ("return torch.tensor([row.tolist() for p in pieces for row in p])", "no gradient can flow"),
    "side by side": ("return torch.stack(pieces)", "gather made a tensor of shape"),
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
@pytest.mark.parametrize("join", JOIN.values(), ids=JOIN)
def test_right_scatters_and_gathers_pass(cut: str, join: str) -> None:
    assert check("05/scatter", *written(cut, "cut"), *written(join, "join")).passed


@pytest.mark.parametrize(("line", "words"), CUT_WRONG.values(), ids=CUT_WRONG)
def test_wrong_scatters_are_told_what_is_wrong(line: str, words: str) -> None:
    cut = written(f"def cut(batch, count):\n    {line}", "cut")
    assert_wrong(check("05/scatter", *cut, *written(JOIN["cat"], "join")), words)


@pytest.mark.parametrize(("line", "words"), JOIN_WRONG.values(), ids=JOIN_WRONG)
def test_wrong_gathers_are_told_what_is_wrong(line: str, words: str) -> None:
    join = written(f"def join(pieces):\n    {line}", "join")
    assert_wrong(check("05/scatter", *written(CUT["chunk"], "cut"), *join), words)


@pytest.mark.parametrize("answer", [[3, 3, 3, 1], (3, 3, 3, 1), [(3, 1, 8, 8)] * 3 + [(1, 1, 8, 8)]])
def test_right_shapes_pass_as_numbers_and_as_shapes(answer: Any) -> None:
    assert check("05/shapes", answer).passed


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([3, 3, 2, 2], "as even as it can be"),
        ([2, 2, 2, 4], "makes the last piece smaller"),
        ([2, 2, 2, 2], "make 8; the batch holds 10"),
        ([2.5, 2.5, 2.5, 2.5], "samples come whole"),
        ([10, 10, 10, 10], "not the whole of it"),
        ([5, 5], "all 4 have work"),
        ([1, 3, 3, 3], "not their order"),
        ([4, 4, 2, 0], "nothing to do"),
        ([4, 3, 2, 1], "all pieces except the last"),
        ([(3, 1, 2, 2)] * 3 + [(1, 1, 2, 2)], "only the first dimension is cut"),
        (10, "a list with one entry a replica"),
    ],
)
def test_wrong_shapes_are_told_what_is_wrong(answer: Any, words: str) -> None:
    assert_wrong(check("05/shapes", answer), words)


START = """
    def backward_in_two(model, images, labels):
        replicas = [copy.deepcopy(model) for _ in range(2)]
        pieces, targets = images.chunk(2), labels.chunk(2)
        parameters = list(zip(model.parameters(), *(replica.parameters() for replica in replicas)))
"""
ONE_LOSS = """
        outputs = [replica(piece) for replica, piece in zip(replicas, pieces)]
        cross_entropy(torch.cat(outputs), labels).backward()
"""
TWO_LOSSES = """
        for replica, piece, target in zip(replicas, pieces, targets):
            cross_entropy(replica(piece), target).backward()
"""
ADD = """
        for master, *copies in parameters:
            master.grad = sum(copy.grad for copy in copies)
"""
AVERAGE = ADD.replace("sum(copy.grad for copy in copies)", "sum(copy.grad for copy in copies) / 2")
GRADIENTS_RIGHT = {
    "one loss, gradients added": START + ONE_LOSS + ADD,
    "two losses, weighted": START
    + TWO_LOSSES.replace("target).backward()", "target, reduction='sum').div(len(labels)).backward()")
    + ADD,
    "copies that autograd knows": """
        def backward_in_two(model, images, labels):
            outputs = []
            for piece in images.chunk(2):
                copies = {name: p.clone() for name, p in model.named_parameters()}
                outputs.append(torch.func.functional_call(model, copies, piece))
            cross_entropy(torch.cat(outputs), labels).backward()
    """,
}
GRADIENTS_WRONG = {
    "not brought back": (START + ONE_LOSS, "have no gradient"),
    "two means added": (START + TWO_LOSSES + ADD, "twice too large"),
    "shares averaged": (START + ONE_LOSS + AVERAGE, "half as large"),
    "mean of two means": (START + TWO_LOSSES + AVERAGE, "right for equal pieces, wrong for 5 and 4 samples"),
    "first replica only": (
        START + ONE_LOSS + ADD.replace("sum(copy.grad for copy in copies)", "copies[0].grad"),
        "only the first replica's gradient",
    ),
    "second replica only": (
        START + TWO_LOSSES + ADD.replace("sum(copy.grad for copy in copies)", "copies[1].grad"),
        "only the second replica's gradient",
    ),
    "no replicas": (
        "def backward_in_two(model, images, labels):\n    cross_entropy(model(images), labels).backward()",
        "the model ran once, on all 64 samples",
    ),
    "whole batch on each": (START.replace("images.chunk(2), labels", "[images] * 2, labels") + TWO_LOSSES.replace(
        "target)", "labels)") + AVERAGE, "the replicas were given [64, 64], not [32, 32]"),
    "stepped as well": (
        START + ONE_LOSS + ADD + "\n        torch.optim.SGD(model.parameters(), lr=0.1).step()\n",
        "the parameters of the model changed",
    ),
    "divided by three": (START + ONE_LOSS + AVERAGE.replace("/ 2", "/ 3"), "differs from that of one device"),
    "never called": ("def backward_in_two(model, images, labels):\n    return 0", "no copy of the model was called"),
}  # fmt: skip


@pytest.mark.parametrize("code", GRADIENTS_RIGHT.values(), ids=GRADIENTS_RIGHT)
def test_right_gradients_pass(code: str) -> None:
    card = check("05/gradients", *written(code, "backward_in_two"))
    assert card.passed, card


@pytest.mark.parametrize(("code", "words"), GRADIENTS_WRONG.values(), ids=GRADIENTS_WRONG)
def test_wrong_gradients_are_told_what_is_wrong(code: str, words: str) -> None:
    assert_wrong(check("05/gradients", *written(code, "backward_in_two")), words)


@pytest.mark.parametrize("name", ["00/average", "00/slowest", "05/scatter", "05/shapes", "05/gradients"])
def test_every_exercise_has_hints_and_starts_unattempted(name: str) -> None:
    answers = [...] if name != "05/scatter" else [..., ...]
    assert check(name, *answers).kind == "open"
    assert hint(name).kind == "hint"
    assert str(hint(name)) != str(hint(name, 1))


def assert_wrong(card: Any, words: str) -> None:
    assert card.kind == "wrong", card
    assert words.casefold() in " ".join(str(card).split()).casefold(), card
