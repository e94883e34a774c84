"""How the demo trains; a file of its own, so that `--help` shows the defaults without loading PyTorch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the demo trains. The default takes about a minute on two CPU cores.

    Args:
        steps: Optimiser steps, at least 1.
        seed: Of weights, batches and sample. The same seed gives the same losses on the same machine.
        batch: Windows of text a step.
        lr: The learning rate at its peak.
        warmup_steps: Steps in which it rises to the peak; then it falls along a cosine to a tenth of it.
        weight_decay: AdamW's.
        clip_norm: Gradients longer than this are scaled down to it; those of a healthy run are about 2.
        evaluations: How often the held-out end of the text is scored, evenly over the run and at its end.
    """

    steps: int = 700
    seed: int = 0
    batch: int = 32
    lr: float = 2e-3
    warmup_steps: int = 40
    weight_decay: float = 0.1
    clip_norm: float = 5.0
    evaluations: int = 10

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "evaluations"):
            if getattr(self, name) < 1:
                raise ValueError(f"`Settings({name}=...)` must be at least 1, got {getattr(self, name)}.")
