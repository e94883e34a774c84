"""Secrets that are known by their looks, wherever they stand: tokens of services, private keys, random words."""

import base64
import binascii
import re

from sonde.core.randomness import evidence, is_random
from sonde.core.secret import HIDDEN

_B = r"[A-Za-z0-9_-]"
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    + "|".join(
        (
            rf"sk-(?!learn)(?={_B}{{0,40}}\d){_B}{{16,}}",  # OpenAI, Anthropic, DeepSeek, OpenRouter
            r"gh[pousr]_[A-Za-z0-9]{16,}",
            r"github_pat_\w{16,}",
            rf"gl(?:pat|dt|rt|soat|ptt|ft|cbt|imt|agent|oas)-{_B}{{16,}}",
            r"hf_[A-Za-z0-9]{16,}",
            r"api_org_[A-Za-z0-9]{20,}",
            r"xox[a-z]-[A-Za-z0-9-]{10,}",
            r"xapp-\d-[A-Za-z0-9-]{10,}",
            r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])",
            rf"AIza{_B}{{30,}}",
            rf"ya29\.{_B}{{10,}}",
            rf"GOCSPX-{_B}{{20,}}",
            # JSON web tokens; each beginning would be followed to the end of a long word, so there is one a word.
            rf"(?<![_-])eyJ{_B}{{6,}}\.{_B}{{4,}}(?:\.{_B}*){{0,3}}",
            r"npm_[A-Za-z0-9]{30,}",
            rf"pypi-{_B}{{40,}}",
            rf"SG\.{_B}{{16,64}}\.{_B}{{16,}}",
            r"(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}",
            r"whsec_[A-Za-z0-9+/]{20,}=*",
            r"do[opr]_v1_[a-f0-9]{32,}",
            r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
            rf"sq0[a-z]{{3}}-{_B}{{20,}}",
            r"key-[a-f0-9]{32}",  # Mailgun
            r"(?:AC|SK)[a-f0-9]{32}(?![A-Za-z0-9])",  # Twilio
            rf"\d{{8,10}}:AA{_B}{{30,}}",  # bots of Telegram
            rf"[MNO][A-Za-z0-9_-]{{23,27}}\.{_B}{{6}}\.{_B}{{27,}}",  # bots of Discord
            rf"dckr_pat_{_B}{{20,}}",
            r"dapi[a-f0-9]{32}",
            rf"nvapi-{_B}{{20,}}",
            r"(?:r8|gsk|lin_api|ntn|secret|figd|sbp|phc|phx|glsa|sntrys|sntryu|dp\.[a-z]{2})_[A-Za-z0-9_]{32,}",
            r"(?:pplx|xai|tgp|pul|fw|csk|cpk|jina|voyage)-[A-Za-z0-9_-]{30,}",
            r"lsv2_[a-z]{2}_[a-f0-9_]{30,}",
            r"ATATT3[A-Za-z0-9_=-]{30,}",
            rf"tskey-[a-z]+-{_B}{{10,}}",
            r"AGE-SECRET-KEY-1[0-9A-Z]{40,}",
            rf"hv[sbr]\.{_B}{{20,}}",
            r"PMAK-[a-f0-9-]{40,}",
            r"local-[a-f0-9]{40}",  # W&B on one's own server
        )
    )
    + ")"
)
_WEBHOOKS = re.compile(
    r"(?i:(https?://(?:hooks\.slack\.com|[\w.-]{0,64}\.?discord(?:app)?\.com/api/webhooks|[\w-]{1,64}\.webhook\.office\.com"
    r"|outlook\.office(?:365)?\.com/webhook|api\.telegram\.org|hooks\.zapier\.com|maker\.ifttt\.com"
    r"|chat\.googleapis\.com/v1/spaces|[\w.-]{1,64}/hooks|oapi\.dingtalk\.com/robot"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot|qyapi\.weixin\.qq\.com/cgi-bin/webhook))/)[^\s\"'<>`\\]+"
)
_SCHEMES = re.compile(r"(?i:\b(Bearer|Basic|Token|ApiKey|Digest)[ \t]{1,4})([A-Za-z0-9._~+/-]{8,}={0,2})")
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY[A-Z ]{0,16}-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY[A-Z ]{0,16}-----")
_RUN = re.compile(r"[A-Za-z0-9+/_=~-]{20,}")
_CHECKSUM = re.compile(r"(?i:(?:sha|md)-?\d{1,3}[-:=])$")
_CHECKSUMMED = re.compile(r"(?i:(?:sha|md)\d{1,3}-)")
_JUDGED = 512  # characters of a run: what goes on longer is of one kind


