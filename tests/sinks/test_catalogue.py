import os
import subprocess
import sys

import pytest

from sonde.core.errors import MissingExtra, PluginError
from sonde.core.frames import Detail
from sonde.core.optional import available
from sonde.sinks.catalogue import SINKS


def test_every_sink_that_can_be_asked_for_is_made_without_arguments_or_says_what_to_install() -> None:
    assert {"mlflow", "tensorboard", "wandb"} <= set(SINKS.names())
    for name in ("mlflow", "tensorboard", "wandb"):
        make = SINKS.load(name)
        if not available(name):
            with pytest.raises(MissingExtra, match=rf"pip install 'sonde\[{name}\]'"):
                make()
            continue
        sink = make()
        assert sink.name == name
        assert sink.selection.wants("loss", Detail.ESSENTIAL)
        sink.close(0.0)  # nothing was written


def test_a_name_that_nobody_has_is_answered_with_the_nearest() -> None:
    with pytest.raises(PluginError, match="did you mean 'wandb'"):
        SINKS.load("wandbd")


def test_importing_the_sinks_imports_neither_torch_nor_their_packages() -> None:
    code = (
        "import sys, sonde.sinks.relay, sonde.sinks.tensorboard, sonde.sinks.wandb, sonde.sinks.mlflow\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'torch', 'tensorboard', 'wandb', 'mlflow'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.split() == []
