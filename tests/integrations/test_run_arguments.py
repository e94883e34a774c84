"""What a script was told is in the configuration of its run, however it read it."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .bench import Bench

TRAIN = """
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    loss = net(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def config_of(bench: Bench) -> dict[str, Any]:
    found = bench.run.info["config"]
    assert isinstance(found, dict)
    return found


def test_arguments_of_argparse_are_the_configuration(bench: Bench) -> None:
    bench.write(
        """
        import argparse, enum
        from pathlib import Path

        class Kind(enum.Enum):
            SMALL = 1

        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        parser.add_argument("--layers", type=int, nargs="+", default=[4, 8])
        parser.add_argument("--out", type=Path, default=Path("out"))
        parser.add_argument("--api-key", default="hunter2-very-secret")
        parser.add_argument("--fast", action="store_true")
        args = parser.parse_args()
        args.device, args.kind, args.activation, args.net = torch.device("cpu"), Kind.SMALL, F.relu, nn.Linear(2, 2)
        args.late = "later"
        print("lr", args.lr)
        """
        + TRAIN.replace("\n", "\n        ")
    )
    bench.both("train.py", "--lr", "0.3", "--fast")
    config = config_of(bench)
    assert (config["lr"], config["layers"], config["out"], config["fast"]) == (0.3, [4, 8], "out", True)
    assert (config["device"], config["kind"], config["activation"], config["late"]) == ("cpu", "SMALL", "relu", "later")
    assert "net" not in config
    assert "hunter2" not in str(config)
    assert (config["script"], config["args"]) == ("train.py", ["--lr", "0.3", "--fast"])


def test_subcommands_and_partial_parsers_join_and_what_libraries_read_elsewhere_does_not(bench: Bench) -> None:
    bench.write(
        """
        import argparse, sys
        first = argparse.ArgumentParser(add_help=False)
        first.add_argument("--seed", type=int)
        known, rest = first.parse_known_args()
        other = argparse.ArgumentParser()
        other.add_argument("--theirs")
        other.parse_args(["--theirs", "no"])
        main = argparse.ArgumentParser(parents=[first])
        commands = main.add_subparsers(dest="command")
        train = commands.add_parser("train")
        train.add_argument("--epochs", type=int)
        args = main.parse_args(sys.argv[1:])
        """
        + TRAIN.replace("\n", "\n        ")
    )
    bench.both("train.py", "--seed", "3", "train", "--epochs", "2")
    config = config_of(bench)
    assert (config["seed"], config["command"], config["epochs"]) == (3, "train", 2)
    assert "theirs" not in config


def test_a_script_that_reads_nothing_has_what_it_had(bench: Bench) -> None:
    bench.write(TRAIN)
    bench.both("train.py", "--words", "of its own")
    assert config_of(bench) == {"script": "train.py", "args": ["--words", "of its own"]}


def test_wrong_arguments_end_the_script_as_they_do_without(bench: Bench) -> None:
    bench.write(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.parse_args()
        """
    )
    bare, watched = bench.bare("train.py", "--lr", "high"), bench.watched("train.py", "--lr", "high")
    assert (watched.status, watched.out) == (bare.status, bare.out) == (2, "")
    assert "invalid float value: 'high'" in bare.err
    assert watched.err.startswith(bare.err)


def test_a_configuration_of_hydra_is_recorded_as_it_was_composed(bench: Bench) -> None:
    pytest.importorskip("hydra")
    (bench.folder / "conf").mkdir()
    (bench.folder / "conf" / "config.yaml").write_text(
        "lr: 0.1\nmodel:\n  width: 8\n  depths: [1, 2]\nname: run-${lr}\nhydra:\n  run:\n    dir: .\n"
    )
    bench.write(
        """
        import hydra

        @hydra.main(version_base=None, config_path="conf", config_name="config")
        def main(cfg):
            print("lr", cfg.lr)
        """
        + TRAIN.replace("\n", "\n            ")
        + """
        if __name__ == "__main__":
            main()
        """
    )
    bench.both("train.py", "lr=0.3", "model.width=16")
    config = config_of(bench)
    assert config["lr"] == 0.3
    assert config["model"] == {"width": 16, "depths": [1, 2]}
    assert config["name"] == "run-${lr}"
    assert "hydra" not in config


def test_argparse_is_left_as_it_was_and_not_imported_for_it() -> None:
    code = """
import sys
from sonde.integrations.arguments import Arguments
assert "argparse" not in sys.modules, "something else imports it now: this test proves nothing"
arguments = Arguments()
arguments.listen()
assert "argparse" not in sys.modules
import argparse
watched = argparse.ArgumentParser.parse_known_args
parser = argparse.ArgumentParser()
parser.add_argument("--a", type=int, default=1)
parser.parse_args()
parser.set_defaults(**{f"many{i}": i for i in range(1000)})
parser.parse_args()
print(len(arguments.read()))
arguments.leave()
assert argparse.ArgumentParser.parse_known_args is not watched
assert argparse.ArgumentParser.parse_known_args.__qualname__ == "ArgumentParser.parse_known_args"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 1 < ast.literal_eval(done.stdout) <= 400
