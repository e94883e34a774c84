"""Whether a name says that what it names is a secret: of a setting, an option, a header, a variable."""

import enum
import functools
import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_MOST_CHARACTERS = 256  # a longer name is none


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PASSWORDS = (
    "password passwords passwort kennwort passwd passwds passphrase passphrases passcode pwd pw userpwd htpasswd "
    "contraseña senha пароль 密码 パスワード 비밀번호"
)
_SECRETS = _set(
    f"{_PASSWORDS} secret secrets credential credentials cred creds authorization bearer cookie cookies jwt apikey "
    "apikeys authkey authtoken sessionid sshkey"
)
# Written as one word, these end a name: `PGPASSWORD`, `dbpassword`, `ACCESSTOKEN`, `clientsecret`.
_ENDINGS = (
    *("password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey", "privatekey", "accountkey"),
    *("authtoken", "accesstoken", "apitoken", "refreshtoken", "bearertoken", "sessiontoken", "bottoken", "usertoken"),
    *("encryptionkey", "signingkey", "accesskeyid", "authorization", "mysqlpwd"),
)
_DOUBTFUL = _set("auth oauth authentication session sid pat sas otp signature sig pin tok")
_ADDRESSES = frozenset({"webhook", "webhooks", "hook"})
_LOGINS = frozenset({"dsn", "connstr", "connectionstring"})

# `api_key` and `wandb_key` are secrets; `sort_key`, `cache_key` and `public_key` are not.
_OF_KEYS = _set(
    "api access secret private auth encryption decryption signing service account storage subscription license licence "
    "master shared ssh rsa dsa ecdsa pgp gpg aes hmac deploy deployment server client app application consumer admin "
    "root session webhook write ingest integration instrumentation functions host wandb openai anthropic comet "
    "neptune azure aws gcp google gemini hf huggingface sendgrid stripe twilio mailgun datadog dd sentry cohere "
    "mistral together replicate groq deepseek openrouter kaggle clearml pinecone weaviate serpapi tavily langchain "
    "langsmith langfuse elevenlabs deepgram pagerduty opsgenie newrelic algolia firebase cloudflare linode vultr "
    "runpod modal lambda slack discord telegram github gitlab roboflow scale labelbox determined polyaxon dagshub "
    "databricks aim swanlab mlflow bot token"
)
_NOT_OF_KEYS = _set(
    "public cache sort primary foreign partition content commit data file hash dataset group index lookup row column "
    "dedup idempotency routing object query prng rng random seed checksum"
)
# The words beside which `token` is a piece of text, or a number of them: `pad_token`, `max_token`, `tokens_per_step`.
_OF_TEXT = _set(
    "bos eos pad unk sep cls mask special sot eot eod eom image img video audio start end first last next prev "
    "previous prefix suffix middle fim boi eoi think stop newline space word sub subword max min num n per register "
    "class dist distill distillation query target source src tgt lang language patch visual vision text placeholder "
    "separator decoder encoder forced extra each this input output prompt completion non multi single by blank null "
    "empty padding ignore soft virtual learnable learned global local memory control action state speaker time "
    "timestamp role tool assistant system cost price usd object mean avg average total count unique rare special "
    "begin beginning ending eoc boc eoh soh bot_text bob eob summary pooling pooled concat vocab begin_suppress loss "
    "draft accepted sampled generated greedy top best worst ms s seconds"
)
_OF_TOKENS = _set(
    "api auth access refresh bearer secret hf hub bot oauth personal github gitlab slack wandb session csrf jwt "
    "registration deploy user"
)
_OF_PASSES = _set(
    "db database smtp imap mail email user mysql pg postgres postgresql redis mongo mongodb ftp sftp root admin ssh "
    "sudo login http https proxy ldap vnc amqp rabbitmq elastic neo4j clickhouse registry docker git"
)
_NO_TOKENS = frozenset({"tokenizer", "tokenizers", "tokenize"})
# What may follow without changing what it is: `password_2`, `token_value`, `secret_key_prod`, `auth_header`.
_AFTER = _set(
    "value values string str text raw plain plaintext hash b64 base64 encoded header headers pem prod production dev "
    "staging live new old current primary secondary main backup base v default override content data json phrase"
)
# What is said *about* a secret: its length, the file or the variable that holds it.
_ABOUT = _set(
    "length len file files filename path paths dir directory folder env environ variable var name names type types "
    "field fields count num size min max policy required enabled disabled expiry expires expiration ttl timeout "
    "timeouts url uri host hostname endpoint port provider backend manager store storage scope scopes method mode "
    "scheme class cls embedding embeddings embed id ids index idx rate limit limits version protected less free "
    "strength prefix suffix format encoding algorithm bus sock socket address agent info user username users login "
    "module layer weight bias dim dropout mask cache state error errors s ms seconds at by from region profile"
)


