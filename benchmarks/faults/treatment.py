"""Remedies carried out on a training from its first step on, without a change to its code.

A treatment sits where `sonde.watch` sits: it gets the model and the optimiser as the user made them. Rates, clipping,
decay and the skipping of steps are done around `optimizer.step`; normalisation, dropout and the z-loss by hooks on the
modules; qk-norm in the place of torch's attention; what concerns batches, number formats or the inside of a model by a
switch that the training has (`Session.knobs`). Nothing here knows what is wrong with the training.
"""

import functools
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from benchmarks.faults.seat import Seat
from torch import Tensor, nn
from torch.nn import functional

Rate = Callable[[float, int], float]
"""The learning rate that is used, of the one that the training set and the number of steps before."""

_ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CLIP, ATTEND = nn.utils.clip_grad_norm_, functional.scaled_dot_product_attention
_NUM_BEFORE = 20
"""Steps before an outlier can be told."""
_BAND = 6.0
"""Robust deviations of the logarithm of the gradient's norm ([D2])."""


class Treatment:
    """A remedy, to be given to a training in the place of `sonde.watch`.

    Args:
        action: Of the vocabulary of `sonde.core.remedies`.
        args: The values that came with it.
        num_steps: How long the training takes, for schedules that end with it.
    """

    def __init__(self, action: str, args: Mapping[str, Any], *, num_steps: int) -> None:
        self.action, self.args, self.num_steps = action, args, num_steps

    def __call__(self, model: Any, optimizer: Any, **settings: Any) -> Seat:
        """Treat a training that is about to begin."""
        models = list(model.values()) if isinstance(model, dict) else [model]
        optimizers = list(optimizer.values()) if isinstance(optimizer, dict) else [optimizer]
        give = ON_MODELS.get(self.action)
        if give is not None:
            for one in models:
                give(one, self.args)
        for one in optimizers:
            _around_steps(one, self, models)
        return Seat()

    def knobs(self) -> dict[str, float]:
        """What the training itself has to do."""
        knob = _SWITCHES.get(self.action)
        return {knob: float(self.args.get("factor", 1.0))} if knob else {}

    @contextmanager
    def functions(self) -> Iterator[None]:
        """Have what the training itself calls done as the treatment says: clipping, where there is one; attention."""
        if self.action == "clip":

            def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Tensor:
                return CLIP(parameters, self.args["max_norm"], *args, **kwargs)

            nn.utils.clip_grad_norm_ = clip  # type: ignore[assignment]
        elif self.action == "add-qk-norm":
            functional.scaled_dot_product_attention = _attend_normalised
        try:
            yield
        finally:
            nn.utils.clip_grad_norm_, functional.scaled_dot_product_attention = CLIP, ATTEND

    def rate(self) -> Rate | None:
        """What becomes of the learning rate, None where nothing does."""
        make = RATES.get(self.action)
        return make(self.args, self.num_steps) if make is not None else None


def _around_steps(optimizer: torch.optim.Optimizer, treatment: Treatment, models: Sequence[nn.Module]) -> None:
    action, args = treatment.action, treatment.args
    for group in optimizer.param_groups:
        if action == "add-weight-decay":
            group["weight_decay"] = args["weight_decay"]
        elif action == "lower-weight-decay":
            group["weight_decay"] *= args["factor"]
        elif action == "fix-loop" and "eps" in args:
            group["eps"] = args["eps"]
    named = {id(parameter) for model in models for name, parameter in model.named_parameters() if name in _where(args)}
    rates = [
        treatment.rate() if not named or any(id(parameter) in named for parameter in group["params"]) else None
        for group in optimizer.param_groups
    ]
    outliers = Outliers(models) if action == "skip-batch" else None
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    plain, counter = optimizer.step, count()

    @functools.wraps(plain)
    def step(*args_: Any, **kwargs: Any) -> Any:
        num = next(counter)
        if action == "clip":
            CLIP(parameters, args["max_norm"])
        if outliers is not None and outliers.has_come(parameters):
            return None
        was = [group["lr"] for group in optimizer.param_groups]
        for group, lr, change in zip(optimizer.param_groups, was, rates, strict=True):
            group["lr"] = change(lr, num) if change is not None else lr
        result = plain(*args_, **kwargs)
        for group, lr in zip(optimizer.param_groups, was, strict=True):
            group["lr"] = lr
        return result

    optimizer.step = step  # type: ignore[method-assign]


