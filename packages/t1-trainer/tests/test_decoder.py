"""The cached decoder against its naive twin, the full-sequence forward."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_trainer.policy import MoEConfig, MoEModel
from t1_trainer.policy.decoder import CachedDecoder
from t1_trainer.policy.rounding import exact

CONFIG = MoEConfig(vocab_size=60, hidden_size=32, num_attention_heads=2, moe_intermediate_size=16)


def full(model: MoEModel, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    result = model(torch.tensor(tokens), torch.tensor([len(tokens)]))
    return model.logits(result.hidden_ND), result.selected_NLK


def decoder_of(model: MoEModel, capacity: int) -> CachedDecoder:
    decoder = CachedDecoder(CONFIG, capacity=capacity, max_length=64, rounded=exact)
    decoder.load(model.state_dict())
    return decoder


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=4), st.data()
)
def test_feeding_in_pieces_equals_one_full_forward(pieces: list[list[int]], data: st.DataObject):
    torch.manual_seed(0)
    model = MoEModel(CONFIG)
    decoder = decoder_of(model, len(pieces))
    fed: list[list[int]] = [[] for _ in pieces]
    routed: list[list[torch.Tensor]] = [[] for _ in pieces]
    logits = [torch.empty(0)] * len(pieces)
    for turn in range(max(map(len, pieces))):
        rows = [r for r in range(len(pieces)) if turn < len(pieces[r])]
        for row in rows:
            count = pieces[row][turn]
            ids = data.draw(st.lists(st.integers(0, 59), min_size=count, max_size=count))
            out, used = decoder.feed(torch.tensor([[*ids, 0]]), torch.tensor([count]), row)
            fed[row] += ids
            routed[row].append(used[0, :count])
            logits[row] = out[0]
    with torch.no_grad():
        for row, tokens in enumerate(fed):
            expected, selected = full(model, tokens)
            assert torch.allclose(logits[row], expected[-1], atol=2e-5)
            captured = torch.cat(routed[row]).long().sort(-1)[0]
            assert torch.equal(captured, selected.sort(-1)[0])


def test_swapped_rows_carry_their_cache_with_them():
    torch.manual_seed(1)
    model = MoEModel(CONFIG)
    decoder = decoder_of(model, 3)
    decoder.feed(torch.tensor([[5, 6, 7], [8, 9, 0], [1, 0, 0]]), torch.tensor([3, 2, 1]), 0)
    decoder.swap(0, 2)
    logits, _ = decoder.feed(torch.tensor([[2], [3], [4]]), torch.ones(3, dtype=torch.long), 0)
    with torch.no_grad():
        for row, tokens in enumerate([[1, 2], [8, 9, 3], [5, 6, 7, 4]]):
            assert torch.allclose(logits[row], full(model, tokens)[0][-1], atol=2e-5)


def test_a_row_that_is_not_swapped_with_its_cache_gives_other_logits():
    torch.manual_seed(1)
    model = MoEModel(CONFIG)
    decoder = decoder_of(model, 2)
    decoder.feed(torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([3, 2]), 0)
    decoder.position[[0, 1]] = decoder.position[[1, 0]]
    logits, _ = decoder.feed(torch.tensor([[2], [3]]), torch.ones(2, dtype=torch.long), 0)
    with torch.no_grad():
        assert not torch.allclose(logits[0], full(model, [8, 9, 2])[0][-1], atol=1e-3)


def test_truncated_rows_continue_from_the_kept_prefix():
    torch.manual_seed(2)
    model = MoEModel(CONFIG)
    decoder = decoder_of(model, 1)
    decoder.feed(torch.tensor([[5, 6, 7, 8]]), torch.tensor([4]), 0)
    decoder.truncate(0, 2, 6)
    logits, _ = decoder.feed(torch.tensor([[9]]), torch.tensor([1]), 0)
    with torch.no_grad():
        assert torch.allclose(logits[0], full(model, [5, 6, 9])[0][-1], atol=2e-5)
