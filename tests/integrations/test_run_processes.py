"""`sonde run` as a program: arguments, folders, modules, children, and every way in which a script may end."""

import signal
import subprocess
import sys

import pytest

import sonde

from .bench import Bench

TRAINING = """\
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        opt.zero_grad()
        loss = F.mse_loss(net(torch.ones(8, 4)), torch.zeros(8, 1))
        loss.backward()
        opt.step()
        return loss.item()

"""


def test_an_exception_keeps_its_traceback_and_status_and_closes_the_run(bench: Bench) -> None:
    bench.write(
        TRAINING
        + """\
    for i in range(3):
        print(step())

    class Wrong(ValueError):
        pass

    def fail():
        torch.ones(3, requires_grad=True).backward()

    try:
        fail()
    except RuntimeError as error:
        raise Wrong("no") from error
    """
    )
    bare, watched = bench.bare(), bench.watched()
    assert (watched.status, watched.out) == (bare.status, bare.out)
    traceback = bare.err[bare.err.index("Traceback") :]
    assert watched.err.endswith(traceback), watched.err
    state = bench.run.state
    assert (state.ending, state.steps) == ("crashed", 3)
    assert state.reason == "Wrong: no"
    assert "after 3 steps" in watched.err


def test_a_script_that_runs_out_of_memory_has_a_finding_with_its_step_and_batch(bench: Bench) -> None:
    bench.write(
        TRAINING
        + """\
    for i in range(3):
        step()
    net.register_forward_hook(lambda *_: torch.empty(2**45))
    step()
    """
    )
    assert bench.watched().status == 1
    (event,) = bench.run.events("out-of-memory")
    assert (event.step, event.data["batch"]) == (3, {"0": [8, 4]})
    (found,) = [finding for finding in sonde.diagnose(bench.run) if finding.code == "SYS007"]
    assert found.severity == "critical"
    assert "step 4 ran out of memory on the host in the forward pass" in found.message


@pytest.mark.parametrize(
    ("code", "status", "ending"), [("3", 3, "exited"), ("", 0, "finished"), ("'bye'", 1, "exited")]
)
def test_sys_exit_keeps_its_status(bench: Bench, code: str, status: int, ending: str) -> None:
    bench.write(TRAINING + f"    import sys\n    print(step())\n    sys.exit({code})\n")
    watched = bench.watched()
    assert watched.status == status
    assert watched.err.endswith("bye\n") == (code == "'bye'")
    assert (bench.run.state.ending, bench.run.steps) == (ending, 1)


def test_ctrl_c_ends_the_script_as_it_would_and_closes_the_run(bench: Bench) -> None:
    bench.write(
        TRAINING
        + """\
    import time
    for i in range(5):
        step()
    print("ready", flush=True)
    while True:
        step()
        time.sleep(0.01)
    """
    )
    process = _ready(bench)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, err
    assert bench.run.state.ending == "interrupted"
    assert bench.run.steps >= 4  # the one that is being closed when the signal comes is lost
    assert "not judged after" in err
    assert "KeyboardInterrupt" in err
    assert "sonde/integrations" not in err


def test_a_killed_script_leaves_a_readable_run(bench: Bench) -> None:
    bench.write(
        TRAINING
        + """\
    import time, sonde
    step()
    while "loss" not in sonde.load("run").tags():
        step()
        time.sleep(0.01)
    print("ready", flush=True)
    while True:
        step()
    """
    )
    process = _ready(bench)
    process.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert bench.run.state.ending == "died", err
    losses = bench.run.series("loss").value
    assert len(losses) > 0
    assert (losses[1:] <= losses[:-1]).all()  # at last it is as small as it gets


def test_arguments_folder_and_module_search_path_are_those_of_python(bench: Bench) -> None:
    report = """\
    import os, sys
    import beside
    print(sys.argv, os.getcwd(), sys.path[0], __name__, os.path.relpath(__file__), __spec__ and __spec__.name)
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")
    print(step())
    """
    bench.write("", "inner/beside.py", header="")
    bench.write("", "beside.py", header="")
    bench.write("", "inner/__init__.py", header="")
    bench.write(TRAINING + report, "inner/train.py")
    for words in (("inner/train.py", "--run", "x", "--", "-m", "--help"), ("-m", "inner.train", "--lr", "3")):
        bench.both(*words)
    # Below the folder of the start, though the script goes elsewhere.
    outcome = bench.call("-m", "sonde", "run", "inner/train.py")
    assert [path.name[:6] for path in (bench.folder / "runs").iterdir()] == ["train-"], outcome.err


