"""The parameters of a runner: their paths, and which tensors may replace them.

A path reads initializer.transition_function.<substep's number>.<name>.learnable_args.<parameter>,
and the same walk through attributes leads to the same tensor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hotloop.errors import ParameterError, PathError, nearest
from hotloop.sim.settings import Settings
from hotloop.sim.substep import Substep
from hotloop.sim.traffic import Traffic

START = "initializer.transition_function"
_OLD_PREFIX = "calibrate_"


class Parameters:
    """Every learnable tensor of the substeps, by path."""

    def __init__(self, substeps: Sequence[Substep], settings: Settings, traffic: Traffic) -> None:
        self._device, self._traffic = settings.device, traffic
        self._replicates = settings.replicates
        self._owners: dict[str, tuple[Substep, str]] = {}
        self._declared: dict[str, Tensor] = {}
        for number, substep in enumerate(substeps):
            for key, value in substep.learnable.items():
                owner, _, name = key.rpartition("/")
                path = f"{START}.{number}.{owner or substep.name}.learnable_args.{name}"
                wanted = value.requires_grad
                moved = traffic.moved(value.detach().clone(), self._device).requires_grad_(wanted)
                substep.learnable[key] = moved
                self._owners[path] = (substep, key)
                self._declared[path] = moved.detach().clone()

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for path, (substep, key) in self._owners.items():
            yield path, substep.learnable[key]

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def require_grad(self) -> bool:
        """Whether any of them requires a gradient."""
        return any(s.learnable[key].requires_grad for s, key in self._owners.values())

    def set(self, values: Mapping[str, Tensor]) -> None:
        """Exchange parameters: all of them, or none if one does not fit.

        A tensor that requires a gradient becomes the parameter itself, so that `backward` fills
        its `.grad`; of others a copy is taken. A series, (L,) or (L, 1), may have another length
        than the declared one. In an ensemble a series may be (R, L), and a single number (R,): a
        value for each replicate.

        Raises: PathError with the nearest path; ParameterError for a shape, dtype, device or
        value that does not fit.
        """
        ready = [(*self._place(path), self._fitted(path, value)) for path, value in values.items()]
        for substep, key, value in ready:
            substep.learnable[key] = value

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Write values into the parameters, all or none; optimizers keep the same tensors.

        A series of (L,) fits one of (L, 1) and the other way round, as in `set`.

        Raises: PathError for a path that does not exist, or a parameter without a value;
        ParameterError for another shape or a value that is not finite.
        """
        ready = []
        for path, value in values.items():
            substep, key = self._place(path)
            own = substep.learnable[key]
            fitted = self._fitted(path, value)
            if _without_last_one(fitted.shape) != _without_last_one(own.shape):
                raise ParameterError(
                    f"{path}: expected the shape that it has, {tuple(own.shape)}, got "
                    f"{tuple(fitted.shape)}; set_parameters takes another one in its place"
                )
            ready.append((own, fitted.detach().reshape(own.shape)))
        if missing := [path for path in self._owners if path not in values]:
            raise PathError(
                f"expected a value for every parameter, got none for {', '.join(missing)}; "
                "set_parameters changes some of them"
            )
        with torch.no_grad():
            for own, value in ready:
                own.copy_(value)

    def _place(self, path: str) -> tuple[Substep, str]:
        if path not in self._owners:
            raise PathError(
                f"no parameter {path!r}{nearest(path, self._owners) or '; there is none'}"
            )
        return self._owners[path]

    def _fitted(self, path: str, value: object) -> Tensor:
        declared = self._declared[path]
        if not isinstance(value, Tensor):
            raise ParameterError(f"{path}: expected a tensor, got {type(value).__qualname__}")
        if not _shapes_agree(value.shape, declared.shape, self._replicates):
            a_series = ", or of another length >= 1" if _is_series(declared.shape) else ""
            raise ParameterError(
                f"{path}: expected a tensor of shape {tuple(declared.shape)}{a_series}, "
                f"got {tuple(value.shape)}"
            )
        if not value.is_floating_point() and declared.is_floating_point():
            raise ParameterError(
                f"{path}: expected {declared.dtype}, got {value.dtype}; write its numbers as 3.0 "
                "rather than 3"
            )
        if not bool(torch.isfinite(value.detach()).all()):
            raise ParameterError(f"{path}: expected finite numbers, got {value.detach().tolist()}")
        if not value.requires_grad:
            return self._traffic.moved(value.detach().to(declared.dtype, copy=True), self._device)
        if value.device != declared.device:
            raise ParameterError(
                f"{path}: the tensor requires a gradient and is on {value.device}, the runner on "
                f"{declared.device}; create it with device=runner.device"
            )
        return value


