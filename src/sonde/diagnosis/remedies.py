"""What to do about a cause, with values computed from the run.

The defaults are those of long practice: half the learning rate for a plateau or drift, a fifth for update ratios out of
range, a tenth for an explosion, five times a rate that is too low; clip at the usual norm of the run. Where a rate is
too high and updates were measured, the factor is the one that brings them into the range that is usual at that age.

Which remedy comes first was tried on trainings with known faults (`benchmarks/faults/remedy.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sonde.core.causes import Cause
from sonde.core.findings import Finding
from sonde.core.quantities import amount
from sonde.core.remedies import Action, Remedy, Safety
from sonde.core.strict_json import Json
from sonde.rules.history.run_summary import RunSummary


def remedies_for(
    cause: Cause, run: RunSummary, finding: Finding | None = None, *, is_fp16: bool | None = None
) -> Sequence[Remedy]:
    """The remedies of a cause in order, the best first; none where there is none that Sonde knows.

    There is none for what was not measured, or is not there: no clip at the usual norm where no gradient was read, no
    other format than float16 where nothing is float16, no higher rate for what a schedule has ended.

    Args:
        cause: What is to be undone.
        run: What is known of it, from which values are taken.
        finding: What the cause explains, for values that the run summary does not hold.
        is_fp16: Whether something is computed in float16; None where that is not known.

    Example:
        >>> print(remedies_for(Cause.LR_TOO_HIGH, RunSummary(lr=3e-3))[0])
        lower the learning rate from 0.003 to 0.0003
        >>> remedies_for(Cause.MISSING_CLIPPING, RunSummary())
        []
    """
    return [
        remedy for remedy in _all_remedies(cause, run, finding) if not (remedy.action in _OF_FP16 and is_fp16 is False)
    ]


def _all_remedies(cause: Cause, run: RunSummary, finding: Finding | None) -> Sequence[Remedy]:
    """Those of a cause, whether they apply to this training or not."""
    remedies = [remedy for make in _REMEDIES.get(cause, ()) if (remedy := make(run)) is not None]
    norms = run.grad_median, run.grad_norm
    if cause is Cause.EXPLODING_GRADIENTS and finding is not None and finding.name == "weights-compound":
        return [_decay(run), *remedies]  # clipped steps would let weights grow on
    if cause is Cause.EXPLODING_GRADIENTS and all(run.grad_start >= norm for norm in norms):
        return [_REINITIALISE(run), *remedies]  # larger at the start than later: drawn too large
    made_anew = cause in _BY_STEPS and run.ratio_start > _MADE_ANEW
    if made_anew or (cause is Cause.BAD_INITIALISATION and _rose_at_once(run)):
        others = [remedy for remedy in remedies if remedy.action is not Action.LOWER_LR]
        return [_lower_lr(run), *others]  # such steps would do it to any weights
    if cause is Cause.EMBEDDING_NORM_GROWTH and finding is not None and finding.name == "embedding-norm-grows":
        return [_lower_lr_of(finding.where), *remedies]
    if cause is Cause.BAD_INITIALISATION and finding is not None and _grows_with_depth(finding):
        return [_NORM(run), _REINITIALISE(run)]  # which holds later layers back too, whatever they grow to
    if cause is Cause.OUTPUT_LOGIT_DRIFT:
        return [_z_loss(finding), *remedies]
    return remedies


def _grows_with_depth(finding: Finding) -> bool:
    """Whether it says that activations grow from layer to layer, by themselves or by gradients on their way back."""
    if finding.name != "variance-with-depth" or not finding.evidence:
        return False
    last = finding.evidence[0]  # of the last layer, against the first
    if last.expected is None:
        return False
    return last.value > last.expected if last.tag.startswith("act/") else last.value < last.expected


_OF_FP16 = frozenset({Action.USE_BF16, Action.USE_LOSS_SCALING})
"""What helps where numbers are float16."""
_ENDED = 0.1
"""Of its peak: a rate that has fallen so far is at the end of its schedule."""
_BY_STEPS = frozenset({Cause.DEAD_UNITS, Cause.SATURATED_UNITS, Cause.EXPLODING_GRADIENTS})
"""Causes that steps bring about which are far too large."""
_MADE_ANEW = 0.3
"""Of the weights, changed by the first step: more than Adam's first step changes them in a training that goes well."""
_AT_ONCE = 10.0
"""Times another loss. In trainings of the space the first losses were 300 times the very first one and more where the
rate was too high, which was that of guessing; where weights were drawn too large, they were about as large."""

