from typing import Any

from tests.rules.traces import judge, rows

from sonde.core.findings import Severity
from sonde.rules.step_view import Fact
from sonde.rules.systems.out_of_memory import OutOfMemory

GIB = float(2**30)
FAILED: dict[str, Any] = {
    "reason": "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "device": "cuda:0",
    "requested": 2 * GIB,
    "phase": "forward",
    "module": "blocks.3.mlp",
    "batch": {"input_ids": [64, 1024], "0": [64]},
    "memory": {
        "memory/parameters": 1.5 * GIB,
        "memory/gradients": 1.5 * GIB,
        "memory/optimizer": 3 * GIB,
        "memory/buffers": 0.0,
        "memory/activations": 70 * GIB,
        "memory/total": 79 * GIB,
        "host/rss": 4 * GIB,
    },
}


def test_a_failed_allocation_is_critical_with_its_step_batch_and_memory_by_kind() -> None:
    seen = judge(OutOfMemory(), rows(40, loss=1.0), facts={40: [Fact("out-of-memory", FAILED)]})
    ((step, sighting),) = seen
    assert (step, sighting.severity, sighting.where) == (40, Severity.CRITICAL, ("blocks.3.mlp",))
    assert sighting.message == (
        "step 41 ran out of memory on the GPU (cuda:0) in the forward pass, asking for 2 GiB more; "
        "the batch: 64×1024 (input_ids), 64 (tensor 0); "
        "memory in use (of 79 GiB): activations and other 70 GiB, parameters 1.5 GiB, gradients 1.5 GiB, "
        "optimiser state 3 GiB"
    )
    assert [(item.tag, item.value) for item in sighting.evidence] == [
        ("memory/activations", 70 * GIB),
        ("memory/optimizer", 3 * GIB),
        ("memory/parameters", 1.5 * GIB),
        ("memory/gradients", 1.5 * GIB),
    ]


def test_on_the_host_the_rest_of_the_process_stands_for_the_activations() -> None:
    memory = {"memory/parameters": 1 * GIB, "host/rss": 8 * GIB}
    failed = {**FAILED, "device": "cpu", "memory": memory, "module": "", "phase": ""}
    ((_, sighting),) = judge(OutOfMemory(), rows(3, loss=1.0), facts={3: [Fact("out-of-memory", failed)]})
    assert "on the host, asking for 2 GiB more" in sighting.message
    assert "activations and the rest of the process 7 GiB, parameters 1 GiB" in sighting.message
    assert sighting.where == ()


def test_where_the_batch_is_not_known_the_last_one_measured_is_named_as_such() -> None:
    table = rows(5, loss=1.0, batch__size=[32, None, None, None, None], batch__sequence=[128, None, None, None, None])
    ((_, sighting),) = judge(OutOfMemory(), table, facts={5: [Fact("out-of-memory", {**FAILED, "batch": {}})]})
    assert "the last batch that was measured had 32 examples of length 128" in sighting.message


def test_an_event_that_says_hardly_anything_is_a_finding_all_the_same() -> None:
    ((_, sighting),) = judge(OutOfMemory(), rows(2, loss=1.0), facts={2: [Fact("out-of-memory", {})]})
    assert sighting.message == "step 3 ran out of memory on the device"


def test_other_ends_are_silent() -> None:
    facts = {5: [Fact("exception", {"reason": "ValueError: no such layer"})]}
    assert judge(OutOfMemory(), rows(10, loss=1.0), facts=facts) == []
