"""`sonde run` on loops of many kinds: the numbers are those that the script has, and the script has the same."""

import shutil

import numpy as np
import pytest

import sonde

from .bench import HEADER, Bench


def values(bench: Bench, tag: str) -> list[float]:
    return [float(value) for value in bench.run.series(tag).value]


def steps(bench: Bench, tag: str) -> list[int]:
    return [int(step) for step in bench.run.series(tag).step]


CLASSES = """\
    x = torch.randn(48, 8)
    y = (x.sum(1) > 0).long()
    train = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    test = DataLoader(TensorDataset(torch.randn(20, 8), torch.randint(0, 2, (20,))), batch_size=8)
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 2))
"""


def test_plain_loop_gives_losses_rates_epochs_and_evaluations(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        net.train()
        for a, b in train:
            opt.zero_grad()
            loss = criterion(net(a), b)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            opt.step()
            print("loss", loss.item())
            print("lr", scheduler.get_last_lr()[0])
        scheduler.step()
        net.eval()
        total = 0.0
        with torch.no_grad():
            for a, b in test:
                total += criterion(net(a), b).item() * len(a)
        print("val", total / 20)
    print(sum(p.double().sum().item() for p in net.parameters()))
    """
    )
    outcome, _ = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert values(bench, "lr") == pytest.approx(outcome.printed("lr"))
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [3, 6, 9]
    assert values(bench, "epoch") == [1, 2, 3]
    assert steps(bench, "epoch") == [3, 6, 9]
    assert values(bench, "epoch/samples")[1:] == [48, 48]
    # The first step's clip is seen as well.
    assert len(values(bench, "clip/factor")) == 9
    assert bench.run.state.ending == "finished"


def test_accumulation_under_a_gradient_scaler_is_one_step_with_the_unscaled_sum(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for epoch in range(2):
        total = 0.0
        for i, (a, b) in enumerate(train, 1):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(a), b) / 3
            scaler.scale(loss).backward()
            total += loss.item()
            if i % 3 == 0:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
        print("total", total)
        net.eval()
        with torch.no_grad():
            print("val", sum(F.cross_entropy(net(a), b).item() * len(a) for a, b in test) / 20)
        net.train()
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("total"), rel=1e-5)
    assert values(bench, "loss/num_micro") == [3, 3]
    assert len(run.series("loss/micro").value) == 6
    assert values(bench, "amp/scale") == [1024, 1024]
    # In the unit of the loss that is trained on: three micro-steps, each divided by three.
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)


def test_steps_that_a_scaler_withholds_are_skipped_steps(bench: Bench) -> None:
    bench.write(
        """\
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-60)
    for step in range(6):
        opt.zero_grad()
        loss = 100 * net(torch.ones(8, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        print("loss", loss.item())
    """
    )
    outcome, run = bench.both()
    skipped = run.events("skipped-step")
    assert 1 <= len(skipped) <= 5
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss")[len(skipped) :], rel=1e-6)


def test_a_gan_has_two_models_and_two_optimisers_by_the_script_s_names(bench: Bench) -> None:
    bench.write(
        """\
    netG = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    netD = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
    optG = torch.optim.Adam(netG.parameters(), lr=1e-3)
    optD = torch.optim.Adam(netD.parameters(), lr=2e-3)
    criterion = nn.BCELoss()
    for epoch in range(2):
        for (real,) in DataLoader(TensorDataset(torch.randn(64, 2)), batch_size=16):
            ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
            netD.zero_grad()
            errD_real = criterion(netD(real), ones)
            errD_real.backward()
            fake = netG(torch.randn(16, 4))
            errD_fake = criterion(netD(fake.detach()), zeros)
            errD_fake.backward()
            optD.step()
            netG.zero_grad()
            errG = criterion(netD(fake), ones)
            errG.backward()
            optG.step()
            print("real", errD_real.item())
            print("D", (errD_real + errD_fake).item())
            print("G", errG.item())
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss/part@errD_real") == pytest.approx(outcome.printed("real"), rel=1e-6)
    assert values(bench, "loss/part@netD") == pytest.approx(outcome.printed("D"), rel=1e-6)
    assert values(bench, "loss/part@netG") == pytest.approx(outcome.printed("G"), rel=1e-6)
    both = [d + g for d, g in zip(outcome.printed("D"), outcome.printed("G"), strict=True)]
    assert values(bench, "loss") == pytest.approx(both, rel=1e-6)
    assert values(bench, "lr@netD") == pytest.approx([2e-3] * 8)
    assert len(values(bench, "grad/norm@netG")) == 8
    assert run.tags("weight/norm@netG.0.weight")
    assert values(bench, "epoch") == [1, 2]


def test_a_sum_is_recorded_where_all_optimisers_made_a_step(bench: Bench) -> None:
    bench.write(
        """\
    G, D = nn.Linear(4, 2), nn.Linear(2, 1)
    optG, optD = torch.optim.SGD(G.parameters(), lr=0.01), torch.optim.SGD(D.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(48, 2)), batch_size=8)
    for i, (real,) in enumerate(data, 1):
        D.zero_grad()
        lossD = D(G(torch.randn(8, 4)).detach()).mean() - D(real).mean()
        lossD.backward()
        optD.step()
        print("D", lossD.item())
        if i % 3 == 0:
            G.zero_grad()
            lossG = -D(G(torch.randn(8, 4))).mean()
            lossG.backward()
            optG.step()
            print("both", (lossD + lossG).item())
    """
    )
    outcome, _ = bench.both()
    assert values(bench, "loss/part@D") == pytest.approx(outcome.printed("D"), rel=1e-5)
    assert steps(bench, "loss/part@D") == [1, 2, 3, 4, 5, 6]
    assert steps(bench, "loss/part@G") == steps(bench, "loss") == [3, 6]
    assert values(bench, "loss") == pytest.approx(outcome.printed("both"), rel=1e-5, abs=1e-6)


def test_a_loop_without_loader_closes_steps_when_the_model_is_called_again(bench: Bench) -> None:
    bench.write(
        """\
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.head = nn.Linear(8, 11)

        def forward(self, tokens, targets=None):
            logits = self.head(self.table(tokens))
            return logits, None if targets is None else F.cross_entropy(logits.view(-1, 11), targets.view(-1))

    def batch(split):
        tokens = torch.randint(0, 11, (4, 6))
        return tokens, tokens.roll(-1, 1)

    @torch.no_grad()
    def estimate():
        model.eval()
        means = {}
        for split in ("train", "val"):
            losses = torch.stack([model(*batch(split))[1] for _ in range(3)])
            means[split] = losses.mean().item()
        model.train()
        return means

    model = Model()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(8):
        if step and step % 4 == 0:
            print("val", estimate()["val"])
        logits, loss = model(*batch("train"))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        print("loss", loss.item())
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [4]
    assert "epoch" not in run.tags()


def test_a_loss_of_several_parts_has_no_validation_loss_and_says_so(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(2):
        for a, b in train:
            loss = F.cross_entropy(net(a), b) + 1e-3 * sum(p.square().sum() for p in net.parameters())
            opt.zero_grad()
            loss.backward()
            opt.step()
            print("loss", loss.item())
        with torch.no_grad():
            print("val", sum(F.cross_entropy(net(a), b).item() for a, b in test))
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert "val/loss" not in run.tags()
    assert "several parts" in bench.not_measured()["val/loss"]


def test_a_closure_gives_the_loss_at_the_beginning_of_its_step(bench: Bench) -> None:
    bench.write(
        """\
    net = nn.Linear(4, 1)
    opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4)
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    others = torch.randn(3, 4)

    def closure():
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for step in range(5):
        print("loss", opt.step(closure).item())
        with torch.no_grad():
            print("val", F.mse_loss(net(others), others.sum(1, keepdim=True)).item())
    """
    )
    outcome, _ = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [1, 2, 3, 4, 5]


def test_parts_of_a_model_that_are_called_one_by_one_are_one_model(bench: Bench) -> None:
    bench.write(
        """\
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)

        def loss(self, x):
            mean, log_var = self.encoder(x).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
            return F.mse_loss(self.decoder(z), x), -0.5 * (1 + log_var - mean**2 - log_var.exp()).mean()

    vae = Vae()
    opt = torch.optim.Adam(vae.parameters(), lr=1e-2)
    for step in range(4):
        rebuilt, divergence = vae.loss(torch.randn(16, 6))
        opt.zero_grad()
        rebuilt.backward(retain_graph=True)
        divergence.backward()
        opt.step()
        print("loss", (rebuilt + divergence).item())
        print("rebuilt", rebuilt.item())
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert values(bench, "loss/part@rebuilt") == pytest.approx(outcome.printed("rebuilt"), rel=1e-6)
    assert run.tags("weight/norm@decoder.weight")
    np.testing.assert_array_equal(run.series("loss").step, [1, 2, 3, 4])


def test_a_compiled_model_is_watched_and_compiled_as_without(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    model = torch.compile(net, backend="eager")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for a, b in train:
            opt.zero_grad()
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            opt.step()
            print("loss", loss.item())
    from torch._dynamo.utils import counters
    print(dict(counters["stats"]), dict(counters["graph_break"]))
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert run.tags("weight/norm@0.weight")
    assert "global hooks" not in outcome.err


def test_scripting_a_watched_model_and_loss_works(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    class Loss(nn.Module):
        def forward(self, a, b):
            return F.cross_entropy(a, b)

    criterion = torch.jit.script(Loss())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for a, b in train:
        opt.zero_grad()
        loss = criterion(net(a), b)
        loss.backward()
        opt.step()
        print("loss", loss.item())
    print(torch.jit.script(net.eval())(x[:1]).shape)
    """,
        header="import warnings\nwarnings.simplefilter('ignore')\n" + HEADER,
    )
    outcome, _ = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)


def test_folds_and_second_phases_have_runs_of_their_own(bench: Bench) -> None:
    bench.write(
        """\
    from torch.utils.data import SubsetRandomSampler

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    x = torch.randn(30, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))

    def fit(net, opt, num, fold):
        rest = [i for i in range(30) if i % 3 != fold]
        train = DataLoader(data, 10, sampler=SubsetRandomSampler(rest))
        test = DataLoader(data, 10, sampler=SubsetRandomSampler(range(fold, 30, 3)))
        for epoch in range(num):
            for a, b in train:
                opt.zero_grad()
                loss = F.mse_loss(net(a), b)
                torch.autograd.backward(loss)
                opt.step()
                print("loss", loss.item())
            with torch.no_grad():
                print("val", sum(F.mse_loss(net(a), b).item() for a, b in test))

    for fold in range(2):
        net = nn.Linear(4, 1)
        fit(net, Own(net.parameters(), lr=0.1), 3, fold)
    late = torch.optim.Adam(net.parameters(), lr=0.01)
    fit(net, late, 2, 1)
    """
    )
    outcome, _ = bench.both()
    runs = [sonde.load(bench.folder / name) for name in ("run", "run-2", "run-3")]
    for tag, word, num in (("loss", "loss", 6), ("val/loss", "val", 3)):
        found = [list(run.series(tag).value) for run in runs]
        printed = outcome.printed(word)
        assert found[0] == pytest.approx(printed[:num], rel=1e-5)
        assert found[1] == pytest.approx(printed[num : 2 * num], rel=1e-5)
        assert found[2] == pytest.approx(printed[2 * num :], rel=1e-5)
    assert [len(run.series("epoch").step) for run in runs] == [3, 3, 2]
    assert list(runs[2].series("lr").value) == pytest.approx([0.01] * 4)


def test_accumulation_with_a_rest_and_an_evaluation_before_the_first_step(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)

    def evaluate():
        net.eval()
        with torch.inference_mode():
            print("val", sum(F.cross_entropy(net(a), b).item() * len(a) for a, b in test) / 20)
        net.train()

    evaluate()
    for epoch in range(2):
        total = 0.0
        for i, (a, b) in enumerate(train, 1):
            loss = F.cross_entropy(net(a), b) / 2
            loss.backward()
            total += loss.item()
            if i % 2 == 0 or i == len(train):
                opt.step()
                opt.zero_grad()
                print("total", total)
                total = 0.0
        evaluate()
    """
    )
    outcome, _ = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("total"), rel=1e-6)
    assert values(bench, "loss/num_micro") == [2, 1, 2, 1]
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [0, 2, 4]


