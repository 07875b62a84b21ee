import pytest

from server.parsers.reasoning import THINKING_TAGS, detect


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


@pytest.mark.parametrize("name", THINKING_TAGS)
def test_a_template_with_the_tags_of_a_family_is_detected(name):
    begin, end = THINKING_TAGS[name]
    assert begin != end
    assert detect(f"{begin}x") == detect(f"x{end}") == name
