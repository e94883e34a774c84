"""What to do about a cause, with values computed from the run.

The defaults are those of long practice: half the learning rate for a plateau or drift, a fifth for update ratios out of
range, a tenth for an explosion; clip at the usual norm of the run, or at 1 where it is not known. Where a rate is to
blame and updates were measured, the factor is the one that brings them into the range that is usual at that age.

Which remedy comes first was tried on trainings with known faults (`benchmarks/faults/remedy.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence

from sonde.core.causes import Cause
from sonde.core.findings import Finding
from sonde.core.remedies import Action, Remedy, Safety
from sonde.core.strict_json import Json
from sonde.rules.picture import Picture


def remedies_for(cause: Cause, picture: Picture, finding: Finding | None = None) -> Sequence[Remedy]:
    """The remedies of a cause in order, the best first; none where there is none that Sonde knows.

    Args:
        cause: What is to be undone.
        picture: Of the training, from which values are taken.
        finding: What the cause explains, for values that the picture does not hold.

    Example:
        >>> print(remedies_for(Cause.LR_TOO_HIGH, Picture(lr=3e-3))[0])
        [opt-in]  lower the learning rate 0.003 → 0.0003
    """
    remedies = [make(picture) for make in _REMEDIES.get(cause, ())]
    norms = picture.grad_median, picture.grad_norm
    if cause is Cause.EXPLODING_GRADIENTS and all(picture.grad_start >= norm for norm in norms):
        return [_REINITIALISE(picture), *remedies]  # larger at the start than later: drawn too large
    if cause is Cause.EMBEDDING_NORM_GROWTH and finding is not None and finding.name == "embedding-norm-grows":
        return [_lower_lr_of(finding.where), *remedies]
    if cause is Cause.BAD_INITIALISATION and finding is not None and _grows_with_depth(finding):
        return [_NORM(picture), _REINITIALISE(picture)]  # which holds later layers back too, whatever they grow to
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


Make = Callable[[Picture], Remedy]


def _usual_ratio(step: int) -> float:
    """The upper end of the update ratios that are usual at that age ([D6])."""
    return 1e-2 if step <= 1_000 else 1e-3 if step <= 10_000 else 1e-4


def _lower_lr(picture: Picture) -> Remedy:
    # The largest of all updates comes early, so it is held against what is usual then. One as large as the weights
    # is that of the explosion, and says nothing of the rate that brought it about.
    factor = _usual_ratio(0) / picture.ratio_peak if 0 < picture.ratio_peak <= 1 else 0.1
    return _lr(float(f"{min(max(factor, 0.01), 0.3):.1g}"))(picture)


def _raise_lr(picture: Picture) -> Remedy:
    # Three times the usual: far below it all steps go the same way, and the ratio falls once they turn about.
    factor = 3 * _usual_ratio(picture.step) / picture.ratio if picture.ratio > 0 else 10.0
    return _lr(float(f"{min(max(factor, 3.0), 300.0):.1g}"))(picture)


def _lower_lr_of(parameters: Sequence[str]) -> Remedy:
    text = f"give {parameters[0]} a tenth of its learning rate, in a parameter group of its own"
    args: dict[str, Json] = {"factor": 0.1, "parameters": list(parameters)}
    return Remedy(action=Action.LOWER_LR, args=args, safety=Safety.OPT_IN, text=text)


def _lr(factor: float) -> Make:
    def make(picture: Picture) -> Remedy:
        action = Action.LOWER_LR if factor < 1 else Action.RAISE_LR
        word = "lower" if factor < 1 else "raise"
        # After a schedule has brought it down, the rate that was too high is the peak.
        rate = picture.lr_peak if math.isfinite(picture.lr_peak) else picture.lr
        change = f" {rate:.3g} → {rate * factor:.3g}" if math.isfinite(rate) else f" to {factor:g} times what it is"
        text = f"{word} the learning rate{change}"
        return Remedy(action=action, args={"factor": factor}, safety=Safety.OPT_IN, text=text)

    return make


def _usual_norm(picture: Picture) -> float:
    """Of the gradient: the smaller of the latest median and the start's, one of which an explosion leaves alone."""
    norms = [norm for norm in (picture.grad_median, picture.grad_start) if math.isfinite(norm) and norm > 0]
    return min(norms, default=1.0)