def _attend_normalised(query: Tensor, key: Tensor, *args: Any, scale: float | None = None, **kwargs: Any) -> Tensor:
    """Attention of normalised queries and keys, with 1/√d in the place of the scale that was asked for."""
    query, key = (functional.layer_norm(one, one.shape[-1:]) for one in (query, key))
    return ATTEND(query, key, *args, **kwargs)


def _where(args: Mapping[str, Any]) -> Sequence[str]:
    """The parameters that a remedy is for, none where it is for all."""
    return args.get("parameters", ())


def _scaled(args: Mapping[str, Any], num_steps: int) -> Rate:
    return lambda lr, num: lr * args["factor"]


def _warmed_up(args: Mapping[str, Any], num_steps: int) -> Rate:
    return lambda lr, num: lr * min(1.0, (num + 1) / args["steps"])


def _cosine(num: int, num_steps: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(1.0, num / num_steps)))


def _decayed(args: Mapping[str, Any], num_steps: int) -> Rate:
    return lambda lr, num: lr * (0.1 + 0.9 * _cosine(num, num_steps))


def _slower(args: Mapping[str, Any], num_steps: int) -> Rate:
    """Never below a cosine from the largest rate so far to the end of the training."""
    peak = 0.0

    def rate(lr: float, num: int) -> float:
        nonlocal peak
        peak = max(peak, lr)
        return max(lr, peak * _cosine(num, num_steps))

    return rate


def _smoother(args: Mapping[str, Any], num_steps: int) -> Rate:
    """The median of the last rates instead of one above twice that: a warm-up is slower, a jump is not."""
    rates: deque[float] = deque(maxlen=50)

    def rate(lr: float, num: int) -> float:
        usual = statistics.median(rates) if rates else lr
        rates.append(lr if lr <= 2 * usual else usual)
        return rates[-1]

    return rate


RATES: Mapping[str, Callable[[Mapping[str, Any], int], Rate]] = {
    "lower-lr": _scaled,
    "raise-lr": _scaled,
    "lengthen-warmup": _warmed_up,
    "decay-lr": _decayed,
    "slower-schedule": _slower,
    "smoother-schedule": _smoother,
}


