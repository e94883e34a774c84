"""The space of trainings: drawing, faults, labels and the table; whole trainings run on request."""

import importlib
import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _module(name: str) -> ModuleType:
    # By name, since the type checker would follow an import into the trainings, which are written as users write.
    return importlib.import_module(f"benchmarks.faults.space.{name}")


FAMILIES: tuple[str, ...] = _module("families").FAMILIES


def _train(training: Any) -> Any:
    scenario, seat = (importlib.import_module(f"benchmarks.faults.{name}") for name in ("scenario", "seat"))
    session = scenario.Session(seed=0, folder=Path("unused"), monitor=seat.unwatched)
    return _module("loop").train(training, session)


def test_a_drawn_training_is_the_same_whenever_it_is_drawn_and_survives_json() -> None:
    draw, from_json = _module("drawing").draw, _module("recipe").from_json
    for family in FAMILIES:
        training = draw(family, 5)
        assert training == draw(family, 5)
        assert training != draw(family, 6)
        assert from_json(json.loads(json.dumps(training.to_json()))) == training


def test_drawing_touches_no_generator_that_others_use() -> None:
    random.seed(1)
    before = random.getstate()
    _module("drawing").draw(FAMILIES[0], 3)
    assert random.getstate() == before


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of"):
        _module("drawing").draw("tabular/abacus", 0)


def test_twenty_families_are_for_tuning_and_six_others_are_put_aside() -> None:
    families = _module("families")
    assert len(set(families.TUNING)) >= 20
    assert len(set(families.PUT_ASIDE)) == 6
    assert not set(families.TUNING) & set(families.PUT_ASIDE)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_for_some_steps(family: str) -> None:
    training = _module("drawing").draw(family, 1).changed({"loop.steps": 6, "data.num": 64, "loop.accumulate": 1})
    outcome = _train(training)
    assert len(outcome.losses) == 6
    assert all(map(math.isfinite, outcome.losses))
    assert math.isfinite(outcome.quality)


@pytest.mark.parametrize("family", ["tabular/mlp", "sequences/rnn", "bandit/mlp"])
def test_a_healthy_training_reaches_its_goal(family: str) -> None:
    training = _module("drawing").draw(family, 2)
    untrained = _train(training.changed({"optimiser.rate": 0.0, "loop.steps": 2}))
    trained = _train(training)
    assert trained.quality < _module("labels").goal(family) < untrained.quality


def test_trainings_of_one_recipe_are_equal_to_the_bit() -> None:
    training = _module("drawing").draw("images/cnn-norm", 1).changed({"loop.steps": 5, "data.num": 64})
    one, other = _train(training), _train(training)
    assert one.losses == other.losses
    assert one.losses != _train(training.changed({"replicate": 1})).losses


def test_a_fault_changes_what_it_says_and_nothing_else() -> None:
    catalogue, draw = _module("faults.catalogue"), _module("drawing").draw
    seen = set()
    for family, seed in itertools.product(FAMILIES, range(3)):
        training = draw(family, seed)
        for fault in catalogue.applicable(training):
            faulty = fault.put_in(training, fault.draw(training))
            differs = faulty.differences(fault.twin(training))
            assert differs <= set(fault.changes)
            if differs:
                seen.add(fault.name)
    assert seen == set(catalogue.FAULTS)


def test_faults_cover_35_causes_of_the_vocabulary() -> None:
    from sonde.core.causes import Cause

    new = {"targets-not-shifted", "data-not-shuffled", "target-network-stale", "state-reset"}
    faults = _module("faults.catalogue").FAULTS.values()
    causes = {fault.cause for fault in faults}
    assert len(causes) >= 35
    assert new <= causes
    assert causes | {also for fault in faults for also in fault.also} <= set(map(str, Cause)) | new


def test_the_strength_of_a_fault_lies_in_its_range_and_is_the_same_for_all_replicates() -> None:
    training = _module("drawing").draw("tabular/mlp", 1)
    for fault in _module("faults.catalogue").FAULTS.values():
        strength = fault.draw(training)
        assert fault.weakest * 0.999 <= strength <= fault.strongest * 1.001
        assert strength == fault.draw(training.changed({"replicate": 2}))


