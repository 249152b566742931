"""Hooks of mkdocs: pages that are made from the code, and links from docs/ to the rest of the repository."""

import contextlib
import io
import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# What scripts use, by the module that defines it.
REFERENCE = {
    "Training": ["dreamfleet.api.train", "dreamfleet.api.Run"],
    "Environments": [
        "dreamfleet.envs.contract.Env",
        "dreamfleet.envs.registry.make_env",
        "dreamfleet.envs.checker.check_env",
        "dreamfleet.envs.wrappers",
    ],
    "Agents": ["dreamfleet.agent.contract"],
    "Replay": ["dreamfleet.replay.contract"],
    "Errors": ["dreamfleet.errors"],
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the front page, the change log, the commands and the reference, and the examples that pages link to."""
    readme = re.sub(r"\]\(docs/", "](", (ROOT / "README.md").read_text())
    readme = readme.replace("](CHANGELOG.md)", "](changelog.md)").replace(
        "[CONTRIBUTING.md](CONTRIBUTING.md)", "CONTRIBUTING.md"
    )
    changes = re.sub(r"\]\(docs/", "](", (ROOT / "CHANGELOG.md").read_text())
    pages = {
        "index.md": readme,
        "changelog.md": changes,
        "cli.md": describe_commands(),
        "reference.md": list_reference(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in (".py", ".ipynb"):
            files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Examples are part of the site."""
    return markdown.replace("](../examples/", "](examples/")


def describe_commands() -> str:
    """The help of every command."""
    from dreamfleet.cli import COMMANDS, as_sentence

    parts = [
        "# Command line",
        "What `dreamfleet COMMAND --help` prints. Options of runs are on [a page of their own](options.md).",
    ]
    for name, summary in COMMANDS.items():
        text = show_help(name)
        text = text.partition("main options (default, meaning):")[0].rstrip()
        parts.append(f"## {name}\n\n{as_sentence(summary)}\n\n```\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def show_help(command: str) -> str:
    from dreamfleet.cli import main

    os.environ["COLUMNS"] = "100"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main([command, "--help"]) == 0, command
    return output.getvalue()


def list_reference() -> str:
    """A page for mkdocstrings to fill in."""
    parts = ["# Python reference", "From the docstrings; [the public API](api.md) has examples."]
    for title, names in REFERENCE.items():
        parts += [f"## {title}", *(f"::: {name}" for name in names)]
    return "\n\n".join(parts) + "\n"
