"""Data-parallel training of a small residual network, one process for each worker.

torchrun --standalone --nproc-per-node 2 ddp.py --epochs 3
"""

# ruff: noqa: N817
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    def __init__(self, channels=24, num_classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.layer1 = Residual(channels)
        self.layer2 = Residual(channels)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = self.layer1(F.relu(self.stem(x)))
        x = self.layer2(F.max_pool2d(x, 2))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def textures(num, seed):
    """Waves of ten directions under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (num,), generator=generator)
    angle = labels * torch.pi / 10
    axis = torch.arange(16, dtype=torch.float32)
    along = angle.cos().view(-1, 1, 1) * axis.view(1, 16, 1) + angle.sin().view(-1, 1, 1) * axis.view(1, 1, 16)
    phase = 2 * torch.pi * torch.rand(num, 3, 1, 1, generator=generator)
    images = torch.sin(1.2 * along.unsqueeze(1) + phase)
    return TensorDataset(images + 0.5 * torch.randn(num, 3, 16, 16, generator=generator), labels)


class Trainer:
    def __init__(self, args):
        self.args, self.rank = args, dist.get_rank()
        train_set = textures(args.samples, 1)
        self.sampler = DistributedSampler(train_set)
        self.train_data = DataLoader(train_set, batch_size=args.batch_size, sampler=self.sampler)
        self.test_data = DataLoader(textures(400, 2), batch_size=100)
        self.model = DDP(ResNet())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
        self.scheduler = OneCycleLR(
            self.optimizer, max_lr=args.lr, epochs=args.epochs, steps_per_epoch=len(self.train_data)
        )
        self.criterion = nn.CrossEntropyLoss()

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def _run_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for i, (source, targets) in enumerate(self.train_data):
            lr = self.scheduler.get_last_lr()[0]
            loss = self._run_batch(source, targets)
            if self.rank == 0 and i % self.args.log_interval == 0:
                print(f"epoch {epoch} step {i}: loss {loss:.6f} lr {lr:.6e}", flush=True)

    @torch.no_grad()
    def _evaluate(self, epoch):
        self.model.eval()
        loss, correct, seen = 0.0, 0, 0
        for source, targets in self.test_data:
            output = self.model(source)
            loss += self.criterion(output, targets).item() * len(targets)
            correct += (output.argmax(1) == targets).sum().item()
            seen += len(targets)
        if self.rank == 0:
            print(f"epoch {epoch} done: test loss {loss / seen:.6f} accuracy {correct / seen:.4f}", flush=True)

    def train(self):
        for epoch in range(self.args.epochs):
            self._run_epoch(epoch)
            self._evaluate(epoch)


def main():
    parser = argparse.ArgumentParser(description="data-parallel training")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--samples", type=int, default=3200)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-interval", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(args).train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
