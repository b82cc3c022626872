"""What the programs of ci/bench and ci share: the built program, the command line, commands and what they take, experiments
in copies of a workspace, workspaces with planted patches, a bot on a GitHub of its own,
Debian's source packages."""

import argparse
import contextlib
import difflib
import hashlib
import hmac
import http.server
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("PERFQUILT", ROOT / "target/release/perfquilt"))

# ------------------------------------------------------------------------------------------------ commands


def arguments(doc, flags=None, **options):
    """The command line: one option for each default value, of its type (`False`: a flag; a list: choices, the default first), or
    for each dict of settings of argparse; `flags` names the list of what follows."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in options.items():
        settings = value
        if value is False:
            settings = {"action": "store_true"}
        elif isinstance(value, list):
            settings = {"choices": value, "default": value[0]}
        elif not isinstance(value, dict):
            settings = {"type": pathlib.Path if isinstance(value, pathlib.Path) else type(value), "default": value}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    if flags:
        parser.add_argument(flags, nargs="*")
    return parser.parse_args()


def lacks(error, hint):
    """Ends as a program does that lacks something: `ci/nightly` leaves it out."""
    print(f"error: {error}\nhint: {hint}", file=sys.stderr)
    sys.exit(2)


def tool(program=PROGRAM):
    """The absolute path of the built program; ends without it."""
    if not program.exists():
        release = " --release" if program.parent.name == "release" else ""
        sys.exit(f"error: no {program}\nhint: `cargo build{release}` makes it, PERFQUILT names another")
    return program.resolve()


def run(*words, fails=False, **options):
    """Runs a command; returns what it prints, without the last line's end. Ends where it fails, unless it may (`fails`) and printed something."""
    words = [str(word) for word in words]
    done = subprocess.run(words, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options})
    if done.returncode and not (fails and done.stdout):
        sys.exit(f"error: {shlex.join(words)[:300]}: exit {done.returncode}\n{(done.stderr or done.stdout)[-3000:]}")
    return done.stdout.rstrip("\n")


class Timed:
    """A command that has ended: its exit code and output, wall and processor seconds and peak MB, its children included."""

    def __init__(self, *words, fails=False, **options):
        with tempfile.TemporaryFile() as out:
            started = time.monotonic()
            process = subprocess.Popen([str(word) for word in words], **{"stdout": out, "stderr": out, **options})
            _, status, usage = os.wait4(process.pid, 0)
            self.wall = time.monotonic() - started
            self.code = process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            self.text = out.read().decode(errors="replace")
        self.cpu = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss / 1024
        if self.code and not fails:
            sys.exit(f"error: {' '.join(map(str, words[:6]))} …: exit {self.code}\n{self.text[-3000:]}")


# A busy loop that may pause; it ends with the process that started it.
LOOP = """
import os, random, sys, time
draw = random.Random(int(sys.argv[1]))
while os.getppid() == int(sys.argv[3]):
    end = time.monotonic() + (draw.uniform(0.05, 2) if sys.argv[2] == "1" else 1)
    while time.monotonic() < end:
        pass
    if sys.argv[2] == "1":
        time.sleep(draw.uniform(0.05, 4))
"""


@contextlib.contextmanager
def busy(count, bursts=False):
    """So many busy processes, which pause at random with `bursts`."""
    seeds = random.sample(range(10**6), count)
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(seed), str(int(bursts)), str(os.getpid())]) for seed in seeds]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# ------------------------------------------------------------------------------------------------ experiments


def measure(command, workspace, preset, flags=()):
    """The document of a new experiment, by the `command` of perfquilt."""
    return json.loads(run(*command, "run", "--json", "--quiet", "--fresh", "--preset", preset, *flags, cwd=workspace, fails=True))


def copy_of(source, to):
    """A copy of the workspace with the same objects and no results."""
    to = pathlib.Path(to)
    for name in ("series", "patches", "bench-config", "upstream"):
        path = source / name
        if path.exists():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, to / name)
    objects = source / ".perfquilt/objects.git"
    if objects.exists():
        (to / ".perfquilt").mkdir()
        (to / ".perfquilt/objects.git").symlink_to(objects)
    return to


