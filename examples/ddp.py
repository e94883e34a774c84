"""Several processes, each with the whole model: torchrun --standalone --nproc-per-node 2 ddp.py

Every rank calls `watch`; rank 0 records into the run's folder, the others into `ranks/<rank>` inside.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import sonde

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)

torch.manual_seed(0)
inputs = torch.randn(512, 8)
data_set = TensorDataset(inputs, inputs.square().sum(1, keepdim=True))
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sampler = DistributedSampler(data_set)
loader = DataLoader(data_set, batch_size=32, sampler=sampler)

# torchrun gives all processes of a start the same id, and so the same folder.
with sonde.watch(model, optimizer, run=f"runs/ddp-{os.environ['TORCHELASTIC_RUN_ID']}") as watch:
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for batch, targets in watch.data(loader):
            loss = nn.functional.mse_loss(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()  # the ranks' gradients become one here
            optimizer.step()
            watch.step(loss)
        watch.epoch()

dist.barrier()  # all have closed their runs
if rank == 0:
    first, second = sonde.load(watch.path), sonde.load(watch.path / "ranks" / "1")
    print(f"loss of the last step: {first.series('loss').value[-1]:.3f} and {second.series('loss').value[-1]:.3f}")
    same = (first.series("grad/norm").value == second.series("grad/norm").value).all()
    print(f"every rank has a loss of its own; gradient norms are {'equal' if same else 'DIFFERENT'}")
    print(f"look at it with: sonde show {watch.path}")
dist.destroy_process_group()
