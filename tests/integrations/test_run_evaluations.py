"""`sonde run` on evaluations of many kinds: the validation loss is the script's own, or said not to be found."""

import pytest

from .bench import Bench
from .test_run_loops import CLASSES, steps, values

TRAINING = """\
    def fit(num=1):
        net.train()
        for _ in range(num):
            for a, b in train:
                opt.zero_grad()
                criterion(net(a), b).backward()
                opt.step()
"""


def script(body: str, *, criterion: str = "nn.CrossEntropyLoss()", data: str = CLASSES) -> str:
    made = f"    criterion = {criterion}\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    return data.rstrip(" ") + made + TRAINING + body


@pytest.mark.parametrize("weights", ["", ", weight=torch.tensor([0.2, 1.0, 3.0])"], ids=["plain", "weighted"])
def test_targets_count_as_the_loss_counts_them(bench: Bench, weights: str) -> None:
    """Batches with very different numbers of ignored targets, one with nothing else."""
    data = """\
    def rows(num, width):
        x = torch.randn(num, width, 4)
        y = torch.randint(0, 3, (num, width))
        y[torch.rand(num, width) < torch.linspace(0, 1, num)[:, None]] = 255
        y[-3:] = 255
        return x, y

    x, y = rows(24, 5)
    train = DataLoader(TensorDataset(x, y), batch_size=6, shuffle=True)
    held_x, held_y = rows(14, 5)
    test = DataLoader(TensorDataset(held_x, held_y), batch_size=3)
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x).transpose(1, 2)
    net = Net(4, 3)
    """
    body = """\
    for epoch in range(2):
        fit()
        net.eval()
        with torch.no_grad():
            batches = [criterion(net(a), b).item() for a, b in test]
        assert batches[-1] != batches[-1]
        logs, is_counted = F.log_softmax(net(held_x), 1), held_y != 255
        each = F.nll_loss(logs, held_y, criterion.weight, ignore_index=255, reduction="none")
        counts = is_counted if criterion.weight is None else criterion.weight[held_y.where(is_counted, 0)] * is_counted
        print("val", (each.sum() / counts.sum()).item())
    """
    bench.write(script(body, criterion=f"nn.CrossEntropyLoss(ignore_index=255{weights})", data=data))
    outcome, _ = bench.both()
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)


def test_sums_that_are_divided_by_the_size_of_the_set_are_means(bench: Bench) -> None:
    body = """\
    def test_all():
        net.eval()
        total = 0
        with torch.no_grad():
            for a, b in test:
                total += F.nll_loss(F.log_softmax(net(a), 1), b, reduction="sum").item()
        print("val", total / len(test.dataset))

    for epoch in range(1, 3):
        net.train()
        for a, b in train:
            opt.zero_grad()
            F.nll_loss(F.log_softmax(net(a), 1), b).backward()
            opt.step()
        test_all()
    """
    bench.write(script(body))
    outcome, _ = bench.both()
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [3, 6]


def test_a_mean_over_elements_counts_elements(bench: Bench) -> None:
    """Sequences of different lengths: the mean over all of them is not the mean over rows."""
    data = """\
    net = nn.Linear(3, 2)
    train = [(torch.randn(4, n, 3), torch.randn(4, n, 2)) for n in (3, 5)]
    longer = [(torch.randn(2, n, 3), torch.randn(2, n, 2)) for n in (1, 9, 4)]
    """
    body = """\
    for epoch in range(2):
        fit()
        net.eval()
        with torch.no_grad():
            for a, b in longer:
                criterion(net(a), b)
            print("val", sum((net(a) - b).square().sum() for a, b in longer).item() / 56)
    """
    bench.write(script(body, criterion="nn.MSELoss()", data=data))
    outcome, _ = bench.both()
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)


def test_an_evaluation_on_the_rows_of_the_training_is_none(bench: Bench) -> None:
    body = """\
    def evaluate(loader):
        net.eval()
        with torch.no_grad():
            return sum(criterion(net(a), b).item() * len(a) for a, b in loader) / len(loader.dataset)

    again = DataLoader(TensorDataset(x.clone(), y.clone()), batch_size=20)
    trainloader = again
    print("first", evaluate(train))
    for epoch in range(2):
        fit()
        print("fit", evaluate(train))
        print("copy", evaluate(trainloader))
        print("val", evaluate(test))
    """
    bench.write(script(body))
    outcome, run = bench.both()
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [3, 6]
    assert "val/loss_2" not in run.tags()


