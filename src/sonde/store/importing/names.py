"""What other people call things, and what they are called here: the one table of foreign names.

A name is read as words: `Loss/train`, `train_loss`, `trainLoss` and `training-loss` are all "train" and "loss". A word
at either end that says "on held-out data" makes it a `val/` series; words that say how it was averaged are left out.
"""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from sonde.core.errors import FormatError
from sonde.core.tags import check_tag, clean_name

# Our tag: the words that others use for it. A line more is a name more that is understood.
_QUANTITIES: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss", "total loss", "loss total", "cross entropy", "cross entropy loss", "objective", "cost"),
    "loss/ema": ("loss ema", "loss train ema", "ema loss", "loss smooth", "smooth loss", "loss smoothed"),
    "lr": ("lr", "learning rate", "learningrate"),
    "grad/norm": (
        "grad norm",
        "gradient norm",
        "gradients norm",
        "gradients norm global",
        "gradients global norm",
        "gradients total norm",
        "gradients norm total",
        "grad norm global",
        "global grad norm",
        "grad norm total",
        "total grad norm",
        "total norm",
        "grad 2.0 norm total",
        "grad 2 norm total",
        "gnorm",
    ),
    "weight/norm": (
        "weight norm",
        "weights norm",
        "param norm",
        "params norm",
        "parameter norm",
        "parameters norm global",
    ),
    "update/ratio": (
        "update ratio",
        "updates ratio",
        "updates global ratio",
        "optimization update ratio",
        "update to weight ratio",
    ),
    "throughput/samples_per_s": ("samples per sec", "samples per second", "performance samples per sec"),
    "throughput/tokens_per_s": ("tokens per sec", "tokens per second", "performance tokens per sec"),
    "epoch": ("epoch", "epochs", "current epoch", "trainer epoch"),
    "accuracy": ("accuracy", "acc", "acc 1", "acc1", "top 1", "top1", "top 1 accuracy", "accuracy score"),
    "perplexity": ("perplexity", "ppl"),
}
_TAG_OF = {words: tag for tag, several in _QUANTITIES.items() for words in several}

# The same of single layers: a pattern, and the tag. In it {0} is what the pattern took for the layer, {dotted} the same
# in torch's spelling where somebody wrote slashes for its dots (TensorBoard groups by them), {1} the statistic.
_WHOLE = "global|total|all"
_LAYERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), tag)
    for pattern, tag in (
        (r"grad_\d+(?:\.\d+)?_norm[/.](.+)", "grad/norm@{0}"),
        (r"Gradients/per_layer/(.+)/(norm|mean|std)", "grad/{1}@{0}"),
        (r"Updates/per_layer/(.+)/(ratio)", "update/{1}@{0}"),
        (r"Updates/per_layer/(.+)/(update|weight)_norm", "{1}/norm@{0}"),
        (rf"(?:train/)?grad(?:ient)?s?[_/]?norms?/(?!(?:{_WHOLE})$)(.+)", "grad/norm@{dotted}"),
        (
            rf"(?:train/)?grad(?:ient)?s?/(?!(?:{_WHOLE})/)(.+)/(?:grad_|l2_)?(norm|rms|mean|std|min|max|absmax)",
            "grad/{1}@{dotted}",
        ),
        (rf"(?:train/)?updates?/(?!(?:{_WHOLE})/)(.+)/(?:update_)?(ratio|norm|absmax)", "update/{1}@{dotted}"),
        (
            rf"(?:train/)?(?:weight|param(?:eter)?)s?/(?!(?:{_WHOLE})/)(.+)/(?:l2_)?(norm|rms|mean|std|min|max|absmax)",
            "weight/{1}@{dotted}",
        ),
    )
)

