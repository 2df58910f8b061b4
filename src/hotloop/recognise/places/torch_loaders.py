"""`torch.utils.data.DataLoader`: each batch that is asked for."""

from types import ModuleType
from typing import Any

from hotloop.loop.values import arrays_in
from hotloop.recognise.places import DATA
from hotloop.recognise.recognition import SAMPLES, Recognition


def install(recognition: Recognition, dataloader: ModuleType) -> None:
    """Make the batches of loaders a stage; dataloader: the module that defines the class."""
    data = recognition.stage(DATA, effect="pure")
    batches = recognition.method(
        data,
        # A script may make its dataset and its loader anew for every epoch.
        key=lambda iterator, _args, _kwargs: type(iterator._dataset).__qualname__,
        units=(SAMPLES, lambda _iterator, batch: samples(batch)),
    )
    recognition.patches.function(dataloader._BaseDataLoaderIter, "__next__", batches)


def samples(batch: Any) -> float:
    """The samples of a batch: the leading size of its first array, or what an object says.

    Batches of graphs, as those of PyTorch Geometric and DGL, have their number in `batch_size`.
    """
    first = next(arrays_in(batch), None)
    if first is not None and first.ndim:
        return float(first.shape[0])
    stated = getattr(batch, "batch_size", None)
    if isinstance(stated, int):
        return float(stated)
    return float(len(batch)) if isinstance(batch, list | tuple) else 1.0
