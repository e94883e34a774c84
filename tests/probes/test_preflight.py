import copy
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from tests.probes.armed import num_told
from tests.probes.preflight_loop import Loop
from torch import Tensor, nn
from torch.nn import functional


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def net(*, out: int = 5, extra: tuple[nn.Module, ...] = ()) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), *extra, nn.Linear(16, out))


def batch(num: int = 32, classes: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(num, 8), torch.randint(0, classes, (num,))


def train(
    model: nn.Module,
    *,
    steps: int = 6,
    loss_of: Callable[..., Tensor] = functional.cross_entropy,
    before_backward: str = "zero",
    batches: Callable[[], tuple[Tensor, Tensor]] = batch,
    optimizer: torch.optim.Optimizer | None = None,
    give: Callable[[Tensor], Any] = lambda loss: loss,
) -> Loop:
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    loop = Loop(model, optimizer)
    for _ in range(steps):
        x, y = batches()
        loop.batch(x, y)
        loss = loss_of(model(x), y)
        if before_backward == "zero":
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if before_backward == "zero after":
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()
        loop.close_step(give(loss))
    loop.close()
    return loop


def test_nothing_is_said_of_an_ordinary_training() -> None:
    loop = train(net(extra=(nn.Dropout(0.1),)), steps=25)
    assert loop.checks() == set()
    assert loop.facts["labels"][0]["value"] == pytest.approx(1.6, abs=0.05)
    assert loop.facts["input-scale"][0]["value"] < 2


def test_which_loss_it_is_is_said_with_its_classes() -> None:
    assert train(net()).facts["loss-kind"] == [{"where": [], "value": "nll", "classes": 5, "line": ANY}]
    mse = train(net(out=1), loss_of=lambda y, t: functional.mse_loss(y[:, 0], t.float()) + y.square().mean())
    assert mse.facts["loss-kind"][0]["value"] == "mse"
    assert "loss-kind" not in train(net(), loss_of=lambda y, t: (y[:, 0] - t).square().mean()).facts


def test_gradients_that_are_never_cleared_are_found_at_the_third_step_with_the_line() -> None:
    loop = train(net(), before_backward="nothing")
    assert loop.checks() == {"missing-zero-grad"}
    assert loop.said_at["missing-zero-grad"] == 2
    assert ".py:" in loop.facts["missing-zero-grad"][0]["line"]


@pytest.mark.parametrize("to_none", [True, False])
def test_clearing_between_backward_and_step_is_found(to_none: bool) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loop = Loop(model, optimizer)
    for _ in range(4):
        x, y = batch()
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()
        loop.close_step()
    assert loop.checks() == {"zero-grad-misplaced"}


def test_a_network_whose_gradients_are_zero_by_themselves_is_not_blamed_on_the_loop() -> None:
    model = net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(-1.0 if parameter.dim() == 1 else 0.0)
    frozen_output = model[2]
    assert isinstance(frozen_output, nn.Linear)
    frozen_output.requires_grad_(False)
    loop = train(model, before_backward="zero")
    assert "zero-grad-misplaced" not in loop.checks()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("where", ["before forward", "before backward", "after step"])
def test_clearing_anywhere_else_is_right(to_none: bool, where: str) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = Loop(model, optimizer)
    for _ in range(5):
        x, y = batch()
        if where == "before forward":
            optimizer.zero_grad(set_to_none=to_none)
        loss = functional.cross_entropy(model(x), y)
        if where == "before backward":
            optimizer.zero_grad(set_to_none=to_none)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if where == "after step":
            optimizer.zero_grad(set_to_none=to_none)
        loop.close_step(loss)
    assert loop.checks() == set()


@pytest.mark.parametrize("to_none", [True, False])
def test_players_of_a_game_clear_their_gradients_late_and_are_right(to_none: bool) -> None:
    makes, judges = nn.Sequential(nn.Linear(4, 8)), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = torch.optim.SGD(makes.parameters(), lr=0.01), torch.optim.SGD(judges.parameters(), lr=0.01)
    loop = Loop({"G": makes, "D": judges}, {"G": first, "D": second})
    for _ in range(8):
        second.zero_grad(set_to_none=to_none)
        real, made = judges(torch.randn(16, 8)), judges(makes(torch.randn(16, 4)).detach())
        (functional.softplus(-real).mean() + functional.softplus(made).mean()).backward()  # type: ignore[no-untyped-call]
        second.step()
        first.zero_grad(set_to_none=to_none)  # the next line adds to the gradients of the judge too
        functional.softplus(-judges(makes(torch.randn(16, 4)))).mean().backward()  # type: ignore[no-untyped-call]
        first.step()
        loop.close_step()
    assert loop.checks() == set()


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("kind", ["cross-entropy", "mse"])
def test_accumulation_is_told_from_accumulation_that_is_not_divided(divided: bool, kind: str) -> None:
    model = net(out=5 if kind == "cross-entropy" else 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = Loop(model, optimizer)
    for i in range(16):
        x, y = batch()
        loss = (
            functional.cross_entropy(model(x), y)
            if kind == "cross-entropy"
            else functional.mse_loss(model(x), x[:, :1])
        )
        (loss / 4 if divided else loss).backward()  # type: ignore[no-untyped-call]
        over = i % 4 == 3
        if over:
            optimizer.step()
            optimizer.zero_grad()
        loop.close_step(loss, over=over)
    assert loop.checks() == (set() if divided else {"accumulation-not-scaled"})
    if not divided:
        assert loop.facts["accumulation-not-scaled"][0]["value"] == 4


@pytest.mark.parametrize("give", [lambda loss: loss, lambda loss: loss.item(), lambda loss: loss.detach()])
def test_a_softmax_before_a_cross_entropy_is_found_whatever_the_loss_is_given_as(give: Callable[[Tensor], Any]) -> None:
    loop = train(net(extra=(nn.LayerNorm(16),)).append(nn.Softmax(1)), give=give)
    assert loop.checks() == {"double-softmax"}
    assert loop.said_at["double-softmax"] <= 2
    assert loop.facts["double-softmax"][0]["line"].startswith("test_preflight.py:")


def test_probabilities_into_an_nll_loss_and_a_sigmoid_before_bce_with_logits_are_found() -> None:
    assert train(net().append(nn.Softmax(1)), loss_of=functional.nll_loss).checks() == {"double-softmax"}

    def of_exponentials(out: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(out.exp(), y)

    assert train(net().append(nn.LogSoftmax(1)), loss_of=of_exponentials).checks() == {"double-softmax"}

    def binary(out: Tensor, y: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(out[:, 0], (y > 2).float())

    assert train(net().append(nn.Sigmoid()), loss_of=binary).checks() == {"double-softmax"}


def test_log_probabilities_and_probabilities_with_their_own_losses_are_right() -> None:
    assert train(net().append(nn.LogSoftmax(1)), loss_of=functional.nll_loss).checks() == set()
    assert train(net().append(nn.LogSoftmax(1))).checks() == set()

    def log_of(out: Tensor, y: Tensor) -> Tensor:
        return functional.nll_loss(out.clamp(min=1e-9).log(), y)

    assert train(net().append(nn.Softmax(1)), loss_of=log_of).checks() == set()


@pytest.mark.parametrize("give", [lambda loss: loss, lambda loss: loss.item()])
def test_a_summed_loss_is_found_and_one_divided_by_the_batch_is_not(give: Callable[[Tensor], Any]) -> None:
    def summed(out: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(out, y, reduction="sum")

    assert train(net(), loss_of=summed, give=give).checks() == {"summed-loss"}
    assert train(net(), loss_of=lambda out, y: summed(out, y) / len(y), give=give).checks() == set()


def test_eval_mode_in_training_is_found_and_frozen_batch_norms_are_not() -> None:
    model = net(extra=(nn.BatchNorm1d(16), nn.Dropout(0.2)))
    model.eval()
    loop = train(model)
    assert loop.checks() == {"eval-mode-in-training"}
    assert loop.facts["eval-mode-in-training"][0]["where"] == ["2", "3"]
    model = net(extra=(nn.BatchNorm1d(16), nn.Dropout(0.2)))
    model[2].eval()
    assert train(model).checks() == set()
    model = net()
    model.eval()
    assert train(model).checks() == set()


@pytest.mark.parametrize("module", [nn.BatchNorm1d(16), nn.Dropout(0.2)])
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("ends", [True, False], ids=["at the end of an epoch", "in the middle of one"])
def test_evaluation_in_train_mode_is_found_after_the_first_steps_too(
    module: nn.Module, right: bool, ends: bool
) -> None:
    model = net(extra=(copy.deepcopy(module),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = Loop(model, optimizer, steps=3)
    for _ in range(2):
        model.train()
        for _ in range(8):
            optimizer.zero_grad()
            functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 5, (16,))).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loop.close_step()
        if ends:
            loop.preflight.boundary()
        model.train(not right)
        with torch.no_grad():
            model(torch.randn(4, 8))
        model.train()
        loop.preflight.evaluated()
    assert loop.checks() == (set() if right else {"train-mode-in-evaluation"})


def test_a_batch_norm_gives_away_an_evaluation_whose_calls_nobody_saw() -> None:
    for right in (True, False):
        model = net(extra=(nn.BatchNorm1d(16),))
        loop = train_then_evaluate(model, right=right)
        assert loop.checks() == (set() if right else {"train-mode-in-evaluation"})


def train_then_evaluate(model: nn.Module, *, right: bool) -> Loop:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = Loop(model, optimizer, steps=2)
    for _ in range(8):
        optimizer.zero_grad()
        functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 5, (16,))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loop.close_step()
    model.train(not right)
    with torch.no_grad():
        model(torch.randn(4, 8))
    model.train()
    loop.preflight.evaluated()
    return loop


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.used, self.unused = nn.Linear(8, 16), nn.Linear(16, 5), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(self.body(x).relu())
        return out


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.experts[0](x)
        return out


def test_parameters_without_a_gradient_are_named_and_idle_experts_only_at_the_end() -> None:
    model = TwoHeads()
    loop = train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert loop.checks() == {"disconnected-parameter"}
    assert loop.facts["disconnected-parameter"][0]["where"] == ["unused.weight", "unused.bias"]
    experts = Experts()
    loop = train(experts, optimizer=torch.optim.SGD(experts.parameters(), lr=0.1), steps=21)
    assert loop.checks() == {"idle-parameter"}
    assert loop.said_at["idle-parameter"] == 20


def test_a_parameter_in_no_optimiser_is_named_unless_somebody_else_updates_it() -> None:
    model = net()
    loop = train(model, optimizer=torch.optim.SGD(model[0].parameters(), lr=0.1))
    assert loop.checks() == {"parameter-not-in-optimizer"}
    assert loop.facts["parameter-not-in-optimizer"][0]["where"] == ["2.weight", "2.bias"]
    model = net()
    watched, other = torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.SGD(model[2].parameters(), lr=0.1)
    loop = Loop(model, watched)
    for _ in range(5):
        x, y = batch()
        model.zero_grad()
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        watched.step()
        other.step()
        loop.close_step()
    assert loop.checks() == set()


def test_frozen_layers_are_told_with_the_share_that_never_learned() -> None:
    model = net()
    model[0].requires_grad_(False)
    fact = train(model).facts["frozen-parameter"][0]
    assert fact["where"] == ["0.weight", "0.bias"]
    assert fact["fresh"] == pytest.approx(128 / (128 + 80))
    model = net()
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(16, 8))  # type: ignore[operator]
    model[0].requires_grad_(False)
    assert train(model).facts["frozen-parameter"][0]["fresh"] == 0


def test_a_group_of_rate_zero_is_told_and_a_warmup_that_starts_at_zero_is_not() -> None:
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters(), "lr": 0.1}]
    assert train(model, optimizer=torch.optim.SGD(groups)).checks() == {"zero-rate"}
    model = net()
    assert train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0)).checks() == set()


