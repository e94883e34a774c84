"""Sequences: alignment, translation, tagging, forecasts."""

import math

import torch
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import nn
from torch.nn import functional as F


@kind(steps=200, has="inputs batch clip", goal=0.5)
def ctc(knobs: Knobs) -> Score:
    """Symbols of unknown lengths in frames; CTC aligns them."""
    shapes = torch.randn(6, 8)

    def speak(num):
        said = torch.randint(1, 6, (num, 4))
        said[:, 1:] = torch.where(said[:, 1:] == said[:, :-1], said[:, 1:] % 5 + 1, said[:, 1:])
        heard = shapes[said].repeat_interleave(3, 1)
        return heard + 0.5 * torch.randn_like(heard), said

    class Recogniser(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(8, 32, batch_first=True, bidirectional=True)
            self.out = nn.Linear(64, 6)

        def forward(self, x):
            return self.out(self.rnn(x)[0]).log_softmax(-1)

    heard, said = speak(1200)
    heard = knobs.inputs(heard)
    net = knobs.net(Recogniser())
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(6e-3)))
    criterion = nn.CTCLoss(zero_infinity=True)
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(1000, knobs.size(32))
        log_probs = net(knobs.feed(heard[b])).transpose(0, 1)
        loss = criterion(log_probs, said[b], torch.full((len(b),), 12), torch.full((len(b),), 4))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), knobs.clip(5.0))
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        best = net(heard[1000:]).argmax(-1).tolist()
        spoken = [[s for i, s in enumerate(one) if s and (i == 0 or one[i - 1] != s)] for one in best]
        return sum(a == b for a, b in zip(spoken, said[1000:].tolist(), strict=True)) / 200

    return score


