"""Record a plain PyTorch loop by hand, then read the run back."""

import tempfile

import torch

import sonde

folder = tempfile.mkdtemp() + "/regression"

torch.manual_seed(0)
x = torch.linspace(-1, 1, 256)[:, None]
y = torch.sin(3 * x)
model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

with sonde.record(folder, config={"lr": 1e-2, "width": 32}) as writer:
    for step in range(300):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        writer.log({"loss": loss.item(), "grad/norm": norm.item()}, step=step)
    writer.event("note", step=step, data={"text": "fitted a sine"})

run = sonde.load(folder)
loss_series = run.series("loss")
print(f"{run.name}: {run.state.ending}, loss {loss_series.value[0]:.3f} -> {loss_series.value[-1]:.5f}")
print(f"recorded: {', '.join(run.tags())}; look at it with: sonde show {folder}")