Make = Callable[[RunSummary], Remedy | None]
"""A remedy with its values; None where what it takes them from is not known, or it has no place."""


def _rose_at_once(run: RunSummary) -> bool:
    """Whether steps beyond the usual range have raised the loss far above the very first one, which none had touched.

    Not where the first loss was far above that of guessing itself: then the weights are bad, whatever steps do to them.
    """
    first, start = run.loss_first, run.loss_start
    is_ordinary = first > 0 and not first > _AT_ONCE * run.trivial
    return is_ordinary and start > _AT_ONCE * first and run.ratio_start > _usual_ratio(0)


def _usual_ratio(step: int) -> float:
    """The upper end of the update ratios that are usual at that age ([D6])."""
    return 1e-2 if step <= 1_000 else 1e-3 if step <= 10_000 else 1e-4


def _lower_lr(run: RunSummary) -> Remedy:
    """To the rate at which the first update would have been in the middle of the range that is usual then.

    The first one is that of the rate alone. Later ones are of what it has done: weights that grew make them small, an
    explosion makes them large. Where the first one was usual, the rate became too high later, and the largest one tells
    by how much; one as large as the weights is the explosion's.
    """
    usual = _usual_ratio(0)
    if run.ratio_start > usual:
        return _lr(_rounded(usual / 2 / run.ratio_start, least=1e-3, most=0.3))(run)
    factor = usual / run.ratio_peak if 0 < run.ratio_peak <= 1 else 0.1
    return _lr(_rounded(factor, least=0.01, most=0.3))(run)


def _rounded(value: float, *, least: float, most: float) -> float:
    """To one digit: no more of it can be known."""
    return float(f"{min(max(value, least), most):.1g}")


_MOST_RAISE = 5.0
"""At a time: a rate that is far too low may be raised again, and one raised by a hundred ends in NaN."""


def _raise_lr(run: RunSummary) -> Remedy | None:
    """Towards three times the usual: far below it all steps go the same way, and the ratio falls once they turn about.

    Once a schedule has brought the rate down, the latest updates tell of the schedule. It is the peak that was too low,
    where even the largest update was no more than is usual then.
    """
    usual, ratio = _usual_ratio(run.step), run.ratio
    if run.lr <= _ENDED * run.lr_peak:
        usual, ratio = _usual_ratio(0), run.ratio_peak
        if not 0 < ratio <= usual:
            return None
    factor = 3 * usual / ratio if ratio > 0 else _MOST_RAISE
    remedy = _lr(_rounded(factor, least=3.0, most=_MOST_RAISE))(run)
    again = f"{remedy.text}, and again as long as that makes the loss fall faster"
    return replace(remedy, text=again) if factor > _MOST_RAISE else remedy


def _lower_lr_of(parameters: Sequence[str]) -> Remedy:
    text = f"put `{parameters[0]}` into a parameter group of its own, with a tenth of its learning rate"
    args: dict[str, Json] = {"factor": 0.1, "parameters": list(parameters)}
    return Remedy(action=Action.LOWER_LR, args=args, safety=Safety.ADVICE, text=text)


def _lr(factor: float) -> Callable[[RunSummary], Remedy]:
    def make(run: RunSummary) -> Remedy:
        action = Action.LOWER_LR if factor < 1 else Action.RAISE_LR
        word = "lower" if factor < 1 else "raise"
        # After a schedule has brought it down, the rate that was too high is the peak.
        rate = run.lr_peak if math.isfinite(run.lr_peak) else run.lr
        name = "peak learning rate" if run.lr < rate else "learning rate"
        change = f"from {amount(rate)} to {amount(rate * factor)}"
        text = f"{word} the {name} {change if math.isfinite(rate) else f'to {factor:g} times its value'}"
        return Remedy(action=action, args={"factor": factor}, safety=Safety.ADVICE, text=text)

    return make


def _usual_norm(run: RunSummary) -> float | None:
    """Of the gradient: the smaller of the latest median and the start's, one of which an explosion leaves alone.

    None where neither is known.
    """
    norms = [norm for norm in (run.grad_median, run.grad_start) if math.isfinite(norm) and norm > 0]
    return min(norms, default=None)


