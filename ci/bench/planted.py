"""Workspaces with patches made for the occasion: what `layout` and `known-answers` have in common."""

import argparse
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

HEADER = """From: perfquilt contributors <perfquilt@example.invalid>
Date: Sat, 21 Nov 2026 15:00:00 +0000
Subject: [PATCH] {title}

{body}

SPDX-License-Identifier: {licence}
---
"""


class Workspace:
    """A copy of the configuration of `original`, with a series of its own and an empty database."""

    def __init__(self, name, original, arguments, licence):
        self.dir = ROOT / ".perfquilt/bench" / name
        self.perfquilt = arguments.perfquilt.resolve()
        self.licence = licence
        self.dir.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.dir / "bench-config", ignore_errors=True)
        shutil.copytree(original / "bench-config", self.dir / "bench-config")
        config = self.config.read_text()
        self.config.write_text(config.replace('patches = "patches/', '# patches = "patches/'))
        objects = original / ".perfquilt/objects.git"
        ours = self.dir / ".perfquilt/objects.git"
        if objects.exists() and not ours.exists():
            ours.parent.mkdir(exist_ok=True)
            ours.symlink_to(objects)
        self.series([])
        self.run("upstream", "fetch")

    @property
    def config(self):
        return self.dir / "bench-config/perfquilt.toml"

    def preset(self, name, **keys):
        """Adds a preset to the configuration."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        text = self.config.read_text()
        self.config.write_text("\n".join([text, f"[preset.{name}]", *lines, ""]))

    def source(self, path):
        """The text of an upstream file, or None."""
        store = self.dir / ".perfquilt/objects.git"
        config = self.config.read_text()
        name = re.search(r'^name = "(.*)"', config, re.M)[1]
        version = re.search(r'^current = "(.*)"', config, re.M)[1]
        refs = subprocess.run(
            ["git", f"--git-dir={store}", "for-each-ref", "--format=%(refname)"],
            check=True, capture_output=True, text=True,
        ).stdout.split()
        ref = next(ref for ref in refs if ref.endswith(f"/{name}-{version}"))
        found = subprocess.run(
            ["git", f"--git-dir={store}", "show", f"{ref}:{path}"], capture_output=True
        )
        return found.stdout.decode("latin-1") if found.returncode == 0 else None

    def series(self, patches):
        """Writes the series: (title, body, {path: (old text, new text)}) each."""
        shutil.rmtree(self.dir / "patches", ignore_errors=True)
        (self.dir / "patches").mkdir()
        names = []
        for index, (title, body, files) in enumerate(patches, 1):
            word = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            names.append(f"{index:04}-{word}.patch")
            text = HEADER.format(title=title, body=body, licence=self.licence)
            for path, (old, new) in sorted(files.items()):
                text += f"diff --git a/{path} b/{path}\n" + "".join(
                    difflib.unified_diff(
                        old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}"
                    )
                )
            (self.dir / "patches" / names[-1]).write_text(text, encoding="latin-1")
        (self.dir / "series").write_text("".join(f"{name}\n" for name in names))

    def run(self, *words):
        """Runs perfquilt here; its progress is shown, its output returned."""
        command = [self.perfquilt, *words]
        done = subprocess.run(command, cwd=self.dir, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"perfquilt {' '.join(words)}: exit {done.returncode}")
        return done.stdout

    def measure(self, preset, *flags):
        """The attribution document of a run."""
        return json.loads(self.run("run", "--preset", preset, "--json", *flags))


def arguments(doc, **options):
    """The command line: --perfquilt, --blocks, and whatever else."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    built = ROOT / "target" / os.environ.get("PERFQUILT_PROFILE", "release") / "perfquilt"
    parser.add_argument("--perfquilt", default=built, type=pathlib.Path)
    parser.add_argument("--blocks", type=int, default=40)
    for name, settings in options.items():
        parser.add_argument(f"--{name}", **settings)
    return parser.parse_args()


def effects(document, kind="in_order"):
    """(patch index, effect) of every effect of that kind."""
    return [
        (patch["index"], effect)
        for patch in document["patches"]
        for effect in patch["effects"]
        if effect["kind"] == kind
    ]


def figure(effect):
    """An effect as text."""
    half = 50 * (effect["high"] - effect["low"])
    return f"{100 * effect['estimate']:+.2f} ± {half:.2f} %  {effect['verdict'].replace('_', ' ')}"
