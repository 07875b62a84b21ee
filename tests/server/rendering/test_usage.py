from server.rendering.base import UsageCounter
from tests.support.engines import out


def counted(num_choices, *outputs):
    prompts = {index // num_choices: output.num_prompt_tokens for index, output in outputs}
    counter = UsageCounter(num_choices, sum(prompts.values()))
    for index, output in outputs:
        counter.count(index, output)
    return counter.usage()


def totals(prompt, cached, output):
    return out(num_prompt_tokens=prompt, num_cached_tokens=cached, num_output_tokens=output)


def test_later_totals_replace_earlier_ones():
    usage = counted(1, (0, totals(7, 3, 1)), (0, totals(7, 3, 2)))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 2, 9)
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert usage.completion_tokens_details.reasoning_tokens == 0


def test_an_error_changes_no_total():
    usage = counted(1, (0, totals(7, 3, 5)), (0, out(error="It broke.", num_prompt_tokens=7)))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 5, 12)
    assert usage.prompt_tokens_details.cached_tokens == 3


def test_a_prompt_counts_once_and_tokens_of_all_choices_count():
    usage = counted(
        2,
        (0, totals(7, 0, 4)),
        (1, totals(7, 6, 5)),
        (2, totals(3, 2, 1)),
        (3, totals(3, 2, 1)),
    )
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 11, 21)
    assert usage.prompt_tokens_details.cached_tokens == 2


def test_without_outputs_the_counts_are_zero():
    assert counted(1).total_tokens == 0


def test_thinking_tokens_are_summed_over_the_choices():
    first, second = (out(num_output_tokens=9, num_thinking_tokens=count) for count in (7, 3))
    usage = counted(2, (0, first), (1, second))
    assert usage.completion_tokens == 18
    assert usage.completion_tokens_details.reasoning_tokens == 10
