"""Pictures on their way to the network: any photo, scan or drawing becomes a bitmap in the official style.

`read_picture` decodes a file safely; `prepare` finds the ink on it and redraws it as the network knows it, white
strokes of 3 px on black at the official size; `scale_bitmap` brings such a bitmap to the size a network reads.
"""

from ink2tex.image.preparing import Prepared, PrepareSettings, prepare
from ink2tex.image.reading import read_picture
from ink2tex.image.scaling import scale_bitmap

__all__ = ["PrepareSettings", "Prepared", "prepare", "read_picture", "scale_bitmap"]
