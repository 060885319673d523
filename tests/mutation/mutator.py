"""Small wrongs in a source text, one at a time: the tests of what it does should notice each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

# What is looked for in a comparison, and what stands there instead.
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
REMOVED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
# Words for tools and for people, which no test of the behaviour could miss.
PASSED_OVER = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True, slots=True)
class Mutant:
    number: int  # within its source
    line: int
    what: str


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module."""
    found = enumerate(_each(ast.parse(source)))
    return [Mutant(number, node.lineno, what) for number, (node, what) in found]


def mutated(source: str, mutant: Mutant) -> str:
    """The source with this one wrong."""
    tree = ast.parse(source)
    for number, _ in enumerate(_each(tree)):
        if number == mutant.number:
            return ast.unparse(ast.fix_missing_locations(tree))
    raise ValueError(f"no such mutant: {mutant}")


def _each(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """The tree with one wrong after the other; it is right again before the next."""
    for parent, field, index, node in list(_places(tree, function=False)):
        for what, wrong in _wrongs(node, parent):
            _put(parent, field, index, ast.copy_location(wrong, node))
            yield node, what
            _put(parent, field, index, node)


Place = tuple[ast.AST, str, int | None, ast.expr | ast.stmt]


def _places(parent: ast.AST, *, function: bool) -> Iterator[Place]:
    """Where a node can be put in another's place. `function`: within one, and so run after the import."""
    if isinstance(parent, ast.Assert) or _is_for_types(parent):
        return
    for field, value in ast.iter_fields(parent):
        if field in PASSED_OVER:
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            removable = function or not isinstance(child, REMOVED)
            if isinstance(child, ast.expr | ast.stmt) and removable:
                yield parent, field, index, child
            within = function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _places(child, function=within)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _wrongs(node: ast.expr | ast.stmt, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            wrong = copy.copy(node)
            wrong.ops = [*node.ops]
            wrong.ops[index] = COMPARED[type(op)]()
            yield f"{_name(op)} becomes {_name(wrong.ops[index])}", wrong
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{_name(node.op)} becomes {_name(other)}", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not is left out", node.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "None is returned", ast.Return(ast.Constant(None))
    elif isinstance(node, REMOVED) and not _is_text(node):
        yield f"{_name(node)} is left out", ast.Pass()
    if isinstance(node, ast.expr) and _is_condition(node, parent):
        yield "the condition is turned", ast.UnaryOp(ast.Not(), node)


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, bool):
        yield f"{node.value} becomes {not node.value}", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        for other in (node.value + 1, node.value - 1):
            yield f"{node.value} becomes {other}", ast.Constant(other)


def _is_condition(node: ast.AST, parent: ast.AST) -> bool:
    """Whether it decides by itself; what is composed is turned at its parts."""
    plain = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.NamedExpr)
    return plain and isinstance(parent, ast.If | ast.IfExp | ast.While) and node is parent.test


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(node: ast.AST) -> str:
    return type(node).__name__.lower()
