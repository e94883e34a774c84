"""Time and memory."""

from benchmarks.faults.space.faults.fault import Fault

FAULTS = [
    Fault(name="keeps-everything", cause="memory-leak", changes=("loop.kept_kb",), weakest=200, strongest=1000,
          harms="memory_mb", values=lambda t, s: (round(s),)),
    Fault(name="waits-for-data", cause="data-stall", changes=("data.wait_s",), weakest=0.01, strongest=0.03,
          context=lambda t: {"loop.tells_data": True, "loop.accumulate": 1, "loop.steps": min(t.loop.steps, 200)},
          harms="seconds", values=lambda t, s: (s,)),
    Fault(name="slower-and-slower", cause="slowdown", changes=("loop.slower_ms",), weakest=0.05, strongest=0.2,
          context=lambda t: {"loop.steps": min(t.loop.steps, 250)}, harms="seconds", values=lambda t, s: (s,)),
]  # fmt: skip
