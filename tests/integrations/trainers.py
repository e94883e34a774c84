"""What tests of trainers have in common."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import sonde
from sonde.monitor.watch import Watch

SOURCE = str(Path(sonde.__file__).parent) + os.sep

strictly: Callable[..., Watch] = partial(sonde.watch, strict=True, console="quiet")
"""Begins to watch so that a fault of Sonde's own fails the test."""


def values(run: Path, tag: str) -> list[float]:
    """A series' values."""
    return [float(value) for value in sonde.load(run).series(tag).value]


def steps(run: Path, tag: str) -> list[int]:
    """A series' steps."""
    return [int(step) for step in sonde.load(run).series(tag).step]


def assert_no_jump(run: Path, straight: Path, tags: Sequence[str]) -> None:
    """A run that was resumed has the curves of one that was not."""
    for tag in tags:
        resumed, wanted = sonde.load(run).series(tag), sonde.load(straight).series(tag)
        np.testing.assert_array_equal(resumed.step, wanted.step, err_msg=tag)
        np.testing.assert_array_equal(resumed.value, wanted.value, err_msg=tag)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    """The weights of two models are bit-identical."""
    theirs = other.state_dict()
    assert theirs
    for name, value in one.state_dict().items():
        assert torch.equal(value, theirs[name]), name


def called(action: Callable[[], Any]) -> set[str]:
    """Functions of Sonde that are called while something is done."""
    found: set[str] = set()

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            found.add(frame.f_code.co_name)

    sys.setprofile(trace)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def launched(*words: object, folder: Path) -> str:
    """What a command printed that must succeed; its processes can import Sonde."""
    env = {**os.environ, "PYTHONPATH": str(Path(SOURCE).parent), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