def test_a_late_fault_leaves_the_losses_before_it_alone() -> None:
    training = _module("drawing").draw("regression/residual", 1)
    training = training.changed({"loop.steps": 12, "data.num": 64, "loop.accumulate": 1, "precision.autocast": "none"})
    fault = _module("faults.catalogue").FAULTS["a-nan"]
    faulty = fault.put_in(training, 1.0)
    onset = fault.onset(faulty)
    healthy, spoilt = _train(training), _train(faulty)
    assert onset == 6
    assert spoilt.losses[:onset] == healthy.losses[:onset]
    assert math.isnan(spoilt.losses[onset])


def test_plans_hold_three_replicates_of_each_case_and_record_all_but_other_rates() -> None:
    pieces = _module("plan").pieces("tabular/mlp", 0, replicates=3, num_faults=3)
    groups: dict[str, list[Any]] = {}
    for piece in pieces:
        groups.setdefault(piece.group, []).append(piece)
    assert all(len(members) == 3 for members in groups.values())
    assert all(one.watched == (one.role != "rate") for members in groups.values() for one in members)
    assert len({piece.training.key for piece in pieces}) == len(pieces)
    keys = {piece.training.key for piece in pieces}
    assert all(piece.twin in keys for piece in pieces if piece.role == "faulty")


def test_effects_agree_with_slow_references() -> None:
    effects, rng = _module("effects"), random.Random(4)
    for _ in range(30):
        ours, theirs = ([rng.choice([rng.gauss(0, 1), 0.5, math.nan]) for _ in range(3)] for _ in range(2))
        a, b = ([math.inf if math.isnan(x) else x for x in side] for side in (ours, theirs))
        more = sum(x > y for x in a for y in b) - sum(x < y for x in a for y in b)
        assert effects.cliffs_delta(ours, theirs) == pytest.approx(more / 9)

        def wins(one: list[float], other: list[float]) -> float:
            return sum((x > y) + (x == y) / 2 for x in one for y in other)

        pooled, hits = a + b, 0
        splits = list(itertools.combinations(range(6), 3))
        for rows in splits:
            rest = [pooled[i] for i in range(6) if i not in rows]
            hits += wins([pooled[i] for i in rows], rest) >= wins(a, b) - 1e-9
        assert effects.permutation_p(ours, theirs) == pytest.approx(hits / len(splits))


def test_worse_needs_all_seeds_and_enough_to_matter() -> None:
    worse = _module("effects").clearly_worse
    assert worse([0.5, 0.6, 0.7], [0.1, 0.2, 0.3], margin=0.05)
    assert worse([math.nan] * 3, [0.1, 0.2, 0.3], margin=0.05)
    assert not worse([0.12, 0.22, 0.32], [0.1, 0.11, 0.115], margin=0.2)
    assert not worse([0.5, 0.6, 0.2], [0.1, 0.2, 0.3], margin=0.05)
    assert not worse([math.nan] * 3, [math.nan] * 3, margin=0.05)


def test_courses_part_where_their_distance_exceeds_seed_noise() -> None:
    parting = _module("effects").parting
    rng = random.Random(2)
    theirs = [[1 + 0.1 * rng.gauss(0, 1) for _ in range(100)] for _ in range(3)]
    ours = [[x + (2 if i >= 40 else 0) for i, x in enumerate(course)] for course in theirs]
    assert parting(ours, theirs) == 40
    assert parting(theirs, theirs) is None
    assert parting([[*course[:60], *[math.nan] * 40] for course in theirs], theirs) == 60


def _row(key: str, role: str, quality: Any, *, group: str, replicate: int, **more: Any) -> dict[str, Any]:
    training = _module("drawing").draw("tabular/mlp", 1)
    return {"key": key, "family": "tabular/mlp", "seed": 1, "replicate": replicate, "role": role,
            "watched": replicate == 0 and role != "rate", "fault": "", "strength": 0.0, "twin": "", "group": group,
            "recipe": training.to_json(), "quality": quality, "losses": [quality] * 40, **more}  # fmt: skip


