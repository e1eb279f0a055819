"""Where machine code is kept: it is run, so nobody else may write there."""

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
    return compiled.make_cache_folder.__wrapped__()


def test_the_folder_is_named_by_the_sources_and_closed(cache):
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
    assert compiled._list_cache_roots() == [compiled._locate_environment_cache()]


def test_other_sources_are_another_folder(cache, monkeypatch):
    """Any change in a file with kernels; the digest is of what those files hold."""
    before = found()
    monkeypatch.setattr(compiled, "_compute_sources_digest", lambda: "0123456789abcdef")
    assert found() != before


def test_a_kernel_is_compiled_once_by_the_threads_that_call_it_first(cache, monkeypatch):
    started = threading.Barrier(4)
    compilations = []
    monkeypatch.setattr(
        compiled, "make_cache_folder", lambda: cache
    )  # in that of the environment they may be from before
    njit = compiled._wrap_with_numba
    monkeypatch.setattr(compiled, "_wrap_with_numba", lambda function: compilations.append(function) or njit(function))

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
