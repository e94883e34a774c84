"""What is known of how a training is made up: number formats, sequences, attention, optimisers, clipping.

It is read off the series, the events and the model table of the run, so that it is known of stored runs as well. None
and NaN mean that it is not known, or not yet.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sonde.rules.history.tracking import spread
from sonde.rules.step_view import Fact, StepView

_LOOKS_AT_WEIGHTS, _LOOKS_AT_OUTPUTS = 3, 300
"""Formats do not change; every module has its turn within so many looks, and what was not seen by then is compiled."""
_SHORT = frozenset({"float16", "bfloat16"})
_BY_HAND = "UpdatedByHand"
"""What an optimiser is called that stands for lines of a script: nobody knows what they keep or divide by."""
_FP16_DOUBLINGS = 20.0
"""Between the 16 doublings from 1 to the largest number of fp16 and the 128 of bf16 and float32."""


class Circumstances(NamedTuple):
    """What is known of a training so far.

    Attributes:
        owners: Modules that hold weights.
        looked: Modules whose outputs were looked at, until they are most of the owners.
        is_fp16: Whether some module's output is fp16; known to be none only where most owners of weights were looked
            at, since the first ones (embeddings, norms) stay in float32 under autocast.
        is_short: Whether some weights are kept in 16 bits, as the model table says.
        num_looks: At weights and at outputs.
        is_recurrent: Whether there are recurrent weights, by their name.
        is_sequence: Whether the first input is a sequence: ids in rows, or vectors in rows.
        is_attentive: Whether attention was seen.
        is_classifying: Whether a cross-entropy of logits was seen.
        is_scaled: Whether a gradient scaler acted.
        has_moments: Whether an optimiser divides by running squares and an epsilon.
        has_state: Whether an optimiser keeps state from step to step.
        first_rates: Learning rates of all groups at the first step.
        is_scheduled: Whether one of them has changed since.
        clip_limit: The norm to which gradients are clipped, the latest.
        buffers: Bytes of the models' buffers, such as the running statistics of batch norm.
        is_batch_normed: Whether a batch norm was seen at work with few values.
    """

    owners: frozenset[str] = frozenset()
    looked: frozenset[str] = frozenset()
    is_fp16: bool | None = None
    is_short: bool | None = None
    num_looks: tuple[int, int] = (0, 0)
    is_recurrent: bool | None = None
    is_sequence: bool | None = None
    is_attentive: bool | None = None
    is_classifying: bool | None = None
    is_scaled: bool = False
    has_moments: bool | None = None
    has_state: bool | None = None
    first_rates: tuple[float, ...] = ()
    is_scheduled: bool = False
    clip_limit: float = math.nan
    buffers: float = math.nan
    is_batch_normed: bool = False

    def after(self, view: StepView) -> "Circumstances":
        """With what one more step tells."""
        new = self._after_weights(view)._after_outputs(view)._after_rates(view)
        known: dict[str, Any] = {}
        if not new.is_short and (model := view.kinds.model) is not None:
            is_short = not _SHORT.isdisjoint(model.dtypes)
            if is_short is not new.is_short:
                known["is_short"] = is_short
        if not new.is_sequence and "batch/size" in view:
            known["is_sequence"] = "batch/sequence" in view
        if not new.is_attentive and view.layers("attn/entropy_relative") is not None:
            known["is_attentive"] = True
        if not new.is_classifying and "logits/log_z" in view:
            known["is_classifying"] = True
        if not new.is_scaled and "amp/scale" in view:
            known["is_scaled"] = True
        if "clip/limit" in view and view.value("clip/limit") != new.clip_limit:
            known["clip_limit"] = view.value("clip/limit")
        if "memory/buffers" in view and view.value("memory/buffers") != new.buffers:
            known["buffers"] = view.value("memory/buffers")
        new = new._replace(**known) if known else new
        for fact in view.facts:
            new = new._after_fact(fact)
        return new

    def _after_weights(self, view: StepView) -> "Circumstances":
        at_weights, at_outputs = self.num_looks
        largest = view.layers("weight/absmax") if at_weights < _LOOKS_AT_WEIGHTS else None
        if largest is None:
            return self
        owners = {name.rpartition(".")[0] or "model" for name in largest.names}
        recurrent = bool(self.is_recurrent) or any("weight_hh" in name for name in largest.names)
        return self._replace(
            owners=self.owners | owners,
            num_looks=(at_weights + 1, at_outputs),
            is_recurrent=recurrent,
        )

    def _after_outputs(self, view: StepView) -> "Circumstances":
        at_weights, at_outputs = self.num_looks
        if self.is_fp16 is not None or at_outputs == _LOOKS_AT_OUTPUTS or not self.owners:
            return self
        rooms, sizes = view.layers("act/headroom"), view.layers("act/absmax")
        if rooms is None or sizes is None:
            return self
        with np.errstate(divide="ignore", invalid="ignore"):
            doublings = rooms.values + np.log2(spread(sizes, rooms.names))
        known = np.isfinite(doublings)
        if np.any(doublings[known] < _FP16_DOUBLINGS):
            return self._replace(is_fp16=True)
        names = (name for name, is_known in zip(rooms.names, known, strict=True) if is_known)
        looked = self.looked | self.owners.intersection(names)
        is_enough = len(looked) > len(self.owners) / 2
        num_looks = at_weights, at_outputs + 1
        return self._replace(looked=looked, is_fp16=False if is_enough else None, num_looks=num_looks)

    def _after_rates(self, view: StepView) -> "Circumstances":
        if self.is_scheduled or "lr" not in view:
            return self
        groups = view.layers("lr")
        rates = (view.value("lr"), *(groups.values.tolist() if groups is not None else ()))
        if not self.first_rates:
            return self._replace(first_rates=rates)
        return self if rates == self.first_rates else self._replace(is_scheduled=True)

    def _after_fact(self, fact: Fact) -> "Circumstances":
        tag, reason = fact.data.get("tag"), str(fact.data.get("reason", ""))
        match fact.kind:
            case "not-measured" if tag == "attn/*" and reason.startswith("no attention"):
                return self._replace(is_attentive=bool(self.is_attentive))
            case "not-measured" if tag == "logits/log_z" and reason.startswith("no cross-entropy"):
                return self._replace(is_classifying=bool(self.is_classifying))
            case "preflight" if fact.data.get("check") == "batchnorm-few-values":
                return self._replace(is_batch_normed=True)
            case "optimizer":
                moments, state = _kind_of(fact.data)
                return self._replace(
                    has_moments=_either(self.has_moments, moments), has_state=_either(self.has_state, state)
                )
        return self


def _kind_of(told: Mapping[str, Any]) -> tuple[bool | None, bool | None]:
    """Whether an optimiser divides by running squares, and whether it keeps state, by what it was told to be."""
    listed = told.get("groups")
    groups = [group for group in listed if isinstance(group, Mapping)] if isinstance(listed, list | tuple) else []
    if not groups or told.get("optimizer") == _BY_HAND:
        return None, None
    has_moments = any("epsilon" in group for group in groups)
    if has_moments or any(group.get("momentum") or "beta1" in group for group in groups):
        return has_moments, True
    return False, False if told.get("optimizer") == "SGD" else None


def _either(one: bool | None, other: bool | None) -> bool | None:
    """True where one of them is, None where neither is known."""
    return one or other if other is not None else one
