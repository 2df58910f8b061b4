"""How many floating-point operations a call of a torch operation makes, by rules.

torch has formulas for matrix products, convolutions and attention: 2 n k m for a product of (n, k)
and (k, m). They are used as they are, and what they leave out is counted here by one convention:
each addition, multiplication, division or comparison of two floating-point numbers is one
operation, and so is a named function of one number, such as tanh. Then

- an element-wise operation makes one for each number that it returns;
- a reduction makes one for each number that it takes;
- what is made of several (a softmax, a norm, a step of an optimiser) makes their sum, by the
  definition in torch's documentation;
- what only moves numbers, and all arithmetic of integers and booleans, makes none.

Which operations are element-wise, and which are reductions, is what torch's own tags say. For
anything else there is no rule: `count_flops` returns None, and the caller names it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from hotloop.loop.values import arrays_in

# Given the arguments, the named arguments and the output of a call.
Rule = Callable[[Sequence[Any], Mapping[str, Any], Any], float]


def count_flops(
    operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
) -> float | None:
    """FLOPs of one call of an operation, an overload of torch; None where there is no rule."""
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(operation._overloadpacket)
    if formula is not None:
        return float(formula(*args, **kwargs, out_val=output))
    if not _has_floats((args, kwargs, output)):
        return 0.0
    rule = _rule_of(operation)
    return None if rule is None else float(rule(args, kwargs, output))


def is_product(operation: Any) -> bool:
    """Whether it is a matrix product, a convolution or attention: the operations of an MFU."""
    from torch.utils.flop_counter import flop_registry

    packet = operation._overloadpacket
    return packet in flop_registry or _plain_name(packet.__name__) in _PRODUCTS


# --- what is counted, for one call ---------------------------------------------------------------


def _elements(value: Any) -> int:
    return sum(int(tensor.numel()) for tensor in arrays_in(value))


def _per_output(factor: float) -> Rule:
    return lambda args, _kwargs, output: (
        factor * (_elements(args[0]) if output is None else _elements(output))
    )


def _per_input(factor: float, argument: int = 0) -> Rule:
    return lambda args, _kwargs, _output: factor * _elements(args[argument])


def _none(_args: Sequence[Any], _kwargs: Mapping[str, Any], _output: Any) -> float:
    return 0.0


def _per_window(dimensions: int, *, windows: int, many: int | None = None) -> Rule:
    """Pooling: as many as a window has elements, for each of many numbers.

    windows: the argument with the sizes of a window, or one for all its dimensions. many: the
    argument with the numbers; None: the first output.
    """

    def rule(args: Sequence[Any], _kwargs: Mapping[str, Any], output: Any) -> float:
        numbers = next(arrays_in(output)) if many is None else args[many]
        sizes = list(args[windows])
        size = prod(sizes if len(sizes) > 1 else sizes * dimensions)
        return float(numbers.numel() * size)

    return rule


def _batch_norm(args: Sequence[Any], _kwargs: Mapping[str, Any], _output: Any) -> float:
    """With its statistics 8 an element; with those of before, which training is not, 4."""
    training = next((each for each in args[3:] if isinstance(each, bool)), True)
    return (8.0 if training else 4.0) * _elements(args[0])


def _index_put(args: Sequence[Any], kwargs: Mapping[str, Any], _output: Any) -> float:
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    return float(_elements(args[2])) if accumulates else 0.0


def _attention(args: Sequence[Any], _kwargs: Mapping[str, Any], _output: Any) -> float:
    from torch.utils.flop_counter import sdpa_flop_count

    return float(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))


def _attention_backward(args: Sequence[Any], _kwargs: Mapping[str, Any], _output: Any) -> float:
    from torch.utils.flop_counter import sdpa_backward_flop_count

    return float(sdpa_backward_flop_count(*(tensor.shape for tensor in args[:4])))


def _adam(args: Sequence[Any], kwargs: Mapping[str, Any], _output: Any) -> float:
    """An element: 3 for the mean, 4 for the square, 3 for the denominator, 3 for the step."""
    each = 13 + 2 * bool(kwargs.get("weight_decay")) + bool(kwargs.get("amsgrad"))
    return float(each * _elements(args[0]))


def _sgd(args: Sequence[Any], kwargs: Mapping[str, Any], _output: Any) -> float:
    """An element: 2 for the step, and 2 each for decay, momentum and Nesterov's look ahead."""
    extras = ("weight_decay", "momentum", "nesterov")
    each = 2 + 2 * sum(bool(kwargs.get(name)) for name in extras)
    return float(each * _elements(args[0]))


def _adagrad(args: Sequence[Any], kwargs: Mapping[str, Any], _output: Any) -> float:
    """An element: 2 for the sum of squares, 2 for the denominator, 3 for the step."""
    return float((7 + 2 * bool(kwargs.get("weight_decay"))) * _elements(args[0]))


# --- which rule an operation has -----------------------------------------------------------------

# Arithmetic of several operations an output, though torch calls them element-wise.
_ELEMENT_WISE: Mapping[str, float] = {
    "addcdiv": 3,
    "addcmul": 3,
    "lerp": 3,
    "sigmoid_backward": 3,
    "tanh_backward": 3,
}

# Products that torch has no formula for.
_PRODUCTS: Mapping[str, Rule] = {
    "addmv": _per_input(2, argument=1),
    "dot": _per_input(2),
    "mv": _per_input(2),
    "vdot": _per_input(2),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}

