"""Workspaces with patches made for the occasion: what benchmarks of planted changes share."""

import difflib
import json
import re
import shutil
import subprocess
import sys

import bench
from bench import PROGRAM, ROOT


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
        sources = original / "upstream"
        if sources.is_dir():
            shutil.rmtree(self.dir / "upstream", ignore_errors=True)
            shutil.copytree(sources, self.dir / "upstream")
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
    return bench.arguments(doc, **{"perfquilt": PROGRAM, "blocks": 40, **options})


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


SERVERS = {
    "mariadb": dict(
        original=ROOT, recipe="quick", workload="oltp_read_only", licence="GPL-2.0-only",
        count_blocks=3,
        file="sql/sql_parse.cc",
        function=r"^dispatch_command_return dispatch_command\(",
        call=r'^  DBUG_ENTER\("dispatch_command"\);\n',
    ),
    "mysql": dict(
        original=ROOT / "examples/mysql", recipe="quick", workload="oltp_point_select", licence="GPL-2.0-only",
        count_blocks=3,
        file="sql/sql_parse.cc",
        function=r"^bool dispatch_command\(THD \*thd, const COM_DATA \*com_data,\n",
        call=r"^  Global_THD_manager \*thd_manager = Global_THD_manager::get_instance\(\);\n",
    ),
    "redis": dict(
        original=ROOT / "examples/redis", recipe="make", workload="get", licence="BSD-3-Clause",
        count_blocks=3,
        file="src/server.c",
        function=r"^int processCommand\(client \*c\) \{\n",
        call=None,
    ),
    "postgresql": dict(
        original=ROOT / "examples/postgresql", recipe="quick", workload="point_select", licence="PostgreSQL",
        count_blocks=3,
        file="src/backend/tcop/pquery.c",
        function=r"^bool\nPortalRun\(",
        call=r"^\tAssert(Arg)?\(PortalIsValid\(portal\)\);\n",
    ),
    "valkey": dict(
        original=ROOT / "examples/valkey", recipe="make", workload="get", licence="BSD-3-Clause",
        count_blocks=3,
        file="src/server.c",
        function=r"^int processCommand\(client \*c\) \{\n",
        call=None,
    ),
    "nginx": dict(
        original=ROOT / "examples/nginx", recipe="make", workload="static", licence="BSD-2-Clause",
        count_blocks=3,
        file="src/http/ngx_http_request.c",
        # The type stands on a line of its own.
        function=r"^void\nngx_http_process_request\(ngx_http_request_t \*r\)\n\{\n",
        call=r"^    c = r->connection;\n",
    ),
    "memcached": dict(
        original=ROOT / "examples/memcached", recipe="make", workload="get", licence="BSD-3-Clause",
        count_blocks=3,
        file="proto_text.c",
        function=r"^(static )?void process_command_ascii\(conn \*c, char \*command\) \{\n",
        call=r"^    assert\(c != NULL\);\n",
    ),
    # The server of the tests: it answers each byte after some arithmetic.
    "toy": dict(
        original=ROOT / "tests/fixtures/toy", recipe="make", workload="requests", licence="MIT",
        count_blocks=3,
        file="toyd.c",
        function=r"^int main\(",
        call=r"^    while \(client >= 0 && read\(client, &byte, 1\) == 1\)\n    \{\n",
    ),
}

# Four instructions a round that wait for each other in pairs: about as many a cycle as servers do. The
# compiler must not know the number of rounds, or it unrolls the loop when there are few. With a barrier, the
# processor begins the loop when everything before it is done: then a round takes the same time beside any
# code, instead of hiding behind the server's waits for memory.
BARRIER = """\
#if defined(__x86_64__)
  __asm__ volatile ("lfence" : : : "memory");
#else
  __asm__ volatile ("isb" : : : "memory");
#endif
"""
WORK = """\
/* Work of known size. */
#define PLANTED_ROUNDS {rounds}

static __attribute__((noinline)) void planted_work(void)
{{
  unsigned long x= 1, i= PLANTED_ROUNDS;
{barrier}  __asm__ volatile ("" : "+r" (i));
  for (; i; i--)
  {{
    x+= i;
    __asm__ volatile ("" : "+r" (x));
    x^= i;
    __asm__ volatile ("" : "+r" (x));
  }}
{barrier}}}

"""


def planted(text, server, rounds, barrier=""):
    """The source with that many rounds of work in it, between barriers if one is given."""
    return inserted(text, server, WORK.format(rounds=rounds, barrier=barrier))


def inserted(text, server, work):
    """The source with `work`, a function `planted_work`, and a call of it in what every request runs."""
    head = re.search(server["function"], text, re.M)
    if server["call"]:
        call = re.compile(server["call"], re.M).search(text, head.end())
        text = text[: call.end()] + "  planted_work();\n" + text[call.end() :]
    else:
        text = text[: head.end()] + "    planted_work();\n" + text[head.end() :]
    return text[: head.start()] + work + text[head.start() :]


def chain(workspace, server, rounds, barrier=""):
    """Writes a series whose points have that many rounds; a patch that does not change their number adds a
    function that nobody calls."""
    path = server["file"]
    upstream = workspace.source(path)
    before, last, uncalled, series = upstream, 0, "", []
    for index, count in enumerate(rounds, 1):
        title, body = f"plant {count} rounds", "Work of known size."
        if count == last:
            title, body = f"null patch {index}", "A function that nobody calls: code moves, nothing else changes."
            uncalled += dead(index, path, 512 + 64 * index)
        after = (planted(upstream, server, count, barrier) if count else upstream) + uncalled
        series.append((title, body, {path: (before, after)}))
        before, last = after, count
    workspace.series(series)


def costs(document, meter):
    """The cost of each point, as a multiple of the base's."""
    cost, all_costs = 1.0, []
    for _, effect in effects(document):
        if effect["meter"] == meter:
            cost /= 1 + effect["estimate"]
            all_costs.append(cost)
    return all_costs


def cost_of_rounds(workspace, server, many=1000, barrier="", meter="instructions", preset="calibrate"):
    """What a call costs, and what a round costs, in shares of the base's cost; measured with a preset that has
    the meter."""
    few = 200
    chain(workspace, server, [few, many], barrier)
    with_few, with_many = costs(workspace.measure(preset), meter)
    round_ = (with_many - with_few) / (many - few)
    return with_few - 1 - few * round_, round_


def cost_of_call(workspace, server, round_, rounds):
    """What the call costs beside few rounds, in instructions. A server that takes several requests at once takes
    others at once when a request has a thousand rounds, so that the cost beside many rounds is another one."""
    chain(workspace, server, [rounds])
    return costs(workspace.measure("calibrate"), "instructions")[0] - 1 - rounds * round_


def dead(index, path, size):
    """A function of `size` bytes that nobody calls."""
    name = f"perfquilt_dead_{index}_" + "".join(c if c.isalnum() else "_" for c in path)
    linkage = 'extern "C" ' if path.endswith(".cc") else ""
    return (
        f"\n{linkage}void {name}(void);\n"
        f'{linkage}void {name}(void) {{ __asm__ volatile (".skip {size}, 0x90"); }}\n'
    )
