"""What several machines are, how they meet, and what is said when they do not fit or do not come."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mgpu_utils import machines as machines_module
from mgpu_utils.benchmark.follower import follow
from mgpu_utils.benchmark.several_machines import leading, nnodes, other_machines
from mgpu_utils.machine_crew import Crew
from mgpu_utils.machine_identity import description, identity
from mgpu_utils.machine_lead import Lead
from mgpu_utils.machine_link import Link, LinkError, Message, read, write
from mgpu_utils.machines import Machines, MachinesError, Route, own_addresses, parse, route, spread

HERE = Route("127.0.0.1", "127.0.0.1", "lo")
SAME = {"configuration": "one and the same"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((0, None, None), "--nnodes is 0"),
        ((2, 2, "10.1.0.1:29400"), r"--node-rank is 2, but with --nnodes 2 it must be 0 to 1"),
        ((2, -1, "10.1.0.1:29400"), "--node-rank is -1"),
        ((4, None, "10.1.0.1:29400"), r"--node-rank is missing: give each of the 4 machines its own number, 0 to 3"),
        ((2, 0, None), "--rdzv-endpoint is missing"),
        ((2, 0, "10.1.0.1"), "must be HOST:PORT"),
        ((2, 0, "10.1.0.1:0"), "port from 1 to 65535"),
        ((2, 0, "10.1.0.1:65536"), "port from 1 to 65535"),
        ((2, 0, "10.1.0.1:http"), "must be HOST:PORT"),
        ((2, 0, "127.0.0.1:29400"), "means every machine itself"),
        ((2, 0, "localhost:29400"), "means every machine itself"),
        ((2, 0, "[::1]:29400"), "means every machine itself"),
        ((2, 0, "0.0.0.0:29400"), "names no machine"),
    ],
)
def test_options_that_name_no_set_of_machines_are_refused_by_name(given: Any, sentence: str) -> None:
    with pytest.raises(MachinesError, match=sentence):
        parse(*given)


def test_one_machine_is_no_set_of_machines_and_several_keep_their_endpoint() -> None:
    assert parse(1, None, None) is None
    assert parse(1, 0, "10.1.0.1:29400") is None
    assert parse(2, 1, "node-7.cluster:29400") == Machines(2, 1, "node-7.cluster", 29400)
    six = parse(2, 1, "[fd00::7]:29400")
    assert six == Machines(2, 1, "fd00::7", 29400)
    assert six.endpoint == "[fd00::7]:29400"


def test_the_interface_is_the_one_that_has_the_address_on_the_way() -> None:
    mine = [address for address in own_addresses() if ":" not in address]
    if not mine:
        pytest.skip("this machine has no network address but loopback")
    found = route(Machines(2, 0, mine[0], 29400))
    assert found == Route(mine[0], mine[0], own_addresses()[mine[0]])


def test_an_endpoint_that_cannot_be_node_rank_0_is_told_with_what_this_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(MachinesError, match="is no address of this machine; it has to be the one of node rank 0"):
        route(Machines(2, 0, "198.51.100.7", 29400))
    with pytest.raises(MachinesError, match=r"host no-such-host\.invalid of --rdzv-endpoint cannot be found"):
        route(Machines(2, 1, "no-such-host.invalid", 29400))
    # Many systems give a machine's own name the address 127.0.1.1.
    own_name = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 29400))]
    monkeypatch.setattr(machines_module.socket, "getaddrinfo", lambda *_, **__: own_name)
    with pytest.raises(MachinesError, match=r"host node0 .* is 127\.0\.1\.1 on this machine, which the others cannot"):
        route(Machines(2, 0, "node0", 29400))


def test_ranks_are_spread_over_as_few_machines_as_hold_them_equally() -> None:
    assert [spread(size, 8, 4) for size in (1, 8, 16, 32)] == [(1, 1), (1, 8), (2, 8), (4, 8)]
    # 12 do not fit on one; two take six each.
    assert spread(12, 8, 4) == (2, 6)
    with pytest.raises(MachinesError, match=r"world size 33 is above what 4 machines have \(8 each, 32 in all\)"):
        spread(33, 8, 4)
    with pytest.raises(MachinesError, match="world size 11 cannot be spread equally"):
        spread(11, 8, 4)


def test_a_machine_s_description_holds_no_name_and_its_identity_follows_the_configuration() -> None:
    environment = {"versions": {"torch": "2.13.0"}, "accelerator": "cpu", "host": "secret"}
    told = dict.fromkeys(("device_count", "device_names", "cpu", "cores_usable", "cores_in_machine"), 1)
    one, other = (identity(text, environment) for text in ("rounds: 2", "rounds: 3"))
    assert {name for name in one if one[name] != other[name]} == {"configuration"}
    assert "secret" not in description(environment | told).values()


# Connections


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(5)
        right.settimeout(5)
        yield left, right


def test_what_is_no_message_ends_a_connection() -> None:
    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2[]", b"\0\0\0\4{,,}", b"\0\0\0\2{}"):
        with connected() as (left, right):
            left.sendall(rubbish)
            left.shutdown(socket.SHUT_WR)
            with pytest.raises(LinkError, match="what is no message"):
                read(right)


def test_beats_keep_a_quiet_connection_and_silence_ends_it() -> None:
    ends: list[str] = []
    over, got = threading.Event(), threading.Event()

    def end(seen: str) -> None:
        ends.append(seen)
        over.set()

    with connected() as (left, right):
        quiet = Link(left, on_message=lambda _: got.set(), on_end=end, silence=0.5)
        beating = Link(right, on_message=lambda _: None, on_end=lambda _: None, silence=0.5)
        quiet.start()
        beating.start()
        assert not over.wait(1.5)
        beating.send({"kind": "news"})
        assert got.wait(5)
        beating.close()
        assert over.wait(5)
    assert ends == ["its connection closed"]
    with connected() as (left, _):
        over.clear()
        Link(left, on_message=lambda _: None, on_end=end, silence=0.5).start()
        assert over.wait(5)
    assert ends[1] == "nothing was heard from it for 0.5 s"


# Meeting


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def lead(port: int) -> Iterator[Lead]:
    with Lead(Machines(2, 0, "127.0.0.1", port), HERE, SAME, {"cores_usable": 4, "boot": "b"}) as lead:
        yield lead
        while _kept:
            _kept.pop().close()


def joined(port: int, **changes: Any) -> Message:
    """Ask to join, and return the answer."""
    hello = {"kind": "join", "node_rank": 1, "nnodes": 2, "identity": SAME, "machine": {"cores_usable": 4, "boot": "b"}}
    sock = socket.create_connection(("127.0.0.1", port), timeout=5)
    write(sock, hello | changes)
    answer = read(sock)
    if answer["kind"] == "refused":
        sock.close()
    else:
        _kept.append(sock)
    return answer


_kept: list[socket.socket] = []


def test_a_machine_that_does_not_come_is_named_with_what_to_start_there(lead: Lead, port: int) -> None:
    with pytest.raises(MachinesError) as caught:
        lead.gather(0.2, command="mgpu bench --node-rank {node_rank} --nnodes 2")
    assert str(caught.value) == (
        f"waited 0.2 s for node rank 1 of 2 at 127.0.0.1:{port}; start there: mgpu bench --node-rank 1 --nnodes 2"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nnodes": 3}, "node rank 1 was started with --nnodes 3, node rank 0 with 2"),
        ({"identity": {"configuration": "other"}}, "has another configuration than node rank 0"),
        ({"identity": None}, "has another configuration than node rank 0"),
        ({"machine": {"cores_usable": 2}}, r"fewer usable CPU cores than node rank 0 \(2 there, 4 here\)"),
    ],
)
def test_a_machine_that_does_not_fit_ends_both_sides_with_one_sentence(
    lead: Lead, port: int, changes: dict[str, Any], sentence: str
) -> None:
    answer = joined(port, **changes)
    assert answer["kind"] == "refused"
    with pytest.raises(MachinesError, match=sentence) as caught:
        lead.gather(60)
    assert str(caught.value) == answer["reason"]


def test_a_second_machine_of_one_number_is_refused_and_the_first_one_stays(lead: Lead, port: int) -> None:
    assert joined(port)["kind"] == "welcome"
    lead.gather(5)
    assert "is there already, from 127.0.0.1" in joined(port)["reason"]
    assert "node rank 0 leads already" in joined(port, node_rank=0)["reason"]
    lead.gather(5)
    # Both ran on this computer, and the record must say so; the number that tells it stays out.
    assert lead.others == [{"cores_usable": 4, "node_rank": 1, "own_machine": False}]


def test_only_who_holds_the_token_may_start_something(lead: Lead, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        write(sock, {"kind": "drive", "token": "guessed"})
        with pytest.raises(LinkError, match="connection closed"):
            read(sock)
    crew = Crew.from_environment(lead.environment())
    assert crew is not None
    assert crew.nnodes == 2
    crew.close()
    assert Crew.from_environment({}) is None


def test_the_port_of_a_command_that_runs_already_is_refused(lead: Lead, port: int) -> None:
    with pytest.raises(MachinesError, match=f"port {port} of --rdzv-endpoint .* choose another port"):
        Lead(Machines(2, 0, "127.0.0.1", port), HERE, SAME, {})


def in_thread(work: Callable[[], int]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except MachinesError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_a_follower_started_first_waits_and_ends_with_node_rank_0_s_status(port: int) -> None:
    said: list[str] = []
    machines = Machines(2, 1, "127.0.0.1", port)
    thread, status = in_thread(lambda: follow(machines, HERE, SAME, {}, join_seconds=30, say=said.append))
    time.sleep(0.2)
    with Lead(Machines(2, 0, "127.0.0.1", port), HERE, SAME, {}) as lead:
        lead.gather(30)
        lead.close(1, "3 runs failed")
    thread.join(30)
    assert status == [1]
    assert said[-1] == "node rank 0 ended this after 0 runs here: 3 runs failed"


def test_the_frame_of_a_benchmark_tells_its_processes_of_the_machines_and_sends_them_home(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpu_utils.benchmark.several_machines.route", lambda _: HERE)
    told = dict.fromkeys(("device_count", "device_names", "cpu", "cores_usable", "cores_in_machine"), 1)
    environment = told | {"versions": {"torch": "2.13.0"}, "accelerator": "cpu"}
    same = identity("rounds: 2", environment)
    other = {"cores_usable": 2}
    thread, status = in_thread(lambda: follow(Machines(2, 1, "127.0.0.1", port), HERE, same, other, join_seconds=30))
    machines = Machines(2, 0, "127.0.0.1", port)
    with leading(machines, "rounds: 2", environment, command="", join_seconds=30) as finish:
        assert nnodes() == 2
        assert other_machines() == [{"cores_usable": 2, "node_rank": 1, "own_machine": True}]
        assert finish(3) == 3
    thread.join(30)
    assert status == [3]
    assert (nnodes(), other_machines()) == (1, [])
    with leading(None, "rounds: 2", environment, command="") as finish:
        assert (nnodes(), finish(1)) == (1, 1)


def test_a_follower_that_nobody_awaits_says_where_it_waited(port: int) -> None:
    with pytest.raises(MachinesError, match=f"waited 0.1 s for node rank 0 of 2 at 127.0.0.1:{port} .nothing listens"):
        follow(Machines(2, 1, "127.0.0.1", port), HERE, SAME, {}, join_seconds=0.1)
