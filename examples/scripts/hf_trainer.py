"""A small GPT-2, randomly initialised, trained by the Trainer on a made-up language.

python hf_trainer.py --epochs 2
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

NUM_WORDS = 64


class Sentences(Dataset):
    """A chain in which a word is followed by one of three."""

    def __init__(self, num, length, seed):
        followers = torch.randint(2, NUM_WORDS, (NUM_WORDS, 3), generator=torch.Generator().manual_seed(7))
        generator = torch.Generator().manual_seed(seed)
        words = torch.randint(2, NUM_WORDS, (num, 1), generator=generator)
        for _ in range(length - 1):
            choice = torch.randint(0, 3, (num,), generator=generator)
            words = torch.cat([words, followers[words[:, -1], choice][:, None]], dim=1)
        self.words = words

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index]}


class Printer(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']:.6f} lr {logs['learning_rate']:.3e}")
        elif "eval_loss" in logs:
            print(f"step {state.global_step} eval_loss {logs['eval_loss']:.6f}")


def main():
    parser = argparse.ArgumentParser(description="language model")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--sentences", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--output", default="out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    set_seed(args.seed)
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=64,
        n_positions=32,
        vocab_size=NUM_WORDS,
        bos_token_id=0,
        eos_token_id=1,
    )
    training_args = TrainingArguments(
        output_dir=args.output,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        warmup_steps=5,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=32,
        gradient_accumulation_steps=args.accumulate,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=args.log_interval,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=args.seed,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training_args,
        train_dataset=Sentences(args.sentences, 32, 1),
        eval_dataset=Sentences(128, 32, 2),
        callbacks=[Printer()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


if __name__ == "__main__":
    main()