def measure_copy(command, source, preset, blocks, flags=(), config_of=None):
    """The document and seconds of so many blocks of a copy of the workspace, whose preset measures time only, with the
    configuration `config_of` if given."""
    with tempfile.TemporaryDirectory() as folder:
        config = copy_of(source.resolve(), folder) / "bench-config/perfquilt.toml"
        if config_of:
            shutil.copy(config_of, config)
        head, rest = config.read_text().split(f"[preset.{preset}]", 1)
        rest = re.sub(r"^meters = .*$", 'meters = ["time"]', rest, count=1, flags=re.M)
        config.write_text(f"{head}[preset.{preset}]{rest}")
        started = time.monotonic()
        document = measure(command, folder, preset, ["--resolution", "0", "--blocks", str(blocks), *flags])
        return document, time.monotonic() - started


def alternating(names, rounds):
    """Each round with each name; whichever is first changes from round to round."""
    for number in range(1, rounds + 1):
        for name in list(names)[:: 1 if number % 2 else -1]:
            yield number, name


def effects(document, kind="in_order", meter=None):
    """(patch index, effect) of every effect of that kind, and meter."""
    return [
        (patch["index"], effect)
        for patch in document["patches"]
        for effect in patch["effects"]
        if effect["kind"] == kind and meter in (None, effect["meter"])
    ]


def figure(effect):
    """An effect as text."""
    half = "?" if effect["low"] is None else f"{50 * (effect['high'] - effect['low']):.2f}"
    return f"{100 * effect['estimate']:+.2f} ± {half} %  {effect['verdict'].replace('_', ' ')}"


