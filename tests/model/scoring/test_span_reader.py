"""The span reader: masks, independence of the order of stretches, "not here", gradients, rounding, files."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from model.errors import ModelError
from model.scoring.span_reader import (
    FILE,
    GAP,
    SpanLogits,
    SpanReader,
    SpanReaderConfig,
    best_spans,
    lay_out,
    load_span_reader,
    quantise,
    sentence_mass,
)

SIZES = {"state_widths": (12, 8), "width": 16, "layers": 2, "heads": 2}


def reader(**changes: object) -> SpanReader:
    torch.manual_seed(0)
    return SpanReader(SpanReaderConfig(**{**SIZES, **changes})).eval()  # type: ignore[arg-type]


def shown(stretches: list[Tensor]) -> tuple[Tensor, Tensor, list[int]]:
    """(states_1NE, valid_1N, begins) of one question."""
    states_NE, begins = lay_out(stretches)
    valid_N = torch.zeros(len(states_NE), dtype=torch.bool)
    for begin, stretch_LE in zip(begins, stretches, strict=True):
        valid_N[begin : begin + len(stretch_LE)] = True
    return states_NE[None], valid_N[None], begins


def asked(tokens: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(1, tokens, 20, generator=torch.Generator().manual_seed(9)), torch.ones(1, tokens).bool()


def stretches() -> list[Tensor]:
    random = torch.Generator().manual_seed(3)
    return [torch.randn(length, 20, generator=random) for length in (6, 9, 4)]


def test_each_stretch_has_the_same_logits_wherever_it_stands() -> None:
    network, parts, order = reader(), stretches(), [2, 0, 1]
    question = asked()
    states, valid, begins = shown(parts)
    moved_states, moved_valid, moved_begins = shown([parts[number] for number in order])
    before, after = network(states, valid, *question), network(moved_states, moved_valid, *question)
    for here, there in zip(before, after, strict=True):
        torch.testing.assert_close(here[:, -1], there[:, -1])
        for place, number in enumerate(order):
            length = len(parts[number])
            torch.testing.assert_close(
                here[:, begins[number] : begins[number] + length],
                there[:, moved_begins[place] : moved_begins[place] + length],
            )


def test_the_gap_is_as_wide_as_a_convolution_reaches() -> None:
    network = reader().layers[0]
    x = torch.randn(1, 20, 16, requires_grad=True)
    network._convolve(x)[0, 8].sum().backward()  # type: ignore[operator]
    assert x.grad is not None
    reached = x.grad[0].abs().sum(-1).nonzero()[:, 0]
    assert int(reached.min()) == 8 - GAP and int(reached.max()) == 8 + GAP


def test_what_stands_in_gaps_and_padding_changes_nothing() -> None:
    network = reader()
    states, valid, _ = shown(stretches())
    question, mask = asked()
    plain = network(states, valid, question, mask)
    noisy = torch.where(valid[..., None], states, torch.full_like(states, 7.0))
    longer = torch.cat((noisy, torch.full((1, 4, 20), -5.0)), 1)
    longer_valid = torch.cat((valid, torch.zeros(1, 4, dtype=torch.bool)), 1)
    padded_question = torch.cat((question, torch.full((1, 3, 20), 2.0)), 1)
    padded_mask = torch.cat((mask, torch.zeros(1, 3, dtype=torch.bool)), 1)
    padded = network(longer, longer_valid, padded_question, padded_mask)
    for one, other in zip(plain, padded, strict=True):
        kept = torch.cat((other[:, : states.shape[1]], other[:, -1:]), 1)
        torch.testing.assert_close(one, kept)
        assert bool((other[:, :-1].softmax(-1)[~longer_valid] < 1e-30).all())


def test_a_question_in_a_batch_has_the_logits_that_it_has_alone() -> None:
    network, parts, question = reader(), stretches(), asked()
    states, valid, _ = shown(parts)
    alone_states, alone_valid, _ = shown(parts[:1])
    length = alone_states.shape[1]
    alone = network(alone_states, alone_valid, *question)
    both_states = torch.cat((states, torch.nn.functional.pad(alone_states, (0, 0, 0, states.shape[1] - length))))
    both_valid = torch.cat((valid, torch.nn.functional.pad(alone_valid, (0, valid.shape[1] - length))))
    both = network(both_states, both_valid, question[0].expand(2, -1, -1), question[1].expand(2, -1))
    for one, two in zip(alone, both, strict=True):
        torch.testing.assert_close(one[0, :length], two[1, :length])
        torch.testing.assert_close(one[0, -1], two[1, -1])


def test_without_any_passage_the_answer_is_not_here() -> None:
    states = torch.zeros(1, 8, 20)
    logits = reader()(states, torch.zeros(1, 8, dtype=torch.bool), *asked())
    assert bool(torch.isfinite(logits.start_QN1).all())
    torch.testing.assert_close(logits.no_answer(), torch.ones(1))


@pytest.mark.parametrize("changes", [{}, {"stored_width": 6, "stored_bits": 4}, {"stored_bits": 8}])
def test_every_weight_learns(changes: dict[str, int]) -> None:
    network = reader(**changes).train()
    states, valid, _ = shown(stretches())
    logits = network(states, valid, *asked())
    (logits.start_QN1.log_softmax(-1)[0, 2] + logits.end_QN1.log_softmax(-1)[0, -1]).backward()
    still = [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not still


def test_a_reader_learns_to_point_and_to_say_not_here() -> None:
    """Answers are the tokens whose first number is large; a question has none where there is no such token."""
    torch.manual_seed(1)
    network = reader(dropout=0.0).train()
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    states = torch.randn(24, 10, 20)
    states[..., 0] = 0
    target = torch.arange(24) % 11
    for row in range(24):
        if target[row] < 10:
            states[row, target[row], 0] = 6
    valid, question = torch.ones(24, 10, dtype=torch.bool), torch.randn(24, 4, 20)
    for _ in range(60):
        logits = network(states, valid, question, torch.ones(24, 4, dtype=torch.bool))
        loss = sum(torch.nn.functional.cross_entropy(each, target) for each in logits)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
    assert bool((logits.start_QN1.argmax(-1) == target).all())
    none = logits.no_answer()
    assert float(none[target == 10].detach().min()) > float(none[target < 10].detach().max())


def test_the_stored_form_gives_the_same_logits_as_the_states() -> None:
    network = reader(stored_width=6, stored_bits=8)
    states, valid, _ = shown(stretches())
    question, mask = asked()
    stored = network.stored(states)
    read = network.read(stored, valid, network.stored(question, rounded=False), mask)
    for one, other in zip(network(states, valid, question, mask), read, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("bits", "error"), [(8, 0.02), (4, 0.15)])
def test_rounded_states_are_near_and_pass_gradients(bits: int, error: float) -> None:
    states = torch.randn(200, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    rounded = quantise(states, bits)
    assert float((rounded - states).detach().norm() / states.detach().norm()) < error
    assert all(len(set(row.tolist())) <= 2**bits for row in rounded.detach())
    rounded.sum().backward()
    assert states.grad is not None and bool((states.grad == 1).all())


def test_bytes_of_a_token() -> None:
    assert SpanReaderConfig(state_widths=(384,)).bytes_per_token == 768
    assert SpanReaderConfig(state_widths=(384, 384), stored_width=128, stored_bits=8).bytes_per_token == 130
    assert SpanReaderConfig(state_widths=(384,), stored_bits=4).bytes_per_token == 194


def test_a_saved_reader_reads_the_same(tmp_path: Path) -> None:
    network = reader(stored_width=6, stored_bits=4)
    network.load_state_dict({name: weight.bfloat16().float() for name, weight in network.state_dict().items()})
    network.save(tmp_path)
    again = load_span_reader(tmp_path)
    assert again.config == network.config and not again.training
    states, valid, _ = shown(stretches())
    for one, other in zip(network(states, valid, *asked()), again(states, valid, *asked()), strict=True):
        torch.testing.assert_close(one, other)
    with safe_open(tmp_path / FILE, framework="pt") as tensors:
        assert "config" in tensors.metadata()


def test_files_that_cannot_be_used_say_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="copy the checkpoint again"):
        load_span_reader(tmp_path)
    (tmp_path / FILE).write_bytes(b"not a tensor file")
    with pytest.raises(ModelError, match="copy the checkpoint again"):
        load_span_reader(tmp_path)


def test_the_best_span_lies_in_one_stretch_and_is_not_longer_than_asked() -> None:
    start, end = torch.full((1, 9), -5.0), torch.full((1, 9), -5.0)
    start[0, 1], end[0, 5], end[0, 2] = 4.0, 4.0, 1.0  # the best end is in the next stretch
    stretch = torch.tensor([[0, 0, 0, -1, 1, 1, 1, 1]])
    spans = best_spans(SpanLogits(start, end), stretch)
    assert (int(spans.first_Q), int(spans.last_Q)) == (1, 2)
    together = best_spans(SpanLogits(start, end), torch.zeros(1, 8, dtype=torch.long))
    assert (int(together.first_Q), int(together.last_Q)) == (1, 5)
    short = best_spans(SpanLogits(start, end), torch.zeros(1, 8, dtype=torch.long), longest=3)
    assert (int(short.first_Q), int(short.last_Q)) == (1, 2)
    expected = start.log_softmax(-1)[0, 1] + end.log_softmax(-1)[0, 2]
    torch.testing.assert_close(short.score_Q[0], expected)


def test_the_mass_of_a_sentence_is_that_of_the_spans_within_it() -> None:
    torch.manual_seed(4)
    logits = SpanLogits(torch.randn(2, 8), torch.randn(2, 8))
    sentence = torch.tensor([[0, 0, 0, 1, 1, -1, 2], [0, 1, 1, 1, -1, -1, -1]])
    mass = sentence_mass(logits, sentence, longest=2)
    starts, ends = (each.softmax(-1) for each in logits)
    for question in range(2):
        for number in range(3):
            expected = sum(
                float(starts[question, first] * ends[question, last])
                for first in range(7)
                for last in range(first, min(7, first + 2))
                if sentence[question, first] == number and sentence[question, last] == number
            )
            assert float(mass[question, number]) == pytest.approx(expected)
