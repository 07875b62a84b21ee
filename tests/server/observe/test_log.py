"""The log of requests: whose they are, how many are kept, and who is told."""

import pytest

from core.contract.messages import PrefixMiss, Work
from server.observe.log import RECORD_SIZE, RequestLog
from server.observe.trace import Texts
from tests.support.engines import last, out
from tests.support.records import stream_of, submit, trace_with

pytestmark = pytest.mark.anyio


def ended(log, name, *, key="k", at=100.0, text=None, id_=None):
    """A request that begins and ends at once."""
    trace = trace_with(start=at, key=key, request_id=name, id=id_, started_at=at)
    if text is not None:
        trace.texts = Texts()
        trace.texts.take(0, out(text=text))
    log.begin(trace)
    return trace.end()


def names(log, key="k", limit=100):
    return [record.request_id for record in log.latest(key, limit)]


@pytest.fixture
def log():
    return RequestLog("model", 3)


def test_the_newest_is_the_first(log):
    for number in range(3):
        ended(log, str(number), at=100.0 + number)
    assert names(log) == ["2", "1", "0"]
    assert names(log, limit=2) == ["2", "1"]


def test_running_ones_are_included_until_they_end(log):
    ended(log, "ended", at=101.0)
    trace = trace_with(start=100.0, request_id="running", started_at=100.0)
    log.begin(trace)
    assert names(log) == ["ended", "running"]
    assert [record.state for record in log.latest("k", 9)] == ["ended", "running"]
    assert log.find("k", "running").state == "running"
    trace.end()
    assert log.find("k", "running").state == "ended"
    assert names(log) == ["ended", "running"]


def test_a_key_sees_its_own_only(log):
    ended(log, "mine", key="a")
    trace = trace_with(key="b", request_id="running")
    log.begin(trace)
    assert names(log, "a") == ["mine"]
    assert names(log, "b") == ["running"]
    assert names(log, "c") == []
    assert log.find("b", "mine") is log.find("a", "running") is None


def test_it_is_found_by_both_ids_the_newest_first(log):
    ended(log, "x", id_="chatcmpl-1", at=1.0)
    ended(log, "x", id_="chatcmpl-2", at=2.0)
    assert log.find("k", "chatcmpl-1").started_at == 1.0
    assert log.find("k", "x").started_at == 2.0
    assert log.find("k", "y") is None


def test_the_key_with_the_most_gives_way(log):
    ended(log, "quiet", key="quiet")
    for number in range(5):
        ended(log, str(number), key="loud", at=float(number))
    assert names(log, "quiet") == ["quiet"]
    assert names(log, "loud") == ["4", "3"]


def test_bytes_are_bounded(log):
    log = RequestLog("model", 1000, max_bytes=20 * RECORD_SIZE)
    for number in range(30):
        ended(log, str(number), at=float(number))
    assert len(names(log)) == 20
    ended(log, "long", text="x" * RECORD_SIZE, at=99.0)
    assert len(names(log)) == 18, "in place of three"
    assert len(log.find("k", "long").text) == RECORD_SIZE


def test_texts_that_are_too_long_are_not_kept():
    log = RequestLog("model", 10, max_bytes=16 * RECORD_SIZE)
    ended(log, "huge", text="x" * 3 * RECORD_SIZE)
    assert log.find("k", "huge").text is None


def test_the_list_has_no_texts(log):
    ended(log, "r", text="secret")
    [record] = log.latest("k", 9)
    assert record.text is record.prompt is None
    assert log.find("k", "r").text == "secret"


def test_nothing_is_kept_without_room_but_told():
    log, told = RequestLog("model", 0), []
    log.listen(told.append)
    ended(log, "r")
    assert names(log) == []
    assert [record.request_id for record in told] == ["r"]


def test_listeners_hear_of_every_end_once(log, caplog):
    told = []
    log.listen(lambda _record: 1 / 0)
    log.listen(told.append)
    trace = trace_with(request_id="r")
    log.begin(trace)
    assert told == []
    record = trace.end()
    assert told == [record]
    assert "a listener failed" in caplog.text


async def test_what_others_sent_is_told_to_listeners_only(log):
    told = []
    log.listen(told.append)
    trace = trace_with(request_id="r")
    log.begin(trace)
    miss = PrefixMiss("other_salt", 2)
    stream = stream_of(last("0", work=Work(until=1.0, miss=miss)))
    submit(trace, stream, at=100.0)
    trace.end()
    stream.close()
    assert told[0].cache_miss.reason == "other_salt"
    for record in (*log.latest("k", 9), log.find("k", "r")):
        assert record.cache_miss.reason == "never_seen"
        assert record.cache_miss.first_differing_block == 2
