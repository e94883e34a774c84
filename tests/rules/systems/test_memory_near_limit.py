from tests.rules.traces import alarms, judge, rows

from sonde.rules.systems.memory_near_limit import MemoryNearLimit


def test_a_peak_near_the_whole_is_found_at_the_second_reading() -> None:
    table = rows(10, memory__total=80e9, memory__peak=[50e9] * 4 + [78e9] * 6)
    assert alarms(judge(MemoryNearLimit(), table))[0][0] == 6


def test_room_that_is_left_and_runs_without_a_gpu_are_silent() -> None:
    assert judge(MemoryNearLimit(), rows(10, memory__total=80e9, memory__peak=70e9)) == []
    assert judge(MemoryNearLimit(), rows(10, loss=1.0)) == []
