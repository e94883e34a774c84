"""A convolutional GAN on made-up pictures: two models, two optimisers, three calls of backward in a step.

python dcgan.py --epochs 3
"""

# ruff: noqa: N816
import argparse

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="convolutional GAN")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--nz", type=int, default=32, help="size of the latent vector")
parser.add_argument("--ngf", type=int, default=24)
parser.add_argument("--ndf", type=int, default=24)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=3200)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--beta1", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=10)
opt = parser.parse_args()

torch.manual_seed(opt.seed)
SIDE = 16


def pictures(num):
    """Soft discs in two of three colours."""
    axis = torch.linspace(-1, 1, SIDE)
    centre = torch.rand(num, 2, 1, 1) - 0.5
    square = (axis.view(1, SIDE, 1) - centre[:, 0]) ** 2 + (axis.view(1, 1, SIDE) - centre[:, 1]) ** 2
    shape = torch.tanh(4 * (0.3 + 0.2 * torch.rand(num, 1, 1) - square.sqrt()))
    colour = torch.eye(3)[torch.randint(0, 2, (num,))].view(num, 3, 1, 1)
    return (shape.unsqueeze(1) * (0.4 + 0.5 * colour) + 0.05 * torch.randn(num, 3, SIDE, SIDE)).clamp(-1, 1)


dataloader = DataLoader(TensorDataset(pictures(opt.samples)), batch_size=opt.batch_size, shuffle=True, drop_last=True)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(opt.nz, opt.ngf * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(opt.ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 4, opt.ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 2, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, opt.ndf * 2, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf * 2, opt.ndf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ndf * 4),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf * 4, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1)


netG = Generator()
netG.apply(weights_init)
netD = Discriminator()
netD.apply(weights_init)

criterion = nn.BCELoss()
fixed_noise = torch.randn(opt.batch_size, opt.nz, 1, 1)
real_label, fake_label = 1.0, 0.0
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.epochs):
    for i, data in enumerate(dataloader):
        # The discriminator: real pictures, then made ones.
        netD.zero_grad()
        real = data[0]
        label = torch.full((real.size(0),), real_label)
        output = netD(real)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()

        noise = torch.randn(real.size(0), opt.nz, 1, 1)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()

        # The generator.
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()

        if i % opt.log_interval == 0:
            print(
                f"[{epoch}/{opt.epochs}][{i}/{len(dataloader)}] Loss_D: {errD.item():.6f} Loss_G: {errG.item():.6f} "
                f"D(x): {D_x:.4f} D(G(z)): {output.mean().item():.4f}"
            )
    with torch.no_grad():
        print(f"epoch {epoch} brightness {netG(fixed_noise).mean().item():.6f}")
