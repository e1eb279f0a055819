"""Where machine code is kept: it is run, so nobody else may write there."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from od_core import kernels as compiled


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def found():
    return compiled.cache_folder.__wrapped__()


def test_the_folder_is_closed(cache):
    folder = found()
    assert folder.parent == cache
    assert folder.name.startswith("od_core-")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_not_used(cache):
    found().chmod(0o770)
    assert found() is None


def test_a_link_is_not_followed(cache, tmp_path_factory):
    folder = found()
    folder.rmdir()
    folder.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    assert found() is None


def test_no_home_is_no_fault(monkeypatch):
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compiled.os.path, "expanduser", lambda path: path)  # as where the user has no entry
    assert compiled._places() == [compiled._environment_cache()]


CALLED = """
from od_core.kernels import kernel

STEP = 3

@kernel
def shifted(number):
    return number + STEP

@kernel
def called(number):
    '''Call another kernel of this file.'''
    return shifted(number)
"""
CALLER = """
import {called}
from od_core.kernels import kernel
from {called} import called

@kernel
def caller(number):
    return {how}(number)
"""


@pytest.fixture
def caller_in(tmp_path, monkeypatch):
    """Import a kernel from a file in a folder that calls one in another file, as new processes would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def caller(called=CALLED, how="called", more=""):
        for name, text in (("files_called", called), ("files_caller", CALLER.format(called="files_called", how=how))):
            (tmp_path / f"{name}.py").write_text(text + (more if name == "files_caller" else ""))
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        compiled._content.cache_clear()
        return importlib.import_module("files_caller").caller

    yield caller
    for name in ("files_called", "files_caller"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("how", ["called", "files_called.called"])
def test_the_machine_code_of_a_kernel_is_that_of_what_it_calls_in_other_files(caller_in, cache, how, monkeypatch):
    """Although neither its own file changes, nor its own code; Numba alone would take the old code."""
    monkeypatch.setattr(compiled, "cache_folder", lambda: cache)
    assert caller_in(how=how)(1) == 4
    assert caller_in(CALLED.replace("STEP = 3", "STEP = 5"), how)(1) == 6
    assert caller_in(CALLED.replace("number + STEP", "number - STEP"), how)(1) == -2


def test_a_kernel_has_the_same_state_where_nothing_changes_that_it_follows_from(caller_in):
    """Words and other functions of the files of what it calls; any change of its own file is another state."""
    state = compiled._state(caller_in()._function)
    others = "# A remark\n" + CALLED.replace("Call another kernel of this file.", "Shift a number.")
    assert compiled._state(caller_in(f"{others}\ndef other():\n    return 1\n")._function) == state
    assert compiled._state(caller_in(more="# A remark\n")._function) != state


def test_machine_code_that_is_not_used_is_removed_from_the_environment_alone(tmp_path, monkeypatch, cache):
    folder = tmp_path / "od_core-kernels"
    monkeypatch.setattr(compiled, "cache_folder", lambda: folder)
    monkeypatch.setattr(compiled, "_USED", {"used"})
    names = {"od_core-0123456789abcdef", "od_core-kernels/used", "od_core-kernels/older", "another"}
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    compiled.remove_older()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {"od_core-kernels", *names}
    monkeypatch.setattr(compiled, "_environment_cache", lambda: tmp_path)
    compiled.remove_older()
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"od_core-kernels", "od_core-kernels/used", "another"}


def test_a_kernel_is_compiled_once_by_the_threads_that_call_it_first(cache, monkeypatch):
    started = threading.Barrier(4)
    compilations = []
    monkeypatch.setattr(compiled, "cache_folder", lambda: cache)  # in that of the environment they may be from before
    njit = compiled._njit
    monkeypatch.setattr(compiled, "_njit", lambda function: compilations.append(function) or njit(function))

    def first_call(number):
        started.wait()
        return quadrupled(number)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(first_call, range(4))) == [0, 4, 8, 12]
    assert sorted(function.__name__ for function in compilations) == ["doubled", "quadrupled"]
    assert quadrupled.__doc__ == "Call another kernel twice."


@compiled.kernel
def doubled(number):
    return number * 2


@compiled.kernel
def quadrupled(number):
    """Call another kernel twice."""
    return doubled(doubled(number))


def test_a_definition_imports_no_numba():
    """Numba takes half a second to import, and most commands call no kernel."""
    code = "import sys, od_core.geography.flow_tree; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
