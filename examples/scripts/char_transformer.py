"""A small character-level transformer: gradient accumulation, mixed precision, warmup and cosine decay.

python char_transformer.py --steps 150
python char_transformer.py --dtype float16 --accumulate 4
"""

# ruff: noqa: N806
import argparse
import contextlib
import math
import random

import torch
import torch.nn as nn
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="character-level transformer")
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--width", type=int, default=96)
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=2, help="micro-batches in a step")
parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--warmup", type=int, default=20)
parser.add_argument("--eval-interval", type=int, default=50)
parser.add_argument("--eval-batches", type=int, default=8)
parser.add_argument("--log-interval", type=int, default=10)
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()


def story(num_sentences, seed):
    """Plain sentences out of a small grammar."""
    rng = random.Random(seed)
    who = ["the miller", "a young fox", "my aunt", "the old king", "a stranger", "the river", "her brother"]
    did = ["saw", "followed", "forgot", "painted", "carried", "sold", "found", "feared"]
    what = ["a red door", "the long road", "nine apples", "some letters", "the quiet sea", "a broken clock"]
    when = ["at dawn", "in the winter", "before the rain", "every evening", "long ago", "twice"]
    lines = []
    for _ in range(num_sentences):
        line = f"{rng.choice(who)} {rng.choice(did)} {rng.choice(what)} {rng.choice(when)}"
        lines.append(line[0].upper() + line[1:] + rng.choice(".!?"))
    return "\n".join(lines)


text = story(4000, seed=0)
alphabet = sorted(set(text))
code = {character: i for i, character in enumerate(alphabet)}
data = torch.tensor([code[character] for character in text])
cut = int(0.9 * len(data))
parts = {"train": data[:cut], "val": data[cut:]}


def get_batch(split):
    source = parts[split]
    ix = torch.randint(len(source) - args.context - 1, (args.batch_size,))
    x = torch.stack([source[i : i + args.context] for i in ix])
    y = torch.stack([source[i + 1 : i + 1 + args.context] for i in ix])
    return x, y


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(args.width, 3 * args.width, bias=False)
        self.proj = nn.Linear(args.width, args.width, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, args.heads, C // args.heads).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(args.width)
        self.attn = SelfAttention()
        self.ln_2 = nn.LayerNorm(args.width)
        self.mlp = nn.Sequential(
            nn.Linear(args.width, 4 * args.width), nn.GELU(), nn.Linear(4 * args.width, args.width)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, args.width)
        self.wpe = nn.Embedding(args.context, args.width)
        self.blocks = nn.ModuleList([Block() for _ in range(args.layers)])
        self.ln_f = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, vocabulary, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


torch.manual_seed(args.seed)
model = GPT(len(alphabet))
decayed = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.95)
)
precision = getattr(torch, args.dtype)
ctx = contextlib.nullcontext() if args.dtype == "float32" else torch.autocast("cpu", dtype=precision)
scaler = torch.amp.GradScaler("cpu", enabled=args.dtype == "float16")


def get_lr(step):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(args.eval_batches)
        for k in range(args.eval_batches):
            X, Y = get_batch(split)
            with ctx:
                _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


X, Y = get_batch("train")
for step in range(args.steps):
    lr = get_lr(step)
    for group in optimizer.param_groups:
        group["lr"] = lr
    if step % args.eval_interval == 0 and step > 0:
        losses = estimate_loss()
        print(f"step {step}: train loss {losses['train']:.6f}, val loss {losses['val']:.6f}")
    total = 0.0
    for _ in range(args.accumulate):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / args.accumulate
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % args.log_interval == 0:
        print(f"iter {step}: loss {total:.6f}, lr {lr:.6e}")
losses = estimate_loss()
print(f"end: train loss {losses['train']:.6f}, val loss {losses['val']:.6f}")
