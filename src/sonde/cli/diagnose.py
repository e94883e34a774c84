"""`sonde diagnose`: what is wrong with a run, why, and what to do."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sonde.cli import checklists, console, guides

_NOT_ENOUGH = 3


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    information: Annotated[bool, typer.Option("--all", help="Print what is only worth knowing as well.")] = False,
    checklist: Annotated[bool, typer.Option("--checklist", help="Print the health checklist as well.")] = False,
    guide: Annotated[
        bool, typer.Option("--guide", help="Debug in order: what each of seven looks shows in this run.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings of the rules, as `sonde calibrate` writes.", show_default=False),
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Judge by the rules' defaults: no settings of the run, none from here.")
    ] = False,
) -> None:
    """Say what is wrong with a run, with the evidence, the likely causes and what to try.

    Works on finished and running trainings alike. The exit status is 0 for a healthy run, 1 where there is a warning or
    worse, 3 where there is not enough to judge (nothing, no loss or no step recorded, damaged tables). What the
    run's own settings change is said behind the verdict.

    Example:
      sonde diagnose runs/demo
      sonde diagnose runs/demo --guide
      sonde diagnose runs/demo --checklist
      sonde diagnose runs/demo --json | jq .verdict
    """
    import sonde
    from sonde.core.findings import Verdict
    from sonde.reports.diagnosing import by_default
    from sonde.reports.diagnosing import diagnose as judge

    opened = sonde.load(run)
    diagnosis = judge(opened, rules=by_default(profile)) if defaults else judge(opened, profile=profile)
    if json:
        answers = checklists.as_json(opened, diagnosis) if checklist else {}
        looks = guides.as_json(opened, diagnosis) if guide else {}
        console.result_json({**diagnosis.to_json(), **answers, **looks})
    elif guide:
        console.result(*guides.text(opened, diagnosis))
        if checklist:
            console.result(*checklists.table(opened, diagnosis))
    else:
        shown = [finding for finding in diagnosis if information or finding.severity.is_alarm]
        hidden = len(diagnosis.findings) - len(shown)
        told = replace(diagnosis, findings=tuple(shown))
        for part in (*told.groups, *(note.brief for note in told.notes)):
            console.say(f"{part}\n")
        if checklist:
            console.result(*checklists.table(opened, diagnosis))
        name = console.one_line(run)
        own = diagnosis.own_settings
        judged = f", judged by the run's own settings: {own}" if own else ""
        console.say(f"{name}: {diagnosis.said}{judged}")
        if own:
            console.say(f"by the rules' defaults: sonde diagnose {name} --defaults")
        if own.ignored:
            console.say(f"settings of the run that are ignored: {own.said_ignored}")
        if hidden:
            are = "is" if hidden == 1 else "are"
            console.say(f"{hidden} more {are} only worth knowing: sonde diagnose {name} --all")
        if diagnosis.not_measured:
            num = len(diagnosis.not_measured)
            kinds = "kind of series was" if num == 1 else "kinds of series were"
            console.say(f"{num} {kinds} not measured: sonde diagnose {name} --json")
        for problem in diagnosis.rule_problems:
            console.say(problem)
        for problem in opened.problems:
            console.say(f"could not be read: {problem}")
    if diagnosis.verdict is Verdict.UNKNOWN:
        raise typer.Exit(_NOT_ENOUGH)
    if diagnosis.verdict in (Verdict.WARNING, Verdict.CRITICAL):
        raise typer.Exit(1)
