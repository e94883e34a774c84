"""Trainings of kinds that the space does not have: each trains, each fault acts, and lines are labelled and judged."""

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _module(name: str) -> ModuleType:
    # By name, since the type checker would follow an import into the trainings, which are written as users write.
    return importlib.import_module(f"benchmarks.faults.{name}")


_module("wild.kinds")
KINDS: dict[str, Any] = _module("wild.kind").KINDS
FAULTS: dict[str, Any] = _module("wild.faults").FAULTS


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    torch = importlib.import_module("torch")
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)


def _trained(kind: str, *, steps: int, fault: str = "", run: Path | None = None) -> tuple[Any, Any]:
    # Late faults act in the middle of so few steps, since their onset is a share of them.
    strength = FAULTS[fault].draw("test") if fault else 0.0
    knobs = _module("wild.knobs").Knobs(seed=5, steps=steps, fault=fault, strength=strength, run=run)
    score = KINDS[kind].train(knobs)
    return knobs, score


def test_there_are_36_kinds_and_each_can_have_three_faults() -> None:
    assert len(KINDS) >= 36
    for kind in KINDS.values():
        assert sum(fault.fits(kind.has) for fault in FAULTS.values()) >= 3


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_trains_for_some_steps_and_is_scored(kind: str) -> None:
    knobs, score = _trained(kind, steps=6)
    assert len(knobs.losses) == 6
    assert all(map(math.isfinite, knobs.losses))
    assert math.isfinite(score())


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(fault.name, next(kind.name for kind in KINDS.values() if fault.fits(kind.has))) for fault in FAULTS.values()],
)
def test_every_fault_changes_the_training_or_what_is_reported(fault: str, kind: str) -> None:
    plain, score = _trained(kind, steps=12)
    told = score()
    spoilt, spoilt_score = _trained(kind, steps=12, fault=fault)
    if FAULTS[fault].harms == "memory_mb":
        kept = sum(extra.numel() * 4 for _, extra in spoilt.kept)
        assert kept > 12 * 1_000_000
        return
    assert plain.losses != spoilt.losses or not math.isclose(told, spoilt_score(), rel_tol=1e-9)
    onset = FAULTS[fault].onset_step(12)
    assert plain.losses[:onset] == spoilt.losses[:onset]


def test_modes_are_themselves_again_after_a_training_that_never_switched_them() -> None:
    knobs, _ = _trained("few-labelled-nodes", steps=3, fault="never-eval-mode")
    (net, _), *_ = knobs.nets
    assert net.train().eval().training
    knobs.repair_modes()
    assert not net.train().eval().training


def test_a_case_has_three_replicates_rates_twins_and_faults_and_records_the_first() -> None:
    pieces = list(_module("wild.case").pieces("elbo", 3))
    assert [sum(piece.role == role for piece in pieces) for role in ("healthy", "rate", "twin", "faulty")] == [
        3,
        6,
        3,
        9,
    ]
    assert len({piece.training.key for piece in pieces}) == len(pieces)
    assert {piece.training.replicate for piece in pieces if piece.watched} == {0}
    assert sum(piece.watched for piece in pieces) == 5
    assert pieces == list(_module("wild.case").pieces("elbo", 3))


def test_one_kind_goes_from_training_to_judgement(tmp_path: Path) -> None:
    case, training = _module("wild.case"), _module("space.training")
    keeping, labels, judged = (_module(f"space.{name}") for name in ("keeping", "labels", "judged"))
    make_piece = _module("space.plan").Piece
    base = case.Case(kind="hinge-on-features", seed=1)
    wanted = []
    for i in range(3):
        twin = replace(base, replicate=i)
        faulty = replace(twin, fault="targets-permuted", strength=1.0)
        wanted.append(make_piece(training=twin, role="twin", watched=i == 0, group="t"))
        wanted.append(make_piece(training=faulty, role="faulty", watched=i == 0, fault="targets-permuted", strength=1.0,
                                 twin=twin.key, group="f"))  # fmt: skip
    train = _module("wild.training").train
    assert training.train_all(wanted, tmp_path, minutes=9, train=train) == 6
    assert training.train_all(wanted, tmp_path, minutes=9, train=train) == 0
    found = labels.label_all(keeping.read(tmp_path))
    assert [(label.family, label.kind) for label in found] == [
        ("wild/hinge-on-features", "twin"), ("wild/hinge-on-features", "faulty"),
    ]  # fmt: skip
    runs = list(judged.judge_all(tmp_path, found, jobs=1))
    assert [(run.name, run.kind, run.cause) for run in runs] == [
        ("wild/hinge-on-features", "twin", ""), ("wild/hinge-on-features", "faulty", "no-learnable-signal"),
    ]  # fmt: skip
    with keeping.unpacked(tmp_path, found[1].key) as run:
        assert json.loads((run / "run.json").read_text())["config"] == {}
        assert "permuted" not in (run / "run.json").read_text()