def test_a_gradient_that_backward_is_given_counts_in_the_sum(bench: Bench) -> None:
    bench.write(
        """\
    net = nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    plus, minus = torch.tensor(1.0), torch.tensor(-1.0)
    for step in range(3):
        opt.zero_grad()
        real = net(torch.randn(8, 2) + 1).mean()
        real.backward(minus)
        fake = net(torch.randn(8, 2)).mean()
        fake.backward(plus)
        opt.step()
        print("real", real.item())
        print("loss", (fake - real).item())
    """
    )
    outcome, _ = bench.both()
    assert values(bench, "loss/part@real") == pytest.approx(outcome.printed("real"), rel=1e-6)
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-5, abs=1e-7)


def test_what_is_differentiated_and_thrown_away_is_not_the_loss(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    import copy, io
    from torch.utils.checkpoint import checkpoint

    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for a, b in train:
        a.requires_grad_()
        attack = F.cross_entropy(net(a), b)
        attack.backward()
        opt.zero_grad()
        outputs = checkpoint(net, (a + 0.1 * a.grad.sign()).detach().requires_grad_(), use_reentrant=True)
        loss = F.cross_entropy(outputs, b)
        loss.backward()
        opt.step()
        with torch.no_grad():
            print("again", F.cross_entropy(outputs, b).item())
        print("loss", loss.item())
        twin = copy.deepcopy(net)
        torch.save(net, io.BytesIO())
        print(twin(a).sum().item())
    """
    )
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert not run.tags("val/*")


def test_a_script_that_calls_watch_is_left_to_itself(bench: Bench) -> None:
    bench.write(
        """\
    import sonde

    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with sonde.watch(net, opt, run="own") as watch:
        loss = net(torch.ones(2, 4)).square().mean()
        loss.backward()
        opt.step()
        watch.step(loss)
    """
    )
    outcome = bench.watched()
    assert outcome.status == 0
    assert "watches its training itself" in outcome.err
    assert not (bench.folder / "run").exists()
    assert sonde.load(bench.folder / "own").steps == 1


def test_two_optimisers_may_share_a_loss_and_an_evaluation_may_keep_gradients(bench: Bench) -> None:
    body = (
        CLASSES
        + """\
    data = train.dataset
    slow, fast = net[0].parameters(), net[3].parameters()
    opts = [torch.optim.SGD(slow, lr=0.01), torch.optim.Adam(fast, lr=0.02)][FIRST:]
    for epoch in range(2):
        net.train()
        for a, b in DataLoader(data, batch_size=16):
            loss = F.cross_entropy(net(a), b)
            for opt in opts:
                opt.zero_grad()
            loss.backward()
            for opt in opts:
                opt.step()
            print("loss", loss.item())
        net.eval()
        print("fit", sum(F.cross_entropy(net(a), b).item() for a, b in train))
        print("val", sum(F.cross_entropy(net(a), b).item() * len(a) for a, b in test) / 20)
    """
    )
    bench.write(body.replace("[FIRST:]", ""))
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert len(values(bench, "lr@sgd")) == len(values(bench, "lr@adam")) == 6
    assert run.tags("grad/norm@0.weight")
    assert values(bench, "epoch") == [1, 2]

    shutil.rmtree(bench.folder / "run")
    bench.write(body.replace("FIRST", "1"))
    outcome, run = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert values(bench, "epoch") == [1, 2]


def test_a_cover_of_an_optimiser_is_no_second_player(bench: Bench) -> None:
    bench.write(
        CLASSES
        + """\
    class Sharp(torch.optim.Optimizer):
        def __init__(self, parameters, **settings):
            super().__init__(parameters, settings)
            self.base_optimizer = torch.optim.SGD(self.param_groups, **settings)

        def second_step(self):
            self.base_optimizer.step()

    opt = Sharp(net.parameters(), lr=0.1)
    for epoch in range(2):
        for a, b in train:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(a), b)
            loss.backward()
            opt.second_step()
            print("loss", loss.item())
"""
    )
    outcome, _ = bench.both()
    assert values(bench, "loss") == pytest.approx(outcome.printed("loss"), rel=1e-6)
    assert values(bench, "lr") == pytest.approx([0.1] * 6)
