"""What is measured of a step at once is what the lists would say one by one."""

import pytest
import torch
from torch import Tensor, nn

from sonde.kernels import TensorStats
from sonde.kernels.dispatch import steps_of
from sonde.kernels.sketch_products import sketch_products
from sonde.kernels.triton_steps import TritonSteps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

SHAPES = [(), (7,), (0, 3), (2048,), (65_536,), (300_001,), (64, 3, 3, 3), (513, 512), (2, 2), (1000, 700), (5,)]
NUM_SLOTS = 4


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def tensors(dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> list[Tensor]:
    return [
        torch.randn(shape, device="cuda").mul(10.0 ** (i % 5 - 2)).to(dtypes[i % len(dtypes)])
        for i, shape in enumerate(SHAPES)
    ]


def made(parameters: list[Tensor]) -> TritonSteps:
    steps = steps_of(parameters, NUM_SLOTS)
    assert steps is not None
    return steps


@pytest.mark.parametrize(
    "dtypes", [(torch.float32,), (torch.bfloat16,), (torch.float32, torch.float16, torch.bfloat16)], ids=str
)
@pytest.mark.parametrize("with_sketch", [True, False])
def test_steps_say_what_lists_say(dtypes: tuple[torch.dtype, ...], with_sketch: bool) -> None:
    parameters: list[Tensor] = [nn.Parameter(tensor) for tensor in tensors(dtypes)]
    steps, stats = made(parameters), TensorStats(parameters)
    sketches: list[Tensor] = []
    weight_sketches: list[Tensor] = []
    for iteration in range(7):
        slot = (*range(NUM_SLOTS), None)[iteration % (NUM_SLOTS + 1)]
        gradients = tensors(dtypes)
        if iteration == 3:
            gradients[7][3, 3] = float("nan")
            gradients[9][0, 0] = float("-inf")
        if not steps.confirms(gradients):
            steps.learn(gradients)
        assert steps.confirms(gradients)
        found = steps.gradients(gradients, slot=slot, sketch=with_sketch, iteration=iteration)
        wanted = stats(gradients, sketch=True, histogram=True)
        assert wanted.histogram is not None
        assert wanted.sketch is not None
        assert torch.equal(found.rows, stats(gradients, sketch=with_sketch).rows)
        if slot is None:
            assert found.histogram is None
        else:
            assert found.histogram is not None
            assert torch.equal(found.histogram, wanted.histogram[slot::NUM_SLOTS])
        sketches.append(wanted.sketch)
        if with_sketch:
            torch.testing.assert_close(found.sketch, wanted.sketch, rtol=1e-6, atol=0, equal_nan=True)
            assert (found.products is None) == (iteration == 0)
            if iteration:
                products = sketch_products(sketches[-1], sketches[-2])
                torch.testing.assert_close(found.products, products, rtol=1e-5, atol=1e-6, equal_nan=True)
        old = [p.detach().clone() for p in parameters]
        copies = None if slot is None else steps.copy(parameters[slot::NUM_SLOTS], slot)
        with torch.no_grad():
            for p in parameters:
                p.add_(torch.randn_like(p), alpha=0.1)
        assert steps.follow(parameters)
        if slot is not None:
            assert copies is not None
            assert steps.made(copies, slot)
            updates = steps.updates(copies, slot)
            assert torch.equal(updates, stats.of_difference(parameters, old).rows[slot::NUM_SLOTS])
        read = steps.weights(sketch=with_sketch, iteration=iteration)
        wanted = stats(parameters, sketch=True)
        assert wanted.sketch is not None
        assert torch.equal(read.rows, stats(parameters, sketch=with_sketch).rows)
        weight_sketches.append(wanted.sketch)
        if with_sketch:
            assert (read.products is None) == (iteration < 2)
            if iteration >= 2:
                now, before, earlier = weight_sketches[-1], weight_sketches[-2], weight_sketches[-3]
                products = sketch_products(now - before, before - earlier)
                torch.testing.assert_close(read.products, products, rtol=1e-3, atol=1e-6)


def test_products_are_given_of_iterations_in_a_row_only() -> None:
    parameters = tensors()
    steps = made(parameters)
    given = []
    for iteration in (0, 1, 3, 4, 4, 5, 6):
        found = steps.gradients(parameters, slot=None, sketch=True, iteration=iteration)
        steps.follow(parameters)
        weights = steps.weights(sketch=True, iteration=iteration)
        given.append((found.products is not None, weights.products is not None))
    none, first, both = (False, False), (True, False), (True, True)
    assert given == [none, first, none, first, none, first, both]


def test_parameters_that_moved_are_not_copied_but_followed() -> None:
    parameters: list[Tensor] = [nn.Parameter(tensor) for tensor in tensors()]
    steps = made(parameters)
    parameters[5].data = parameters[5].data + 1
    assert steps.copy(parameters[1::NUM_SLOTS], 1) is None
    assert steps.follow(parameters)
    assert torch.equal(steps.weights(sketch=False, iteration=0).rows, TensorStats(parameters)(parameters).rows)


def test_parameters_of_another_size_are_refused() -> None:
    parameters: list[Tensor] = [nn.Parameter(tensor) for tensor in tensors()]
    steps = made(parameters)
    parameters[5].data = parameters[5].data[:1000]
    assert not steps.follow(parameters)
    assert steps.copy(parameters[1::NUM_SLOTS], 1) is None


def test_gradients_in_other_strides_are_learned() -> None:
    parameters: list[Tensor] = [nn.Parameter(tensor) for tensor in tensors()]
    steps = made(parameters)
    gradients = tensors()
    gradients[7] = torch.randn(512, 513, device="cuda").T
    assert not steps.confirms(gradients)
    steps.learn(gradients)
    assert steps.confirms(gradients)
    found = steps.gradients(gradients, slot=3, sketch=True, iteration=0)
    assert torch.equal(found.rows, TensorStats(gradients)(gradients, sketch=True).rows)


def test_addresses_are_right_while_the_device_lags_behind() -> None:
    parameters = tensors()
    steps, stats = made(parameters), TensorStats(parameters)
    lists = [tensors() for _ in range(40)]
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # type: ignore[no-untyped-call]
    found = [steps.gradients(some, slot=None, sketch=False, iteration=0).rows.clone() for some in lists]
    for rows, some in zip(found, lists, strict=True):
        assert torch.equal(rows, stats(some).rows)


def test_nothing_waits_for_the_device() -> None:
    parameters = tensors()
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps = made(parameters)
        for iteration in range(20):
            steps.gradients(tensors(), slot=iteration % NUM_SLOTS, sketch=True, iteration=iteration)
            assert steps.follow(parameters)
            steps.weights(sketch=True, iteration=iteration)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_another_stream_is_noticed() -> None:
    parameters = tensors()
    steps = made(parameters)
    assert steps.is_current
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        assert not steps.is_current


def test_what_the_kernels_cannot_read_is_left_to_others() -> None:
    cuda = torch.ones(3, device="cuda")
    assert steps_of([], 8) is None
    assert steps_of([torch.ones(3)], 8) is None
    assert steps_of([cuda, cuda.double()], 8) is None
    assert steps_of([cuda.expand(2, 3)], 8) is None
    assert steps_of([cuda, torch.ones(2, dtype=torch.complex64, device="cuda")], 8) is None
