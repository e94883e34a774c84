"""The logits of an attention: which of them are looked at, and what is told of them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MOST_QUERIES = 64
_MOST_ENTRIES = 4
_MOST_HEADS = 256
_MOST_KEYS = 2**25  # numbers of them in float32 at once: 128 MB

# Masks are written as -inf, the smallest float, -1e9 or -1e4, and are added to logits; real logits stay far above.
_SHUT = -5000.0


def most_logits(device: torch.device) -> int:
    """How many logits are looked at: on a GPU 32 MB in float32 (and four times that for a moment), on a CPU 10 ms."""
    return 2**23 if device.type == "cuda" else 2**20


def _with_heads(tensor: Tensor) -> Tensor:
    """With a dimension for the batch and one for heads."""
    return tensor[(None,) * max(0, 4 - tensor.dim())]


def _spread(size: int, most: int) -> slice:
    """At most so many of `size` places, evenly spread, the last one among them."""
    stride = -(-size // most)
    return slice((size - 1) % stride, None, stride)


def _sampled(shape: Sequence[int], device: torch.device) -> tuple[slice, slice, slice]:
    """Which entries of the batch, which heads and which queries of (batch, …, heads, queries, keys) are looked at."""
    batch, *others, heads, queries, keys = shape
    num_heads = min(heads, _MOST_HEADS)
    most = most_logits(device) // (math.prod(others) * num_heads * keys)
    entries = min(_MOST_ENTRIES, max(1, most // min(queries, _MOST_QUERIES)))
    rows = min(_MOST_QUERIES, max(1, most // min(batch, entries)))
    return _spread(batch, entries), _spread(heads, num_heads), _spread(queries, rows)


def of_queries(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The logits of `scaled_dot_product_attention`, (entries, heads, queries, keys); -inf where a key is shut out."""
    query, key = _with_heads(query), _with_heads(key)
    groups = query.size(-3) // key.size(-3) if enable_gqa else 1
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])  # type: ignore[no-untyped-call]
    heads = max(query.size(-3), key.size(-3))
    shape = (*batch, heads, query.size(-2), key.size(-2))
    entries, some_heads, queries = _sampled(shape, query.device)
    some_heads = slice(None) if enable_gqa else some_heads

    def sample(tensor: Tensor, rows: slice, num_heads: int = heads) -> Tensor:
        whole = tensor.expand(*batch, num_heads, *tensor.shape[-2:])
        return whole[entries][..., some_heads, rows, :].flatten(0, -4)

    keys = sample(key, slice(None), heads // groups)
    rows = sample(query, queries).float() * (query.size(-1) ** -0.5 if scale is None else scale)
    num_entries, num_heads, num_rows, width = rows.shape
    rows = rows.reshape(num_entries, num_heads // groups, groups * num_rows, width)  # by the keys that heads share
    at_once = max(1, _MOST_KEYS // keys[:, 0].numel())
    pairs = zip(torch.split(rows, at_once, 1), torch.split(keys, at_once, 1), strict=True)
    parts = [q @ k.float().mT for q, k in pairs]
    logits = (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).reshape(num_entries, num_heads, num_rows, -1)
    if is_causal:
        places = torch.arange(key.size(-2), device=logits.device)
        own = torch.arange(queries.start, query.size(-2), queries.step, device=logits.device)
        logits = logits.masked_fill(places > own[:, None], -torch.inf)
    if attn_mask is not None:
        mask = sample(attn_mask.expand(shape), queries)
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else logits + mask.float()
    return logits


def of_scores(scores: Tensor, num_heads: int | None = None) -> Tensor:
    """The logits of a softmax over (…, queries, keys), (entries, heads, queries, keys).

    Args:
        scores: What it is given.
        num_heads: Of scores whose first dimension is batch and heads in one; where unknown, each counts as a head.
    """
    whole = scores.reshape(-1, num_heads, *scores.shape[1:]) if num_heads and scores.dim() == 3 else _with_heads(scores)
    entries, some_heads, queries = _sampled(whole.shape, scores.device)
    return whole[entries][..., some_heads, queries, :].flatten(0, -4).float()


def statistics(logits: Tensor) -> Tensor:
    """For each head: largest logit, sum of entropies, number of queries, sum of relative entropies, their number."""
    shut = logits <= _SHUT
    logits = logits.masked_fill(shut, -torch.inf)
    keys = logits.size(-1) - shut.sum(-1)
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
    sees, several = keys > 0, keys > 1
    relative = torch.where(several, entropy / keys.log(), 0.0)
    by_query = torch.stack([torch.where(sees, entropy, 0.0), sees.float(), relative, several.float()])
    return torch.cat([logits.amax((0, 2, 3))[None], by_query.sum((1, 3))])
