"""What a kind of training asks for while it is set up; a fault is put in here, so that no kind knows of any."""

import itertools
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from benchmarks.faults.wild.faults import FAULTS
from torch import Tensor, nn
from torch.optim import Optimizer


class Monitor(Protocol):
    """What of `sonde.watch` the kinds use."""

    def step(self, loss: Any = None) -> None: ...
    def evaluate(self, *, loss: Any = None, metrics: Any = None) -> None: ...
    def epoch(self) -> None: ...
    def close(self) -> None: ...


class Unwatched:
    """A monitor that does nothing."""

    def step(self, loss: Any = None) -> None: ...
    def evaluate(self, *, loss: Any = None, metrics: Any = None) -> None: ...
    def epoch(self) -> None: ...
    def close(self) -> None: ...


class Knobs:
    """The knobs of one training.

    Args:
        seed: Of data, weights and batches.
        steps: How many steps are to be trained.
        rate: Factor of every learning rate.
        fault: By name, "" for none.
        strength: Of the fault.
        run: Where Sonde records it; None for nowhere.
    """

    def __init__(self, *, seed: int, steps: int, rate: float = 1.0, fault: str = "", strength: float = 0.0,
                 run: Path | None = None):  # fmt: skip
        torch.manual_seed(seed)
        self.seed, self.steps, self.losses = seed, steps, list[float]()
        self._rate, self._fault, self._strength, self._run = rate, fault, strength, run
        self._onset = FAULTS[fault].onset_step(steps) if fault else 0
        self._chance = torch.Generator().manual_seed(seed + 1)  # faults draw here: the twin stays the same
        self._sorted: Tensor | None = None
        self._walked, self.nets, self._first = 0, list[tuple[nn.Module, dict[str, Tensor]]](), list[Optimizer]()
        self.kept, self._monitor = list[Any](), Unwatched()

    # Set-up of data

    def inputs(self, x: Tensor) -> Tensor:
        """All inputs, held-out ones among them."""
        return x * self._strength if self._fault == "inputs-scaled" else x

    def targets(self, y: Tensor) -> Tensor:
        """The targets that are trained on."""
        if self._fault == "targets-constant":
            return y[:1].expand_as(y).clone()
        if self._fault in ("targets-permuted", "targets-noisy"):
            num = len(y) if self._fault == "targets-permuted" else int(self._strength * len(y))
            rows = torch.randperm(len(y), generator=self._chance)[:num]
            y = y.clone()
            y[rows] = y[rows[torch.randperm(num, generator=self._chance)]]
        elif self._fault == "order-by-target":
            self._sorted = y.reshape(len(y), -1)[:, 0].argsort()
        return y

    def order(self, num: int) -> Tensor:
        """The order of an epoch."""
        order = torch.randperm(num)
        return order if self._sorted is None else self._sorted

    def pick(self, num: int, size: int) -> Tensor:
        """The rows of the next batch."""
        rows = torch.randint(num, (size,))
        if self._sorted is None:
            return rows
        self._walked += size
        return self._sorted[torch.arange(self._walked - size, self._walked) % num]

    def size(self, batch: int) -> int:
        """How many examples are in a batch."""
        return max(1, round(self._strength)) if self._fault in ("batch-tiny", "batch-tiny-norm") else batch

    def feed(self, x: Tensor) -> Tensor:
        """The inputs of the batch that is about to be trained on."""
        now = len(self.losses)
        if self._fault == "drift" and now >= self._onset:
            return x * self._strength + self._strength * x.std()
        if now == self._onset and self._fault in ("nan-in-batch", "huge-batch"):
            x = x.clone() if self._fault == "nan-in-batch" else x * self._strength
            if self._fault == "nan-in-batch":
                x[0] = torch.nan
        return x

    # Set-up of model and optimiser

    def net(self, model: Any) -> Any:
        """A model as it was made."""
        with torch.no_grad():
            self._make(model)
        self.nets.append((model, {name: value.clone() for name, value in model.state_dict().items()}))
        return model

    def _make(self, model: nn.Module) -> None:
        weights = [p for p in model.parameters() if p.dim() >= 2]
        if self._fault in ("gain", "gain-first"):
            for weight in weights if self._fault == "gain" else weights[:1]:
                weight.mul_(self._strength)
        elif self._fault == "equal-weights":
            for weight in weights:
                weight.fill_(weight.abs().mean())
        elif self._fault == "dead-start":
            layers = [m for m in model.modules() if not list(m.children())]
            for layer, behind in itertools.pairwise(layers):
                if isinstance(behind, nn.ReLU) and getattr(layer, "bias", None) is not None:
                    layer.bias.fill_(-self._strength)
        elif self._fault == "dropout-high":
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = self._strength
        elif self._fault == "never-train-mode":
            model.eval()
            model.train = types.MethodType(lambda self, mode=True: self, model)  # type: ignore[method-assign]
        elif self._fault == "never-eval-mode":
            model.eval = types.MethodType(lambda self: self, model)  # type: ignore[method-assign]

    def rate(self, base: float) -> float:
        """A learning rate."""
        return base * self._rate * (self._strength if self._fault in ("rate-high", "rate-low") else 1.0)

    def clip(self, norm: float) -> float:
        """What gradients are clipped at."""
        return self._strength if self._fault == "clip-tiny" else norm

    def optimizer(self, made: Any) -> Any:
        """An optimiser as it was made, before any schedule of it."""
        if self._fault in ("half-not-given", "half-frozen"):
            for group in list(made.param_groups):
                half = (len(group["params"]) + 1) // 2
                early = self._strength > 0.5
                left, group["params"] = (group["params"][:half], group["params"][half:]) if early else (
                    group["params"][half:], group["params"][:half])  # fmt: skip
                if self._fault == "half-frozen" and left:
                    made.add_param_group(
                        {**{k: v for k, v in group.items() if k != "params"}, "params": left, "lr": 0.0}
                    )
            made.param_groups[:] = [group for group in made.param_groups if group["params"]]
        for group in made.param_groups if self._fault == "decay-strong" else ():
            apart = type(made).__name__ in ("AdamW", "NAdamW")
            group["weight_decay"] = self._strength * (0.05 / group["lr"] if apart else 1.0)
        if self._fault == "no-zero-grad":
            made.zero_grad = lambda *args, **more: None
        if self._fault in ("rate-spike", "decays-early", "huge-gradient", "clip-tiny", "reset-late"):
            self._around(made)
        self._first = self._first or [made]
        return made

    def _around(self, made: Optimizer) -> None:
        plain, rates = made.step, [group["lr"] for group in made.param_groups]

        def step(self_: Optimizer, *args: Any, **more: Any) -> Any:
            self._before(made, rates)
            return plain(*args, **more)

        made.step = types.MethodType(step, made)  # type: ignore[method-assign]

    def _before(self, made: Optimizer, rates: list[float]) -> None:
        now, params = len(self.losses), [p for group in made.param_groups for p in group["params"]]
        for group, rate in zip(made.param_groups, rates, strict=True):
            if self._fault == "rate-spike":
                group["lr"] = rate * (self._strength if self._onset <= now < self._onset + 6 else 1.0)
            elif self._fault == "decays-early":
                group["lr"] = rate * max(0.0, 1 - 5 * now / self.steps)
        if self._fault == "huge-gradient" and now == self._onset:
            for p in params:
                if p.grad is not None:
                    p.grad.mul_(self._strength)
        elif self._fault == "clip-tiny":
            nn.utils.clip_grad_norm_(params, self._strength)
        elif self._fault == "reset-late" and now == self._onset and made is self._first[0]:
            for net, state in self.nets:
                net.load_state_dict(state)
            made.state.clear()

    # While it trains

    def watch(self, model: nn.Module | Mapping[str, nn.Module], optimizer: Any) -> Self:
        """Watch, as the user's line does."""
        if self._run is not None:
            import sonde

            self._monitor = sonde.watch(model, optimizer, run=self._run, console="quiet")
        return self

    def step(self, loss: Any) -> None:
        """A step is over."""
        self.losses.append(float(loss.detach() if isinstance(loss, Tensor) else loss))
        if self._fault == "leak":
            self.kept.append((loss, torch.ones(int(self._strength * 250_000))))
        self._monitor.step(loss)

    def evaluate(self, *, loss: Any = None, metrics: Any = None) -> None:
        """Something was evaluated."""
        self._monitor.evaluate(loss=loss, metrics=metrics)

    def epoch(self) -> None:
        """An epoch is over."""
        self._monitor.epoch()

    def logits(self, told: Tensor) -> Tensor:
        """What goes into a loss that holds a softmax."""
        return told.softmax(-1) if self._fault == "softmax-twice" else told

    @torch.no_grad()
    def follow(self, target: nn.Module, source: nn.Module, share: float) -> None:
        """Bring a copy that makes targets nearer to its source."""
        if self._fault != "target-never-moves":
            for to, value in zip(target.parameters(), source.parameters(), strict=True):
                to.lerp_(value, share)

    # At its end

    def close(self) -> None:
        """End the recording."""
        self._monitor.close()

    def repair_modes(self) -> None:
        """Let models be switched to train and eval mode again."""
        for model, _ in self.nets:
            for name in ("train", "eval"):
                model.__dict__.pop(name, None)
