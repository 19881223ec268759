"""A new pack replaces what the command wrote itself, and nothing that somebody else did."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_utils.classroom.pack_contents import MANIFEST, START, refuse_to_lose, write_manifest
from mgpu_utils.classroom.student_pack import make_pack

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "handout"
    for name in (START, "notebooks/a.ipynb", "notebooks/b.ipynb"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    write_manifest(folder, {"wheel": "own"})
    with zipfile.ZipFile(tmp_path / "handout.zip", "w") as archive:
        for path in folder.rglob("*.*"):
            archive.write(path, path.relative_to(tmp_path))
    return folder


def refuse(pack: Path) -> None:
    refuse_to_lose(pack, pack.with_name("handout.zip"))


def put(name: str, text: str = "mine") -> Callable[[Path], None]:
    def change(pack: Path) -> None:
        (pack / name).parent.mkdir(parents=True, exist_ok=True)
        (pack / name).write_text(text)

    return change


def test_a_pack_as_it_was_written_an_empty_folder_and_a_free_place_are_taken(pack: Path, tmp_path: Path) -> None:
    refuse(pack)
    (tmp_path / "empty").mkdir()
    refuse_to_lose(tmp_path / "empty", tmp_path / "empty.zip")
    refuse_to_lose(tmp_path / "free", tmp_path / "free.zip")
    (pack / "notebooks/b.ipynb").unlink()
    refuse(pack)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (put("notebooks/own.txt"), r"\(notebooks/own\.txt\)"),
        (put("notebooks/.mgpu/progress.json"), r"\(notebooks/\.mgpu/\)"),
        (put("notebooks/a.ipynb", "answered"), r"\(notebooks/a\.ipynb\)"),
        (put(".venv/lib/x.py"), r"\(\.venv/\)"),
        (lambda pack: (put("a.txt")(pack), put("notebooks/c.ipynb")(pack)), r"\(notebooks/c\.ipynb and 1 more\)"),
        (lambda pack: (pack / "link").symlink_to(pack.parent), r"\(link/\)"),
        (put(MANIFEST, "{}"), "a pack without a list of its files"),
        (put(MANIFEST, "no JSON"), "a pack without a list of its files"),
    ],
)
def test_a_pack_with_anything_added_or_changed_is_refused_by_name(
    change: Callable[[Path], None], named: str, pack: Path
) -> None:
    change(pack)
    with pytest.raises(ValueError, match=named):
        refuse(pack)


def test_a_link_to_a_pack_is_refused(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pack)
    with pytest.raises(ValueError, match="is a link"):
        refuse_to_lose(tmp_path / "link", tmp_path / "link.zip")


@pytest.mark.parametrize("names", [None, [], ["handout/START.html"], ["handout/START.html", "handout/pack.json", "x"]])
def test_a_zip_that_is_no_pack_s_is_refused(names: list[str] | None, pack: Path) -> None:
    archive = pack.with_name("handout.zip")
    archive.write_text("no zip")
    if names is not None:
        with zipfile.ZipFile(archive, "w") as content:
            for name in names:
                content.writestr(name, "")
    before = archive.read_bytes()
    with pytest.raises(ValueError, match=r"handout\.zip is there, and is no zip of a pack"):
        refuse(pack)
    assert archive.read_bytes() == before


def test_a_folder_in_the_place_of_the_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "handout.zip").mkdir()
    with pytest.raises(ValueError, match="is no zip of a pack"):
        refuse_to_lose(tmp_path / "handout", tmp_path / "handout.zip")


def test_a_real_pack_is_replaced_until_somebody_has_worked_in_it(tmp_path: Path) -> None:
    first = make_pack(ROOT, tmp_path / "handout", names=["05"])
    second = make_pack(ROOT, tmp_path / "handout", names=["06"])
    assert [path.name for path in (second.folder / "notebooks").glob("0*")] == ["06_run_the_training_loop.ipynb"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["handout", "handout.zip"]
    put("notebooks/own.txt")(first.folder)
    before = first.archive.read_bytes()
    with pytest.raises(ValueError, match=r"notebooks/own\.txt"):
        make_pack(ROOT, tmp_path / "handout", names=["05"])
    assert (first.folder / "notebooks/own.txt").read_text() == "mine"
    assert first.archive.read_bytes() == before
