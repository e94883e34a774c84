"""The names of series: `path` or `path@where`, for example `loss` or `grad/norm@blocks.3.attn.qkv.weight`.

The path says what was measured: words of letters, digits, `_`, `.`, `-` and `+`, joined by `/`. The part
behind the first `@` says where: the name of a parameter or module as PyTorch gives it, any text without
control characters.
"""

import re
from dataclasses import dataclass

from sonde.core.errors import FormatError

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WHOLE = re.compile(f"{_PATH.pattern}(?:@[^{_CONTROL.pattern[1:-1]}]+)?")
_MAX_CHARS = 1024
_MAX_NAME_CHARS = 960  # which leaves room for what stands before `@`

# What torch.compile, DDP/DataParallel, activation checkpointing and FSDP1 insert into parameter names. Runs
# with and without them must compare, so they are left out of tags.
_WRAPPERS = frozenset({"_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_forward_module"})


@dataclass(frozen=True, slots=True)
class Tag:
    """A series' name in its two parts.

    Example:
        >>> Tag("grad/norm", "blocks.3.attn.qkv.weight")
        Tag(path='grad/norm', where='blocks.3.attn.qkv.weight')
        >>> str(Tag("loss"))
        'loss'
    """

    path: str
    where: str | None = None

    def __str__(self) -> str:
        return self.path if self.where is None else f"{self.path}@{self.where}"


def parse_tag(text: str) -> Tag:
    """The two parts of a tag.

    Raises:
        FormatError: the text does not follow the grammar above.

    Example:
        >>> parse_tag("grad/norm@blocks.3.weight").where
        'blocks.3.weight'
    """
    path, at, where = text.partition("@")
    if not _PATH.fullmatch(path):
        raise FormatError(
            f"tag {text!r} must begin with words of letters, digits, '_', '.', '-', '+' joined by '/', "
            f"for example 'loss' or 'grad/norm@layer.weight'; got the path {path!r}."
        )
    if at and not where:
        raise FormatError(f"tag {text!r} ends in '@'; name a parameter or module behind it, or leave it out.")
    if _CONTROL.search(where):
        raise FormatError(f"tag {text!r} has a control character behind '@'; use printable text.")
    if len(text) > _MAX_CHARS:
        raise FormatError(f"tag {text[:40]!r}… has {len(text)} characters; at most {_MAX_CHARS} are allowed.")
    return Tag(path, where if at else None)


def check_tag(text: str) -> None:
    """Raise `FormatError` where `parse_tag` would; fast enough for the million tags of a large model."""
    if not _WHOLE.fullmatch(text) or len(text) > _MAX_CHARS:
        parse_tag(text)


def is_name(name: object) -> bool:
    r"""Whether a parameter or module of this name can be recorded: whether it may stand behind `@` in all our tags.

    Example:
        >>> is_name("blocks.3.attn.qkv.weight"), is_name("two\nlines"), is_name("x" * 1000), is_name(3)
        (True, False, False, False)
    """
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS and not _CONTROL.search(name)


def clean_name(name: str) -> str:
    """A parameter's or module's name without what wrappers inserted.

    Example:
        >>> clean_name("_orig_mod.module.blocks.0._checkpoint_wrapped_module.attn.weight")
        'blocks.0.attn.weight'
    """
    if "module" not in name and "_orig_mod" not in name:
        return name
    words = [word for word in name.split(".") if word not in _WRAPPERS]
    return ".".join(words) or name
