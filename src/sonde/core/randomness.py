"""Whether a word was drawn at random, as keys and tokens are, or made by people, as names are.

Letters of a name follow each other as in other names; those of a key follow each other anyhow. Of each pair of
neighbours the table below has the logarithm of how much likelier it is in a random word than in a name, and the sum
over a word is the evidence. It was counted over 33,000 names in the sources of PyTorch, Transformers, Lightning and
Keras. Hexadecimal numbers are random as well, and harmless nearly always (commits, checksums): they are not judged.
"""

import functools
import itertools
import re
from collections.abc import Mapping
from string import ascii_letters, digits
from types import MappingProxyType

_PIECE = re.compile(r"[A-Za-z0-9]+")
_HEX = re.compile(r"(?:[A-Za-z]{0,12}(?:[0-9a-f]{12,}|[0-9A-F]{12,})|(?:0x)?[0-9a-fA-F]{6,}|\d+)")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")

# A letter says log(random / name) = 0.3 times its place in the alphabet, minus 3. Rows are the first of two
# neighbours, columns the second: a to z in either case, then any digit.
_PAIRS = (
    "ulijqpkxjzpgihtkzghekltnjus",  # a
    "fpnodptrgmuepphpvjkojvuwoxu",  # b
    "gtmrftvglziissdqzkmgltwwpwu",  # c
    "irpibppueuzmkrjmxnkmksstqyt",  # d
    "jqiglmmtozshjgnkoegisnrkstu",  # e
    "iwrriiuzdzzhondoulnkjzvzozu",  # f
    "ionndnkjizvhkkkkxghnkswzoys",  # g
    "froodqsufztolngjpklhjsoukvs",  # h
    "knikkliwzwukidfkxnihvlzozky",  # i
    "fqvrbrzqgtnzpngnztkvhqzvvzu",  # j
    "llpmclrphyujpnlkzliomjhynzp",  # k
    "eqnlemnvfzshirglwpljlntukzt",  # l
    "fiqrfoqqhzvljnehzqknjnvyrzp",  # m
    "iphififpivoonninwrhfokuvpys",  # n
    "nmigmonsmrnjjdlkzekkinmqzxx",  # o
    "ftqofrvnjzqhppgjuejhhpyxmys",  # p
    "mtonslusmzmmnpzrrmnpbkeyzzr",  # q
    "fqjkenluhzmmhlgnrljinoqxmzv",  # r
    "iukqfnsjfzmokmijrogekqmzoys",  # s
    "hqknentjezvnmpikvgjjmpovmzs",  # t
    "jkkkionzmzrgjfsjzigdywyuvuu",  # u
    "gorrdsozdrzionioospoxtzzyxk",  # v
    "dupnevwjezplrjitqimryzqvzzv",  # w
    "krjqhorqhuoikspfvrpcsotoozn",  # x
    "mlmncoszkzxmjihfvmiiknortrv",  # y
    "esszatyqivvqzziyzwqwrkyvlny",  # z
    "nnlimkpsowupjnmlunnkqiqpzzg",  # 0
)
_LEAST, _UNIT = -3.0, 0.3
# The same of the case of two letters: from lower to lower, lower to upper, upper to lower, upper to upper.
_CASES = (-1.1, 1.4, 0.8, 0.3)
# Where only one case occurs, random words are of 36 characters, not of 62.
_ONE_CASE_LETTER, _ONE_CASE_DIGIT = -0.15, 0.54

# How long a word must be to be judged, and how much evidence is enough, by what it is made of. At these, 4% of random
# words of 20 characters, 2% of those of 24 and none of 20,000 of those of 32 pass for names; of the 167,000 words of 20
# characters and more in the sources of PyTorch, Transformers and Keras, three names pass for random (and 29 that are).
_MIXED = (20, 8.0)
_MIXED_LONG = (32, 0.0)  # the longer a name is, the more speaks against a key
_BROKEN = (24, 10.0)  # by - and _ as in base64 for addresses, + and / as in base64
_BROKEN_LONG = (36, 4.0)
_ONE_CASE = (24, 16.0)
_ONE_CASE_LONG = (32, 8.0)
_LETTERS = (28, 16.0)
_LEAST_PIECE = 8  # of a broken one: Q4_K_M/IQ2_XXS is a name


def is_random(word: str) -> bool:
    """Whether a word of letters, digits, `-`, `_`, `+`, `/` and `=` looks like a key.

    Example:
        >>> is_random("7fKq2ZpX9vLwT4mBs8Rd"), is_random("Qwen2VL7BInstructGPTQInt4"), is_random("9f86d081884c7d659a2f")
        (True, False, False)
    """
    pieces = [piece for piece in _PIECE.findall(word) if not _HEX.fullmatch(piece)]
    if any(_is_random_piece(piece) for piece in pieces):
        return True
    if len(pieces) < 2 or max(map(len, pieces)) < _LEAST_PIECE:
        return False
    joined = "".join(pieces)
    length, enough = _BROKEN_LONG if len(joined) >= _BROKEN_LONG[0] else _BROKEN
    is_mixed = _is_mixed(joined) and any(map(str.isdigit, joined))
    return len(joined) >= length and is_mixed and sum(evidence(piece, mixed=True) for piece in pieces) > enough


def evidence(piece: str, *, mixed: bool) -> float:
    """How much letters and digits speak for a random word; above 0 where they do.

    Args:
        piece: Letters and digits of ASCII.
        mixed: Whether letters of both cases may occur.
    """
    of_pairs = _evidence_of_pairs(mixed)
    return sum(of_pairs[first + second] for first, second in itertools.pairwise(piece))


@functools.cache
def _evidence_of_pairs(mixed: bool) -> Mapping[str, float]:
    both = ascii_letters + digits
    return MappingProxyType({first + second: _of_pair(first, second, mixed) for first in both for second in both})


def _of_pair(first: str, second: str, mixed: bool) -> float:
    found = _LEAST + _UNIT * (ord(_PAIRS[_place(first)][_place(second)]) - ord("a"))
    if not mixed:
        return found + (_ONE_CASE_DIGIT if second.isdigit() else _ONE_CASE_LETTER)
    if first.isdigit() or second.isdigit():
        return found
    return found + _CASES[2 * first.isupper() + (first.isupper() ^ second.isupper())]


def _is_random_piece(piece: str) -> bool:
    has_digits = any(map(str.isdigit, piece))
    mixed = _is_mixed(piece)
    if not mixed and (not has_digits or piece.isdigit()):
        return False
    short, long = (_MIXED, _MIXED_LONG) if mixed else (_ONE_CASE, _ONE_CASE_LONG)
    length, enough = _LETTERS if not has_digits else long if len(piece) >= long[0] else short
    if len(piece) < length or _ULID.fullmatch(piece) or _is_alphabet(piece):
        return False
    return evidence(piece, mixed=mixed) > enough


def _is_mixed(word: str) -> bool:
    return word != word.lower() and word != word.upper()


def _is_alphabet(piece: str) -> bool:
    """Whether most characters follow their neighbour, as in an alphabet."""
    return 2 * sum(ord(b) - ord(a) == 1 for a, b in itertools.pairwise(piece)) > len(piece)


def _place(letter: str) -> int:
    return 26 if letter.isdigit() else ord(letter.lower()) - ord("a")