def _clip(run: RunSummary) -> Remedy | None:
    if (usual := _usual_norm(run)) is None:
        return None
    limit = float(f"{usual:.2g}")
    text = f"clip the gradient norm at {amount(limit)}, its usual value in this run (`clip_grad_norm_`)"
    return Remedy(action=Action.CLIP, args={"max_norm": limit}, safety=Safety.ADVICE, text=text)


def _looser_clip(run: RunSummary) -> Remedy | None:
    if (usual := _usual_norm(run)) is None:
        return None
    limit = float(f"{2 * usual:.2g}")
    text = f"raise the clip's limit (`max_norm`) to {amount(limit)}, twice the usual gradient norm of this run"
    return Remedy(action=Action.CLIP, args={"max_norm": limit}, safety=Safety.ADVICE, text=text)


def _warmup(run: RunSummary) -> Remedy:
    """Over 2/(1 − β₂) steps, by when the running squares have seen enough (Ma and Yarats, 2021); 500 without any."""
    steps = round(_rounded(2 / (1 - run.beta2), least=100, most=10_000)) if 0 < run.beta2 < 1 else 500
    reason = f" (for β₂ = {run.beta2:g})" if 0 < run.beta2 < 1 else ""
    text = f"warm the learning rate up over {steps:,} steps{reason}"
    return Remedy(action=Action.LENGTHEN_WARMUP, args={"steps": steps}, safety=Safety.ADVICE, text=text)


def _larger_batch(run: RunSummary) -> Remedy:
    change = f" (from {run.batch:.0f} to {8 * run.batch:.0f} examples)" if run.batch > 0 else ""
    text = f"make the batch eight times as large{change}, or accumulate gradients over eight batches"
    return Remedy(action=Action.BIGGER_BATCH, args={"factor": 8}, safety=Safety.ADVICE, text=text)


_ENOUGH = 16  # examples: below it the error of a net with batch norm rises (Wu and He, 2018, table 2)


def _batch_for_norms(run: RunSummary) -> Remedy:
    """Before another norm, which is another model: weights trained with batch norm are no start for it."""
    factor = max(2, math.ceil(_ENOUGH / run.batch)) if run.batch > 0 else 8
    change = f" (from {run.batch:.0f} to {factor * run.batch:.0f} examples)" if run.batch > 0 else ""
    text = f"make each batch {factor} times as large{change}; accumulating gradients does not help batch norm"
    return Remedy(action=Action.BIGGER_BATCH, args={"factor": factor}, safety=Safety.ADVICE, text=text)


def _rate_of_sum(run: RunSummary) -> Remedy:
    """The gradient of a sum over the batch is as many times larger."""
    remedy = _lr(_rounded(1 / run.batch, least=1e-3, most=0.5) if run.batch > 1 else 0.1)(run)
    return replace(remedy, text=f"keep the sum, and {remedy.text}")


def _rate_of_batch(run: RunSummary) -> Remedy:
    remedy = _lr(5.0)(run)
    return replace(remedy, text=f"keep the batch, and {remedy.text}")


def _smaller_batch(run: RunSummary) -> Remedy | None:
    if not run.batch >= 16:
        return None
    text = f"make the batch an eighth as large (from {run.batch:.0f} to {run.batch / 8:.0f} examples)"
    return Remedy(action=Action.SMALLER_BATCH, args={"factor": 0.125}, safety=Safety.ADVICE, text=text)


def _decay(run: RunSummary) -> Remedy:
    """So that weights forget over as many steps as were trained, λ = 1/(η · steps); 0.1 at the most.

    References:
        Wang and Aitchison, How to set AdamW's weight decay as you scale model and dataset size, 2024.
    """
    rate = run.lr_peak if run.lr_peak > 0 else run.lr
    usual = 1 / (rate * max(run.step, 1)) if rate > 0 else 0.01
    now = run.weight_decay if run.weight_decay > 0 else 0.0
    decay = _rounded(max(usual, 3 * now), least=1e-4, most=max(0.1, 3 * now))
    text = f"{f'raise `weight_decay` from {amount(now)}' if now else 'set `weight_decay`'} to {amount(decay)}"
    return Remedy(action=Action.ADD_WEIGHT_DECAY, args={"weight_decay": decay}, safety=Safety.ADVICE, text=text)


