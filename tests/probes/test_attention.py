"""Attention against a plain reference in float64, over every query and key."""

import copy
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import backward
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import (
    BaseTorchFunctionMode,
    TorchFunctionMode,
    _get_current_function_mode_stack,
    handle_torch_function,
    has_torch_function_unary,
)
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from sonde.core.frames import is_missing
from sonde.probes.attention import Attention

from .armed import iteration, num_told


def modes() -> list[TorchFunctionMode]:
    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]


without_a_gpu_skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    assert not modes()


def reference(logits: Tensor) -> dict[str, float]:
    """Of (batch, heads, queries, keys), -inf where a key is shut out, one query at a time."""
    largest, entropies, relative = -math.inf, [], []
    of_heads: list[list[float]] = [[] for _ in range(logits.size(1))]
    for entry in logits.detach().double():
        for head, rows in enumerate(entry):
            for row in rows:
                row = row[row > -math.inf]
                if len(row):
                    p = (row - row.max()).exp() / (row - row.max()).exp().sum()
                    entropy = float(-(p * p.clamp_min(1e-300).log()).sum())
                    largest = max(largest, float(row.max()))
                    entropies.append(entropy)
                    of_heads[head].append(entropy)
                    if len(row) > 1:
                        relative.append(entropy / math.log(len(row)))
    return {
        "logit_max": largest,
        "entropy": float(np.mean(entropies)),
        "entropy_min": min(float(np.mean(values)) for values in of_heads if values),
        "entropy_relative": float(np.mean(relative)),
    }


def at(name: str, found: dict[str, float]) -> dict[str, float]:
    return {
        tag.removeprefix("attn/").removesuffix(f"@{name}"): value
        for tag, value in found.items()
        if tag.endswith(f"@{name}")
    }


class Sdpa(nn.Module):
    """Attention by `scaled_dot_product_attention`, with whatever it takes."""

    def __init__(self, function: Callable[..., Tensor] = scaled_dot_product_attention) -> None:
        super().__init__()
        self.function = function
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
        return self.function(self.gain * q, k, v, **settings)


def heads(*shape: int, size: float = 1.0) -> Tensor:
    return size * torch.randn(*shape)


def logits_of(q: Tensor, k: Tensor, scale: float | None = None) -> Tensor:
    return q.double() @ k.double().mT * (q.size(-1) ** -0.5 if scale is None else scale)


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(2, 64),
    st.floats(0.1, 5),
    st.integers(0, 2**31),
)
def test_up_to_64_queries_are_measured_whole(
    batch: int, num_heads: int, queries: int, keys: int, size: float, seed: int
) -> None:
    torch.manual_seed(seed)
    net = Sdpa()
    q, k = heads(batch, num_heads, queries, 8, size=size), heads(batch, num_heads, keys, 8)
    found = iteration(Attention({"": net}), lambda: net(q, k, k))
    assert at("model", found) == pytest.approx(reference(logits_of(q, k)), rel=1e-4, abs=1e-5)


BOOLEAN = torch.rand(3, 1, 7, 9, generator=torch.Generator().manual_seed(0)) > 0.5
BOOLEAN[1, 0, 3] = False  # a query that sees nothing
BIAS = torch.randn(4, 7, 9, generator=torch.Generator().manual_seed(0))
FLOAT = torch.zeros(7, 9).masked_fill(torch.ones(7, 9).triu(2).bool(), -math.inf)
LOWEST = torch.zeros(7, 9).masked_fill(torch.ones(7, 9).triu(2).bool(), torch.finfo(torch.float32).min)
CAUSAL = torch.ones(7, 9).tril().bool()