def test_what_is_not_there_is_one_line_and_status_two(bench: Bench) -> None:
    for words in (("nothing.py",), ("-m", "nothing_at_all")):
        outcome = bench.call("-m", "sonde", "run", *words)
        assert outcome.status == 2
        assert outcome.err.startswith("sonde: there is no")
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_loader_are_not_watched(bench: Bench, method: str) -> None:
    bench.write(
        """\
    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, i):
            torch.nn.Linear(1, 1)(torch.ones(1)).sum().backward()  # as nobody should
            return torch.full((4,), float(i)), torch.tensor([float(i * i)])

    if __name__ == "__main__":
        net = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=1e-6)
        loader = DataLoader(Squares(), batch_size=8, shuffle=True, num_workers=2, multiprocessing_context=METHOD,
                            persistent_workers=True)
        for epoch in range(2):
            for x, y in loader:
                loss = F.mse_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                print("loss", loss.item())
    """.replace("METHOD", repr(method))
    )
    outcome, run = bench.both()
    assert list(run.series("loss").value) == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert list(run.series("epoch").value) == [1, 2]
    assert outcome.err.count("Sonde: watching") == 1
    assert run.state.ending == "finished"


def test_sonde_off_runs_the_script_alone(bench: Bench) -> None:
    bench.write(TRAINING + "    import sys\n    print(step(), 'sonde.monitor.watch' in sys.modules)\n    sys.exit(5)\n")
    outcome = bench.watched(SONDE="off")
    assert outcome.status == 5
    assert outcome.out.endswith("False\n")
    assert outcome.err == ""
    assert not (bench.folder / "run").exists()


def test_a_script_may_set_the_environment_before_it_imports_torch(bench: Bench) -> None:
    bench.write(
        """\
    import os, sys
    assert "torch" not in sys.modules
    os.environ["OMP_NUM_THREADS"] = "3"
    import importlib.util
    importlib.util.find_spec("torch")
    import torch
    print(torch.get_num_threads())
    """,
        header="",
    )
    outcome = bench.call("-m", "sonde", "run", "train.py")
    assert outcome.out == bench.bare().out
    assert "no optimiser made a step" in outcome.err


def test_a_script_that_has_no_torch_runs_as_it_is(bench: Bench) -> None:
    bench.write("import sys\nprint(sorted(set(sys.modules) & {'torch', 'numpy'}))\n", header="")
    assert bench.call("-m", "sonde", "run", "train.py").out == "[]\n"


def test_a_run_that_cannot_be_written_leaves_the_training_alone(bench: Bench) -> None:
    bench.write(TRAINING + "    print(step())\n")
    (bench.folder / "run").write_text("a file")
    outcome = bench.watched()
    assert (outcome.status, outcome.out) == (0, bench.bare().out)
    assert "is not watched" in outcome.err


def test_a_script_may_replace_and_close_its_streams(bench: Bench) -> None:
    bench.write(
        TRAINING
        + """\
    import io, sys
    kept, sys.stdout = sys.stdout, io.StringIO()
    step()
    sys.stderr.close()
    step()
    kept.write(f"<{sys.stdout.getvalue()}>")
    kept.flush()  # the interpreter flushes what is `sys.stdout` at the end
    """
    )
    outcome, run = bench.both()
    assert (outcome.out, run.steps) == ("<>", 2)


def test_two_ranks_under_torchrun_record_beside_each_other(bench: Bench) -> None:
    bench.write(
        """\
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    net = DistributedDataParallel(nn.Linear(4, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(4):
        opt.zero_grad()
        loss = F.mse_loss(net(torch.full((2, 4), float(i + dist.get_rank()))), torch.zeros(2, 1))
        loss.backward()
        opt.step()
    dist.barrier()
    dist.destroy_process_group()
    """
    )
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "sonde", "run")
    outcome = bench.call(*words, "--run-dir", "run", "train.py")
    assert outcome.status == 0, outcome.err
    found = bench.run.ranks()
    assert [len(run.series("loss").step) for run in found.values()] == [4, 4], outcome.err
    assert found[0].tags("weight/norm@weight")


def test_the_end_gives_a_verdict(bench: Bench) -> None:
    bench.write(TRAINING + "    for i in range(30):\n        step()\n")
    outcome = bench.watched(SONDE_DOCTOR="process")
    assert "Sonde: healthy, with notes, after 30 steps (finished)" in outcome.err
    assert "watching took" in outcome.err
    assert str(bench.folder / "run") in outcome.err
    assert bench.run.steps == 30


def _ready(bench: Bench) -> "subprocess.Popen[str]":
    """The script, watched, once it has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sonde", "run", "--run", "run", "train.py"],
        cwd=bench.folder,
        env=bench.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process
