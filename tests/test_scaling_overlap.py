"""All-reduces beside backward, against cases small enough to do by hand."""

from __future__ import annotations

import pytest

from mgpu_utils.scaling.overlap import simulate


def test_a_bucket_that_is_ready_early_hides_and_the_last_one_is_exposed() -> None:
    found = simulate(10.0, [0.4, 1.0], [3.0, 2.0])
    assert found.collectives == ((4.0, 7.0), (10.0, 12.0))
    assert (found.exposed, found.hidden, found.end) == (2.0, 3.0, 12.0)
    assert found.slowed == 0.0


def test_collectives_queue_up_behind_each_other() -> None:
    found = simulate(10.0, [0.1, 0.2, 1.0], [8.0, 3.0, 1.0])
    assert found.collectives == ((1.0, 9.0), (9.0, 12.0), (12.0, 13.0))
    assert found.exposed == 3.0
    assert found.hidden == 9.0


def test_interference_slows_backward_while_a_collective_runs_and_no_longer() -> None:
    # From 2 to 6 backward does 2 of its seconds; 6 remain, alone.
    found = simulate(10.0, [0.2, 1.0], [4.0, 1.0], interference=0.5)
    assert found.collectives[0] == (2.0, 6.0)
    assert found.backward_end == pytest.approx(12.0)
    assert found.slowed == pytest.approx(2.0)
    assert found.end == pytest.approx(13.0)


def test_with_full_interference_nothing_is_gained_by_starting_early() -> None:
    found = simulate(10.0, [0.0, 0.5, 1.0], [1.0, 2.0, 3.0], interference=1.0)
    assert found.end == pytest.approx(16.0)
    assert found.exposed == pytest.approx(3.0)
    assert found.ready == pytest.approx((0.0, 6.0, 13.0))


def test_a_backward_that_ends_in_the_middle_of_a_slowing_collective() -> None:
    # 9 of 10 are done when the collective starts; the last takes 2 s at half speed.
    found = simulate(10.0, [0.9], [5.0], interference=0.5)
    assert found.backward_end == pytest.approx(11.0)
    assert found.end == pytest.approx(14.0)
    assert found.exposed == pytest.approx(3.0)


def test_no_collectives_leave_backward_as_it_is() -> None:
    found = simulate(10.0, [], [])
    assert (found.end, found.exposed, found.hidden) == (10.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1.0, [1.0], [1.0], 1.5), "interference must be between 0 and 1, not 1.5"),
        ((1.0, [1.0, 0.5], [1.0, 1.0]), "rising order"),
        ((1.0, [1.0], []), "1 buckets that become ready, but 0 collectives"),
        ((-1.0, [], []), "at least 0 seconds"),
    ],
)
def test_impossible_numbers_get_one_clear_sentence(arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(*arguments)  # type: ignore[arg-type]
