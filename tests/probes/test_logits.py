"""The logits of a cross-entropy against a plain reference in float64."""

import copy
import io
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import backward
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from sonde.core.frames import is_missing
from sonde.probes.logits import OutputLogits

from .armed import iteration

ORIGINAL = torch._C._nn.cross_entropy_loss


without_a_gpu_skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    assert torch._C._nn.cross_entropy_loss is ORIGINAL


def reference(rows: Tensor) -> dict[str, float]:
    """Of (rows, classes), one row at a time."""
    norms, largest, log_z, entropies = [], [], [], []
    for row in rows.detach().double():
        p = row.exp() / row.exp().sum()
        norms.append(float((row**2).sum().sqrt()))
        largest.append(float(row.abs().max()))
        log_z.append(math.log(float(row.exp().sum())))
        entropies.append(float(-(p * p.log()).sum()))
    return {
        "logits/norm": float(np.mean(norms)),
        "logits/absmax": max(largest),
        "logits/log_z": float(np.mean(log_z)),
        "logits/log_z_absmax": max(map(abs, log_z)),
        "loss/entropy": float(np.mean(entropies)),
    }


def found_in(work: Callable[[], object], model: nn.Module | None = None) -> dict[str, float]:
    return iteration(OutputLogits({"": model or nn.Linear(1, 1)}), work)


@given(st.integers(1, 256), st.integers(1, 30), st.floats(0.01, 20), st.integers(0, 2**31))
def test_up_to_256_rows_are_measured_whole(num_rows: int, num_classes: int, size: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (size * torch.randn(num_rows, num_classes, generator=generator)).requires_grad_()
    target = torch.randint(num_classes, (num_rows,), generator=generator)
    found = found_in(lambda: functional.cross_entropy(logits, target))
    assert found == pytest.approx(reference(logits), rel=1e-4, abs=1e-5)


SPELLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "attribute": lambda x, y: functional.cross_entropy(x, y),
    "name": lambda x, y: cross_entropy(x, y, label_smoothing=0.1),
    "module": lambda x, y: nn.CrossEntropyLoss(reduction="sum")(x, y),
    "keywords": lambda x, y: cross_entropy(input=x, target=y, weight=torch.ones(x.size(1))),
    "probabilities": lambda x, y: cross_entropy(x, functional.one_hot(y, x.size(1)).float()),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_heard(spelling: str) -> None:
    logits, target = torch.randn(20, 7, requires_grad=True), torch.randint(7, (20,))
    found = found_in(lambda: backward(SPELLINGS[spelling](logits, target)))
    assert found == pytest.approx(reference(logits), rel=1e-5)


def test_classes_are_the_second_dimension() -> None:
    logits = torch.randn(3, 5, 4, 2, requires_grad=True)
    found = found_in(lambda: cross_entropy(logits, torch.randint(5, (3, 4, 2))))
    assert found == pytest.approx(reference(logits.permute(0, 2, 3, 1).reshape(-1, 5)), rel=1e-5)


def test_single_row_without_a_batch_is_measured() -> None:
    logits = torch.randn(5, requires_grad=True)
    found = found_in(lambda: cross_entropy(logits, torch.tensor(2)))
    assert found == pytest.approx(reference(logits[None]), rel=1e-5)


def test_rows_with_an_ignored_target_do_not_count() -> None:
    logits, target = torch.randn(40, 6, requires_grad=True), torch.randint(6, (40,))
    target[::3] = 5
    with torch.no_grad():
        logits[::3] *= 1000
    found = found_in(lambda: cross_entropy(logits, target, ignore_index=5))
    assert found == pytest.approx(reference(logits[target != 5]), rel=1e-5)


def test_values_are_missing_where_every_target_is_ignored() -> None:
    logits = torch.randn(4, 6, requires_grad=True)
    found = found_in(lambda: cross_entropy(logits, torch.full((4,), -100), reduction="sum"))
    assert set(found) == set(OutputLogits.yields)
    assert is_missing(np.array(list(found.values())).astype(np.float32)).all()


def test_classes_at_minus_infinity_are_left_out_of_the_size() -> None:
    logits, target = torch.randn(8, 6), torch.zeros(8, dtype=torch.long)
    wanted = reference(logits[:, :4])
    logits[:, 4:] = -math.inf
    found = found_in(lambda: cross_entropy(logits.requires_grad_(), target))
    assert found == pytest.approx(wanted, rel=1e-5)


def test_infinite_and_nan_logits_come_through() -> None:
    logits, target = torch.zeros(8, 6), torch.zeros(8, dtype=torch.long)
    logits[3, 2] = math.inf
    found = found_in(lambda: cross_entropy(logits.requires_grad_(), target))
    assert found["logits/absmax"] == found["logits/log_z"] == math.inf
    assert math.isnan(found["loss/entropy"])
    logits = torch.zeros(8, 6)
    logits[3, 2] = math.nan
    found = found_in(lambda: cross_entropy(logits.requires_grad_(), target))
    assert all(map(math.isnan, found.values()))


@pytest.mark.parametrize("shape", [(5000, 3), (8, 3, 1000), (1000, 3, 1000), (4, 3, 60, 70), (64, 2**17)])
def test_large_batches_are_sampled_within_their_bounds(shape: tuple[int, ...]) -> None:
    # A logit tells which row it is in, so that the mean norm tells where samples were taken.
    num_rows = math.prod(shape) // shape[1]
    places = torch.linspace(0, 1, num_rows).reshape(shape[0], 1, *shape[2:])
    logits = places.expand(shape).clone().requires_grad_()
    found = found_in(lambda: cross_entropy(logits, torch.zeros(shape[0], *shape[2:], dtype=torch.long)))
    assert 0.9 < found["logits/absmax"] <= 1
    assert found["logits/norm"] / math.sqrt(shape[1]) == pytest.approx(0.5, abs=0.01)


def test_first_loss_that_trains_counts() -> None:
    teacher, first, second = torch.randn(4, 3), torch.randn(4, 3, requires_grad=True), torch.ones(4, 3)
    target = torch.randint(3, (4,))

    def work() -> None:
        with torch.no_grad():
            cross_entropy(second, target)
        cross_entropy(teacher, target)
        backward(cross_entropy(first, target))
        backward(cross_entropy(second.requires_grad_(), target))

    assert found_in(work) == pytest.approx(reference(first), rel=1e-5)


def test_half_precision_under_autocast_is_measured_in_float32() -> None:
    head, x, target = nn.Linear(16, 10), torch.randn(12, 16), torch.randint(10, (12,))
    outputs: list[Tensor] = []

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            outputs.append(head(x))
            backward(cross_entropy(outputs[0], target))

    assert found_in(work, head) == pytest.approx(reference(outputs[0]), rel=1e-4)
    assert outputs[0].dtype is torch.bfloat16


def test_loss_inside_a_checkpoint_is_measured_where_it_has_gradients() -> None:
    for reentrant in (True, False):
        head, x, target = nn.Linear(16, 10), torch.randn(12, 16, requires_grad=True), torch.randint(10, (12,))

        def loss(x: Tensor, head: nn.Linear = head, target: Tensor = target) -> Tensor:
            return cross_entropy(head(x), target)

        def work(loss: Callable[[Tensor], Tensor] = loss, x: Tensor = x, use_reentrant: bool = reentrant) -> None:
            backward(checkpoint(loss, x, use_reentrant=use_reentrant))

        assert found_in(work, head) == pytest.approx(reference(head(x)), rel=1e-5)


def test_losses_weights_and_random_state_are_what_they_are_without() -> None:
    def train(armed: bool) -> tuple[list[float], list[Tensor], Tensor]:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 5))
        optimizer = torch.optim.AdamW(net.parameters())
        probe, losses = OutputLogits({"": net}), []
        for _ in range(5):
            if armed:
                probe.arm([0])
            loss = cross_entropy(net(torch.randn(6, 8)), torch.randint(5, (6,)))
            backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            assert len(probe.collect()) == armed
        return losses, [p.detach() for p in net.parameters()], torch.get_rng_state()

    (losses, weights, state), (losses_without, weights_without, state_without) = train(True), train(False)
    assert losses == losses_without
    assert all(map(torch.equal, weights, weights_without))
    assert torch.equal(state, state_without)


