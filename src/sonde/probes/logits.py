"""The logits that a cross-entropy is given: their size, their normaliser and how sure they are."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.attention_logits import most_logits
from sonde.probes.hooks import Hooks, is_compiled, readable
from sonde.probes.probe import Reading, Row
from sonde.probes.seams import Seam
from sonde.probes.stopwatch import Stopwatch

_MOST_ROWS = 256
_PATIENCE = 3  # armed iterations without a cross-entropy before it is said


class CrossEntropy(NamedTuple):
    """A cross-entropy was computed."""

    logits: Tensor
    target: Tensor
    ignore_index: int


def _wrap_cross_entropy(original: Callable[..., Any], tell: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def cross_entropy_loss(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if len(args) > 1 and not torch.compiler.is_compiling():
            tell(CrossEntropy(args[0], args[1], args[4] if len(args) > 4 else kwargs.get("ignore_index", -100)))
        return result

    return cross_entropy_loss


# `F.cross_entropy` and `nn.CrossEntropyLoss` look it up here at each call, so that they are heard however they were
# imported.
CROSS_ENTROPY = Seam(torch._C._nn, "cross_entropy_loss", _wrap_cross_entropy)


@final
class OutputLogits:
    """What the loss is computed from, where it is a cross-entropy: a probe (see `Probe`) with one slot.

    For a row of logits z (a sample, or a token, over its classes), log Z = ln Σ_c exp z_c, and p = softmax(z),

    - `logits/norm` is the mean of ‖z‖₂, `logits/absmax` the largest |z_c|, both without classes at -inf;
    - `logits/log_z` is the mean of log Z, `logits/log_z_absmax` the largest |log Z|: what a z-loss penalises;
    - `loss/entropy` is the mean of -Σ_c p_c ln p_c, in nats: ln(number of classes) where nothing is known.

    Of the first `F.cross_entropy` (`nn.CrossEntropyLoss`) in an iteration whose logits require a gradient, at most 256
    rows count, spread evenly, fewer where that would be more than 8 million logits (1 million on a CPU): the largest
    values are lower bounds. Classes are the second dimension of (N, C, d₁, …). Rows whose target is `ignore_index` are
    left out; where that leaves none, values are missing. Other values that are not finite come through as they are.
    Computed in float32.

    Not measured: other losses, `nll_loss` of a `log_softmax` (the logits are gone when it is called), fused ones of
    other libraries, later cross-entropies of the iteration, and training with compiled modules.

    Args:
        models: Those whose training is watched, by name.

    References:
        Chowdhery et al., PaLM: Scaling Language Modeling with Pathways, JMLR 2023, section 5 (z-loss).
    """

    yields: Mapping[str, str] = {
        "logits/norm": "mean L2 norm of a row of output logits, of sampled rows",
        "logits/absmax": "largest magnitude of an output logit in sampled rows",
        "logits/log_z": "mean log of the softmax's normaliser, which z-loss draws to 0",
        "logits/log_z_absmax": "largest magnitude of the log of the softmax's normaliser in sampled rows",
        "loss/entropy": "mean entropy of the predicted distribution, in nats",
    }
    num_slots = 1

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._models = list(models.values())
        self._hooks = Hooks(clock)
        self._columns = Columns("logits", tuple(self.yields), Detail.LAYER)
        self._found: Tensor | None = None
        self._is_compiled = False
        self._misses = 0

    def arm(self, slots: Sequence[int]) -> None:
        self._is_compiled = any(is_compiled(module) for model in self._models for module in model.modules())
        if slots and not self._is_compiled and self._hooks.is_idle:
            self._hooks.listen(CROSS_ENTROPY, self._hear)

    def collect(self) -> Sequence[Reading]:
        listened = not self._hooks.is_idle
        found, self._found = self._found, None
        self._hooks.release()
        if found is None:
            self._misses += listened
            return []
        self._misses = 0
        return [Reading([found], functools.partial(_report, self._columns))]

    def not_measured(self) -> Mapping[str, str]:
        if self._is_compiled:
            return dict.fromkeys(self.yields, "a model has compiled modules")
        if self._misses >= _PATIENCE:
            return dict.fromkeys(self.yields, f"no cross-entropy was computed, {self._misses} times in a row")
        return {}

    def close(self) -> None:
        self._models, self._found = [], None
        self._hooks.release()

    def _hear(self, event: CrossEntropy) -> None:
        logits, target, ignore_index = event
        is_wanted = self._found is None and torch.is_grad_enabled() and logits.requires_grad
        if is_wanted and readable(logits) and type(target) is Tensor:
            with apart(logits.device):
                self._found = _statistics(logits.detach(), target, ignore_index)


def _statistics(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Sums of norm, largest magnitude, log Z and entropy of rows; their largest magnitudes; the number of rows."""
    rows = logits[None] if logits.dim() == 1 else logits.movedim(1, -1)
    sample = _spread(rows.shape[:-1], max(1, min(_MOST_ROWS, most_logits(logits.device) // rows.size(-1))))
    z = rows[sample].reshape(-1, rows.size(-1)).float()
    bounded = z.masked_fill(z == -torch.inf, 0.0)
    of_rows = torch.stack(
        [
            torch.linalg.vector_norm(bounded, dim=1, dtype=torch.float64),  # squares leave the range of float32
            torch.linalg.vector_norm(bounded, torch.inf, dim=1).double(),
            z.logsumexp(1).double(),
            torch.special.entr(z.softmax(1)).sum(1).double(),
        ]
    )
    if target.is_floating_point():  # probabilities of classes: every row counts
        counts = torch.ones_like(of_rows[0])
    else:
        kept = (target[None] if logits.dim() == 1 else target)[sample].reshape(-1) != ignore_index
        of_rows = torch.where(kept, of_rows, 0.0)
        counts = kept.double()
    return torch.cat([of_rows.sum(1), of_rows.abs().amax(1), counts.sum()[None]])


def _spread(shape: Sequence[int], most: int) -> tuple[slice, ...]:
    """At most so many places of a grid, evenly spread over each of its dimensions.

    Example:
        >>> _spread((8, 1000), 16)
        (slice(0, None, 3), slice(97, None, 201))
    """
    slices = []
    for i, size in enumerate(shape):
        share = max(1, round(most ** (1 / (len(shape) - i))))
        # Odd: rows are often sequences one behind the other, whose length would be kept step with.
        stride = -(-size // share) | 1 if size > share else 1
        num = -(-size // stride)
        slices.append(slice((size - 1 - (num - 1) * stride) // 2, None, stride))
        most = max(1, most // num)
    return tuple(slices)


def _report(columns: Columns, numbers: Float64) -> Iterator[Row]:
    sums, largest, count = numbers[:4], numbers[4:8], numbers[8]
    if count == 0:
        yield Row(columns, np.full(columns.width, MISSING, np.float64))
    else:
        norm, _, log_z, entropy = sums / count
        yield Row(columns, np.array([norm, largest[1], log_z, largest[2], entropy]))
