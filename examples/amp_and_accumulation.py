"""Mixed precision and gradient accumulation: float16 with a gradient scaler on CUDA, bfloat16 on a CPU."""

import torch
from torch import nn

import sonde

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.float16 if DEVICE == "cuda" else torch.bfloat16
ACCUMULATED = 4

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
# bfloat16 has the range of float32, so that nothing has to be scaled.
scaler = torch.amp.GradScaler(DEVICE, enabled=DTYPE is torch.float16)

with sonde.watch(model, optimizer, config={"dtype": str(DTYPE), "accumulated": ACCUMULATED}) as watch:
    for micro_step in range(1, 100 * ACCUMULATED + 1):
        inputs = torch.randn(32, 16, device=DEVICE)
        with torch.autocast(DEVICE, dtype=DTYPE):
            predicted = model(inputs)
            loss = nn.functional.mse_loss(predicted.float(), inputs.square().mean(1, keepdim=True))
        scaler.scale(loss / ACCUMULATED).backward()

        if micro_step % ACCUMULATED == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        # In every iteration, with the loss of its own batch: one without an optimiser's step is a micro-step.
        watch.step(loss, samples=len(inputs))

run = sonde.load(watch.path)
print(f"{run.steps} steps of {run.series('loss/num_micro').value[0]:.0f} micro-steps each")
print(f"loss {run.series('loss').value[0]:.3f} -> {run.series('loss').value[-1]:.3f}")
print(f"largest gradient norm, before clipping and unscaled: {run.series('grad/norm').value.max():.2f}")
if scaler.is_enabled():
    print(f"scale {run.series('amp/scale').value[-1]:.0f}, {len(run.events('skipped-step'))} steps skipped")
print(f"look at it with: sonde show {watch.path}")
