import numpy as np
import pytest

from sonde.signals.phases import Phase, Phases

from .streams import run_timed


def segments(rates: np.ndarray, steps: np.ndarray | None = None) -> list[tuple[str, int]]:
    """The phases that a schedule was read as, with their starts, and jumps between them."""
    found: list[tuple[str, int]] = []
    # Rows are float32: so are the rates.
    for at, out in enumerate(run_timed(Phases(), rates.astype(np.float32), steps)):
        step = at if steps is None else int(steps[at])
        if out.jumped[0]:
            found.append(("jump", step))
        here = (Phase(out.phase[0]).name.lower(), int(out.start[0]))
        if here[0] != "unknown" and here not in found:
            found.append(here)
    return found


def warm_cosine(num_steps: int, warmup: int) -> np.ndarray:
    t = np.arange(num_steps)
    cosine = 0.5 * (1 + np.cos(np.pi * (t - warmup) / (num_steps - warmup)))
    return 3e-4 * np.where(t < warmup, (t + 1) / warmup, cosine)


def test_warmup_and_cosine_are_a_warmup_and_a_decay() -> None:
    assert segments(warm_cosine(1000, 100)) == [("warmup", 1), ("decay", 101)]


def test_samples_every_few_steps_are_read_as_the_same_phases() -> None:
    steps = np.unique(np.concatenate((np.arange(0, 1000, 7), [333, 334, 400])))
    read = segments(warm_cosine(1000, 100)[steps], steps)
    assert [name for name, _ in read] == ["warmup", "decay"]
    assert abs(read[1][1] - 101) <= 14  # the first sample after the peak may be above the last one before it


def test_a_step_schedule_is_constant_phases_divided_by_jumps() -> None:
    rates = np.repeat([0.1, 0.01, 0.001], 200)
    assert segments(rates) == [("constant", 0), ("jump", 200), ("constant", 200), ("jump", 400), ("constant", 400)]


def test_restarts_of_a_cosine_are_jumps_between_decays() -> None:
    one = 0.05 * (1 + np.cos(np.pi * np.arange(200) / 200))
    read = segments(np.concatenate((one, one, one)))
    assert [at for name, at in read if name == "jump"] == [200, 400]
    assert {name for name, _ in read} == {"decay", "jump", "constant"}


def test_warmup_constant_decay_is_read_as_drawn() -> None:
    rates = np.concatenate((np.linspace(0.0, 1.0, 101), np.ones(300), np.linspace(1.0, 0.1, 200)[1:]))
    assert segments(rates) == [("warmup", 1), ("constant", 100), ("decay", 401)]


def test_a_scheduler_that_acts_once_an_epoch_is_a_decay_from_its_second_change_on() -> None:
    rates = np.repeat(0.1 * 0.98 ** np.arange(10), 100)
    read = segments(rates)
    assert read[-1] == ("decay", 200)
    assert not [name for name, _ in read if name == "jump"]


def test_a_constant_rate_is_constant_after_its_patience() -> None:
    outs = run_timed(Phases(patience=5), np.full(10, 0.1))
    assert [Phase(out.phase[0]) for out in outs] == [Phase.UNKNOWN] * 6 + [Phase.CONSTANT] * 4
    assert outs[-1].start[0] == 0


def test_the_rate_is_given_relative_to_its_peak_so_far() -> None:
    outs = run_timed(Phases(), [0.0, 0.5, 1.0, np.nan, 0.25])
    assert [out.relative[0] for out in outs] == pytest.approx([np.nan, 1.0, 1.0, 1.0, 0.25], nan_ok=True)


def test_before_the_first_rate_nothing_is_known() -> None:
    out = run_timed(Phases(), [np.nan])[-1]
    assert (out.phase[0], out.start[0], out.jumped[0]) == (Phase.UNKNOWN, -1, False)
    assert np.isnan(out.relative[0])


@pytest.mark.parametrize("wrong", [{"jump": 0.0}, {"jump": 1.0}, {"patience": 0}, {"tolerance": 0.5}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Phases"):
        Phases(**wrong)  # type: ignore[arg-type]
