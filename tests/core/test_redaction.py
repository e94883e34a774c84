import argparse
import dataclasses
import enum
import json
import random
import string
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.secret_forms import ARGUMENTS, BASE62, SENTENCES, SETTINGS, Holder, Source, harmless

from sonde.core import strict_json
from sonde.core.randomness import is_random
from sonde.core.redaction import Redactor, secrets_of
from sonde.core.secret import HIDDEN, Secret
from sonde.core.secret_names import Naming, naming

REDACT = Redactor()


@pytest.fixture
def source() -> Source:
    return Source(random.randrange(2**32))  # pytest-randomly seeds it anew, and prints the seed


@pytest.mark.parametrize("form", ARGUMENTS)
def test_a_command_line_keeps_all_but_its_secret(form: str, source: Source) -> None:
    secret, words = ARGUMENTS[form](source)
    shown = REDACT.plain(["train.py", "--lr", "3e-4", *words, "--epochs", "3"])
    assert secret not in json.dumps(shown, ensure_ascii=False)
    assert HIDDEN in json.dumps(shown, ensure_ascii=False)
    assert shown[:3] == ["train.py", "--lr", "3e-4"]
    assert shown[-2:] == ["--epochs", "3"]


@pytest.mark.parametrize("form", [form for form in ARGUMENTS if "spaces" not in form and "two words" not in form])
def test_the_same_in_one_text_keeps_all_but_the_secret(form: str, source: Source) -> None:
    secret, words = ARGUMENTS[form](source)
    shown = REDACT.text(f"the run failed after {' '.join(words)}")
    assert secret not in shown
    assert shown.startswith("the run failed after ")


@pytest.mark.parametrize("form", SETTINGS)
@pytest.mark.parametrize("kind", [Source.password, Source.token, Source.hex])
def test_settings_keep_all_but_their_secrets(form: str, kind: Any, source: Source) -> None:
    secret = kind(source)
    shown = REDACT.plain({"lr": 0.1, "model": {"depth": 12}, **SETTINGS[form](secret)})
    assert secret not in json.dumps(shown)
    assert (shown["lr"], shown["model"]) == (0.1, {"depth": 12})


@pytest.mark.parametrize("form", SENTENCES)
@pytest.mark.parametrize("kind", [Source.password, Source.token, Source.hex])
def test_messages_keep_all_but_their_secrets(form: str, kind: Any, source: Source) -> None:
    secret = kind(source)
    shown = REDACT.text(f"step 12: {SENTENCES[form](secret)}")
    assert secret not in shown
    assert shown.startswith("step 12: ")


def test_what_surrounds_a_secret_stays_readable() -> None:
    shown = {
        "postgres://bob:hunter2@db:5432/runs?sslmode=require": "postgres://•••@db:5432/runs?sslmode=require",
        "Namespace(lr=0.1, api_key='abc', epochs=3)": "Namespace(lr=0.1, api_key='•••', epochs=3)",
        "host=db password=abc dbname=runs": "host=db password=••• dbname=runs",
        "Authorization: Bearer abcdef12345": "Authorization: Bearer •••",
        "https://hooks.slack.com/services/T0/B0/xyz": "https://hooks.slack.com/•••",
        "https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature=0a1b2c&y=1": (
            "https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature=•••&y=1"
        ),
    }
    assert {text: REDACT.text(text) for text in shown} == shown


