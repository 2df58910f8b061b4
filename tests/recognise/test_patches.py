"""What stands in the place of a library's functions, and that the library's are put back."""

import cProfile
import pickle
import sys
import types

import pytest

from hotloop.loop.after_import import after_import
from hotloop.recognise.patches import Patches


class Base:
    def step(self) -> str:
        """Take a step."""
        return "base"

    @classmethod
    def named(cls) -> str:
        return cls.__name__


class Child(Base):
    def step(self) -> str:
        return "child of " + super().step()


def louder(function):
    def staged(*args, **kwargs):
        return function(*args, **kwargs).upper()

    return staged


def test_a_profiler_tells_two_changed_functions_apart() -> None:
    patches = Patches()
    patches.function(Base, "step", louder)
    patches.function(Child, "step", louder)
    profile = cProfile.Profile()
    profile.runcall(Base().step)
    called = {
        entry.code.co_qualname for entry in profile.getstats() if hasattr(entry.code, "co_qualname")
    }
    assert "Base.step" in called
    assert "Child.step" not in called
    patches.undo()


def test_a_method_of_one_object_is_changed_for_it_alone() -> None:
    patches, one = Patches(), Base()
    patches.function(one, "step", louder)
    assert (one.step(), Base().step()) == ("BASE", "base")
    patches.undo()
    assert one.step() == "base"


def test_a_method_keeps_its_name_signature_and_docstring_and_is_put_back() -> None:
    before = Base.__dict__["step"]
    patches = Patches()
    patches.function(Base, "step", louder)
    assert Base().step() == "BASE"
    assert Base.step.__doc__ == "Take a step."
    assert pickle.loads(pickle.dumps(Base.step)) is Base.step
    patches.undo()
    assert Base.__dict__["step"] is before


def test_a_class_method_stays_one() -> None:
    patches = Patches()
    patches.function(Base, "named", louder)
    assert Child.named() == "CHILD"
    patches.undo()
    assert Child.named() == "Child"


def test_a_family_has_its_classes_of_now_and_those_to_come() -> None:
    patches = Patches()
    patches.family(Base, "step", louder)

    class Later(Child):
        def step(self) -> str:
            return "later " + super().step()

    class Quiet(Later):
        pass

    assert Child().step() == "CHILD OF BASE"
    assert Later().step() == "LATER CHILD OF BASE"
    assert Quiet().step() == "LATER CHILD OF BASE"
    patches.undo()
    assert Child().step() == "child of base"
    assert Later().step() == "later child of base"
    assert "__init_subclass__" not in vars(Base)


def test_a_class_that_looks_at_its_subclasses_itself_goes_on_doing_so() -> None:
    seen = []

    class Watching:
        def __init_subclass__(cls, *, tag: str = "", **options) -> None:
            seen.append((cls.__name__, tag))
            super().__init_subclass__(**options)

        def step(self) -> str:
            return "watching"

    patches = Patches()
    patches.family(Watching, "step", louder)

    class Tagged(Watching, tag="x"):
        def step(self) -> str:
            return "tagged"

    assert seen == [("Tagged", "x")]
    assert Tagged().step() == "TAGGED"
    patches.undo()


def test_a_module_is_changed_once_it_is_imported(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[types.ModuleType] = []
    stop = after_import("imported_late", seen.append)
    assert seen == []
    import imported_late

    assert seen == [imported_late]
    stop()
    after_import("imported_late", seen.append)
    assert len(seen) == 2


def test_two_may_wait_for_one_module(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_by_two.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[str] = []
    after_import("imported_by_two", lambda _module: seen.append("first"))
    after_import("imported_by_two", lambda _module: seen.append("second"))
    import imported_by_two

    assert sorted(seen) == ["first", "second"]
    assert imported_by_two.value == 1


def test_waiting_that_was_ended_calls_nobody(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_unseen.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[types.ModuleType] = []
    after_import("imported_unseen", seen.append)()
    import imported_unseen

    assert imported_unseen.value == 1
    assert seen == []


def test_methods_that_were_never_the_outermost_are_put_back() -> None:
    def counted(function):
        used = [False]

        def staged(self):
            used[0] = True
            return function(self)

        staged.used = used
        return staged

    before = Base.__dict__["step"]
    patches = Patches()
    patches.family(Base, "step", counted)
    Child.__dict__["step"].used[0] = True
    patches.drop_unused()
    assert Base.__dict__["step"] is before
    assert hasattr(Child.__dict__["step"], "used")
    patches.undo()
    assert not hasattr(Child.__dict__["step"], "used")


def test_a_package_that_is_imported_meanwhile_exports_the_library_s_own_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, package = types.ModuleType("library"), types.ModuleType("package")

    def own() -> int:
        return 1

    library.work = own
    patches = Patches()
    patches.exported(library, "work", "package", lambda _function: lambda: 2)
    package.work = library.work
    monkeypatch.setitem(sys.modules, "package", package)
    assert package.work() == 2
    patches.undo()
    assert package.work is own


def test_what_somebody_has_put_over_it_stays() -> None:
    class Own:
        def step(self) -> str:
            return "own"

    patches = Patches()
    patches.function(Own, "step", louder)
    staged = Own.__dict__["step"]
    Own.step = theirs = lambda self: staged(self) + ", hooks"  # type: ignore[method-assign]
    patches.undo()
    assert Own.__dict__["step"] is theirs
