"""Writes src/odradek/client/sync/mirrored.pyi: the calls that classes for threads have, from those for asyncio."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from odradek.client.admin.admin import Admin
from odradek.client.consumer import Consumer
from odradek.client.sync.mirror import public_methods

STUBS = Path(__file__).parent.parent / "src" / "odradek" / "client" / "sync" / "mirrored.pyi"
HEAD = "# Written by `python -m tools.sync_stubs` from the classes for asyncio.\n"
BUILTINS = {"str", "int", "float", "bool", "bytes", "object", "list", "dict", "tuple", "set", "frozenset", "type"}
ALIASED = {Admin: "AdminCalls", Consumer: "ConsumerCalls"}


def source_of(original: type, name: str) -> tuple[ModuleType, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The definition of a method, and the module that it is in."""
    owner = next(each for each in original.__mro__ if name in vars(each))
    module = inspect.getmodule(owner)
    assert module is not None
    tree = ast.parse(inspect.getsource(module))
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    definitions = (node for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return module, next(node for node in definitions if node.name == name)


def names_in(node: ast.AST) -> set[str]:
    """What has to be imported for the annotations and defaults of a definition."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    for text in texts:
        if "|" in text or "." in text:  # an annotation in quotes
            try:
                found |= {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}
            except SyntaxError:
                continue
    return found - BUILTINS


def import_of(module: ModuleType, name: str) -> str | None:
    """The statement that brings a name of a module."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    text = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                    return f"from {node.module} import {text}" if isinstance(node, ast.ImportFrom) else f"import {text}"
    return f"from {module.__name__} import {name}" if hasattr(module, name) else None


def call(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    for argument in [*definition.args.args, *definition.args.kwonlyargs]:
        if isinstance(argument.annotation, ast.Constant) and isinstance(argument.annotation.value, str):
            argument.annotation = ast.parse(argument.annotation.value, mode="eval").body
    returns = definition.returns
    if isinstance(returns, ast.Constant) and isinstance(returns.value, str):
        returns = ast.parse(returns.value, mode="eval").body
    arguments = definition.args
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [None if each is None else ast.Constant(...) for each in arguments.kw_defaults]
    return f"    def {definition.name}({ast.unparse(arguments)}) -> {ast.unparse(returns) if returns else 'None'}: ..."


def stubs() -> str:
    """The whole file."""
    imports: set[str] = {"from odradek.client.sync.background import Background"}
    body: list[str] = []
    for original, name in ALIASED.items():
        imports.add(f"from {original.__module__} import {original.__name__}")
        body += ["", f"class {name}:", f"    _original: {original.__name__}", "    _background: Background"]
        for method in public_methods(original):
            module, definition = source_of(original, method)
            definition.body, definition.decorator_list = [ast.Pass()], []
            annotations: list[ast.AST] = [each for each in ast.walk(definition.args) if isinstance(each, ast.arg)]
            wanted = set[str]().union(*(names_in(each) for each in [*annotations, definition.returns] if each is not None))
            imports |= {found for each in wanted if (found := import_of(module, each)) is not None}
            body.append(call(definition))
    text = "\n".join([HEAD, *sorted(imports), *body, ""])
    return tidied(tidied(text, "check", "--fix", "--quiet", "--select", "I"), "format")


def tidied(text: str, *command: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    arguments = [str(ruff), *command, "--stdin-filename", str(STUBS), "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    STUBS.write_text(stubs(), encoding="utf-8")
    sys.stdout.write(f"{STUBS}\n")
