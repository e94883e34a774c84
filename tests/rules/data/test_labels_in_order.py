"""Batches in the order of their targets, and what only looks so."""

from collections.abc import Sequence

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.data.labels_in_order import LabelsInOrder
from sonde.rules.step_view import Fact

from ..traces import alarms, falling, judge, rows


def of_classes(labels: np.ndarray, batch: int) -> list[float]:
    """The entropy of each batch's classes."""
    found = []
    for one in labels[: len(labels) // batch * batch].reshape(-1, batch):
        shares = np.unique(one, return_counts=True)[1] / batch
        found.append(abs(float(-(shares * np.log(shares)).sum())))
    return found


def run(entropies: Sequence[float], batch: int = 16) -> list[dict[str, float]]:
    return rows(len(entropies), loss=falling(len(entropies)), label__entropy=list(entropies), batch__size=batch)


def of_numbers(targets: np.ndarray, batch: int) -> list[dict[str, float]]:
    batches = targets[: len(targets) // batch * batch].reshape(-1, batch)
    means, deviations = batches.mean(1).tolist(), batches.std(1).tolist()
    return rows(len(means), loss=falling(len(means)), label__mean=means, label__std=deviations, batch__size=batch)


def test_sorted_classes_are_an_alarm_after_24_batches_and_shuffled_ones_are_none() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 1024)
    seen = judge(LabelsInOrder(), run(of_classes(np.sort(labels), 16)))
    assert seen[0][0] == 24
    assert {sighting.severity for _, sighting in seen} == {Severity.WARNING}
    assert "one class only" in seen[0][1].message
    assert not judge(LabelsInOrder(), run(of_classes(labels, 16)))


def test_a_rare_class_and_a_single_one_are_no_order() -> None:
    rare = (np.random.default_rng(0).random(3200) < 0.02).astype(int)
    assert np.mean(np.array(of_classes(rare, 16)) == 0) > 0.6
    assert not judge(LabelsInOrder(), run(of_classes(rare, 16)))
    assert not judge(LabelsInOrder(), run([0.0] * 100))


def test_sorted_numbers_are_an_alarm_and_shuffled_ones_are_none() -> None:
    targets = np.random.default_rng(0).normal(size=2048)
    seen = judge(LabelsInOrder(), of_numbers(np.sort(targets), 16))
    assert seen[0][0] == 24
    assert "from batch to batch" in seen[0][1].message
    assert not judge(LabelsInOrder(), of_numbers(targets, 16))


def test_batches_of_a_kind_in_turns_are_no_order() -> None:
    turns = np.repeat(np.tile([0.0, 1.0], 50), 16) + np.random.default_rng(0).normal(scale=0.01, size=1600)
    assert not judge(LabelsInOrder(), of_numbers(turns, 16))


def test_small_batches_and_models_that_make_their_own_data_are_not_judged() -> None:
    entropies = of_classes(np.sort(np.random.default_rng(0).integers(0, 10, 1024)), 16)
    assert not judge(LabelsInOrder(), run(entropies, batch=4))
    acts = {1: [Fact("preflight", {"check": "acts", "where": []})]}
    assert not alarms(judge(LabelsInOrder(), run(entropies), facts=acts))


def of_costs(targets: np.ndarray, batch: int) -> list[dict[str, float]]:
    """What the loss's own graph shows of targets, at every tenth step."""
    batches = targets[: len(targets) // batch * batch].reshape(-1, batch)[::10]
    spread = [x for one in batches.var(1) for x in (float(one), *[None] * 9)]
    zeros = [x for one in (batches**2).mean(1) for x in (float(one), *[None] * 9)]
    return rows(len(spread), loss=falling(len(spread)), loss__trivial=spread, loss__zeros=zeros, batch__size=batch)


def test_targets_that_only_the_loss_shows_are_in_order_where_batches_differ() -> None:
    targets = np.random.default_rng(0).normal(1.0, 1.0, 3200)
    seen = judge(LabelsInOrder(), of_costs(np.sort(targets), 32))
    assert {sighting.severity for _, sighting in seen} == {Severity.WARNING}
    assert not judge(LabelsInOrder(), of_costs(targets, 32))


def test_classes_that_only_the_loss_shows_are_in_order_where_most_batches_hold_one() -> None:
    labels = np.random.default_rng(0).integers(0, 7, 4000)
    costs = [x for one in of_classes(np.sort(labels), 16) for x in (one, None)]
    zeros = [None if cost is None else float(np.log(7)) for cost in costs]
    table = rows(len(costs), loss=falling(len(costs)), loss__trivial=costs, loss__zeros=zeros, batch__size=16)
    assert judge(LabelsInOrder(), table)
    small = [{**row, "batch/size": 8.0} for row in table]
    assert not judge(LabelsInOrder(), small)
