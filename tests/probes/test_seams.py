"""The places inside torch where clipping and the scaler pass."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from sonde.probes.seams import CLIP_BY_NORM, CLIP_BY_VALUE, SCALER_STEP, Clip, ScalerStep


def _parameters() -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))]
    for i, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, i + 1.0)
    return parameters


@pytest.mark.parametrize("norm_type", [1.0, 2.0, math.inf])
def test_clip_by_norm_is_heard_however_it_was_imported(norm_type: float) -> None:
    heard: list[Clip] = []
    leave = CLIP_BY_NORM.listen(heard.append)
    parameters, alone = _parameters(), _parameters()
    total = clip_grad_norm_(parameters, 0.5, norm_type=norm_type)
    torch.nn.utils.clip_grad_norm_((p for p in parameters), 0.25)
    leave()
    wanted = clip_grad_norm_(alone, 0.5, norm_type=norm_type)
    clip_grad_norm_(alone, 0.25)
    assert torch.equal(total, wanted)
    assert all(torch.equal(_of(a), _of(b)) for a, b in zip(parameters, alone, strict=True))
    assert [(clip.limit, clip.done) for clip in heard] == [(0.5, False), (0.5, True), (0.25, False), (0.25, True)]
    assert heard[0].norm is not None
    assert torch.equal(heard[0].norm, total)
    assert [id(p) for p in heard[2].parameters] == [id(p) for p in parameters]


def _of(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def test_clip_by_value_is_heard_before_and_after() -> None:
    heard: list[tuple[Clip, float]] = []
    parameters = _parameters()
    leave = CLIP_BY_VALUE.listen(lambda clip: heard.append((clip, float(_of(parameters[1]).max()))))
    torch.nn.utils.clip_grad_value_(parameters, clip_value=1.5)
    leave()
    assert [(clip.limit, clip.norm, clip.done, largest) for clip, largest in heard] == [
        (1.5, None, False, 2.0),
        (1.5, None, True, 1.5),
    ]


def test_single_tensor_may_be_clipped() -> None:
    heard: list[Clip] = []
    leaves = [seam.listen(heard.append) for seam in (CLIP_BY_NORM, CLIP_BY_VALUE)]
    (first, _) = _parameters()
    clip_grad_norm_(first, 0.5)
    torch.nn.utils.clip_grad_value_(first, 0.1)
    for leave in leaves:
        leave()
        leave()  # twice is once
    assert [len(clip.parameters) for clip in heard] == [1, 1, 1, 1]


@pytest.mark.parametrize("unscale", [True, False])
def test_scaler_says_its_scale_and_whether_gradients_came_scaled(unscale: bool) -> None:
    heard: list[ScalerStep] = []
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    leave = SCALER_STEP.listen(heard.append)
    scaler.scale(net(torch.ones(2)).sum()).backward()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    leave()
    torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
    (event,) = heard
    assert event.optimizer is optimizer
    assert event.scale is not None
    assert float(event.scale) == 16.0
    assert event.unscaled_here is not unscale
