import torch

from core.attention.layer_groups import groups_on, layer_groups, one_group
from core.kv.layer_spec import LayerSpec


def spec(window: int | None) -> LayerSpec:
    return LayerSpec(2, 1, 8, 8, 1.0, window)


LAYERS = [spec(16), spec(None), spec(16), spec(8), spec(100)]


def test_layers_of_one_window_form_a_group():
    groups = layer_groups(LAYERS, max_model_len=100)
    assert [(g.window, g.indices) for g in groups] == [(None, (1, 4)), (16, (0, 2)), (8, (3,))]
    assert [g.layers for g in groups][1] == (LAYERS[0], LAYERS[2])


def test_the_full_group_comes_first_even_without_layers():
    groups = layer_groups([spec(16)], max_model_len=100)
    assert [(g.window, g.indices) for g in groups] == [(None, ()), (16, (0,))]


def test_a_window_as_long_as_the_context_hides_nothing():
    assert layer_groups(LAYERS, max_model_len=8) == one_group(LAYERS)


def test_a_device_with_recorded_steps_has_one_group():
    assert groups_on(torch.device("meta"), LAYERS, 100) == one_group(LAYERS)
