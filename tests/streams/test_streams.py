"""What Sonde prints from within a training, and that nothing of it changes how the process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINTED = "from sonde.streams.printing import print_or_drop\nprint_or_drop('ours', sys.stderr)\n"
WARNED = "from sonde.streams.logs import logger\nlogger('sonde.store').warning('ours')\n"
WAYS = {
    "printed": PRINTED,
    "printed by a stream of the script's": (
        "class Tee:\n"
        "    def write(self, text): out.append(text); return sys.__stderr__.write(text)\n"
        "    def flush(self): sys.__stderr__.flush()\n"
        f"out = []\nsys.stderr = Tee()\n{PRINTED}assert out == ['ours\\n']\n"
    ),
    "warned": WARNED,
    "warned where logs go to stderr": f"import logging\nlogging.basicConfig()\n{WARNED}",
    "warned where logs go to stdout": f"import logging\nlogging.basicConfig(stream=sys.stdout)\n{WARNED}",
    "between bars": (
        "from sonde.console import bars\nimport contextlib\nfrom tqdm import tqdm\n"
        "bar = tqdm(file=open(os.devnull, 'w'))\n"
        "with contextlib.suppress(OSError):\n    bars.write('ours', sys.stderr)\nbar.close()\n"
    ),
}
GONE = {
    "a closed pipe": "read, write = os.pipe(); os.close(read); os.dup2(write, 1); os.dup2(write, 2); os.close(write)\n",
    "a full disk": "full = os.open('/dev/full', os.O_WRONLY); os.dup2(full, 1); os.dup2(full, 2)\n",
    "a terminal that is gone": (
        "own, theirs = os.openpty(); os.dup2(theirs, 1); os.dup2(theirs, 2); os.close(theirs); os.close(own)\n"
    ),
    "closed descriptors": "os.close(1); os.close(2)\n",
}


def run(code: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
    """Run code in a process whose streams are buffered, as they are by default."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", f"import os, sys\n{code}"],
        env={**surroundings, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("gone", GONE)
def test_what_cannot_be_written_leaves_the_exit_status_alone(gone: str, way: str) -> None:
    if "bars" in way:
        pytest.importorskip("tqdm")
    assert run(GONE[gone] + WAYS[way]).returncode == 0


def test_what_the_script_could_not_write_itself_stays_its_own_affair() -> None:
    theirs = "import contextlib\nwith contextlib.suppress(OSError): print('theirs', file=sys.stderr, flush=True)\n"
    assert run(GONE["a full disk"] + theirs).returncode == 120
    assert run(GONE["a full disk"] + theirs + PRINTED + WARNED).returncode == 120


def test_what_the_script_has_begun_to_write_comes_first() -> None:
    done = run(f"sys.stderr.write('theirs, ')\n{PRINTED}sys.stderr.write('theirs, ')\n{WARNED}")
    assert done.stderr == b"theirs, ours\ntheirs, ours\n"


def test_a_file_that_gets_the_closed_descriptor_holds_nothing_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "theirs"
    code = (
        f"os.close(2)\n{PRINTED}{WARNED}file = open({str(file)!r}, 'w')\nassert file.fileno() == 2\nfile.write('x')\n"
    )
    assert run(code).returncode == 0
    assert file.read_text() == "x"


@pytest.mark.parametrize("stream", ["None", "object()", "open(os.devnull)"])
def test_something_that_is_no_stream_is_passed_over(stream: str) -> None:
    code = f"from sonde.streams.printing import print_or_drop\nprint_or_drop('ours', {stream})\n"
    done = run(code)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_that_does_not_block_gets_all_that_somebody_reads() -> None:
    code = (
        "import threading\nread, write = os.pipe()\nos.set_blocking(write, False)\nstream = open(write, 'w')\n"
        "got = []\nreader = threading.Thread(target=lambda: got.append(open(read, 'rb').read()))\nreader.start()\n"
        "from sonde.streams.printing import print_or_drop\nprint_or_drop('x' * 1_000_000, stream)\n"
        "stream.close()\nreader.join()\nprint(len(got[0]))\n"
    )
    assert run(code).stdout == b"1000001\n"


def test_characters_that_the_stream_does_not_have_are_replaced() -> None:
    code = PRINTED.replace("'ours', sys.stderr", f"{'2 × 3 …'!a}, open(2, 'w', encoding='ascii')")
    assert run(code).stderr == b"2 ? 3 ?\n"
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run(PRINTED.replace("'ours'", ascii("2 × 3 …")), **bare).stderr == b"2 \\xd7 3 \\u2026\n"


def test_a_warning_names_the_line_that_gave_it() -> None:
    done = run(
        f"import logging\nlogging.basicConfig(format='%(funcName)s')\ndef here():\n {WARNED}here()".replace(
            "logger\nlogger", "logger\n logger"
        )
    )
    assert done.stderr == b"here\n"
