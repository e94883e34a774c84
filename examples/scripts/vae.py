"""A variational autoencoder of small made-up pictures.

python vae.py --epochs 4
"""

import argparse

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="variational autoencoder")
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--samples", type=int, default=6400)
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--latent", type=int, default=20)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=10)
args = parser.parse_args()

torch.manual_seed(args.seed)
SIDE = 28


def pictures(num):
    """A soft ring or disc somewhere, brighter or darker."""
    axis = torch.arange(SIDE, dtype=torch.float32)
    x = torch.rand(num, 2, 1, 1) * 12 + 8
    radius = torch.rand(num, 1, 1) * 5 + 3
    distance = ((axis.view(1, SIDE, 1) - x[:, 0]) ** 2 + (axis.view(1, 1, SIDE) - x[:, 1]) ** 2).sqrt()
    ring = torch.rand(num, 1, 1) < 0.5
    depth = torch.where(ring, (distance - radius).abs() - 1.5, distance - radius)
    return torch.sigmoid(-2 * depth) * (0.6 + 0.4 * torch.rand(num, 1, 1))


train_loader = DataLoader(TensorDataset(pictures(args.samples)), batch_size=args.batch_size, shuffle=True)
test_loader = DataLoader(TensorDataset(pictures(1000)), batch_size=args.batch_size)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(SIDE * SIDE, args.hidden)
        self.fc21 = nn.Linear(args.hidden, args.latent)
        self.fc22 = nn.Linear(args.hidden, args.latent)
        self.fc3 = nn.Linear(args.latent, args.hidden)
        self.fc4 = nn.Linear(args.hidden, SIDE * SIDE)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, SIDE * SIDE))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


model = VAE()
optimizer = optim.Adam(model.parameters(), lr=args.lr)


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, SIDE * SIDE), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def train(epoch):
    model.train()
    train_loss = 0.0
    for batch_idx, (data,) in enumerate(train_loader):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(train_loader)}]\tLoss: {loss.item():.4f}")
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(train_loader.dataset):.4f}")


def test(epoch):
    model.eval()
    test_loss = 0.0
    with torch.no_grad():
        for (data,) in test_loader:
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
    print(f"====> Test set loss: {test_loss / len(test_loader.dataset):.4f}")


for epoch in range(1, args.epochs + 1):
    train(epoch)
    test(epoch)
