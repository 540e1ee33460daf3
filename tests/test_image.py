"""Pictures to bitmaps: every test draws its own photos."""

from __future__ import annotations

import io
import struct
import sys
import tarfile
import time
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from ink2tex.data.photograph import resized
from ink2tex.errors import ImageError
from ink2tex.image import PrepareSettings, prepare, read_picture, scale_bitmap
from ink2tex.image.cleaning import AT_THE_EDGE, SEVERAL_LINES, VERY_FAINT
from ink2tex.image.preparing import is_official
from ink2tex.image.reading import MAX_SIDE
from ink2tex.image.thinning import links, prune, thin
from ink2tex.raster import RasterStyle, official_scale, place_strokes, rasterise, scale_strokes

GLYPHS: dict[str, list[list[tuple[float, float]]]] = {
    "1": [[(0.1, 0.3), (0.4, 0.0), (0.4, 1.0)]],
    "2": [[(0.0, 0.2), (0.25, 0.0), (0.5, 0.2), (0.45, 0.45), (0.0, 1.0), (0.55, 1.0)]],
    "4": [[(0.4, 0.0), (0.0, 0.6), (0.6, 0.6)], [(0.45, 0.3), (0.42, 1.0)]],
    "7": [[(0.0, 0.0), (0.55, 0.02), (0.2, 1.0)]],
    "0": [[(0.3, 0.0), (0.05, 0.3), (0.05, 0.7), (0.3, 1.0), (0.55, 0.7), (0.55, 0.3), (0.3, 0.0)]],
    "x": [[(0.0, 0.3), (0.55, 1.0)], [(0.55, 0.3), (0.0, 1.0)]],
    "=": [[(0.0, 0.45), (0.6, 0.45)], [(0.0, 0.7), (0.6, 0.7)]],
    "+": [[(0.0, 0.6), (0.6, 0.6)], [(0.3, 0.3), (0.3, 0.9)]],
    "-": [[(0.0, 0.6), (0.6, 0.6)]],
    ".": [[(0.05, 0.98), (0.06, 1.0)]],
}


def strokes_of(text: str, size: float = 30.0, x: float = 0.0, y: float = 0.0) -> list[np.ndarray]:
    strokes = []
    for glyph in text:
        lines = GLYPHS[glyph]
        strokes += [np.array(line, np.float32) * np.float32(size) + (x, y) for line in lines]
        x += (max(p[0] for line in lines for p in line) + 0.35) * size
    return [stroke.astype(np.float32) for stroke in strokes]


def fraction() -> list[np.ndarray]:
    """x = 7 over 42."""
    bar = np.array([(70, 18), (125, 18)], np.float32)
    return [*strokes_of("x=", y=0), bar, *strokes_of("7", x=88, y=-22), *strokes_of("42", x=75, y=28)]


LINE = "x=2x+7-0.4"


def official(strokes: list[np.ndarray], thickness: float = 3.0) -> np.ndarray:
    return rasterise(scale_strokes(strokes, official_scale(strokes)), RasterStyle(thickness))


def ink_at(strokes: list[np.ndarray], scale: float, thickness: float, margin: int = 40) -> np.ndarray:
    """White ink on black at any size."""
    style = RasterStyle(thickness, (margin,) * 4, antialias=True)
    return rasterise([stroke * np.float32(scale) for stroke in strokes], style)


def photo(ink: np.ndarray, paper: np.ndarray | float = 215.0, dark: float = 0.7, seed: int = 0) -> np.ndarray:
    """Dark ink on paper with some noise and blur."""
    rng = np.random.default_rng(seed)
    cover = cv2.GaussianBlur(ink, (0, 0), 0.8).astype(np.float32) / 255
    picture = np.asarray(paper) * (1 - dark * cover) + rng.normal(0, 3, ink.shape)
    return np.clip(picture, 0, 255).astype(np.uint8)


def gradient(shape: tuple[int, int], low: float = 80.0, high: float = 220.0) -> np.ndarray:
    return np.broadcast_to(np.linspace(low, high, shape[1], dtype=np.float32), shape).copy()


