"""What the source says about a Python loop: what it goes over, what it indexes, what it carries.

A loop over a batch axis can be one operation on the whole batch only if its passes do not depend
on each other. The signs of a dependence are names that one pass leaves for the next one, an array
that is read at another place than it is written, and calls that change something, such as `step`.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hotloop.optimize.places import syntax_of

# Methods that change their object, or wait for something outside: their passes have an order.
STATEFUL = frozenset({"step", "reset", "backward", "send", "recv", "put", "read", "write", "close"})
# Methods that only collect: what they collect can be made at once.
COLLECTING = frozenset({"append", "add", "extend"})

LoopNode = ast.For | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


@dataclass(frozen=True)
class PythonLoopSource:
    """One loop of the source.

    first, last: its lines. body: the first line of a pass.
    over: expressions that it goes over directly, such as `batch` in `for row in batch`.
    indexed: expressions that are indexed by one of its variables, with the axis and the variable:
    `x`, 1 and `i` for `x[:, i]`.
    looked_up: expressions that are indexed by one of its elements, such as `texts` in
    `for k in chosen: texts[k]`.
    dependent: why its passes need each other, or "".
    """

    file: str
    first: int
    last: int
    body: int
    over: tuple[str, ...]
    indexed: tuple[tuple[str, int, str], ...]
    looked_up: tuple[str, ...]
    dependent: str


def loops_of(file: str) -> Iterator[PythonLoopSource]:
    """Yield the loops of a file that go over something, or index something by their variable."""
    for node in ast.walk(syntax_of(file)):
        if not isinstance(node, LoopNode):
            continue
        over, elements, indices = _iterated(node)
        body = _body(node)
        indexed = tuple(sorted(set(_indexed(body, indices))))
        if over or indexed:
            yield PythonLoopSource(
                file,
                node.lineno,
                node.end_lineno or node.lineno,
                body[0].lineno,
                tuple(over),
                indexed,
                tuple(sorted({base for base, _, _ in _indexed(body, elements)})),
                _dependence(body, elements | indices, indices),
            )


def _body(node: LoopNode) -> list[ast.stmt] | list[ast.expr]:
    if isinstance(node, ast.For):
        return node.body
    return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]


def _iterated(node: LoopNode) -> tuple[list[str], set[str], set[str]]:
    """What a loop goes over, the names of its elements, and of its positions."""
    if isinstance(node, ast.For):
        target, source = node.target, node.iter
    elif len(node.generators) == 1:
        target, source = node.generators[0].target, node.generators[0].iter
    else:
        return [], set(), set()
    called, given = _plain_call(source)
    if called == "reversed":
        source = given[0]
        called, given = _plain_call(source)
    if called == "range":
        return [], set(), _names(target)
    if called == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        return _chains(given[:1]), _names(target.elts[1]), _names(target.elts[0])
    if called == "zip":
        return _chains(given), _names(target), set()
    return _chains([source]), _names(target), set()


def _plain_call(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name and the arguments of a call such as `range(n)`; "" for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return node.func.id, node.args
    return "", []


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def chain(node: ast.AST) -> str | None:
    """An expression of names and dots as text: "self.batch"; None for any other one."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = chain(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def _chains(nodes: list[ast.expr]) -> list[str]:
    return [text for node in nodes if (text := chain(node)) is not None]


def _walk(body: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    for node in body:
        yield from ast.walk(node)


def _indexed(
    body: list[ast.stmt] | list[ast.expr], indices: set[str]
) -> Iterator[tuple[str, int, str]]:
    for node in _walk(body):
        if not isinstance(node, ast.Subscript) or (base := chain(node.value)) is None:
            continue
        positions = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for axis, position in enumerate(positions):
            if isinstance(position, ast.Name) and position.id in indices:
                yield base, axis, position.id


def _dependence(body: list[ast.stmt] | list[ast.expr], targets: set[str], indices: set[str]) -> str:
    """Why the passes of a loop need each other, as far as the source says, or ""."""
    for node in _walk(body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in STATEFUL:
                return f"{node.func.attr}() has an effect"
        elif isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            return "it waits or yields"
        if isinstance(node, ast.Expr) and _has_effect(node.value):
            return "it calls something for its effect"
    carried = _carried(body, targets)
    if carried:
        return f"{carried} is passed on from pass to pass"
    return _recurrence(body, indices)


def _has_effect(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return not (isinstance(node.func, ast.Attribute) and node.func.attr in COLLECTING)


def _carried(body: list[ast.stmt] | list[ast.expr], targets: set[str]) -> str:
    """A name that a pass reads before it sets it, and sets; sums alone do not count."""
    stored = {
        node.id
        for node in _walk(body)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    read_first, _ = _read_first(body, targets)
    return min(read_first & stored, default="")


def _read_first(
    body: Sequence[ast.AST], known: frozenset[str] | set[str]
) -> tuple[set[str], frozenset[str]]:
    """The names that are read before they are set, and those that are certainly set after it."""
    read: set[str] = set()
    known = frozenset(known)
    for node in body:
        if isinstance(node, ast.If):
            read |= _loaded(node.test) - known
            one, set_by_one = _read_first(node.body, known)
            other, set_by_other = _read_first(node.orelse, known)
            read |= one | other
            known = set_by_one & set_by_other
        elif isinstance(node, ast.For | ast.While):
            inner = known
            if isinstance(node, ast.For):
                read |= _loaded(node.iter) - known
                inner = known | _names(node.target)
            else:
                read |= _loaded(node.test) - known
            read |= _read_first(node.body, inner)[0]
        elif isinstance(node, ast.With):
            for item in node.items:
                read |= _loaded(item) - known
                known |= _stored(item)
            within, known = _read_first(node.body, known)
            read |= within
        else:
            read |= _loaded(_without_sum(node)) - known
            known |= _stored(node)
    return read, known


def _loaded(node: ast.AST) -> set[str]:
    """The names that are read, but for those of comprehensions, which they set themselves."""
    own = {
        name
        for each in ast.walk(node)
        if isinstance(each, ast.comprehension)
        for name in _names(each.target)
    }
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    } - own


def _without_sum(node: ast.AST) -> ast.AST:
    """What is added, in `total = total + x`; anything else as it is."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.BinOp(left=ast.Name(id=first), op=ast.Add(), right=ast.expr() as added),
        ) if name == first:
            return added
    return node


def _stored(node: ast.AST) -> set[str]:
    if isinstance(node, ast.AugAssign) or _without_sum(node) is not node:
        return set()
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _recurrence(body: list[ast.stmt] | list[ast.expr], indices: set[str]) -> str:
    """An array that is written at the loop's position and read at another one, such as `i - 1`."""
    written: set[str] = set()
    elsewhere: set[str] = set()
    for node in _walk(body):
        if not isinstance(node, ast.Subscript) or (base := chain(node.value)) is None:
            continue
        if isinstance(node.ctx, ast.Store):
            written.add(base)
        elif not (_names(node.slice) & indices) or not isinstance(node.slice, ast.Name | ast.Tuple):
            elsewhere.add(base)
    both = sorted(written & elsewhere)
    return f"{both[0]} is read where another pass writes it" if both else ""