def _rows(faulty: list[Any], twins: list[Any], faster: list[float]) -> dict[str, dict[str, Any]]:
    rows = []
    for i in range(3):
        rows.append(_row(f"h{i}", "healthy", twins[i], group="h", replicate=i))
        rows.append(_row(f"r{i}", "rate", faster[i], group="r", replicate=i, twin=f"h{i}", strength=3.0))
        rows.append(_row(f"s{i}", "rate", 0.9, group="s", replicate=i, twin=f"h{i}", strength=1 / 3))
        rows.append(_row(f"t{i}", "twin", twins[i], group="t", replicate=i))
        rows.append(
            _row(
                f"f{i}", "faulty", faulty[i], group="f", replicate=i, twin=f"t{i}", fault="rate-too-high", strength=9.0
            )
        )
    return {row["key"]: row for row in rows}


def test_labels_come_from_the_twin_and_from_other_rates() -> None:
    label_all = _module("labels").label_all

    def kinds(*told: Any) -> dict[str, str]:
        return {label.key: label.kind for label in label_all(_rows(*told))}

    good = [0.1, 0.12, 0.11]
    assert kinds(["nan", 0.9, 0.8], good, [0.3, 0.2, 0.2]) == {"h0": "healthy", "t0": "twin", "f0": "faulty"}
    assert kinds([0.12, 0.1, 0.11], good, [0.3, 0.2, 0.2])["f0"] == "harmless"
    assert kinds([0.9, 0.9, 0.8], good, [0.01, 0.02, 0.01])["h0"] == "unclear"
    assert set(kinds([0.9, 0.9, 0.8], [0.7, 0.8, 0.7], [0.9, 0.9, 0.9]).values()) == {"unclear"}


def test_a_manifest_with_a_torn_line_is_read_up_to_it(tmp_path: Path) -> None:
    keeping = _module("keeping")
    keeping.append(tmp_path, {"key": "a", "quality": math.nan})
    with (tmp_path / "manifest.jsonl").open("a") as manifest:
        manifest.write('{"key": "b", "qua')
    found = keeping.read(tmp_path)
    assert list(found) == ["a"]
    assert math.isnan(keeping.number(found["a"]["quality"]))


def test_families_that_are_put_aside_are_refused_or_logged(tmp_path: Path) -> None:
    judged, put_aside = _module("judged"), _module("families").PUT_ASIDE
    log = tmp_path / "log"
    with pytest.raises(judged.PutAside, match=put_aside[0]):
        judged.allow(["tabular/mlp", put_aside[0]], put_aside=False, log=log)
    judged.allow(["tabular/mlp"], put_aside=False, log=log)
    assert not log.exists()
    judged.allow([put_aside[0]], put_aside=True, log=log)
    assert put_aside[0] in log.read_text()


def test_the_table_counts_plain_judgements_and_keeps_harmless_ones_apart(tmp_path: Path) -> None:
    judging, judged = importlib.import_module("benchmarks.faults.judging"), _module("judged")
    alarm = judging.Alarm(step=9, code="LOS002")
    faulty = judging.Judgement(name="tabular/mlp", seed=0, kind="faulty", cause="lr-too-high", alarms=(alarm,),
                               codes=("LOS002",), causes=("lr-spike", "lr-too-high"))  # fmt: skip
    runs = [faulty, replace(faulty, causes=("lr-too-high",)), replace(faulty, alarms=(), codes=(), causes=()),
            replace(faulty, kind="harmless"), replace(faulty, kind="healthy", cause="", codes=()),
            replace(faulty, kind="twin", cause="")]  # fmt: skip
    judged.write(tmp_path / "judged.jsonl", runs)
    printed = judged.table(judged.read(tmp_path / "judged.jsonl"))
    cells = "67% (2/3, 21%-94%) | 33% (1/3, 6%-79%) | 67% (2/3, 21%-94%)"
    assert f"| tabular/mlp | {cells} | 0% (0/1, 0%-79%) | 100% (1/1, 21%-100%) | 100% (1/1, 21%-100%) |" in printed
    assert "| lr-too-high | 3 | 2 | 1 | 2 | lr-spike 1, - 1 |" in printed
    assert "Rules that alarm on twin: LOS002 1" in printed


