"""Shows pages of the repository that stand outside docs/ in the documentation: a hook, named in mkdocs.yml."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
RESULTS = ("", "forecasts/", "fronts/", "streams/", "suspects/")
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", *(f"results/{folder}README.md" for folder in RESULTS))
TO_DOCS = re.compile(r"(\]\((?:\.\./)*)docs/")  # docs/ is the site's root
OTHER_FILE = re.compile(r"\]\(((?!https?:)[^)#]+\.(?:png|txt))\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the pictures and texts that they link to, under their paths in the repository."""
    for name in PAGES:
        path = ROOT / name
        content = TO_DOCS.sub(r"\1", path.read_text(encoding="utf-8"))
        files.append(File.generated(config, name, content=content))
        for target in OTHER_FILE.findall(content):
            linked = path.parent / target
            files.append(File.generated(config, linked.relative_to(ROOT).as_posix(), abs_src_path=str(linked)))
    return files
