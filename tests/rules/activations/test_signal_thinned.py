"""ACT006 signal-thinned."""

from sonde.rules.activations.signal_thinned import SignalThinned

from ..traces import alarms, flat, judge, rows

EVERY = 72


def run(
    zeros: float, trainings: list[float], validations: list[float], *, given: float = 0.5
) -> list[dict[str, float]]:
    losses: list[float] = [1.6] * 5
    evaluations: list[float | None] = [None] * 5
    for training, validation in zip(trainings, validations, strict=True):
        losses += flat(EVERY, training, noise=0.02)
        evaluations += [None] * (EVERY - 1) + [validation]
    table = rows(len(losses), loss=losses, val__loss=evaluations)
    act = {"act/zeros@1": given, "act/constant@1": 0.0, "act/zeros@2": zeros}
    act |= {"act/zeros@4": given, "act/constant@4": 0.0, "act/zeros@5": zeros}
    return [row | (act if i % 25 == 0 else {}) for i, row in enumerate(table)]


SLOW = [1.6, 1.5, 1.3, 1.15]
AHEAD = [1.55, 1.23, 0.92, 0.76]


def test_dropout_of_three_quarters_that_holds_training_back_is_a_warning() -> None:
    seen = alarms(judge(SignalThinned(), run(0.88, SLOW, AHEAD)))
    assert seen[0][0] == 5 + 2 * EVERY
    assert seen[0][1].where == ("2", "5")


def test_usual_dropout_and_activations_that_are_sparse_by_themselves_are_silent() -> None:
    assert judge(SignalThinned(), run(0.75, SLOW, AHEAD)) == []
    assert judge(SignalThinned(), run(0.88, SLOW, AHEAD, given=0.8)) == []


def test_training_that_gets_on_or_is_not_behind_validation_is_silent() -> None:
    assert judge(SignalThinned(), run(0.88, [1.5, 0.9, 0.6, 0.5], [0.9, 0.5, 0.3, 0.2])) == []
    assert judge(SignalThinned(), run(0.88, SLOW, SLOW)) == []


def test_without_evaluations_or_activations_nothing_is_said() -> None:
    assert judge(SignalThinned(), rows(300, loss=1.5)) == []
    bare = [{tag: value for tag, value in row.items() if "act" not in tag} for row in run(0.88, SLOW, AHEAD)]
    assert judge(SignalThinned(), bare) == []
