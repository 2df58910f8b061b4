"""Iterators of data that are no DataLoader: each item or batch that is asked for."""

from collections.abc import Mapping
from types import ModuleType

from hotloop.recognise.places import DATA
from hotloop.recognise.places.torch_loaders import samples
from hotloop.recognise.recognition import SAMPLES, Recognition

_CLASSES: Mapping[str, str] = {
    "datasets.iterable_dataset": "IterableDataset",
    "webdataset.pipeline": "DataPipeline",
    "grain._src.python.data_loader": "DataLoader",
}


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make the items of its iterators a stage; within a DataLoader they are a part of that."""
    data = recognition.stage(DATA, effect="pure")
    make = recognition.iterator(data, (SAMPLES, samples))
    recognition.patches.family(getattr(library, _CLASSES[library.__name__]), "__iter__", make)