@pytest.mark.parametrize(
    ("settings", "logits"),
    [
        ({"attn_mask": BOOLEAN}, lambda z: z.masked_fill(~BOOLEAN, -math.inf)),
        ({"attn_mask": BIAS}, lambda z: z + BIAS),
        ({"attn_mask": FLOAT}, lambda z: z + FLOAT),
        ({"attn_mask": LOWEST}, lambda z: z + FLOAT),
        ({"is_causal": True}, lambda z: z.masked_fill(~CAUSAL, -math.inf)),
        ({"scale": 2.0}, lambda z: 2.0 * 8**0.5 * z),
        ({"dropout_p": 0.5}, lambda z: z),
    ],
    ids=["boolean", "bias", "infinite", "lowest", "causal", "scale", "dropout"],
)
def test_masks_biases_and_scales_are_those_of_the_call(
    settings: dict[str, Any], logits: Callable[[Tensor], Tensor]
) -> None:
    net, q, k = Sdpa(), heads(3, 4, 7, 8), heads(3, 4, 9, 8)
    found = iteration(Attention({"": net}), lambda: net(q, k, k, **settings))
    assert at("model", found) == pytest.approx(reference(logits(logits_of(q, k))), rel=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        scaled_dot_product_attention,
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(query=q, key=k, value=v),
        lambda q, k, v: torch.ops.aten.scaled_dot_product_attention(q, k, v),
        lambda q, k, v: torch.softmax(q @ k.mT / 8**0.5, -1) @ v,
        lambda q, k, v: functional.softmax(torch.matmul(q, k.transpose(-2, -1)) * 8**-0.5, dim=3) @ v,
        lambda q, k, v: (torch.einsum("bhqd,bhkd->bhqk", q, k) / 8**0.5).softmax(dim=-1) @ v,
        lambda q, k, v: nn.Softmax(dim=-1)(torch.einsum("bhqd,bhkd->bhqk", [q, k]) * 8**-0.5) @ v,
        lambda q, k, v: torch.special.softmax(q.matmul(k.mT) * 8**-0.5, dim=-1) @ v,
    ],
)
def test_every_spelling_is_heard(function: Callable[..., Tensor]) -> None:
    net, q, k = Sdpa(function), heads(2, 3, 5, 8), heads(2, 3, 6, 8)
    found = iteration(Attention({"": net}), lambda: net(q, k, k))
    assert at("model", found) == pytest.approx(reference(logits_of(q, k)), rel=1e-4)


def test_heads_that_share_keys_are_told_apart() -> None:
    net, q, k = Sdpa(), heads(2, 6, 5, 8), heads(2, 2, 7, 8)
    k[:, 1] *= 5
    found = iteration(Attention({"": net}), lambda: net(q, k, k, enable_gqa=True))
    wanted = reference(logits_of(q, k.repeat_interleave(3, 1)))
    assert at("model", found) == pytest.approx(wanted, rel=1e-4)
    assert wanted["entropy_min"] < 0.8 * wanted["entropy"]


@pytest.mark.parametrize(
    ("of_query", "of_key"), [((5, 8), (6, 8)), ((3, 5, 8), (3, 6, 8)), ((2, 3, 5, 8), (1, 3, 6, 8))]
)
def test_fewer_dimensions_and_broadcast_keys_are_measured(of_query: tuple[int, ...], of_key: tuple[int, ...]) -> None:
    net, q, k = Sdpa(), heads(*of_query), heads(*of_key)
    found = iteration(Attention({"": net}), lambda: net(q, k, k))
    logits = logits_of(q, k)
    assert at("model", found) == pytest.approx(reference(logits[(None,) * (4 - logits.dim())]), rel=1e-4)


def test_call_that_fails_is_not_measured() -> None:
    net, q = Sdpa(), heads(2, 5, 8)
    probe = Attention({"": net})
    probe.arm([0])
    with pytest.raises(RuntimeError):
        net(q, q[..., :3], q)
    assert not modes()
    assert not probe.collect()


def test_five_dimensions_are_measured() -> None:
    net, q, k = Sdpa(), heads(2, 3, 2, 5, 8), heads(2, 3, 2, 6, 8)
    found = iteration(Attention({"": net}), lambda: net(q, k, k))
    assert at("model", found) == pytest.approx(reference(logits_of(q, k).flatten(0, 1)), rel=1e-4)


