"""What the benchmarks share: the repository, the built program, the command line, experiments in copies of a workspace."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("PERFQUILT", ROOT / "target/release/perfquilt"))


def arguments(doc, flags=None, **options):
    """The command line: one option for each default value, of its type (`False`: a flag), or for each dict of settings of
    argparse; `flags` names the list of what follows."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in options.items():
        settings = value
        if value is False:
            settings = {"action": "store_true"}
        elif not isinstance(value, dict):
            settings = {"type": pathlib.Path if isinstance(value, pathlib.Path) else type(value), "default": value}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    if flags:
        parser.add_argument(flags, nargs="*")
    return parser.parse_args()


def tool():
    """The absolute path of the built program; ends without it."""
    if not PROGRAM.exists():
        sys.exit(f"error: no {PROGRAM}\nhint: `cargo build --release` makes it, PERFQUILT names another")
    return PROGRAM.resolve()


def measure(command, workspace, preset, blocks, flags=()):
    """The document of an experiment of so many blocks, by the `command` of perfquilt."""
    words = [*command, "run", "--json", "--quiet", "--fresh", "--resolution", "0", "--preset", preset]
    words += ["--blocks", str(blocks), *flags]
    done = subprocess.run(words, cwd=workspace, capture_output=True, text=True)
    if done.returncode != 0 and not done.stdout:
        sys.exit(f"{words[0]}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def copy_of(source, to):
    """A copy of the workspace with the same objects and no results."""
    to = pathlib.Path(to)
    for name in ("series", "patches", "bench-config"):
        path = source / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, to / name)
    objects = source / ".perfquilt/objects.git"
    if objects.exists():
        (to / ".perfquilt").mkdir()
        (to / ".perfquilt/objects.git").symlink_to(objects)
    return to


def timed_copy_of(source, to, preset, config_of=None):
    """Such a copy whose preset measures time only, with the configuration `config_of` if given."""
    config = copy_of(source, to) / "bench-config/perfquilt.toml"
    if config_of:
        shutil.copy(config_of, config)
    head, rest = config.read_text().split(f"[preset.{preset}]", 1)
    rest = re.sub(r"^meters = .*$", 'meters = ["time"]', rest, count=1, flags=re.M)
    config.write_text(f"{head}[preset.{preset}]{rest}")
