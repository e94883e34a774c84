"""A bulletin as a mail: plain text, and HTML with a small picture that comes with it."""

import datetime
import email.policy
import email.utils
from collections.abc import Sequence
from email.message import EmailMessage
from html import escape

from sonde.alerts.messages import plain, png
from sonde.alerts.notices import Bulletin
from sonde.core.findings import Finding, Severity

_COLOURS = {Severity.INFO: "#2563eb", Severity.WARNING: "#b45309", Severity.CRITICAL: "#b91c1c"}
_PICTURE_ID = "curve@sonde"


def message(bulletin: Bulletin, *, sender: str, to: Sequence[str]) -> EmailMessage:
    """The mail, ready to be sent; its Message-ID is the same at every attempt.

    Args:
        bulletin: What to say.
        sender: Address in From.
        to: Addresses of the receivers.
    """
    mail = EmailMessage(policy=email.policy.SMTP)
    mail["Subject"] = plain.title(bulletin)
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = email.utils.format_datetime(datetime.datetime.fromtimestamp(bulletin.time_s, datetime.UTC))
    mail["Message-ID"] = f"<{bulletin.id}@sonde>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: keeps out-of-office robots from answering
    mail.set_content(plain.text(bulletin))
    mail.add_alternative(html(bulletin), subtype="html")
    if _has_curve(bulletin):
        assert bulletin.curve is not None
        body = mail.get_payload()[1]  # type: ignore[index]  # multipart/alternative: plain text, HTML
        assert isinstance(body, EmailMessage)
        picture = png.draw(bulletin.curve.values)
        body.add_related(picture, "image", "png", cid=f"<{_PICTURE_ID}>", filename="curve.png", disposition="inline")
    return mail


def html(bulletin: Bulletin) -> str:
    """The HTML of the mail; styles are inline, since mail programs drop the others."""
    notice = bulletin.notice
    parts = [
        '<!doctype html>\n<html><body style="font-family: sans-serif; color: #1f2937; max-width: 44em">',
        f'<h2 style="font-size: 1.1em; color: {_COLOURS[notice.severity]}">{escape(plain.title(bulletin))}</h2>',
        f'<p style="color: #6b7280">{escape(plain.origin(bulletin))}</p>',
    ]
    if _has_curve(bulletin):
        assert bulletin.curve is not None
        title = escape(bulletin.curve.title)
        parts.append(
            f'<p><img src="cid:{_PICTURE_ID}" alt="{title}" width="320" height="64"><br>'
            f'<small style="color: #6b7280">{title}</small></p>'
        )
    parts.extend(map(_alarm, notice.alarms))
    if notice.resolved:
        items = "".join(f"<li>{escape(plain.summary(finding))}</li>" for finding in notice.resolved)
        parts.append(f"<p>resolved:</p><ul>{items}</ul>")
    parts.extend(f"<p>{escape(sentence)}</p>" for sentence in plain.remainder(notice))
    said, colon, command = plain.see_all(bulletin).partition(": ")
    parts.append(f"<p>{said}{colon}<code>{escape(command)}</code></p>")
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def _alarm(finding: Finding) -> str:
    style = f"border-left: 4px solid {_COLOURS[finding.severity]}; padding-left: 1em; white-space: pre-wrap"
    return f'<pre style="{style}">{escape(plain.shortened(finding))}</pre>'


def _has_curve(bulletin: Bulletin) -> bool:
    return bulletin.curve is not None and len(bulletin.curve.values) > 0