def _judgements(judging: ModuleType) -> list[Any]:
    def run(kind: str, step: int, *codes: str) -> Any:
        alarms = tuple(judging.Alarm(step=step, code=code) for code in codes)
        onset = 50 if kind == "faulty" else 0
        return judging.Judgement(
            name="tabular/mlp", seed=0, kind=kind, cause="", onset=onset, alarms=alarms, codes=codes
        )

    return [
        *(run("faulty", 60, "LOS002", "GRD008") for _ in range(17)),
        run("faulty", 10, "LOS002"),  # before the fault acts
        run("twin", 10, "LOS002"),
        run("healthy", 10, "LOS002"),
        run("harmless", 10, "LOS002", "GRD008"),
        run("healthy", 10),
    ]


def test_an_alarm_is_right_where_a_fault_harms_and_wrong_where_there_is_none() -> None:
    precision, judging = _module("precision"), importlib.import_module("benchmarks.faults.judging")
    assert precision.counted(_judgements(judging)) == {"GRD008": (17, 17), "LOS002": (17, 20)}


def test_the_measured_precision_is_written_as_the_module_that_tiers_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    precision, judged, space = _module("precision"), _module("judged"), _module("__main__")
    written = tmp_path / "alarm_precision.py"
    written.write_text(precision.FILE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(precision, "FILE", written)
    runs = _judgements(importlib.import_module("benchmarks.faults.judging"))
    judged.write(tmp_path / "judged.jsonl", runs)
    monkeypatch.setattr("sys.argv", ["space", "precision", str(tmp_path)])
    space.main()
    assert "LOS002  17 of 20 alarms right" in capsys.readouterr().out
    found: dict[str, Any] = {}
    exec(written.read_text(encoding="utf-8"), found)
    assert found["PRECISION"] == {"GRD008": (17, 17), "LOS002": (17, 20)}
    assert precision.text({}) == written.read_text(encoding="utf-8").replace(
        '{\n    "GRD008": (17, 17),\n    "LOS002": (17, 20),\n}', "{}"
    )

    # Now LOS002 is preview, and would never alarm again.
    monkeypatch.setattr("sonde.rules.tiers.PRECISION", found["PRECISION"])
    assert precision.all_stable() == {"LOS002.tier": "stable"}
    with pytest.raises(SystemExit, match="judge --all-stable"):
        space.main()
    judged.write(tmp_path / "judged_stable.jsonl", [replace(run, name="tabular/mlp") for run in runs[:17]])
    space.main()
    assert "LOS002  17 of 17 alarms right" in capsys.readouterr().out


def test_put_aside_families_decide_no_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, space, put_aside = _module("judged"), _module("__main__"), _module("families").PUT_ASIDE
    runs = _judgements(importlib.import_module("benchmarks.faults.judging"))
    judged.write(tmp_path / "judged.jsonl", [replace(run, name=put_aside[0]) for run in runs])
    monkeypatch.setattr("sys.argv", ["space", "precision", str(tmp_path)])
    monkeypatch.setattr(_module("precision"), "FILE", tmp_path / "unused")
    with pytest.raises(judged.PutAside):
        space.main()


def test_one_case_goes_from_training_to_judgement(tmp_path: Path) -> None:
    training, labels, judged, keeping = map(_module, ("training", "labels", "judged", "keeping"))
    make_piece = _module("plan").Piece
    base = _module("drawing").draw("regression/mlp", 3).changed({"loop.steps": 80, "loop.closure": False})
    fault = _module("faults.catalogue").FAULTS["zero-grad-too-early"]
    wanted = []
    for i in range(3):
        twin = base.changed({"replicate": i})
        faulty = fault.put_in(twin, 1.0)
        wanted.append(make_piece(training=twin, role="twin", watched=i == 0, group="t"))
        wanted.append(
            make_piece(training=faulty, role="faulty", watched=i == 0, fault=fault.name, twin=twin.key, group="f")
        )
    assert training.train_all(wanted, tmp_path, minutes=5) == 6
    assert training.train_all(wanted, tmp_path, minutes=5) == 0
    found = labels.label_all(keeping.read(tmp_path))
    assert [label.kind for label in found] == ["twin", "faulty"]
    runs = list(judged.judge_all(tmp_path, found, jobs=1))
    assert runs[1].detected
    assert runs[1].first
    with keeping.unpacked(tmp_path, found[1].key) as run:
        assert "zero-grad" not in (run / "run.json").read_text()
