"""Languages that text in pictures can be read in: English comes with Cairn, others with packages of the system."""

from __future__ import annotations

import re
from pathlib import Path

SHIPPED = Path(__file__).resolve().parent
DEFAULT = "eng"
_SUFFIX = ".traineddata"
_NAME = re.compile(r"[A-Za-z]{3,}(?:_[A-Za-z]+)*")
# Where Debian, Fedora, Homebrew and the installer for Windows put them.
_SYSTEM = (
    "/usr/share/tesseract-ocr/5/tessdata", "/usr/share/tesseract-ocr/4.00/tessdata", "/usr/share/tessdata",
    "/usr/share/tesseract/tessdata", "/usr/local/share/tessdata", "/opt/homebrew/share/tessdata",
    "C:/Program Files/Tesseract-OCR/tessdata",
)  # fmt: skip


def language_files(languages: str) -> list[Path]:
    """The model files of languages joined by "+" ("eng+deu"). Raises ValueError for one that is not installed."""
    files = []
    for name in dict.fromkeys(languages.split("+")):
        found = [folder / f"{name}{_SUFFIX}" for folder in _folders() if _NAME.fullmatch(name)]
        there = next((path for path in found if path.is_file()), None)
        if there is None:
            known = ", ".join(installed_languages())
            raise ValueError(
                f"There is no language {name!r} for reading text in pictures; installed are {known}. "
                f"On Debian: apt-get install tesseract-ocr-{name.lower().replace('_', '-')}"
            )
        files.append(there)
    return files


def installed_languages() -> list[str]:
    found = {path.name.removesuffix(_SUFFIX) for folder in _folders() for path in folder.glob(f"*{_SUFFIX}")}
    return sorted(name for name in found if name not in ("osd", "equ"))


def _folders() -> list[Path]:
    return [SHIPPED, *(Path(folder) for folder in _SYSTEM)]
