"""What mkdocs is told of files outside of `docs/`: a hook (see mkdocs.yml).

Pages link to the README, to benchmarks and examples as they lie in the repository. On the site the README is the first
page, and other such files are pages below `repository/`, made when some page links to them.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)]*)?(\))")
_FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README and what pages link to."""
    files.append(File.generated(config, "index.md", content=_moved((ROOT / "README.md").read_text("utf-8"), "", "")))
    todo, done = ["CONTRIBUTING.md", "CHANGELOG.md"], {"README.md"}
    for file in list(files.documentation_pages()):
        source = "README.md" if file.src_uri == "index.md" else f"docs/{file.src_uri}"
        todo += _outside((ROOT / source).read_text("utf-8"), posixpath.dirname(source))
    while todo:
        path = todo.pop()
        if path in done or not (ROOT / path).is_file():
            continue
        done.add(path)
        text = (ROOT / path).read_text("utf-8")
        if path.endswith(".md"):
            todo += _outside(text, posixpath.dirname(path))
            page = _moved(text, posixpath.dirname(path), posixpath.dirname(f"repository/{path}"))
        else:
            page = f"# `{path}`\n\n```{'python' if path.endswith('.py') else ''}\n{text}\n```\n"
        files.append(File.generated(config, _place(path), content=page))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links that lead out of `docs/` lead to where such files are on the site."""
    if page.file.src_uri == "index.md" or page.file.src_uri.startswith("repository/"):  # as `on_files` made them
        return markdown
    folder = posixpath.dirname(page.file.src_uri)
    return _moved(markdown, posixpath.join("docs", folder), folder)


def _outside(markdown: str, folder: str) -> list[str]:
    """The files of the repository outside of `docs/` that a page in this folder links to."""
    return [path for target in _targets(markdown) if not (path := _path(folder, target)).startswith("docs/")]


def _targets(markdown: str) -> list[str]:
    return [match[2] for match in _LINK.finditer(_FENCE.sub("", markdown)) if not _is_elsewhere(match[2])]


def _moved(markdown: str, folder: str, shown_in: str) -> str:
    """The page with its links as they are from its place on the site.

    Args:
        markdown: Its text.
        folder: Where it lies in the repository.
        shown_in: Where it lies on the site.
    """

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        path = _path(folder, target)
        if _is_elsewhere(target) or not (ROOT / path).exists():
            return match[0]
        if (ROOT / path).is_dir():
            return before[1:-2] if before.startswith("[") else ""
        there = path.removeprefix("docs/") if path.startswith("docs/") else _place(path)
        return f"{before}{posixpath.relpath(there, shown_in or '.')}{anchor or ''}{after}"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def _place(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path == "README.md":
        return "index.md"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def _path(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(folder, target))


def _is_elsewhere(target: str) -> bool:
    return "://" in target or target.startswith(("mailto:", "#"))