_TRAINING = frozenset({"train", "training", "trn"})
# The first of those that are there is the one to select models by; the last is for the end.
_HELD_OUT = ("val", "valid", "validation", "eval", "evaluation", "dev", "test", "testing")
_AVERAGED = frozenset({"epoch", "step", "batch", "iter", "iteration", "avg", "average", "mean", "running"})
_OF_OPTIMIZERS = frozenset(
    {"optimizer", "optimization", "optim", "opt", "group", "pg", "0", "pg0", "pg1", "group0"}
    | {"adam", "adamw", "sgd", "lion", "muon", "rmsprop", "adagrad", "adafactor"}
)
_OWN_WITH_PLACE = frozenset({"loss", "lr"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the names of a log became.

    Attributes:
        tags: Our tag of every name.
        known: The names that the table, or the caller, knew.
    """

    tags: Mapping[str, str]
    known: frozenset[str] = field(default_factory=frozenset)


def assign(counts: Mapping[str, int], given: Mapping[str, str] | None = None) -> Names:
    """A tag for each name of a log, each tag once.

    Of several names that mean one tag, the one with the most numbers gets it, since the others are its averages; of
    held-out losses the one that says `epoch`, then the one of the validation set before that of the test set. Those
    that go without, and names that nobody knows, are kept under a tag as near to the name as the grammar allows.

    Args:
        counts: How many numbers each name has.
        given: Tags by name, which come before the table.

    Raises:
        FormatError: A given tag does not follow the grammar, is given twice, or the log has no such name.

    Example:
        >>> assign({"train/loss": 100, "train_loss": 1, "eval/loss": 5, "Mood (1-5)": 5}).tags
        {'train/loss': 'loss', 'eval/loss': 'val/loss', 'train_loss': 'train_loss', 'Mood (1-5)': 'Mood_1-5'}
    """
    given = given or {}
    tags: dict[str, str] = {}
    for name, tag in given.items():
        if name not in counts:
            raise FormatError(f"the log has no series {name!r} to map; it has {_few(counts)}.")
        check_tag(tag)
        if tag in tags.values():
            raise FormatError(f"{tag!r} is given to two names; give it to one.")
        tags[name] = tag
    meant: dict[str, list[tuple[tuple[bool, int, int], str]]] = {}
    for name, count in counts.items():
        known_as = meaning(name)
        if name not in given and known_as is not None and known_as not in given.values():
            meant.setdefault(known_as, []).append(((*_held_out_rank(name), count), name))
    for tag, names in meant.items():
        tags[max(names, key=lambda ranked: ranked[0])[1]] = tag
    known, taken = frozenset(tags), set(tags.values())
    numbers: dict[str, int] = {}
    for name in counts:
        if name not in tags:
            tags[name] = _free(safe(name), taken, numbers)
            taken.add(tags[name])
    return Names(tags=tags, known=known)


def meaning(name: str) -> str | None:
    """Our tag of a foreign name; None where the table does not know it.

    Example:
        >>> [meaning(name) for name in ("Loss/train", "validation_loss_epoch", "lr-AdamW/pg1", "eval/bleu", "mood")]
        ['loss', 'val/loss', 'lr', 'val/bleu', None]
    """
    for pattern, tag in _LAYERS:
        match = pattern.fullmatch(name)
        if match:
            place, *rest = match.groups()
            dotted = place if "." in place else place.replace("/", ".")
            parts = clean_name(place.strip()), *map(str.lower, rest)
            return _allowed(tag.format(*parts, dotted=clean_name(dotted.strip(" ."))))
    path, at, _ = name.partition("@")
    if at and ("/" in path or path in _OWN_WITH_PLACE):
        return _allowed(name)
    words, held_out = _read(name)
    told = " ".join(words)
    if "lr" in words or "learning rate" in told:
        left = [word for word in words if word not in _OF_OPTIMIZERS]
        told = " ".join(left)
    known = _TAG_OF.get(told)
    if held_out:
        if name.startswith("evaluation/") and known is None:
            return None  # the family `evaluation/` is ours
        return f"val/{(known or safe('_'.join(words))).replace('/', '_')}" if words else None
    if known == "accuracy" and _says_training(name):
        return None  # of the training: it is not what `accuracy` without a word says
    return known


def safe(name: str) -> str:
    """A name as a tag: what the grammar does not allow becomes `_`.

    Example:
        >>> safe("top-5 acc (%)"), safe("/weird//path/"), safe("precision@5")
        ('top-5_acc', 'weird/path', 'precision_at_5')
    """
    text = re.sub(r"[^A-Za-z0-9_.+/-]+", "_", name.strip().replace("@", "_at_"))
    parts = [re.sub(r"^[.+-]+|_+$", "", part) for part in text.split("/")]
    return "/".join(part for part in parts if part)[:500] or "unnamed"


def _allowed(tag: str) -> str | None:
    try:
        check_tag(tag)
    except FormatError:
        return None
    return tag


def _read(name: str) -> tuple[list[str], bool]:
    """The words of a name without those that say which data or which average, and whether the data were held out."""
    words, held_out = _words(name), False
    while len(words) > 1:
        for end in (0, -1):
            if words[end] in _HELD_OUT:
                held_out = True
            elif words[end] not in _TRAINING and words[end] not in _AVERAGED:
                continue
            del words[end]
            break
        else:
            break
    return words, held_out


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9.]+|(?<!\d)\.|\.(?!\d)", apart) if word]


def _says_training(name: str) -> bool:
    return not _TRAINING.isdisjoint(_words(name))


def _held_out_rank(name: str) -> tuple[bool, int]:
    words = _words(name)
    sets = [_HELD_OUT.index(word) for word in words if word in _HELD_OUT]
    return (bool(sets) and "epoch" in words, -min(sets, default=0))


def _free(tag: str, taken: Set[str], numbers: dict[str, int]) -> str:
    free = tag
    while free in taken:
        # From the last one on: of a hundred thousand names, all may mean the same tag.
        numbers[tag] = numbers.get(tag, 1) + 1
        free = f"{tag}_{numbers[tag]}"
    return free


def _few(names: Iterable[str]) -> str:
    known = sorted(names)
    return ", ".join(map(repr, known[:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
