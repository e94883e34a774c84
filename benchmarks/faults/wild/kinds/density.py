"""Likelihoods and what stands in for them."""

import math

import torch
import torch.nn.functional as F
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import distributions as D
from torch import nn


def bars(num):
    """Binary pictures of 8 × 8 with two horizontal or two vertical bars, and some pixels flipped."""
    on = torch.rand(num, 8).argsort(1) < 2
    flat = torch.where(torch.rand(num, 1, 1) < 0.5, on[:, :, None].expand(-1, 8, 8), on[:, None].expand(-1, 8, 8))
    return (flat ^ (torch.rand(num, 8, 8) < 0.02)).float().flatten(1)


@kind(steps=300, has="relu batch", goal=0.6)
def elbo(knobs: Knobs) -> Score:
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
            self.mu, self.logvar = nn.Linear(64, 12), nn.Linear(64, 12)
            self.dec = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

        def forward(self, x):
            h = self.enc(x)
            mu, logvar = self.mu(h), self.logvar(h)
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
            return self.dec(z), mu, logvar

    def loss_function(recon, x, mu, logvar):
        bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return (bce + kld) / len(x)

    train, test = bars(4000), bars(500)
    vae = knobs.net(VAE())
    opt = knobs.optimizer(torch.optim.Adam(vae.parameters(), lr=knobs.rate(3e-3)))
    w = knobs.watch(vae, opt)
    for _ in range(knobs.steps):
        x = train[knobs.pick(4000, knobs.size(128))]
        opt.zero_grad()
        loss = loss_function(*(lambda out: (out[0], x, out[1], out[2]))(vae(x)))
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        p = train.mean(0).expand_as(test)
        recon, mu, logvar = vae(test)
        return scores.gained(loss_function(recon, test, mu, logvar), F.binary_cross_entropy(p, test) * 64, 12.0)

    return score


@kind(steps=300, has="inputs targets batch")
def mixture_density(knobs: Knobs) -> Score:
    y = torch.rand(3000) * 2 - 1
    x = knobs.inputs((y + 0.3 * torch.sin(7 * y) + 0.03 * torch.randn(3000))[:, None])
    x, xt, y, yt = x[:2500], x[2500:], knobs.targets(y[:2500]), y[2500:]

    def nll(out, t):
        logits, mean, log_sd = out.chunk(3, 1)
        mix = D.MixtureSameFamily(D.Categorical(logits=logits), D.Normal(mean, log_sd.clamp(-3, 3).exp()))
        return -mix.log_prob(t).mean()

    mdn = knobs.net(nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 15)))
    opt = knobs.optimizer(torch.optim.Adam(mdn.parameters(), lr=knobs.rate(3e-3)))
    w = knobs.watch(mdn, opt)
    for i in range(knobs.steps):
        j = knobs.pick(2500, knobs.size(128))
        loss = nll(mdn(knobs.feed(x[j])), y[j])
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
        if i % 60 == 59:
            with torch.no_grad():
                w.evaluate(loss=nll(mdn(xt), yt).item())
    trivial = float(yt.std().log() + 0.5 * math.log(2 * math.pi * math.e))
    return lambda: scores.gained(nll(mdn(xt), yt).detach(), trivial, trivial - 2.0)


@kind(steps=300, has="relu batch inputs schedule")
def coupling_flow(knobs: Knobs) -> Score:
    t = torch.rand(6000) * math.pi
    moon = torch.stack([torch.cos(t), torch.sin(t)], 1)
    data = torch.where(torch.rand(6000, 1) < 0.5, moon, torch.tensor([1.0, 0.5]) - moon)
    data = data + 0.08 * torch.randn(6000, 2)
    data = knobs.inputs((data - data.mean(0)) / data.std(0))
    train, test = data[:5000], data[5000:]
    mlp = lambda: nn.Sequential(nn.Linear(1, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))  # noqa: E731
    flow = knobs.net(nn.ModuleList(mlp() for _ in range(4)))

    def log_prob(x):
        a, b, log_det = x[:, :1], x[:, 1:], 0.0
        for net in flow:
            s, shift = net(a).chunk(2, 1)
            s = torch.tanh(s) * 2
            a, b, log_det = b * s.exp() + shift, a, log_det + s.squeeze(1)
        return log_det - 0.5 * (a**2 + b**2).squeeze(1) - math.log(2 * math.pi)

    opt = knobs.optimizer(torch.optim.AdamW(flow.parameters(), lr=knobs.rate(4e-3)))
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=knobs.steps)
    w = knobs.watch(flow, opt)
    done = 0
    while done < knobs.steps:
        for rows in knobs.order(5000).split(knobs.size(128)):
            if done == knobs.steps:
                break
            loss = -log_prob(knobs.feed(train[rows])).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            cosine.step()
            w.step(loss)
            done += 1
        with torch.no_grad():
            w.evaluate(loss=-log_prob(test).mean())
        w.epoch()
    scale = float(test.std(0).log().sum())
    return lambda: scores.gained(-log_prob(test).mean().detach(), scale + 2.84, scale + 1.5)


