import pytest
import torch
from torch import nn

from core.fusion.proof import Proof, output_of

CPU = torch.device("cpu")


def proof_of(dtype: torch.dtype = torch.float32, **options: object) -> Proof:
    return Proof(CPU, dtype, **options)


def test_close_tensors_differ_by_less_than_the_tolerance():
    x = torch.tensor([100.0, 1.0])
    proof = proof_of(product_tolerance=1e-2)
    assert proof.is_close(x, x + 0.009)
    assert not proof.is_close(x, x + 0.011)
    assert proof.is_close(x, x + 0.9, is_product=True)
    assert not proof.is_close(x, x + 1.1, is_product=True)


@pytest.mark.parametrize(
    "expected",
    [
        torch.zeros(2),
        torch.zeros(3).bfloat16(),
        torch.full((3,), torch.nan),
        (torch.zeros(3),),
        None,
    ],
    ids=["shape", "type", "NaN", "tuple", "None"],
)
def test_other_results_are_not_close(expected):
    assert proof_of().is_close(torch.zeros(3), torch.zeros(3))
    assert not proof_of().is_close(expected, torch.zeros(3))
    assert not proof_of().is_close(torch.zeros(3), torch.full((3,), torch.nan))


def test_a_type_without_a_tolerance_has_to_be_exact():
    x = torch.ones(3, dtype=torch.float64)
    assert proof_of(torch.float64).is_close(x, x)
    assert not proof_of(torch.float64).is_close(x, x + 1e-12)


def test_products_are_compared_for_several_numbers_of_rows():
    class UpTo(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (1 if x.shape[1] < 24 else 2)

    wrong = UpTo(4, 4)
    right = nn.Linear(4, 4)
    right.load_state_dict(wrong.state_dict())
    few, many = proof_of(), proof_of(product_rows=(3, 24))
    assert few.is_equal([right], [wrong], 4, is_product=True)
    assert many.is_equal([right], [wrong], 4, is_product=False)
    assert not many.is_equal([right], [wrong], 4, is_product=True)


def test_an_original_that_refuses_a_call_has_no_output():
    def refuse(x: int) -> int:
        raise TypeError

    assert output_of(refuse, 1) is None
    assert output_of(nn.Linear(4, 4), torch.zeros(3)) is None
    assert not proof_of().is_equal([nn.Linear(4, 4)], [nn.Linear(4, 4)], 3, is_product=True)


def test_running_out_of_memory_is_an_error():
    def allocate() -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        output_of(allocate)
