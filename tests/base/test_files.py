"""Files that are replaced as a whole."""

import pytest

from dreamfleet.base.files import replace_file, replacing


@pytest.mark.parametrize("content", ["né", b"\x00\xff"])
def test_a_file_is_replaced_and_no_draft_is_left(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_text("old")
    replace_file(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("is_directory", [False, True])
def test_what_fails_leaves_the_old_content_and_no_draft(tmp_path, is_directory):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as draft:
        if is_directory:
            draft.mkdir()
            (draft / "part").write_text("new")
        else:
            draft.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_appears_as_a_whole(tmp_path):
    path = tmp_path / "directory"
    with replacing(path) as draft:
        draft.mkdir()
        (draft / "part").write_text("new")
        assert not path.exists()
    assert (path / "part").read_text() == "new"


def test_an_error_of_the_block_is_told_even_if_there_is_no_draft(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file"):
        raise ZeroDivisionError
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "nowhere" / "file", "new")
