"""Experiments that alternate within an hour: what `sooner` and `priority` share."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def measure(command, workspace, preset, blocks, flags=()):
    """The document of an experiment of so many blocks, by the `command` of perfquilt."""
    words = [*command, "run", "--json", "--quiet", "--fresh", "--resolution", "0", "--preset", preset]
    words += ["--blocks", str(blocks), *flags]
    done = subprocess.run(words, cwd=workspace, capture_output=True, text=True)
    if done.returncode != 0 and not done.stdout:
        sys.exit(f"{words[0]}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def copy_of(source, to, preset, config_of=None):
    """A copy of the workspace whose preset measures time only, with the configuration `config_of` if given."""
    to = pathlib.Path(to)
    for name in ("series", "patches", "bench-config"):
        path = source / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, to / name)
    objects = source / ".perfquilt/objects.git"
    if objects.exists():
        (to / ".perfquilt").mkdir()
        (to / ".perfquilt/objects.git").symlink_to(objects)
    config = to / "bench-config/perfquilt.toml"
    if config_of:
        shutil.copy(config_of, config)
    head, rest = config.read_text().split(f"[preset.{preset}]", 1)
    rest = re.sub(r"^meters = .*$", 'meters = ["time"]', rest, count=1, flags=re.M)
    config.write_text(f"{head}[preset.{preset}]{rest}")
