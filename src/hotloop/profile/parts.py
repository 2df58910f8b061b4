"""The parts of a model: which module computes, or which optimiser takes its step.

Modules are found where they live, so that one has its whole path also where the loop calls it
without the module around it. Calls are seen by torch's global hooks, which are there only between
`start` and `stop`.
"""

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

Hook = Callable[["Part"], object]


class Part(NamedTuple):
    """A module by its path, or an optimiser; kind: its class.

    The path begins with the class of the outermost module: `Net.layers.0`.
    """

    path: str
    kind: str
    is_optimiser: bool = False


OUTSIDE = Part("outside modules", "")


class Parts:
    """Tells by their names what is called between `start` and `stop`, on any thread.

    entered, left: called with the part, at the begin and the end of each call.
    """

    def __init__(self, entered: Hook, left: Hook) -> None:
        self._entered, self._left = entered, left
        self._names = _Names()
        self._hooks: list[Any] = []

    def start(self) -> None:
        """Begin to tell."""
        from torch.nn.modules import module
        from torch.optim import optimizer

        self._hooks = [
            module.register_module_forward_pre_hook(self._module_begins),
            module.register_module_forward_hook(self._module_ends, always_call=True),
            optimizer.register_optimizer_step_pre_hook(self._step_begins),
            optimizer.register_optimizer_step_post_hook(self._step_ends),
        ]

    def stop(self) -> None:
        """Take the hooks away; may be called twice."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    def _module_begins(self, module: Any, _inputs: object) -> None:
        self._entered(self._names.part(module))

    def _module_ends(self, module: Any, _inputs: object, _output: object) -> None:
        self._left(self._names.part(module))

    def _step_begins(self, optimiser: Any, _args: object, _kwargs: object) -> None:
        name = type(optimiser).__name__
        self._entered(Part(name, name, is_optimiser=True))

    def _step_ends(self, optimiser: Any, _args: object, _kwargs: object) -> None:
        name = type(optimiser).__name__
        self._left(Part(name, name, is_optimiser=True))


class _Names:
    """The paths of all modules that live now; those made later have their class for a name."""

    def __init__(self) -> None:
        from torch.nn import Module

        self._parts: dict[int, Part] = {}
        self._roots: Counter[str] = Counter()
        # They are kept alive meanwhile, for their ids to stay theirs.
        self._modules = [each for each in gc.get_objects() if issubclass(type(each), Module)]
        self._around: dict[int, tuple[Any, str]] = {}
        for each in self._modules:
            for name, inner in each.__dict__.get("_modules", {}).items():
                if inner is not None:
                    self._around.setdefault(id(inner), (each, name))

    def part(self, module: Any) -> Part:
        """The module's part."""
        found = self._parts.get(id(module))
        if found is None:
            found = Part(self._path(module), type(module).__name__)
            self._parts[id(module)] = found
            self._modules.append(module)
        return found

    def _path(self, module: Any) -> str:
        names: list[str] = []
        seen = {id(module)}
        while (around := self._around.get(id(module))) is not None and id(around[0]) not in seen:
            module, name = around
            seen.add(id(module))
            names.append(name)
        if not names:  # several of one class are told apart by a number
            kind = type(module).__name__
            self._roots[kind] += 1
            number = self._roots[kind]
            return kind if number == 1 else f"{kind} {number}"
        return ".".join([self.part(module).path, *reversed(names)])