def test_long_sequences_are_sampled_evenly_up_to_the_last_query() -> None:
    net, q, k = Sdpa(), heads(9, 2, 200, 8), heads(9, 2, 200, 8)
    found = at("model", iteration(Attention({"": net}), lambda: net(q, k, k, is_causal=True)))
    whole = logits_of(q, k).masked_fill(~torch.ones(200, 200).tril().bool(), -math.inf)
    assert found == pytest.approx(reference(whole[2::3][:, :, 3::4]), rel=1e-4)
    assert found["logit_max"] <= reference(whole)["logit_max"] + 1e-4


def test_very_many_keys_mean_fewer_queries() -> None:
    net, q, k = Sdpa(), heads(2, 2, 70, 4), heads(2, 2, 2**17, 4)
    found = at("model", iteration(Attention({"": net}), lambda: net(q, k, k)))
    logits = logits_of(q, k)[1:, :, 15::18]  # four queries of one entry are a million
    assert found["logit_max"] == pytest.approx(float(logits.max()), rel=1e-4)
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
    assert found["entropy"] == pytest.approx(float(entropy.mean()), rel=1e-4)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", [None, "boolean", "float"])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}], ids=["", "bias", "zero"])
def test_multihead_attention_is_measured(
    need_weights: bool, batch_first: bool, mask: str | None, padded: bool, extra: dict[str, bool]
) -> None:
    torch.manual_seed(1)
    net = nn.MultiheadAttention(8, 2, batch_first=batch_first, dropout=0.3, **extra)
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 6, 8)
    shut = torch.ones(5, 6).triu(1).bool()
    padding = torch.zeros(3, 6).bool()
    padding[1, 2:] = True
    padding[2] = not extra  # an entry of which no query sees anything
    masks = {None: None, "boolean": shut, "float": torch.zeros(5, 6).masked_fill(shut, -math.inf)}

    logits, (q_weight, k_weight, _), (q_bias, k_bias, _) = (
        torch.zeros(3, 2, 5, 6, dtype=torch.float64),
        net.in_proj_weight.detach().chunk(3),
        net.in_proj_bias.detach().chunk(3),
    )
    q = functional.linear(x, q_weight, q_bias).unflatten(-1, (2, 4)).transpose(1, 2)  # type: ignore[no-untyped-call]
    k = functional.linear(memory, k_weight, k_bias)
    if net.bias_k is not None:
        k = torch.cat([k, net.bias_k.detach().expand(3, 1, 8)], 1)
    if net.add_zero_attn:
        k = torch.cat([k, torch.zeros(3, 1, 8)], 1)
    logits = logits_of(q, k.unflatten(-1, (2, 4)).transpose(1, 2))  # type: ignore[no-untyped-call]
    if mask:
        logits[..., :6] = logits[..., :6].masked_fill(shut, -math.inf)
    if padded:
        logits[..., :6] = logits[..., :6].masked_fill(padding[:, None, None], -math.inf)

    def work() -> None:
        inputs = (x, memory, memory) if batch_first else (t.transpose(0, 1) for t in (x, memory, memory))
        of_padding = (
            (padding if mask != "float" else torch.zeros(3, 6).masked_fill(padding, -math.inf)) if padded else None
        )
        net(*inputs, need_weights=need_weights, attn_mask=masks[mask], key_padding_mask=of_padding)

    assert at("model", iteration(Attention({"": net}), work)) == pytest.approx(reference(logits), rel=1e-4)