def _less_decay(run: RunSummary) -> Remedy:
    now = run.weight_decay
    change = f", from {amount(now)} to {amount(now / 100)}" if now > 0 else ""
    text = f"divide `weight_decay` by 100{change}"
    return Remedy(action=Action.LOWER_WEIGHT_DECAY, args={"factor": 0.01}, safety=Safety.ADVICE, text=text)


def _z_loss(finding: Finding | None) -> Remedy:
    """Weighted so that where log Z is now it pulls as hard as the loss, w · 2 |log Z| = 1, and less as it comes back.

    Softmax does not feel a shift of all logits, so that the pull costs the loss little.
    """
    log_z = max(
        (abs(one.value) for one in finding.evidence if one.tag == "logits/log_z") if finding else (), default=0.0
    )
    weight = float(f"{0.5 / log_z:.1g}") if 1 < log_z < math.inf else 1e-4
    text = f"add {amount(weight)} × `torch.logsumexp(logits, -1).square().mean()` to the loss (z-loss)"
    return Remedy(action=Action.ADD_Z_LOSS, args={"weight": weight}, safety=Safety.ADVICE, text=text)


def _lower_eps(run: RunSummary) -> Remedy:
    # The default 1e-8 suits a gradient whose norm is about 1.
    norm = run.grad_median if run.grad_median > 0 else 1.0
    eps = float(f"{max(1e-8 * min(norm, 1.0), 1e-30):.1g}")
    text = f"lower Adam's `eps` to {amount(eps)}, far below the root of its second moments"
    return Remedy(action=Action.FIX_LOOP, args={"eps": eps}, safety=Safety.ADVICE, text=text)


def one_step_larger(width: int | None) -> str:
    """How to make a model larger, with its own width where that is known.

    Example:
        >>> one_step_larger(16)
        'half as wide again (from 16 to 24), or with a third more layers'
    """
    change = f" (from {width:,} to {-(-3 * width // 2):,})" if width else ""
    return f"half as wide again{change}, or with a third more layers"


def _capacity(run: RunSummary) -> Remedy:
    text = f"make the model one step larger: {one_step_larger(run.width)}"
    return Remedy(action=Action.MORE_CAPACITY, safety=Safety.ADVICE, text=text)


def _advice(action: Action, text: str, args: Mapping[str, Json] | None = None) -> Callable[[RunSummary], Remedy]:
    remedy = Remedy(action=action, args=args or {}, safety=Safety.ADVICE, text=text)
    return lambda _: remedy


def _fix(text: str) -> Make:
    return _advice(Action.FIX_LOOP, text)


_BF16 = _advice(Action.USE_BF16, "compute in bfloat16 instead of float16 (`torch.autocast(dtype=torch.bfloat16)`)")
_DROPOUT = _advice(Action.ADD_DROPOUT, "add dropout with `p=0.1`", {"p": 0.1})
_COUNT = _advice(Action.CHECK_DATASET_SIZE, "check that an epoch has as many examples as you expect (`len(dataset)`)")
_STOP = _advice(Action.EARLY_STOP, "stop the training, and keep the checkpoint with the best validation loss")
_REINITIALISE = _advice(
    Action.REINITIALISE,
    # 0.7 and not 1, which is past the bend of tanh: in a deep net the gradient would fade at every layer.
    "initialise the weights anew (LSUV): `nn.init.orthogonal_`, then scale and shift each layer in turn until its "
    "outputs on a batch have mean 0 and standard deviation 0.7",
    {"scheme": "lsuv", "std": 0.7},
)
_NORM = _advice(Action.ADD_LAYERNORM, "add normalisation layers, such as `nn.LayerNorm`")
_RESIDUAL = _advice(Action.ADD_RESIDUALS, "add residual connections around the layers")
_INSPECT = _advice(Action.INSPECT_BATCH, "look at the inputs and targets of the batch at that step")
_SKIP = Remedy(
    action=Action.SKIP_BATCH, safety=Safety.ADVICE, text="skip steps whose loss or gradient is NaN or far above usual"
)
_NORMALISE = _advice(Action.NORMALISE_INPUTS, "normalise every input feature to mean 0 and standard deviation 1")
_SLOWER = _advice(Action.SLOWER_SCHEDULE, "stretch the learning-rate schedule to the end of the training")
_DECAY_LR = _advice(Action.DECAY_LR, "let the learning rate fall to a tenth by the end (`CosineAnnealingLR`)")
_QK = _advice(
    Action.ADD_QK_NORM,
    # In its place, as Henry et al. (Query-key normalization for transformers, 2020) have it: a wrong factor would stay.
    "normalise the queries and keys of each attention head (qk-norm), and scale their product only by 1/√d or by one "
    "learned number",
)

