"""Watch a plain PyTorch loop: epochs, clipping, a schedule, validation; then read the run back."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sonde

torch.manual_seed(0)
points = torch.rand(1024, 2) * 2 - 1
labels = (points[:, 0] * points[:, 1] > 0).long()  # opposite quadrants belong together
train_set, val_set = TensorDataset(points[:768], labels[:768]), TensorDataset(points[768:], labels[768:])

model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = DataLoader(train_set, batch_size=64, shuffle=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20 * len(loader))


def evaluate() -> dict[str, float]:
    """The share of points of the validation set that are told right."""
    with torch.no_grad():
        found = model(val_set.tensors[0]).argmax(1)
    return {"accuracy": (found == val_set.tensors[1]).float().mean().item()}


with sonde.watch(model, optimizer, config={"lr": 3e-3, "width": 32}) as watch:
    for _ in range(20):
        for inputs, targets in watch.data(loader):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            scheduler.step()
            watch.step(loss)
        watch.evaluate(metrics=evaluate())
        watch.epoch()

run = sonde.load(watch.path)
losses, accuracy = run.series("loss"), run.series("val/accuracy")
print(f"loss {losses.value[0]:.3f} -> {losses.value[-1]:.3f}, accuracy {accuracy.value[-1]:.1%}")
print(f"gradients clipped in {(run.series('clip/factor').value < 1).mean():.0%} of the steps")
print(f"‖Δθ‖/‖θ‖ of the first layer: {run.series('update/ratio@0.weight').value[-1]:.1e}")
print(f"{len(run.tags())} series; look at them with: sonde show {watch.path}")