def half_width(variance, units):
    """Half-width of a 95 % interval over so many units, of an experiment that ends by itself (docs/statistics.md)."""
    if units < 4:
        return math.inf
    # The quantile of Student's distribution, by Fisher and Cornish's expansion.
    z, v = 1.959964, units - 1
    quantile = (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
    return (1 + 1 / units) * quantile * math.sqrt(variance / units)


# ------------------------------------------------------------------------------------------------ planted patches

# What every request of a server runs: a function, and what the planted call comes after, if not its head.
IN_SERVER_C = dict(file="src/server.c", function=r"^int processCommand\(client \*c\) \{\n")
SERVERS = {
    "mariadb": dict(
        original=ROOT, recipe="quick", workload="oltp_read_only", licence="GPL-2.0-only", file="sql/sql_parse.cc",
        function=r"^dispatch_command_return dispatch_command\(", after=r'^  DBUG_ENTER\("dispatch_command"\);\n',
    ),
    "mysql": dict(
        recipe="quick", workload="oltp_point_select", licence="GPL-2.0-only", file="sql/sql_parse.cc",
        function=r"^bool dispatch_command\(THD \*thd, const COM_DATA \*com_data,\n",
        after=r"^  Global_THD_manager \*thd_manager = Global_THD_manager::get_instance\(\);\n",
    ),
    "redis": dict(workload="get", licence="BSD-3-Clause", **IN_SERVER_C),
    "postgresql": dict(
        recipe="quick", workload="point_select", licence="PostgreSQL", file="src/backend/tcop/pquery.c",
        function=r"^bool\nPortalRun\(", after=r"^\tAssert(Arg)?\(PortalIsValid\(portal\)\);\n",
    ),
    "valkey": dict(workload="get", licence="BSD-3-Clause", **IN_SERVER_C),
    "nginx": dict(
        workload="static", licence="BSD-2-Clause", file="src/http/ngx_http_request.c",
        # The type stands on a line of its own.
        function=r"^void\nngx_http_process_request\(ngx_http_request_t \*r\)\n\{\n", after=r"^    c = r->connection;\n",
    ),
    "memcached": dict(
        workload="get", licence="BSD-3-Clause", file="proto_text.c",
        function=r"^(static )?void process_command_ascii\(conn \*c, char \*command\) \{\n", after=r"^    assert\(c != NULL\);\n",
    ),
    # The server of the tests: it answers each byte after some arithmetic.
    "toy": dict(
        original=ROOT / "tests/fixtures/toy", workload="requests", licence="MIT", file="toyd.c",
        function=r"^int main\(", after=r"^    while \(client >= 0 && read\(client, &byte, 1\) == 1\)\n    \{\n",
    ),
}

HEADER = """From: perfquilt contributors <perfquilt@example.invalid>
Date: Sat, 21 Nov 2026 15:00:00 +0000
Subject: [PATCH] {title}

{body}

SPDX-License-Identifier: {licence}
---
"""

# Four instructions a round that wait for each other in pairs: about as many a cycle as servers do. The compiler must not know
# the number of rounds, or it unrolls the loop when there are few.
ROUNDS = """\
  unsigned long x= 1, i= {rounds};
{barrier}  __asm__ volatile ("" : "+r" (i));
  for (; i; i--)
  {{
    x+= i;
    __asm__ volatile ("" : "+r" (x));
    x^= i;
    __asm__ volatile ("" : "+r" (x));
  }}
{barrier}"""
# With a barrier, the processor begins the loop when everything before it is done: then a round takes the same time beside any
# code, instead of hiding behind the server's waits for memory.
BARRIER = """\
#if defined(__x86_64__)
  __asm__ volatile ("lfence" : : : "memory");
#else
  __asm__ volatile ("isb" : : : "memory");
#endif
"""


class Workspace:
    """A copy of the configuration of a server's workspace, with a series of its own and an empty database, in .perfquilt/bench."""

    def __init__(self, name, server, perfquilt, workload=None):
        row = SERVERS[server]
        original = row.get("original", ROOT / "examples" / server)
        self.dir, self.perfquilt = ROOT / ".perfquilt/bench" / name, perfquilt.resolve()
        self.recipe, self.workload, self.licence = row.get("recipe", "make"), workload or row["workload"], row["licence"]
        self.file, self.function, self.after = row["file"], row["function"], row.get("after")
        for folder in ("bench-config", "upstream"):
            shutil.rmtree(self.dir / folder, ignore_errors=True)
            if (original / folder).is_dir():
                shutil.copytree(original / folder, self.dir / folder)
        self.config = self.dir / "bench-config/perfquilt.toml"
        self.config.write_text(self.config.read_text().replace('patches = "patches/', '# patches = "patches/'))
        objects, ours = original / ".perfquilt/objects.git", self.dir / ".perfquilt/objects.git"
        if objects.exists() and not ours.exists():
            ours.parent.mkdir(exist_ok=True)
            ours.symlink_to(objects)
        self.preset("calibrate", meters=["instructions"], blocks=2, count_blocks=3)
        self.series([])
        self.run("upstream", "fetch")
        self.upstream = self.source(self.file)

    def preset(self, name, **keys):
        """Adds a preset to the configuration."""
        keys = {"recipe": self.recipe, "workloads": [self.workload], "block_seconds": 2.0, **keys}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        self.config.write_text("\n".join([self.config.read_text(), f"[preset.{name}]", *lines, ""]))

    def source(self, path):
        """The text of an upstream file, or None."""
        git = ["git", f"--git-dir={self.dir / '.perfquilt/objects.git'}"]
        name, version = (re.search(rf'^{key} = "(.*)"', self.config.read_text(), re.M)[1] for key in ("name", "current"))
        refs = run(*git, "for-each-ref", "--format=%(refname)").split()
        ref = next(ref for ref in refs if ref.endswith(f"/{name}-{version}"))
        found = subprocess.run([*git, "show", f"{ref}:{path}"], capture_output=True)
        return found.stdout.decode("latin-1") if found.returncode == 0 else None

    def series(self, patches):
        """Writes the series: (title, body, {path: (old text, new text)}) each, or (title, body, new text) of the server's file."""
        shutil.rmtree(self.dir / "patches", ignore_errors=True)
        (self.dir / "patches").mkdir()
        names, last = [], None
        for index, (title, body, files) in enumerate(patches, 1):
            if isinstance(files, str):
                last, files = files, {self.file: (last or self.upstream, files)}
            word = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            names.append(f"{index:04}-{word}.patch")
            text = HEADER.format(title=title, body=body, licence=self.licence)
            for path, (old, new) in sorted(files.items()):
                diff = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}")
                text += f"diff --git a/{path} b/{path}\n{''.join(diff)}"
            (self.dir / "patches" / names[-1]).write_text(text, encoding="latin-1")
        (self.dir / "series").write_text("".join(f"{name}\n" for name in names))

    def run(self, *words):
        """Runs perfquilt here; its progress is shown, its output returned."""
        return run(self.perfquilt, *words, cwd=self.dir, stderr=None)

    def measure(self, preset, *flags):
        """The attribution document of a run."""
        return json.loads(self.run("run", "--preset", preset, "--json", *flags))

    def inserted(self, work, call="planted_work();"):
        """Upstream's file with `work`, which defines a function, and a call of it in what every request runs."""
        text = self.upstream
        head = re.search(self.function, text, re.M)
        at = re.compile(self.after, re.M).search(text, head.end()).end() if self.after else head.end()
        return text[: head.start()] + work + text[head.start() : at] + f"  {call}\n" + text[at:]

    def planted(self, rounds, barrier=""):
        """Upstream's file with that many rounds of work in it, between barriers if one is given."""
        body = ROUNDS.format(rounds=rounds, barrier=barrier)
        return self.inserted(f"/* Work of known size. */\nstatic __attribute__((noinline)) void planted_work(void)\n{{\n{body}}}\n\n")

    def chain(self, rounds, barrier=""):
        """Writes a series whose points have that many rounds; a patch that does not change their number adds a function that
        nobody calls."""
        last, uncalled, series = 0, "", []
        for index, count in enumerate(rounds, 1):
            title, body = f"plant {count} rounds", "Work of known size."
            if count == last:
                title, body = f"null patch {index}", "A function that nobody calls: code moves, nothing else changes."
                uncalled += dead(index, self.file, 512 + 64 * index)
            series.append((title, body, (self.planted(count, barrier) if count else self.upstream) + uncalled))
            last = count
        self.series(series)

    def costs(self, rounds, barrier="", meter="instructions", preset="calibrate"):
        """The cost of points with that many rounds, as multiples of the base's; measured with a preset that has the meter."""
        self.chain(rounds, barrier)
        cost, costs = 1.0, []
        for _, effect in effects(self.measure(preset), meter=meter):
            cost /= 1 + effect["estimate"]
            costs.append(cost)
        return costs

    def cost_of_rounds(self, many=1000, **options):
        """What a call costs, and what a round costs, in shares of the base's cost."""
        few = 200
        with_few, with_many = self.costs([few, many], **options)
        round_ = (with_many - with_few) / (many - few)
        return with_few - 1 - few * round_, round_


