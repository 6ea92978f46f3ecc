import os
import time

import pytest

from infobatch import files


def test_an_error_while_writing_leaves_the_file_of_before_and_nothing_else(tmp_path):
    path = tmp_path / "kept.txt"
    files.write_text(path, "before")

    def write_half():
        with files.write_whole(path) as file:
            file.write(b"aft")
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        write_half()
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["kept.txt"]


def test_a_text_replaces_the_target_of_a_link_and_folders_are_made(tmp_path):
    target = tmp_path / "new" / "folder" / "text.json"
    link = tmp_path / "link.json"
    link.symlink_to(target)
    files.write_text(link, "ratio ½ ÷ δ")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "ratio ½ ÷ δ"


def test_old_files_of_killed_writers_are_removed_and_files_being_written_are_not(tmp_path):
    old, new, other = (tmp_path / name for name in (".a.txt.1.part", ".a.txt.2.part", ".b.txt.1.part"))
    for part in (old, new, other):
        part.touch()
    for part in (old, other):
        os.utime(part, (time.time() - 7200,) * 2)
    files.write_text(tmp_path / "a.txt", "")
    assert not old.exists()
    assert new.exists()
    assert other.exists()
