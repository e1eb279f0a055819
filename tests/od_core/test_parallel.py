"""Work on threads: results in order, few pieces at a time, errors where they belong."""

import threading
import time

import pytest

from od_core.parallel import choose_thread_count, map_in_order, run_in_background, use_one_thread


@pytest.mark.parametrize("number", ["1", "2", "5"])
@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 40])
def test_results_come_in_the_order_of_the_pieces(monkeypatch, number, pieces):
    """Even where later pieces are ready first."""
    monkeypatch.setenv("OD_THREADS", number)

    def work(piece: int) -> int:
        time.sleep(0.002 * ((pieces - piece) % 3))
        return piece * piece

    assert list(map_in_order(work, iter(range(pieces)))) == [piece * piece for piece in range(pieces)]


def test_few_pieces_are_in_flight_and_all_threads_work(monkeypatch):
    """The pieces are made as they are needed, never more than a few ahead of the results taken."""
    monkeypatch.setenv("OD_THREADS", "2")
    made, taken, ahead, workers = 0, 0, [], set()

    def pieces():
        nonlocal made
        for piece in range(200):
            made += 1
            ahead.append(made - taken)
            yield piece

    def work(piece: int) -> int:
        workers.add(threading.current_thread().name)
        time.sleep(0.0005)
        return piece

    for _ in map_in_order(work, pieces()):
        taken += 1
    assert max(ahead) <= 17
    assert workers == {"od_0", threading.current_thread().name}


@pytest.mark.parametrize("bad", [0, 1, 7, 19])
def test_an_error_comes_out_at_its_place_and_ends_the_work(monkeypatch, bad):
    monkeypatch.setenv("OD_THREADS", "2")
    begun: list[int] = []

    def work(piece: int) -> int:
        begun.append(piece)
        if piece == bad:
            raise ValueError(str(piece))
        return piece

    results = []
    with pytest.raises(ValueError, match=f"^{bad}$"):
        results.extend(map_in_order(work, range(1000)))
    assert len(begun) < 40
    assert threading.active_count() < 20


def test_the_number_of_threads_is_the_operators_or_the_machines(monkeypatch):
    monkeypatch.delenv("OD_THREADS", raising=False)
    own = choose_thread_count()
    assert own >= 1
    for unusable in ("", "0", "two", "-1"):
        monkeypatch.setenv("OD_THREADS", unusable)
        assert choose_thread_count() == own
    monkeypatch.setenv("OD_THREADS", "3")
    assert choose_thread_count() == 3


def test_the_pieces_of_a_piece_are_worked_on_by_its_own_thread(monkeypatch):
    """Else threads would open threads, as many times as there are of them."""
    monkeypatch.setenv("OD_THREADS", "4")

    def inner(_: int) -> str:
        time.sleep(0.0005)
        return threading.current_thread().name

    def outer(_: int) -> bool:
        return set(map_in_order(inner, range(10))) == {threading.current_thread().name}

    assert all(map_in_order(outer, range(20)))
    assert len(set(map_in_order(inner, range(200)))) > 1


def test_where_others_have_the_processors_one_thread_works(monkeypatch):
    """This thread alone, and no other than this one; afterwards as before."""
    monkeypatch.setenv("OD_THREADS", "4")

    def work(_: int) -> str:
        time.sleep(0.0005)
        return threading.current_thread().name

    with use_one_thread():
        with use_one_thread():
            assert choose_thread_count() == 1
        assert choose_thread_count() == 1
        assert set(map_in_order(work, range(50))) == {threading.current_thread().name}
        elsewhere: list[int] = []
        other = threading.Thread(target=lambda: elsewhere.append(choose_thread_count()))
        other.start()
        other.join()
    assert elsewhere == [4]
    assert choose_thread_count() == 4
    assert len(set(map_in_order(work, range(200)))) > 1


def test_work_is_done_meanwhile_in_another_thread(monkeypatch):
    monkeypatch.setenv("OD_THREADS", "2")
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.append(threading.current_thread().name)

    with run_in_background(work):
        assert begun.wait(60)
        may_end.set()
    assert len(ended) == 1
    assert ended != [threading.current_thread().name]


def test_with_one_thread_work_is_done_after_the_context(monkeypatch):
    monkeypatch.setenv("OD_THREADS", "1")
    order = []
    with run_in_background(lambda: order.append("work")):
        order.append("context")
    assert order == ["context", "work"]


@pytest.mark.parametrize("number", ["1", "2"])
def test_an_error_of_either_is_raised(monkeypatch, number):
    monkeypatch.setenv("OD_THREADS", number)
    with pytest.raises(ZeroDivisionError), run_in_background(lambda: 1 / 0):
        pass
    with pytest.raises(KeyError), run_in_background(lambda: None):
        raise KeyError
