"""Rates and schedules."""

from benchmarks.faults.space.faults import places
from benchmarks.faults.space.faults.fault import Fault

RATE = ("optimiser.rate",)

FAULTS = [
    Fault(name="rate-too-high", cause="lr-too-high", changes=RATE, weakest=8, strongest=300, where=places.anywhere,
          values=lambda t, s: (t.optimiser.rate * s,)),
    Fault(name="rate-too-low", cause="lr-too-low", changes=RATE, weakest=20, strongest=3000, where=places.anywhere,
          values=lambda t, s: (t.optimiser.rate / s,)),
    Fault(name="rate-spike", cause="lr-spike", changes=("schedule.spike_step", "schedule.spike_factor"), weakest=30,
          strongest=1000, values=lambda t, s: (t.loop.steps * 2 // 3, s), begins="schedule.spike_step"),
    Fault(name="no-warmup", cause="warmup-too-short", changes=("schedule.warmup_steps",), also=("lr-too-high",),
          where=lambda t: (places.adaptive(t) and places.attention(t)) or t.architecture == "residual",
          context=lambda t: {"optimiser.rate": t.optimiser.rate * 4, "schedule.warmup_steps": t.loop.steps // 4},
          values=lambda t, s: (0,)),
    Fault(name="decays-too-fast", cause="schedule-decays-too-fast", changes=("schedule.kind", "schedule.final"),
          weakest=1e6, strongest=1e14, values=lambda t, s: ("exponential", s ** -1.0)),
    Fault(name="stepped-each-batch", cause="schedule-misapplied", also=("schedule-decays-too-fast",),
          changes=("schedule.each_batch",), context=lambda t: {"schedule.kind": "epochs", "schedule.gamma": 0.9},
          values=lambda t, s: (True,)),
    Fault(name="no-decay", cause="missing-lr-decay", changes=("schedule.kind",), also=("lr-too-high",),
          context=lambda t: {"schedule.kind": "cosine", "schedule.final": 0.01,
                             "optimiser.rate": t.optimiser.rate * 3},
          values=lambda t, s: ("constant",)),
]  # fmt: skip
