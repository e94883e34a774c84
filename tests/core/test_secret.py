"""A secret is shown to nobody."""

import copy
import dataclasses
import json
import logging
import pickle
import traceback

import pytest

from sonde.alerts.channels.mail import Mail
from sonde.alerts.channels.slack import Slack
from sonde.alerts.channels.webhook import Webhook
from sonde.core import strict_json
from sonde.core.secret import Secret

HIDDEN = "hunter2"
SECRET = Secret(HIDDEN)


@pytest.mark.parametrize(
    "shown",
    [
        str(SECRET),
        repr(SECRET),
        f"{SECRET}{SECRET!r}{SECRET!s}{SECRET:>20}",
        "%s %r" % (SECRET, SECRET),  # noqa: UP031  # logging formats so
        repr([SECRET]) + repr({"a": SECRET}),
        strict_json.dumps({"a": [SECRET]}),
        repr(pickle.dumps(SECRET)),
        repr(pickle.dumps(Slack(url=Secret(f"https://a.b/{HIDDEN}")))),
        repr(Webhook(url=Secret(f"https://a.b/{HIDDEN}"), secret=SECRET)),
        str(dataclasses.asdict(Mail(url=Secret(f"smtps://u:{HIDDEN}@a.b"), to=("a@b.c",)))),
        str(dir(SECRET)),
    ],
)
def test_no_way_of_showing_it_shows_it(shown: str) -> None:
    assert HIDDEN not in shown


def test_json_refuses_it_without_showing_it() -> None:
    with pytest.raises(TypeError) as caught:
        json.dumps(SECRET)
    assert HIDDEN not in "".join(traceback.format_exception(caught.value))


def test_a_log_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("sonde.alerts").warning("channel %s %r", SECRET, Slack(url=Secret(f"https://a.b/{HIDDEN}")))
    assert "channel •••" in caplog.text
    assert HIDDEN not in caplog.text


def test_only_reveal_gives_it_and_copies_keep_it() -> None:
    assert SECRET.reveal() == copy.copy(SECRET).reveal() == copy.deepcopy(SECRET).reveal() == HIDDEN


def test_what_comes_out_of_a_pickle_says_why_it_is_empty() -> None:
    loaded = pickle.loads(pickle.dumps(SECRET))
    assert not loaded
    with pytest.raises(ValueError, match="pickle"):
        loaded.reveal()


def test_secrets_compare_by_value() -> None:
    assert Secret("same") == Secret("same")
    assert hash(SECRET) == hash(Secret(HIDDEN))
    assert Secret("other") != Secret("same")
    assert Secret("same") != "same"