_REMEDIES: Mapping[Cause, tuple[Make, ...]] = {
    Cause.LR_TOO_HIGH: (_lower_lr, _clip),
    Cause.LR_TOO_LOW: (_raise_lr,),
    Cause.LR_SPIKE: (_advice(Action.SMOOTHER_SCHEDULE, "remove the jump from the learning-rate schedule"), _clip),
    Cause.WARMUP_TOO_SHORT: (_warmup, _lr(0.2)),
    Cause.SCHEDULE_DECAYS_TOO_FAST: (_SLOWER,),
    Cause.SCHEDULE_MISAPPLIED: (_fix("call `scheduler.step()` once an epoch, not once a batch"), _SLOWER),
    Cause.MISSING_LR_DECAY: (_DECAY_LR, _lr(0.5)),
    Cause.VANISHING_GRADIENTS: (_REINITIALISE, _NORM, _RESIDUAL),
    Cause.EXPLODING_GRADIENTS: (_clip, _lr(0.1)),
    Cause.MISSING_CLIPPING: (_clip,),
    Cause.CLIP_TOO_AGGRESSIVE: (_looser_clip,),
    Cause.CLIP_BEFORE_UNSCALE: (_fix("call `scaler.unscale_(optimizer)` before `clip_grad_norm_`"),),
    Cause.GAIN_DRIFT: (_decay, _lr(0.5), _clip),
    Cause.BAD_INITIALISATION: (_REINITIALISE, _NORM),
    Cause.SYMMETRIC_INITIALISATION: (_REINITIALISE,),
    Cause.DEAD_UNITS: (_REINITIALISE, _lr(0.2)),
    Cause.SATURATED_UNITS: (_REINITIALISE, _NORM),
    Cause.ACTIVATION_EXPLOSION: (_NORM, _lr(0.1)),
    Cause.GRADIENT_IMBALANCE: (_REINITIALISE, _NORM),
    Cause.WEIGHT_NORM_JUMP: (
        # No lower rate: it takes the longer to bring the weights back.
        _fix("find what changed the weights at that step (a load, a reset, a huge update), and go on from before it"),
        _clip,
    ),
    Cause.OVERFITTING: (_STOP, _decay, _DROPOUT, _COUNT),
    Cause.MISSING_REGULARISATION: (_decay, _DROPOUT, _STOP),
    Cause.UNDERFITTING: (
        _capacity,
        _advice(Action.TRAIN_LONGER, "train for more epochs"),
        _advice(Action.LESS_DROPOUT, "use less dropout, if the model has any"),
    ),
    Cause.INSUFFICIENT_CAPACITY: (_capacity,),
    Cause.WEIGHT_DECAY_TOO_STRONG: (_less_decay,),
    Cause.PLATEAU: (_lr(0.5),),
    Cause.LABEL_NOISE: (
        _advice(Action.ADD_LABEL_SMOOTHING, "set the loss's `label_smoothing=0.1`", {"amount": 0.1}),
        _STOP,
    ),
    Cause.NO_LEARNABLE_SIGNAL: (_advice(Action.INSPECT_BATCH, "check that labels belong to their inputs"),),
    Cause.BAD_BATCH: (lambda _: _SKIP, _INSPECT),
    Cause.NONFINITE_INPUT: (lambda _: _SKIP, _INSPECT),
    Cause.UNNORMALISED_INPUTS: (_NORMALISE,),
    Cause.DATA_DRIFT: (_INSPECT,),
    Cause.DISCONNECTED_LAYER: (_fix("connect the layer to the loss, or remove the layer"),),
    Cause.PARAMETER_NOT_IN_OPTIMIZER: (_fix("build the optimiser from all `model.parameters()` of the final model"),),
    Cause.FROZEN_LAYER: (_fix("call `requires_grad_(True)` on the layer, and give its group a learning rate above 0"),),
    Cause.MISSING_ZERO_GRAD: (_fix("call `optimizer.zero_grad()` after every `optimizer.step()`"),),
    Cause.ZERO_GRAD_MISPLACED: (_fix("call `optimizer.zero_grad()` before `backward()` or after `step()`"),),
    Cause.ACCUMULATION_NOT_SCALED: (_fix("divide the loss by the number of micro-batches before `backward()`"),),
    Cause.WRONG_LOSS_REDUCTION: (
        _fix('use `reduction="mean"` in the loss'),
        _rate_of_sum,
    ),
    Cause.DOUBLE_SOFTMAX: (_fix("give logits to the loss, which applies softmax itself"),),
    Cause.EVAL_MODE_IN_TRAINING: (_fix("call `model.train()` at the start of every epoch"),),
    Cause.TRAIN_MODE_IN_EVALUATION: (_fix("call `model.eval()` before every evaluation"),),
    Cause.TRAIN_EVAL_MISMATCH: (
        _fix("give training and evaluation the same preprocessing and the same batch-norm statistics"),
    ),
    Cause.BATCHNORM_SMALL_BATCH: (
        _batch_for_norms,
        _advice(Action.ADD_LAYERNORM, "use `nn.GroupNorm` or `nn.LayerNorm` instead of batch norm"),
    ),
    Cause.BATCH_TOO_SMALL: (_larger_batch,),
    Cause.BATCH_TOO_LARGE: (_smaller_batch, _rate_of_batch),
    Cause.LONG_SEQUENCE: (
        _clip,
        _advice(Action.SHORTER_SEQUENCES, "train on sequences of half the length at first"),
        _NORM,
    ),
    Cause.ATTENTION_LOGIT_GROWTH: (_QK, _lr(0.2)),
    Cause.ATTENTION_ENTROPY_COLLAPSE: (_QK, _lower_lr),
    Cause.OUTPUT_LOGIT_DRIFT: (_lr(0.5),),
    Cause.EMBEDDING_NORM_GROWTH: (_decay, _lr(0.5)),
    Cause.PRECISION_OVERFLOW: (_BF16, _advice(Action.USE_FP32, "compute in float32")),
    Cause.PRECISION_UNDERFLOW: (_advice(Action.USE_FP32, "keep the weights in float32"),),
    Cause.MISSING_LOSS_SCALING: (_advice(Action.USE_LOSS_SCALING, "scale the loss with `torch.amp.GradScaler`"), _BF16),
    Cause.OPTIMIZER_STATE_LOST: (_fix("save `optimizer.state_dict()` with the model, and load both"), _warmup),
    Cause.ADAM_EPSILON_UNDERFLOW: (_lower_eps,),
    Cause.MEMORY_LEAK: (
        _advice(Action.FREE_GRAPH, "detach what you keep between steps (`loss.item()`, `x.detach()`)"),
    ),
    Cause.MEMORY_NEAR_LIMIT: (_advice(Action.ACCUMULATE_GRADIENTS, "halve the batch and accumulate over two batches"),),
    Cause.RANK_DIVERGENCE: (
        _fix("call the model through its `DistributedDataParallel` wrapper, and clip after `backward()`"),
    ),
    Cause.STRAGGLER: (_advice(Action.INSPECT_BATCH, "check the slow rank's machine, and give all ranks equal work"),),
    Cause.SLOWDOWN: (
        _fix("look for hooks, tensors or logs that pile up from step to step, and for other jobs on the machine"),
    ),
    Cause.TARGETS_NOT_SHIFTED: (_fix("shift the targets by one token: compare `logits[:, :-1]` with `tokens[:, 1:]`"),),
    Cause.DATA_NOT_SHUFFLED: (
        _fix("shuffle the training data (`DataLoader(..., shuffle=True)`)"),
        _advice(Action.CHECK_DATA_LOADING, "look at the targets of several batches in a row"),
    ),
    Cause.TARGET_NETWORK_STALE: (_fix("copy the weights to the target network every few hundred steps"),),
    Cause.STATE_RESET: (
        _fix("build the model and the optimiser once, before the loop, and load a checkpoint only at the start"),
    ),
    Cause.DATA_STALL: (_advice(Action.MORE_LOADER_WORKERS, "give the data loader more workers (`num_workers`)"),),
}
