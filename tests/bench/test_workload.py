import json
import random

import pytest

from bench.errors import BenchError
from bench.settings import Workload
from bench.words import WORDS, random_prompt
from bench.workload import Request, read_dataset, requests_of


def test_drawn_prompts_have_the_given_length():
    asked = requests_of(Workload(num_requests=50, length=(2, 5), max_new_tokens=7), "run 1")
    lengths = {len(a.prompt.split()) for a in asked}
    assert lengths == {2, 3, 4, 5}
    assert {word for a in asked for word in a.prompt.split()} <= set(WORDS)
    assert all(a.prompt.startswith(" ") and a.max_tokens == 7 for a in asked)


def test_drawn_prompts_are_repeatable_and_differ_between_runs():
    workload = Workload(num_requests=3)
    assert requests_of(workload, "run 1") == requests_of(workload, "run 1")
    assert not {*requests_of(workload, "run 1")} & {*requests_of(workload, "run 2")}
    other = Workload(num_requests=3, seed=1)
    assert not {*requests_of(workload, "run 1")} & {*requests_of(other, "run 1")}


def test_a_shared_prefix_precedes_every_prompt():
    first, second = requests_of(Workload(num_requests=2, shared_prefix_len=9, length=(3, 3)), "r")
    one, two = first.prompt.split(), second.prompt.split()
    assert len(one) == len(two) == 12
    assert one[:9] == two[:9]
    assert one[9:] != two[9:]


def test_a_given_prompt_is_repeated():
    workload = Workload(num_requests=2, text="ab", repeats=3, max_new_tokens=5)
    assert requests_of(workload, "r") == [Request("ababab", 5)] * 2


def test_unique_prompts_share_no_prefix():
    workload = Workload(num_requests=20, text="ab", unique=True)
    prompts = [a.prompt for a in requests_of(workload, "r")]
    assert len(set(prompts)) == 20
    assert all(prompt.endswith(" ab") for prompt in prompts)


def test_a_dataset_may_be_json_lines(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a", "max_tokens": 3, "x": 1}\n\n{"prompt": "b"}\n{"prompt": ""}\n')
    assert read_dataset(file) == [("a", 3), ("b", None)]
    workload = Workload(num_requests=3, dataset=file, max_new_tokens=9)
    assert requests_of(workload, "r") == [Request("a", 3), Request("b", 9), Request("a", 3)]


def test_a_dataset_may_be_conversations(tmp_path):
    file = tmp_path / "sharegpt.json"
    turns = [{"from": "gpt", "value": "x"}, {"from": "human", "value": "hello"}]
    file.write_text(json.dumps([{"id": "1", "conversations": turns}, {"conversations": []}]))
    assert read_dataset(file) == [("hello", None)]


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"prompt": 1}', '{"text": "x"}', '"x"'])
def test_a_malformed_dataset_is_an_error(tmp_path, text):
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(BenchError, match=str(file)):
        read_dataset(file)


def test_a_missing_dataset_is_an_error(tmp_path):
    with pytest.raises(BenchError):
        read_dataset(tmp_path / "none")


def test_words_are_distinct():
    assert len(set(WORDS)) == len(WORDS)
    assert random_prompt(random.Random(0), 0) == ""
    assert random_prompt(random.Random(0), 3) == random_prompt(random.Random(0), 3)