def _clip(picture: Picture) -> Remedy:
    usual = _usual_norm(picture)
    limit = float(f"{usual:.2g}")
    text = f"clip the global gradient norm at {limit:g}, its usual size"
    return Remedy(action=Action.CLIP, args={"max_norm": limit}, safety=Safety.OPT_IN, text=text)


def _looser_clip(picture: Picture) -> Remedy:
    usual = _usual_norm(picture)
    limit = float(f"{2 * usual:.2g}")
    text = f"raise the clipping norm to {limit:g}, twice the usual gradient, so that only outliers are clipped"
    return Remedy(action=Action.CLIP, args={"max_norm": limit}, safety=Safety.OPT_IN, text=text)


def _warmup(picture: Picture) -> Remedy:
    steps = max(500, 2 * picture.step)
    text = f"warm the learning rate up over {steps:,} steps"
    return Remedy(action=Action.LENGTHEN_WARMUP, args={"steps": steps}, safety=Safety.OPT_IN, text=text)


def _z_loss(finding: Finding | None) -> Remedy:
    """Weighted so that where log Z is now it pulls as hard as the loss, w · 2 |log Z| = 1, and less as it comes back.

    Softmax does not feel a shift of all logits, so that the pull costs the loss little.
    """
    log_z = max(
        (abs(one.value) for one in finding.evidence if one.tag == "logits/log_z") if finding else (), default=0.0
    )
    weight = float(f"{0.5 / log_z:.1g}") if 1 < log_z < math.inf else 1e-4
    text = f"add a z-loss, {weight:g} times the square of log Z"
    return Remedy(action=Action.ADD_Z_LOSS, args={"weight": weight}, safety=Safety.ADVICE, text=text)


def _lower_eps(picture: Picture) -> Remedy:
    # The default 1e-8 suits a gradient whose norm is about 1.
    norm = picture.grad_median if picture.grad_median > 0 else 1.0
    eps = float(f"{max(1e-8 * min(norm, 1.0), 1e-30):.1g}")
    text = f"give Adam eps={eps:g}, far below the root of its second moments, or scale the loss up"
    return Remedy(action=Action.FIX_LOOP, args={"eps": eps}, safety=Safety.ADVICE, text=text)


def _advice(action: Action, text: str, args: Mapping[str, Json] | None = None) -> Make:
    remedy = Remedy(action=action, args=args or {}, safety=Safety.ADVICE, text=text)
    return lambda _: remedy


def _fix(text: str) -> Make:
    return _advice(Action.FIX_LOOP, text)


_BF16 = _advice(Action.USE_BF16, "train in bfloat16 instead of float16")
_DECAY = _advice(Action.ADD_WEIGHT_DECAY, "add weight decay 0.1", {"weight_decay": 0.1})
_DROPOUT = _advice(Action.ADD_DROPOUT, "add dropout 0.1", {"p": 0.1})
_STOP = _advice(Action.EARLY_STOP, "stop, and keep the checkpoint with the best validation loss")
_REINITIALISE = _advice(
    Action.REINITIALISE,
    # 0.7 and not 1, which is past the bend of tanh: in a deep net the gradient would fade at every layer.
    "draw the weights anew: orthogonal, then layer after layer scaled and shifted so that its outputs on a batch have "
    "mean 0 and deviation 0.7 (LSUV)",
    {"scheme": "lsuv", "std": 0.7},
)
_NORM = _advice(Action.ADD_LAYERNORM, "add normalisation layers")
_RESIDUAL = _advice(Action.ADD_RESIDUALS, "add residual connections")
_INSPECT = _advice(Action.INSPECT_BATCH, "look at the batch of that step")
_SKIP = Remedy(
    action=Action.SKIP_BATCH, safety=Safety.OPT_IN, text="skip steps whose loss or gradient leaves its own band"
)
_BIGGER_BATCH = _advice(
    Action.BIGGER_BATCH, "take eight times the batch, or accumulate gradients over eight", {"factor": 8}
)
_CAPACITY = _advice(Action.MORE_CAPACITY, "make the model one step larger (512 → 768 wide, 6 → 8 layers)")
_NORMALISE = _advice(Action.NORMALISE_INPUTS, "normalise every input feature to mean 0 and standard deviation 1")
_SLOWER = _advice(Action.SLOWER_SCHEDULE, "decay the learning rate more slowly, to the end of the training")
_DECAY_LR = _advice(Action.DECAY_LR, "decay the learning rate: cosine to a tenth over the rest of the training")
_QK = _advice(Action.ADD_QK_NORM, "normalise queries and keys (qk-norm)")