class Initializer:
    """Parameters as attributes: `transition_function["0"].trade.calibrate_price`."""

    def __init__(
        self, substeps: Sequence[Substep], set_parameters: Callable[[dict[str, Tensor]], None]
    ) -> None:
        self.transition_function = {
            str(number): _Functions(f"{START}.{number}", substep, set_parameters)
            for number, substep in enumerate(substeps)
        }


class _Functions:
    """The transitions of one substep by name, as attributes or items."""

    def __init__(self, path: str, substep: Substep, set_parameters: Callable[..., None]) -> None:
        owners = {substep.name, *(k.rpartition("/")[0] or substep.name for k in substep.learnable)}
        self._functions = {
            name: _Function(f"{path}.{name}", name, substep, set_parameters) for name in owners
        }

    def __getattr__(self, name: str) -> "_Function":
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._functions:
            raise AttributeError(f"no transition {name!r}{nearest(name, self._functions)}")
        return self._functions[name]

    def __getitem__(self, name: str) -> "_Function":
        return self.__getattr__(name)


class _Function:
    """One transition: its attribute `calibrate_<parameter>` reads and sets a parameter."""

    def __init__(
        self, path: str, name: str, substep: Substep, set_parameters: Callable[..., None]
    ) -> None:
        self.__dict__.update(
            _path=path, _owner=name, substep=substep, _set_parameters=set_parameters
        )

    @property
    def learnable_args(self) -> dict[str, Tensor]:
        """The present parameters, by name."""
        substep: Substep = self.__dict__["substep"]
        owner = self.__dict__["_owner"]
        split = ((key.rpartition("/"), value) for key, value in substep.learnable.items())
        return {name: v for (place, _, name), v in split if (place or substep.name) == owner}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        parameter = name.removeprefix(_OLD_PREFIX)
        if parameter not in self.learnable_args:
            raise AttributeError(
                f"{self.__dict__['_owner']!r} has no parameter {parameter!r}"
                f"{nearest(parameter, self.learnable_args)}"
            )
        return self.learnable_args[parameter]

    def __setattr__(self, name: str, value: Tensor) -> None:
        parameter = name.removeprefix(_OLD_PREFIX)
        path = f"{self.__dict__['_path']}.learnable_args.{parameter}"
        self.__dict__["_set_parameters"]({path: value})


def _without_last_one(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[:-1] if tuple(shape[-1:]) == (1,) else shape)


def _is_series(shape: Sequence[int]) -> bool:
    return len(shape) == 2 and shape[1] == 1


def _shapes_agree(given: Sequence[int], declared: Sequence[int], replicates: int | None) -> bool:
    given, declared = tuple(given), tuple(declared)
    if _is_series(declared):
        each = len(given) == 2 and given[0] == replicates and given[1] >= 1
        return each or (bool(given) and given[0] >= 1 and given[1:] in ((), (1,)))
    if declared in ((), (1,)) and given == (replicates,):
        return True
    return given in (
        (declared, declared[:-1]) if declared[-1:] == (1,) else (declared, (*declared, 1))
    )