# Names that only move, select or fill; in-place forms and lists of them (`_foreach_`) included.
_MOVING = """
    _copy_from _local_scalar_dense _reshape_alias _to_copy _unsafe_index _unsafe_view alias_copy
    arange as_strided_copy as_strided_scatter cat clone constant_pad_nd copy diag_embed
    diagonal_scatter embedding empty_permuted eye fill flip full full_like gather index index_copy
    index_fill index_select linspace masked_fill masked_scatter masked_select new_full new_ones
    new_zeros nonzero ones ones_like permute_copy positive randperm reflection_pad1d
    reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d resolve_conj resolve_neg roll rot90 scalar_tensor scatter select_backward
    select_scatter slice_backward slice_scatter stack take tril tril_indices triu triu_indices
    unfold_copy view_as_complex_copy view_as_real_copy where zero zeros zeros_like
"""
_MOVES = frozenset(_MOVING.split())

# By name, without what marks the in-place form.
_RULES: Mapping[str, Rule] = {
    **_PRODUCTS,
    # Greatest, difference, exponential, sum, quotient; and back: product, sum, difference, product.
    "_softmax": _per_input(5),
    "_log_softmax": _per_input(5),
    "_safe_softmax": _per_input(5),
    "_softmax_backward_data": _per_input(4),
    "_log_softmax_backward_data": _per_input(4),
    "logsumexp": _per_input(4),
    # Two passes: a sum; a difference, a square and their sum.
    "std": _per_input(4),
    "std_mean": _per_input(4),
    "var": _per_input(4),
    "var_mean": _per_input(4),
    "linalg_vector_norm": _per_input(2),
    "norm": _per_input(2),
    # The variance, then a difference, two products and a sum; and back, with both parameters.
    "native_layer_norm": _per_input(8),
    "native_layer_norm_backward": _per_input(13),
    "native_group_norm": _per_input(8),
    "native_group_norm_backward": _per_input(13),
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_native_batch_norm_legit_no_training": _per_input(4),
    "_batch_norm_with_update": _per_input(8),
    "_batch_norm_no_update": _per_input(4),
    "cudnn_batch_norm": _batch_norm,
    "native_batch_norm_backward": _per_input(13),
    "batch_norm_backward": _per_input(13),
    "cudnn_batch_norm_backward": _per_input(13),
    "_fused_rms_norm": _per_input(4),
    "_fused_rms_norm_backward": _per_input(9),
    # Sums that go along.
    "cumprod": _per_input(1),
    "cumsum": _per_input(1),
    "logcumsumexp": _per_input(4),
    # Losses, with their sum.
    "binary_cross_entropy": _per_input(9),
    "binary_cross_entropy_backward": _per_input(5, argument=1),
    "binary_cross_entropy_with_logits": _per_input(9),
    "huber_loss": _per_input(6),
    "huber_loss_backward": _per_input(4, argument=1),
    "mse_loss": _per_input(3),
    "mse_loss_backward": _per_input(3, argument=1),
    "nll_loss_forward": _per_input(1, argument=1),
    "nll_loss_backward": _per_input(1, argument=2),
    "smooth_l1_loss": _per_input(7),
    "smooth_l1_loss_backward": _per_input(4, argument=1),
    # Sums into places.
    "embedding_dense_backward": _per_input(1),
    "index_add": _per_input(1, argument=3),
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    "scatter_add": _per_input(1, argument=3),
    # Windows.
    "avg_pool2d": _per_window(2, windows=1),
    "avg_pool2d_backward": _per_window(2, windows=2, many=0),
    "avg_pool3d": _per_window(3, windows=1),
    "max_pool2d_with_indices": _per_window(2, windows=1),
    "max_pool3d_with_indices": _per_window(3, windows=1),
    "_adaptive_avg_pool2d": _per_input(1),
    "_adaptive_avg_pool2d_backward": _per_output(1),
    "adaptive_max_pool2d": _per_input(1),
    "max_pool2d_with_indices_backward": _per_input(1),
    "adaptive_max_pool2d_backward": _per_input(1),
    # Optimisers in one operation; the elements are those of the parameters.
    "_fused_adagrad": _adagrad,
    "_fused_adam": _adam,
    "_fused_adamw": _adam,
    "_fused_sgd": _sgd,
    "_amp_foreach_non_finite_check_and_unscale": _per_input(2),
    # Random numbers, and what is drawn with them.
    "_fused_dropout": _per_input(2),
    "native_dropout": _per_input(2),
    "rand": _per_output(1),
    "randn": _per_output(1),
}


@lru_cache(maxsize=4096)
def _rule_of(operation: Any) -> Rule | None:
    """The rule of an overload; those of torch's own library alone have one here."""
    if operation.namespace != "aten":
        return None
    packet = operation._overloadpacket
    name = _plain_name(packet.__name__)
    is_list = name.startswith("_foreach_")
    if is_list:
        name = name.removeprefix("_foreach_")
    if name in _MOVES:
        return _none
    if name in _RULES:
        return _RULES[name]
    tags = set(operation.tags) or set(_tags(name))
    if is_list:
        tags = set(_tags(name))
    return _tagged(name, {tag.name for tag in tags}, is_list)


def _tagged(name: str, tags: set[str], is_list: bool) -> Rule | None:
    """The rule by torch's tags; of lists, all that counts is as long as the first."""
    if "pointwise" in tags:
        factor = _ELEMENT_WISE.get(name, 1)
        return _per_input(factor) if is_list else _per_output(factor)
    if "reduction" in tags:
        return _per_input(1)
    return _per_output(1) if "nondeterministic_seeded" in tags else None


def _tags(name: str) -> Iterator[Any]:
    """The tags of all overloads of torch's operation of this name."""
    import torch

    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        yield from getattr(packet, overload).tags


def _plain_name(name: str) -> str:
    """The name without the underscore of an in-place form: `add_` is `add`."""
    return name if name.endswith("__") else name.removesuffix("_")


def _has_floats(value: Any) -> bool:
    return any(each.is_floating_point() or each.is_complex() for each in arrays_in(value))