_REMEDIES: Mapping[Cause, tuple[Make, ...]] = {
    Cause.LR_TOO_HIGH: (_lower_lr, _clip),
    Cause.LR_TOO_LOW: (_raise_lr,),
    Cause.LR_SPIKE: (_advice(Action.SMOOTHER_SCHEDULE, "take the jump out of the learning-rate schedule"), _clip),
    Cause.WARMUP_TOO_SHORT: (_warmup, _lr(0.2)),
    Cause.SCHEDULE_DECAYS_TOO_FAST: (_SLOWER,),
    Cause.SCHEDULE_MISAPPLIED: (_fix("call scheduler.step() once an epoch, not once a batch"), _SLOWER),
    Cause.MISSING_LR_DECAY: (_DECAY_LR, _lr(0.5)),
    Cause.VANISHING_GRADIENTS: (_REINITIALISE, _NORM, _RESIDUAL),
    Cause.EXPLODING_GRADIENTS: (_clip, _lr(0.1)),
    Cause.MISSING_CLIPPING: (_clip,),
    Cause.CLIP_TOO_AGGRESSIVE: (_looser_clip,),
    Cause.CLIP_BEFORE_UNSCALE: (_fix("call scaler.unscale_(optimizer) before clipping"),),
    Cause.GAIN_DRIFT: (_DECAY, _lr(0.5), _clip),
    Cause.BAD_INITIALISATION: (_REINITIALISE, _NORM),
    Cause.SYMMETRIC_INITIALISATION: (_REINITIALISE,),
    Cause.DEAD_UNITS: (_REINITIALISE, _lr(0.2)),
    Cause.SATURATED_UNITS: (_REINITIALISE, _NORM),
    Cause.ACTIVATION_EXPLOSION: (_NORM, _lr(0.1)),
    Cause.GRADIENT_IMBALANCE: (_NORM, _REINITIALISE),
    Cause.WEIGHT_NORM_JUMP: (_lr(0.2), _clip),
    Cause.OVERFITTING: (_STOP, _DECAY, _DROPOUT),
    Cause.MISSING_REGULARISATION: (_DECAY, _DROPOUT, _STOP),
    Cause.UNDERFITTING: (_CAPACITY, _advice(Action.TRAIN_LONGER, "train longer")),
    Cause.INSUFFICIENT_CAPACITY: (_CAPACITY,),
    Cause.WEIGHT_DECAY_TOO_STRONG: (
        _advice(Action.LOWER_WEIGHT_DECAY, "divide the weight decay by a hundred", {"factor": 0.01}),
    ),
    Cause.PLATEAU: (_lr(0.5),),
    Cause.LABEL_NOISE: (_advice(Action.ADD_LABEL_SMOOTHING, "add label smoothing 0.1", {"amount": 0.1}), _STOP),
    Cause.NO_LEARNABLE_SIGNAL: (_advice(Action.INSPECT_BATCH, "check that labels belong to their inputs"),),
    Cause.BAD_BATCH: (lambda _: _SKIP, _INSPECT),
    Cause.NONFINITE_INPUT: (lambda _: _SKIP, _INSPECT),
    Cause.UNNORMALISED_INPUTS: (_NORMALISE,),
    Cause.DATA_DRIFT: (_INSPECT,),
    Cause.DISCONNECTED_LAYER: (_fix("connect the layer to the loss, or remove it"),),
    Cause.PARAMETER_NOT_IN_OPTIMIZER: (
        _fix("give the parameters to the optimiser (build it after the model is complete)"),
    ),
    Cause.FROZEN_LAYER: (_fix("set requires_grad, and a learning rate above 0, for the layer"),),
    Cause.MISSING_ZERO_GRAD: (_fix("call optimizer.zero_grad() in every iteration"),),
    Cause.ZERO_GRAD_MISPLACED: (_fix("call optimizer.zero_grad() before backward, not between backward and step"),),
    Cause.ACCUMULATION_NOT_SCALED: (_fix("divide the loss by the number of micro-batches"),),
    Cause.WRONG_LOSS_REDUCTION: (_fix('use reduction="mean", or divide the learning rate by the batch size'), _lr(0.1)),
    Cause.DOUBLE_SOFTMAX: (_fix("give raw logits to the loss: it applies softmax itself"),),
    Cause.EVAL_MODE_IN_TRAINING: (_fix("call model.train() before training"),),
    Cause.TRAIN_MODE_IN_EVALUATION: (_fix("call model.eval() before evaluating"),),
    Cause.TRAIN_EVAL_MISMATCH: (
        _fix("make training and evaluation see the same kind of data and the same statistics"),
    ),
    Cause.BATCHNORM_SMALL_BATCH: (
        _advice(Action.ADD_LAYERNORM, "use GroupNorm or LayerNorm instead of BatchNorm"),
        _BIGGER_BATCH,
    ),
    Cause.BATCH_TOO_SMALL: (_BIGGER_BATCH,),
    Cause.BATCH_TOO_LARGE: (_lr(5.0),),
    Cause.LONG_SEQUENCE: (
        _clip,
        _advice(Action.ADD_LAYERNORM, "add normalisation, or train on shorter sequences first"),
    ),
    Cause.ATTENTION_LOGIT_GROWTH: (_QK, _lr(0.2)),
    Cause.ATTENTION_ENTROPY_COLLAPSE: (_QK, _lower_lr),
    Cause.OUTPUT_LOGIT_DRIFT: (_lr(0.5),),
    Cause.EMBEDDING_NORM_GROWTH: (_DECAY, _lr(0.5)),
    Cause.PRECISION_OVERFLOW: (_BF16, _advice(Action.USE_FP32, "train in float32")),
    Cause.PRECISION_UNDERFLOW: (_advice(Action.USE_FP32, "keep the weights in float32"),),
    Cause.MISSING_LOSS_SCALING: (_advice(Action.USE_LOSS_SCALING, "scale the loss: torch.amp.GradScaler"), _BF16),
    Cause.OPTIMIZER_STATE_LOST: (_fix("save and load optimizer.state_dict() with the model"), _warmup),
    Cause.ADAM_EPSILON_UNDERFLOW: (_lower_eps,),
    Cause.MEMORY_LEAK: (_advice(Action.FREE_GRAPH, "detach what is kept between steps: loss.item(), tensor.detach()"),),
    Cause.MEMORY_NEAR_LIMIT: (_advice(Action.ACCUMULATE_GRADIENTS, "halve the batch and accumulate over two"),),
    Cause.RANK_DIVERGENCE: (
        _fix("have every rank apply the same gradients: call the wrapper of DDP, and clip after the reduction"),
    ),
    Cause.STRAGGLER: (_advice(Action.INSPECT_BATCH, "give all ranks equal work, and look at the slow rank's machine"),),
    Cause.DATA_STALL: (_advice(Action.MORE_LOADER_WORKERS, "give the data loader more workers"),),
}
