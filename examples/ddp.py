"""Several processes, each with the whole model: torchrun --standalone --nproc-per-node 2 ddp.py

Every rank calls `watch`; rank 0 records into the run's folder, the others into `ranks/<rank>` inside.
"""

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
data_set = TensorDataset(inputs, inputs.square().mean(1, keepdim=True))
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sampler = DistributedSampler(data_set)
loader = DataLoader(data_set, batch_size=32, sampler=sampler)

with sonde.watch(model, optimizer) as watch:
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
    runs = sonde.load(watch.path).ranks()
    losses = {number: round(float(run.series("loss").value[-1]), 4) for number, run in runs.items()}
    norms = {number: round(float(run.series("grad/norm").value[-1]), 4) for number, run in runs.items()}
    print(f"at the last step each rank has a loss of its own: {losses}")
    print(f"and all have the same gradient, here its norm: {norms}")
    print(f"look at it with: sonde show {watch.path}")
dist.destroy_process_group()