class Outliers:
    """Tells steps that are better not taken: an input that is not finite, a gradient that leaves its own band.

    An input that is not finite is made so (by zeros) before it reaches buffers such as those of batch norm.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._logs: deque[float] = deque(maxlen=128)
        self._is_bad = False
        for model in models:
            model.register_forward_pre_hook(self._look)

    def _look(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if not module.training:
            return inputs
        cleaned = []
        for value in inputs:
            if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
                self._is_bad = True
                value = torch.where(value.isfinite(), value, 0.0)
            cleaned.append(value)
        return tuple(cleaned)

    def has_come(self, parameters: Sequence[Tensor]) -> bool:
        """Whether the step that is about to be taken is one."""
        was_bad, self._is_bad = self._is_bad, False
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm()) if gradients else 0.0
        if was_bad or not math.isfinite(norm):
            return True
        log = math.log(max(norm, 1e-30))
        if len(self._logs) >= _NUM_BEFORE:
            middle = statistics.median(self._logs)
            scale = 1.4826 * statistics.median(abs(one - middle) for one in self._logs)
            if log - middle > _BAND * max(scale, 0.05):
                return True
        self._logs.append(log)
        return False


def _layers(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d)]


def _reinitialise(model: nn.Module, args: Mapping[str, Any]) -> None:
    """Orthogonal weights; with the first batch, layer after layer, outputs of mean 0 and the deviation asked for.

    References:
        Mishkin and Matas, All you need is a good init, ICLR 2016, algorithm 1 (the scale).
        Krähenbühl et al., Data-dependent initializations of convolutional neural networks, ICLR 2016 (the mean).
    """
    for name, parameter in model.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind.startswith("bias"):
            nn.init.zeros_(parameter)
        elif kind.startswith("weight_hh"):
            nn.init.orthogonal_(parameter)
        elif kind.startswith("weight_ih"):
            nn.init.xavier_uniform_(parameter)
    layers = _layers(model)
    for layer in layers:
        nn.init.orthogonal_(layer.get_parameter("weight"))

    def scale(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        channels = output if isinstance(module, nn.Linear) else output.movedim(1, -1)
        over = list(range(channels.dim() - 1))
        mean, factor = channels.mean(over), args["std"] / channels.var(over).mean().sqrt()
        module.get_parameter("weight").mul_(factor)
        if module.bias is not None:
            module.get_parameter("bias").copy_(-mean * factor)
            channels = channels - mean
        channels = channels * factor
        return channels if isinstance(module, nn.Linear) else channels.movedim(-1, 1)

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        looking.remove()
        hooks = [layer.register_forward_hook(scale) for layer in layers]
        with torch.no_grad():
            module(*inputs)
        for hook in hooks:
            hook.remove()

    looking = model.register_forward_pre_hook(look)


def _add_norms(model: nn.Module, args: Mapping[str, Any]) -> None:
    """LayerNorm, without weights, behind every hidden layer, or in the place of batch norm where there is one."""
    batch_norms = [module for module in model.modules() if isinstance(module, _BATCH_NORMS)]
    for norm in batch_norms:
        norm.register_forward_hook(_normalised_instead)
    if not batch_norms:
        for module in _layers(model)[:-1]:
            module.register_forward_hook(_normalised)


def _over_features(x: Tensor) -> Tensor:
    # Channels and places together for feature maps, as GroupNorm with one group does.
    return functional.layer_norm(x, x.shape[1:] if x.dim() == 4 else x.shape[-1:])


def _normalised(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return _over_features(output)


def _normalised_instead(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    shape = [1, -1] + [1] * (output.dim() - 2)
    weight, bias = module.get_parameter("weight"), module.get_parameter("bias")
    return _over_features(inputs[0]) * weight.view(shape) + bias.view(shape)


def _add_dropout(model: nn.Module, args: Mapping[str, Any]) -> None:
    for module in model.modules():
        if isinstance(module, _ACTIVATIONS):
            module.register_forward_hook(lambda module, _, out: functional.dropout(out, args["p"], module.training))


def _normalise_inputs(model: nn.Module, args: Mapping[str, Any]) -> None:
    """By the statistics of the first batch, feature by feature (channel by channel for pictures)."""
    seen: list[tuple[Tensor, Tensor]] = []

    def normalise(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = inputs
        if not seen:
            over = [0, 2, 3] if x.dim() == 4 else list(range(x.dim() - 1))
            seen.append((x.mean(over, keepdim=True), x.std(over, keepdim=True).clamp_min(1e-12)))
        mean, std = seen[0]
        return ((x - mean) / std, *others)

    model.register_forward_pre_hook(normalise)


def _add_z_loss(model: nn.Module, args: Mapping[str, Any]) -> None:
    """The gradient of weight · mean(log² Z), added to that of the logits."""

    def add(module: nn.Module, inputs: Any, logits: Tensor) -> None:
        if logits.requires_grad:
            log_z, shares = logits.detach().logsumexp(-1, keepdim=True), logits.detach().softmax(-1)
            logits.register_hook(lambda gradient: gradient + args["weight"] * 2 * log_z * shares / log_z.numel())

    model.register_forward_hook(add)


ON_MODELS: Mapping[str, Callable[[nn.Module, Mapping[str, Any]], None]] = {
    "reinitialise": _reinitialise,
    "add-layernorm": _add_norms,
    "add-dropout": _add_dropout,
    "normalise-inputs": _normalise_inputs,
    "add-z-loss": _add_z_loss,
}

_SWITCHES = {
    "use-bf16": "use-bf16",
    "use-fp32": "use-fp32",
    "use-loss-scaling": "use-loss-scaling",
    "early-stop": "early-stop",
    "bigger-batch": "batch_factor",
}
"""Actions that cannot be done from outside, and the knob of the session for them."""

_AROUND = frozenset({"clip", "skip-batch", "add-weight-decay", "lower-weight-decay", "add-qk-norm"})
"""Those that are done around the optimiser's steps, or in the place of torch's functions."""


def can_be_given(action: str, args: Mapping[str, Any] | None = None) -> bool:
    """Whether it can be carried out without a change to the code.

    Example:
        >>> can_be_given("clip"), can_be_given("fix-loop"), can_be_given("fix-loop", {"eps": 1e-12})
        (True, False, True)
    """
    return action in {*RATES, *ON_MODELS, *_AROUND, *_SWITCHES} or (action == "fix-loop" and "eps" in (args or {}))
