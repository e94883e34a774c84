import json
import os
import subprocess
import sys
from pathlib import Path

HARNESS = Path(__file__).with_name("crash_harness.py")

# `SONDE_KILLS=200 pytest tests/store/test_crash.py` is the long form whose figure is in benchmarks/RESULTS.md.
KILLS = int(os.environ.get("SONDE_KILLS", "20"))


def test_every_acknowledged_row_reads_back_after_sigkill_at_random_moments(tmp_path: Path) -> None:
    command = [sys.executable, str(HARNESS), str(tmp_path), str(KILLS), os.environ.get("SONDE_KILLS_SEED", "7")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == KILLS
    assert told["inside_a_folding"] > 0
    assert told["rows"] > 0
