"""LOP013 batchnorm-tiny-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchnormTinyBatch:
    """Batch norm normalises over very few values.

    What it detects:
        - A batch norm in train mode had at most 4 values a channel (batch × positions) in three steps in a row.

    Why it matters:
        The mean and variance of so few values are mostly noise: two values keep nothing but their order. Evaluation
        uses other statistics than training.

    Evidence:
        The fact `batchnorm-few-values`: the modules and the number of values.

    What to do:
        Use a larger batch, `GroupNorm` or `LayerNorm`. When fine-tuning, call `eval()` on these modules to freeze their
        statistics.

    When it is wrong:
        - Models that share their statistics over many ranks: `SyncBatchNorm` has more values than one rank sees.

    References:
        Wu and He, Group normalization, ECCV 2018. Ioffe, Batch renormalization, NeurIPS 2017.
    """

    code: ClassVar[str] = "LOP013"
    name: ClassVar[str] = "batchnorm-tiny-batch"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BATCHNORM_SMALL_BATCH: For("batch norm sees few values a channel"),
        Cause.TRAIN_EVAL_MISMATCH: Against("few values explain the mismatch"),
        Cause.EXPLODING_GRADIENTS: Against("statistics of a few values explain large gradients"),
        Cause.LR_TOO_HIGH: Against("statistics of a few values explain wild gradients"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "validation-rising"

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "batchnorm-few-values")
        if state.since < 0:
            return state, ()
        message = f"batch norm normalises over only {count(state.value, 'value')} a channel"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
