"""Names of GGUF files and their parts."""

from core.gguf.names import models_in, part_names


def test_parts_of_a_split_file_name_each_other():
    assert part_names("m-00002-of-00002.gguf") == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    assert part_names("m.gguf") == ["m.gguf"]


def test_a_split_model_counts_once_and_a_vision_encoder_not_at_all(tmp_path):
    names = ("b.gguf", "a-00002-of-00002.gguf", "a-00001-of-00002.gguf", "mmproj-b.gguf", "b.txt")
    for name in names:
        (tmp_path / name).touch()
    assert models_in(tmp_path) == ["a-00001-of-00002.gguf", "b.gguf"]
    (tmp_path / "c.GGUF").touch()
    assert models_in(tmp_path) == ["a-00001-of-00002.gguf", "b.gguf", "c.GGUF"]
