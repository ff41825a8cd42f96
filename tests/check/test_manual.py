"""share/ holds what the commands' own options give: man pages and completion for three shells."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def manual() -> ModuleType:
    spec = importlib.util.spec_from_file_location("manual", ROOT / ".ci/manual.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_they_are_current(manual: ModuleType) -> None:
    """Each file is what is generated now, and there is no other; else: make manual."""
    wanted = dict(manual.files())
    found = {
        str(path.relative_to(ROOT)): path.read_text("utf-8") for path in (ROOT / "share").rglob("*") if path.is_file()
    }
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.mark.parametrize("name", ["s3mount", "s3mountctl"])
def test_every_option_is_there(manual: ModuleType, name: str) -> None:
    """Every long option of the command and of its commands is in the man page and in each shell's completion."""
    command = manual.COMMANDS[name]
    context = manual._context(command, name)
    commands = [
        command,
        *(command.get_command(context, verb) for verb in getattr(command, "list_commands", lambda _: [])(context)),
    ]
    options = {name for each in commands for param in each.params for name in param.opts if name.startswith("--")}
    assert len(options) > 5
    page = (ROOT / f"share/man/man1/{name}.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert {each for each in options if each not in page} == set()
    for place in manual.PLACES.values():
        text = (ROOT / place.format(name)).read_text(encoding="utf-8")
        assert {each for each in options if each.removeprefix("--") not in text} == set()


@pytest.mark.parametrize("name", ["s3mount", "s3mountctl"])
def test_bash_completes(name: str) -> None:
    """bash offers the options that begin as the word does."""
    words = f"{name} {'warm ' if name == 's3mountctl' else ''}--"
    script = f"""
        source {ROOT}/share/bash-completion/completions/{name}
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
        $(complete -p {name} | sed -E 's/.*-F ([^ ]+).*/\\1/') {name}
        printf '%s\\n' "${{COMPREPLY[@]}}"
        """
    result = subprocess.run([shutil.which("bash") or "bash", "-c", script], capture_output=True, text=True, check=True)
    offered = result.stdout.split()
    assert ("--endpoint-url" if name == "s3mount" else "--from") in offered, result
