"""Loss, architecture, regularisation, precision and what the optimiser holds."""

from benchmarks.faults.space.faults import places
from benchmarks.faults.space.faults.fault import Fault

HALF = {"precision.autocast": "float16", "precision.scaler": True}

FAULTS = [
    Fault(name="loss-summed", cause="wrong-loss-reduction", changes=("loss.reduction",), also=("lr-too-high",),
          where=places.momentum, values=lambda t, s: ("sum",)),
    Fault(name="two-softmaxes", cause="double-softmax", changes=("loss.softmax",), where=places.logits, hard=True,
          values=lambda t, s: (True,)),
    Fault(name="graph-cut", cause="disconnected-layer", changes=("model.detached",), hard=True,
          values=lambda t, s: (True,)),
    Fault(name="half-not-in-optimiser", cause="parameter-not-in-optimizer", changes=("optimiser.left_out",),
          weakest=0.3, strongest=0.8, hard=True, values=lambda t, s: (s,)),
    Fault(name="frozen-by-mistake", cause="frozen-layer", changes=("optimiser.frozen",), weakest=0.5, strongest=0.9,
          hard=True, values=lambda t, s: (s,)),
    Fault(name="too-narrow", cause="insufficient-capacity", changes=("model.width",), also=("underfitting",),
          where=lambda t: t.architecture in ("mlp", "residual", "mixture", "deep-set") and places.single(t),
          values=lambda t, s: (1,)),
    Fault(name="drops-nearly-all", cause="underfitting", changes=("model.dropout",), weakest=0.85, strongest=0.95,
          where=lambda t: t.architecture in ("mlp", "siamese", "embedding") and places.single(t),
          values=lambda t, s: (s,)),
    Fault(name="decay-too-strong", cause="weight-decay-too-strong", changes=("optimiser.weight_decay",), weakest=0.1,
          strongest=1.0, values=lambda t, s: (s * (30 if t.optimiser.name == "adamw" else 1),)),
    Fault(name="epsilon-too-large", cause="adam-epsilon-underflow", changes=("optimiser.eps",), weakest=1,
          strongest=100, where=places.adaptive, values=lambda t, s: (s,), also=("lr-too-low",)),
    Fault(name="statistics-too-slow", cause="train-eval-mismatch", changes=("model.norm_momentum",), weakest=1e-4,
          strongest=1e-3, where=places.batch_norm, values=lambda t, s: (s,)),
    Fault(name="attention-too-sharp", cause="attention-entropy-collapse", changes=("model.attention_scale",),
          weakest=30, strongest=300, where=places.attention, values=lambda t, s: (s,),
          also=("attention-logit-growth",)),
    Fault(name="weights-in-bfloat16", cause="precision-underflow", changes=("precision.weights",), where=places.dense,
          context=lambda t: {"precision.autocast": "none", "optimiser.rate": t.optimiser.rate / 3},
          values=lambda t, s: ("bfloat16",)),
    Fault(name="loss-not-scaled", cause="missing-loss-scaling", changes=("precision.scaler",),
          also=("precision-underflow",),
          context=lambda t: {**HALF, "loss.unit": 1e-6, "optimiser.name": "adam", "optimiser.rate": 3e-3,
                             "optimiser.eps": 1e-15, "loop.clip": 0.0},
          where=places.dense, values=lambda t, s: (False,)),
    Fault(name="clipped-while-scaled", cause="clip-before-unscale", changes=("precision.unscaled",), hard=True,
          context=lambda t: {**HALF, "loop.clip": 1.0}, where=lambda t: places.dense(t) and places.momentum(t),
          values=lambda t, s: (False,)),
    Fault(name="inputs-beyond-half", cause="precision-overflow", changes=("precision.autocast",),
          context=lambda t: {"precision.autocast": "bfloat16", "data.scale": 3e5, "model.norm": "layer"},
          where=places.dense, values=lambda t, s: ("float16",)),
]  # fmt: skip
