"""Several processes, each with a piece of every parameter: torchrun --standalone --nproc-per-node 2 fsdp2.py

Every rank calls `watch`, and all of them the same way: statistics of pieces are put together to those of the whole.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sonde

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(8, 64), *(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(3)), nn.Linear(64, 1)
)
for part in model:
    fully_shard(part, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  # after sharding: it must have the pieces

torch.manual_seed(1 + rank)  # every rank has data of its own
with sonde.watch(model, optimizer) as watch:
    for _ in range(100):
        inputs = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.square().sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        watch.step(loss, samples=len(inputs))

dist.barrier()  # all have closed their runs
if rank == 0:
    run = sonde.load(watch.path)
    print(f"loss {run.series('loss').value[0]:.3f} -> {run.series('loss').value[-1]:.3f}")
    print(f"norm of all gradients, whole: {run.series('grad/norm').value[-1]:.3f}")
    print(f"not measured: {', '.join(str(event.data['tag']) for event in run.events('not-measured'))}")
    print(f"look at it with: sonde show {watch.path}")
dist.destroy_process_group()