@kind(steps=300, has="batch")
def noise_contrastive_energy(knobs: Knobs) -> Score:
    """An unnormalised density, told from noise."""
    where = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]]) * 2
    make = lambda n: where[torch.randint(4, (n,))] + 0.3 * torch.randn(n, 2)  # noqa: E731
    noise = D.MultivariateNormal(torch.zeros(2), torch.eye(2) * 4)
    energy = knobs.net(nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)))
    opt = knobs.optimizer(torch.optim.RMSprop(energy.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(energy, opt)

    def ratio(x):
        return -energy(x).squeeze(1) - noise.log_prob(x)

    for _ in range(knobs.steps):
        real, fake = make(knobs.size(128)), noise.sample((knobs.size(128),))
        loss = F.softplus(-ratio(real)).mean() + F.softplus(ratio(fake)).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        real, fake = make(2000), noise.sample((2000,))
        loss = F.softplus(-ratio(real)).mean() + F.softplus(ratio(fake)).mean()
        return scores.gained(loss, 2 * math.log(2), 0.6)

    return score


@kind(steps=300, has="inputs targets batch order")
def heteroscedastic(knobs: Knobs) -> Score:
    x = torch.rand(3000, 3) * 4 - 2
    sd = 0.05 + 0.3 * torch.sigmoid(3 * x[:, 1])
    y = torch.sin(2 * x[:, 0]) + 0.3 * x[:, 2] + sd * torch.randn(3000)
    x = knobs.inputs(x)
    xt, yt, x, y = x[2500:], y[2500:], x[:2500], knobs.targets(y[:2500])
    body = knobs.net(nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)))
    criterion = nn.GaussianNLLLoss(full=True)
    opt = knobs.optimizer(torch.optim.Adam(body.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(body, opt)

    def objective(x, y):
        mean, raw = body(x).unbind(1)
        return criterion(mean, y, F.softplus(raw) + 1e-4)

    step = 0
    for _epoch in range(1000):
        for rows in knobs.order(2500).split(knobs.size(100)):
            if step >= knobs.steps:
                break
            loss = objective(knobs.feed(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            w.step(loss)
            step += 1
        else:
            w.evaluate(loss=objective(xt, yt).item())
            w.epoch()
            continue
        break
    trivial = float(yt.std().log()) + 0.5 * math.log(2 * math.pi * math.e)
    return lambda: scores.gained(objective(xt, yt).detach(), trivial, trivial - 2.0)


@kind(steps=350, has="relu batch", goal=0.5)
def vector_quantised(knobs: Knobs) -> Score:
    """VQ-VAE: straight-through codes, codebook loss and commitment."""
    enc = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
    dec = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 64))
    train, test = bars(4000), bars(500)
    codes = nn.Embedding(32, 8)
    codes.weight.data = enc(train[:8]).detach().view(32, 8) * 2  # spread as what it is to stand for
    model = knobs.net(nn.ModuleDict({"enc": enc, "dec": dec, "codes": codes}))
    enc, dec, codes = model["enc"], model["dec"], model["codes"]

    def run(x):
        z = enc(x).view(-1, 4, 8)
        q = codes(torch.cdist(z.detach().reshape(-1, 8), codes.weight.detach()).argmin(1)).view_as(z)
        straight = z + (q - z).detach()
        out = dec(straight.flatten(1))
        return F.mse_loss(out, x), F.mse_loss(q, z.detach()), F.mse_loss(z, q.detach())

    opt = knobs.optimizer(torch.optim.Adam(model.parameters(), lr=knobs.rate(3e-3)))
    w = knobs.watch(model, opt)
    for _ in range(knobs.steps):
        recon, book, commit = run(train[knobs.pick(4000, knobs.size(128))])
        loss = recon + book + 0.25 * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.gained(run(test)[0].detach(), (test - train.mean(0)).square().mean())


@kind(steps=300, has="batch", goal=0.5)
def wasserstein_critic(knobs: Knobs) -> Score:
    """A generator of points against a critic of clipped weights, with RMSprop."""
    centre = torch.tensor([[2.0, 1.0]])
    real = lambda n: centre + torch.randn(n, 2) @ torch.tensor([[0.8, 0.3], [0.0, 0.4]])  # noqa: E731
    gen = knobs.net(nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2)))
    critic = knobs.net(nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)))
    og = knobs.optimizer(torch.optim.RMSprop(gen.parameters(), lr=knobs.rate(5e-3)))
    oc = knobs.optimizer(torch.optim.RMSprop(critic.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch({"gen": gen, "critic": critic}, {"gen": og, "critic": oc})
    num = knobs.size(128)
    for _ in range(knobs.steps):
        for _ in range(3):
            oc.zero_grad()
            gap = critic(gen(torch.randn(num, 4)).detach()).mean() - critic(real(num)).mean()
            gap.backward()
            oc.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-0.2, 0.2)
        og.zero_grad()
        loss = -critic(gen(torch.randn(num, 4))).mean()
        loss.backward()
        og.step()
        w.step(gap)

    @torch.no_grad()
    def score():
        made, true = gen(torch.randn(4000, 4)), real(4000)
        off = (made.mean(0) - true.mean(0)).norm() + (torch.cov(made.T) - torch.cov(true.T)).norm()
        return scores.gained(off, 2.9)

    return score