def test_more_than_500_harmless_values_stay_as_they_are_wherever_they_stand() -> None:
    values = harmless(random.randrange(2**32))
    assert len(set(values)) > 500
    assert [value for value in values if REDACT.text(value) != value] == []
    assert [value for value in values if REDACT.plain([value]) != [value]] == []
    assert [value for value in values if REDACT.plain({"value": [{"x": value}]}) != {"value": [{"x": value}]}] == []
    assert [value for value in values if REDACT.text(f"loading {value} failed") != f"loading {value} failed"] == []


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apikey", "apiKey", "API-KEY", "OPENAI_API_KEY", "openaiApiKey", "x-api-key", "wandb_key"),
        *("token", "hf_token", "githubToken", "ACCESSTOKEN", "refresh_token", "token_value", "api_tokens"),
        *("password", "passwd", "pwd", "PGPASSWORD", "MYSQL_PWD", "password2", "db.password.value", "db_pass"),
        *("secret", "client_secret", "secret_key_prod", "AWS_SECRET_ACCESS_KEY", "aws_access_key_id", "private-key"),
        *("credentials", "authorization", "bearer", "cookie", "session_id", "GITHUB_PAT", "passphrase", "AccountKey"),
    ],
)
def test_names_of_secrets_are_known_in_any_spelling(name: str) -> None:
    assert REDACT.plain({name: "hunter2hunter2"}) == {name: HIDDEN}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "num_tokens",
            "max_tokens",
            "max_token",
            "tokenizer",
            "key_dim",
            "monkey",
            "token_embedding",
            "author",
            "keys",
        ),
        *(
            "pad_token_id",
            "eos_token",
            "vocab_tokens",
            "tokens_per_batch",
            "password_length",
            "tokens",
            "max_new_tokens",
        ),
        *(
            "key_padding_mask",
            "query_key_value",
            "num_key_value_heads",
            "sort_key",
            "cache_key",
            "public_key",
            "keyboard",
        ),
        *(
            "token_file",
            "api_key_env",
            "secret_name",
            "sessions",
            "session_name",
            "passes",
            "pass",
            "compass",
            "auth_type",
        ),
        *(
            "secretary",
            "tokenized",
            "prng_key",
            "authenticated",
            "TOKENIZERS_PARALLELISM",
            "SSH_AUTH_SOCK",
            "pin_memory",
        ),
    ],
)
@pytest.mark.parametrize("value", ["gpt2-medium", "model.layers.3", "/home/bob/keys", "9f86d081884c7d65", 512, 0.5])
def test_names_that_only_sound_like_secrets_hide_nothing(name: str, value: Any) -> None:
    assert REDACT.plain({name: value}) == {name: value}
    assert REDACT.text(f"{name}={value}") == f"{name}={value}"


def test_what_stands_for_a_secret_stays() -> None:
    given = {"token": "${HF_TOKEN}", "api_key": "$API_KEY", "password": None, "secret": "", "auth_token": False}
    assert REDACT.plain(given) == given
    assert REDACT.plain({"token": "<pad>", "credentials": {"type": "oauth2", "user": "bob"}}) == {
        "token": "<pad>",
        "credentials": {"type": "oauth2", "user": "bob"},
    }


def test_numbers_are_hidden_where_the_name_leaves_no_doubt() -> None:
    assert REDACT.plain({"password": 1234, "token": 123456789, "num_token": 3, "seed": 123456789}) == {
        "password": HIDDEN,
        "token": HIDDEN,
        "num_token": 3,
        "seed": 123456789,
    }


@pytest.mark.parametrize("length", [24, 32, 43, 64])
def test_random_words_are_told_from_names_and_checksums(length: int, source: Source) -> None:
    words = [source.of(BASE62, length) for _ in range(200)]
    assert sum(map(is_random, words)) >= 0.98 * len(words)
    assert not any(is_random(source.hex(length)) for _ in range(200))


# Values of the environment.


def test_secrets_of_the_environment_are_hidden_wherever_they_occur() -> None:
    redact = Redactor(
        secrets_of(
            {"DB_PASSWORD": "tr0ub4dor&3", "DATABASE_URL": "postgres://bob:c0rrect%20horse@db/x", "HOME": "/root"}
        )
    )
    assert redact.text("login as bob with tr0ub4dor&3 failed") == "login as bob with ••• failed"
    assert redact.text("GET /?q=tr0ub4dor%263") == "GET /?q=•••"
    assert redact.plain({"note": ["it was c0rrect horse"]}) == {"note": ["it was •••"]}
    assert redact.text("/root/tr0ub4dor") == "/root/tr0ub4dor"


def test_variables_without_a_secret_tell_none() -> None:
    harmless_variables = {
        "PWD": "/home/bob/project",
        "SSH_AUTH_SOCK": "/tmp/ssh-XXXX/agent.12",
        "XDG_SESSION_ID": "3",
        "DESKTOP_SESSION": "plasmawayland",
        "TOKENIZERS_PARALLELISM": "false",
        "DB_PASSWORD": "postgres",
        "API_TOKEN": "disabled",
        "API_KEY": "short",
        "KEY_FILE": "/etc/keys/some.pem",
        "GITHUB_TOKEN": "/run/secrets/github_token",
        "PATH": "/usr/bin:/bin",
    }
    assert secrets_of(harmless_variables) == frozenset()


# Any object at all.


@dataclasses.dataclass
class Settings:
    api_key: str
    lr: float = 0.1


class Colour(enum.Enum):
    RED = "red"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("password=hunter2")


class BrokenMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 1


