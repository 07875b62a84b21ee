"""The load generator with a scripted client."""

import asyncio
import math
import time

import pytest

from bench.records import RequestTimes
from benchmarks.load import Sent, figures, run_scenario
from benchmarks.scenarios import Scenario, scenarios


class Answering:
    """Yields a token per turn of the event loop, and counts concurrent requests."""

    def __init__(self, error=None, last=10**9):
        self.asked = []
        self.most = 0
        self._now = 0
        self._error = error
        self._last = last

    async def run(self, prompt, max_tokens, on_token=None):
        self.asked.append((len(prompt.split()), max_tokens))
        self._now += 1
        self.most = max(self.most, self._now)
        record = RequestTimes(submit=time.perf_counter(), error=self._error)
        for number in range(max_tokens):
            if number == self._last:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            record.token_times.append(time.perf_counter())
            on_token(record)
        record.end = time.perf_counter()
        record.completion_tokens = max_tokens
        record.prompt_tokens = len(prompt.split())
        record.finish_reason = "length"
        self._now -= 1
        return record


def run(client, scenario, limit=60.0):
    return asyncio.run(run_scenario(client, scenario, seed="0", limit=limit))


@pytest.mark.parametrize("name", ["s1", "s3", "s4"])
def test_a_closed_load_keeps_its_concurrency(name):
    client, scenario = Answering(), scenarios(1024)[name]
    found = run(client, scenario)
    assert client.most == scenario.concurrency
    assert found["num_sent"] == found["num_ended"] == scenario.num_requests
    assert found["num_tokens"] == scenario.num_requests * scenario.max_tokens
    assert found["num_errors"] == found["num_short"] == 0
    assert not found["is_cut"]


def test_an_open_load_does_not_wait_for_answers():
    client = Answering()
    scenario = Scenario(
        name="s2",
        kind="open",
        num_requests=9,
        concurrency=9,
        interval=0.0,
        prompt_words=(1, 3),
        max_tokens=50,
    )
    assert run(client, scenario)["num_ended"] == 9
    assert client.most == 9


def test_the_long_prompt_is_sent_when_every_stream_has_tokens():
    client, scenario = Answering(), scenarios(1024)["s5"]
    found = run(client, scenario)
    assert client.asked == [(32, 256)] * 8 + [(900, 8)]
    assert found["num_sent"] == 8  # without the long prompt
    assert found["num_tokens"] == 8 * 256
    assert found["long_ttft_ms"] > 0


def test_others_follow_when_the_first_request_has_ended():
    client, scenario = Answering(), scenarios(40960)["context-8k"]
    found = run(client, scenario)
    assert client.asked == [(8000, 64)] * 9
    assert client.most == 8
    assert found["num_sent"] == found["num_ended"] == 8  # without the first
    assert found["num_tokens"] == 8 * 64
    assert found["first_ttft_ms"] > 0
    assert found["first_tpot_ms"] > 0
    assert not found["first_is_cut"]


@pytest.mark.parametrize("last", [0, 5])
def test_a_run_that_is_cut_before_the_others_has_figures_of_the_first_alone(last):
    found = run(Answering(last=last), scenarios(40960)["context-8k"], limit=0.3)
    assert found["is_cut"]
    assert found["first_is_cut"]
    assert found["num_sent"] == 0
    assert found["first_ttft_ms"] > 0
    assert math.isnan(found["tok_s"])
    assert math.isnan(found["ttft_p50_ms"])
    assert math.isnan(found["first_tpot_ms"]) == (last == 0)


def test_a_failed_first_request_is_counted():
    found = run(Answering(error="no"), scenarios(40960)["context-8k"])
    assert found["num_errors"] == 9


def test_a_run_is_cut_at_its_limit():
    client = Answering(last=5)
    found = run(client, scenarios(1024)["s3-16"], limit=0.5)
    assert found["is_cut"]
    assert found["num_ended"] == 0
    assert found["num_tokens"] == 16 * 5
    assert found["wall_s"] > 0  # from the first request, which is sent after the limit starts


def test_one_stream_pauses_between_requests_and_its_clock_stands():
    pauses = []

    async def pause():
        end = time.perf_counter() + 0.4
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)  # a timer would end the run here
        pauses.append(end)

    scenario = scenarios(1024)["s1"]
    client = Answering()
    found = asyncio.run(run_scenario(client, scenario, seed="0", limit=1, pause=pause))
    assert (found["num_ended"], len(pauses), client.most) == (4, 3, 1)
    assert not found["is_cut"]  # three pauses are longer than the limit
    assert found["paused_s"] >= 1.2
    assert len(found["tpot_each_ms"]) == 4
    assert found["wall_s"] < 1
    assert found["tok_s"] == found["num_tokens"] / found["wall_s"]
    asyncio.run(run_scenario(Answering(), scenarios(1024)["s3"], seed="0", limit=60, pause=pause))
    assert len(pauses) == 3  # other streams would go on


def test_a_request_that_ends_in_the_turn_of_the_limit_is_the_last():
    """The next one is neither sent nor is its pause begun."""

    class Late(Answering):
        async def run(self, prompt, max_tokens, on_token=None):
            def seen(record):
                """Take until after the limit, two turns of the loop before the end."""
                on_token(record)
                start = time.perf_counter()
                while len(record.token_times) == max_tokens - 2:
                    if time.perf_counter() > start + limit:
                        return

            return await super().run(prompt, max_tokens, seen)

    client, limit = Late(), 0.1
    found = run(client, scenarios(1024)["s1"], limit=limit)
    assert found["is_cut"]
    assert (found["num_sent"], found["num_ended"], len(client.asked)) == (1, 1, 1)


def test_failed_requests_are_counted_and_give_no_figures():
    found = run(Answering(error="no"), scenarios(1024)["s1"])
    assert found["num_errors"] == 4
    assert found["first_error"] == "no"
    assert found["num_tokens"] == 0
    assert math.isnan(found["tpot_p50_ms"])


def sent(submit, *times, is_over=True):
    record = RequestTimes(
        submit=submit,
        token_times=list(times),
        end=times[-1] if is_over else 0.0,
        completion_tokens=len(times) if is_over else 0,
    )
    return Sent(submit=submit, record=record, is_over=is_over)


def test_figures_of_two_requests():
    found = figures([sent(0, 1, 2, 4), sent(1, 3, 4)], None, is_cut=False, now=99)
    assert found["wall_s"] == 4
    assert found["tok_s"] == 5 / 4
    assert found["ttft_p50_ms"] == 1500
    assert found["tpot_p50_ms"] == 1250
    assert found["itl_max_ms"] == 2000


def test_figures_of_a_cut_run_end_at_the_cut():
    waiting = Sent(submit=2.0)
    found = figures([sent(0, 1, 2, is_over=False), waiting], None, is_cut=True, now=10)
    assert found["wall_s"] == 10
    assert found["num_tokens"] == 2
    assert found["tpot_p50_ms"] == 1000
    assert found["ttft_max_ms"] == 8000


def test_gaps_before_and_during_a_long_prompt():
    one = sent(0, 1, 2, 3, 7, 8)  # the long prompt starts at 4
    other = sent(0, 0.5, 2.5, 3.5, 8, 12)
    found = figures([one, other], sent(4, 6, 7), is_cut=False, now=99)
    assert found["long_ttft_ms"] == 2000
    assert found["gap_max_ms"] == 4500
    assert found["gap_quiet_p50_ms"] == 1000
