"""The network against the paper: the plain transcription, the released network, and pictures in company."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import plain
import pytest
import torch

from ink2tex.errors import CheckpointError, RecipeError
from ink2tex.model import losses, masking
from ink2tex.model.checkpoint import averaged, load_checkpoint, save_checkpoint
from ink2tex.model.config import AttentionConfig, DecoderConfig, EncoderConfig, NetworkConfig
from ink2tex.model.decoders import build_decoder
from ink2tex.model.encoders import REDUCTION, build_encoder
from ink2tex.model.network import Network
from ink2tex.model.released import convert, import_abm, released_names
from ink2tex.vocabulary import Direction, Vocabulary

KINDS = ("densenet", "light-densenet", "mobilenetv2", "xception")


def small_encoder(kind: str, dropout: float = 0.0) -> EncoderConfig:
    return EncoderConfig(
        kind=kind,  # type: ignore[arg-type]
        growth=8,
        blocks=(2, 2) if kind == "light-densenet" else (2, 2, 2),
        stem=(8, 12, 16),
        width=0.125,
        dropout=dropout,
    )


def small(mode: str = "bml", kind: str = "gru", channels: int = 4, kernels: tuple[int, ...] = (5, 11)) -> NetworkConfig:
    attention = AttentionConfig(kernels, width=12, channels=channels)
    decoder = DecoderConfig(kind, hidden=16, layers=2, heads=2, attention=attention)  # type: ignore[arg-type]
    return NetworkConfig(small_encoder("light-densenet"), decoder, mode)  # type: ignore[arg-type]


def wake_norms(module: torch.nn.Module) -> None:
    """Give norms statistics and maps that a trained network could have."""
    for part in module.modules():
        if isinstance(part, masking.MaskedNorm):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(part.weight, 1, 0.2)
            torch.nn.init.normal_(part.bias, 0, 0.3)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# -- encoders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(33, 50), (64, 96), (16, 17), (70, 31)])
def test_a_picture_has_the_same_features_alone_and_padded_in_a_batch(kind: str, size: tuple[int, int]) -> None:
    encoder = build_encoder(small_encoder(kind)).eval()
    wake_norms(encoder)
    height, width = size
    alone = torch.rand(1, 1, height, width)
    batch = torch.rand(3, 1, 96, 128)
    mask = torch.ones_like(batch)
    batch[1] = 0
    batch[1, :, :height, :width] = alone[0]
    mask[1] = 0
    mask[1, :, :height, :width] = 1
    with torch.no_grad():
        expected, nothing = encoder(alone, None)
        found, small_mask = encoder(batch, mask)
    assert nothing is None
    h, w = expected.shape[2:]
    assert (h, w) == (-(-height // REDUCTION), -(-width // REDUCTION))
    assert expected.abs().max() > 0.1  # a dead network would pass anything
    torch.testing.assert_close(found[1, :, :h, :w], expected[0], atol=1e-4, rtol=0)
    assert small_mask[1, 0].sum() == h * w
    assert found[1, :, h:].abs().max().item() == 0 if h < found.shape[2] else True


def test_norm_statistics_come_from_the_image_and_not_from_the_padding() -> None:
    norm, reference = masking.MaskedNorm(3), torch.nn.BatchNorm2d(3)
    inside = torch.randn(1, 3, 5, 6, dtype=torch.float64) * 2 + 1
    padded = torch.full((1, 3, 8, 9), 100.0, dtype=torch.float64)
    padded[:, :, :5, :6] = inside
    mask = torch.zeros(1, 1, 8, 9, dtype=torch.float64)
    mask[:, :, :5, :6] = 1
    norm.double()
    reference.double()
    ours, theirs = padded.clone().requires_grad_(), inside.clone().requires_grad_()
    found, expected = norm(ours, mask), torch.relu(reference(theirs))
    torch.testing.assert_close(found[:, :, :5, :6], expected)
    assert found[:, :, 5:].abs().max() == 0
    torch.testing.assert_close(norm.running_mean, reference.running_mean)
    torch.testing.assert_close(norm.running_var, reference.running_var)
    weights = torch.randn_like(expected)
    (found[:, :, :5, :6] * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad[:, :, :5, :6], theirs.grad)
    assert ours.grad[:, :, 5:].abs().max() == 0
    torch.testing.assert_close(norm.weight.grad, reference.weight.grad)
    torch.testing.assert_close(norm.bias.grad, reference.bias.grad)


@pytest.mark.parametrize("masked", [False, True])
def test_training_the_encoder_equals_the_plain_transcription(masked: bool) -> None:
    encoder = build_encoder(small_encoder("densenet")).double().train()
    reference = copy.deepcopy(encoder)
    images = torch.rand(2, 1, 37, 50, dtype=torch.float64)
    found, _ = encoder(images, torch.ones_like(images) if masked else None)
    expected = plain.encode(reference, images)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for (name, ours), theirs in zip(encoder.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=lambda m, n=name: f"{n}: {m}")


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    kept = masking.dropout(torch.ones(400_000), 0.25)
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (kept == 0).float().mean().item() == pytest.approx(0.25, abs=0.005)
    assert kept.mean().item() == pytest.approx(1, abs=0.01)
    # Neighbours come from one draw: they must still be independent.
    pairs = (kept == 0).float().view(-1, 2)
    assert (pairs[:, 0] * pairs[:, 1]).mean().item() == pytest.approx(0.0625, abs=0.004)
    assert ((kept.view(-1, 8) == 0).float().mean(0) - 0.25).abs().max() < 0.01


def test_the_published_encoder_has_684_channels() -> None:
    assert build_encoder(EncoderConfig()).outputs == 684


# -- attention and decoders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [(11,), (5, 11), (3, 7, 9)])
@pytest.mark.parametrize("channels", [1, 40])
def test_a_branch_equals_equations_1_to_8(kernels: tuple[int, ...], channels: int) -> None:
    config = DecoderConfig(hidden=16, attention=AttentionConfig(kernels, width=12, channels=channels))
    decoder = build_decoder(config, 10, 9).double()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    assert decoder.attention.folds == (channels == 40)
    reference = copy.deepcopy(decoder)
    features = torch.randn(2, 10, 4, 7, dtype=torch.float64)
    mask = torch.ones(2, 1, 4, 7, dtype=torch.float64)
    mask[1, :, :, 5:] = 0
    tokens = torch.randint(0, 9, (2, 6))
    ours, theirs = features.clone().requires_grad_(), features.clone().requires_grad_()
    found = decoder(ours, mask, tokens)
    expected = plain.decode(reference, theirs, mask, tokens)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.attention, expected.attention)
    torch.testing.assert_close(found.attention.sum((2, 3)), torch.ones(2, 6, dtype=torch.float64))
    assert found.attention[1, :, :, 5:].abs().max() == 0
    weights = torch.randn_like(found.logits)
    for decoded in (found, expected):
        ((decoded.logits * weights).sum() + decoded.attention[:, :, 0].square().sum()).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    for (name, a), b in zip(decoder.named_parameters(), reference.parameters(), strict=True):
        if name != "attention.score.bias":  # adds the same to all scores; its gradient is rounding
            torch.testing.assert_close(a.grad, b.grad, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("kind", ["gru", "lstm", "transformer"])
def test_steps_at_inference_equal_training(kind: str) -> None:
    network = Network(small(kind=kind), Vocabulary()).eval()
    features = torch.randn(2, network.encoder.outputs, 3, 5)
    mask = torch.ones(2, 1, 3, 5)
    mask[0, :, :, 4:] = 0
    tokens = torch.randint(0, 113, (2, 5))
    for branch in network.branches:
        with torch.no_grad():
            expected = branch(features, mask, tokens)
            memory = branch.memory(features, mask)
            state = branch.start(memory, hypotheses=2)
            for t in range(tokens.shape[1]):
                state, logits, attention = branch.step(memory, state, tokens[:, t : t + 1].expand(-1, 2))
                for k in range(2):
                    torch.testing.assert_close(logits[:, k], expected.logits[:, t])
                    torch.testing.assert_close(attention[:, k].unflatten(1, (3, 5)), expected.attention[:, t])


@pytest.mark.parametrize(
    ("mode", "directions"),
    [
        ("l2r", ["l2r"]),
        ("r2l", ["r2l"]),
        ("aum", ["l2r", "l2r"]),
        ("aum-r2l", ["r2l", "r2l"]),
        ("bml", ["l2r", "r2l"]),
    ],
)
def test_modes_have_their_branches(mode: str, directions: list[str]) -> None:
    network = Network(small(mode), Vocabulary())
    assert [d.value for d in network.directions] == directions


def test_branches_begin_with_different_initialisations() -> None:
    first, second = Network(small(channels=40), Vocabulary()).branches
    # He's bound is sqrt(1/fan_in) here, Glorot's sqrt(6/(fan_in + fan_out)): visible in a wide layer.
    for branch, bound in ((first, (1 / 16) ** 0.5), (second, (6 / (16 + 48)) ** 0.5)):
        largest = branch.first.hidden.weight.abs().max().item()
        assert 0.9 * bound < largest <= bound


# -- losses ------------------------------------------------------------------------------------------------------------


def test_mutual_learning_compares_the_steps_that_write_the_same_symbol() -> None:
    """Two sequences of 3 and 1 symbols; the logits of a step name the symbol that it writes."""
    written = torch.tensor([[5, 6, 7, 1], [8, 1, 0, 0]])  # L2R: A B C <eos>, D <eos>
    backwards = torch.tensor([[7, 6, 5, 0], [8, 0, 9, 9]])  # R2L: C B A <sos>, D <sos>, and padding
    lengths = torch.tensor([3, 1])
    peaked = [10 * torch.nn.functional.one_hot(ids, 12).double() for ids in (written, backwards)]
    assert losses.mutual(peaked[0], peaked[1], lengths, 2.0).item() == pytest.approx(0, abs=1e-9)
    # The released script's order (step 0 dropped, padding flipped along) is not the same thing.
    wrong = peaked[1].flip(1)
    assert losses.mutual(peaked[0], wrong, lengths, 2.0).item() > 1
    # The end marks and the padding take no part, whatever they hold.
    spoilt = [logits.clone() for logits in peaked]
    spoilt[0][0, 3], spoilt[0][1, 1:] = 50.0, -7.0
    spoilt[1][0, 3, 2], spoilt[1][1, 1:, 4] = 30.0, 30.0
    assert losses.mutual(spoilt[0], spoilt[1], lengths, 2.0).item() == pytest.approx(0, abs=1e-9)


def test_mutual_learning_equals_equation_10_worked_by_hand() -> None:
    first = torch.randn(2, 4, 5, dtype=torch.float64)
    second = torch.randn(2, 4, 5, dtype=torch.float64)
    lengths, s = torch.tensor([3, 2]), 2.0
    expected = 0.0
    for b, length in enumerate(lengths.tolist()):
        for i in range(1, length + 1):  # as the paper counts
            p = np.exp(first[b, i - 1].numpy() / s)
            q = np.exp(second[b, length + 1 - i - 1].numpy() / s)
            p, q = p / p.sum(), q / q.sum()
            expected += s**2 * float((p * np.log(p / q)).sum())
    assert losses.mutual(first, second, lengths, s).item() == pytest.approx(expected)
    same = sum(
        s**2
        * torch.nn.functional.kl_div(
            torch.log_softmax(second[b, : n.item()] / s, -1),
            torch.softmax(first[b, : n.item()] / s, -1),
            reduction="sum",
        ).item()
        for b, n in enumerate(lengths)
    )
    assert losses.mutual(first, second, lengths, s, reverse=False).item() == pytest.approx(same)


def test_mutual_learning_reaches_both_branches() -> None:
    first = torch.randn(1, 3, 5, requires_grad=True)
    second = torch.randn(1, 3, 5, requires_grad=True)
    losses.mutual(first, second, torch.tensor([2]), 2.0).backward()
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad[:, :2].abs().min() > 0
    assert second.grad[:, :2].abs().min() > 0
    assert first.grad[:, 2].abs().max() == second.grad[:, 2].abs().max() == 0


def test_recognition_counts_tokens_and_not_padding() -> None:
    logits = torch.zeros(1, 3, 4)
    targets = torch.tensor([[2, 1, losses.IGNORE]])
    assert losses.recognition(logits, targets).item() == pytest.approx(2 * np.log(4))


def test_attention_to_ink_is_minus_the_logarithm_of_the_mass_on_the_strokes() -> None:
    from ink2tex.model.decoders import Decoded

    attention = torch.tensor([[[[0.5, 0.25], [0.25, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]])
    cells = torch.zeros(1, 2, 2, 2, dtype=torch.bool)
    cells[0, 0, 0] = True  # 0.5 + 0.25 on the token's own cells; the second token has no ink
    decoded = Decoded(torch.zeros(1, 2, 3), attention, torch.zeros(1, 2, 1))
    assert losses.attention_to_ink(decoded, cells).item() == pytest.approx(-np.log(0.75))


def test_symbols_of_cells_share_a_token_equally_among_its_cells() -> None:
    logits = torch.tensor([[[0.0, 2.0], [3.0, 0.0]]])  # two cells, two classes
    cells = torch.ones(1, 1, 1, 2, dtype=torch.bool)
    expected = -0.5 * (torch.log_softmax(logits[0, 0], 0)[1] + torch.log_softmax(logits[0, 1], 0)[1])
    found = losses.symbols_of_cells(logits, torch.tensor([[1]]), cells)
    assert found.item() == pytest.approx(expected.item())


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_brings_back_network_vocabulary_and_notes(tmp_path: Path) -> None:
    network = Network(small(), Vocabulary(["a", "b", "c"])).eval()
    wake_norms(network)
    save_checkpoint(network, tmp_path / "a.safetensors", {"step": 7})
    loaded, notes = load_checkpoint(tmp_path / "a.safetensors")
    assert notes == {"step": 7}
    assert loaded.config == network.config
    assert loaded.vocabulary == network.vocabulary
    assert not loaded.training
    image = torch.rand(1, 1, 40, 60)
    with torch.no_grad():
        torch.testing.assert_close(loaded.encode(image)[0], network.encode(image)[0])


def test_the_mean_of_checkpoints(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in "abc"]
    networks = [Network(small(), Vocabulary(["a", "b"])) for _ in paths]
    for step, (network, path) in enumerate(zip(networks, paths, strict=True)):
        wake_norms(network)
        save_checkpoint(network, path, {"step": step})
    states = [network.state_dict() for network in networks]
    for shares in (None, [1.0, 0.0, 3.0]):
        mean, notes = averaged(paths, shares)
        parts = torch.tensor(shares or [1.0] * 3) / sum(shares or [1.0] * 3)
        assert notes == {"step": 2, "mean_of": pytest.approx(parts.tolist())}
        for name, tensor in mean.state_dict().items():
            if tensor.is_floating_point():
                wanted = torch.tensordot(parts, torch.stack([state[name] for state in states]), 1)
                torch.testing.assert_close(tensor, wanted, msg=name)
            else:
                assert torch.equal(tensor, states[-1][name]), name
    for wrong in ([1.0], [1.0, -1.0, 1.0], [0.0] * 3):
        with pytest.raises(CheckpointError, match="give one of 0 or more for each"):
            averaged(paths, wrong)
    other = tmp_path / "other.safetensors"
    save_checkpoint(Network(small(), Vocabulary(["a", "c"])), other)
    with pytest.raises(CheckpointError, match="another network") as caught:
        averaged([other, *paths])
    assert str(other) in str(caught.value)
    with pytest.raises(CheckpointError, match="no checkpoints"):
        averaged([])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[: len(data) // 2], "truncated"),
        (lambda data: b"this is a text file", "not a whole safetensors file"),
        (lambda data: b"", "not a whole safetensors file"),
        (lambda data: data[:-3] + b"\x01\x02\x03", "do not match their hash"),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong(tmp_path: Path, damage, words: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.safetensors"
    save_checkpoint(Network(small(), Vocabulary(["a"])), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=words) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)


def test_a_foreign_safetensors_file_is_named_as_such(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(3)}, str(tmp_path / "x.safetensors"))
    with pytest.raises(CheckpointError, match="not one of ink2tex"):
        load_checkpoint(tmp_path / "x.safetensors")


# -- the released network ----------------------------------------------------------------------------------------------


def released_state(keys: Path) -> dict[str, torch.Tensor]:
    import importlib.util

    spec = importlib.util.spec_from_file_location("weights", keys.parent / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    state = {}
    for line in keys.read_text().splitlines():
        name, shape = line.split("\t")
        size = tuple(int(part) for part in shape.split(",") if part)
        state[name] = torch.from_numpy(np.asarray(module.weight(name, size, "abm-a")))
    return state


@pytest.fixture(scope="module")
def reference() -> Path:
    path = Path(__file__).parents[2] / "shared" / "abm_reference"
    if not (path / "case.npz").is_file():
        pytest.skip(f"no reference case of the released network in {path}")
    return path


def test_the_released_weights_compute_what_the_released_network_computes(reference: Path, tmp_path: Path) -> None:
    torch.save(released_state(reference / "keys.tsv"), tmp_path / "released.pkl")
    save_checkpoint(import_abm(tmp_path / "released.pkl"), tmp_path / "abm.safetensors")
    network, _ = load_checkpoint(tmp_path / "abm.safetensors")
    case = np.load(reference / "case.npz")
    image = torch.from_numpy(case["image"]).float().div(255)[None, None]
    targets = torch.from_numpy(case["targets"]).long().reshape(1, -1)
    inputs = [
        torch.cat((torch.tensor([[0]]), targets), 1),
        torch.cat((torch.tensor([[1]]), targets.flip(1)), 1),
    ]
    with torch.no_grad():
        features, (l2r, r2l) = network(image, None, inputs)
    found = {
        "features": features,
        "l2r_logits": l2r.logits,
        "r2l_logits": r2l.logits,
        "l2r_attention": l2r.attention,
        "r2l_attention": r2l.attention,
    }
    for name, value in found.items():
        np.testing.assert_allclose(value.numpy(), case[name], atol=1e-4, rtol=0, err_msg=name)


def test_every_released_name_is_used_once() -> None:
    names = [
        n
        for i in (0, 1)
        for own in Network(small(), Vocabulary()).branches[i].state_dict()
        for n in released_names(i, own)
    ]
    assert len(names) == len(set(names))
    assert "gru_model2.fc_Uf.weight" in names


def test_a_file_that_wants_to_run_code_is_refused(tmp_path: Path) -> None:
    import os
    import pickle

    class Evil:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"x": Evil()}))
    with pytest.raises(CheckpointError, match=r"evil\.pkl"):
        import_abm(tmp_path / "evil.pkl")
    assert not (tmp_path / "ran").exists()


def test_a_state_dict_of_something_else_names_the_keys() -> None:
    with pytest.raises(CheckpointError, match=r"missing .*unexpected other\.weight"):
        convert({"other.weight": torch.zeros(2)}, "other.pkl")


# -- configuration -----------------------------------------------------------------------------------------------------


def test_a_configuration_survives_its_mapping() -> None:
    config = small("aum", "lstm")
    assert NetworkConfig.from_mapping(config.to_mapping()) == config


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"encodr": {}}, "did you mean 'encoder'"),
        ({"decoder": {"kind": "grru"}}, "did you mean 'gru'"),
        ({"decoder": {"attention": {"kernels": [4]}}}, "odd sizes"),
        ({"encoder": {"growth": "many"}}, "must be a whole number"),
        ({"encoder": {"kind": "light-densenet"}}, "2 dense blocks"),
    ],
)
def test_a_wrong_key_or_value_is_an_error_with_advice(values: dict, words: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(RecipeError, match=words):
        NetworkConfig.from_mapping(values)


def test_directions_start_and_end_with_each_others_marks() -> None:
    assert (Direction.L2R.start, Direction.L2R.end) == (0, 1)
    assert (Direction.R2L.start, Direction.R2L.end) == (1, 0)
