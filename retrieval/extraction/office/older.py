"""Files of Office before 2007 (.doc, .xls, .ppt): LibreOffice writes them anew, where it is installed.

It runs inside the worker's limits with a profile of its own, in which macros do not run, links are not followed and
everything that wants the network meets a proxy that is not there: a linked picture would otherwise be fetched.
"""

import subprocess
from pathlib import Path
from shutil import which

from retrieval.errors import ExtractError

_PROGRAMS = ("soffice", "libreoffice")
_COMMON, _NETWORK = "org.openoffice.Office.Common/Security/Scripting", "org.openoffice.Inet/Settings"
_SETTINGS = (
    (_COMMON, "DisableMacrosExecution", "true"),
    (_COMMON, "MacroSecurityLevel", "3"),
    (_COMMON, "BlockUntrustedRefererLinks", "true"),
    ("org.openoffice.Office.Writer/Content/Update", "Link", "2"),
    ("org.openoffice.Office.Calc/Content/Update", "Link", "2"),
    (_NETWORK, "ooInetProxyType", "2"),
    (_NETWORK, "ooInetHTTPProxyName", "127.0.0.1"),
    (_NETWORK, "ooInetHTTPProxyPort", "9"),
    (_NETWORK, "ooInetHTTPSProxyName", "127.0.0.1"),
    (_NETWORK, "ooInetHTTPSProxyPort", "9"),
    (_NETWORK, "ooInetNoProxy", ""),
)
"""Of the profile; port 9 is where nothing listens."""
_NAMESPACES = 'xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema"'


def program() -> str | None:
    """LibreOffice's, if this machine has it."""
    return next(filter(None, map(which, _PROGRAMS)), None)


def convert(path: Path, suffix: str, folder: Path, office: str) -> Path:
    """`path` as a file of the kind `suffix` (".docx") in `folder`, by the program `office`. Raises ExtractError."""
    user = folder / "profile" / "user"
    user.mkdir(parents=True)
    items = "".join(
        f'<item oor:path="/{place}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
        for place, name, value in _SETTINGS
    )
    (user / "registrymodifications.xcu").write_text(f"<oor:items {_NAMESPACES}>{items}</oor:items>", encoding="utf-8")
    command = [office, f"-env:UserInstallation={user.parent.as_uri()}", "--headless", "--norestore"]
    command += ["--convert-to", suffix[1:], "--outdir", str(folder), str(path)]
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    made = folder / f"{path.stem}{suffix}"
    if not made.is_file():
        raise ExtractError(
            f"LibreOffice could not read this {path.suffix} file: it has a password, or is damaged. "
            f"Save it as {suffix} without one and retry."
        )
    return made
