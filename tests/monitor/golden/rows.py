"""All that a training has recorded, as plain JSON in which two recordings are compared bit for bit."""

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sonde

from . import trainings
from .fixed_measuring import fixed_measuring

Rows = dict[str, Any]
"""`series`: by tag (and branch, where that is not the last) steps and bits of values; `tables`: by tag, where it is;
`histograms`: as series; `events` in order, without times; `findings` of a replay; `branches`."""

BY_THE_CLOCK = ("host/available",)  # once a second, whatever the step
LEFT_OUT = ("time/", "throughput/", "epoch/time", "host/", "monitor/", "memory/")
"""How tags begin whose values depend on the machine: of these only the steps are compared, …"""
KEPT = ("memory/parameters", "memory/gradients", "memory/optimizer", "memory/buffers")
"""… but for these, which are bytes of the training's own tensors."""
_MOST_LINES = 40
_LINE = re.compile(r"trainings\.py:(\d+)")


def record(training: Callable[[Path], None]) -> Rows:
    """Run a training and read what it has recorded."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with fixed_measuring():
            training(run)
        return read(run)


def read(run: Path) -> Rows:
    """Everything that a run holds and that does not depend on the machine's speed."""
    stored = sonde.load(run)
    last = stored.branches[-1].number
    series: dict[str, Any] = {}
    histograms: dict[str, Any] = {}
    for branch in stored.branches:
        where = "" if branch.number == last else f" (branch {branch.number})"
        for tag in stored.tags():
            if tag in BY_THE_CLOCK:
                continue
            found = stored.series(tag, branch=branch.number)
            values = found.value if _is_compared(tag) else np.zeros_like(found.value)
            series[tag + where] = {"steps": found.step.tolist(), "bits": _bits(values)}
        for tag in stored.histogram_tags():
            steps, counts, _ = stored.histogram(tag, branch=branch.number)
            histograms[tag + where] = {"steps": steps.tolist(), "bits": [_bits(row) for row in counts]}
    tables: defaultdict[str, set[str]] = defaultdict(set)
    for frames in stored.frames():
        for frame in frames:
            for tag in frame.columns.tags:
                tables[tag].add(frame.columns.table)
    rows = {
        "branches": [[branch.number, branch.parent, branch.fork_step] for branch in stored.branches],
        "ending": str(stored.state.ending),
        "series": series,
        "histograms": histograms,
        "tables": {tag: sorted(names) for tag, names in sorted(tables.items())},
        "events": [{"kind": event.kind, "step": event.step, "data": event.data} for event in stored.events()],
        "findings": [finding.to_json() for finding in sonde.diagnose(run, profile=trainings.LEFT_OUT_RULES).findings],
        "problems": stored.problems,
    }
    plain: Rows = json.loads(_LINE.sub(_text_of_line, json.dumps(rows)))
    return plain


def _text_of_line(number: re.Match[str]) -> str:
    """What stands in a line of the trainings: its number changes with every line above it."""
    assert trainings.__file__ is not None
    lines = Path(trainings.__file__).read_text().splitlines()
    return "trainings.py: " + json.dumps(lines[int(number[1]) - 1].strip())[1:-1]


def _is_compared(tag: str) -> bool:
    return tag.startswith(KEPT) or not tag.startswith(LEFT_OUT)


def _bits(values: Any) -> list[int]:
    bits: list[int] = np.ascontiguousarray(values, np.float32).view(np.uint32).tolist()
    return bits


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is missing, new or different, a line each; none where all bits are equal."""
    found: list[str] = []
    for kind in ("series", "histograms"):
        found += _of_series(kind, before[kind], now[kind])
    for tag in sorted(before["tables"].keys() & now["tables"].keys()):
        if before["tables"][tag] != now["tables"][tag]:
            found.append(f"{tag} is in table {_names(now['tables'][tag])}, was in {_names(before['tables'][tag])}")
    for kind in ("events", "findings"):
        found += _of_list(kind, before[kind], now[kind])
    for kind in ("branches", "ending", "problems"):
        if before[kind] != now[kind]:
            found.append(f"{kind}: {now[kind]}, was {before[kind]}")
    return found


def _of_series(kind: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    what = "" if kind == "series" else "histogram "
    for tag in sorted(before.keys() - now.keys()):
        yield f"{what}{tag} is missing: had {len(before[tag]['steps'])} values from step {before[tag]['steps'][0]} on"
    for tag in sorted(now.keys() - before.keys()):
        yield f"{what}{tag} is new: has {len(now[tag]['steps'])} values from step {now[tag]['steps'][0]} on"
    for tag in sorted(before.keys() & now.keys()):
        if before[tag] != now[tag]:
            yield f"{what}{tag} differs: {_first(before[tag], now[tag])}"


def _first(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = ([*zip(rows["steps"], rows["bits"], strict=True)] for rows in (before, now))
    for (old_step, old_bits), (new_step, new_bits) in zip(old, new, strict=False):
        if old_step != new_step:
            return f"has a value at step {new_step}, where it had its next at step {old_step}"
        if old_bits != new_bits:
            num = sum(a != b for a, b in zip(old, new, strict=False))
            return f"at step {new_step} it is {_value(new_bits)}, was {_value(old_bits)} ({num} of {len(new)} differ)"
    longer, verb = (old, "had") if len(old) > len(new) else (new, "has")
    step = longer[min(len(old), len(new))][0]
    return f"{verb} {abs(len(old) - len(new))} values more, from step {step} on"


def _value(bits: int | list[int]) -> str:
    if isinstance(bits, list):
        return f"[{', '.join(f'{value:g}' for value in np.array(bits, np.uint32).view(np.float32))}]"
    return f"{np.uint32(bits).view(np.float32):.9g} (0x{bits:08x})"


def _of_list(kind: str, before: list[Any], now: list[Any]) -> Iterator[str]:
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        if old != new:
            yield f"{kind}: number {place} is {json.dumps(new)}, was {json.dumps(old)}"
            return
    if len(before) != len(now):
        verb, more = ("missing", before) if len(before) > len(now) else ("new", now)
        num = min(len(before), len(now))
        yield f"{kind}: {len(more) - num} {verb}, the first is {json.dumps(more[num])}"


def _names(tables: list[str]) -> str:
    return " and ".join(tables)


def shortened(lines: list[str]) -> list[str]:
    """As many lines as somebody reads."""
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… and {left} more"] if left > 0 else lines