def test_units_that_stay_alike_are_found_and_a_zero_started_output_is_not() -> None:
    model = net()
    with torch.no_grad():
        model[0].weight.fill_(0.1)  # type: ignore[operator]
        model[0].bias.zero_()  # type: ignore[operator]
        model[2].weight.fill_(0.1)  # type: ignore[operator]
    loop = train(model, steps=14)
    assert loop.facts["symmetric-units"][0]["where"] == ["0.weight"]
    model = net()
    with torch.no_grad():
        model[2].weight.zero_()  # type: ignore[operator]
    assert train(model, steps=14).checks() == set()


@pytest.mark.parametrize("num", [2, 32])
def test_batch_norm_over_two_values_is_found(num: int) -> None:
    model = net(extra=(nn.BatchNorm1d(16),))
    loop = train(model, batches=lambda: batch(num))
    assert loop.checks() == ({"batchnorm-few-values"} if num == 2 else set())


def test_labels_that_never_change_are_found_in_batches_and_in_gradients() -> None:
    def constant() -> tuple[Tensor, Tensor]:
        return torch.randn(32, 8), torch.full((32,), 3)

    loop = train(net(), batches=constant)
    assert loop.checks() == {"constant-labels", "constant-targets"}
    assert {fact["value"] for facts in map(loop.facts.get, loop.checks()) for fact in facts or []} == {3}
    other = train(net(), batches=constant, loss_of=lambda y, t: y.square().mean() + 0 * t.sum())
    assert other.checks() == {"constant-targets"}
    assert other.facts["constant-targets"][0]["is_integer"]
    numbers = train(net(out=1), batches=lambda: (torch.randn(32, 8), torch.ones(32, 1)), loss_of=functional.mse_loss)
    assert numbers.checks() == {"constant-targets"}
    assert not numbers.facts["constant-targets"][0]["is_integer"]
    row = torch.tensor([1.0, 2.0])
    rows = train(net(out=2), batches=lambda: (torch.randn(32, 8), row.repeat(32, 1)), loss_of=functional.mse_loss)
    assert "value" not in rows.facts["constant-targets"][0]
    turns = itertools.cycle([row.repeat(32, 1), 2 * row.repeat(32, 1)])
    other = train(net(out=2), batches=lambda: (torch.randn(32, 8), next(turns)), loss_of=functional.mse_loss)
    assert other.checks() == set()