def trimmed(bitmap: np.ndarray) -> np.ndarray:
    rows, columns = np.flatnonzero(bitmap.any(axis=1)), np.flatnonzero(bitmap.any(axis=0))
    return bitmap[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def assert_like(bitmap: np.ndarray, wanted: np.ndarray, size: float = 0.2, least: float = 0.93) -> None:
    """The same drawing in the official style, about the same size."""
    assert set(np.unique(bitmap)) == {0, 255}
    left, top, right, bottom = 12, 12, 11, 11
    assert bitmap[top:-bottom, left:-right].sum() == bitmap.sum(), "margins"
    assert trimmed(bitmap).shape == (bitmap.shape[0] - 23, bitmap.shape[1] - 23), "margins"
    a, b = trimmed(bitmap), trimmed(wanted)
    assert abs(np.log(a.shape[1] / b.shape[1])) < size, (a.shape, b.shape)
    a = (cv2.resize(a, b.shape[::-1], interpolation=cv2.INTER_AREA) > 100).astype(np.uint8)
    b = (b > 0).astype(np.uint8)
    square = np.ones((5, 5), np.uint8)
    assert (a & cv2.dilate(b, square)).sum() / a.sum() > least, "ink where there should be none"
    assert (b & cv2.dilate(a, square)).sum() / b.sum() > least, "ink is missing"


class TestReading:
    def test_grey_and_colour(self, tmp_path: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
        for suffix in ("png", "bmp", "tiff"):
            path = tmp_path / f"picture.{suffix}"
            Image.fromarray(pixels).save(path)
            for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), Image.open(path)):
                assert np.array_equal(read_picture(source), pixels)
        Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
        assert np.array_equal(read_picture(tmp_path / "grey.png"), pixels[..., 0])
        assert read_picture(Image.fromarray(pixels).convert("CMYK")).shape == (5, 7, 3)
        assert read_picture(Image.fromarray(pixels).convert("P")).shape == (5, 7, 3)
        assert set(np.unique(read_picture(Image.fromarray(pixels[..., 0]).convert("1")))) <= {0, 255}

    def test_exif_turns_the_picture(self) -> None:
        picture = Image.fromarray(np.zeros((20, 40, 3), np.uint8))
        exif = picture.getexif()
        exif[274] = 6
        file = io.BytesIO()
        picture.save(file, "JPEG", exif=exif)
        assert read_picture(file.getvalue()).shape == (40, 20, 3)

    def test_sixteen_bits(self) -> None:
        pixels = np.array([[0, 4095], [2048, 1000]], np.uint16)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        for read in (read_picture(file.getvalue()), read_picture(pixels)):
            assert read.dtype == np.uint8
            assert read.tolist() == [[0, 255], [128, 62]]

    def test_arrays(self) -> None:
        assert read_picture(np.array([[True, False]])).tolist() == [[255, 0]]
        assert read_picture(np.array([[0.0, 0.5, 1.0]])).tolist() == [[0, 128, 255]]
        assert read_picture(np.array([[0.0, 100.0, 255.0]])).tolist() == [[0, 100, 255]]
        assert read_picture(np.array([[np.nan, 1.0]])).tolist() == [[0, 255]]
        assert read_picture(np.zeros((3, 4, 1), np.uint8)).shape == (3, 4)
        for bad in (np.zeros(4), np.zeros((2, 2, 5)), np.zeros((0, 4)), np.array([["a"]])):
            with pytest.raises(ImageError, match="array"):
                read_picture(bad)

    def test_transparent_paper(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6)
        for shade, paper in ((0, 255), (255, 0)):
            rgba = np.dstack([np.full_like(ink, shade)] * 3 + [ink])
            read = read_picture(Image.fromarray(rgba))
            assert read[0, 0].tolist() == [paper] * 3
            assert_like(prepare(read).bitmap, official(strokes_of(LINE)))

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"this is a text file\n" * 20, "not a picture"),
            (b"", "empty"),
            (b"\x89PNG\r\n\x1a\n" + b"rubbish" * 9, "picture"),
            (b"\x00\x00\x00\x18ftypheic" + bytes(64), "HEIC|damaged|not a picture"),
        ],
    )
    def test_what_is_no_picture(self, data: bytes, words: str, tmp_path: Path) -> None:
        path = tmp_path / "holiday.png"
        path.write_bytes(data)
        with pytest.raises(ImageError, match=words) as caught:
            read_picture(path)
        assert "holiday.png" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_heic_as_phones_save_it(self, tmp_path: Path) -> None:
        heif = pytest.importorskip("pillow_heif")
        page = 255 - ink_at(strokes_of(LINE), 3, 8)
        path = tmp_path / "IMG_0001.HEIC"
        heif.from_pillow(Image.fromarray(page).convert("RGB")).save(path, quality=80)
        assert_like(prepare(read_picture(path)).bitmap, official(strokes_of(LINE)))
        path.write_bytes(path.read_bytes()[:400])
        with pytest.raises(ImageError, match=r"IMG_0001\.HEIC"):
            read_picture(path)

    def test_heic_without_a_decoder_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
        with pytest.raises(ImageError, match=r"install ink2tex\[heic\] or save the picture as JPEG"):
            read_picture(b"\x00\x00\x00\x18ftypheic" + bytes(64))

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ImageError, match=r"nowhere.png.*cannot be opened"):
            read_picture(tmp_path / "nowhere.png")
        with pytest.raises(ImageError, match="folder"):
            read_picture(tmp_path)

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"])
    def test_cut_off_files(self, kind: str) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        data = file.getvalue()
        for part in (0.3, 0.6):
            with pytest.raises(ImageError):
                read_picture(data[: int(len(data) * part)], name="half.jpg")

    @pytest.mark.parametrize("size", [(60_000, 60_000), (20_000, 20_000), (MAX_SIDE + 1, 10), (2**31 - 1, 2**31 - 1)])
    def test_bombs_are_not_unpacked(self, size: tuple[int, int]) -> None:
        def chunk(name: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

        header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 1, 0, 0, 0, 0))
        data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
        start = time.perf_counter()
        with pytest.raises(ImageError, match="pixels"):
            read_picture(data)
        assert time.perf_counter() - start < 1

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_damaged_files_never_crash(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"]))
        file = io.BytesIO()
        Image.fromarray(ink_at(strokes_of("4"), 1, 3)).save(file, kind)
        damaged = bytearray(file.getvalue())
        for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)))):
            damaged[place] = byte
        try:
            picture = read_picture(bytes(damaged))
        except ImageError:
            return
        assert picture.dtype == np.uint8