class EagerAttention(nn.Module):
    """The eager attention of Hugging Face's models: half precision, an added mask, the softmax in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(16, 48)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (t.view(*x.shape[:2], 4, 4).transpose(1, 2) for t in self.c_attn(x).split(16, -1))
        weights = torch.matmul(q, k.transpose(2, 3)) * 4**-0.5
        if mask is not None:
            weights = weights + mask
        self.seen.append(weights.detach())
        weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(weights, v).transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.mlp = nn.LayerNorm(16), EagerAttention(), nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm(x), mask)
        return torch.add(x, self.mlp(x))


class Stack(nn.Module):
    def __init__(self, layer: Callable[[], nn.Module] = Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(3))

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *args)
        return x


@pytest.mark.parametrize("lowest", [-math.inf, -1e9, -1e4, torch.finfo(torch.bfloat16).min])
def test_eager_attention_in_half_precision_is_measured(lowest: float) -> None:
    net, x = Stack(), torch.randn(2, 6, 16)
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), lowest)

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            backward(net(x, mask.bfloat16()).sum())

    found = iteration(Attention({"": net}), work)
    assert len(found) == 3 * len(Attention.yields)
    for i, layer in enumerate(net.layers):
        assert isinstance(layer, Layer)
        (seen,) = layer.attn.seen
        assert seen.dtype is torch.bfloat16
        wanted = reference(seen.float().masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf))
        assert at(f"layers.{i}.attn", found) == pytest.approx(wanted, rel=1e-4)


def test_products_in_half_precision_are_taken_in_float32() -> None:
    net, q, k = Sdpa(), heads(2, 3, 5, 64, size=3).bfloat16(), heads(2, 3, 6, 64).bfloat16()

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            net(q, k, k)

    assert at("model", iteration(Attention({"": net}), work)) == pytest.approx(reference(logits_of(q, k)), rel=1e-4)


def test_slots_are_blocks_and_what_lies_outside() -> None:
    class Pooled(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor, *args: Any) -> Tensor:
            x = super().forward(x, *args)
            return torch.as_tensor(self.head(self.pool(x[:, :1], x, x)[0]))

    net = Pooled()
    probe = Attention({"D": net})
    assert probe.num_slots == 4
    for _ in range(2):  # the second time it knows where to listen
        for slot, name in enumerate(["D.layers.0.attn", "D.layers.1.attn", "D.layers.2.attn", "D.pool"]):
            found = iteration(probe, lambda: backward(net(torch.randn(2, 6, 16)).sum()), [slot])
            assert set(found) == {f"{tag}{name}" for tag in probe.yields}
            assert not num_told(net)


def test_encoder_and_decoder_of_torch_are_measured_with_cross_attention() -> None:
    net = nn.Transformer(8, 2, 2, 2, 16, batch_first=True)
    found = iteration(Attention({"": net}), lambda: backward(net(torch.randn(2, 5, 8), torch.randn(2, 4, 8)).sum()))
    assert {tag.partition("@")[2] for tag in found} == {
        *(f"encoder.layers.{i}.self_attn" for i in range(2)),
        *(f"decoder.layers.{i}.{name}" for i in range(2) for name in ("self_attn", "multihead_attn")),
    }
    assert all(map(math.isfinite, found.values()))


def test_softmax_of_a_router_is_not_attention() -> None:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.gate(x), -1).sum(-1, keepdim=True) * x

    net = Stack(Router)
    probe = Attention({"": net})
    for _ in range(3):
        assert not probe.not_measured()
        assert not iteration(probe, lambda: backward(net(torch.randn(2, 6, 16)).sum()))
    assert probe.not_measured() == {"attn/*": "no attention was seen in the calls of the model's modules"}
    probe.arm(range(3))
    assert not num_told(net)


def test_three_dimensions_need_a_product_of_activations() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qk = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            q, k = self.qk(x).chunk(2, -1)
            return torch.softmax(torch.bmm(q, k.mT), -1) @ x

    net, x = Stack(Head), torch.randn(3, 6, 16)
    found = iteration(Attention({"": net}), lambda: backward(net(x).sum()), [0])
    head = net.layers[0]
    assert isinstance(head, Head)
    q, k = head.qk(x).chunk(2, -1)
    assert at("layers.0", found) == pytest.approx(reference((q @ k.mT)[None]), rel=1e-4)


def test_evaluation_without_gradients_does_not_count_and_the_first_call_with_them_does() -> None:
    net, q, k, other = Sdpa(), heads(2, 3, 5, 8), heads(2, 3, 6, 8), heads(2, 3, 6, 8, size=9)

    def work() -> None:
        with torch.no_grad():
            net(q, other, other)
        net(q, k, k)
        net(q, other, other)

    assert at("model", iteration(Attention({"": net}), work)) == pytest.approx(reference(logits_of(q, k)), rel=1e-4)


def test_first_attention_with_gradients_within_a_call_counts() -> None:
    q, k, other = heads(2, 3, 5, 8), heads(2, 3, 6, 8), heads(2, 3, 6, 8, size=9)

    def several(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.no_grad():
            target = scaled_dot_product_attention(q, other, v)
        return scaled_dot_product_attention(q, k, v) + scaled_dot_product_attention(q, other, v) - target

    net = Sdpa(several)
    found = iteration(Attention({"": net}), lambda: net(q, k, k))
    assert at("model", found) == pytest.approx(reference(logits_of(q, k)), rel=1e-4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_are_measured(reentrant: bool) -> None:
    class Checkpointed(Stack):
        def forward(self, x: Tensor, *args: Any) -> Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, *args, use_reentrant=reentrant)
            return x

    net, x = Checkpointed(), torch.randn(2, 6, 16, requires_grad=True)
    wanted = iteration(Attention({"": net}), lambda: Stack.forward(net, x))
    assert iteration(Attention({"": net}), lambda: backward(net(x).sum())) == wanted


def test_what_selective_checkpointing_keeps_is_not_ours() -> None:
    def contexts() -> Any:
        return create_selective_checkpoint_contexts(  # type: ignore[no-untyped-call]
            lambda *_, **__: CheckpointPolicy.MUST_SAVE
        )

    class Twice(nn.Module):
        """Its own product comes after ours, and would be handed our result."""

        def __init__(self) -> None:
            super().__init__()
            self.qk = nn.Linear(16, 32)

        def forward(self, x: Tensor) -> Tensor:
            q, k = (t.view(2, 6, 2, 8).transpose(1, 2) for t in self.qk(x).split(16, -1))
            y = scaled_dot_product_attention(q, k, k) + torch.softmax(q @ k.mT, -1) @ k
            return torch.flatten(y.transpose(1, 2), 2)

    class Checkpointed(Stack):
        def forward(self, x: Tensor, *args: Any) -> Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False, context_fn=contexts)
            return x

    net, x = Checkpointed(Twice), torch.randn(2, 6, 16)
    backward(net(x).sum())
    wanted = [torch.clone(p.grad) for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    found = iteration(Attention({"": net}), lambda: backward(net(x).sum()))
    assert len(found) == 3 * len(Attention.yields)
    assert all(
        torch.equal(a, b) for a, b in zip(wanted, [p.grad for p in net.parameters()], strict=True) if b is not None
    )


def compare_trainings(armed_slots: list[int], device: str = "cpu") -> None:
    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True)

    def train(probed: bool) -> tuple[list[Tensor], list[Tensor], Tensor]:
        torch.manual_seed(5)
        net = Stack(layer)
        net.layers[1] = Layer()
        net.to(device)
        optimizer, losses = torch.optim.AdamW(net.parameters(), lr=1e-2), []
        probe = Attention({"": net})
        for _ in range(6):
            if probed:
                probe.arm([slot for slot in armed_slots if slot < probe.num_slots])
            loss = net(torch.randn(2, 6, 16, device=device)).square().mean()
            backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            assert bool(probe.collect()) == (probed and bool(armed_slots))
        state = torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()
        return losses, [p.detach() for p in net.parameters()], state

    (losses, weights, state), (losses_without, weights_without, state_without) = train(True), train(False)
    assert all(map(torch.equal, losses, losses_without))
    assert all(map(torch.equal, weights, weights_without))
    assert torch.equal(state, state_without)


@pytest.mark.parametrize("armed_slots", [[], [0], [0, 1, 2]])
def test_training_is_what_it_is_without(armed_slots: list[int]) -> None:
    compare_trainings(armed_slots)


@pytest.mark.gpu
@without_a_gpu_skipped
def test_training_on_a_gpu_is_what_it_is_without() -> None:
    with sdpa_kernel(SDPBackend.MATH):  # the only one that promises to give the same gradients twice
        compare_trainings([0, 1, 2], "cuda")


@pytest.mark.gpu
@without_a_gpu_skipped
@pytest.mark.parametrize(
    "settings", [{}, {"is_causal": True}, {"attn_mask": torch.ones(200, 200).tril().bool()}, {"enable_gqa": True}]
)
def test_nothing_waits_for_a_gpu(settings: dict[str, Any]) -> None:
    net = Sdpa().cuda()
    settings = {name: value.cuda() if isinstance(value, Tensor) else value for name, value in settings.items()}
    q = heads(3, 4, 200, 64).cuda().bfloat16()
    k = heads(3, 2 if "enable_gqa" in settings else 4, 200, 64).cuda().bfloat16()
    probe = Attention({"": net})
    torch.cuda.set_sync_debug_mode("error")
    try:
        probe.arm([0])
        net(q, k, k, **settings)
        (reading,) = probe.collect()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    logits = logits_of(q.float(), k.float().repeat_interleave(4 // k.size(1), 1)).cpu()
    if len(settings) and "enable_gqa" not in settings:
        logits = logits.masked_fill(torch.ones(200, 200).triu(1).bool(), -math.inf)
    (row,) = reading.report(reading.tensors[0].double().flatten().cpu().numpy())
    found = dict(zip(("logit_max", "entropy", "entropy_min", "entropy_relative"), row.values, strict=True))
    assert found == pytest.approx(reference(logits[:, :, 3::4]), rel=2e-3)


def test_fast_path_of_frozen_attention_is_left_alone() -> None:
    net = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval().requires_grad_(False)
    x = torch.randn(3, 5, 16)
    wanted = net(x)
    probe, results = Attention({"": net}), []
    assert not iteration(probe, lambda: results.append(net(x)))
    assert torch.equal(results[0], wanted)
    assert iteration(probe, lambda: net.train()(x))


class Faulty(Layer):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        super().forward(x, mask)
        raise RuntimeError("faulty")


class Interrupted(Layer):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.attn(x, mask)
        raise KeyboardInterrupt


def test_exception_in_a_forward_leaves_no_mode_behind() -> None:
    net = Stack(Faulty)
    probe = Attention({"": net})
    probe.arm(range(3))
    with pytest.raises(RuntimeError, match="faulty"):
        net(torch.randn(2, 6, 16))
    assert not modes()
    assert len(probe.collect()) == 1
    assert not num_told(net)


@pytest.mark.parametrize("end", [Attention.collect, Attention.close])
def test_interrupt_in_a_forward_leaves_nothing_behind_after_the_iteration(end: Callable[[Attention], Any]) -> None:
    net = Stack(Interrupted)
    probe = Attention({"": net})
    probe.arm(range(3))
    with pytest.raises(KeyboardInterrupt):
        net(torch.randn(2, 6, 16))
    with BaseTorchFunctionMode() as other:  # somebody else's mode stays
        end(probe)
        left = modes()
    assert left == [other]
    assert not num_told(net)


def test_models_can_be_copied_and_saved_while_armed() -> None:
    net = Stack()
    probe = Attention({"": net})
    probe.arm(range(3))
    copied = copy.deepcopy(net)
    torch.save(net, file := io.BytesIO())
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = torch.randn(2, 6, 16)
    assert torch.equal(copied(x), loaded(x))
    assert not probe.collect()
    assert not num_told(net)
    assert not num_told(copied)


def test_values_are_missing_where_no_query_sees_anything_and_nan_where_it_was_measured() -> None:
    net, q = Sdpa(), heads(1, 2, 3, 4)
    probe = Attention({"": net})
    found = iteration(probe, lambda: net(q, q, q, attn_mask=torch.zeros(3, 3).bool()))
    assert is_missing(np.array(list(found.values())).astype(np.float32)).all()
    assert len(found) == 4
    found = at("model", iteration(probe, lambda: net(q, q, q, attn_mask=torch.eye(3).bool())))
    assert is_missing(np.array([found["entropy_relative"]]).astype(np.float32)).all()
    assert found["entropy"] == 0
    found = at("model", iteration(probe, lambda: net(math.nan * q, q, q)))
    assert all(map(math.isnan, found.values()))
    assert not is_missing(np.array(list(found.values())).astype(np.float32)).any()


def test_transforms_subclasses_and_empty_batches_are_let_pass() -> None:
    net, q = Sdpa(), heads(5, 2, 3, 4)
    probe = Attention({"": net})
    assert not iteration(probe, lambda: torch.vmap(lambda x: net(x, x, x))(q))
    assert not iteration(probe, lambda: net(q[:0], q[:0], q[:0]))
    assert iteration(probe, lambda: net(q, q, q))


def test_modules_in_compiled_regions_are_not_touched() -> None:
    net = Stack()
    net.layers[1].compile(backend="eager")
    probe = Attention({"": net})
    assert probe.num_slots == 3
    probe.arm([1])
    assert not num_told(net)
    assert not probe.collect()
    assert probe.not_measured() == {"attn/*@layers.1": "it lies in a compiled region"}
    outer: Any = torch.compile(net, backend="eager")
    wrapped = Attention({"": outer})
    wrapped.arm(range(3))
    assert not num_told(net)
    wrapped.close()


def test_failure_of_ours_is_said_when_the_iteration_is_over() -> None:
    class SomebodyElses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.gain * self.scaled_dot_product_attention(x)

        def scaled_dot_product_attention(self, x: Tensor) -> Tensor:
            """Of that name, open to modes as torch's own is, and with arguments of its own."""
            if has_torch_function_unary(x):
                function = self.scaled_dot_product_attention
                return torch.as_tensor(handle_torch_function(function, (x,), x))
            return 2 * x

    net = SomebodyElses()
    probe = Attention({"": net})
    probe.arm([0])
    assert torch.equal(net(torch.ones(3)), torch.full((3,), 2.0))
    assert not modes()
    with pytest.raises(TypeError, match="of_queries"):
        probe.collect()
    assert not num_told(net)


class Rotating(nn.Module):
    """Its own small function is compiled; a mode of the user's is on around it, and attention comes after."""

    def __init__(self, rotate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.qkv, self.rotate, self.mode = nn.Linear(8, 24), rotate, BaseTorchFunctionMode()

    def forward(self, x: Tensor) -> Tensor:
        with self.mode:
            q, k, v = self.rotate(self.qkv(x)).chunk(3, -1)
            assert modes()[-1] is self.mode
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own
def test_compiled_function_inside_attention_is_not_compiled_again() -> None:
    torch.compiler.reset()
    num_graphs = 0

    def note(graph: torch.fx.GraphModule, _: Any) -> Any:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    net = nn.Sequential(Rotating(torch.compile(lambda x: x.roll(1, -1), backend=note, fullgraph=True)))
    probe, x = Attention({"": net}), torch.randn(2, 5, 8)
    net(x).sum().backward()
    num_before = num_graphs
    for _ in range(3):
        assert iteration(probe, lambda: net(x).sum().backward())["attn/entropy@0"] > 0
        net(x).sum().backward()
    assert num_graphs == num_before
    assert not modes()
    torch.compiler.reset()
