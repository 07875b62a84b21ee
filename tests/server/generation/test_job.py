from core.contract.params import SamplingParams
from server.apis.openai.completions import TextRenderer
from server.generation.job import Job, NewGrammars
from server.tenants.tenant import Tenant

TENANT = Tenant("t")


def requests(
    prompts=((1, 2), (3,)),
    *,
    num_choices=2,
    seed=None,
    salt=None,
    is_streamed=True,
    tenant=TENANT,
    priority=0,
):
    job = Job(
        id="id",
        prompts=prompts,
        params=[SamplingParams(max_tokens=1 + p, seed=seed) for p in range(len(prompts))],
        num_choices=num_choices,
        is_streamed=is_streamed,
        stream_interval=3,
        cache_salt=salt,
        priority=priority,
        renderer=TextRenderer(""),
        new_grammars=NewGrammars(None),
    )
    requests = job.requests(tenant)
    assert len(requests) == len(prompts) * num_choices
    return requests


def test_choices_are_ordered_prompt_by_prompt():
    made = requests()
    assert [r.request_id for r in made] == ["id-0", "id-1", "id-2", "id-3"]
    assert [r.prompt_token_ids for r in made] == [(1, 2), (1, 2), (3,), (3,)]
    assert [r.params.max_tokens for r in made] == [1, 1, 2, 2]
    assert {r.stream_interval for r in made} == {3}
    assert {r.cache_salt for r in made} == {""}


def test_seeded_choices_differ_and_are_repeatable():
    assert [r.params.seed for r in requests(seed=7)] == [7, 8, 7, 8]
    assert [r.params.seed for r in requests(seed=0)] == [0, 1, 0, 1]
    assert [r.params.seed for r in requests()] == [None] * 4
    assert [r.params.seed for r in requests(seed=2**63 - 1)][1] == 2**63


def test_the_salt_reaches_the_engine():
    assert requests(salt="mine")[0].cache_salt == "mine"
    assert requests(salt="mine", tenant=Tenant("t", "secret"))[0].cache_salt == "secret/mine"
    assert requests(tenant=Tenant("t", "secret"))[0].cache_salt == "secret/"


def test_requests_carry_the_name_of_their_tenant():
    assert requests(tenant=Tenant("t", "secret"))[0].tenant == "t"


def test_all_requests_have_the_priority():
    assert [r.priority for r in requests(priority=-7)] == [-7] * 4
    assert {r.priority for r in requests()} == {0}


def test_without_streaming_the_engine_reports_only_the_end():
    assert {r.stream_interval for r in requests(is_streamed=False)} == {0}