def test_objects_are_said_without_their_secrets() -> None:
    secret = "winterPurple77"
    given = {
        "data class": Settings(api_key=secret),
        "namespace": argparse.Namespace(lr=0.1, token=secret),
        "simple": SimpleNamespace(password=secret),
        "holder": Holder(secret),
        "secret": Secret(secret),
        "array": np.arange(3),
        "set": {f"--x=postgres://a:{secret}@b/c"},
        "bytes": f"api_key={secret}".encode(),
        "enumeration": Colour.RED,
        "type": dict,
    }
    shown = REDACT.plain(given)
    assert secret not in json.dumps(shown)
    assert shown["data class"] == "Settings(api_key='•••', lr=0.1)"
    assert shown["holder"] == "Holder(user='bob', password='•••')"
    assert shown["array"] == [0, 1, 2]
    assert shown["enumeration"] == "Colour.RED"


def test_objects_that_cannot_say_what_they_are_lose_no_neighbour() -> None:
    loop: dict[str, Any] = {"lr": 0.1}
    loop["self"] = loop
    shown = REDACT.plain({"a": Broken(), "b": BrokenMapping(), "c": loop, "d": float("nan"), "e": 1})
    assert shown == {"a": "<Broken>", "b": "<BrokenMapping>", "c": {"lr": 0.1, "self": "…"}, "d": "NaN", "e": 1}


# Properties.

SCRAPS = st.sampled_from(
    [
        *("password", "token", "api_key", "--token", "Authorization", "auth", "key", "webhook", "dsn", "x", "lr"),
        *(
            "=",
            ":",
            ": ",
            " ",
            "==",
            "://",
            "@",
            "/",
            "?",
            "&",
            ";",
            ",",
            "\n",
            '"',
            "'",
            "\\",
            '\\"',
            "%22",
            "%3D",
            "%40",
        ),
        *("(", ")", "[", "]", "{", "}", "<", ">", "Bearer ", "Basic ", "-----BEGIN PRIVATE KEY-----", "•••", "hunter2"),
        *(
            "sk-abcdefgh12345678",
            "eyJhbGciOi.eyJzdWIiOi.x",
            "7fKq2ZpX9vLwT4mBs8Rd",
            "https://",
            "bob:pw@host.org",
            "-u ",
        ),
    ]
)
TEXTS = st.one_of(st.text(max_size=80), st.lists(SCRAPS, max_size=14).map("".join))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(TEXTS, st.integers(), st.none()), inner, max_size=5),
    ),
    max_leaves=20,
)


@given(TEXTS)
def test_a_text_that_was_redacted_stays_as_it_is(text: str) -> None:
    shown = REDACT.text(text)
    assert REDACT.text(shown) == shown


@given(VALUES)
def test_a_value_that_was_redacted_stays_as_it_is_and_is_json(value: Any) -> None:
    shown = REDACT.plain(value)
    assert REDACT.plain(shown) == shown
    assert strict_json.loads(strict_json.dumps(shown)) == shown


@given(VALUES)
def test_numbers_without_a_name_are_never_touched(value: Any) -> None:
    numbers = [item for item in [value] if isinstance(item, int | float)]
    assert REDACT.plain(numbers) == strict_json.plain(numbers)


HOSTILE = [
    *(
        "a",
        "a.",
        "a-",
        "://",
        "://@",
        "a:b@",
        "auth=",
        "auth=(",
        "token: ",
        "password=(",
        'token="',
        "%3A%2F%2F",
        "eyJ-",
    ),
    *("-----BEGIN PRIVATE KEY-----", "Bearer a", "Authorization: --a ", "key=a;", "-u (", "aB3/", "1.1a", "${", "\\"),
    *(
        "webhook=http://",
        "SG.aaaaaaaaaaaaaaaaaa",
        "token=\\",
        "sk-a",
        '"',
        "a=",
        "x" * 300 + " ",
        "[",
        "%40",
        "1234567890:AA",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE, ids=range(len(HOSTILE)))
def test_a_long_hostile_text_is_done_with(unit: str) -> None:
    """Anything worse than linear would take minutes for these."""
    text = unit * (100_000 // len(unit))
    assert len(REDACT.text(text)) <= len(text) + len(HIDDEN) * len(text)


def test_long_random_texts_are_done_with() -> None:
    chance = random.Random(3)
    for letters in (BASE62, string.printable, BASE62 + " " * 4):
        REDACT.text("".join(chance.choices(letters, k=100_000)))


def test_what_a_name_says_is_the_same_for_names_of_any_length() -> None:
    assert naming("a" * 10_000 + "_password") is Naming.HARMLESS
    assert naming("") is Naming.HARMLESS
    assert naming("password") is Naming.SECRET
