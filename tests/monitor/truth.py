"""What plain float64 torch says of a training: the reference for every series. It uses nothing of Sonde.

A training tells what happens in it; everything is kept as it was, and a series is worked out when it is asked for.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

BINS = 256  # of the sums by which directions are compared: up to so many values a cosine is exact
_MACHINE = (
    "time/",
    "throughput/",
    "memory/",
    "host/",
    "device/",
    "monitor/",
    "epoch/time",
    "spectrum/lag_steps",
)
LEFT_OUT = (*_MACHINE, "flops/")
"""Of the machine, or of the watching itself; operations are compared with torch's own counter elsewhere."""
PERCENTS = (1, 5, 25, 50, 75, 95, 99)


class Expected(NamedTuple):
    """A value, and how far from it a recorded one may lie: between `low` and `high`."""

    value: float
    low: float
    high: float

    def agrees(self, recorded: float) -> bool:
        """Whether a recorded number is this one."""
        if math.isnan(self.value) or math.isnan(recorded):
            return math.isnan(self.value) and math.isnan(recorded)
        return recorded == np.float32(self.value) or self.low <= recorded <= self.high


def exactly(value: float, *, scale: float = 0.0, rel: float = 1e-5) -> Expected:
    """To 1e-5 of the value; of a difference of large numbers also to 1e-6 of those."""
    slack = rel * abs(value) + 1e-6 * abs(scale) + 1e-44 if math.isfinite(value) else 0.0
    return Expected(value, value - slack, value + slack)


def around(value: float, error: float) -> Expected:
    """To a stated error."""
    return Expected(value, value - error, value + error)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64).reshape(-1)


def norm_of(tensors: Sequence[Tensor]) -> float:
    """L2 norm of all values: NaN where one is, else infinite where one is."""
    x = torch.cat([torch.zeros(1, dtype=torch.float64), *map(_wide, tensors)])
    largest = float(x.abs().max())
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float((x / largest).square().sum().sqrt())


def statistic(name: str, tensor: Tensor) -> Expected:
    """One of a tensor's plain statistics."""
    x = _wide(tensor)
    finite = x[x.isfinite()]
    if name == "norm":
        return exactly(norm_of([x]))
    if name == "rms":
        norm = norm_of([x])
        return exactly(norm / math.sqrt(len(x)) if math.isfinite(norm) else norm)
    if name == "nonfinite":
        return exactly(float(len(x) - len(finite)))
    if name == "zeros":
        return exactly(float((x == 0).double().mean()))
    if not len(finite):
        return exactly(math.nan)
    size = float(finite.abs().max())
    if name.startswith("p"):
        return percentile(finite, int(name[1:]))
    if name == "std":
        return exactly(size * float((finite / size).std(correction=0)) if size else 0.0, scale=1e-1 * size)
    found = {"mean": finite.mean(), "min": finite.min(), "max": finite.max(), "absmax": finite.abs().max()}[name]
    return exactly(float(found), scale=size if name == "mean" else 0.0)


def percentile(finite: Tensor, percent: int) -> Expected:
    """To the stated error: a quarter of the value, and never beyond the extremes."""
    x = finite.numpy()
    near = [float(np.quantile(x, percent / 100 + e, method="inverted_cdf")) for e in (-1e-9, 1e-9)]
    tiny = 2.0**-126
    low = max(min(v - 0.25 * abs(v) for v in near) - tiny, float(np.float32(x.min())))
    high = min(max(v + 0.25 * abs(v) for v in near) + tiny, float(np.float32(x.max())))
    return Expected(near[0], low, high)


def cosine(now: Sequence[Tensor], before: Sequence[Tensor]) -> tuple[float, float]:
    """Of two directions, and the stated error of an estimate of it."""
    a, b = (torch.cat([_wide(t) for t in some]) for some in (now, before))
    scale = float(a.abs().max()), float(b.abs().max())
    if 0.0 in scale or not all(map(math.isfinite, scale)):
        return math.nan, 0.0
    a, b = a / scale[0], b / scale[1]
    error = 0.0 if all(t.numel() <= BINS for t in now) else 6 / math.sqrt(BINS)
    return float(a @ b / (a.norm() * b.norm())), error


