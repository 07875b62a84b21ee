from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sampling.processors.penalties import Penalties
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import make_logits, make_sequence

VOCAB_SIZE = 30


def penalised(logits, sequence):
    """The definition, one logit at a time."""
    params = sequence.params
    output = sequence.token_ids[sequence.num_prompt_tokens :]
    result = []
    for token, logit in enumerate(logits.tolist()):
        value = logit
        if token in sequence.token_ids:
            value = (
                value / params.repetition_penalty
                if value > 0
                else value * params.repetition_penalty
            )
        count = output.count(token)
        value -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
        result.append(value)
    return result


request = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=10).map(tuple),
        "output": st.lists(st.integers(0, 8), max_size=10).map(tuple),
        "presence_penalty": st.sampled_from([0.0, -2.0, 1.0]),
        "frequency_penalty": st.sampled_from([0.0, -1.0, 2.0]),
        "repetition_penalty": st.sampled_from([1.0, 0.5, 1.3]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(request, min_size=1, max_size=4),
    steps=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=4),
)
def test_penalties_match_the_definition_in_every_step(requests, steps):
    sequences = [make_sequence(**fields) for fields in requests]
    penalties = Penalties()
    for token in [None, *steps]:
        if token is not None:
            for sequence in sequences:
                sequence.token_ids.append(token)
        logits = make_logits(len(sequences), VOCAB_SIZE, seed=len(sequences[0].token_ids))
        expected = [penalised(row, s) for row, s in zip(logits, sequences, strict=True)]
        penalties.apply(logits, list(range(len(sequences))), sequences)
        np.testing.assert_allclose(logits.numpy(), np.array(expected), rtol=1e-5, atol=1e-5)


def test_many_distinct_tokens():
    sequence = make_sequence(
        prompt=tuple(range(700)), output=tuple(range(500, 1500)), repetition_penalty=1.2
    )
    logits = make_logits(1, 2000)
    expected = penalised(logits[0], sequence)
    Penalties().apply(logits, [0], [sequence])
    np.testing.assert_allclose(logits[0].numpy(), np.array(expected), rtol=1e-5, atol=1e-5)


def test_a_sequence_that_left_the_batch_is_counted_again():
    one, other = (make_sequence(output=(4,), frequency_penalty=1.0) for _ in range(2))
    penalties = Penalties()
    logits = torch.zeros(2, 10)
    penalties.apply(logits, [0, 1], [one, other])
    one.token_ids += [4, 4]
    other.token_ids += [4]
    penalties.apply(logits.zero_(), [1], [other])
    assert logits[1, 4] == -2
    penalties.apply(logits.zero_(), [0, 1], [one, other])
    assert logits[:, 4].tolist() == [-3, -2]


def test_counts_of_finished_sequences_are_dropped():
    penalties = Penalties()
    for _ in range(5):
        penalties.apply(torch.zeros(1, 10), [0], [make_sequence(frequency_penalty=1.0)])
    assert len(penalties._counts) == 1


def test_an_empty_output_changes_nothing():
    logits = make_logits(1, 10)
    before = logits.clone()
    Penalties().apply(logits, [0], [make_sequence(presence_penalty=1.0)])
    assert torch.equal(logits, before)


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_masked_and_nan_logits_are_not_changed(value):
    logits = torch.full((1, 10), value)
    sequence = make_sequence(output=(4,), repetition_penalty=2.0, presence_penalty=1.0)
    Penalties().apply(logits, [0], [sequence])
    assert torch.equal(logits.isnan(), torch.full((1, 10), value).isnan())
    assert not logits.isfinite().any()


def test_a_frequency_penalty_ends_a_loop():
    sampler = Sampler()
    counts = []
    for penalty in (0.0, 2.0):
        sequence = make_sequence(temperature=0.0, frequency_penalty=penalty)
        for _ in range(12):
            logits = make_logits(1, 50)
            sequence.token_ids += sampler(logits, [sequence])[0].token_ids
        output = sequence.token_ids[3:]
        counts.append(max(output.count(token) for token in output))
    assert counts[0] == 12
    assert counts[1] < 6