@pytest.mark.parametrize(
    ("lines", "is_found"),
    [
        ("fit_loss = loss_of(X, Y)\n        held = loss_of(A, B)\n        print('val', held)", False),
        ("train_loss = loss_of(X, Y)\n        test_loss = loss_of(A, B)\n        print('val', test_loss)", True),
        ("losses = loss_of(Xtr, Ytr), loss_of(Xte, Yte)\n        print('val', losses[1])", False),
        ("held = loss_of(A, B)\n        print('val', held)", True),
        ("fit_loss = loss_of(X, Y)\n        print('val', fit_loss)", None),
    ],
    ids=["nothing says which", "names say it", "one line has both", "there is only one", "the data of the training"],
)
def test_full_batches_without_a_loader(bench: Bench, lines: str, is_found: bool | None) -> None:
    """Minibatches are picked at random, so that only names could tell their data from others."""
    data = """\
    X, Y, A, B = torch.randn(40, 8), torch.randint(0, 2, (40,)), torch.randn(12, 8), torch.randint(0, 2, (12,))
    Xtr, Ytr, Xte, Yte = X, Y, A, B
    net = nn.Linear(8, 2)
    def batches():
        for _ in range(3):
            yield (X, Y) if WHOLE else (lambda i: (X[i], Y[i]))(torch.randint(0, 40, (10,)))
    """.replace("WHOLE", str(is_found is None))
    body = f"""\
    @torch.no_grad()
    def loss_of(inputs, targets):
        net.eval()
        return criterion(net(inputs), targets).item()

    def train():
        net.train()
        for a, b in batches():
            opt.zero_grad()
            criterion(net(a), b).backward()
            opt.step()

    for epoch in range(3):
        train()
        {lines}
    """
    bench.write(script(body, data=data).replace(TRAINING, ""))
    outcome, run = bench.both()
    if is_found:
        assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
        assert steps(bench, "val/loss") == [3, 6, 9]
    else:
        assert not run.tags("val/*")
        reason = "nothing says which" if is_found is False else "data of the training"
        assert reason in bench.not_measured()["val/loss"]


def test_a_look_at_the_training_s_own_batch_is_no_evaluation(bench: Bench) -> None:
    body = """\
    for epoch in range(2):
        for a, b in train:
            opt.zero_grad()
            loss = criterion(net(a), b)
            loss.backward()
            opt.step()
            net.eval()
            with torch.no_grad():
                print("again", criterion(net(a), b).item())
            net.train()
    """
    bench.write(script(body))
    _, run = bench.both()
    assert not run.tags("val/*")
    assert "data of the training" in bench.not_measured()["val/loss"]


def test_estimates_on_both_splits_before_the_first_step_and_after(bench: Bench) -> None:
    """A function that is called with the name of the split, from within a function that is told to train."""
    body = """\
    held = torch.randn(30, 8), torch.randint(0, 2, (30,))

    def get_batch(split):
        inputs, targets = (x, y) if split == "train" else held
        i = torch.randint(0, len(inputs), (8,))
        return inputs[i], targets[i]

    @torch.no_grad()
    def estimate_loss():
        out = {}
        net.eval()
        for split in ["train", "val"]:
            losses = torch.zeros(4)
            for k in range(4):
                a, b = get_batch(split)
                losses[k] = criterion(net(a), b).item()
            out[split] = losses.mean()
        net.train()
        return out

    def main(mode="train"):
        for step in range(9):
            if step % 3 == 0:
                print("val", estimate_loss()["val"].item())
            a, b = get_batch("train")
            opt.zero_grad(set_to_none=True)
            criterion(net(a), b).backward()
            opt.step()

    main()
    """
    bench.write(script(body))
    outcome, run = bench.both()
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [0, 3, 6]
    assert "val/loss_2" not in run.tags()


def test_a_model_that_is_told_the_size_of_the_step_gives_its_share_of_the_mean(bench: Bench) -> None:
    body = """\
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x=None, labels=None, num_items_in_batch=None):
            loss = F.cross_entropy(self.net(x), labels, reduction="sum")
            return loss / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    model = Model()
    for epoch in range(2):
        model.train()
        for i, (a, b) in enumerate(train):
            model(x=a, labels=b, num_items_in_batch=torch.tensor([48.0])).squeeze().backward()
        opt.step()
        opt.zero_grad()
        model.eval()
        with torch.no_grad():
            print("val", sum(model(x=a, labels=b).item() * len(a) for a, b in test) / 20)
    """
    bench.write(script(body))
    outcome, _ = bench.both()
    assert values(bench, "loss/num_micro") == [3, 3]
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)


def test_phases_of_one_loop_are_told_apart(bench: Bench) -> None:
    """The same lines train and evaluate, and each phase begins with a mode."""
    body = """\
    def train_model(loaders):
        for epoch in range(2):
            for phase in ["train", "val"]:
                net.train(phase == "train")
                total = 0.0
                for a, b in loaders[phase]:
                    opt.zero_grad()
                    with torch.set_grad_enabled(phase == "train"):
                        loss = criterion(net(a), b)
                        if phase == "train":
                            loss.backward()
                            opt.step()
                    total += loss.item() * len(a)
                print(phase, total / len(loaders[phase].dataset))

    train_model({"train": train, "val": test})
    """
    bench.write(script(body))
    outcome, run = bench.both()
    assert values(bench, "val/loss") == pytest.approx(outcome.printed("val"), rel=1e-5)
    assert steps(bench, "val/loss") == [3, 6]
    assert values(bench, "epoch") == [1, 2]
    assert "val/loss_2" not in run.tags()
