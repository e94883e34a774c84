"""A bulletin as a mail: plain text, and HTML with a small picture that comes with it."""

import datetime
import email.policy
import email.utils
from collections.abc import Sequence
from email.message import EmailMessage

from sonde.alerts.messages import plain, png
from sonde.alerts.notices import Bulletin
from sonde.core.palette import LIGHT
from sonde.core.templates import templates

_PICTURE_ID = "curve@sonde"
_PAGE = templates("sonde.alerts.messages").get_template("mail.html")


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
    said, _, command = plain.see_all(bulletin).partition(": ")
    return _PAGE.render(
        bulletin=bulletin,
        plain=plain,
        palette=LIGHT,
        picture=_PICTURE_ID if _has_curve(bulletin) else "",
        see_all=said,
        command=command,
    )


def _has_curve(bulletin: Bulletin) -> bool:
    return bulletin.curve is not None and len(bulletin.curve.values) > 0