def hide_keys(text: str) -> str:
    r"""The text without private keys in their armour.

    Example:
        >>> hide_keys("a -----BEGIN RSA PRIVATE KEY-----\nMIIE…\n-----END RSA PRIVATE KEY----- b")
        'a ••• b'
    """
    if "PRIVATE KEY" not in text:
        return text
    shown, at = [], 0
    while begin := _BEGIN.search(text, at):
        end = _END.search(text, begin.end())
        shown += [text[at : begin.start()], HIDDEN]
        at = len(text) if end is None else end.end()
    return "".join([*shown, text[at:]])


def hide_tokens(text: str) -> str:
    """The text without tokens that say whose they are.

    Example:
        >>> hide_tokens("pushed with ghp_16C7e42F292c6912E7710c838347Ae178B4a to https://hooks.slack.com/services/T1/B2/x")
        'pushed with ••• to https://hooks.slack.com/•••'
        >>> hide_tokens("Authorization: Basic Ym9iOmh1bnRlcjI=")
        'Authorization: Basic •••'
    """
    text = _WEBHOOKS.sub(rf"\1/{HIDDEN}", text) if "://" in text else text
    return _SCHEMES.sub(_of_scheme, _TOKENS.sub(HIDDEN, text))


def hide_random(text: str) -> str:
    """The text without words that look drawn at random; checksums, commits and identifiers in hex stay.

    Example:
        >>> hide_random("runs/7fKq2ZpX9vLwT4mBs8Rd/model.pt at 1d9131e0f2a5c4b3d2e1f0a9b8c7d6e5f4a3b2c1")
        'runs/•••/model.pt at 1d9131e0f2a5c4b3d2e1f0a9b8c7d6e5f4a3b2c1'
    """
    return _RUN.sub(_of_run, text)


def _of_scheme(found: re.Match[str]) -> str:
    scheme, word = found[1], found[2]
    if scheme.lower() == "basic":
        is_secret = _is_login(word)
    else:
        is_secret = any(map(str.isdigit, word)) and any(map(str.isalpha, word)) and not word.startswith("-")
    return found[0][: -len(word)] + HIDDEN if is_secret else found[0]


def _is_login(word: str) -> bool:
    """Whether it is base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(word + "=" * (-len(word) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _of_run(found: re.Match[str]) -> str:
    run = found[0]
    if _CHECKSUMMED.match(run) or _CHECKSUM.search(found.string, max(0, found.start() - 10), found.start()):
        return run
    if len(run) > _JUDGED:
        return HIDDEN if is_random(run[:_JUDGED]) else run
    if not is_random(run):
        return run
    parts = run.split("/")
    hidden = [is_random(part) for part in parts]
    if not any(hidden):
        return HIDDEN
    # Beside a random part of base64, which has slashes too, are others that no person made.
    for places in (range(1, len(parts)), range(len(parts) - 2, -1, -1)):
        for place in places:
            beside = place - 1 if places.step > 0 else place + 1
            hidden[place] = hidden[place] or (hidden[beside] and _is_no_name(parts[place]))
    shown: list[str] = []
    for part, is_hidden in zip(parts, hidden, strict=True):
        if not (is_hidden and shown and shown[-1] == HIDDEN):
            shown.append(HIDDEN if is_hidden else part)
    return "/".join(shown)


def _is_no_name(part: str) -> bool:
    pieces = re.findall("[A-Za-z0-9]+", part)
    return sum(evidence(piece, mixed=True) for piece in pieces) > 0 or not pieces
