"""What must be so in a training for a cause to be possible, whatever else looks like it.

A cause is left out only where its precondition is known not to hold; what is not known excludes nothing. So there is
none for what may be written by hand where nobody sees it: a weight penalty in the loss (weight-decay-too-strong with a
decay of 0), a clip (clip-too-aggressive where no clip was seen), an overflow of `exp` in float32.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sonde.core.causes import Cause
from sonde.diagnosis.circumstances import Circumstances
from sonde.rules.history.run_summary import RunSummary

_FAR_ABOVE = 10.0
"""Times the usual gradient: a clip there lets steps through that do the harm of unclipped ones."""
_DECAYED = 0.1
"""Of its peak: a rate that has fallen so far has been decayed."""


class Precondition(NamedTuple):
    """What must be so: in words, and whether it is; None where that is not known."""

    words: str
    holds: Callable[[Circumstances, RunSummary], bool | None]


def impossible(circumstances: Circumstances, run: RunSummary) -> frozenset[Cause]:
    """The causes whose preconditions are known not to hold.

    Example:
        >>> float32 = Circumstances(is_fp16=False, is_short=False)
        >>> sorted(impossible(float32, RunSummary()) - impossible(Circumstances(), RunSummary()))
        [<Cause.MISSING_LOSS_SCALING: 'missing-loss-scaling'>, <Cause.PRECISION_UNDERFLOW: 'precision-underflow'>]
    """
    return frozenset(
        cause for cause, condition in PRECONDITIONS.items() if condition.holds(circumstances, run) is False
    )


def _short_numbers(known: Circumstances, _: RunSummary) -> bool | None:
    return True if known.is_fp16 or known.is_short else _both(known.is_fp16, known.is_short)


def _unscaled(known: Circumstances, _: RunSummary) -> bool | None:
    return False if known.is_scaled else known.is_fp16


def _sequences(known: Circumstances, _: RunSummary) -> bool | None:
    if known.is_sequence or known.is_recurrent or known.is_attentive:
        return True
    return _both(known.is_sequence, known.is_recurrent)


def _loose(known: Circumstances, run: RunSummary) -> bool | None:
    if math.isnan(known.clip_limit) or not run.grad_median > 0:
        return None
    return known.clip_limit > _FAR_ABOVE * run.grad_median


def _cut(_: Circumstances, run: RunSummary) -> bool | None:
    return None if math.isnan(run.clip_share) else run.clip_share > 0


def _high(_: Circumstances, run: RunSummary) -> bool | None:
    return False if run.lr <= _DECAYED * run.lr_peak else None


def _scheduled(known: Circumstances, _: RunSummary) -> bool | None:
    return known.is_scheduled if known.first_rates else None


def _batch_norm(known: Circumstances, _: RunSummary) -> bool | None:
    return True if known.is_batch_normed else False if known.buffers == 0 else None


def _both(one: bool | None, other: bool | None) -> bool | None:
    """Of two that are not true: False where both are known to be so."""
    return False if one is False and other is False else None


PRECONDITIONS: Mapping[Cause, Precondition] = {
    Cause.MISSING_LOSS_SCALING: Precondition("modules compute in fp16, and no scaler acts", _unscaled),
    Cause.PRECISION_UNDERFLOW: Precondition("modules compute in fp16, or weights are kept in 16 bits", _short_numbers),
    Cause.ADAM_EPSILON_UNDERFLOW: Precondition("an optimiser has an epsilon", lambda known, _: known.has_moments),
    Cause.OPTIMIZER_STATE_LOST: Precondition("an optimiser keeps state", lambda known, _: known.has_state),
    Cause.LR_SPIKE: Precondition("a learning rate has changed", _scheduled),
    Cause.SCHEDULE_DECAYS_TOO_FAST: Precondition("a learning rate has changed", _scheduled),
    Cause.MISSING_LR_DECAY: Precondition("the learning rate has not fallen to a tenth of its peak", _high),
    Cause.MISSING_CLIPPING: Precondition("no clip was seen, or one far above the usual gradient", _loose),
    Cause.CLIP_TOO_AGGRESSIVE: Precondition("where a clip was seen, it has cut something", _cut),
    Cause.LONG_SEQUENCE: Precondition("inputs are sequences, or there is recurrence or attention", _sequences),
    Cause.ATTENTION_LOGIT_GROWTH: Precondition("there is attention", lambda known, _: known.is_attentive),
    Cause.ATTENTION_ENTROPY_COLLAPSE: Precondition("there is attention", lambda known, _: known.is_attentive),
    Cause.OUTPUT_LOGIT_DRIFT: Precondition("the loss is a cross-entropy", lambda known, _: known.is_classifying),
    Cause.BATCHNORM_SMALL_BATCH: Precondition("there is batch norm", _batch_norm),
}
