"""What ranks print is kept in a form a notebook can show."""

from __future__ import annotations

from mgpu_utils.rank_output import HEAD, TAIL, RankText


def test_lines_arrive_in_pieces() -> None:
    text = RankText()
    for piece in ("one ", "line\nand", " another", "\n", "rest"):
        text.write(piece)
    assert text.text == "one line\nand another\nrest"


def test_a_progress_bar_leaves_only_its_last_state() -> None:
    text = RankText()
    for percent in range(0, 101, 10):
        text.write(f"\r{percent} %", "stderr")
    assert text.lines() == [("100 %", "stderr")]
    text.write("\nnext\r\n", "stderr")
    assert text.text == "100 %\nnext"


def test_endless_output_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = RankText()
    count = 200_000
    for number in range(count):
        text.write(f"line {number}\n")
    lines = [line for line, _ in text.lines()]
    assert lines[0] == "line 0"
    assert lines[-1] == f"line {count - 1}"
    (gap,) = [line for line in lines if "characters not shown" in line]
    assert len(text.text) <= HEAD + TAIL + 200
    total = sum(len(f"line {number}\n") for number in range(count))
    assert int(gap.split()[1].replace(",", "")) + len(text.text) - len(gap) == total


def test_one_endless_line_is_cut_as_well() -> None:
    text = RankText()
    for _ in range(50):
        text.write("x" * 100_000)
    assert len(text.text) <= HEAD + 2 * TAIL
    assert "characters not shown" in text.text