class TestOfficialBitmaps:
    def test_stay_as_they_are(self) -> None:
        for strokes in (fraction(), strokes_of(LINE), strokes_of("1")):
            bitmap = official(strokes)
            prepared = prepare(bitmap)
            assert prepared.bitmap is bitmap
            assert prepared.scale == 1
            assert prepared.to_source(3, 5) == (3, 5)

    def test_others_are_told_apart(self) -> None:
        strokes = scale_strokes(fraction(), official_scale(fraction()))
        bitmap = rasterise(strokes)
        assert is_official(bitmap)
        larger = rasterise([stroke * np.float32(3) for stroke in strokes])
        for other in (
            255 - bitmap,
            bitmap[1:],
            bitmap // 2,
            np.dstack([bitmap] * 3),
            np.zeros_like(bitmap),
            larger,
            rasterise(strokes, RasterStyle(6)),
            rasterise(strokes, RasterStyle(2)),
            rasterise(strokes, RasterStyle(3, antialias=True)),
            cv2.resize(bitmap, None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST),
        ):
            assert not is_official(other)

    @pytest.mark.parametrize("strokes", [fraction(), strokes_of(LINE), strokes_of("1")])
    def test_on_another_ground(self, strokes: list[np.ndarray]) -> None:
        bitmap = official(strokes)
        on_page = np.pad(255 - bitmap, ((150, 40), (90, 200)), constant_values=255)
        in_colour = np.where(on_page[:, :, None] == 0, np.array([160, 40, 30]), np.array([250, 245, 230]))
        for picture, x, y in (
            (255 - bitmap, 0, 0),
            (bitmap[5:-3, 7:-2], -7, -5),
            (on_page, 90, 150),
            (255 - on_page, 90, 150),
            (in_colour.astype(np.uint8), 90, 150),
        ):
            prepared = prepare(picture)
            assert np.array_equal(prepared.bitmap, bitmap)
            assert prepared.to_source(3, 5) == (3 + x, 5 + y)

    def test_after_a_jpeg_file(self) -> None:
        bitmap = official(fraction())
        stream = io.BytesIO()
        Image.fromarray(255 - bitmap).save(stream, "JPEG", quality=40)
        found = prepare(read_picture(stream.getvalue())).bitmap
        assert found.shape == bitmap.shape
        assert (found != bitmap).sum() < 0.02 * (bitmap > 0).sum()

    def test_a_pen_of_three_pixels_does_not_tell_the_size(self) -> None:
        large = ink_at(strokes_of(LINE), 3, 3)
        assert_like(prepare(np.where(large > 127, 0, 255).astype(np.uint8)).bitmap, official(strokes_of(LINE)))

    def test_the_published_ones(self, crohme: Path) -> None:
        with tarfile.open(crohme / "test2014_images.tar.xz") as archive:
            found = 0
            for member in archive:
                if not member.name.endswith(".bmp"):
                    continue
                file = archive.extractfile(member)
                assert file is not None
                assert is_official(read_picture(file.read())), member.name
                found += 1
        assert found == 986


