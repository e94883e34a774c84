import numpy as np
import pytest

from sonde.signals.stalls import Stall, stall

NAN = float("nan")


@pytest.mark.parametrize(
    ("loss_left", "gradient_left", "cosine", "kind"),
    [
        (0.01, 0.01, 0.0, Stall.CONVERGED),
        (0.01, 2.0, -0.1, Stall.CONVERGED),
        (0.01, NAN, NAN, Stall.CONVERGED),
        (0.5, 1.0, -0.9, Stall.BOUNCING),
        (0.5, NAN, -0.9, Stall.BOUNCING),
        (0.5, 0.9, 0.1, Stall.BOUNCING),
        (0.5, 0.01, 0.95, Stall.FLAT),
        (0.5, 0.01, 0.0, Stall.SADDLE),
        (NAN, 0.01, 0.0, Stall.UNKNOWN),
        (0.5, NAN, 0.0, Stall.UNKNOWN),
        (0.5, 0.01, NAN, Stall.UNKNOWN),
    ],
)
def test_a_plateau_is_named_by_what_was_measured(
    loss_left: float, gradient_left: float, cosine: float, kind: Stall
) -> None:
    assert stall(np.array([loss_left]), np.array([gradient_left]), np.array([cosine])).tolist() == [kind]


def test_plain_descent_gets_the_names_of_what_it_is_stuck_in() -> None:
    """Gradient descent on three real functions, judged by its own losses and gradients."""

    def descend(gradient: object, start: list[float], rate: float, steps: int = 60) -> tuple[float, float, float]:
        assert callable(gradient)
        point, gradients, points = np.array(start), [], []
        for _ in range(steps):
            gradients.append(gradient(point))
            points.append(point)
            point = point - rate * gradients[-1]
        a, b = gradients[-1], gradients[-2]
        norms = np.linalg.norm(a), np.linalg.norm(gradients[0])
        return float(norms[0] / norms[1]), float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), float(point[0])

    left, cosine, _ = descend(lambda p: 2 * p, [1.0], rate=1.0)  # x², at twice the best rate: from wall to wall
    assert stall(np.array([1.0]), np.array([left]), np.array([cosine])).tolist() == [Stall.BOUNCING]
    # A logistic tail: the loss at the start was steep, now it is flat and always points the same way.
    left, cosine, _ = descend(lambda p: np.exp(-np.abs(p)), [0.0], rate=3.0)
    assert stall(np.array([0.6]), np.array([left]), np.array([cosine])).tolist() == [Stall.FLAT]
