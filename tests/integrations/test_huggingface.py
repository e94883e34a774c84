"""The callback in the real `Trainer`: train, evaluate, checkpoint, resume, TRL, several processes."""

# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, name-defined"

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import sonde

from .bench import Bench
from .trainers import assert_no_jump, assert_same, called, launched, steps, strictly, values

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from sonde.integrations.huggingface import SondeCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


class Words(Dataset[dict[str, Tensor]]):
    """Sentences of sixteen words."""

    def __init__(self, num: int) -> None:
        self.words = torch.randint(2, 64, (num, 16), generator=torch.Generator().manual_seed(num))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return {"input_ids": self.words[place], "labels": self.words[place]}


def language_model(dropout: float = 0.1) -> Any:
    torch.manual_seed(0)
    small = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    drops = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), dropout)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, **ends, **drops))


def arguments(folder: Path, **settings: Any) -> Any:
    plain = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "seed": 1,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **{**plain, **settings})


def trainer(folder: Path, *callbacks: Any, kind: Any = None, **settings: Any) -> Any:
    """Five batches an epoch, the last of two sentences."""
    return (kind or transformers.Trainer)(
        language_model(),
        arguments(folder / "out", **settings),
        train_dataset=Words(18),
        eval_dataset=Words(10),
        callbacks=list(callbacks),
    )


def logged(host: Any, name: str) -> list[float]:
    return [entry[name] for entry in host.state.log_history if name in entry]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_losses_rates_epochs_and_evaluations_are_those_of_the_trainer(tmp_path: Path, accumulation: int) -> None:
    run = tmp_path / "run"
    host = trainer(tmp_path, SondeCallback(run, watch=strictly), gradient_accumulation_steps=accumulation)
    host.train()
    assert values(run, "loss") == pytest.approx(logged(host, "loss"), rel=1e-6)
    assert values(run, "lr") == pytest.approx(logged(host, "learning_rate"))
    assert values(run, "grad/norm") == pytest.approx(logged(host, "grad_norm"), rel=1e-5)
    assert values(run, "val/loss") == pytest.approx(logged(host, "eval_loss"), rel=1e-6)
    assert steps(run, "epoch") == steps(run, "val/loss") == ([5, 10] if accumulation == 1 else [3, 6])
    assert values(run, "loss/num_micro") == ([1] * 10 if accumulation == 1 else [2, 2, 1] * 2)
    assert [tag for tag in sonde.load(run).tags() if tag.startswith("val/")] == ["val/loss"]
    assert sonde.load(run).state.ending == "finished"


@pytest.mark.parametrize(
    "settings",
    [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}, {"gradient_checkpointing": True}],
    ids=["plain", "accumulated", "bf16", "checkpointing"],
)
def test_weights_and_logs_are_bit_identical_with_and_without(tmp_path: Path, settings: dict[str, Any]) -> None:
    if "gradient_checkpointing" in settings:
        settings = {**settings, "gradient_checkpointing_kwargs": {"use_reentrant": True}}
    watched = trainer(tmp_path, SondeCallback(tmp_path / "run", watch=strictly), **settings)
    watched.train()
    bare = trainer(tmp_path, **settings)
    bare.train()
    assert_same(watched.model, bare.model)
    assert logged(watched, "loss") == logged(bare, "loss")
    assert values(tmp_path / "run", "loss") == pytest.approx(logged(bare, "loss"), rel=1e-6)


def test_evaluations_between_epochs_and_by_several_names(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}
    host = trainer(tmp_path, SondeCallback(run, watch=strictly), **settings)
    host.eval_dataset = {"near": Words(10), "far": Words(8)}
    host.train()
    for name in ("near", "far"):
        assert values(run, f"val/{name}_loss") == pytest.approx(logged(host, f"eval_{name}_loss"), rel=1e-6)
        assert steps(run, f"val/{name}_loss") == [0, 2, 4, 6, 8, 10]
    before = len(steps(run, "val/near_loss"))
    host.evaluate()
    assert len(steps(run, "val/near_loss")) == before


