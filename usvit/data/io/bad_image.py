"""The error for an image file that cannot be used, and the limits that every decoder checks."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from usvit.errors import UsvitError
from usvit.files import DiskError

MAX_PIXELS = 50_000_000
"""More pixels than any B-mode frame has (a 4K screen capture has 8 million). A file whose header claims more is treated
as a decompression bomb and refused before any pixels are decoded."""


# MAX_PIXELS is stricter than Pillow's limit. The filter is set once because all decoding threads share it.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BadImage(UsvitError):
    """An image file cannot be used.

    Args:
        path: The file.
        reason: Why it cannot be used, as a clause for the error text.
        code: The reason as a key of ``usvit.scoring.items.FAILURES``, which quotes nothing from the file.
    """

    def __init__(self, path: Path, reason: str, code: str = "damaged"):
        self.path, self.reason, self.code = path, reason, code
        super().__init__(
            f"Cannot use the image {path}: {reason}. "
            "Replace the file, or pass --skip-bad to leave out such files and list them."
        )

    def __reduce__(self) -> tuple[type["BadImage"], tuple[Path, str, str]]:
        """Keep all attributes when pickled, since processes that read images pass the error on."""
        return type(self), (self.path, self.reason, self.code)


def refuse_size(path: Path, height: int, width: int) -> None:
    """Raise ``BadImage`` for an image of more than ``MAX_PIXELS`` pixels."""
    if height * width > MAX_PIXELS:
        raise BadImage(
            path, f"its header claims {size_text((height, width))} pixels (a decompression bomb?)", "too_large"
        )


def refuse_frame(path: Path, frame: int | None, frames: int) -> None:
    """Raise ``BadImage`` if a file with ``frames`` frames does not hold frame number ``frame``, counted from 0.

    None stands for the only frame: a file of several frames is refused (``several_frames``), because taking the first
    one would leave out the others without a word.
    """
    if frame is None and frames > 1:
        reason = f"it holds {frames} frames: save each as a file, or name them in the column 'frame' of a table"
        raise BadImage(path, reason, "several_frames")
    if not 0 <= (frame or 0) < frames:
        raise BadImage(path, f"it has no frame {frame}: it holds {frames}, counted from 0", "no_such_frame")


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn any exception of a decoder into a ``BadImage`` with the reason.

    A disk that is full says nothing of the image: the error of a result that is written in the block is passed on.
    """
    try:
        yield
    except (BadImage, DiskError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(path, "its header claims far too many pixels (a decompression bomb?)", "too_large") from error
    except FileNotFoundError as error:
        raise BadImage(path, "there is no such file", "not_found") from error
    except UnidentifiedImageError as error:  # files that are not images are refused before Pillow opens them
        raise BadImage(path, "it is damaged or truncated (its header)") from error
    except Exception as error:  # decoders raise many types for damaged files, even struct.error for a bad EXIF block
        if isinstance(error, OSError) and error.errno is not None:
            raise BadImage(path, f"it cannot be read ({error.strerror})", "unreadable") from error
        message = " ".join(str(error).split())
        code = "truncated" if isinstance(error, EOFError) or "truncated" in message.lower() else "damaged"
        raise BadImage(path, f"it is damaged or truncated ({message})", code) from error


def size_text(shape: tuple[int, ...]) -> str:
    """Return ``width x height`` for a shape (H, W, ...)."""
    return f"{shape[1]} x {shape[0]}"