def dead(index, path, size):
    """A function of `size` bytes that nobody calls."""
    name = f"perfquilt_dead_{index}_" + re.sub(r"\W", "_", path)
    linkage = 'extern "C" ' if path.endswith(".cc") else ""
    return (
        f"\n{linkage}void {name}(void);\n"
        f'{linkage}void {name}(void) {{ __asm__ volatile (".skip {size}, 0x90"); }}\n'
    )

# ------------------------------------------------------------------------------------------------ the bot

PATCH = "0001-fewer-rounds.patch"
SECRET = "0123456789abcdef0123456789abcdef"
ALICE = {"login": "alice", "type": "User"}


class Place:
    """A workspace of the toy server of the tests, with homes and caches of its own."""

    def __init__(self, folder, blocks, program=PROGRAM):
        self.program = tool(program)
        self.folder = pathlib.Path(folder)
        self.workspace = self.folder / "workspace"
        shutil.copytree(ROOT / "tests/fixtures/toy", self.workspace)
        for name in ("home", "cache", "tmp"):
            (self.folder / name).mkdir()
        self.config = self.workspace / "bench-config/perfquilt.toml"
        self.config.write_text(self.config.read_text().replace("blocks = 5", f"blocks = {blocks}"))

    def start(self, *words, more=(), **options):
        own = {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.Popen([self.program, "-C", self.workspace, *words], cwd=self.workspace,
                                env={"PATH": os.environ["PATH"], **own, **dict(more)}, **options)

    def left(self):
        """The command lines of the processes that have this place in their arguments."""
        return [line for line in command_lines() if str(self.folder) in line]

    def wait_for_quiet(self):
        wait_for(lambda: not self.left(), 30, lambda: f"processes are left: {self.left()}")

    def plant(self, rounds):
        """Gives the patch so many rounds, so that there is something to build and to measure."""
        patch = self.workspace / "patches" / PATCH
        patch.write_text(re.sub(r"\+#define ROUNDS \d+u", f"+#define ROUNDS {rounds}u", patch.read_text()))


def wait_for(happened, seconds, complaint):
    """Waits until something happened; ends with the complaint, if it does not in time."""
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            sys.exit(f"error: {complaint()}")
        time.sleep(0.02)


def command_lines():
    """The command lines of all other processes, with blanks between words."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid():
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


class GitHub(http.server.BaseHTTPRequestHandler):
    """What the bot asks of GitHub, about one pull request; made up, on loopback."""

    head = "0" * 40
    comments = {}

    @classmethod
    def serve(cls):
        """Serves it, in a thread that ends with the program; returns its address."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), cls)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    def log_message(self, *_):
        pass

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def comment(self, number):
        user = {"login": "bot", "id": 1, "type": "User"}
        return {"id": number, "body": self.comments[number], "user": user, "html_url": "http://127.0.0.1/x",
                "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}

    def do_GET(self):
        if self.path.split("?")[0].endswith("/comments"):
            self.answer(200, [self.comment(number) for number in sorted(self.comments)])
        elif "/pulls/" in self.path:
            ref = {"sha": "1" * 40, "ref": "main"}
            self.answer(200, {"number": 7, "state": "open", "head": {"sha": GitHub.head, "ref": "x"}, "base": ref})
        else:
            self.answer(200, {"login": "bot", "id": 1})

    def do_POST(self):
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/reactions"):
            self.answer(201, {"id": 1, "content": "rocket"})
            return
        number = int(self.path.split("/")[-1]) if self.command == "PATCH" else max(self.comments, default=1000) + 1
        self.comments[number] = document["body"]
        self.answer(200 if self.command == "PATCH" else 201, self.comment(number))

    do_PATCH = do_POST


class Bot:
    """A bot on a bare repository in a place, which can be killed and started again."""

    def __init__(self, place, api, more=""):
        self.place, self.api, self.said = place, api, []
        self.repository, self.checkout = place.folder / "forge.git", place.folder / "checkout"
        place.config.write_text(f'{place.config.read_text()}\n[bot]\nrepository = "acme/series"\nremote = "{self.repository}"\n{more}')
        git(place.folder, "init", "--quiet", "--bare", self.repository)
        git(place.folder, "init", "--quiet", self.checkout)

    def push(self):
        """Makes the first patch of the place the pull request."""
        shutil.copytree(self.place.workspace / "patches", self.checkout / "patches", dirs_exist_ok=True)
        (self.checkout / "series").write_text(PATCH + "\n")
        git(self.checkout, "add", "--all")
        git(self.checkout, "commit", "--quiet", "--allow-empty", "-m", "x")
        git(self.checkout, "push", "--quiet", "--force", self.repository, "HEAD:refs/pull/7/head")
        GitHub.head = git(self.checkout, "rev-parse", "HEAD")

    def start(self):
        more = {"GITHUB_TOKEN": "x", "GITHUB_API_URL": self.api, "PERFQUILT_WEBHOOK_SECRET": SECRET, "PERFQUILT_LOGIN": "bot"}
        self.process = self.place.start("bot", "serve", "--listen", "127.0.0.1:0", more=more.items(),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stream, self.said = self.process.stderr, []
        for line in stream:
            self.said.append(line)
            if "http://" in line:
                self.address = line.split("listening at ")[1].strip()
                break
        else:
            sys.exit(f"error: the bot does not listen: {''.join(self.said)}")
        threading.Thread(target=lambda: self.said.extend(stream), daemon=True).start()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.place.wait_for_quiet()

    def stop(self):
        """Ends it by SIGTERM; returns how many seconds that took."""
        started = time.monotonic()
        self.process.terminate()
        if code := self.process.wait(timeout=60):
            sys.exit(f"error: the bot ended with {code}: {self.said[-5:]}")
        took = time.monotonic() - started
        self.place.wait_for_quiet()
        return took

    def deliver(self, number):
        """Delivers a comment that asks for a run; returns the answer's status."""
        issue = {"number": 7, "state": "open", "pull_request": {}, "user": ALICE, "author_association": "OWNER"}
        comment = {"id": number, "body": "@perfquilt run", "user": ALICE, "author_association": "OWNER"}
        headers, body = delivery(number, "issue_comment", action="created", issue=issue, comment=comment)
        with urllib.request.urlopen(urllib.request.Request(self.address + "/webhook", body, headers)) as answer:
            return answer.status

    def status(self):
        with urllib.request.urlopen(self.address + "/status.json") as answer:
            return json.load(answer)


def delivery(number, event, **document):
    """The headers and the signed body of a webhook's delivery."""
    body = json.dumps({"repository": {"full_name": "acme/series"}, **document}).encode()
    tag = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {"Content-Type": "application/json", "X-GitHub-Event": event, "X-GitHub-Delivery": f"d-{number}",
            "X-Hub-Signature-256": f"sha256={tag}"}, body


def git(folder, *words):
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    return run("git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words, cwd=folder, env=environment)


# ------------------------------------------------------------------------------------------------ Debian's packages

# A workspace of a package's series, for commands that build nothing.
PACKAGE = """[upstream]
name = "x"
current = "1"
release = [{releases}]
[recipe]
[preset]
[server]
adapter = "mariadb"
"""


def package_workspace(folder, patches, *trees):
    """A workspace with the patches, whose releases 1, 2 … are the trees."""
    releases = ", ".join(f'{{ version = "{version}", directory = "{tree}" }}' for version, tree in enumerate(trees, 1))
    (folder / "bench-config").mkdir(parents=True)
    (folder / "bench-config/perfquilt.toml").write_text(PACKAGE.format(releases=releases))
    shutil.copytree(patches, folder / "patches", symlinks=True)
    return folder


def apt(work, *suites):
    """The environment of an apt with lists of its own, of these suites' sources; the machine's files are not touched."""
    folder = work / "apt"
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lists = [*pathlib.Path("/etc/apt").glob("sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
    texts = [file.read_text() for file in lists]
    mirrors = [re.search(r"^(?:URIs:|deb(?:-src)?(?: +\[[^]]*\])?) *(\S+/debian/?)(?:\s|$)", text, re.M) for text in texts]
    text, mirror = next(((text, found[1]) for text, found in zip(texts, mirrors) if found), ("", None))
    if not mirror:
        sys.exit("error: no Debian mirror in /etc/apt/sources.list.d")
    keys = re.search(r"signed-by(?::\s*|=)(/[^]\s]+)", text, re.I)
    keys = keys[1] if keys else "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "parts/own.sources").write_text(
        f"Types: deb-src\nURIs: {mirror}\nSuites: {' '.join(suites)}\nComponents: main\nSigned-By: {keys}\n"
    )
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{folder}/parts";\n'
        f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
        'Acquire::Languages "none";\nAPT::Sandbox::User "root";\n'
    )
    env = dict(os.environ, APT_CONFIG=str(folder / "apt.conf"))
    if not any((folder / "lists").glob("*Sources")):
        subprocess.run(["apt-get", "-qq", "update"], env=env, check=True)
    return env


def debian_source(folder, env, package, suite):
    """Downloads and unpacks a source package: upstream's tree without applied patches (`tree`), and its `patches`. Returns its
    version, or None where this fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        get = ["apt-get", "-qq", "--download-only", "--only-source", "-t", suite, "source", package]
        subprocess.run(get, cwd=folder, env=env, check=True, capture_output=True, text=True)
        dsc = next(folder.glob("*.dsc"))
        unpack = ["dpkg-source", "--skip-patches", "--no-check", "-x", dsc, folder / "tree"]
        subprocess.run(unpack, check=True, capture_output=True, text=True)
        shutil.move(folder / "tree/debian/patches", folder / "patches")
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"note: {package} cannot be had from {suite}: {getattr(error, 'stderr', error)}", file=sys.stderr)
        return None
    shutil.rmtree(folder / "tree/.pc", ignore_errors=True)
    return re.search(r"^Version: (.*)$", dsc.read_text(errors="replace"), re.M)[1]