def test_a_loss_of_ones_own_is_recorded(tmp_path: Path) -> None:
    class Mine(transformers.Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            outputs = model(input_ids=inputs["input_ids"])
            loss = outputs.logits.square().mean()
            return (loss, outputs) if return_outputs else loss

    host = trainer(tmp_path, SondeCallback(tmp_path / "run", watch=strictly), kind=Mine, eval_strategy="no")
    host.train()
    assert values(tmp_path / "run", "loss") == pytest.approx(logged(host, "loss"), rel=1e-6)


# Checkpoints.

CURVES = ["loss", "loss/ema", "loss/variance", "lr", "grad/norm", "val/loss", "epoch"]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_resumed_training_goes_on_without_a_jump(tmp_path: Path, accumulation: int) -> None:
    straight, run = tmp_path / "straight", tmp_path / "run"
    settings = {"save_strategy": "steps", "save_steps": 2, "gradient_accumulation_steps": accumulation}
    whole = trainer(tmp_path, SondeCallback(straight, watch=strictly), **settings)
    whole.train()

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step == 5  # one step after the checkpoint

    first = trainer(tmp_path, SondeCallback(run, watch=strictly), Stop(), **settings)
    first.train()
    resumed = trainer(tmp_path, SondeCallback(run, watch=strictly), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert_same(resumed.model, whole.model)
    assert_no_jump(run, straight, CURVES)
    assert [(b.parent, b.fork_step) for b in sonde.load(run).branches] == [(None, 0), (0, 5)]
    assert sonde.load(run).events("resumed")[0].data["optimizers"][0]["num_with_state"] > 0


def test_what_rules_remember_goes_on_as_well(tmp_path: Path) -> None:
    straight, run, settings = tmp_path / "straight", tmp_path / "run", {"save_strategy": "epoch"}
    judged = partial(strictly, settings={"doctor": "thread"})
    trainer(tmp_path, SondeCallback(straight, watch=judged), **settings).train()
    trainer(tmp_path, SondeCallback(run, watch=judged), **settings).train()
    resumed = trainer(tmp_path, SondeCallback(run, watch=judged), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-5"))
    assert_no_jump(run, straight, [*CURVES, "evaluation/train_val_gap", "evaluation/improvement_rate"])
    found = [[(f.code, f.first_step) for f in sonde.diagnose(path)] for path in (run, straight)]
    assert found[0] == found[1]


def test_a_callback_that_the_trainer_makes_anew_goes_on_as_well(tmp_path: Path) -> None:
    straight, run = tmp_path / "straight", tmp_path / "run"
    settings = {"save_strategy": "epoch", "restore_callback_states_from_checkpoint": True}
    trainer(tmp_path, SondeCallback(straight), **settings).train()
    trainer(tmp_path, SondeCallback(run), **settings).train()
    resumed = trainer(tmp_path, SondeCallback(run), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-5"))
    assert len(sonde.load(run).info["sessions"]) == 2
    assert_no_jump(run, straight, CURVES)


def test_a_checkpoint_from_before_the_callback_can_be_resumed_and_saved_again(tmp_path: Path) -> None:
    settings = {"save_strategy": "epoch"}
    trainer(tmp_path, **settings).train()
    later = trainer(tmp_path, SondeCallback(tmp_path / "run", watch=strictly), **settings)
    later.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-5"))
    assert steps(tmp_path / "run", "loss") == [1, 2, 3, 4, 5]
    saved = json.loads((tmp_path / "out" / "checkpoint-10" / "trainer_state.json").read_text())
    assert json.loads(saved["stateful_callbacks"]["SondeCallback"]["attributes"]["restored"])["step"] == 5


# The end.


class Failing(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            raise RuntimeError("no more")


def test_an_exception_in_a_with_block_closes_the_run_as_crashed(tmp_path: Path) -> None:
    run, backward = tmp_path / "run", torch.autograd.backward
    callback = SondeCallback(run, watch=strictly)
    with pytest.raises(RuntimeError, match="no more"), callback:
        trainer(tmp_path, callback, Failing()).train()
    state = sonde.load(run).state
    assert (state.ending, state.reason) == ("crashed", "RuntimeError: no more")
    assert steps(run, "loss") == [1, 2, 3]
    assert torch.autograd.backward is backward


def test_a_training_that_an_exception_left_is_closed_when_the_next_begins(tmp_path: Path) -> None:
    run, backward = tmp_path / "run", torch.autograd.backward
    callback = SondeCallback(run, watch=strictly)
    host = trainer(tmp_path, callback, Failing())
    with pytest.raises(RuntimeError, match="no more"):
        host.train()
    host.remove_callback(Failing)
    host.train()
    assert steps(run, "loss") == list(range(1, 11))
    assert torch.autograd.backward is backward
    assert sonde.load(run).state.ending == "finished"


CRASHING = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from sonde.integrations.huggingface import SondeCallback

data = [{"input_ids": torch.full((16,), 2 if i < 8 else 99), "labels": torch.full((16,), 2)} for i in range(12)]
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32, bos_token_id=0,
    eos_token_id=1))
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=4, train_sampling_strategy="sequential",
    report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no")
Trainer(model, arguments, train_dataset=data, callbacks=[SondeCallback("run")]).train()
"""


def test_an_exception_that_ends_the_process_closes_the_run_as_crashed(bench: Bench) -> None:
    bench.write(CRASHING, header="")
    outcome = bench.call("-W", "ignore", "train.py", HF_HUB_OFFLINE="1")
    assert outcome.status == 1
    assert "IndexError" in outcome.err
    state = bench.run.state
    assert (state.ending, state.reason.partition(":")[0]) == ("crashed", "IndexError")
    assert steps(bench.folder / "run", "loss") == [1, 2]


def test_nothing_of_sonde_is_called_after_the_training(tmp_path: Path) -> None:
    # What a test before this one has left open is not this training's.
    before = called(lambda: torch.ones(1, requires_grad=True).backward())  # type: ignore[no-untyped-call]
    host = trainer(tmp_path, SondeCallback(tmp_path / "run", watch=strictly))
    host.train()

    def step() -> None:
        words = Words(4).words
        host.model(input_ids=words, labels=words).loss.backward()
        host.optimizer.step()

    assert called(step) - before == set()


# TRL.


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_of_trl_is_watched_like_any_other(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[PAD]": 0, "[EOS]": 1, **{f"w{i}": i for i in range(2, 64)}}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[EOS]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]")
    texts = [" ".join(f"w{int(word)}" for word in words) for words in Words(16).words]
    config = trl.SFTConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=4,
        per_device_train_batch_size=4,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        save_strategy="no",
        gradient_checkpointing=False,
        max_length=32,
    )
    host = trl.SFTTrainer(
        language_model(),
        config,
        train_dataset=datasets.Dataset.from_dict({"text": texts}),
        processing_class=tokenizer,
        callbacks=[SondeCallback(tmp_path / "run", watch=strictly)],
    )
    host.train()
    assert len(logged(host, "loss")) == 4
    assert values(tmp_path / "run", "loss") == pytest.approx(logged(host, "loss"), rel=1e-6)


# Several processes.

PROGRAM = """
import json, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from sonde.integrations.huggingface import SondeCallback

words = torch.randint(2, 64, (32, 16), generator=torch.Generator().manual_seed(1))
data = [{"input_ids": row, "labels": row} for row in words]

def train(out, *callbacks, resume=None, losses=None, num=8):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32, bos_token_id=0,
        eos_token_id=1))
    arguments = TrainingArguments(output_dir=out, per_device_train_batch_size=2, max_steps=num, logging_steps=1,
        report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="steps", save_steps=4, seed=1,
        lr_scheduler_type="constant")
    host = Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks))
    host.train(resume_from_checkpoint=resume)
    total = sum(p.double().sum().item() for p in model.parameters())
    return {"losses": [entry["loss"] for entry in host.state.log_history if "loss" in entry], "weights": total.hex()}

bare = train("bare")
watched = train("whole", SondeCallback("whole-run"))
train("parts", SondeCallback("run"), num=4)
resumed = train("parts", SondeCallback("run"), resume="parts/checkpoint-4")
with open(f"{torch.distributed.get_rank()}.json", "w") as file:
    json.dump([bare, watched, resumed], file)
"""


def test_two_processes_record_their_own_losses_train_as_without_and_resume(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    start = (sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    launched(*start, "train.py", folder=tmp_path)
    for rank in (0, 1):
        bare, watched, resumed = json.loads((tmp_path / f"{rank}.json").read_text())
        assert watched == bare
        assert resumed == bare
    runs = [[tmp_path / name, tmp_path / name / "ranks" / "1"] for name in ("whole-run", "run")]
    for straight, resumed in zip(*runs, strict=True):
        assert_no_jump(resumed, straight, ["loss", "lr", "grad/norm"])
        assert sonde.load(resumed).state.ending == "finished"
    assert_no_jump(runs[1][0], runs[0][0], ["loss/ema"])
    means = [(a + b) / 2 for a, b in zip(*(values(run, "loss") for run in runs[0]), strict=True)]
    assert means == pytest.approx(bare["losses"], rel=1e-6)