class TestPreparing:
    @pytest.mark.parametrize("scale", [0.6, 1.0, 2.0, 4.0])
    @pytest.mark.parametrize("thickness", [2.0, 3.0, 6.0])
    def test_size_and_pen_do_not_matter(self, scale: float, thickness: float) -> None:
        ink = ink_at(fraction(), scale, max(1.0, thickness * scale))
        # Thick pens are worn down, but not to a line.
        assert_like(prepare(255 - ink).bitmap, official(fraction(), 4.0 if thickness > 4 else 3.0))

    @pytest.mark.parametrize("scale", [0.5, 2.0, 3.0])
    @pytest.mark.parametrize("larger", [1.05, 1.34])
    def test_size_of_an_enlarged_bitmap_is_told_by_its_pen(self, scale: float, larger: float) -> None:
        # Symbols somewhat smaller or larger than usual: they alone would be brought to the usual size.
        strokes = scale_strokes(strokes_of(LINE), larger)
        wanted = trimmed(rasterise(strokes)).shape[1]
        picture = 255 - ink_at(strokes, scale, 3.0 * scale) if scale > 1 else 255 - resized(rasterise(strokes), scale)
        assert trimmed(prepare(picture).bitmap).shape[1] == pytest.approx(wanted, rel=0.08)
        # With another pen there is nothing else to go by.
        finer = trimmed(prepare(255 - ink_at(strokes, 2.0, 3.0)).bitmap).shape[1]
        assert abs(finer / wanted - 1) > 0.09

    @pytest.mark.parametrize(("scale", "thickest"), [(1.0, 6), (2.0, 5)])
    def test_narrow_gaps_between_thick_strokes_stay_open(self, scale: float, thickest: int) -> None:
        strokes = strokes_of("=", size=34)  # bars 8.5 px apart, drawn with a pen of 6
        strokes += strokes_of("140", x=40)
        ink = rasterise([stroke * np.float32(scale) for stroke in strokes], RasterStyle(6 * scale, (30,) * 4))
        bitmap = prepare(255 - ink).bitmap
        parts = cv2.connectedComponents(bitmap)[0] - 1
        assert parts == cv2.connectedComponents(ink)[0] - 1 == 5
        # Kept where the picture keeps its size; otherwise worn down, but not to less than the official pen.
        bar = bitmap[:, 24]
        widths = np.diff(np.flatnonzero(np.diff(np.append(0, bar.astype(int)))))[::2]
        assert len(widths) == 2
        assert all(3 <= width <= thickest for width in widths), widths

    def test_thick_strokes_that_touch_do_not_make_the_writing_smaller(self) -> None:
        bar = np.array([[90.0, 15.0], [125.0, 15.0]], np.float32)
        tight = [bar, *strokes_of("1", x=95.0, y=-20.0), *strokes_of("4", x=95.0, y=20.0)]  # 5 px from the bar
        strokes = [*strokes_of("72x=", x=-30.0), *tight]
        thick, thin_pen = official(strokes, 6.0), official(strokes)
        assert cv2.connectedComponents(thick)[0] == cv2.connectedComponents(thin_pen)[0] - 2
        assert prepare(255 - thick).bitmap.shape[1] == pytest.approx(thin_pen.shape[1], rel=0.03)

    def test_symbols_that_thick_strokes_have_joined_do_not_count_as_one(self) -> None:
        # Three rings, each touching the next one where they are closest: a part three times as high as a symbol.
        turn = np.linspace(0.0, 2 * np.pi, 40)
        ring = 15 * np.stack([np.cos(turn), np.sin(turn)], axis=1).astype(np.float32)
        strokes = [ring + np.float32(27.5 * k) * np.array([1.0, -1.0], np.float32) for k in range(3)]
        thick, thin_pen = official(strokes, 6.0), official(strokes)
        assert cv2.connectedComponents(thick)[0] - 1 == 1
        assert cv2.connectedComponents(thin_pen)[0] - 1 == 3
        assert prepare(255 - thick).bitmap.shape == pytest.approx(thin_pen.shape, rel=0.06)

    def test_what_a_finer_pen_has_written_does_not_wear_off(self) -> None:
        strokes = strokes_of("72x=41", size=34)
        ink = rasterise(strokes, RasterStyle(8.0, (30,) * 4))
        ink[10:12, 30:90] = 255  # a line of a pencil, which wears off before the pen is down to what it should be
        bitmap = prepare(255 - ink).bitmap
        assert cv2.connectedComponents(bitmap)[0] == cv2.connectedComponents(ink)[0]
        assert (bitmap > 0).sum() < 0.8 * (ink > 0).sum()

    def test_light_on_dark(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6)
        wanted = official(strokes_of(LINE))
        assert_like(prepare(255 - ink).bitmap, wanted)
        assert_like(prepare(ink).bitmap, wanted)
        assert_like(prepare(255 - photo(ink)).bitmap, wanted)

    def test_gradient_and_noise(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6)
        assert_like(prepare(photo(ink, gradient(ink.shape))).bitmap, official(strokes_of(LINE)))

    @pytest.mark.parametrize(("dark", "noise"), [(0.15, 6.0), (0.3, 12.0), (0.7, 20.0)])
    def test_faint_pencil_and_a_bad_camera(self, dark: float, noise: float) -> None:
        ink = ink_at(strokes_of(LINE), 3, 9)
        picture = photo(ink, dark=dark) + np.random.default_rng(1).normal(0, noise, ink.shape)
        assert_like(prepare(np.clip(picture, 0, 255).astype(np.uint8)).bitmap, official(strokes_of(LINE)))

    def test_edge_of_a_shadow(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6)
        paper = np.full(ink.shape, 220, np.float32)
        y, x = np.mgrid[: ink.shape[0], : ink.shape[1]]
        paper[x + 0.5 * y > ink.shape[1] / 2] = 120
        assert_like(prepare(photo(ink, cv2.GaussianBlur(paper, (0, 0), 3))).bitmap, official(strokes_of(LINE)))

    def test_table_around_the_page(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6, margin=100)
        paper = np.full(ink.shape, 215, np.float32)
        paper[:, :45] = 40
        paper[-40:] = 60
        assert_like(prepare(photo(ink, paper)).bitmap, official(strokes_of(LINE)))

    @pytest.mark.parametrize("squared", [False, True])
    @pytest.mark.parametrize("dark", [0.25, 0.5])
    @pytest.mark.parametrize("tilt", [0.0, 1.3])
    def test_ruled_paper(self, squared: bool, dark: float, tilt: float) -> None:
        ink = ink_at(fraction(), 3, 7)
        rules = np.zeros((800, 800), np.float32)
        rules[20::61] = rules[21::61] = 1
        if squared:
            rules[:, 35::61] = rules[:, 36::61] = 1
        rules = cv2.warpAffine(rules, cv2.getRotationMatrix2D((400, 400), tilt, 1), (800, 800))
        rules = rules[100 : 100 + ink.shape[0], 100 : 100 + ink.shape[1]]
        assert_like(prepare(photo(ink, 210 * (1 - dark * rules))).bitmap, official(fraction()), least=0.9)

    def test_bars_are_no_rules(self) -> None:
        """Bars of fractions nearly as wide as the picture."""
        bars = [np.array([(0, y), (170, y)], np.float32) for y in (40, 110)]
        strokes = [*strokes_of("142", x=40), *bars, *strokes_of("7x1", x=40, y=60), *strokes_of("2+4", x=40, y=125)]
        ink = ink_at(strokes, 2, 5, margin=6)
        assert_like(prepare(photo(ink)).bitmap, official(strokes))

    def test_coloured_pens(self) -> None:
        cover = ink_at(strokes_of(LINE), 2, 5).astype(np.float32)[..., None] / 255
        paper = np.array([240, 235, 215], np.float32)
        for pen in ([205, 60, 70], [40, 70, 200], [30, 130, 60]):
            noise = np.random.default_rng(0).normal(0, 4, (*cover.shape[:2], 3))
            picture = np.clip(paper * (1 - cover) + np.array(pen) * cover + noise, 0, 255).astype(np.uint8)
            _, data = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 50])
            assert_like(prepare(read_picture(data.tobytes())).bitmap, official(strokes_of(LINE)))

    def test_points_stay_and_dust_goes(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6, margin=150)
        dusty = ink.copy()
        dusty[20:26, 20:26] = 255
        dusty[-30:-24, -60:-54] = 255
        rng = np.random.default_rng(0)
        for y, x in zip(rng.integers(0, ink.shape[0], 80), rng.integers(0, ink.shape[1], 80), strict=True):
            dusty[y, x] = 255
        bitmap = prepare(photo(dusty)).bitmap
        assert_like(bitmap, official(strokes_of(LINE)))
        wanted = cv2.connectedComponents(official(strokes_of(LINE)))[0]
        assert cv2.connectedComponents(bitmap)[0] == wanted  # the decimal point is one of them

    def test_sloping_line_is_levelled(self) -> None:
        ink = ink_at(strokes_of(LINE), 2, 6)
        side = max(ink.shape)
        for angle in (-20.0, 12.0):
            turn = cv2.getRotationMatrix2D((ink.shape[1] / 2, ink.shape[0] / 2), angle, 1)
            turn[:, 2] += (side - ink.shape[1]) / 2, (side - ink.shape[0]) / 2
            picture = 255 - cv2.warpAffine(ink, turn, (side, side))
            prepared = prepare(picture)
            assert_like(prepared.bitmap, official(strokes_of(LINE)), least=0.85)
            where = np.argwhere(prepared.bitmap > 0)[::7]
            dark = [picture[int(v), int(u)] < 128 for u, v in (prepared.to_source(x + 0.5, y + 0.5) for y, x in where)]
            assert np.mean(dark) > 0.85

    @pytest.mark.parametrize("scale", [0.7, 3.0])
    def test_to_source(self, scale: float) -> None:
        style = RasterStyle(3 * scale, (70, 30, 90, 20), antialias=True)
        strokes = [stroke * np.float32(scale) for stroke in fraction()]
        picture = 255 - rasterise(strokes, style)
        prepared = prepare(picture)
        assert prepared.scale == pytest.approx(official_scale(strokes), rel=0.2)
        points = np.concatenate(place_strokes(strokes, style)[0])
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        height, width = prepared.bitmap.shape
        assert prepared.to_source(13.5, 13.5) == pytest.approx((left, top), abs=3 * scale + 1)
        assert prepared.to_source(width - 12.5, height - 12.5) == pytest.approx((right, bottom), abs=3 * scale + 1)

    def test_warnings(self) -> None:
        two = [*strokes_of(LINE), *strokes_of("7x=42", y=60)]
        assert SEVERAL_LINES in prepare(255 - ink_at(two, 2, 5)).warnings
        for strokes in (strokes_of(LINE), fraction()):
            assert prepare(255 - ink_at(strokes, 2, 5)).warnings == ()
        ink = ink_at(strokes_of(LINE), 2, 6)
        assert VERY_FAINT in prepare(photo(ink, dark=0.12)).warnings
        assert AT_THE_EDGE in prepare(255 - ink[:, 60:]).warnings

    def test_no_ink(self) -> None:
        rng = np.random.default_rng(0)
        for blank in (
            np.zeros((1, 1), np.uint8),
            np.full((2, 500), 255, np.uint8),
            np.full((300, 400, 3), 255, np.uint8),
            np.zeros((300, 400), np.uint8),
            np.clip(rng.normal(200, 2, (300, 400)), 0, 255).astype(np.uint8),
            gradient((300, 400)).astype(np.uint8),
        ):
            with pytest.raises(ImageError, match="no ink"):
                prepare(blank)

    @settings(max_examples=60, deadline=None)
    @given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2, max_side=40)))
    def test_noise_never_crashes(self, picture: np.ndarray) -> None:
        for source in (picture, np.dstack([picture, picture.T[: len(picture)]][:1] * 3)):
            try:
                bitmap = prepare(source).bitmap
            except ImageError:
                continue
            assert bitmap.dtype == np.uint8
            assert bitmap.any()
            assert max(bitmap.shape) <= 3100

    def test_large_photo(self) -> None:
        """Twelve megapixels: within the time of a blink, give or take a busy machine."""
        ink = ink_at(strokes_of(LINE), 6, 16, margin=100)
        picture = np.full((3000, 4000), 0, np.uint8)
        picture[1200 : 1200 + ink.shape[0], 900 : 900 + ink.shape[1]] = ink
        picture = np.dstack([photo(picture, gradient(picture.shape))] * 3)
        start = time.process_time()
        prepared = prepare(picture)
        seconds = time.process_time() - start
        assert_like(prepared.bitmap, official(strokes_of(LINE)))
        assert seconds < 3, seconds

    def test_settings(self) -> None:
        bitmap = official(fraction())
        redrawn = prepare(bitmap, PrepareSettings(keep_official=False)).bitmap
        assert redrawn is not bitmap
        assert_like(redrawn, bitmap)


