"""Whether the labels that come with the data are what the loss is about."""

from typing import NamedTuple

from sonde.rules.step_view import StepView

_OF_TWO = ("bce", "bce-with-logits")


class Targets(NamedTuple):
    """What is known of the loss and of the labels so far.

    A loader often gives labels that nobody looks at: an autoencoder's, those of a contrastive pair. What guessing them
    would cost says nothing about such a loss.

    Attributes:
        kind: Of the loss, as preflight found it in its graph; empty where it is not known.
        num_classes: Of a cross-entropy; 0 where it is not known.
        most_distinct: The largest number of classes among the labels of a batch.
    """

    kind: str = ""
    num_classes: float = 0.0
    most_distinct: float = 0.0

    def after(self, view: StepView) -> "Targets":
        """With what one more step tells."""
        known = self
        distinct = view.value("label/num_distinct")
        if distinct > self.most_distinct:
            known = known._replace(most_distinct=distinct)
        for fact in view.facts:
            if fact.kind == "preflight" and fact.data.get("check") == "loss-kind":
                classes = fact.data.get("classes")
                num = float(classes) if isinstance(classes, int | float) else 0.0
                known = known._replace(kind=str(fact.data.get("value") or ""), num_classes=num)
        return known

    @property
    def are_labels(self) -> bool:
        """Whether the loss may be a cross-entropy of the labels.

        It is not where torch computes another loss: of two classes at most where it is a binary one, of about as many
        classes as the labels have where it is one of many.
        """
        if not self.kind or not self.most_distinct:
            return True
        if self.kind in _OF_TWO:
            return self.most_distinct <= 2
        return self.kind == "nll" and not self.num_classes > 2 * self.most_distinct
