"""How often the alarms of each rule are right, by which rules are stable or preview (`sonde.rules.tiers`)."""

import collections
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.faults.judging import Judgement

from sonde.rules import alarm_precision
from sonde.rules.catalogue import own_rules
from sonde.rules.tiers import Tier, tier_of

FILE = Path(alarm_precision.__file__)


def all_stable() -> dict[str, object]:
    """Settings with which preview rules alarm as well: else none could earn its way back."""
    return {f"{rule.code}.tier": "stable" for rule in own_rules() if tier_of(rule) is Tier.PREVIEW}


def judged_file(folder: Path) -> Path:
    """What was judged with these settings."""
    return folder / ("judged_stable.jsonl" if all_stable() else "judged.jsonl")


def counted(runs: Iterable[Judgement]) -> dict[str, tuple[int, int]]:
    """By rule, its right alarms and all of them; a rule counts once in a training.

    An alarm is right in a training with a fault that does harm, from its onset on, whatever cause it names. It is wrong
    in healthy trainings, in twins without the fault and before the onset. In a training whose fault does no harm it is
    neither, and not counted.
    """
    right, total = collections.Counter[str](), collections.Counter[str]()
    known = {rule.code for rule in own_rules()}
    for run in runs:
        if run.kind == "harmless":
            continue
        for code in known.intersection(run.codes):
            first = min((alarm.step for alarm in run.alarms if alarm.code == code), default=run.onset)
            right[code] += run.kind == "faulty" and first >= run.onset - 1  # steps may be counted from 0 or 1
            total[code] += 1
    return {code: (right[code], total[code]) for code in sorted(total)}


def text(counts: Mapping[str, tuple[int, int]]) -> str:
    """The module `sonde.rules.alarm_precision` with these numbers."""
    head, brace, rest = FILE.read_text(encoding="utf-8").partition(" = {")
    rows = [f'    "{code}": ({right}, {num}),\n' for code, (right, num) in counts.items()]
    return "".join((head, brace, "\n" if rows else "", *rows, "}", rest.partition("}")[2]))
