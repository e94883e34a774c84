"""Views to be drawn."""

import math
from dataclasses import replace

from sonde.console.view import Layers, Memory, Value, View
from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity, Suspect

CURVE = tuple(2.3 * math.exp(-i / 30) + 0.28 + 0.05 * math.sin(1.7 * i) for i in range(100))


def finding(
    code: str, name: str, severity: Severity, step: int, *where: str, last_step: int | None = None, still: bool = True
) -> Finding:
    return Finding(
        code=code,
        name=name,
        severity=severity,
        first_step=step,
        last_step=step if last_step is None else last_step,
        open=still,
        where=where,
        message="it is so",
    )


def layers(num: int, *, marks: dict[int, str] | None = None, values: dict[int, float | None] | None = None) -> Layers:
    words = ("qkv", "proj", "up", "down")
    plain: dict[int, float | None] = {i: 10 ** (-2 - i / num + 0.3 * math.sin(3.1 * i)) for i in range(num)}
    return Layers(
        names=tuple(f"blocks.{i // 4}.{words[i % 4]}" for i in range(num)),
        values=tuple({**plain, **(values or {})}.values()),
        marks=tuple((marks or {}).get(i, "") for i in range(num)),
        what="gradient rms",
    )


GOOD = View(
    run="runs/chars",
    step=1240,
    total_steps=5000,
    epoch=2,
    total_epochs=10,
    elapsed_s=151.0,
    silent_s=0.2,
    steps_per_s=8.42,
    samples_per_s=269.0,
    tokens_per_s=17_200.0,
    losses=(Value("", 0.2834),),
    loss_ema=0.2901,
    validation=0.3012,
    curve=CURVE,
    learning_rates=(Value("", 2e-4),),
    gradient_norms=(Value("", 1.085),),
    memory=Memory("GPU", 13.0e9, 85.5e9),
    layers=layers(26),
)

ILL = replace(
    GOOD,
    losses=(Value("", math.nan),),
    loss_ema=math.nan,
    curve=CURVE[:70] + (math.nan,) * 30,
    gradient_norms=(Value("", math.nan),),
    memory=Memory("GPU", 84.0e9, 85.5e9),
    layers=layers(26, marks={22: "critical", 23: "critical", 9: "warning"}, values={4: 0.0, 25: math.nan, 2: None}),
    findings=(
        finding("GRD001", "exploding-gradients", Severity.CRITICAL, 1201, "blocks.5.down.weight", "blocks.5.up.weight"),
        finding("LOS001", "non-finite-loss", Severity.CRITICAL, 1231),
        finding("ACT002", "dead-units", Severity.WARNING, 980, "blocks.2.proj"),
        finding("OPT003", "loss-scale-collapse", Severity.WARNING, 1231),
    ),
)

GAN = View(
    run="runs/gan",
    step=412,
    elapsed_s=60.0,
    steps_per_s=21.0,
    losses=(Value("G", 1.93), Value("D", 0.61)),
    curve=CURVE,
    learning_rates=(Value("G", 2e-4), Value("D", 2e-4)),
    gradient_norms=(Value("G", 5.31), Value("D", 0.83)),
    memory=Memory("process", 1.3e9),
    layers=layers(12),
    findings=None,
)

EMPTY = View(run="runs/new", elapsed_s=3.0)

LARGE = replace(
    GOOD,
    run="/home/someone/experiments/with/a/long/path/runs/large-language-model-20261115-201500",
    layers=layers(1000, marks={333: "warning"}),
    findings=(finding("UPD002", "layer-not-learning", Severity.WARNING, 1100, "blocks.83.proj.weight"),),
)

SILENT = replace(GOOD, silent_s=95.0, epoch=None, total_epochs=None)

DEAD = replace(GOOD, ending="died", silent_s=500.0)

_RATE = (Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.9, because="it is so"),)
EXPLAINED = replace(
    ILL,
    findings=(
        *(replace(one, causes=_RATE) for one in (ILL.findings or ())[:3]),
        finding("SYS002", "step-time-grows", Severity.WARNING, 990),
    ),
)

ALL = {
    "good": GOOD,
    "ill": ILL,
    "explained": EXPLAINED,
    "gan": GAN,
    "empty": EMPTY,
    "large": LARGE,
    "silent": SILENT,
    "dead": DEAD,
}
