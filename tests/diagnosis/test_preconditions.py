"""Which causes cannot be, by what is known of a training."""

import math

import pytest

from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity
from sonde.diagnosis.circumstances import Circumstances
from sonde.diagnosis.preconditions import PRECONDITIONS, impossible
from sonde.diagnosis.ranking import Ranking
from sonde.rules.catalogue import all_rules
from sonde.rules.history.run_summary import RunSummary


def test_what_is_not_known_excludes_nothing() -> None:
    assert impossible(Circumstances(), RunSummary()) == frozenset()


def test_every_precondition_can_be_known_not_to_hold() -> None:
    known = Circumstances(
        is_fp16=False, is_short=False, is_recurrent=False, is_sequence=False, is_attentive=False, is_classifying=False,
        has_moments=False, has_state=False, first_rates=(0.1,), clip_limit=1.0, buffers=0.0,
    )  # fmt: skip
    run = RunSummary(lr=1e-4, lr_peak=0.1, grad_median=2.0, clip_share=0.0)
    assert impossible(known, run) == set(PRECONDITIONS)


@pytest.mark.parametrize(
    ("cause", "circumstances", "run"),
    [
        (Cause.MISSING_LOSS_SCALING, Circumstances(is_fp16=True), RunSummary()),
        (Cause.PRECISION_UNDERFLOW, Circumstances(is_fp16=True, is_short=False), RunSummary()),
        (Cause.PRECISION_UNDERFLOW, Circumstances(is_fp16=False, is_short=True), RunSummary()),
        (Cause.PRECISION_UNDERFLOW, Circumstances(is_fp16=False), RunSummary()),
        (Cause.PRECISION_UNDERFLOW, Circumstances(is_short=False), RunSummary()),
        (Cause.LONG_SEQUENCE, Circumstances(is_sequence=False, is_recurrent=True), RunSummary()),
        (Cause.LONG_SEQUENCE, Circumstances(is_sequence=False, is_recurrent=False, is_attentive=True), RunSummary()),
        (Cause.LONG_SEQUENCE, Circumstances(is_recurrent=False), RunSummary()),
        (Cause.LR_SPIKE, Circumstances(first_rates=(0.1,), is_scheduled=True), RunSummary()),
        (Cause.MISSING_LR_DECAY, Circumstances(), RunSummary(lr=0.05, lr_peak=0.1)),
        (Cause.MISSING_CLIPPING, Circumstances(clip_limit=100.0), RunSummary(grad_median=2.0)),
        (Cause.MISSING_CLIPPING, Circumstances(clip_limit=1.0), RunSummary(grad_median=math.nan)),
        (Cause.CLIP_TOO_AGGRESSIVE, Circumstances(clip_limit=1.0), RunSummary(clip_share=1e-9)),
        (Cause.BATCHNORM_SMALL_BATCH, Circumstances(buffers=528.0), RunSummary()),
        (Cause.BATCHNORM_SMALL_BATCH, Circumstances(buffers=0.0, is_batch_normed=True), RunSummary()),
    ],
)
def test_a_cause_stays_where_it_may_be(cause: Cause, circumstances: Circumstances, run: RunSummary) -> None:
    assert cause not in impossible(circumstances, run)


def test_a_scaler_that_acts_is_not_missing() -> None:
    assert Cause.MISSING_LOSS_SCALING in impossible(Circumstances(is_fp16=True, is_scaled=True), RunSummary())


def test_a_cause_that_cannot_be_is_not_named_whatever_was_seen() -> None:
    """Gradients as small and sparse as those of fp16, in float32."""
    finding = Finding(
        code="NUM001", name="gradients-underflow", severity=Severity.WARNING, first_step=30, last_step=60, open=True,
        message="half of the gradient is exactly zero",
    )  # fmt: skip
    ranking = Ranking([rule() for rule in all_rules()])
    first = ranking.explain(finding, [finding])
    assert first.causes[0].cause is Cause.MISSING_LOSS_SCALING
    ranking.note(RunSummary(), Circumstances(is_fp16=False, is_short=False))
    explained = ranking.explain(finding, [finding])
    assert not {Cause.MISSING_LOSS_SCALING, Cause.PRECISION_UNDERFLOW} & {one.cause for one in explained.causes}
    assert ranking.ordered([explained]) == (explained,)
