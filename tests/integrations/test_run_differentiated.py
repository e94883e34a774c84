"""`sonde run` on what is differentiated: that is the training, whatever the mode, and nothing else is."""

from typing import NamedTuple

import pytest

import sonde

from .bench import Bench
from .test_run_loops import CLASSES

LOOP = """
    def {name}():
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).train({training})
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for epoch in range({epochs}):
            for a, b in train:
                {body}
                print("{name}", loss.item())
            if epoch % {every} == 0:
                {validation}

    {name}()
"""
TESTED = 'print("{name}_val", sum(F.cross_entropy(net(a), b).item() * len(a) for a, b in test) / 20)'


class Shape(NamedTuple):
    """A training in a few lines, in one mode from the first step to the last."""

    name: str
    body: str
    validation: str = "pass"
    epochs: int = 2
    every: int = 1
    training: bool = False

    def __str__(self) -> str:
        lines = "\n                ".join(self.body.split("; "))
        validation = self.validation.format(name=self.name)
        return LOOP.format(**{**self._asdict(), "body": lines, "validation": validation})


PLAIN = "opt.zero_grad(); loss = F.cross_entropy(net(a), b); loss.backward(); opt.step()"
SHAPES = (
    Shape(
        "two_calls",
        "one = F.cross_entropy(net(a), b) / 2; two = F.cross_entropy(net(-a), 1 - b) / 2; opt.zero_grad(); "
        "one.backward(); two.backward(); opt.step(); loss = one + two",
    ),
    Shape("plain", PLAIN),
    Shape("validated", PLAIN, f"with torch.no_grad(): {TESTED}", epochs=340, every=100),
    Shape("validated_with_gradients", PLAIN, TESTED),
    Shape(
        "a_sum",
        "out = net(a); loss = F.cross_entropy(out, b) + F.cross_entropy(net(-a), 1 - b); opt.zero_grad(); "
        "seen = F.cross_entropy(out.detach(), b).item(); loss.backward(); opt.step()",
    ),
    Shape(
        "two_in_one_call",
        "one = F.cross_entropy(net(a), b); two = F.cross_entropy(net(-a), 1 - b); opt.zero_grad(); "
        "torch.autograd.backward([one, two]); opt.step(); loss = one + two",
    ),
    Shape(
        "another_is_printed",
        "out = net(a); plain = F.cross_entropy(out, b); loss = F.cross_entropy(out, b, label_smoothing=0.1); "
        "opt.zero_grad(); loss.backward(); opt.step()",
    ),
    Shape(
        "gradient_penalty",
        "a.requires_grad_(); out = net(a); g = torch.autograd.grad(out.sum(), a, create_graph=True)[0]; "
        "loss = F.cross_entropy(out, b) + g.square().sum(1).mean(); opt.zero_grad(); loss.backward(); opt.step()",
    ),
    Shape(
        "gradients_handed_over",
        "loss = F.cross_entropy(net(a), b); gradients = torch.autograd.grad(loss, list(net.parameters())); "
        "[setattr(p, 'grad', g) for p, g in zip(net.parameters(), gradients)]; opt.step()",
        f"with torch.no_grad(): {TESTED}",
    ),
    Shape(
        "checkpointed",
        "a.requires_grad_(); out = torch.utils.checkpoint.checkpoint(net, a, use_reentrant=True); "
        "loss = F.cross_entropy(out, b); opt.zero_grad(); loss.backward(); opt.step()",
    ),
    Shape(
        "scaled",
        "loss = F.cross_entropy(net(a), b); scaler = torch.amp.GradScaler('cpu', init_scale=64.0); opt.zero_grad(); "
        "scaler.scale(loss).backward(); scaler.step(opt)",
    ),
)


def test_what_is_differentiated_is_training_though_the_model_is_in_eval_mode(bench: Bench) -> None:
    """One script: each training has a run of its own."""
    bench.write(CLASSES + "".join(map(str, SHAPES)))
    outcome, _ = bench.both()
    for number, shape in enumerate(SHAPES, 1):
        run = sonde.load(bench.folder / (f"run-{number}" if number > 1 else "run"))
        losses, tested = outcome.printed(shape.name), outcome.printed(f"{shape.name}_val")
        assert len(losses) == 3 * shape.epochs
        assert list(run.series("loss").value) == pytest.approx(losses, rel=1e-6), shape.name
        if tested:
            assert list(run.series("val/loss").value) == pytest.approx(tested, rel=1e-5), shape.name
            assert list(run.series("val/loss").step) == [3 * (e + 1) for e in range(0, shape.epochs, shape.every)]
        else:
            assert not run.tags("val/*"), shape.name


def test_two_players_in_eval_mode_make_one_step_of_two_losses(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    del net
    G, D = nn.Linear(4, 8).eval(), nn.Linear(8, 1).eval()
    of_g, of_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
    ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
    for a, _ in train:
        fake = G(torch.randn(16, 4))
        of_d.zero_grad()
        d_loss = F.mse_loss(D(a), ones) + F.mse_loss(D(fake.detach()), zeros)
        d_loss.backward()
        of_d.step()
        of_g.zero_grad()
        g_loss = F.mse_loss(D(G(torch.randn(16, 4))), ones)
        g_loss.backward()
        of_g.step()
        print("loss", (d_loss + g_loss).item())
    """
    )
    outcome, run = bench.both()
    assert list(run.series("loss").value) == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert not run.tags("val/*")


CLEARING = {
    "first": "opt.zero_grad(); loss = F.cross_entropy(net(a), b); loss.backward(); opt.step()",
    "last": "loss = F.cross_entropy(net(a), b); loss.backward(); opt.step(); opt.zero_grad(); net.zero_grad()",
    "between": "loss = F.cross_entropy(net(a), b); loss.backward(); opt.zero_grad(); opt.step()",
    "between_as_zeros": "loss = F.cross_entropy(net(a), b); loss.backward(); opt.zero_grad(False); opt.step()",
    "between_twice": "loss = F.cross_entropy(net(a), b); loss.backward(); net.zero_grad(); opt.zero_grad(); opt.step()",
    "after_an_attack": "a.requires_grad_(); F.cross_entropy(net(a), b).backward(); opt.zero_grad(); "
    "loss = F.cross_entropy(net(a + a.grad), b); loss.backward(); opt.step()",
}


def test_the_loss_is_recorded_wherever_gradients_are_cleared(bench: Bench) -> None:
    shapes = [
        Shape(name, body, f"with torch.no_grad(): {TESTED}", epochs=10, every=5, training=True)
        for name, body in CLEARING.items()
    ]
    bench.write(CLASSES + "".join(map(str, shapes)))
    outcome, _ = bench.both()
    for number, shape in enumerate(shapes, 1):
        run = sonde.load(bench.folder / (f"run-{number}" if number > 1 else "run"))
        assert list(run.series("loss").value) == pytest.approx(outcome.printed(shape.name), rel=1e-6), shape.name
        assert list(run.series("val/loss").value) == pytest.approx(outcome.printed(f"{shape.name}_val"), rel=1e-5)
        found = {finding.name for finding in sonde.diagnose(run)}
        assert ("zero-grad-misplaced" in found) == shape.name.startswith("between"), shape.name
