"""From the last value of each series to what is shown of them."""

from collections.abc import Iterable, Mapping, Sequence

from sonde.console.layers import Roster
from sonde.console.view import Memory, Value, View
from sonde.core.findings import Finding
from sonde.core.records import Point


def curve_tag(tags: Iterable[str]) -> str | None:
    """The series whose curve is drawn: the loss, or the first of its parts where there is no loss of the whole."""
    part = None
    for tag in tags:
        if tag == "loss":
            return tag
        if part is None and tag.startswith("loss/part@"):
            part = tag
    return part


def view_of(
    last: Mapping[str, Point],
    *,
    run: str,
    step: int,
    roster: Roster,
    findings: Sequence[Finding] | None,
    ending: str = "live",
    total_steps: int | None = None,
    total_epochs: int | None = None,
    elapsed_s: float = 0.0,
    silent_s: float = 0.0,
    steps_per_s: float | None = None,
    curve: tuple[float, ...] = (),
) -> View:
    """What is shown of a training.

    Args:
        last: The newest point of each series of the training as a whole.
        run: As all the others, see `View`.
        step: The last one.
        roster: The layers.
        findings: All of them, open or closed; None where nobody looks for any.
        ending: How the run stands.
        total_steps: Where it is known; else worked out from `total_epochs` and the length of the last epoch.
        total_epochs: Where it is known.
        elapsed_s: Since it began.
        silent_s: Since its last step.
        steps_per_s: Of late.
        curve: Of the loss.
    """
    shown = None if findings is None else _open(findings)
    return View(
        run=run,
        ending=ending,
        step=step,
        total_steps=total_steps or _length(last, total_epochs),
        epoch=int(last["epoch"].value) if "epoch" in last else None,
        total_epochs=total_epochs,
        elapsed_s=elapsed_s,
        silent_s=max(0.0, silent_s),
        steps_per_s=steps_per_s,
        samples_per_s=_value(last, "throughput/samples_per_s"),
        tokens_per_s=_value(last, "throughput/tokens_per_s"),
        losses=_values(last, "loss", parts="loss/part"),
        loss_ema=_value(last, "loss/ema"),
        validation=_value(last, "val/loss"),
        curve=curve,
        learning_rates=_values(last, "lr"),
        gradient_norms=_values(last, "grad/norm", only=_optimizers(last)),
        memory=_memory(last),
        layers=roster.layers(shown or ()),
        findings=shown,
    )


def _open(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Alarms that still hold, the worst first, the newest of these first."""
    alarms = [finding for finding in findings if finding.open and finding.severity.is_alarm]
    newest = sorted(alarms, key=lambda finding: -finding.first_step)
    return tuple(sorted(newest, key=lambda finding: finding.severity, reverse=True))


def _length(last: Mapping[str, Point], total_epochs: int | None) -> int | None:
    if not total_epochs or "epoch" not in last or "epoch/steps" not in last:
        return None
    over = last["epoch"]
    return over.step + max(0, round((total_epochs - over.value) * last["epoch/steps"].value))


def _value(last: Mapping[str, Point], tag: str) -> float | None:
    return last[tag].value if tag in last else None


def _values(
    last: Mapping[str, Point], tag: str, *, parts: str | None = None, only: Iterable[str] | None = None
) -> tuple[Value, ...]:
    """The one of the whole; where there is none, those that have names."""
    if tag in last:
        return (Value("", last[tag].value),)
    path = f"{parts or tag}@"
    names = [name[len(path) :] for name in last if name.startswith(path)] if only is None else only
    # `lr@G.0` is that of a group of `lr@G`.
    whole = [name for name in names if f"{path}{name}" in last and name.rpartition(".")[0] not in set(names)]
    return tuple(Value(name, last[f"{path}{name}"].value) for name in whole)


def _optimizers(last: Mapping[str, Point]) -> list[str]:
    return [tag[3:] for tag in last if tag.startswith("lr@")]


def _memory(last: Mapping[str, Point]) -> Memory | None:
    if "memory/reserved" in last:
        return Memory("GPU", last["memory/reserved"].value, _value(last, "memory/total"))
    return Memory("process", last["host/rss"].value) if "host/rss" in last else None
