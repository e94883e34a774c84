"""Inputs and targets."""

from benchmarks.faults.space.faults import places
from benchmarks.faults.space.faults.fault import Fault

FAULTS = [
    Fault(name="labels-wrong", cause="label-noise", changes=("data.label_noise",), weakest=0.3, strongest=0.7,
          where=lambda t: places.supervised(t) and t.task in ("tabular", "images", "text", "next-token", "continual"),
          values=lambda t, s: (s,)),
    Fault(name="targets-shuffled", cause="no-learnable-signal", changes=("data.targets",), where=places.supervised,
          values=lambda t, s: ("permuted",)),
    Fault(name="targets-of-neighbour", cause="no-learnable-signal", changes=("data.targets",), where=places.supervised,
          values=lambda t, s: ("neighbour",)),
    Fault(name="targets-constant", cause="no-learnable-signal", changes=("data.targets",), where=places.supervised,
          values=lambda t, s: ("constant",)),
    Fault(name="targets-not-shifted", cause="targets-not-shifted", changes=("data.targets",), where=places.text,
          values=lambda t, s: ("not-shifted",)),
    Fault(name="sorted-by-target", cause="data-not-shuffled", changes=("data.order",), where=places.supervised,
          values=lambda t, s: ("sorted",)),
    Fault(name="one-bad-batch", cause="bad-batch", changes=("data.bad_step", "data.bad_factor"), weakest=100,
          strongest=1e4, where=places.of_numbers, begins="data.bad_step",
          values=lambda t, s: (t.loop.steps * 2 // 3, s)),
    Fault(name="a-nan", cause="nonfinite-input", changes=("data.nan_step",), where=places.of_numbers, hard=True,
          begins="data.nan_step", values=lambda t, s: (t.loop.steps // 2,)),
    Fault(name="columns-in-units", cause="unnormalised-inputs", changes=("data.scale",), weakest=30, strongest=1000,
          where=places.of_numbers, values=lambda t, s: (s,)),
    Fault(name="inputs-far-from-zero", cause="unnormalised-inputs", changes=("data.offset",), weakest=10,
          strongest=200, where=places.of_numbers, values=lambda t, s: (s,)),
    Fault(name="inputs-drift", cause="data-drift", changes=("data.drift_step", "data.drift"), weakest=2, strongest=8,
          where=places.of_numbers, begins="data.drift_step", values=lambda t, s: (t.loop.steps // 2, s)),
    Fault(name="sequences-too-long", cause="long-sequence", changes=("data.size",), weakest=6, strongest=10,
          where=lambda t: t.task == "sequences" and t.architecture == "rnn", also=("vanishing-gradients",),
          values=lambda t, s: (round(t.data.size * s),)),
    Fault(name="too-few-examples", cause="overfitting", changes=("data.num",), weakest=24, strongest=80,
          where=places.supervised, values=lambda t, s: (round(s),), also=("missing-regularisation",),
          # Epochs become shorter with the data: a schedule that counts them would be another fault.
          context=lambda t: {"schedule.kind": "constant"} if t.schedule.kind == "epochs" else {}),
]  # fmt: skip
