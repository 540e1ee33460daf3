"""Readers: every layout of published sets, and every way in which a set can be wrong."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ink2tex.data import archive as archive_module
from ink2tex.data import cache
from ink2tex.data.archive import Archive
from ink2tex.data.captions import is_caption_file, parse_captions
from ink2tex.data.pickles import read_picture_pickle
from ink2tex.data.readers import read_captions, read_samples, vocabulary_of
from ink2tex.data.sample import Sample
from ink2tex.errors import DataError, InkError, LatexError
from ink2tex.raster import rasterise
from ink2tex.vocabulary import UnknownTokenError, Vocabulary

#: uids that end in `_0` by themselves, as those of CROHME do.
LABELS = {"18_em_0": "x ^ { 2 }", "18_em_1": r"\frac { 1 } { 2 }", "rit_42": "a + b"}


def bitmap(uid: str) -> np.ndarray:
    """A picture that tells uids apart: mostly black, with a bar of its own length."""
    picture = np.zeros((30, 50), np.uint8)
    picture[12:15, 12 : 20 + 5 * list(LABELS).index(uid)] = 255
    return picture


def encoded(picture: np.ndarray, kind: str = "bmp") -> bytes:
    data = io.BytesIO()
    Image.fromarray(picture).save(data, kind)
    return data.getvalue()


def inkml(uid: str, truth: str | None) -> bytes:
    annotation = f'<annotation type="truth">${truth}$</annotation>' if truth else ""
    n = 20 + 5 * list(LABELS).index(uid)
    return (
        f'<ink xmlns="http://www.w3.org/2003/InkML">{annotation}'
        f'<trace id="0">0 0, {n} 56</trace><trace id="1">{n} 0, 0 56</trace>'
        '<traceGroup xml:id="A"><annotation type="truth">all</annotation>'
        '<traceGroup xml:id="B"><annotation type="truth">x</annotation>'
        '<traceView traceDataRef="0"/><traceView traceDataRef="1"/></traceGroup></traceGroup></ink>'
    ).encode()


def caption_text(
    labels: dict[str, str] = LABELS, separator: str = "\t", name: Callable[[str], str] = lambda uid: uid
) -> bytes:
    return "".join(f"{name(uid)}{separator}{label}\n" for uid, label in labels.items()).encode()


Pack = Callable[[Path, dict[str, bytes]], Path]


def pack_folder(where: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        target = where / "set" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return where / "set"


def pack_zip(where: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(where / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return where / "set.zip"


def pack_tar(suffix: str, mode: str) -> Pack:
    def pack(where: Path, files: dict[str, bytes]) -> Path:
        with tarfile.open(where / f"set{suffix}", mode) as archive:  # type: ignore[call-overload]
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return where / f"set{suffix}"

    return pack


PACKS: dict[str, Pack] = {
    "folder": pack_folder,
    "zip": pack_zip,
    "tar": pack_tar(".tar", "w"),
    "tar.gz": pack_tar(".tar.gz", "w:gz"),
    "tar.xz": pack_tar(".tar.xz", "w:xz"),
}
packed = pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS.keys())


def check_pictures(samples: list[Sample], uids: list[str] | None = None) -> None:
    assert [s.uid for s in samples] == (uids or list(LABELS))
    for sample in samples:
        assert sample.tokens == tuple(LABELS[sample.uid].split())
        assert sample.image is not None
        np.testing.assert_array_equal(sample.image, bitmap(sample.uid))


class TestPictures:
    @packed
    def test_wap(self, tmp_path: Path, pack: Pack) -> None:
        path = pack(tmp_path, {f"off_image_test/{uid}_0.bmp": encoded(bitmap(uid)) for uid in LABELS})
        (tmp_path / "caption.txt").write_bytes(caption_text())
        check_pictures(read_samples(path, tmp_path / "caption.txt"))

    def test_wap_with_numbered_captions(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {f"{uid}.bmp": encoded(bitmap(uid)) for uid in LABELS})
        (tmp_path / "caption.txt").write_bytes(caption_text(name=lambda uid: uid + "_0"))
        check_pictures(read_samples(path, tmp_path / "caption.txt"))

    @packed
    def test_comer(self, tmp_path: Path, pack: Pack) -> None:
        files = {f"data/2014/img/{uid}.bmp": encoded(bitmap(uid)) for uid in LABELS}
        files["data/2014/caption.txt"] = caption_text(separator=" ")
        check_pictures(read_samples(pack(tmp_path, files)))

    def test_several_splits(self, tmp_path: Path) -> None:
        files = {}
        for split, uid in (("2014", "18_em_0"), ("train", "rit_42")):
            files[f"data/{split}/{uid}.bmp"] = encoded(bitmap(uid))
            files[f"data/{split}/caption.txt"] = caption_text({uid: LABELS[uid]})
        path = pack_zip(tmp_path, files)
        check_pictures(read_samples(path, split="train"), ["rit_42"])
        check_pictures(read_samples(path, split="2014"), ["18_em_0"])
        with pytest.raises(DataError, match=r"several sets.*2014.*train"):
            read_samples(path)
        with pytest.raises(DataError, match="'2016'"):
            read_samples(path, split="2016")

    def test_can(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {f"{uid}.png": encoded(bitmap(uid), "png") for uid in LABELS})
        (tmp_path / "labels.txt").write_bytes(caption_text(name=lambda uid: uid + ".png"))
        check_pictures(read_samples(path, tmp_path / "labels.txt"))

    def test_dark_ink_on_light_paper_is_turned(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {f"{uid}.png": encoded(255 - bitmap(uid), "png") for uid in LABELS})
        (tmp_path / "labels.txt").write_bytes(caption_text())
        check_pictures(read_samples(path, tmp_path / "labels.txt"))

    def test_limit_takes_the_first_captions(self, tmp_path: Path) -> None:
        path = pack_zip(tmp_path, {f"{uid}.bmp": encoded(bitmap(uid)) for uid in reversed(LABELS)})
        (tmp_path / "caption.txt").write_bytes(caption_text())
        check_pictures(read_samples(path, tmp_path / "caption.txt", limit=2), list(LABELS)[:2])

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {f"{uid}_0.bmp": encoded(bitmap(uid)) for uid in ("18_em_0", "rit_42")})
        captions = tmp_path / "caption.txt"
        captions.write_bytes(caption_text({k: LABELS[k] for k in ("18_em_0", "18_em_1")}))
        with pytest.raises(DataError, match=r"1 captions have no file \(18_em_1\) and 1 files .*\(rit_42_0\)"):
            read_samples(path, captions)
        check_pictures(read_samples(path, captions, missing="skip"), ["18_em_0"])
        captions.write_bytes(b"other\tx\n")
        with pytest.raises(DataError, match="no file has a caption"):
            read_samples(path, captions, missing="skip")

    def test_two_files_of_one_name(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {f"{d}/18_em_0.bmp": encoded(bitmap("18_em_0")) for d in "ab"})
        (tmp_path / "caption.txt").write_bytes(caption_text())
        with pytest.raises(DataError, match=r"a/18_em_0.bmp and b/18_em_0.bmp"):
            read_samples(path, tmp_path / "caption.txt")

    def test_broken_picture_is_named(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {"18_em_0.bmp": encoded(bitmap("18_em_0"))[:200]})
        (tmp_path / "caption.txt").write_bytes(caption_text({"18_em_0": "x"}))
        with pytest.raises(DataError, match=r"18_em_0.bmp: cannot be read"):
            read_samples(path, tmp_path / "caption.txt")

    def test_without_captions(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {"18_em_0.bmp": encoded(bitmap("18_em_0"))})
        with pytest.raises(DataError, match="give the caption file"):
            read_samples(path)


class TestInk:
    @packed
    @pytest.mark.parametrize("with_captions", [True, False])
    def test_ink(self, tmp_path: Path, pack: Pack, with_captions: bool) -> None:
        files = {f"Ink/{uid[:3]}/{uid}.inkml": inkml(uid, LABELS[uid]) for uid in LABELS}
        path = pack(tmp_path, {**files, "Ink/._junk.inkml": b"", "Ink/a.lg": b"O, x"})
        captions = None
        if with_captions:
            captions = tmp_path / "caption.txt"
            captions.write_bytes(caption_text())
        samples = read_samples(path, captions)
        assert {s.uid: " ".join(s.tokens) for s in samples} == LABELS
        for sample in samples:
            assert sample.strokes is not None
            # Both strokes are 56 units high: half the size makes them 28 px.
            assert np.ptp(sample.strokes[0][:, 1]) == pytest.approx(28)
            assert rasterise(sample.strokes).shape[0] == 28 + 26
        assert samples[0].token_strokes == ((0, 1), (), (), (), ())
        assert read_samples(path, captions, align=False)[0].token_strokes is None

    def test_a_single_file(self, tmp_path: Path) -> None:
        (tmp_path / "rit_42.inkml").write_bytes(inkml("rit_42", "a + b"))
        assert [s.tokens for s in read_samples(tmp_path / "rit_42.inkml")] == [("a", "+", "b")]

    def test_ink_without_truth(self, tmp_path: Path) -> None:
        path = pack_zip(tmp_path, {"rit_42.inkml": inkml("rit_42", None)})
        with pytest.raises(LatexError, match=r"set.zip: rit_42.inkml"):
            read_samples(path)

    def test_broken_ink_is_named(self, tmp_path: Path) -> None:
        path = pack_zip(tmp_path, {"rit_42.inkml": b"<ink><trace>1 2, 3"})
        with pytest.raises(InkError, match=r"rit_42.inkml"):
            read_samples(path)

    def test_mixed_and_empty_sets(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {"a.inkml": b"", "b.bmp": b""})
        with pytest.raises(DataError, match=r"both InkML \(a.inkml\) and pictures \(b.bmp\)"):
            read_samples(path)
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="no InkML files and no pictures"):
            read_samples(tmp_path / "empty")
        with pytest.raises(DataError, match="no such file"):
            read_samples(tmp_path / "nowhere")


class TestCaptions:
    def test_unknown_token_is_placed(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {f"{uid}.bmp": encoded(bitmap(uid)) for uid in LABELS})
        captions = tmp_path / "caption.txt"
        captions.write_bytes(caption_text({**LABELS, "18_em_1": r"\fraq { 1 } { 2 }"}))
        with pytest.raises(UnknownTokenError) as caught:
            read_samples(path, captions, vocabulary=Vocabulary())
        message = str(caught.value)
        assert message.startswith(f"{captions}, line 2: unknown token '\\\\fraq'")
        assert "\\\\frac" in message
        assert len(read_samples(path, captions)) == 3  # no vocabulary, no check

    def test_unknown_token_of_ink_names_the_file(self, tmp_path: Path) -> None:
        path = pack_folder(tmp_path, {"rit_42.inkml": inkml("rit_42", "a + b")})
        with pytest.raises(UnknownTokenError, match=r"rit_42.inkml: unknown token '\+'"):
            read_samples(path, vocabulary=Vocabulary(["a", "b"]))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"a\tx\n\nb\n", "line 3: expected a name"),
            (b"a\tx\nb\t \n", "line 2: expected a name"),
            (b"a\tx\nb\ty\na.bmp\tx\n", r"line 3: 'a' has a caption already \(.*line 1\)"),
            (b"a\t\xff\xfe\n", "UTF-8"),
            (b"\n", "no caption"),
        ],
    )
    def test_bad_captions(self, tmp_path: Path, text: bytes, message: str) -> None:
        (tmp_path / "caption.txt").write_bytes(text)
        with pytest.raises(DataError, match=message):
            read_captions(tmp_path / "caption.txt")
        with pytest.raises(DataError, match=r"nowhere.txt"):
            read_captions(tmp_path / "nowhere.txt")

    @given(
        st.dictionaries(
            st.from_regex(r"[A-Za-z0-9_\-]{1,12}", fullmatch=True),
            st.lists(st.sampled_from(Vocabulary().symbols), min_size=1, max_size=8),
            min_size=1,
        ),
        st.sampled_from(["\t", " "]),
        st.sampled_from(["", ".bmp", ".JPG"]),
        st.sampled_from(["\n", "\r\n"]),
    )
    @settings(deadline=None)
    def test_round_trip(self, labels: dict[str, list[str]], separator: str, suffix: str, end: str) -> None:
        text = "".join(f"{uid}{suffix}{separator}{' '.join(tokens)}{end}" for uid, tokens in labels.items())
        read = parse_captions(b"\xef\xbb\xbf" + text.encode(), "x")
        assert {uid: list(caption.tokens) for uid, caption in read.items()} == labels
        assert list(read) == list(labels)

    def test_names_of_caption_files(self) -> None:
        for name in ("data/2014/caption.txt", "train_caption.txt", "labels.txt", "14_test_labels.txt"):
            assert is_caption_file(name)
        for name in ("readme.txt", "caption.py", "uncaption.txt"):
            assert not is_caption_file(name)

    def test_vocabulary_of(self, tmp_path: Path) -> None:
        expected = Vocabulary(sorted({t for label in LABELS.values() for t in label.split()}))
        (tmp_path / "caption.txt").write_bytes(caption_text())
        path = pack_folder(tmp_path, {f"{uid}.inkml": inkml(uid, LABELS[uid]) for uid in LABELS})
        assert vocabulary_of(tmp_path / "caption.txt") == expected
        assert vocabulary_of(path) == expected
        assert vocabulary_of(path, tmp_path / "caption.txt") == expected


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def python2_pickle(uid: str, array: np.ndarray, module: str = "numpy.core.multiarray") -> bytes:
    """Protocol 0 as Python 2 wrote it: raw bytes as an escaped `str`."""
    raw = "".join(f"\\x{b:02x}" for b in array.tobytes())
    shape = "".join(f"I{n}\n" for n in array.shape)
    return (
        f"(dp0\nS'{uid}'\np1\nc{module}\n_reconstruct\np2\n(cnumpy\nndarray\np3\n(I0\ntp4\nS'b'\np5\ntp6\nRp7\n"
        f"(I1\n({shape}tp8\ncnumpy\ndtype\np9\n(S'u1'\np10\nI0\nI1\ntp11\nRp12\n"
        f"(I3\nS'|'\np13\nNNNI-1\nI-1\nI0\ntp14\nbI00\nS'{raw}'\np15\ntp16\nbs."
    ).encode("ascii")


class TestPickles:
    @pytest.mark.parametrize("protocol", range(6))
    @pytest.mark.parametrize("leading", [True, False])
    def test_every_protocol(self, tmp_path: Path, protocol: int, leading: bool) -> None:
        pictures = {uid: bitmap(uid)[None] if leading else bitmap(uid) for uid in LABELS}
        (tmp_path / "train.pkl").write_bytes(pickle.dumps(pictures, protocol))
        (tmp_path / "caption.txt").write_bytes(caption_text())
        check_pictures(read_samples(tmp_path / "train.pkl", tmp_path / "caption.txt"))

    def test_orders_and_kinds(self, tmp_path: Path) -> None:
        array = np.arange(12, dtype=np.uint8).reshape(3, 4)
        kinds = {"f": np.asfortranarray(array), "last": array[..., None], "bool": array > 5, "view": array[:, ::2]}
        (tmp_path / "x.pkl").write_bytes(pickle.dumps(kinds))
        read = read_picture_pickle(tmp_path / "x.pkl")
        np.testing.assert_array_equal(read["f"], array)
        np.testing.assert_array_equal(read["last"], array)
        np.testing.assert_array_equal(read["bool"], np.where(array > 5, 255, 0))
        np.testing.assert_array_equal(read["view"], array[:, ::2])

    @pytest.mark.parametrize("core", ["core", "_core"])
    def test_python_2(self, tmp_path: Path, core: str) -> None:
        array = np.random.default_rng(0).integers(0, 256, (1, 5, 7), dtype=np.uint8)
        (tmp_path / "x.pkl").write_bytes(python2_pickle("18_em_0", array, f"numpy.{core}.multiarray"))
        read = read_picture_pickle(tmp_path / "x.pkl")
        np.testing.assert_array_equal(read["18_em_0"], array[0])

    @pytest.mark.parametrize("protocol", range(6))
    def test_hostile_pickles_run_nothing(self, tmp_path: Path, protocol: int) -> None:
        marker = tmp_path / "ran"
        (tmp_path / "x.pkl").write_bytes(pickle.dumps({"a": Hostile(marker)}, protocol))
        with pytest.raises(DataError, match=r"x.pkl: .*it asks for (posix|nt|os)\.system"):
            read_picture_pickle(tmp_path / "x.pkl")
        assert not marker.exists()

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"cbuiltins\neval\n(S'1'\ntR.", r"builtins\.eval"),
            (b"cnumpy\nload\n(S'x'\ntR.", r"numpy\.load"),
            (b"cnumpy\ndtype\n(N}S'_call'\nNstb.", "state of a global"),
            (b"P7\n.", "outside of the file"),
            (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f", "not a"),
            (b"\x80\x04]r\xff\xff\xff\xff.", "but list"),
            (pickle.dumps({"a": 1}), "a is a int"),
            (pickle.dumps({1: np.zeros((2, 2), np.uint8)}), "no text"),
            (pickle.dumps({"a": np.zeros((2, 2))}), "not uint8"),
            (pickle.dumps({"a": np.zeros((2, 2, 3), np.uint8)}), "has the shape"),
            (pickle.dumps({"a": np.zeros((0, 2), np.uint8)}), "has the shape"),
            (pickle.dumps({"a": np.zeros((9, 9), np.uint8)})[:-60], "not a complete pickle"),
            (pickle.dumps({}), "no dictionary"),
            (b"", "empty"),
            (b"\x00\x01garbage", "not a"),
        ],
    )
    def test_what_is_no_pickle_of_pictures(self, tmp_path: Path, data: bytes, message: str) -> None:
        (tmp_path / "x.pkl").write_bytes(data)
        with pytest.raises(DataError, match=message):
            read_picture_pickle(tmp_path / "x.pkl")

    @given(st.binary(max_size=200), st.integers(0, 400))
    @settings(max_examples=150, deadline=None)
    def test_damage_is_always_a_data_error(self, tmp_path_factory: Any, junk: bytes, at: int) -> None:
        good = pickle.dumps({"a": np.zeros((6, 6), np.uint8)})
        path = tmp_path_factory.getbasetemp() / "damaged.pkl"
        path.write_bytes(good[:at] + junk + good[at + len(junk) :])
        with contextlib.suppress(DataError):  # any other exception fails the test
            read_picture_pickle(path)

    def test_captions_are_needed(self, tmp_path: Path) -> None:
        (tmp_path / "x.pkl").write_bytes(pickle.dumps({"a": bitmap("rit_42")}))
        with pytest.raises(DataError, match="give the caption file"):
            read_samples(tmp_path / "x.pkl")


class TestArchives:
    @pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
    def test_truncated(self, tmp_path: Path, kind: str) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (200, 200), dtype=np.uint8)
        path = PACKS[kind](tmp_path, {f"{uid}.bmp": encoded(noise) for uid in LABELS})
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        (tmp_path / "caption.txt").write_bytes(caption_text())
        with pytest.raises(DataError, match=path.name):
            read_samples(path, tmp_path / "caption.txt")

    def test_not_an_archive(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar.xz").write_bytes(b"<html>404</html>")
        with pytest.raises(DataError, match="not a complete tar or zip"):
            Archive(tmp_path / "x.tar.xz")

    @packed
    def test_large_members_are_refused(self, tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(archive_module, "MAX_MEMBER_BYTES", 1000)
        archive = Archive(pack(tmp_path, {"small.bmp": bytes(1000), "zeros.bmp": bytes(1001)}))
        assert archive.names() == ["small.bmp", "zeros.bmp"]
        assert len(dict(archive.read(["small.bmp"]))["small.bmp"]) == 1000
        with pytest.raises(DataError, match=r"zeros.bmp is too large"):
            list(archive.read(archive.names()))

    def test_nothing_is_unpacked(self, tmp_path: Path) -> None:
        path = PACKS["tar"](tmp_path, {"../../evil.inkml": inkml("rit_42", "x")})
        before = sorted(tmp_path.parent.rglob("*"))
        assert len(read_samples(path)) == 1
        assert sorted(tmp_path.parent.rglob("*")) == before


class TestCache:
    @pytest.fixture
    def ink_set(self, tmp_path: Path) -> Path:
        return pack_zip(tmp_path, {f"{uid}.inkml": inkml(uid, LABELS[uid]) for uid in LABELS})

    def same(self, one: list[Sample], two: list[Sample]) -> None:
        for a, b in zip(one, two, strict=True):
            assert (a.uid, a.tokens, a.token_strokes) == (b.uid, b.tokens, b.token_strokes)
            for x, y in zip(a.strokes or (), b.strokes or (), strict=True):
                assert x.dtype == y.dtype == np.float32
                np.testing.assert_array_equal(x, y)
            assert (a.image is None) == (b.image is None)
            if a.image is not None:
                np.testing.assert_array_equal(a.image, b.image)

    def test_ink(self, tmp_path: Path, ink_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = tmp_path / "cache"
        first = read_samples(ink_set, cache=kept)
        assert len(list(kept.iterdir())) == 1
        monkeypatch.setattr("ink2tex.data.readers._read", None)  # would fail if the set were read again
        self.same(first, read_samples(ink_set, cache=kept))
        self.same(first[:1], read_samples(ink_set, cache=kept, limit=1))
        with pytest.raises(UnknownTokenError, match=r"18_em_0.inkml: unknown token"):
            read_samples(ink_set, cache=kept, vocabulary=Vocabulary(["a"]))

    def test_pictures(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = pack_zip(tmp_path, {f"{uid}.bmp": encoded(bitmap(uid)) for uid in LABELS})
        (tmp_path / "caption.txt").write_bytes(caption_text())
        read_samples(path, tmp_path / "caption.txt", cache=tmp_path / "cache")
        with monkeypatch.context() as patch:
            patch.setattr("ink2tex.data.readers._read", None)
            check_pictures(read_samples(path, tmp_path / "caption.txt", cache=tmp_path / "cache"))
        # Other captions are another set.
        (tmp_path / "caption.txt").write_bytes(caption_text(dict.fromkeys(LABELS, "z")))
        again = read_samples(path, tmp_path / "caption.txt", cache=tmp_path / "cache")
        assert {s.tokens for s in again} == {("z",)}

    def test_a_limited_read_is_not_kept(self, tmp_path: Path, ink_set: Path) -> None:
        read_samples(ink_set, cache=tmp_path / "cache", limit=1)
        assert len(read_samples(ink_set, cache=tmp_path / "cache")) == 3

    @pytest.mark.parametrize("damage", [lambda d: b"", lambda d: d[: len(d) // 2], lambda d: d[:-300] + bytes(300)])
    def test_damage_is_repaired(self, tmp_path: Path, ink_set: Path, damage: Callable[[bytes], bytes]) -> None:
        kept = tmp_path / "cache"
        first = read_samples(ink_set, cache=kept)
        (file,) = kept.iterdir()
        good = file.read_bytes()
        file.write_bytes(damage(good))
        self.same(first, read_samples(ink_set, cache=kept))
        assert cache.load(file) is not None

    def test_no_pickle_is_loaded(self, tmp_path: Path) -> None:
        marker = tmp_path / "ran"
        with (tmp_path / "x.npz").open("wb") as file:
            np.savez(file, uids=np.array([Hostile(marker)], dtype=object))
        assert cache.load(tmp_path / "x.npz") is None
        assert not marker.exists()

    def test_an_unwritable_place_is_no_error(self, tmp_path: Path, ink_set: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        assert len(read_samples(ink_set, cache=tmp_path / "file" / "cache")) == 3

    def test_empty_alignment_and_empty_set(self, tmp_path: Path) -> None:
        samples = [Sample("a", ("x",), strokes=(np.zeros((1, 2), np.float32),), token_strokes=((),))]
        cache.save(tmp_path / "x.npz", samples, ["here"])
        loaded = cache.load(tmp_path / "x.npz")
        assert loaded is not None
        self.same(samples, loaded[0])
        assert loaded[1] == ["here"]


CROHME = Path(os.environ.get("INK2TEX_CROHME") or Path(__file__).resolve().parents[2] / "shared" / "crohme")


@pytest.mark.skipif(not (CROHME / "test2014_images.tar.xz").exists(), reason=f"needs the CROHME archives in {CROHME}")
def test_ink_and_pictures_of_crohme_2014_agree() -> None:
    captions = CROHME / "test2014_caption.txt"
    pictures = read_samples(CROHME / "test2014_images.tar.xz", captions, vocabulary=Vocabulary())
    inks = read_samples(CROHME / "test2014_inkml.tar.xz", captions, vocabulary=Vocabulary(), limit=60)
    assert len(pictures) == 986
    same = 0
    for ink, picture in zip(inks, pictures, strict=False):
        assert (ink.uid, ink.tokens) == (picture.uid, picture.tokens)
        assert ink.strokes is not None
        assert picture.image is not None
        same += np.array_equal(rasterise(ink.strokes), picture.image)
    assert same >= 55
