"""The preview of a batch scattered over devices, and what it warns of."""

from __future__ import annotations

import re

import pytest

from mgpu_utils.split_preview import SplitPreview, split_notice


def test_it_shows_the_sizes_and_draws_one_column_a_device_also_for_idle_ones() -> None:
    preview = SplitPreview(9, 4)
    assert preview.sizes == [3, 3, 3]
    assert repr(preview).startswith("9 samples over 4 devices: [3, 3, 3]\n")
    drawn = preview._repr_html_()
    assert drawn.count('<th scope="col"') == drawn.count("<td") == 4
    assert ">0</td>" in drawn
    assert "device 3 gets nothing" in drawn
    assert SplitPreview(36, 7).sizes == [6] * 6
    assert SplitPreview(10, 4).sizes == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("batch", "devices", "fact", "advice"),
    [
        (9, 4, "[3, 3, 3]: device 3 gets nothing.", "Batches of 8 or 12"),
        (36, 7, "[6, 6, 6, 6, 6, 6]: device 6 gets nothing.", "Batches of 35 or 42"),
        (10, 4, "[3, 3, 3, 1]: device 3 gets one sample.", "Batches of 8 or 12"),
        (5, 4, "[2, 2, 1]: device 3 gets nothing, and device 2 gets one sample.", "A batch of 8 gives"),
        (3, 4, "[1, 1, 1]: device 3 gets nothing, and devices 0, 1 and 2 get one sample.", "A batch of 8 gives"),
        (8, 8, "8 devices get one sample.", "A batch of 16 gives"),
        (1, 8, "A batch of 1 over 8 devices is split into [1]: 7 devices get nothing", "A batch of 16 gives"),
    ],
)
def test_a_device_with_nothing_or_with_one_sample_is_told_of_with_a_better_batch(
    batch: int, devices: int, fact: str, advice: str
) -> None:
    notice = SplitPreview(batch, devices).notice
    assert notice is not None
    assert fact in notice
    assert advice in notice
    assert "drop_last=True" in notice
    assert "BatchNorm" not in notice


def test_the_batches_it_advises_have_nothing_to_tell_of() -> None:
    for devices in range(2, 9):
        for batch in range(1, 60):
            notice = SplitPreview(batch, devices).notice
            if notice is None:
                assert len(SplitPreview(batch, devices).sizes) == devices
                assert min(SplitPreview(batch, devices).sizes) > 1
                continue
            advised = re.findall(r"[Bb]atch(?:es)? of (\d+)(?: or (\d+))? give", notice)
            assert advised, notice
            for size in map(int, filter(None, advised[0])):
                assert SplitPreview(size, devices).notice is None
                assert size % devices == 0


@pytest.mark.parametrize(("batch", "devices"), [(8, 4), (11, 4), (64, 2), (1, 1), (0, 4)])
def test_a_good_split_one_device_and_an_empty_batch_are_told_nothing_of(batch: int, devices: int) -> None:
    assert SplitPreview(batch, devices).notice is None
    assert repr(SplitPreview(batch, devices)).count("\n") == 0


def test_batch_norm_is_named_only_where_a_device_has_one_sample() -> None:
    alone = split_notice([3, 3, 3, 1], 4, batch_norm=True)
    assert alone is not None
    assert "BatchNorm in training" in alone
    idle = split_notice([3, 3, 3], 4, batch_norm=True)
    assert idle is not None
    assert "BatchNorm" not in idle


def test_a_split_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="devices >= 1"):
        SplitPreview(4, 0)
    with pytest.raises(ValueError, match="batch >= 0"):
        SplitPreview(-1, 2)
