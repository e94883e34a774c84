"""`sonde alerts`: whether alerts would arrive."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from sonde.cli import console


class Action(StrEnum):
    """What is done."""

    TEST = "test"


def alerts(
    action: Annotated[Action, typer.Argument(help="`test` sends a trial message to each channel.")],
    channel: Annotated[
        list[str] | None,
        typer.Option("--channel", metavar="NAME", help="Only this one; may be repeated.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Send a trial message to every channel that is configured here, and say what came of each.

    Limits and quiet hours hold nothing back, and nothing is tried twice. The exit status is 1 where a channel did not
    get its message.

    Example:
      sonde alerts test
      SONDE_SLACK_WEBHOOK=https://hooks.slack.com/services/… sonde alerts test
    """
    from sonde.alerts.channels.channel import Delivered
    from sonde.alerts.trial import trial
    from sonde.config import effective

    configured = effective().config.alerts
    for name, secret in configured.lacking.items():
        console.remark(f"{name} is not told anything: its secret, {secret}, is not set")
    channels = dict(configured.channels)
    for name in channel or ():
        if name not in channels:
            raise console.CommandError(f"no channel {name} is configured; there is {', '.join(channels) or 'none'}")
    if channel:
        channels = {name: channels[name] for name in channel}
    if not channels:
        reason = "alerts.enabled is false" if not configured.settings.enabled else "none is configured"
        raise console.CommandError(
            f"there is no channel to test: {reason}; set one, such as SONDE_SLACK_WEBHOOK in the environment or "
            "[alerts.mail] in sonde.toml"
        )
    outcomes = trial(channels)
    if json:
        told = {name: _as_json(outcome) for name, outcome in outcomes.items()}
        console.result_json({"schema": 1, "channels": told})
    else:
        width = max(map(len, outcomes))
        for name, outcome in outcomes.items():
            said = _as_json(outcome)
            reason = f": {said['reason']}" if said["reason"] else ""
            console.say(console.one_line(f"{name:<{width}}  {said['outcome']}{reason}"))
    if configured.lacking or not all(isinstance(outcome, Delivered) for outcome in outcomes.values()):
        raise typer.Exit(1)


def _as_json(outcome: Any) -> dict[str, str]:
    from sonde.alerts.channels.channel import Delivered, Refused

    if isinstance(outcome, Delivered):
        return {"outcome": "delivered", "reason": outcome.remark}
    kind = "refused" if isinstance(outcome, Refused) else "not delivered"
    return {"outcome": kind, "reason": outcome.reason}