class TestThinning:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 10_000), st.integers(1, 9))
    def test_keeps_parts_and_holes_together(self, seed: int, width: int) -> None:
        rng = np.random.default_rng(seed)
        mask = np.zeros((90, 90), np.uint8)
        for _ in range(3):
            points = rng.integers(12, 78, (4, 2)).astype(np.int32)
            cv2.polylines(mask, [points], False, 255, width)
        skeleton = thin(mask)
        assert not (skeleton & ~(mask > 0)).any()
        assert cv2.connectedComponents(skeleton)[0] == cv2.connectedComponents(mask)[0]
        pruned = prune(skeleton, 3)
        assert cv2.connectedComponents(pruned)[0] == cv2.connectedComponents(mask)[0]
        # No pixel of a skeleton has a full square around it.
        assert not cv2.erode(skeleton, np.ones((3, 3), np.uint8)).any()

    def test_branches_go_and_ends_stay(self) -> None:
        lines = np.zeros((20, 40), np.uint8)
        lines[10, 5:35] = 1
        lines[7:10, 20] = 1
        pruned = prune(lines, 4)
        assert pruned[10].sum() == 30
        assert pruned.sum() <= 31  # the root of the branch may stay

    def test_links_draw_the_skeleton_again(self) -> None:
        skeleton = thin(ink_at(fraction(), 2, 5))
        skeleton[1, 1] = 1
        pairs, dots = links(skeleton)
        assert dots.tolist() == [[1, 1]]
        again = np.zeros_like(skeleton)
        cv2.polylines(again, list(pairs), False, 1)
        again[dots[:, 1], dots[:, 0]] = 1
        assert np.array_equal(again, skeleton)


def test_scale_bitmap() -> None:
    bitmap = official(fraction())
    assert scale_bitmap(bitmap, 1.0) is bitmap
    assert scale_bitmap(bitmap, 0.5).shape == tuple(round(side / 2) for side in bitmap.shape)
