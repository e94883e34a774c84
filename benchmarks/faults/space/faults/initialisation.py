"""First weights."""

from benchmarks.faults.space.faults import places
from benchmarks.faults.space.faults.fault import Fault

INIT = ("model.init", "model.init_scale")

FAULTS = [
    Fault(name="weights-too-large", cause="bad-initialisation", changes=INIT, weakest=5, strongest=40,
          values=lambda t, s: ("scaled", s), also=("activation-explosion",)),
    Fault(name="weights-too-small", cause="bad-initialisation", changes=INIT, weakest=30, strongest=1000,
          values=lambda t, s: ("scaled", 1 / s), also=("vanishing-gradients",), where=places.chained),
    Fault(name="weights-equal", cause="symmetric-initialisation", changes=INIT, weakest=0.01, strongest=0.1,
          values=lambda t, s: ("constant", s)),
    Fault(name="units-dead", cause="dead-units", changes=("model.activation", *INIT), weakest=3, strongest=20,
          where=places.chained, values=lambda t, s: ("relu", "biased", s)),
    Fault(name="units-saturated", cause="saturated-units", changes=("model.activation", *INIT), weakest=10,
          strongest=60, where=places.chained, values=lambda t, s: ("tanh", "scaled", s),
          also=("bad-initialisation",)),
    Fault(name="recurrence-explodes", cause="exploding-gradients", changes=("model.recurrent_scale", "loop.clip"),
          weakest=4, strongest=20, where=places.recurrent, values=lambda t, s: (s, 0.0),
          also=("bad-initialisation", "missing-clipping")),
    Fault(name="chain-of-sigmoids", cause="vanishing-gradients", changes=("model.activation", "model.depth"),
          weakest=5, strongest=10, where=places.chained, values=lambda t, s: ("sigmoid", round(s))),
]  # fmt: skip
