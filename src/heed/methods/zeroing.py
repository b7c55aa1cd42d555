"""How the output changes when nothing is read from a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from heed.methods.attention import LayerSetting
from heed.methods.method import Job, Measured, OutputMethod
from heed.models.classifier import ATTENTION, REPLACEABLE, Classifier, output_of
from heed.models.devices import as_numbers

if TYPE_CHECKING:
    from heed.models.arrays import Attention


@dataclass(frozen=True)
class ValueZeroing(OutputMethod, LayerSetting):
    """The output minus the output when the values of a token are zero in the chosen layers.

    To zero a value is to set the token's column of attention to zero in every row and head. Rows
    are not scaled up again: they sum to less than 1. The token still attends to others, and goes
    around attention by the skip connection. With several layers, its values are zero in all of them
    at once, and layers above attend anew to what comes of it. A value that is the same for all
    tokens counts as well.

    The paper zeroes values in one layer, measures by cosine distance how far the representation of
    every token moves there, and rolls these maps out through the layers. heed asks the output.
    """

    name: ClassVar[str] = "value-zeroing"
    summary: ClassVar[str] = "change of the output when attention reads nothing from a token"
    of_changes: ClassVar[bool] = True
    only_by_name: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, REPLACEABLE})
    paper: ClassVar[str] = "mohebbi2023"

    def evaluations(self, units: int) -> int:
        # words have less than two tokens on average; special tokens, and the text itself, on top
        return 2 * units + 4

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._one(model, job) for job in jobs]

    def _one(self, model: Classifier, job: Job) -> Measured:
        import torch

        with torch.no_grad():
            attending = model.attending([job.tokens])
            count = len(attending.trace.attention)
            layers = self.layers_of(count)
            rows = attending.trace.classifying_rows()
            if layers == [count - 1] and rows.shape[2] == 1:
                logits = attending.logits(rows * _kept(rows.shape[-1]))
            else:
                columns = _columns(rows.shape[-1])
                replaced = dict.fromkeys(layers, columns)
                logits = model.trace([job.tokens], attention=replaced, layers=()).logits
        z = as_numbers(logits)[:, 0]
        outputs = output_of(z, job.label, self.explained(model), model.exclusive)
        # the first is the text itself, computed as the others are, so that rounding cancels
        scores = outputs[0] - outputs[1:]
        rows = scores[: model.width(job.tokens)].astype(float)
        return Measured(rows=rows, forward_passes=len(outputs) + 1)


def _kept(keys: int) -> Attention:
    """What multiplies a row: 1 for all keys, and then once for each key with 0 in its place."""
    import torch

    kept = torch.cat([torch.ones(1, keys), 1 - torch.eye(keys)])
    return kept[:, None, None, None, :]


def _columns(keys: int) -> Attention:
    """No weight replaced, and then once for each key its column by 0.

    NaN leaves a weight as the model computes it, so that layers above a change attend anew. One
    head stands for all, and one row of memory for all rows.
    """
    import torch

    columns = torch.full((keys + 1, keys), torch.nan)
    columns[1:].fill_diagonal_(0)
    return columns[:, None, None, None, :].expand(-1, 1, 1, keys, -1)