class Naming(enum.Enum):
    """What a name says about what it names."""

    HARMLESS = enum.auto()
    DOUBTFUL = enum.auto()
    """A secret where it looks like one: `auth: basic`, `auth: 7fK2…`."""
    SECRET = enum.auto()
    TOKEN = enum.auto()
    """A secret, unless it is a number: some count tokens in the singular."""
    ADDRESS = enum.auto()
    """An address whose path is the secret."""
    LOGIN = enum.auto()
    """An address with a login in it, or else a secret."""


_SWITCHES = _set("use no has is with require requires enable disable need needs skip allow trust show hide")


@functools.lru_cache(maxsize=4096)
def naming(name: str) -> Naming:
    """What a name says; in any case, camel case included, with any separators, the last part of a dotted one.

    Example:
        >>> [naming(name).name for name in ("WANDB_API_KEY", "dbPassword", "trainer.logger.token", "x-api-key")]
        ['SECRET', 'SECRET', 'TOKEN', 'SECRET']
        >>> {naming(name).name for name in ("monkey", "num_tokens", "pad_token", "key_dim", "author", "token_file")}
        {'HARMLESS'}
    """
    said = _naming(name)
    first = _words(name[:_MOST_CHARACTERS])[:1]
    # `--use-auth-token` is a switch, and was an option of Hugging Face's that took the token.
    is_switch = said in (Naming.SECRET, Naming.TOKEN) and first and first[0] in _SWITCHES
    return Naming.DOUBTFUL if is_switch else said


def _naming(name: str) -> Naming:
    if not 0 < len(name) <= _MOST_CHARACTERS:
        return Naming.HARMLESS
    parts = [words for part in re.split(r"[./\[\]:]+", name) if (words := _words(part))]
    while len(parts) > 1 and all(word in _AFTER for word in parts[-1]):
        parts.pop()  # `db.password.value`
    if not parts:
        return Naming.HARMLESS
    words = parts[-1]
    while len(words) > 1 and words[-1] in _AFTER:
        words = words[:-1]
    head, before = words[-1], words[-2] if len(words) > 1 else ""
    if head in ("key", "keys"):
        return _key(before, parts)
    if head in ("token", "tokens"):
        return _token(head, words[:-1], parts)
    if head in _ADDRESSES or (before in _ADDRESSES and head in ("url", "uri", "address", "endpoint")):
        return Naming.ADDRESS
    if head in _LOGINS or (head in ("connection", "conn") and words is not parts[-1]):
        return Naming.LOGIN
    if head == "pass":  # a training has passes too
        return Naming.SECRET if before in _OF_PASSES else Naming.DOUBTFUL
    if head == "id" and (words[-3:-1] == ["access", "key"] or before == "session"):
        return Naming.SECRET
    if head == "pat" and before in _OF_KEYS:
        return Naming.SECRET
    if head in _SECRETS or head.endswith(_ENDINGS):
        return Naming.SECRET
    if head in _DOUBTFUL:
        return Naming.DOUBTFUL
    if head not in _ABOUT and any(_is_named(words[:end]) for end in range(1, len(words))):
        return Naming.DOUBTFUL  # `api_key_openai`, `token_github`
    return Naming.HARMLESS


def is_about(name: str) -> bool:
    """Whether a name among those of a secret is that of something else: its type, its user, the file it is in."""
    return bool(words := _words(name)) and words[-1] in _ABOUT


def is_plural(name: str) -> bool:
    """Whether several values may follow the option of this name."""
    return name.lower().endswith("s")


def _words(part: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(part)]


def _key(before: str, parts: list[list[str]]) -> Naming:
    if before in _OF_KEYS or (not before and len(parts) > 1 and parts[-2][-1] in _OF_KEYS):
        return Naming.SECRET
    return Naming.HARMLESS if before in _NOT_OF_KEYS else Naming.DOUBTFUL


def _token(head: str, before: list[str], parts: list[list[str]]) -> Naming:
    if head == "tokens":
        return Naming.TOKEN if before and before[-1] in _OF_TOKENS else Naming.HARMLESS
    if before:
        return Naming.HARMLESS if not _OF_TEXT.isdisjoint(before) else Naming.TOKEN
    above = parts[-2] if len(parts) > 1 else []  # `tokenizer.token` is a piece of text
    return Naming.HARMLESS if not (_OF_TEXT | _NO_TOKENS).isdisjoint(above) else Naming.TOKEN


def _is_named(words: list[str]) -> bool:
    """Whether these words, with others behind them, name a secret beyond doubt."""
    head, before = words[-1], words[-2] if len(words) > 1 else ""
    if head == "key":
        return before in _OF_KEYS
    if head == "token":
        return before in _OF_TOKENS or not before
    return head in _SECRETS or head.endswith(_ENDINGS)
