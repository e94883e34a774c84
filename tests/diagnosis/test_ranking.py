"""Which cause is named first where several would bring the same symptoms about."""

import pytest

from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity
from sonde.diagnosis.evidence import rows_of
from sonde.diagnosis.ranking import OF_FINITE_LOSSES, Ranking
from sonde.diagnosis.weights import PRIORS, WEIGHTS
from sonde.rules.catalogue import all_rules

NAMES = {rule.code: rule.name for rule in all_rules()}


RANKING = Ranking([rule() for rule in all_rules()])


def found(one: str) -> Finding:
    """A finding as `CODE`, or `CODE!` for an alarm, with `@place` and `:step`."""
    text, _, step = one.partition(":")
    text, *where = text.split("@")
    code = text.rstrip("!")
    return Finding(
        code=code,
        name=NAMES[code],
        severity=Severity.WARNING if text.endswith("!") else Severity.INFO,
        first_step=int(step or 0),
        last_step=600,
        open=True,
        where=tuple(where),
        message="it was seen",
    )


def named(*seen: str) -> Cause:
    """The first cause of the first alarm."""
    return explained([found(one) for one in seen])[0].causes[0].cause


def explained(findings: list[Finding]) -> tuple[Finding, ...]:
    return RANKING.ordered([RANKING.explain(finding, findings) for finding in findings])


def test_the_weights_are_of_what_the_rules_say_and_of_nothing_else() -> None:
    rows = rows_of(all_rules())
    assert len({(row.cause, row.sign) for row in rows}) == len(rows)
    claimed = {(row.code, f"{row.cause}{row.when}") for row in rows}
    assert claimed == {(code, claim) for code, claims in WEIGHTS.items() for claim in claims}
    assert set(PRIORS) == set(Cause)


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        # All weights grew: attention's logits with them.
        (("ATT001!:27", "ATT002!:52", "LOS005!:99"), Cause.ATTENTION_LOGIT_GROWTH),
        (("ATT001!:27", "ATT002!:52", "LOS005!:99", "WGT006!:1"), Cause.LR_TOO_HIGH),
        # Attention that was collapsed at the first look has not grown.
        (("ATT001!:2", "ATT002:2"), Cause.ATTENTION_ENTROPY_COLLAPSE),
        # One layer became another; a batch moves all of them.
        (("DAT002!:180", "GRD002:180", "WGT002!@2.weight:190", "GRD001!:201"), Cause.WEIGHT_NORM_JUMP),
        (("DAT002!@0:151", "GRD002!:151", "LOS002!:151", "WGT002!@0.weight@2.weight:151"), Cause.BAD_BATCH),
        (("SCH001:150", "DAT002!:151", "LOS002!:151", "WGT002!@0.weight@2.weight:151"), Cause.LR_SPIKE),
        # Gains that are followed all along do not date a spike.
        (("GRD008!:93", "SCH001:150", "DAT002!:151", "LOS002!:151", "LOS003!:153", "UPD001!:153"), Cause.LR_SPIKE),
        # Weights that hardly move cannot show that there is nothing to learn.
        (("LOS004!", "DAT006!", "GRD011:201"), Cause.NO_LEARNABLE_SIGNAL),
        (("LOS004!", "DAT006!", "UPD002!:1", "GEN002!"), Cause.LR_TOO_LOW),
        (("LOS004!", "GRD008!:93", "DAT006!"), Cause.NO_LEARNABLE_SIGNAL),
        # Every step or in stairs.
        (("SCH002!:92", "SCH005:24"), Cause.SCHEDULE_DECAYS_TOO_FAST),
        (("SCH005!:13", "SCH002:40"), Cause.SCHEDULE_MISAPPLIED),
        # What was seen in the loop or the data explains steps that are too large.
        (("UPD001!:5", "LOS003!:9", "LOS006!:20"), Cause.LR_TOO_HIGH),
        (("UPD001!:5", "LOS003!:9", "LOS006!:20", "WGT006!:1", "LOP008!:1"), Cause.WRONG_LOSS_REDUCTION),
        (("UPD001!:5", "LOS003!:9", "LOS006!:20", "LOP001!:2"), Cause.MISSING_ZERO_GRAD),
        (("ACT005!:20", "LOS008", "DAT003:3", "ACT001!:21"), Cause.UNNORMALISED_INPUTS),
        # Constant labels are learned at once, and validation disagrees.
        (("DAT005!:4", "GEN003!:60", "LOS008", "GRD010:135"), Cause.NO_LEARNABLE_SIGNAL),
        # Units that are dead are dead in evaluation too.
        (("GEN006!:72", "LOS007", "ACT001:50"), Cause.UNDERFITTING),
        # Batches of a handful of examples, and epochs of a handful of batches.
        (("ACT001!:21", "DAT002!:371", "WGT002!@0.weight:386", "GRD016:100", "LOS008"), Cause.BATCH_TOO_SMALL),
        (("GEN002!:4", "LOS007", "GRD015:12"), Cause.BATCH_TOO_LARGE),
        # Labels that contradict each other, a model that says all it can, dropout that lets nothing through.
        (("DAT007!:36", "GEN002!:36", "LOS007", "LOS005:250"), Cause.LABEL_NOISE),
        (("LOS011!:96", "GEN002!:48", "LOS005!:200", "SCH003:250"), Cause.INSUFFICIENT_CAPACITY),
        (("ACT006!", "GEN006!:72", "LOS007", "ACT001:50"), Cause.UNDERFITTING),
        # Weights that feed on themselves.
        (("WGT007!:1", "LOS009!:200", "LOS005:250", "SCH003:250"), Cause.GAIN_DRIFT),
        # The gap was there before the data changed.
        (("GEN003!:60", "DAT004@0:128"), Cause.TRAIN_EVAL_MISMATCH),
    ],
)
def test_the_cause_that_explains_the_others_comes_first(seen: tuple[str, ...], cause: Cause) -> None:
    assert named(*seen) is cause


def test_a_loss_that_is_no_number_is_not_blamed_on_what_leaves_it_one() -> None:
    low = ("LOS007!:5", "UPD002!:5", "GRD010:5")
    assert named(*low) is Cause.LR_TOO_LOW
    lost = [found(one) for one in (*low, "LOS001!:40", "GRD005!:40")]
    by_code = {finding.code: finding for finding in explained(lost)}
    for code in ("LOS001", "GRD005"):
        assert not OF_FINITE_LOSSES & {suspect.cause for suspect in by_code[code].causes}
    assert by_code["LOS007"].causes[0].cause is Cause.LR_TOO_LOW  # which began before
