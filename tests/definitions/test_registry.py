"""Handlers by name, and packages that register them."""

from __future__ import annotations

import importlib
import sys
import textwrap

import pytest

from orchestrator.definitions import registry
from orchestrator.definitions.errors import HandlerMissing, HandlerTaken, PackageError


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", {"step": {}, "compensation": {}})


@pytest.fixture
def make_package(tmp_path, monkeypatch):
    """Writes a package of this name with these files and makes it importable."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(name: str, **files: str) -> str:
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / f"{file}.py").write_text(textwrap.dedent(text))
        made.append(name)
        importlib.invalidate_caches()
        return name

    yield make
    for module in [module for module in sys.modules if module.split(".")[0] in {name.split(".")[0] for name in made}]:
        del sys.modules[module]


def one(ctx):
    return 1


def two(ctx):
    return 2


def test_the_workflows_own_name_comes_first():
    assert registry.step("shop.pay")(one) is one
    registry.step("pay")(two)
    assert registry.resolve("shop", "pay") is one
    assert registry.resolve("other", "pay") is two
    assert registry.resolve("other", "shop.pay") is one


def test_steps_and_compensations_may_share_a_name():
    registry.step("pay")(one)
    registry.compensation("pay")(two)
    assert registry.resolve("shop", "pay", "step") is one
    assert registry.resolve("shop", "pay", "compensation") is two
    assert registry.resolve("shop", "pay") is one
    assert registry.names() == ["pay"]


def test_without_a_kind_both_are_looked_at():
    registry.compensation("undo")(two)
    assert registry.resolve("shop", "undo") is two
    assert registry.find("shop", "undo", "step") is None


def test_a_missing_handler_says_what_to_do():
    with pytest.raises(HandlerMissing) as caught:
        registry.resolve("shop", "pay", "step")
    assert "neither as 'shop.pay' nor as 'pay'" in caught.value.message
    assert '@step("shop.pay")' in caught.value.message


def test_the_wrong_decorator_is_pointed_out():
    registry.step("undo")(one)
    with pytest.raises(HandlerMissing, match=r'registered with @step; register it with @compensation\("shop.undo"\)'):
        registry.resolve("shop", "undo", "compensation")


def test_a_name_belongs_to_one_function():
    registry.step("pay")(one)
    registry.step("pay")(one)
    with pytest.raises(HandlerTaken, match=r"test_registry.one is registered under that name"):
        registry.step("pay")(two)
    assert registry.resolve("shop", "pay") is one


def test_two_lambdas_are_two_functions():
    registry.step("x")(lambda ctx: 1)
    with pytest.raises(HandlerTaken):
        registry.step("x")(lambda ctx: 2)


def test_a_reload_is_no_second_registration(make_package):
    name = make_package("reloaded", __init__="from orchestrator.sdk import step\n@step('a')\ndef a(ctx): pass\n")
    (module,) = registry.load_packages([name])
    before = registry.resolve("w", "a")
    importlib.reload(module)
    assert registry.resolve("w", "a") is not before


@pytest.mark.parametrize("decorator", [registry.step, registry.compensation])
def test_a_decorator_needs_a_name(decorator):
    with pytest.raises(TypeError, match="needs a name"):
        decorator(one)
    with pytest.raises(ValueError, match="is not a handler's name"):
        decorator("two words")


def test_packages_are_imported_in_order(make_package):
    text = "from orchestrator.sdk import step\nstep('{}')(lambda ctx: 1)\n"
    names = [make_package("first", __init__=text.format("a")), make_package("second.inner", __init__=text.format("b"))]
    assert [module.__name__ for module in registry.load_packages(names)] == names
    assert registry.names("step") == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "files", "reason"),
    [
        ("gone_1", None, "there is no workflow package 'gone_1' (No module named 'gone_1'); check its spelling"),
        ("gone_2.inner", None, "there is no workflow package 'gone_2.inner' (No module named 'gone_2')"),
        (
            "bad_1",
            "import nothing_such",
            "'bad_1' cannot be imported: ModuleNotFoundError: No module named 'nothing_such' (at ",
        ),
        ("bad_2", "from os import nothing", "'bad_2' cannot be imported: ImportError: cannot import name 'nothing'"),
        ("bad_3", "def broken(:", "'bad_3' cannot be imported: SyntaxError"),
        ("bad_4", "x = 1\n1 / 0", "'bad_4' cannot be imported: ZeroDivisionError: division by zero (at "),
        ("bad_5", "from bad_5 import gone", "'bad_5' cannot be imported: ImportError"),
        ("bad_6", "import bad_6.gone", "'bad_6' cannot be imported: ModuleNotFoundError: No module named 'bad_6.gone'"),
        ("", None, "is no name of a package"),
        ("..", None, "is no name of a package"),
    ],
)
def test_an_import_that_fails_says_why_and_where(make_package, name, files, reason):
    if files is not None:
        make_package(name, __init__=files)
    with pytest.raises(PackageError) as caught:
        registry.load_packages([name])
    assert reason in caught.value.message
    assert caught.value.__cause__ is not None
    if "(at " in reason:
        assert f"{name}/__init__.py:" in caught.value.message