@dataclass
class Step:
    """Everything about one step."""

    losses: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)
    before: dict[str, Tensor] = field(default_factory=dict)
    after: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Before clipping, unscaled."""
    applied: dict[str, Tensor] = field(default_factory=dict)
    clips: dict[str, list[tuple[float, float | None]]] = field(default_factory=dict)
    """By optimiser: limit, and factor where it was by norm."""
    scale: float | None = None
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    squares: dict[str, tuple[Tensor, float, float, float]] = field(default_factory=dict)
    """Adam's v, t, β₂, ε."""
    outputs: dict[str, Tensor] = field(default_factory=dict)
    attention: dict[str, tuple[Tensor, Tensor, float]] = field(default_factory=dict)
    """Query and key as they are multiplied, (batch, heads, length, width), and how exactly they are known."""
    block_gradients: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    inputs: dict[str, list[Tensor]] = field(default_factory=dict)
    """By model, of each forward."""
    labels: list[Tensor] = field(default_factory=list)
    logits: Tensor | None = None
    answers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Logits and the classes that they should have been, of each micro-batch whose loss is nothing else."""
    evaluations: dict[str, float] = field(default_factory=dict)


class Truth:
    """Follows a training.

    Args:
        models: By name, empty where there is only one.
        optimizers: By name, likewise.
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> None:
        self.models, self.optimizers = models, optimizers
        self.steps: list[Step] = [Step()]  # from 1 on
        self._losses: list[float] = []
        """Of each step."""
        self.now = Step()
        self.modules: dict[str, nn.Module] = {}
        names = {
            id(parameter): f"{model}.{name}" if model else name
            for model, net in models.items()
            for name, parameter in net.named_parameters()
        }
        self.owned = {
            optimizer: [(names[id(p)], p) for group in one.param_groups for p in group["params"]]
            for optimizer, one in optimizers.items()
        }
        for model, net in models.items():
            net.register_forward_pre_hook(self._given(model))
            for name, module in net.named_modules():
                called = ".".join(filter(None, (model, name))) or "model"
                self.modules[called] = module
                module.register_forward_pre_hook(self._enters(called))
                module.register_forward_hook(self._gives(called))

    # What the training tells.

    def _given(self, model: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: Any) -> None:
            if torch.is_grad_enabled():
                self.now.inputs.setdefault(model, []).append(args[0].detach().clone())

        return hook

    def _enters(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            if not torch.is_grad_enabled() or name in self.now.outputs or not args:
                return
            if isinstance(module, nn.MultiheadAttention):
                self.now.attention[name] = _query_and_key(module, args[0])
            if isinstance(args[0], Tensor) and args[0].requires_grad:
                self._follow(name, "input", args[0])

        return hook

    def _gives(self, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if torch.is_grad_enabled() and name not in self.now.outputs and isinstance(first, Tensor):
                self.now.outputs[name] = first.detach().clone()
                if first.requires_grad:
                    self._follow(name, "output", first)

        return hook

    def _follow(self, name: str, which: str, tensor: Tensor) -> None:
        kept = self.now.block_gradients.setdefault(name, {})

        def keep(gradient: Tensor) -> None:
            kept.setdefault(which, gradient.detach().clone())

        tensor.register_hook(keep)  # type: ignore[no-untyped-call]

    def loss(
        self,
        value: Tensor,
        parts: Mapping[str, Tensor],
        logits: Tensor | None,
        labels: Tensor | None,
        classes: Tensor | None = None,
    ) -> None:
        """Of a micro-batch; its labels where they are handed over as data, the classes that the loss was made of."""
        if logits is not None and classes is not None and not parts:
            self.now.answers.append((logits.detach().clone(), classes))
        self.now.losses.append(float(value.detach()))
        for name, part in parts.items():
            self.now.parts.setdefault(name, []).append(float(part.detach()))
        if logits is not None and self.now.logits is None:
            self.now.logits = logits.detach().clone()
        if labels is not None:
            self.now.labels.append(labels.detach().clone())

    def accumulated(self, scale: float = 1.0) -> None:
        """The gradients are whole, multiplied by this."""
        for name, parameter in self.parameters:
            if parameter.grad is not None:
                self.now.gradients[name] = parameter.grad.detach().double() / scale

    def clip_by_norm(self, optimizer: str, limit: float) -> None:
        """The gradients of an optimiser are about to be clipped by their norm."""
        norm = torch.nn.utils.get_total_norm([p.grad for _, p in self.owned[optimizer] if p.grad is not None])
        factor = float((limit / (norm + 1e-6)).clamp(max=1.0))  # in the gradients' own precision
        self.clipped(optimizer, limit, factor if math.isfinite(float(norm)) else math.nan)

    def clipped(self, optimizer: str, limit: float, factor: float | None) -> None:
        """One clip was made of all gradients of an optimiser."""
        self.now.clips.setdefault(optimizer, []).append((limit, factor))

    def entered(self, optimizer: str) -> None:
        """An optimiser is about to make its step."""
        for name, parameter in self.owned[optimizer]:
            self.now.before[name] = parameter.detach().clone()
            if parameter.grad is not None:
                self.now.applied[name] = parameter.grad.detach().clone()
        groups = self.optimizers[optimizer].param_groups
        self.now.groups[optimizer] = [
            {key: value for key, value in group.items() if key != "params"} for group in groups
        ]

    def stepped(self) -> None:
        """They have made them: the step is over."""
        for name, parameter in self.parameters:
            self.now.after[name] = parameter.detach().clone()
        for optimizer in self.optimizers.values():
            names = {id(p): n for n, p in self.parameters}
            for group in optimizer.param_groups:
                for p in group["params"]:
                    state = optimizer.state.get(p, {})
                    if "exp_avg_sq" in state and p.grad is not None:
                        v, t = state["exp_avg_sq"].detach().clone(), float(state["step"])
                        self.now.squares[names[id(p)]] = v, t, group["betas"][1], group["eps"]
        self._losses.append(float(np.mean(self.now.losses)))
        self.steps.append(self.now)
        self.now = Step()

    def skipped(self) -> None:
        """A gradient scaler withheld the step: nothing of the iteration counts."""
        self.now = Step()

    @property
    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Of all optimisers, with their names."""
        return [pair for some in self.owned.values() for pair in some]

    # What is asked.

    def expected(self, tag: str, at: int, recorded: Mapping[str, Sequence[int]], nth: int = 0) -> Expected:
        """What a series must have at a step.

        Args:
            tag: The series.
            at: The step.
            recorded: The steps at which each series was recorded.
            nth: Which of several values of that step.

        Raises:
            KeyError: nothing is known of such a series at this step.
        """
        path, _, where = tag.partition("@")
        family, _, quantity = path.partition("/")
        step = self.steps[at]
        if path == "grad/flow":
            return self._flow(where, step)
        if family in ("grad", "weight", "update"):
            return self._of_parameters(family, quantity, where, at, recorded)
        if family == "loss" and quantity != "entropy":
            return self._of_loss(quantity, where, at, nth)
        if family == "evaluation":
            return self._evaluation(quantity, at)
        if family == "val":
            return exactly(step.evaluations[quantity])
        if family in ("lr", "optimizer"):
            return self._setting(quantity, where, step)
        if family == "clip":
            return self._clip(quantity, where, at)
        if family == "phase":
            return self._phase(quantity, at)
        if path == "batch/effective":
            return _batch("samples", step.inputs[next(iter(self.models))])
        if path == "amp/scale" and step.scale is not None:
            return exactly(step.scale)
        if family == "adam":
            return _second_moment(quantity, step.applied[where], *step.squares[where])
        if family == "act":
            return self._activation(quantity, where, at, recorded)
        if family in ("gain", "gradient_monitor"):
            return self._gain(path, where, at, recorded)
        if family == "attn":
            return _attention(quantity, *step.attention[where])
        if family == "batch":
            return _batch(quantity, step.inputs[where if where in self.models else where.rpartition(".")[0]])
        if family == "label":
            return _label(quantity, step.labels)
        if family in ("logits", "loss") and step.logits is not None:
            return _logits(quantity, step.logits)
        if family == "spectrum":
            return _spectrum(quantity, step.after[where])
        raise KeyError(tag)

    def _names(self, where: str) -> list[str]:
        """The parameters of an optimiser by name; of all where there is only one."""
        return [name for name, _ in self.owned[where]]

    def _of_parameters(
        self, family: str, quantity: str, where: str, at: int, recorded: Mapping[str, Sequence[int]]
    ) -> Expected:
        step, earlier = self.steps[at], self.steps[at - 1]
        is_whole = where in self.owned
        names = self._names(where) if is_whole else [where]
        update = {n: step.after[n].double() - step.before[n].double() for n in names}
        if quantity == "cosine":
            return self._cosine(family, names, at)
        if quantity in ("trajectory_dimension", "trajectory_share"):
            return self._trajectory(quantity, names, at, recorded)
        if quantity == "growth":
            return self._growth(names, at, recorded)
        if quantity in ("norm_ema", "norm_ratio"):
            return self._norm_course(quantity, names, at)
        if quantity == "ratio":
            return exactly(norm_of(list(update.values())) / norm_of([step.before[n] for n in names]))
        if quantity == "effective_lr":
            return exactly(norm_of(list(update.values())) / norm_of([step.applied[n] for n in names]))
        assert earlier is not None
        of_family = {"grad": step.gradients, "weight": step.after, "update": update}[family]
        if not is_whole:
            return statistic(quantity, of_family[where])
        tensors = [of_family[n] for n in names if n in of_family]
        if quantity == "norm":
            return exactly(norm_of(tensors))
        if quantity == "norm_applied":
            return exactly(norm_of([step.applied[n] for n in names if n in step.applied]))
        together = torch.cat([t.reshape(-1).double() for t in tensors])
        if quantity == "norm_finite":
            return exactly(norm_of([together[together.isfinite()]]))
        if quantity == "nonfinite":
            return exactly(float((~together.isfinite()).sum()))
        raise KeyError(quantity)

    def _cosine(self, family: str, names: Sequence[str], at: int) -> Expected:
        step, earlier = self.steps[at], self.steps[at - 1]
        if family == "grad":
            names = [n for n in names if n in step.gradients]
            value, error = cosine([step.gradients[n] for n in names], [earlier.gradients[n] for n in names])
            return around(value, error + 2e-5)
        now, before = ([s.after[n].double() - s.before[n].double() for n in names] for s in (step, earlier))
        value, error = cosine(now, before)
        # Changes are told from sums of weights in float32.
        smallest = min(norm_of(now), norm_of(before))
        rounding = 2e-6 * norm_of([step.after[n] for n in names]) / smallest if smallest else 1.0
        return around(value, error + rounding + 2e-5)

    def _growth(self, names: Sequence[str], at: int, recorded: Mapping[str, Sequence[int]]) -> Expected:
        """Each against the first time that it was measured and not zero."""
        first = []
        for name in names:
            measured = [self.steps[step].after[name] for step in recorded[f"weight/norm@{name}"] if step <= at]
            first += [weight for weight in measured if 0 < norm_of([weight]) < math.inf][:1]
        start = norm_of(first)
        return exactly(norm_of([self.steps[at].after[n] for n in names]) / start if start else math.nan)

    def _norm_course(self, quantity: str, names: Sequence[str], at: int) -> Expected:
        norms = [self._gradient_norm(tuple(names), step) for step in range(1, at + 1)]
        if quantity == "norm_ema":
            return exactly(_average(norms, 0.99))
        return exactly(norms[-1] / _average(norms[:-1], 0.99))

    def _flow(self, where: str, step: Step) -> Expected:
        """Of the gradients of a block against those of the next that has some."""
        model = where.partition(".")[0] if where.partition(".")[0] in self.models else ""
        norms = {}
        for block in _blocks(self.models[model], model):
            inside = [gradient for name, gradient in step.gradients.items() if name.startswith(f"{block}.")]
            norms.update({block: norm_of(inside)} if inside else {})
        following = list(norms)[list(norms).index(where) + 1]
        ratio = norms[where] / norms[following] if norms[following] else math.nan
        return exactly(ratio)

    def _phase(self, quantity: str, at: int) -> Expected:
        """Of trainings whose rate is constant, or falls from the second step on."""
        groups = [next(iter(step.groups.values()))[0]["lr"] for step in self.steps[1 : at + 1]]
        is_constant = len(set(groups)) == 1
        start = 1 if is_constant else 2
        if quantity.startswith("loss_"):
            return _moments(quantity.removeprefix("loss_"), self._losses[start - 1 : at])
        return exactly(float({"": 2 if is_constant else 3, "start": start, "steps": at - start + 1}[quantity]))

    def _trajectory(
        self, quantity: str, names: Sequence[str], at: int, recorded: Mapping[str, Sequence[int]]
    ) -> Expected:
        num = 64
        # Looked at where the gradients of all are, once for each turn of the first, whose percentiles are taken then.
        looks, turns = (recorded[f"grad/{what}@{names[0]}"] for what in ("norm", "p50"))
        looked = {next((look for look in looks if look >= turn), 0) for turn in turns} - {0}
        steps = [self.steps[step] for step in sorted(looked) if step <= at][-num:]
        rows = torch.stack([torch.cat([_wide(s.gradients[n]) for n in names]) for s in steps])
        rows = rows / rows.norm(dim=1, keepdim=True)
        gram = rows @ rows.T
        if quantity == "trajectory_share":
            value = float(torch.linalg.eigvalsh(gram)[-1]) / num
            return around(value, 0.25 * value + 0.02)
        value = num**2 / float(gram.square().sum())
        return Expected(value, 0.7 / (1 / value + (1 - 1 / num) / BINS), 1.3 * value)

    def _of_loss(self, quantity: str, where: str, at: int, nth: int) -> Expected:
        step = self.steps[at]
        if quantity == "micro":
            return exactly(step.losses[nth])
        if quantity == "num_micro":
            return exactly(float(len(step.losses)))
        if quantity == "part":
            return exactly(step.parts[where][-1])
        if quantity in ("trivial", "relative", "zeros"):
            return _guessing(quantity, step.answers)
        losses = np.array(self._losses[:at])
        if not quantity:
            return exactly(float(losses[-1]))
        x = losses[np.isfinite(losses)]
        if not len(x):
            return exactly(math.nan)
        if quantity == "score":
            earlier = np.array([loss for loss in self._losses[: at - 1] if math.isfinite(loss)])
            weights = _weights(len(earlier), 0.99)
            second = float(weights @ (earlier - weights @ earlier) ** 2) / (1 - float((weights**2).sum()))
            return exactly(float(losses[-1] - earlier[-1]) / math.sqrt(second), rel=1e-4)
        weights = _weights(len(x), 0.99)
        mean = float(weights @ x)
        if quantity == "ema":
            return exactly(mean)
        second, third, fourth = (float(weights @ (x - mean) ** k) for k in (2, 3, 4))
        size = float(np.abs(x).max())
        if len(x) < 2:
            return exactly(math.nan)
        if quantity == "variance":
            return exactly(second / (1 - float((weights**2).sum())), scale=1e-9 * size**2)
        if second <= 1e-24 * size**2:
            return Expected(math.nan, -math.inf, math.inf)
        value = third / second**1.5 if quantity == "skewness" else fourth / second**2
        return exactly(value, scale=1.0)

    def _evaluation(self, quantity: str, at: int) -> Expected:
        evaluated = [i for i, step in enumerate(self.steps[: at + 1]) if step.evaluations]
        losses = [self.steps[i].evaluations["loss"] for i in evaluated]
        improvements = [(old - new) / abs(old) for old, new in itertools.pairwise(losses)]
        if quantity == "improvement_rate":
            return exactly(improvements[-1])
        if quantity == "plateau_detected":
            return exactly(float(len(improvements) >= 3 and all(abs(one) < 0.01 for one in improvements[-3:])))
        since = evaluated[-2] if len(evaluated) > 1 else 0
        trained = float(np.mean(self._losses[since:at]))
        return exactly((losses[-1] - trained) / max(trained, 0.1 * losses[0]))

    def _setting(self, quantity: str, where: str, step: Step) -> Expected:
        optimizer, _, number = where.rpartition(".") if where not in step.groups else (where, "", "0")
        if where.isdecimal():
            optimizer, number = "", where
        group = step.groups[optimizer][int(number or 0)]
        if not quantity:
            return exactly(float(group["lr"]))
        if quantity.startswith("beta"):
            return exactly(float(group["betas"][int(quantity[-1]) - 1]))
        return exactly(float(group[{"epsilon": "eps"}.get(quantity, quantity)]))

    def _clip(self, quantity: str, optimizer: str, at: int) -> Expected:
        if quantity in ("rate", "strength"):
            factors = [self._shortening(optimizer, step) for step in range(max(1, at - 99), at + 1)]
            known = [factor for factor in factors if not math.isnan(factor)]
            cuts = [1 - factor for factor in known if factor < 1]
            return around(len(cuts) / len(known) if quantity == "rate" else float(np.mean(cuts)), 1e-6)
        clips = self.steps[at].clips[optimizer]
        if quantity == "limit":
            return exactly(clips[-1][0])
        factors = [factor for _, factor in clips if factor is not None]
        return exactly(math.nan if any(map(math.isnan, factors)) else min(factors))

    @functools.cache  # noqa: B019  # asked of every step by each that comes after it; a truth lives for one test
    def _gradient_norm(self, names: tuple[str, ...], at: int) -> float:
        gradients = self.steps[at].gradients
        return norm_of([gradients[name] for name in names if name in gradients])

    @functools.cache  # noqa: B019
    def _shortening(self, optimizer: str, at: int) -> float:
        """By what factor clips have made the gradients of an optimiser shorter."""
        step = self.steps[at]
        clips = step.clips[optimizer]
        factors = [factor for _, factor in clips if factor is not None]
        if len(factors) < len(clips):
            names = [name for name in self._names(optimizer) if name in step.gradients]
            before, after = (norm_of([some[name] for name in names]) for some in (step.gradients, step.applied))
            factor = after / before if 0 < before < math.inf else math.nan
            factors.append(1.0 if factor > 1 - 1e-6 else factor)
        return math.nan if any(map(math.isnan, factors)) else min(factors)

    def _activation(self, quantity: str, where: str, at: int, recorded: Mapping[str, Sequence[int]]) -> Expected:
        x, module = self.steps[at].outputs[where], self.modules[where]
        wide = _wide(x)
        largest = float(wide[wide.isfinite()].abs().max()) if wide.isfinite().any() else 0.0
        if quantity == "headroom":
            return exactly(math.log2(torch.finfo(x.dtype).max / largest))
        if quantity == "underflow":
            nonzero = wide[wide.isfinite() & (wide.abs() >= 2.0**-128)]
            return exactly(float((nonzero.abs() < torch.finfo(x.dtype).tiny).double().mean()))
        if quantity == "positive":
            return exactly(float((wide > 0).double().mean()))
        if quantity == "saturated":
            assert isinstance(module, nn.Tanh)
            return exactly(float((wide.abs() >= math.sqrt(0.98)).double().mean()))
        if quantity == "constant":
            units = _units(x)
            return exactly(float((units.amax(1) == units.amin(1)).double().mean()))
        if quantity == "dead":
            looks = [step for step in recorded[f"act/mean@{where}"] if step <= at][-8:]
            silent = [self._silent(module, _units(self.steps[step].outputs[where])) for step in looks]
            return exactly(float(torch.stack(silent).all(0).double().mean()))
        return statistic(quantity, x)

    def _silent(self, module: nn.Module, units: Tensor) -> Tensor:
        if isinstance(module, nn.ReLU | nn.GELU):
            return units.amax(1) <= 0
        return (units.amax(1) == 0) & (units.amin(1) == 0)

    def _gain(self, path: str, where: str, at: int, recorded: Mapping[str, Sequence[int]]) -> Expected:
        if path == "gain/block":
            return exactly(self._block_gain(where, at))
        if path.startswith("gradient_monitor/"):
            checks = [self._mean_gain(step, recorded) for step in recorded["gain/mean"] if step <= at][-5:]
            quantity = path.partition("/")[2]
            if quantity == "mean_gain":
                return exactly(checks[-1])
            return exactly(
                float(np.mean(checks)) if quantity == "mean_gain_ma" else checks[-1] / checks[0] - 1, scale=1
            )
        gains = self._gains(at, recorded)
        values = {
            "gain/mean": math.exp(float(np.mean(np.log(gains)))),
            "gain/mean_arithmetic": float(np.mean(gains)),
            "gain/amplification": math.exp(float(np.sum(np.log(gains)))),
        }
        return exactly(values[path])

    def _block_gain(self, where: str, at: int) -> float:
        found = self.steps[at].block_gradients[where]
        ends = norm_of([found["input"]]), norm_of([found["output"]])
        return ends[0] / ends[1] if all(map(math.isfinite, ends)) else math.nan

    def _gains(self, at: int, recorded: Mapping[str, Sequence[int]]) -> list[float]:
        tags = [tag for tag in recorded if tag.startswith("gain/block@") and at in recorded[tag]]
        return [self._block_gain(tag.partition("@")[2], at) for tag in tags]

    def _mean_gain(self, at: int, recorded: Mapping[str, Sequence[int]]) -> float:
        return math.exp(float(np.mean(np.log(self._gains(at, recorded)))))


def _weights(num: int, decay: float) -> Any:
    """Of the values of a bias-corrected moving average, the newest last."""
    weights = decay ** np.arange(num)[::-1]
    return weights / weights.sum()


def _average(values: Sequence[float], decay: float) -> float:
    finite = np.array([value for value in values if math.isfinite(value)])
    return float(_weights(len(finite), decay) @ finite) if len(finite) else math.nan


def _moments(quantity: str, losses: Sequence[float]) -> Expected:
    """Of losses that count alike."""
    x = np.array([loss for loss in losses if math.isfinite(loss)])
    if quantity == "mean":
        return exactly(float(x.mean()), scale=1e-1 * float(np.abs(x).max()))
    if quantity == "variance":
        return exactly(float(x.var(ddof=1)) if len(x) > 1 else math.nan)
    far = x - x.mean()
    if not far.any():
        return exactly(math.nan)
    power = {"skewness": 3, "kurtosis": 4}[quantity]
    return exactly(float((far**power).mean() / (far**2).mean() ** (power / 2)), scale=1.0)


def _blocks(model: nn.Module, prefix: str) -> list[str]:
    """What follows each other in depth: blocks of an encoder where there are several, else modules with a matrix."""
    layers = getattr(model, "blocks", [])
    if len(layers) > 1:
        return [f"blocks.{place}" for place in range(len(layers))]
    inside: set[int] = set()
    found = []
    for name, module in model.named_modules(prefix=prefix):
        if id(module) in inside:
            continue
        if isinstance(module, nn.MultiheadAttention):
            inside.update(map(id, module.modules()))
        if any(parameter.dim() > 1 for parameter in module.parameters(recurse=False)):
            found.append(name)
    return found


def _units(x: Tensor) -> Tensor:
    """(units, values of each): channels of images, the last dimension of everything else."""
    return x.detach().double().movedim(1 if x.dim() >= 4 else -1, 0).flatten(1)


def _second_moment(quantity: str, gradient: Tensor, v: Tensor, t: float, beta2: float, epsilon: float) -> Expected:
    wide, g = _wide(v), _wide(gradient)
    correction = 1 - beta2**t
    if quantity == "zero_share":
        return exactly(float((wide == 0).double().mean()))
    if quantity == "v_ratio":
        mean = float(wide.mean())
        square = float(g.square().mean())
        if not (math.isfinite(mean) and math.isfinite(square)):
            return exactly(math.nan)
        return exactly(square * correction / mean if mean else math.inf)
    root = (wide[wide.isfinite()] / correction).sqrt()
    if not len(root):
        return exactly(math.nan)
    low, high = (float((root < part * epsilon).double().mean()) for part in (0.87, 1.13))
    return Expected(low, low - 1e-6, high + 1e-6)


def _query_and_key(module: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor, float]:
    """As the module itself computes them, in the precision in which it does."""
    with torch.no_grad():
        projected = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias)
    by_heads = projected.view(*projected.shape[:2], 3, module.num_heads, -1).transpose(1, 3)
    query, key, _ = by_heads.unbind(2)
    return query.double(), key.double(), 1e-5 if projected.dtype is torch.float32 else 1e-2


def _attention(quantity: str, query: Tensor, key: Tensor, error: float) -> Expected:
    z = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    entropy = torch.special.entr(z.softmax(-1)).sum(-1)
    values = {
        "logit_max": z.max(),
        "entropy": entropy.mean(),
        "entropy_min": entropy.mean((0, 2)).min(),
        "entropy_relative": (entropy / math.log(z.shape[-1])).mean(),
    }
    value = float(values[quantity])
    return around(value, error * (1 + abs(value)))


def _batch(quantity: str, inputs: Sequence[Tensor]) -> Expected:
    first = inputs[0]
    is_text = not first.is_floating_point() and first.dim() == 2
    if quantity in ("size", "sequence"):
        return exactly(float(first.shape[0 if quantity == "size" else 1]))
    if quantity in ("samples", "tokens"):
        return exactly(float(sum(x.shape[0] if quantity == "samples" else x.numel() for x in inputs)))
    if quantity in ("min", "max") and is_text:
        return exactly(float(getattr(torch.cat([x.reshape(-1) for x in inputs]), quantity)()))
    if quantity in ("scale_spread", "feature_std_max", "feature_mean_absmax"):
        features = first.double().movedim(-1 if first.dim() <= 3 else 1, 0).flatten(1)
        std, mean = features.std(1, correction=0), features.mean(1)
        if quantity == "feature_mean_absmax":
            return exactly(float(mean.abs().max()), scale=float(features.abs().max()))
        return exactly(float(std.max() / std[std > 0].min()) if quantity == "scale_spread" else float(std.max()))
    if quantity in ("nonfinite", "absmax"):
        return statistic(quantity, torch.cat([x.reshape(-1) for x in inputs]))
    return statistic(quantity, first)


def _label(quantity: str, labels: Sequence[Tensor]) -> Expected:
    if labels[0].is_floating_point():
        return statistic(quantity, torch.cat(list(labels)) if quantity in ("absmax", "nonfinite") else labels[0])
    counts = torch.bincount(labels[0].reshape(-1)).double()
    shares = counts[counts > 0] / counts.sum()
    values = {"num_distinct": len(shares), "share_max": shares.max(), "entropy": torch.special.entr(shares).sum()}
    return exactly(float(values[quantity]))


def _guessing(quantity: str, answers: Sequence[tuple[Tensor, Tensor]]) -> Expected:
    """What knowing nothing but the shares of the classes costs, and the cross-entropy over that."""
    trivial, costs = [], []
    for logits, classes in answers:
        shares = np.unique(classes.numpy(), return_counts=True)[1] / classes.numel()
        entropy = float(-(shares * np.log(shares)).sum()) + (len(shares) - 1) / (2 * classes.numel())
        trivial.append(min(entropy, math.log(logits.shape[1])))
        costs.append(float(torch.nn.functional.cross_entropy(logits.double(), classes)))
    guess = float(np.mean(trivial))
    if quantity == "zeros":
        return exactly(float(np.mean([math.log(logits.shape[1]) for logits, _ in answers])))
    return exactly(guess) if quantity == "trivial" else exactly(float(np.mean(costs)) / guess, rel=1e-4)


def _logits(quantity: str, logits: Tensor) -> Expected:
    z = logits.double().movedim(1, -1).flatten(0, -2)
    log_z = z.logsumexp(1)
    bounded = z.masked_fill(z == -math.inf, 0.0)
    values = {
        "norm": bounded.norm(dim=1).mean(),
        "absmax": bounded.abs().max(),
        "log_z": log_z.mean(),
        "log_z_absmax": log_z.abs().max(),
        "entropy": torch.special.entr(z.softmax(1)).sum(1).mean(),
    }
    largest = float(bounded.abs().max())
    return exactly(float(values[quantity]), scale=largest if math.isfinite(largest) else 0.0)


def _spectrum(quantity: str, weight: Tensor) -> Expected:
    matrix = weight.detach().double().flatten(1)
    if not matrix.isfinite().all():
        return exactly(math.nan)
    values = torch.linalg.svdvals(matrix)
    largest, smallest = float(values[0]), float(values[-1])
    if quantity in ("smallest", "condition") and smallest < 1e-4 * largest:
        slack = 1e-7 * largest + 1e-2 * smallest
        if quantity == "smallest":
            return around(smallest, slack)
        return Expected(largest / smallest if smallest else math.inf, 0.9e4, math.inf)
    shares = values[values > 0] / values.sum()
    found = {
        "largest": largest,
        "smallest": smallest,
        "condition": largest / smallest,
        "stable_rank": float(values.square().sum()) / largest**2,
        "nuclear": float(values.sum()),
        "effective_rank": math.exp(float(torch.special.entr(shares).sum())),
    }
    return exactly(found[quantity])