@kind(steps=200, has="softmax", goal=0.5)
def teacher_forcing(knobs: Knobs) -> Score:
    """Sequence to sequence: a string is told backwards; the decoder is given the truth half of the time."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(12, 24)
            self.gru = nn.GRU(24, 64, batch_first=True)

        def forward(self, x):
            return self.gru(self.emb(x))[1]

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(12, 24)
            self.cell = nn.GRU(24, 64, batch_first=True)
            self.out = nn.Linear(64, 12)

        def forward(self, token, hidden):
            out, hidden = self.cell(self.emb(token)[:, None], hidden)
            return self.out(out[:, 0]), hidden

    enc, dec = knobs.net(Encoder()), knobs.net(Decoder())
    opts = {
        "enc": knobs.optimizer(torch.optim.Adam(enc.parameters(), lr=knobs.rate(5e-3))),
        "dec": knobs.optimizer(torch.optim.Adam(dec.parameters(), lr=knobs.rate(5e-3))),
    }
    w = knobs.watch({"enc": enc, "dec": dec}, opts)
    make = lambda num: torch.randint(1, 12, (num, 4))  # noqa: E731

    def decode(x, y, force):
        hidden, token, outs = enc(x), torch.zeros(len(x), dtype=torch.long), []
        for t in range(4):
            logits, hidden = dec(token, hidden)
            outs.append(logits)
            token = y[:, t] if torch.rand(()) < force else logits.argmax(1)
        return torch.stack(outs, 1)

    for _ in range(knobs.steps):
        x = make(48)
        y = x.flip(1)
        for opt in opts.values():
            opt.zero_grad()
        loss = F.cross_entropy(knobs.logits(decode(x, y, 0.5)).flatten(0, 1), y.flatten())
        loss.backward()
        for opt in opts.values():
            opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        x = make(300)
        return scores.accuracy(decode(x, x, 0.0).argmax(-1), x.flip(1))

    return score


@kind(steps=200, has="sgd", goal=0.5)
def random_field(knobs: Knobs) -> Score:
    """Tags by a linear-chain CRF whose partition function is summed by hand."""

    class CRF(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 16)
            self.conv = nn.Conv1d(16, 4, 1)
            self.trans = nn.Parameter(torch.zeros(4, 4))

        def scores(self, x):
            return self.conv(self.emb(x).transpose(1, 2)).transpose(1, 2)

        def nll(self, x, y):
            e = self.scores(x)
            gold = e.gather(2, y[..., None]).sum((1, 2)) + self.trans[y[:, :-1], y[:, 1:]].sum(1)
            alpha = e[:, 0]
            for t in range(1, x.shape[1]):
                alpha = torch.logsumexp(alpha[:, :, None] + self.trans, 1) + e[:, t]
            return (torch.logsumexp(alpha, 1) - gold).mean()

        @torch.no_grad()
        def viterbi(self, x):
            e = self.scores(x)
            best, back = e[:, 0], []
            for t in range(1, x.shape[1]):
                top = (best[:, :, None] + self.trans).max(1)
                best, back = top.values + e[:, t], [*back, top.indices]
            path = [best.argmax(1)]
            for step in reversed(back):
                path.append(step.gather(1, path[-1][:, None])[:, 0])
            return torch.stack(path[::-1], 1)

    def sentences(num):
        tags = [torch.randint(4, (num,))]
        for _ in range(9):  # a tag is followed by the next one, mostly
            tags.append(torch.where(torch.rand(num) < 0.8, (tags[-1] + 1) % 4, torch.randint(4, (num,))))
        y = torch.stack(tags, 1)
        return torch.where(torch.rand(y.shape) < 0.6, y * 5 + torch.randint(5, y.shape), torch.randint(20, y.shape)), y

    (x, y), (xt, yt) = sentences(1500), sentences(300)
    crf = knobs.net(CRF())
    opt = knobs.optimizer(torch.optim.SGD(crf.parameters(), lr=knobs.rate(0.1), momentum=0.9))
    w = knobs.watch(crf, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(1500, 32)
        opt.zero_grad()
        loss = crf.nll(x[b], y[b])
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.accuracy(crf.viterbi(xt), yt)


@kind(steps=200, has="inputs batch relu", goal=0.5)
def dilated(knobs: Knobs) -> Score:
    """A temporal convolution forecasts a noisy sum of waves."""

    class Causal(nn.Module):
        def __init__(self, cin, cout, dilation):
            super().__init__()
            self.pad = 2 * dilation
            self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(cin, cout, 3, dilation=dilation))
            self.relu = nn.ReLU()
            self.skip = nn.Conv1d(cin, cout, 1)

        def forward(self, x):
            return self.skip(x) + self.relu(self.conv(F.pad(x, (self.pad, 0))))

    net = nn.Sequential(Causal(1, 16, 1), Causal(16, 16, 2), Causal(16, 16, 4), Causal(16, 16, 8), nn.Conv1d(16, 1, 1))
    t = torch.arange(33) * 0.35
    phase, pace = torch.rand(1500, 2, 1) * 2 * math.pi, torch.rand(1500, 2, 1) + 0.4
    waves = knobs.inputs((torch.sin(pace * t + phase).sum(1) + 0.05 * torch.randn(1500, 33))[:, None])
    net = knobs.net(net)
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(4e-3)))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        x = knobs.feed(waves[knobs.pick(1200, knobs.size(32))])
        loss = F.huber_loss(net(x[..., :-1])[..., 8:], x[..., 9:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    test = waves[1200:]
    return lambda: scores.explained(net(test[..., :-1])[..., -1].detach(), test[..., -1])


@kind(steps=250, has="sgd")
def echo_state(knobs: Knobs) -> Score:
    """A random reservoir that is never trained, and a linear readout of it."""

    class Echo(nn.Module):
        def __init__(self, size=100):
            super().__init__()
            inner = torch.randn(size, size)
            self.register_buffer("inner", inner * 0.9 / torch.linalg.eigvals(inner).abs().max())
            self.register_buffer("enter", torch.rand(size, 1) * 2 - 1)
            self.read = nn.Linear(size, 2)

        @torch.no_grad()
        def states(self, u):
            h, out = torch.zeros(u.shape[0], len(self.inner)), []
            for t in range(u.shape[1]):
                h = torch.tanh(h @ self.inner.T + u[:, t : t + 1] @ self.enter.T)
                out.append(h)
            return torch.stack(out, 1)

        def forward(self, states):
            return self.read(states)

    u = torch.rand(200, 40) * 2 - 1
    want = torch.stack([u[:, 7:-1], u[:, 6:-2] * u[:, 8:]], -1) * 2  # what was one step ago, and a product
    echo = knobs.net(Echo())
    h = echo.states(u)[:, 8:]
    opt = knobs.optimizer(torch.optim.SGD(echo.parameters(), lr=knobs.rate(0.05), momentum=0.95))
    w = knobs.watch(echo, opt)
    for _ in range(knobs.steps):
        i = knobs.pick(160, 16)
        opt.zero_grad()
        loss = 0.5 * ((echo(h[i]) - want[i]) ** 2).sum(-1).mean()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.explained(echo(h[160:]).detach().flatten(0, 1), want[160:].flatten(0, 1))


@kind(steps=240, has="clip softmax", goal=0.6)
def carried_state(knobs: Knobs) -> Score:
    """A language model over one long text, whose hidden state is carried from piece to piece."""
    jump = torch.randint(16, (16, 16))
    text = torch.randint(16, (20, 2))
    for _ in range(400):
        follow = jump[text[:, -2], text[:, -1]]
        new = torch.where(torch.rand(20) < 0.9, follow, torch.randint(16, (20,)))
        text = torch.cat([text, new[:, None]], 1)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(16, 32)
            self.lstm = nn.LSTM(32, 96, batch_first=True)
            self.head = nn.Linear(96, 16)

        def forward(self, x, state=None):
            out, state = self.lstm(self.emb(x), state)
            return self.head(out), state

    def pieces(rows):
        while True:
            for start in range(0, 384, 16):
                yield start == 0, rows[:, start : start + 16], rows[:, start + 1 : start + 17]

    lm = knobs.net(LM())
    opt = knobs.optimizer(torch.optim.Adam(lm.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(lm, opt)
    state = None
    for step, (fresh, x, y) in enumerate(pieces(text[:16])):
        if step == knobs.steps:
            break
        state = None if fresh else tuple(part.detach() for part in state)
        logits, state = lm(x, state)
        loss = F.cross_entropy(knobs.logits(logits).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), max_norm=knobs.clip(1.0))
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        guess = lm(text[16:, :-1])[0].argmax(-1)
        return scores.accuracy(guess[:, 2:], text[16:, 3:]) / 0.9

    return score
