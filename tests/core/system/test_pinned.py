from __future__ import annotations

import numpy as np
import pytest
import torch

from core.system.pinned import Download, Uploads

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def test_uploads_arrive_in_order(device):
    uploads = Uploads(device)
    target = torch.zeros(300, dtype=torch.int32, device=device)
    for i in range(20):
        num_words = 1 + 13 * i
        uploads.take(num_words)[:num_words] = np.arange(num_words) + i
        uploads.send(num_words, target)
        assert target.tolist()[:num_words] == list(range(i, i + num_words))
    assert target.tolist()[num_words:] == [0] * (300 - num_words)


def test_a_buffer_may_hold_int64_values(device):
    uploads = Uploads(device)
    target = torch.zeros(8, dtype=torch.int32, device=device)
    uploads.take(8)[:8].view(np.int64)[:] = [1, -1, 2**40, 7]
    uploads.send(8, target)
    assert target.view(torch.int64).tolist() == [1, -1, 2**40, 7]


def test_a_copy_in_flight_is_not_overwritten(device):
    uploads = Uploads(device, num_buffers=2)
    targets = [torch.zeros(50_000, dtype=torch.int32, device=device) for _ in range(9)]
    for i, target in enumerate(targets):
        uploads.take(50_000)[:] = i
        uploads.send(50_000, target)
    assert [set(target.tolist()) for target in targets] == [{i} for i in range(9)]


def test_a_download_keeps_the_values_at_its_start(device):
    tensor = torch.arange(6, device=device).view(2, 3)
    download = Download(tensor)
    tensor.zero_()
    assert download.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert download.tolist() == [[0, 1, 2], [3, 4, 5]]