@pytest.mark.gpu
@without_a_gpu_skipped
def test_nothing_waits_for_a_gpu() -> None:
    logits, target = torch.randn(300, 7, device="cuda", requires_grad=True), torch.randint(7, (300,), device="cuda")
    probe = OutputLogits({"": nn.Linear(1, 1)})
    torch.cuda.set_sync_debug_mode("error")
    try:
        probe.arm([0])
        backward(cross_entropy(logits, target))
        (reading,) = probe.collect()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    (row,) = reading.report(reading.tensors[0].double().cpu().numpy())
    found = dict(zip(row.columns.tags, map(float, row.values), strict=True))
    assert found == pytest.approx(reference(logits.cpu()[1::3]), rel=1e-4)


def test_model_and_criterion_can_be_copied_and_saved_while_armed() -> None:
    net = nn.ModuleDict({"head": nn.Linear(2, 3), "criterion": nn.CrossEntropyLoss()})
    probe = OutputLogits({"": net})
    probe.arm([0])
    torch.save(copy.deepcopy(net), file := io.BytesIO())
    probe.close()
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert again["criterion"](again["head"](torch.ones(1, 2)), torch.tensor([1])).isfinite()


def test_loss_that_fails_and_a_closed_probe_leave_nothing_behind() -> None:
    probe = OutputLogits({"": nn.Linear(1, 1)})
    probe.arm([0])
    assert torch._C._nn.cross_entropy_loss is not ORIGINAL
    with pytest.raises(IndexError):
        cross_entropy(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 7]))
    probe.close()
    probe.close()
    assert torch._C._nn.cross_entropy_loss is ORIGINAL


def test_it_says_why_nothing_is_measured() -> None:
    net = nn.Linear(2, 2)
    probe = OutputLogits({"": net})
    for _ in range(3):
        assert not probe.not_measured()
        assert not iteration(probe, lambda: backward(net(torch.ones(1, 2)).sum()))
    assert set(probe.not_measured()) == set(probe.yields)
    assert "no cross-entropy" in probe.not_measured()["logits/norm"]
    assert iteration(probe, lambda: cross_entropy(net(torch.ones(1, 2)), torch.tensor([1])))
    assert not probe.not_measured()
    net.compile(backend="eager")
    probe.arm([0])
    assert torch._C._nn.cross_entropy_loss is ORIGINAL
    assert not probe.collect()
    assert "compiled" in probe.not_measured()["loss/entropy"]
