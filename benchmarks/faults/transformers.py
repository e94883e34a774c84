"""Trainings of small transformers whose attention, logits or embeddings run away."""

import torch
from benchmarks.faults import tasks
from benchmarks.faults.models import Transformer
from benchmarks.faults.scenario import Scenario, Session
from torch import Tensor, nn


def attention_logit_growth(session: Session) -> float:
    """Queries and keys under a rate of their own that is far too high; nothing holds their logits back."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=24)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=24, dim=32, depth=2, qk_norm=session.fixed)
    factor = draw.uniform(15, 25)
    attention = [p for name, p in model.named_parameters() if "qkv" in name]
    others = [p for name, p in model.named_parameters() if "qkv" not in name]
    groups = [{"params": others}, {"params": attention, "lr": session.lr(2e-3 * (1 if session.fixed else factor))}]
    optimizer = torch.optim.AdamW(groups, lr=session.lr(2e-3), weight_decay=0.0)
    return tasks.fit(session, model, optimizer, task, tasks.token_loss, epochs=6, batch=32)


def attention_entropy_collapse(session: Session) -> float:
    """The logits are multiplied where they should be divided: each query sees one key."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=24)
    scale = 1.0 if session.fixed else draw.uniform(120, 200)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=24, dim=draw.choice([32, 40]), scale=scale)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3))
    return tasks.fit(session, model, optimizer, task, tasks.token_loss, epochs=6, batch=32, tell_data=False)


def output_logit_drift(session: Session) -> float:
    """The term that is to hold log Z near zero has the wrong sign."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=24)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=24, dim=draw.choice([32, 40]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(3e-3), weight_decay=0.01)
    strength = draw.uniform(4e-3, 6e-3) * (1 if session.fixed else -1)
    loader = task.batches(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(6):
            for ids, following in watch.data(loader):
                logits = model(ids)
                loss = tasks.token_loss(logits, following)
                optimizer.zero_grad()
                (loss + strength * logits.logsumexp(-1).square().mean()).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, tasks.token_loss)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def embedding_norm_growth(session: Session) -> float:
    """Embeddings in a group of their own at a rate meant for another optimiser: they grow and drown the rest."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=24)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=24, dim=32)
    rate = 3e-3 * (1 if session.fixed else draw.uniform(120, 200))
    embeddings = [model.embed.weight, model.place.weight]
    chosen = {id(parameter) for parameter in embeddings}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    optimizer = torch.optim.AdamW(
        [{"params": others}, {"params": embeddings, "lr": session.lr(rate)}],
        lr=session.lr(3e-3),
        weight_decay=session.weight_decay(0.0),
    )
    loader = torch.utils.data.DataLoader(task.dataset(), batch_size=32, shuffle=True)
    with session.watch(model, optimizer) as watch:
        for _ in range(6):
            for ids, following in loader:
                optimizer.zero_grad()
                loss: Tensor = tasks.token_loss(model(ids), following)
                loss.backward()
                optimizer.step()
                watch.step(loss, samples=len(ids), tokens=ids.numel())
            quality = tasks.validate(model, task, tasks.token_loss)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


SCENARIOS = [
    Scenario(
        "transformer-attention-logit-growth", "attention-logit-growth", attention_logit_growth,
        ("attention-entropy-collapse", "lr-too-high"), repairable=True,
    ),
    Scenario(
        "transformer-attention-entropy-collapse", "attention-entropy-collapse", attention_entropy_collapse,
        ("attention-logit-growth",), repairable=True,
    ),
    Scenario("transformer-output-logit-drift", "output-logit-drift", output_logit_drift, cures=("add-z-loss",)),
    Scenario(
        "transformer-embedding-norm-growth", "embedding-norm-growth", embedding_norm_growth, ("lr-too-high",),
        repairable=True,
    ),
]  # fmt: skip
