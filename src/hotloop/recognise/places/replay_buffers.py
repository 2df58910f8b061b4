"""Replay buffers of libraries: what the arms of an experiment write into them is taken back."""

import copy
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from hotloop.loop.code import name_of_class
from hotloop.recognise.recognition import Recognition
from hotloop.recognise.undo_log import BufferKind, UndoLog

REPLAY = "replay"


def install(recognition: Recognition, library: ModuleType) -> None:
    """Keep logs of a library's buffers; library: the module that defines them."""
    kind = _LIBRARIES[library.__name__]
    logs = recognition.kept.setdefault(REPLAY, {})  # by the buffer's identity, which they keep

    def make(write: Callable[..., Any]) -> Callable[..., Any]:
        def logged(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Others may write more than these rows.
            if type(self).__name__ in kind.classes and kind.known(self):
                log = logs.get(id(self))
                if log is None:
                    log = logs[id(self)] = UndoLog(self, kind)
                    recognition.note(REPLAY, log)
                log.before_write(args, kwargs)
            else:
                recognition.not_put_back[name_of_class(type(self))] = None
            return write(self, *args, **kwargs)

        return logged

    for name in kind.classes:
        owner = getattr(library, name, None)
        for method in kind.writes:
            if owner is not None and method in vars(owner):
                recognition.patches.function(owner, method, make)


# --- Stable-Baselines3: a row is a step of all envs -------------------------------------------


def _next_of_sb3(buffer: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Iterable[int]:
    # The next observation may be written where the next row will have its own.
    return buffer.pos, (buffer.pos + 1) % buffer.buffer_size


def _arrays_of_sb3(buffer: Any) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(buffer).items():
        parts = value if isinstance(value, dict) else {"": value}
        for part, array in parts.items():
            if isinstance(array, np.ndarray) and len(array.shape) > 1:
                found[f"{name}.{part}"] = array
    return found


# --- Tianshou: a row is a step of one env; a buffer of several envs has one for each ------------


def _next_of_tianshou(buffer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[int]:
    parts = getattr(buffer, "buffers", None)
    if parts is None:
        return (buffer._insertion_idx,)
    ids = args[1] if len(args) > 1 else kwargs.get("buffer_ids")
    ids = range(len(parts)) if ids is None else ids
    return [int(parts[i]._insertion_idx + buffer._offset[i]) for i in ids]


def _arrays_of_tianshou(buffer: Any) -> Mapping[str, Any]:
    return _flat(buffer._meta)


def _flat(batch: Any, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in batch.items():
        if hasattr(value, "get_keys"):
            found |= _flat(value, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = value
    return found


# --- skrl: a row is a step of all envs, or of some ----------------------------------------------


def _next_of_skrl(memory: Any, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[int]:
    steps = 1
    first = next((each for each in kwargs.values() if each is not None), None)
    if first is not None and first.ndim == 2 and memory.num_envs == 1:
        steps = len(first)
    return [(memory.memory_index + i) % memory.memory_size for i in range(steps)]


def _arrays_of_skrl(memory: Any) -> Mapping[str, Any]:
    return dict(memory.tensors)


# --- TorchRL: a storage, the writer's place in it, and what the sampler has yet to give ----------


def _next_of_torchrl(buffer: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Iterable[int]:
    data, size = args[0], buffer._storage.max_size
    if not isinstance(data, list):
        data = getattr(data, "batch_size", getattr(data, "shape", ()))
        data = range(data[0] if len(data) else 1)
    rows = len(data)
    first = int(buffer._writer._cursor)
    return [(first + i) % size for i in range(min(rows, size))]


def _arrays_of_torchrl(buffer: Any) -> Mapping[str, Any]:
    stored = buffer._storage._storage
    if stored is None:  # nothing was written yet
        return {}
    if hasattr(stored, "batch_size"):
        return {str(key): value for key, value in stored.items(True, True)}
    return {"": stored}


def _numbers_of_torchrl(buffer: Any, _rows: set[int]) -> Any:
    parts = buffer._writer.state_dict(), buffer._sampler.state_dict()
    return buffer._storage._len, *copy.deepcopy(parts)


def _put_numbers_of_torchrl(buffer: Any, numbers: Any) -> None:
    buffer._storage._len = numbers[0]
    for part, held in zip((buffer._writer, buffer._sampler), numbers[1:], strict=True):
        part.load_state_dict(copy.deepcopy(held))


_PARTS_OF_TORCHRL = {
    "_writer": {"RoundRobinWriter", "TensorDictRoundRobinWriter"},
    "_sampler": {"RandomSampler", "SamplerWithoutReplacement"},
    "_storage": {"TensorStorage", "LazyTensorStorage", "LazyMemmapStorage"},
}


def _is_known_of_torchrl(buffer: Any) -> bool:
    known = all(type(vars(buffer)[n]).__name__ in kinds for n, kinds in _PARTS_OF_TORCHRL.items())
    return known and buffer._storage.ndim == 1 and buffer.dim_extend in (0, None)


_LIBRARIES: Mapping[str, BufferKind] = {
    "stable_baselines3.common.buffers": BufferKind(
        ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer"),
        ("add",),
        _next_of_sb3,
        _arrays_of_sb3,
    ),
    "tianshou.data.buffer.buffer_base": BufferKind(
        ("ReplayBuffer",), ("add",), _next_of_tianshou, _arrays_of_tianshou
    ),
    "tianshou.data.buffer.manager": BufferKind(
        ("ReplayBufferManager", "VectorReplayBuffer"),
        ("add",),
        _next_of_tianshou,
        _arrays_of_tianshou,
    ),
    "torchrl.data.replay_buffers.replay_buffers.base": BufferKind(
        ("ReplayBuffer", "TensorDictReplayBuffer"),
        ("_add", "_extend"),
        _next_of_torchrl,
        _arrays_of_torchrl,
        _numbers_of_torchrl,
        _put_numbers_of_torchrl,
        _is_known_of_torchrl,
    ),
    "skrl.memories.torch.base": BufferKind(
        ("Memory", "RandomMemory"), ("add_samples",), _next_of_skrl, _arrays_of_skrl
    ),
}
"""By the module that defines them."""
