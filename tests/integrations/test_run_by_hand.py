"""`sonde run` on scripts that have no optimiser and change their weights themselves."""

import pytest

import sonde

from .bench import Bench

# Numbers are those of plain torch in float64, before and after the script's own lines.
TRAINING = """\
    import math

    def norm(tensors):
        return math.sqrt(sum(t.detach().double().square().sum().item() for t in tensors))

    x = torch.randn(64, 6)
    y = (x.sum(1) > 0).long()

    def fit(update, *, num_micro=1, clip=None):
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        parameters, total = list(net.parameters()), 0.0
        for i in range(6 * num_micro):
            rows = slice(i % 8 * 8, i % 8 * 8 + 8)
            loss = F.cross_entropy(net(x[rows]), y[rows]) / num_micro
            loss.backward()
            total += loss.item()
            if (i + 1) % num_micro:
                continue
            before = [p.detach().double().clone() for p in parameters]
            print("norm", norm(p.grad for p in parameters))
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, clip)
            print("applied", norm(p.grad for p in parameters))
            rate = 0.5 / 4 ** (i // num_micro // 3)
            update(net, parameters, rate)
            change = norm(p.detach().double() - b for p, b in zip(parameters, before))
            print("rate", rate)
            print("loss", total)
            print("update", change)
            print("ratio", change / norm(before))
            total = 0.0
        print("weights", norm(parameters))
"""


def check(run: sonde.Run, printed: dict[str, list[float]], *, num_micro: int = 1) -> None:
    """All six steps are there, with the numbers that the script has."""
    tags = {
        "loss": "loss",
        "norm": "grad/norm",
        "applied": "grad/norm_applied",
        "update": "update/norm",
        "ratio": "update/ratio",
    }
    for word, tag in tags.items():
        found = run.series(tag)
        assert list(found.step) == [1, 2, 3, 4, 5, 6], tag
        assert list(found.value) == pytest.approx(printed[word], rel=2e-5), tag
    assert list(run.series("loss/num_micro").value) == [num_micro] * 6


def test_updates_of_every_style_are_watched_and_each_training_has_a_run(bench: Bench) -> None:
    bench.write(
        TRAINING
        + """\
    def in_data(net, parameters, rate):
        for p in parameters:
            p.data.add_(p.grad, alpha=-rate)
        net.zero_grad()

    def in_place(net, parameters, rate):
        with torch.no_grad():
            for p in parameters:
                p -= rate * p.grad
                p.grad.zero_()

    def assigned(net, parameters, rate):
        for p in parameters:
            p.data = p.data - rate * p.grad
            p.grad = None

    def clipped_by_hand(net, parameters, rate):
        for p in parameters:
            p.grad.clamp_(-0.01, 0.01)
            p.data.sub_(rate * p.grad)
        print("clamped", norm(p.grad for p in parameters))
        net.zero_grad()

    def with_decay(net, parameters, rate):
        for p in parameters:
            p.data.mul_(1 - 0.01 * rate).add_(p.grad, alpha=-rate)
            p.grad = None

    fit(in_data)
    fit(in_place, clip=0.1)
    fit(assigned, clip=0.1)
    fit(in_data, num_micro=3)
    fit(in_place, num_micro=3)
    fit(clipped_by_hand)
    fit(with_decay)
    """
    )
    (bench.folder / "sonde.toml").write_text("[cadence]\nupdates = 1\n")
    outcome, run = bench.both()
    assert outcome.err.count("no optimiser: weights are updated by hand; watching Sequential") == 7
    runs = [run, *(sonde.load(bench.folder / f"run-{i}") for i in range(2, 8))]
    words = ("loss", "norm", "applied", "update", "ratio", "rate")
    printed = [{word: outcome.printed(word)[i : i + 6] for word in words} for i in range(0, 42, 6)]
    for i, (found, numbers) in enumerate(zip(runs, printed, strict=True)):
        clamped = outcome.printed("clamped")
        expected = {**numbers, "norm": clamped, "applied": clamped} if i == 5 else numbers
        check(found, expected, num_micro=3 if i in (3, 4) else 1)
    for found, numbers in zip(runs[:6], printed, strict=False):
        assert list(found.series("lr").value) == pytest.approx(numbers["rate"], rel=1e-6)
    assert "lr" not in runs[6].tags()
    reasons = {event.data["tag"]: event.data["reason"] for event in runs[6].events("not-measured")}
    assert "updated by hand" in reasons["lr"]


def test_epochs_and_evaluations_belong_to_the_updates_before_them(bench: Bench) -> None:
    bench.write(
        """\
    x = torch.randn(48, 8)
    y = (x.sum(1) > 0).long()
    train = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    test = DataLoader(TensorDataset(torch.randn(20, 8), torch.randint(0, 2, (20,))), batch_size=8)
    net = nn.Linear(8, 2)
    momentum = [torch.zeros_like(p) for p in net.parameters()]
    for epoch in range(3):
        for a, b in train:
            loss = F.cross_entropy(net(a), b)
            loss.backward()
            with torch.no_grad():
                for p, m in zip(net.parameters(), momentum):
                    p -= 0.1 * m.mul_(0.9).add_(p.grad)
                    p.grad = None
            print("loss", loss.item())
        with torch.inference_mode():
            print("val", sum(F.cross_entropy(net(a), b).item() * len(a) for a, b in test) / 20)
    print("weights", sum(p.double().sum().item() for p in net.parameters()))
    """
    )
    outcome, run = bench.both()
    assert list(run.series("loss").value) == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert list(run.series("val/loss").value) == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert list(run.series("val/loss").step) == [3, 6, 9]
    assert list(run.series("epoch").step) == [3, 6, 9]
    assert list(run.series("epoch/samples").value)[1:] == [48, 48]
    assert "updated by hand" in bench.not_measured()["lr"]


def test_weights_that_are_loaded_clamped_or_averaged_are_no_updates_by_hand(bench: Bench) -> None:
    bench.write(
        """\
    import copy

    critic, states = nn.Linear(32, 8), [nn.Linear(32, 8).state_dict() for _ in range(4)]
    for state in states:  # a look at gradients
        critic.load_state_dict(state)
        critic(torch.randn(16, 32)).square().mean().backward()
        critic.zero_grad()
    critic(torch.ones(1, 32))
    print("looked", critic.weight.sum().item())
    average = copy.deepcopy(critic)
    opt = torch.optim.RMSprop(critic.parameters(), lr=0.01)
    for step in range(5):
        loss = critic(torch.randn(16, 32)).mean() - critic(torch.randn(16, 32) + 1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(critic.parameters(), average.parameters()):
                p.clamp_(-0.1, 0.1)
                q.lerp_(p, 0.1)
        print("loss", loss.item())
        average(torch.ones(1, 32))
    """
    )
    outcome, run = bench.both()
    assert "by hand" not in outcome.err
    assert "watching Linear with RMSprop" in outcome.err
    assert list(run.series("loss").value) == pytest.approx(outcome.printed("loss"), rel=1e-5)
    assert list(run.series("lr").value) == pytest.approx([0.01] * 5)
    assert not (bench.folder / "run-2").exists()
