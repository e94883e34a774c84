"""First remedies carried out on trainings of the space: other recipes, what is done around them, and how they end."""

import importlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sonde.core.remedies import Action


def _module(name: str) -> ModuleType:
    # By name, since the type checker would follow an import into the trainings, which are written as users write.
    return importlib.import_module(f"benchmarks.faults.space.{name}")


def _draw(family: str, **changes: Any) -> Any:
    told = {name.replace("__", "."): value for name, value in changes.items()}
    return _module("drawing").draw(family, 3).changed({"loop.closure": False, **told})


def _recipe(training: Any, action: str, **args: Any) -> Any:
    found, is_around = _module("treated").prescribed(training, action, args)
    assert not is_around
    return found


def test_a_remedy_turns_the_knob_of_the_recipe_by_its_value() -> None:
    training = _draw("text/decoder", model__width=24)
    assert _recipe(training, "lower-lr", factor=0.1).optimiser.rate == pytest.approx(training.optimiser.rate / 10)
    assert _recipe(training, "clip", max_norm=0.3).loop.clip == 0.3
    assert _recipe(training, "more-capacity").model.width == 36
    assert _recipe(training, "use-fp32").precision.weights == "float32"
    assert _recipe(training, "fix-loop", eps=1e-12).optimiser.eps == 1e-12
    assert _recipe(training, "shorter-sequences").data.size == training.data.size // 2


def test_a_larger_batch_keeps_the_updates_and_a_smaller_one_the_epochs() -> None:
    training = _draw("tabular/mlp", loop__batch=32, loop__steps=200, schedule__kind="epochs", schedule__gamma=0.5)
    larger = _recipe(training, "bigger-batch", factor=8)
    assert (larger.loop.batch, larger.loop.steps) == (256, 200)
    assert larger.schedule.gamma**8 == pytest.approx(0.5)  # eight epochs for one
    smaller = _recipe(training, "smaller-batch", factor=0.125)
    assert (smaller.loop.batch, smaller.loop.steps, smaller.schedule.gamma) == (4, 1600, 0.5)


def test_every_turn_is_of_the_vocabulary_and_what_only_a_person_can_do_is_not_turned() -> None:
    treated = _module("treated")
    assert set(treated.TURNS) <= set(map(str, Action))
    training = _draw("tabular/mlp")
    assert all(treated.prescribed(training, action, {}) is None for action in ("fix-loop", "inspect-batch"))
    assert treated.prescribed(_draw("two-player/mlp"), "clip", {"max_norm": 1.0})[1]  # that loop has no knob for it


@pytest.mark.parametrize(
    ("action", "args"),
    [("reinitialise", {"std": 0.7}), ("add-label-smoothing", {"amount": 0.1}), ("skip-batch", {}), ("early-stop", {})],
)
def test_what_no_knob_can_do_is_done_around_the_training(action: str, args: dict[str, Any]) -> None:
    treated = _module("treated")
    training = _draw("tabular/mlp", loop__steps=6, data__num=64, loop__accumulate=1, loss__kind="nll")
    recipe, is_around = treated.prescribed(training, action, args)
    assert is_around
    outcome = treated.train(recipe.to_json(), None, action=action, args=args)
    assert math.isfinite(outcome["quality"])


def test_an_early_stop_ends_with_the_weights_of_the_best_evaluation() -> None:
    from benchmarks.faults.scenario import Session
    from benchmarks.faults.seat import unwatched

    training = _draw("regression/mlp", loop__steps=60, loop__accumulate=1, loop__evaluate_every=5)
    training = training.changed({"loop.jump_step": 58, "loop.jump_factor": 30.0})
    spoilt = _module("loop").train(training, Session(seed=0, folder=Path("unused"), monitor=unwatched))
    stopped = _module("treated").train(training.to_json(), None, action="early-stop", args={})
    assert stopped["quality"] < 1 < spoilt.quality


def test_a_case_is_repaired_without_effect_or_worse() -> None:
    outcome = _module("remedies").outcome
    twins, faulty = [0.1, 0.12, 0.11], [0.9, 0.85, 0.8]
    for ours, expected in (
        ([0.11, 0.12, 0.1], "repaired"),
        ([0.4, 0.45, 0.5], "repaired"),  # more than half of the way
        ([0.7, 0.75, 0.8], "no effect"),
        ([1.7, 1.75, 1.8], "worse"),
        ([math.nan] * 3, "worse"),
    ):
        assert outcome(ours, faulty, twins, margin=0.05) == expected
    diverged = [math.nan] * 3
    assert outcome(diverged, diverged, twins, margin=0.05, most=1.0) == "no effect"
    assert outcome([0.9, 0.95, 1.0], diverged, twins, margin=0.05, most=1.0) == "no effect"  # no better than trivial
    assert outcome([0.3, 0.4, 0.3], diverged, twins, margin=0.05, most=1.0) == "repaired"


def test_too_few_replicates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be 3 or more, got 2"):
        list(_module("remedies").try_all(tmp_path, families=(), seeds=None, replicates=2, minutes=1))


def test_families_that_are_put_aside_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_aside = _module("families").PUT_ASIDE[0]
    monkeypatch.setattr("sys.argv", ["space", "remedy", "--out", str(tmp_path), "--families", put_aside])
    with pytest.raises(_module("judged").PutAside):
        _module("__main__").main()


def test_cases_are_trained_again_with_their_first_remedy_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_piece, faults = _module("plan").Piece, _module("faults.catalogue").FAULTS
    base = _draw("regression/mlp", loop__steps=80)
    wanted = []
    for i in range(3):
        twin = base.changed({"replicate": i})
        wanted.append(make_piece(training=twin, role="twin", watched=i == 0, group="t"))
        for name, strength in (("zero-grad-too-early", 1.0), ("inputs-far-from-zero", 200.0)):
            faulty = faults[name].put_in(twin, strength)
            wanted.append(
                make_piece(training=faulty, role="faulty", watched=i == 0, fault=name, twin=twin.key, group=name)
            )
    _module("training").train_all(wanted, tmp_path, minutes=5)
    monkeypatch.setattr("sys.argv", ["space", "remedy", "--out", str(tmp_path), "--seeds", "3"])
    _module("__main__").main()
    kept = (tmp_path / "remedies.jsonl").read_text()
    trials = {trial.fault: trial for trial in _module("remedies").read(tmp_path)}
    assert trials["zero-grad-too-early"].outcome == "right advice"
    trained = trials["inputs-far-from-zero"]
    assert (trained.action, trained.outcome, len(trained.with_it)) == ("normalise-inputs", "repaired", 3)
    assert "| normalise-inputs | 1 | 1 (100%, 21%-100%) |" in capsys.readouterr().out

    # Nothing is trained again; what is proposed differently is, and its last line counts.
    _module("__main__").main()
    assert (tmp_path / "remedies.jsonl").read_text() == kept
    told = [json.loads(line) | {"outcome": "worse", "args": {"by": 2}} for line in kept.splitlines()]
    (tmp_path / "remedies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    _module("__main__").main()
    assert len((tmp_path / "remedies.jsonl").read_text().splitlines()) == 4
    assert "| normalise-inputs | 1 | 1 (100%, 21%-100%) |" in capsys.readouterr().out
