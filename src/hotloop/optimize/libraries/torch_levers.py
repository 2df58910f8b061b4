"""Levers on torch itself: its threads, its optimisers, the compilation of its modules."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hotloop.loop.host import whole_cores
from hotloop.loop.lever import Lever, Option
from hotloop.loop.malloc import FreedMemory

THREADS, FUSED, COMPILED = "torch_threads", "fused_optimiser", "compiled_modules"
KEPT_MEMORY = "kept_memory"
AUTOCAST, PRODUCTS = "autocast", "matmul_precision"
NO = "no"
# Where its modules compute: as recognised, and in a learner of hotloop's own.
_COMPUTING = ("act", "forward + backward", "update")
# Threads and fused kernels add in another order, and updates carry that on; so do kernels on
# tensors that lie elsewhere in memory.
ROUNDING = 1e-3
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_COMPILERS = ("CXX", "g++", "c++", "clang++")


class TorchLevers:
    """They act between two iterations, so nothing has to be prepared."""

    def owns(self, name: str) -> bool:
        """Whether the lever of this name is one of torch's."""
        return name in (THREADS, FUSED, COMPILED, KEPT_MEMORY, AUTOCAST, PRODUCTS)

    def prepare(self, options: Mapping[str, Option]) -> None:
        """Nothing to do."""

    def levers(self, objects: Sequence[object]) -> Sequence[Lever]:
        """Those that would act on these objects."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "nn"):
            return []
        if not any(_is(each, (torch.Tensor, torch.nn.Module)) for each in objects):
            return []
        optimisers = [each for each in objects if _is(each, torch.optim.Optimizer)]
        modules = [each for each in objects if _is(each, torch.nn.Module)]
        return [
            *_threads(torch),
            *_fused([each for each in optimisers if type(each).__name__ in _FUSED]),
            *_compiled(torch, modules),
            _kept_memory(),
            *_number_formats(torch, modules),
        ]

    def close(self) -> None:
        """The levers act on the target's own objects, which end with it."""


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    # Not `isinstance`: it asks proxies for their class, which may load what they stand for.
    return issubclass(type(value), kind)


def _threads(torch: Any) -> list[Lever]:
    cores = whole_cores()
    counts = sorted({1, 2, 4, cores} & set(range(1, cores + 1)))
    now = torch.get_num_threads()
    return [
        Lever(
            THREADS,
            counts,
            now,
            apply=torch.set_num_threads,
            keeps_result=ROUNDING,
            stages=_COMPUTING,
            about="threads of torch in this process",
            risk="with worker processes beside it, more threads than cores",
            missing="" if len({*counts, now}) > 1 else "more than one core",
        )
    ]


def _fused(optimisers: Sequence[Any]) -> list[Lever]:
    groups = [group for each in optimisers for group in each.param_groups if "fused" in group]
    if not groups or all(group["fused"] is True for group in groups):
        return []
    foreach = [group.get("foreach") for group in groups]

    def apply(fused: bool) -> None:
        for group, before in zip(groups, foreach, strict=True):
            group["fused"] = fused or None
            group["foreach"] = False if fused else before

    return [
        Lever(
            FUSED,
            (False, True),
            now=False,
            apply=apply,
            keeps_result=ROUNDING,
            stages=("optimiser step",),
            about="one kernel for all parameters of an optimiser",
        )
    ]


def _compiled(torch: Any, modules: Sequence[Any]) -> list[Lever]:
    inner = {id(child) for each in modules for child in each.modules() if child is not each}
    roots = [
        each
        for each in modules
        if id(each) not in inner
        and any(True for _ in each.parameters())
        and not isinstance(each, torch.jit.ScriptModule)
        and type(each).__module__.split(".")[0] != "torch"
    ]
    if not roots:
        return []

    def apply(mode: str) -> None:
        for root in roots:
            root._compiled_call_impl = None
            if mode != NO:
                root.compile(mode=mode)

    # Graphs of CUDA are what the third mode adds.
    modes = ("default", "max-autotune", *(("reduce-overhead",) if _has_card(torch) else ()))
    return [
        Lever(
            COMPILED,
            (NO, *modes),
            NO,
            apply=apply,
            keeps_result=ROUNDING,
            stages=_COMPUTING,
            about="torch.compile of the outermost modules, by its modes",
            risk="compiles again whenever shapes change",
            missing=_missing_for_compiling(),
        )
    ]


def _kept_memory() -> Lever:
    freed = FreedMemory()
    return Lever(
        KEPT_MEMORY,
        (False, True),
        now=False,
        apply=freed.keep,
        keeps_result=ROUNDING,
        stages=(*_COMPUTING, "optimiser step"),
        about="malloc keeps the memory of freed tensors on processors, and hands it out again",
        area="memory",
        risk="the process holds as much memory as it ever had in use",
        missing="" if freed.is_there else "the malloc of glibc",
    )


def _missing_for_compiling() -> str:
    if sys.version_info >= (3, 15):
        return "a version of Python that torch.compile knows"
    compiler = any(shutil.which(os.environ.get(each, each)) for each in _COMPILERS)
    return "" if compiler else "a C++ compiler on PATH"


def _number_formats(torch: Any, modules: Sequence[Any]) -> list[Lever]:
    """In which numbers modules compute; their parameters stay as they are."""
    if not any(True for each in modules for _ in each.parameters()):
        return []
    device = "cuda" if _has_card(torch) else "cpu"
    cached = torch.is_autocast_cache_enabled()

    def autocast(dtype: str) -> None:
        torch.set_autocast_enabled(device, dtype != NO)
        # What it keeps of converted parameters is dropped where a block of it ends, and this has
        # no end: after an update the parameters of before would be computed with.
        torch.set_autocast_cache_enabled(cached and dtype == NO)
        if dtype != NO:
            torch.set_autocast_dtype(device, getattr(torch, dtype))

    halves = ("bfloat16", "float16") if device == "cuda" else ("bfloat16",)
    dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return [
        Lever(
            AUTOCAST,
            (NO, *halves),
            dtype if torch.is_autocast_enabled(device) else NO,
            apply=autocast,
            keeps_result=False,
            stages=_COMPUTING,
            about="modules compute in half the bytes where torch.autocast holds that to be safe",
            area="memory",
            risk="it may learn worse; float16 may overflow without a scaled loss",
        ),
        Lever(
            PRODUCTS,
            ("highest", "high", "medium"),
            torch.get_float32_matmul_precision(),
            apply=torch.set_float32_matmul_precision,
            keeps_result=False,
            stages=_COMPUTING,
            about="the number format within products of matrices in float32",
            risk="it may learn worse",
        ),
    ]


def _has_card(torch: Any) -> bool:
    return bool(torch.cuda.is_available())
