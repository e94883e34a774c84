import math
from pathlib import Path

import numpy as np
import psutil
import pytest

from sonde.probes.host_room import HostRoom

AVAILABLE = 20_000_000 * 1024


def _written(root: Path, files: dict[str, str]) -> HostRoom:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostRoom(proc=root / "proc", groups=root / "groups", machine=lambda: AVAILABLE)


def test_what_the_machine_has_is_asked_of_the_system() -> None:
    assert 2**20 < HostRoom(groups=Path("/nowhere")).read() <= psutil.virtual_memory().total


def test_where_the_system_does_not_tell_it_is_missing() -> None:
    assert np.isnan(HostRoom(groups=Path("/nowhere"), machine=lambda: math.nan).read())


def test_without_a_limit_it_is_what_the_machine_has_available(tmp_path: Path) -> None:
    assert _written(tmp_path, {}).read() == AVAILABLE


@pytest.mark.parametrize("folder", ["groups/job/7", "groups"], ids=["its own group", "a container's root"])
def test_a_control_group_counts_without_the_pages_that_can_be_dropped(tmp_path: Path, folder: str) -> None:
    files = {
        "proc/self/cgroup": "0::/job/7\n",
        f"{folder}/memory.max": "8000000\n",
        f"{folder}/memory.current": "6000000\n",
        f"{folder}/memory.stat": "anon 5000000\ninactive_file 500000\n",
    }
    assert _written(tmp_path, files).read() == 2_500_000


def test_the_first_version_of_control_groups_counts_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/\n4:memory:/job\n0::/\n",
        "groups/memory/job/memory.limit_in_bytes": "8000000\n",
        "groups/memory/job/memory.usage_in_bytes": "6000000\n",
        "groups/memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 1000000\n",
    }
    assert _written(tmp_path, files).read() == 3_000_000


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", ""])
def test_a_group_without_a_limit_leaves_what_the_machine_has(tmp_path: Path, limit: str) -> None:
    files = {"proc/self/cgroup": "0::/\n", "groups/memory.max": limit, "groups/memory.current": "6000000\n"}
    assert _written(tmp_path, files).read() == 20_000_000 * 1024
