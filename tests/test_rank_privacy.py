"""Reports of errors name no person and no machine, and only the owner can reach what belongs to a group."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import psutil
import pytest

import mgpu_utils as mgpu
from mgpu_utils import private_text
from mgpu_utils.private_text import without_private
from mgpu_utils.rank_kernel import RankKernel
from mgpu_utils.ranks import RankGroup
from mgpu_utils.rendezvous import loopback_store, rank_environment


@pytest.fixture
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada.l")
    monkeypatch.setenv("USERPROFILE", "/home/ada.l")
    monkeypatch.setenv("MY_API_TOKEN", "tok-123456789")
    monkeypatch.setattr(private_text, "_names", lambda: [("lovelace-laptop", "HOST"), ("ada.l", "USER")])


@pytest.mark.usefixtures("_ada")
def test_home_names_and_secrets_are_taken_out_and_all_else_stays() -> None:
    text = 'File "/home/ada.l/course/train.py", line 3: /home/ada.long, tok-123456789 at lovelace-laptop for ada.l'
    assert without_private(text) == 'File "~/course/train.py", line 3: /home/ada.long, *** at HOST for USER'
    assert (
        without_private("ordinary words, 127.0.0.1:80, /usr/lib/x.py") == "ordinary words, 127.0.0.1:80, /usr/lib/x.py"
    )


@pytest.mark.usefixtures("_ada")
def test_an_error_of_a_rank_holds_nothing_private(two_ranks: RankGroup) -> None:
    code = (
        "def load():\n    raise OSError('/home/ada.l/data is closed to ada.l, tok-123456789, lovelace-laptop')\nload()"
    )
    with pytest.raises(mgpu.RankError) as caught:
        two_ranks.execute(code)
    assert str(caught.value).startswith("ranks 0 and 1 raised OSError: ~/data is closed to USER, ***, HOST")
    for failure in caught.value.failures:
        words = failure.summary + failure.message + failure.full.split("OSError: ")[-1]
        assert not [private for private in ("ada.l", "tok-1", "lovelace") if private in words]
        assert "Traceback" in failure.full


def test_a_report_holds_no_environment_variable(two_ranks: RankGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_TEST_PLAIN", "plain-value-of-a-variable")
    with pytest.raises(mgpu.RankError) as caught:
        two_ranks.execute("import os\nos._exit(3)")
    words = str(caught.value) + "".join(failure.full for failure in caught.value.failures)
    values = {value for name, value in os.environ.items() if len(value) > 12 and "PATH" not in name and name != "PWD"}
    assert not [value for value in values if value in words]
    two_ranks.restart()


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX")
def test_the_connection_file_and_its_folder_belong_to_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kernel = RankKernel(0, rank_environment(0, 1, 1, 1))
    finally:
        os.umask(before)
    try:
        file = kernel._connection_file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert len(file.read_text().split('"key": "')[1].split('"')[0]) == 64
    finally:
        kernel.kill()
    assert not file.parent.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are read from /proc")
def test_keys_are_neither_in_the_command_line_nor_in_the_environment_of_a_rank(two_ranks: RankGroup) -> None:
    for kernel in two_ranks._kernels:
        key = kernel.client.session.key.decode()
        process = psutil.Process(kernel.process.pid)
        assert len(key) == 64
        assert key not in " ".join(process.cmdline())
        assert key not in " ".join(process.environ().values())


def test_messages_with_another_key_are_not_executed(two_ranks: RankGroup, tmp_path: Path) -> None:
    kernel = two_ranks._kernels[0]
    session, marker = kernel.client.session, tmp_path / "executed"
    right, session.key = session.key, b"0" * 64
    try:
        kernel.send(f"open({str(marker)!r}, 'w').close()")
    finally:
        session.key = right
    two_ranks.execute("1")
    assert not marker.exists()
    two_ranks.execute(f"open({str(marker)!r}, 'w').close()", rank=0)
    assert marker.exists(), "the same message with the right key"


def test_the_store_listens_on_loopback_alone() -> None:
    before = {c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN}
    store = loopback_store(5.0)
    listening = {c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN} - before
    assert {(address.ip, address.port) for address in listening} == {("127.0.0.1", store.port)}