def test_inputs_that_are_not_finite_or_out_of_scale_are_told() -> None:
    def spoilt() -> tuple[Tensor, Tensor]:
        x, y = batch()
        x[3, 2] = torch.nan
        return x, y

    assert "nonfinite-input" in train(net(), batches=spoilt, steps=2).checks()

    def scaled() -> tuple[Tensor, Tensor]:
        x, y = batch(256)
        return x * torch.tensor([1e-2, 1, 1, 1, 1, 1, 1, 1e2]), y

    fact = train(net(), batches=scaled).facts["input-scale"][0]
    assert fact["spread"] == pytest.approx(1e4, rel=0.3)
    assert fact["value"] == pytest.approx(100, rel=0.3)


@pytest.mark.parametrize("unscaled", [True, False])
def test_a_clip_before_unscale_is_found(unscaled: bool) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loop = Loop(model, optimizer)
    for _ in range(3):
        x, y = batch()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if unscaled:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        loop.close_step(loss)
    loop.close()
    assert loop.checks() == (set() if unscaled else {"clip-before-unscale"})
    if not unscaled:
        assert loop.facts["clip-before-unscale"][0]["value"] == 1024


def test_training_is_bit_identical_and_no_random_number_is_drawn() -> None:
    def run(watched: bool) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(7)
        model = net(extra=(nn.BatchNorm1d(16), nn.Dropout(0.3)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        loop = Loop(model, optimizer) if watched else None
        for _ in range(25):
            x, y = batch()
            if loop:
                loop.batch(x, y)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if loop:
                loop.close_step(loss)
        if loop:
            loop.close()
        return [t.clone() for t in model.state_dict().values()], torch.get_rng_state()

    (plain, plain_rng), (watched, watched_rng) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert torch.equal(plain_rng, watched_rng)


def test_models_copy_and_pickle_in_the_middle_of_an_iteration_and_nothing_is_left_behind() -> None:
    model = net(extra=(nn.BatchNorm1d(16),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = Loop(model, optimizer)
    assert num_told(model) > 1
    copy.deepcopy(model)(torch.randn(4, 8))
    pickle.loads(pickle.dumps(model))(torch.randn(4, 8))
    loop.close()
    assert num_told(model) == 0
    assert all(not parameter._backward_hooks for parameter in model.parameters())


def test_nothing_is_hooked_after_the_first_steps_but_for_a_glance() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loop = Loop(model, optimizer, steps=3, glance_steps=10)
    hooked = []
    for _ in range(15):
        hooked.append(num_told(model) > 0)
        optimizer.zero_grad()
        functional.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 5, (4,))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loop.close_step()
    assert hooked == [True] * 4 + [False] * 6 + [True] * 4 + [False]


def test_it_is_told_of_batches_clips_and_steps_in_iterations_only_that_it_looks_at() -> None:
    model = net()
    loop = Loop(model, torch.optim.SGD(model.parameters(), lr=0.05), steps=3, glance_steps=10)
    events = loop.events
    told = []
    for _ in range(15):
        told.append([len(who) for who in (events.batch, events.optimizer_enters, events.clip, events.scaler_step)])
        loop.close_step()
    assert told == [[1] * 4] * 4 + [[0] * 4] * 6 + [[1] * 4] * 4 + [[0] * 4]
    loop.close()


def test_a_model_with_a_compiled_part_is_left_alone_and_said_to_be() -> None:
    model = net()
    model[0].compile(backend="eager")
    loop = Loop(model, torch.optim.SGD(model.parameters(), lr=0.05))
    assert num_told(model) == 0
    assert all(not parameter._backward_hooks for parameter in model.parameters())
    assert "compiled" in loop.preflight.not_measured()["preflight/*"]
    loop.close()


def test_a_critic_that_somebody_else_trains_is_another_player() -> None:
    actor, critic = net(), net(out=1)
    critic[0] = nn.Linear(5, 16)
    mine, other = torch.optim.SGD(actor.parameters(), lr=0.01), torch.optim.SGD(critic.parameters(), lr=0.01)
    loop = Loop(actor, mine)
    for _ in range(4):
        x, _ = batch()
        other.zero_grad()
        critic(actor(x).detach()).square().mean().backward()
        other.step()
        mine.zero_grad()
        loss = -critic(actor(x)).mean()
        loss.backward()
        mine.step()
        loop.close_step(loss)
    loop.close()
    assert loop.said_at["other-player"] == 1
    assert loop.facts["other-player"] == [{"where": [], "num": 4}]


def test_a_network_that_nobody_trains_is_no_player() -> None:
    judge = nn.Linear(5, 3)
    loop = train(net(), loss_of=lambda out, _: judge(out).square().mean())
    assert "other-player" not in loop.facts


def test_parameters_of_a_loss_that_the_optimiser_holds_are_no_player() -> None:
    model, head = net(), nn.Linear(5, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.05)
    loop = train(model, optimizer=optimizer, loss_of=lambda out, _: head(out).square().mean())
    assert "other-player" not in loop.facts


def test_a_model_that_is_called_in_train_mode_without_gradients_between_its_steps_acts() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def acting(*, training: bool) -> Loop:
        loop = Loop(model, optimizer)
        for step in range(6):
            x, y = batch()
            if step % 2:
                model.train(training)
                with torch.no_grad():
                    model(x)
                model.train()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loop.close_step(loss)
        loop.close()
        return loop

    assert acting(training=True).said_at["acts"] == 4
    assert "acts" not in acting(training=False).facts


class Stack(nn.Module):
    """Layers in a list; the graph may be cut between them."""

    def __init__(self, *, cut: bool, parallel: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.out = nn.Linear(8, 5)
        self.cut, self.parallel = cut, parallel

    def forward(self, x: Tensor) -> Tensor:
        if self.parallel:  # heads, of which the loss looks at the last one only
            return torch.as_tensor(self.out([layer(x) for layer in self.layers][-1]))
        for layer in self.layers:
            x = layer(x.detach() if self.cut else x).relu_()
        return torch.as_tensor(self.out(x))


def test_a_graph_that_is_cut_between_layers_of_a_list_is_found_and_idle_heads_are_not() -> None:
    cut = train(Stack(cut=True), steps=25)
    assert cut.checks() == {"disconnected-parameter"}
    assert cut.facts["disconnected-parameter"][0]["where"] == [
        f"layers.{i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")
    ]
    assert cut.said_at["disconnected-parameter"] <= 7
    assert train(Stack(cut=False), steps=25).checks() == set()
    assert train(Stack(cut=False, parallel=True), steps=25).checks() == {"idle-parameter"}


@pytest.mark.parametrize(("forgotten", "expected"), [(True, {"idle-optimizer"}), (False, set())])
def test_an_optimiser_whose_step_is_forgotten_is_told_at_the_end(forgotten: bool, expected: set[str]) -> None:
    encoder, decoder = nn.Linear(8, 16), nn.Linear(16, 5)
    optimizers = {name: torch.optim.SGD(m.parameters(), lr=0.1) for name, m in (("e", encoder), ("d", decoder))}
    loop = Loop({"e": encoder, "d": decoder}, optimizers)
    for _ in range(22):
        x, y = batch()
        loss = functional.cross_entropy(decoder(encoder(x).relu()), y)
        loss.backward()  # type: ignore[no-untyped-call]
        for name, optimizer in optimizers.items():
            if name == "d" or not forgotten:
                optimizer.step()
        encoder.zero_grad()
        decoder.zero_grad()
        loop.close_step(loss)
    loop.close()
    assert loop.checks() - {"other-player"} == expected
    assert [fact["name"] for fact in loop.facts.get("idle-optimizer", [])] == (["e"] if forgotten else [])
