"""What an application of Ray Serve is made of, without ray."""

from __future__ import annotations

import pytest

from server.ray.plan import BEYOND_BATCH, LONGEST_ANSWER, ROUTER, PlanError, plan_of, settings_of


def settings(**args):
    return settings_of(list(plan_of(args).argv))


def test_arguments_are_flags_of_serve():
    found = settings(model="org/name", max_num_seqs="8", served_model_name="a,b", no_ui="true")
    assert found.model.model == "org/name"
    assert found.engine.max_num_seqs == 8
    assert found.served_model_names == ("a", "b")
    assert found.ui is False


def test_arguments_may_be_typed_as_in_a_file():
    found = settings(**{"max-num-seqs": 8, "served_model_name": ["a", "b"], "no_ui": False})
    assert found.engine.max_num_seqs == 8
    assert found.served_model_names == ("a", "b")
    assert found.ui is True


def test_a_replica_takes_a_little_more_than_its_batch():
    options = plan_of({"max_num_seqs": 32, "max_queued_requests": 5}).options
    assert options["max_ongoing_requests"] == 32 + BEYOND_BATCH == 40
    assert options["max_queued_requests"] == 5
    assert options["backpressure_config"]["status_code"] == 429
    assert options["request_router_config"] == {"request_router_class": ROUTER}


@pytest.mark.parametrize(
    ("args", "seconds"),
    [
        ({}, LONGEST_ANSWER),
        ({"request_timeout": 90}, 90),
        ({"request_timeout": 90, "drain_timeout": 20}, 20),
        ({"request_timeout": 90, "drain_timeout": 0}, 0),
    ],
)
def test_the_grace_period_is_as_long_as_the_longest_answer(args, seconds):
    assert plan_of(args).options["graceful_shutdown_timeout_s"] == seconds


@pytest.mark.parametrize(("cpus", "threads"), [(0.2, 1), ("4", 4), (None, 1)])
def test_cpus_set_the_threads(cpus, threads):
    args = {} if cpus is None else {"num_cpus": cpus}
    assert settings(**args).engine.threads == threads
    assert plan_of(args).options["ray_actor_options"]["num_cpus"] == float(cpus or 1)


def test_threads_may_be_given():
    assert settings(num_cpus=4, threads=2).engine.threads == 2


def test_the_number_of_replicas_is_fixed_or_follows_the_load():
    assert plan_of({"replicas": "3"}).options["num_replicas"] == 3
    assert plan_of({}).options["num_replicas"] == 1
    options = plan_of({"max_replicas": 4, "upscale_delay_s": 1, "max_num_seqs": 32}).options
    assert "num_replicas" not in options
    assert options["autoscaling_config"] == {
        "min_replicas": 1,
        "max_replicas": 4,
        "target_ongoing_requests": 16,
        "upscale_delay_s": 1.0,
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"replica": 2}, "replica: neither about replicas nor a flag"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 2, "max_replicas": 3}, "replicas: max_replicas is given too"),
        ({"min_replicas": 2}, "min_replicas: needs max_replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas: above"),
        ({"max_num_seqs": "many"}, "max-num-seqs"),
        ({"no_ui": "perhaps"}, "no_ui: 'perhaps' is neither"),
        ({"port": 80}, "port: Serve's proxies listen"),
        ({"uds": "socket"}, "uds: Serve's proxies listen"),
        ({"api_key": "secret"}, "api_key: Serve would show"),
    ],
)
def test_what_would_do_nothing_is_refused_by_name(args, message):
    with pytest.raises(PlanError, match=message) as raised:
        plan_of(args)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_environment_changes_nothing(monkeypatch):
    monkeypatch.setenv("ROSEINFER_MAX_NUM_SEQS", "7")
    assert settings().engine.max_num_seqs != 7
