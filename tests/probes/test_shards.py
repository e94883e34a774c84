"""Tensors that are split over real processes, against their full tensors; the checks are in `rank_harness.py`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sonde.probes.shards import Shards, groups, is_sharded, local_part, local_parts, trouble

HARNESS = Path(__file__).with_name("rank_harness.py")

ON_TWO_RANKS = [
    "gradients_and_weights_of_fsdp2_have_the_statistics_of_the_full_tensors",
    "values_that_are_not_finite_on_one_rank_are_known_to_all",
    "what_is_replicated_or_plain_is_not_counted_twice_and_not_sent",
    "a_tensor_that_only_one_rank_has_values_of_is_gathered",
    "the_largest_word_is_heard_by_all",
    "a_dimension_of_a_single_rank_is_left_out",
    "histograms_of_uneven_pieces_add_up",
    "gradients_that_are_still_to_be_added_up_are_named",
    "an_exchange_gives_every_rank_the_statistics_of_the_whole",
    "training_is_the_same_with_and_without_exchanges",
    "ranks_that_wish_for_different_cadences_keep_the_same_ones",
    "a_rank_that_fails_to_measure_keeps_nobody_waiting",
    "a_gradient_that_only_one_rank_has_is_measured_on_all",
    "a_rank_that_closes_earlier_keeps_nobody_waiting",
    "closing_on_one_rank_after_the_last_step_sends_nothing",
    "histograms_go_along_in_an_exchange",
]
ON_FOUR_RANKS = [
    "tensors_that_are_split_over_two_dimensions_are_merged_over_both",
    "fsdp2_over_a_mesh_that_replicates_is_merged_over_its_shards_only",
    "fsdp2_on_top_of_tensor_parallelism_is_merged_over_both",
    "merging_in_any_order_gives_the_same",
]


def _made(folder: Path, names: list[str], num_ranks: int) -> list[dict[str, str]]:
    """What each rank has to say of each check: nothing where all is well."""
    processes = []
    for rank in range(num_ranks):
        arguments = [",".join(names), folder / "store", rank, num_ranks, folder / f"results-{rank}"]
        command = [sys.executable, "-W", "error", str(HARNESS), *map(str, arguments)]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    try:
        for process in processes:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    return [json.loads((folder / f"results-{rank}").read_text()) for rank in range(num_ranks)]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return _made(tmp_path_factory.mktemp("two"), ON_TWO_RANKS, 2)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return _made(tmp_path_factory.mktemp("four"), ON_FOUR_RANKS, 4)


@pytest.mark.parametrize("check", ON_TWO_RANKS)
def test_on_two_ranks(of_two: list[dict[str, str]], check: str) -> None:
    for rank, said in enumerate(of_two):
        assert said.get(check, "an earlier check failed") == "", f"on rank {rank}"


@pytest.mark.parametrize("check", ON_FOUR_RANKS)
def test_on_four_ranks(of_four: list[dict[str, str]], check: str) -> None:
    for rank, said in enumerate(of_four):
        assert said.get(check, "an earlier check failed") == "", f"on rank {rank}"


def test_tensors_that_nobody_has_split_are_taken_as_they_are() -> None:
    tensor = torch.randn(3, requires_grad=True)
    assert local_part(tensor) is local_parts([tensor])[0] is tensor
    assert not is_sharded(tensor)
    assert groups(tensor) == []
    assert trouble(tensor, tensor) is None
    rows = torch.randn(2, 7, dtype=torch.float64)
    found = Shards([tensor, tensor]).gather(rows, word=3.0)
    assert found.rows is rows
    assert found.word.item() == 3.0


def test_every_check_of_the_harness_is_run() -> None:
    source = HARNESS.read_text()
    defined = {line[4 : line.index("(")] for line in source.splitlines() if line.startswith("def ") and "() ->" in line}
    assert defined - {"main"} == {*ON_TWO_RANKS, *ON_FOUR_RANKS}
