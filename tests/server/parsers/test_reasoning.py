import pytest

from server.parsers.reasoning import REASONING_PARSERS, detect, thinking_tags


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (None, None),
        ("{{ messages }}", None),
        ("... '<think>\\n' ...", "think"),
        ("content.split('</think>')[-1]", "think"),
        ("[THINK]...[/THINK]", "mistral"),
    ],
)
def test_detection(template, family):
    assert detect(template) == family


@pytest.mark.parametrize("name", REASONING_PARSERS)
def test_a_template_with_the_tags_of_a_family_is_detected(name):
    begin, end = thinking_tags(name)
    assert begin != end
    assert detect(f"{begin}x") == detect(f"x{end}") == name


def test_an_unknown_family():
    with pytest.raises(ValueError, match=r"'x'.*think, mistral"):
        thinking_tags("x")
