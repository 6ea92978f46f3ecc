"""Builds wheel and sdist, checks what is in them, and runs the demonstration from the wheel in an empty environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("infobatch/py.typed", "infobatch/report/page.html", "infobatch/lab/data/LICENSE-fashion-mnist")
TOO_LARGE = 10_000_000  # bytes: the pictures of the demonstration are most of it


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and stop where it fails."""
    subprocess.run([str(part) for part in command], check=True, **options)  # type: ignore[call-overload]


def check_contents(wheel: Path, sdist: Path) -> None:
    """Both have what the package needs at run time, and nothing of the workshop is in the wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in NEEDED if name not in names]
    strange = [name for name in names if not name.startswith(("infobatch/", "infobatch-"))]
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    missing += [name for name in ("pyproject.toml", "README.md", "LICENSE") if name not in inside]
    sources = {f"infobatch/{path.relative_to(ROOT / 'src/infobatch')}" for path in (ROOT / "src").rglob("*.py")}
    missing += sorted(sources - set(names))
    if missing or strange:
        sys.exit(f"wheel and sdist: missing {missing}, strange {strange}")
    if wheel.stat().st_size > TOO_LARGE:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {TOO_LARGE:,}")


def main() -> None:
    """All of it, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "build", "--outdir", place, ROOT, stdout=subprocess.DEVNULL)
        [wheel], [sdist] = place.glob("*.whl"), place.glob("*.tar.gz")
        check_contents(wheel, sdist)
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
        venv.create(place / "empty", with_pip=True)
        python = place / "empty/bin/python"
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", ROOT / "constraints.txt")
        run(*pip, f"{wheel}[lab]")
        run(python, "-c", "import infobatch, sys; assert 'site-packages' in infobatch.__file__, infobatch.__file__")
        short = ("--seeds", "1", "--set", "epochs=3", "--set", "judge_every=3", "--set", "samples=1000")
        run(place / "empty/bin/infobatch", "demo", *short, "--out", place / "demo", cwd=place)
        if not (place / "demo/report.html").exists():
            sys.exit("the demonstration wrote no page")
    print("wheel and sdist are fit to be published")


if __name__ == "__main__":
    main()
