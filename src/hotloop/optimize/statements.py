"""Simple statements of the source, by line: which names they compute with, and what they set.

Only what numpy or an operator computes is of interest: what a function of the user returns is
decided inside that function, at a line of its own.
"""

import ast
import functools
from dataclasses import dataclass

from hotloop.optimize.loops import chain
from hotloop.optimize.places import syntax_of

# They say how large an array is, and do not compute with its numbers.
_DESCRIBING = frozenset({"shape", "size", "ndim", "dtype", "nbytes", "device"})
_DOUBLE = frozenset({"float64", "double", "f8", "float"})


@dataclass(frozen=True)
class Statement:
    """One statement.

    target: the name that it sets, "" for a return, None if it sets neither a name nor a result.
    calls: what it calls, as chains. asks_for_double: whether it names the type, so that it is
    wanted.
    """

    line: int
    target: str | None
    reads: frozenset[str]
    calls: frozenset[str]
    asks_for_double: bool


@functools.lru_cache(maxsize=256)
def statements_of(file: str) -> dict[int, Statement]:
    """The statements of a file by each of their lines."""
    found: dict[int, Statement] = {}
    for node in ast.walk(syntax_of(file)):
        statement = _statement(node)
        if statement is not None:
            last = getattr(node, "end_lineno", statement.line)
            found |= dict.fromkeys(range(statement.line, last + 1), statement)
    return found


def _statement(node: ast.AST) -> Statement | None:
    match node:
        case ast.Assign(targets=[target], value=value):
            set_to: str | None = chain(target)
        case ast.AugAssign(target=target, value=value):
            set_to = chain(target)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            set_to = chain(target)
        case ast.Return(value=ast.expr() as value):
            set_to = ""
        case ast.Expr(value=value):
            set_to = None
        case _:
            return None
    reads, calls = _reads(value)
    if isinstance(node, ast.AugAssign) and set_to is not None:
        reads = reads | {set_to}
    return Statement(
        node.lineno, set_to, frozenset(reads), frozenset(calls), _asks_for_double(value)
    )


def _asks_for_double(value: ast.expr) -> bool:
    words = (
        getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "value", None)
        for node in ast.walk(value)
    )
    return any(isinstance(word, str) and word in _DOUBLE for word in words)


def _reads(value: ast.expr) -> tuple[set[str], set[str]]:
    """The names whose numbers an expression computes with, and the functions that it calls."""
    reads: set[str] = set()
    calls: set[str] = set()
    todo: list[ast.AST] = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call):
            _note_call(node, reads, calls, todo)
        elif isinstance(node, ast.Lambda) or getattr(node, "attr", None) in _DESCRIBING:
            continue
        elif (text := chain(node)) is not None:
            reads.add(text)
        else:
            todo += ast.iter_child_nodes(node)
    return reads, calls


def _note_call(node: ast.Call, reads: set[str], calls: set[str], todo: list[ast.AST]) -> None:
    called = chain(node.func)
    if called == "len":
        return
    todo += [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "size")]
    if called is None:  # a method of something that was computed just before
        todo += ast.iter_child_nodes(node.func)
        return
    calls.add(called)
    base = called.rpartition(".")[0]
    if base:
        reads.add(base)  # an array, if it is a method; else a module, which is no array
