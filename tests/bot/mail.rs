//! `perfquilt bot mail`: series of patches arrive in an inbox, and one answer goes into the thread.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use super::world::{commit_all, git};
use crate::common::{Finished, TestEnvironment};

const SETTINGS: &str = "from = \"perfquilt <perf@example.org>\"\nsenders = [\"dev@example.org\", \"@team.example.net\"]\n\
                        authserv_id = \"mx.example.org\"\ncc = [\"list@example.org\"]\n";
/// What the mail server writes about mails of the developer.
const SIGNED: &str = "Authentication-Results: mx.example.org; dkim=pass header.d=example.org\n";

/// A bot with an inbox, and a developer with a clone of the server's repository.
struct Mails {
    environment: TestEnvironment,
    clone: PathBuf,
    inbox: PathBuf,
    outbox: PathBuf,
    /// The number of series that were written.
    written: std::cell::Cell<u32>,
}

impl Mails {
    fn new() -> Self {
        Mails::with("kind = \"fork\"", "maildir = \"../out\"")
    }

    fn with(bot: &str, mail: &str) -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        let around = environment.workspace().parent().unwrap().to_owned();
        let (repository, clone) = (around.join("server.git"), around.join("clone"));
        let file = environment.workspace().join("bench-config/perfquilt.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let remote = repository.display();
        std::fs::write(
            file,
            format!("{text}\n[bot]\nrepository = \"acme/toy\"\nforge = \"mail\"\nremote = \"{remote}\"\n{bot}\n[bot.mail]\ninbox = \"../in\"\n{SETTINGS}{mail}\n"),
        )
        .unwrap();
        crate::common::copy(&environment.workspace().join("upstream"), &clone);
        git(&clone, &["init", "--quiet", "--initial-branch=main", "."]);
        commit_all(&clone, "the server");
        git(
            &clone,
            &[
                "clone",
                "--quiet",
                "--bare",
                ".",
                repository.to_str().unwrap(),
            ],
        );
        for folder in ["new", "cur", "tmp"] {
            std::fs::create_dir_all(around.join("in").join(folder)).unwrap();
        }
        Mails {
            clone,
            written: Default::default(),
            inbox: around.join("in"),
            outbox: around.join("out"),
            environment,
        }
    }

    fn edit(&self, from: &str, to: &str, message: &str) {
        let path = self.clone.join("work.h");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replace(from, to)).unwrap();
        commit_all(&self.clone, message);
    }

    /// The mails of the last `count` commits as `git format-patch` writes them, by the developer.
    fn series(&self, count: usize, words: &[&str]) -> Vec<String> {
        // Git's Message-IDs are those of the second.
        self.written.set(self.written.get() + 1);
        let host = format!(".{}@x>", self.written.get());
        let folder = self.clone.parent().unwrap().join("patches");
        let _ = std::fs::remove_dir_all(&folder);
        let output = format!("-o{}", folder.display());
        let last = format!("-{count}");
        let format = [
            "format-patch",
            "--quiet",
            "--thread",
            "--from=A Dev <dev@example.org>",
            &output,
            &last,
        ];
        git(&self.clone, &[&format, words].concat());
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().path())
            .collect();
        files.sort();
        files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap())
            .map(|mail| {
                mail.replace(" <t@example.org>", " <dev@example.org>")
                    .replace(".t@example.org>", &host)
                    .replace(".git@x>", &host)
            })
            .collect()
    }

    /// Puts a mail into the inbox, behind what the mail server writes.
    fn arrives(&self, name: &str, head: &str, mail: &str) {
        let mail = mail
            .split_once('\n')
            .filter(|(first, _)| first.starts_with("From "))
            .map_or(mail, |(_, rest)| rest);
        std::fs::write(self.inbox.join("new").join(name), format!("{head}{mail}")).unwrap();
    }

    /// The mails of a series of so many changes.
    fn edit_and_write(&self, count: usize) -> Vec<String> {
        for at in 0..count {
            let (from, to) = (100_000 >> at, 100_000 >> (at + 1));
            self.edit(
                &format!("{from}u"),
                &format!("{to}u"),
                &format!("work: change {at}"),
            );
        }
        self.series(count, &["--cover-letter"])
    }

    fn series_arrives(&self, mails: &[String]) {
        for (at, mail) in mails.iter().enumerate() {
            self.arrives(&format!("{}-{at}", id(mail)), SIGNED, mail);
        }
    }

    fn runs(&self) -> Finished {
        let finished = self.environment.run(&["bot", "mail", "--once"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        println!("{}", finished.stderr);
        finished
    }

    /// The answers that were sent.
    fn answers(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.outbox.join("new")) else {
            return Vec::new();
        };
        let answers = entries.map(|it| std::fs::read_to_string(it.unwrap().path()).unwrap());
        answers.collect()
    }

    /// The number of jobs that there were.
    fn areas(&self) -> usize {
        let queue = self.environment.path(".perfquilt/bot/areas");
        std::fs::read_dir(queue).map_or(0, Iterator::count)
    }

    /// The only answer.
    fn answer(&self) -> String {
        let answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:#?}");
        answers.into_iter().next().unwrap()
    }
}

/// The Message-ID of a mail.
fn id(mail: &str) -> &str {
    field(mail, "Message-Id").trim_matches(['<', '>'])
}

/// The field of a mail; empty if it has none.
fn field<'a>(mail: &'a str, name: &str) -> &'a str {
    let mut lines = mail.lines().take_while(|line| !line.is_empty());
    let value = lines.find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    });
    value.unwrap_or_default()
}

/// The text of an answer.
fn text(mail: &str) -> String {
    mail.split_once("\n\n").unwrap().1.to_owned()
}

fn reply(to: &str, from: &str, line: &str) -> String {
    format!(
        "Message-Id: <reply-{}@x>\nFrom: {from}\nIn-Reply-To: <{to}>\nSubject: Re: [PATCH] x\n\n> perfquilt: measure\n{line}\n",
        line.len()
    )
}

#[test]
fn a_series_with_a_cover_letter_is_measured_and_answered_once() {
    let mails = Mails::new();
    mails.edit("100000u", "400u", "work: fewer rounds");
    mails.edit("400u", "200u", "work: still fewer");
    let base = git(&mails.clone, &["rev-parse", "HEAD~2"]);
    let series = mails.series(2, &["--cover-letter", "--base=HEAD~2"]);
    assert!(series[0].contains(&format!("base-commit: {base}")));
    // The branch goes on.
    git(&mails.clone, &["checkout", "--quiet", "--detach", "HEAD~2"]);
    mails.edit("100000u", "90000u", "later");
    let remote = mails.clone.parent().unwrap().join("server.git");
    git(
        &mails.clone,
        &["push", "--quiet", remote.to_str().unwrap(), "HEAD:main"],
    );
    let cover = series[0]
        .replace(
            "*** SUBJECT HERE ***",
            "=?utf-8?q?faster=0D=0ABcc:_victim@example.com?=",
        )
        .replace("To: ", "Cc: one@example.net, two@example.net\nTo: ");
    // Out of order, with a list's footer, and one of them by two ways.
    mails.arrives(
        "3",
        SIGNED,
        &format!(
            "{}_______\nlist mailing list\nlist@example.org\n",
            series[2]
        ),
    );
    // No date counts.
    let skewed = series[1].replace(
        "\nDate: ",
        "\nDate: Thu, 1 Jan 1970 00:00:00 +0000\nX-Date: ",
    );
    mails.arrives("2", SIGNED, &skewed);
    mails.arrives("1", "", &series[1]);
    mails.arrives(
        "9",
        &format!("{SIGNED}Precedence: list\nList-Id: <list.example.org>\n"),
        &cover,
    );
    mails.runs();
    let answer = mails.answer();
    assert_eq!(field(&answer, "To"), "<dev@example.org>");
    assert_eq!(field(&answer, "Cc"), "<list@example.org>");
    assert_eq!(field(&answer, "From"), "perfquilt <perf@example.org>");
    assert_eq!(
        field(&answer, "Subject"),
        "Re: [PATCH 0/2] faster Bcc: victim@example.com"
    );
    assert_eq!(field(&answer, "In-Reply-To"), format!("<{}>", id(&cover)));
    assert_eq!(field(&answer, "References"), format!("<{}>", id(&cover)));
    assert_eq!(field(&answer, "Auto-Submitted"), "auto-replied");
    assert!(
        field(&answer, "Content-Type").contains("text/plain"),
        "{answer}"
    );
    assert!(
        answer.contains("format=fixed") || answer.contains("format=\"fixed\""),
        "{answer}"
    );
    assert!(
        !answer.contains("\nBcc") && !answer.contains("example.net"),
        "{answer}"
    );
    let text = text(&answer);
    assert!(text.starts_with("The series is "), "{text}");
    assert!(
        text.contains("work: fewer rounds") && text.contains("work: still fewer"),
        "{text}"
    );
    assert!(
        !text.contains("later") && text.contains(&base[..12]),
        "{text}"
    );
    assert!(!text.contains("<!--") && !text.contains("**"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 72, "{line}");
    }
    // Its own answer in the inbox, an automatic reply, and the mails again answer nothing.
    mails.arrives("20", "", &answer);
    mails.arrives(
        "21",
        "Auto-Submitted: auto-replied\n",
        &reply(id(&cover), "dev@example.org", "perfquilt: measure"),
    );
    mails.arrives(
        "22",
        SIGNED,
        &reply(id(&cover), "dev@example.org", "perfquilt: measure"),
    );
    mails.arrives("23", SIGNED, &series[1]);
    mails.runs();
    assert_eq!(mails.answers(), std::slice::from_ref(&answer));
    // Two weeks later, the bot has forgotten the mails, which come again.
    let file = mails.environment.path(".perfquilt/bot/mail/state.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    state["letters"] = serde_json::json!({});
    state["position"] = serde_json::json!({});
    std::fs::write(&file, state.to_string()).unwrap();
    let damaged = mails.environment.run(&["bot", "mail", "--once"]);
    assert_eq!(damaged.code, Some(2), "{}", damaged.stderr);
    assert!(damaged.stderr.contains("digest"), "{}", damaged.stderr);
    state.as_object_mut().unwrap().remove("sha256").unwrap();
    std::fs::write(&file, state.to_string()).unwrap();
    let said = mails.runs().stderr;
    assert!(!said.contains("series"), "{said}");
    assert_eq!(mails.answers(), [answer]);
}

/// The server's change of one patch, which the tests of errors do not measure.
fn one_patch(mails: &Mails) -> String {
    mails.edit("100000u", "400u", "work: fewer rounds");
    mails.series(1, &[]).remove(0)
}

#[test]
fn what_cannot_be_measured_is_answered_with_the_next_step() {
    let mails = Mails::with("kind = \"fork\"", "maildir = \"../out\"\nwait_minutes = 0");
    let answered = |series: &[String], words: &[&str]| {
        let _ = std::fs::remove_dir_all(&mails.outbox);
        mails.series_arrives(series);
        mails.runs();
        let answer = mails.answer();
        let first = series.first().unwrap();
        assert_eq!(field(&answer, "In-Reply-To"), format!("<{}>", id(first)));
        let text = text(&answer).replace('\n', " ");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(text.contains("Next: "), "{text}");
    };
    mails.edit("100000u", "400u", "work: one");
    mails.edit("400u", "300u", "work: two");
    mails.edit("300u", "200u", "work: three");
    let base = git(&mails.clone, &["rev-parse", "HEAD~3"]);
    let mut lacks = mails.series(3, &["--cover-letter", "--subject-prefix=PATCH a"]);
    lacks.remove(2);
    answered(
        &lacks,
        &["1 patch of 3 did not arrive: 2", "git format-patch -v2"],
    );
    // What comes too late changes nothing, and nothing is said again.
    mails.series_arrives(&lacks);
    mails.runs();
    mails.answer();
    let two = |prefix: &str| {
        let prefix = format!("--subject-prefix=PATCH {prefix}");
        mails.series(3, &["--cover-letter", &format!("--base={base}"), &prefix])
    };
    let mut bases = two("b");
    bases[1] += &format!("\nbase-commit: {}\n", "1".repeat(40));
    answered(&bases, &["two base commits", &base, &"1".repeat(40)]);
    let unknown: Vec<String> = two("c")
        .iter()
        .map(|mail| mail.replace(&base, &"2".repeat(40)))
        .collect();
    answered(
        &unknown,
        &["no branch has the base commit", &"2".repeat(40)],
    );
    // A commit that is there but on no branch.
    let loose = two("d")
        .iter()
        .map(|mail| mail.replace(&base, &git(&mails.clone, &["rev-parse", "HEAD"])))
        .collect::<Vec<_>>();
    answered(&loose, &["no branch has the base commit"]);
    let wrong: Vec<String> = two("e")
        .iter()
        .map(|mail| mail.replace("-#define ROUNDS 400u", "-#define ROUNDS 401u"))
        .collect();
    answered(
        &wrong,
        &[
            "0002-work-two.patch",
            "does not apply to work.h",
            "rebase the series on",
        ],
    );
    // A mail program broke a line.
    let mut broken = mails.series(1, &["--subject-prefix=PATCH i"]);
    broken[0] = broken[0].replace("+#define ROUNDS", "+#define\nROUNDS");
    answered(
        &broken,
        &[
            "mail 1 (work: three):13: this line",
            "unchanged (`git send-email`)",
        ],
    );
    // Compressed, so that it is no text.
    let mut attached = mails.series(1, &["--subject-prefix=PATCH f"]);
    let (head, _) = attached[0].split_once("\n\n").unwrap();
    attached[0] = format!(
        "{head}\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nSee there.\n--b\n\
         Content-Type: application/gzip\nContent-Disposition: attachment; filename=x.patch.gz\n\
         Content-Transfer-Encoding: base64\n\nH4sIAAAAAAAAA8vIBACsKpPYAgAAAA==\n--b--\n"
    );
    answered(&attached, &["has no patch", "not as an attachment"]);
    let mut twice = two("g");
    let again = twice[2].replace(id(&twice[2]), "again@x");
    twice.push(again);
    answered(&twice, &["mail 2 of 3 is there twice", "again@x"]);
    // Nothing of all that was a job.
    assert_eq!(mails.areas(), 0);
}

#[test]
fn who_is_not_allowed_waits_for_an_approval() {
    let mails = Mails::new();
    let patch = one_patch(&mails);
    // Only below the topmost field of the own server, where anybody can write.
    let forged = format!("Authentication-Results: mx.example.org; dkim=none\n{SIGNED}");
    mails.arrives("1", &forged, &patch);
    let none = Mails::answers;
    let waits = mails.runs().stderr;
    assert!(
        waits.contains("waits until one of `senders` replies"),
        "{waits}"
    );
    for (name, head, mail) in [
        (
            "2",
            "",
            reply(id(&patch), "dev@example.org", "perfquilt: measure"),
        ),
        (
            "3",
            SIGNED,
            reply(id(&patch), "x@evil.net", "perfquilt: measure "),
        ),
        (
            "4",
            SIGNED,
            reply(id(&patch), "dev@example.org", "> perfquilt: measure"),
        ),
        (
            "5",
            SIGNED,
            reply("other@x", "dev@example.org", " perfquilt: measure"),
        ),
    ] {
        mails.arrives(name, head, &mail);
    }
    assert!(!mails.runs().stderr.contains("waits until"));
    assert!(none(&mails).is_empty());
    // A member of the team.
    let signed = SIGNED.replace("d=example.org", "d=team.example.net");
    let approval = reply(
        id(&patch),
        "Lead <lead@team.example.net>",
        "perfquilt: measure\r",
    );
    mails.arrives("6", &signed, &approval.replace("<reply-", "<approval-"));
    mails.runs();
    let answer = mails.answer();
    assert_eq!(field(&answer, "To"), "<dev@example.org>");
    let text = text(&answer);
    assert!(text.starts_with("The series is "), "{text}");
    assert!(!text.contains("nobody has approved"), "{text}");
}

#[test]
fn a_later_version_takes_the_place_of_one_that_waits() {
    let mails = Mails::new();
    let (first, second) = versions(&mails);
    // A bot that was killed right after it had queued the first version.
    mails.series_arrives(&first);
    let mut command = mails.environment.command(&["bot", "mail"]);
    let mut bot = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(bot.stderr.take().unwrap()).lines();
    let begins = |line: &String| line.starts_with("job 1: run");
    assert!(lines.map_while(Result::ok).any(|line| begins(&line)));
    bot.kill().unwrap();
    bot.wait().unwrap();
    mails.series_arrives(&second);
    mails.runs();
    let said = |to: &str| {
        let answers = mails.answers();
        assert_eq!(answers.len(), 2, "{answers:#?}");
        let to = format!("<{to}>");
        let own = answers
            .iter()
            .find(|answer| field(answer, "In-Reply-To") == to);
        text(own.unwrap())
    };
    let old = said(id(&first[0]));
    assert!(
        old.contains("version 2 of the series took its place"),
        "{old}"
    );
    assert!(said(id(&second[0])).starts_with("The series is "));
    mails.runs();
    assert_eq!(mails.answers().len(), 2);
}

/// Two versions of a patch.
fn versions(mails: &Mails) -> (Vec<String>, Vec<String>) {
    mails.edit("100000u", "400u", "work: fewer rounds");
    let first = mails.series(1, &[]);
    let reply = format!("--in-reply-to={}", id(&first[0]));
    (first, mails.series(1, &["-v2", &reply]))
}

#[test]
fn versions_that_come_together_are_the_last_one() {
    let mails = Mails::new();
    let (first, second) = versions(&mails);
    mails.series_arrives(&second);
    mails.series_arrives(&first);
    // The repository is away.
    let remote = mails.clone.parent().unwrap().join("server.git");
    let away = remote.with_extension("away");
    std::fs::rename(&remote, &away).unwrap();
    let said = mails.runs().stderr;
    assert!(said.contains("cannot fetch what series apply to"), "{said}");
    assert!(mails.answers().is_empty());
    std::fs::rename(&away, &remote).unwrap();
    mails.runs();
    assert_eq!(
        field(&mails.answer(), "In-Reply-To"),
        format!("<{}>", id(&second[0]))
    );
}

#[test]
fn an_answer_is_handed_over_again_as_the_same_mail() {
    let mails = Mails::with(
        "kind = \"fork\"",
        "sendmail = [\"./mailer\", \"-t\"]\nwait_minutes = 0",
    );
    let mailer = "#!/bin/sh\necho \"$@\" >> said\ncat > \"mail-$(wc -l < said)\"\ntest -e killed || { touch killed; kill -9 $PPID; }\ntest -e takes\n";
    let script = mails.environment.path("mailer");
    std::fs::write(&script, mailer).unwrap();
    mails.environment.executable("mailer");
    let mut broken = mails.edit_and_write(2);
    broken.pop();
    mails.series_arrives(&broken);
    // Killed when the mail is on its way; then it is told that it is not taken.
    let killed = mails.environment.run(&["bot", "mail", "--once"]);
    assert_eq!(killed.code, None, "{}", killed.stderr);
    let stderr = mails.runs().stderr;
    assert!(
        stderr.contains("did not take the answer") && stderr.contains("hands it over again"),
        "{stderr}"
    );
    std::fs::write(mails.environment.path("takes"), "").unwrap();
    mails.runs();
    mails.runs();
    let read = |name: &str| mails.environment.read(name);
    assert_eq!(read("said"), "-t\n-t\n-t\n-t\n");
    assert_eq!(read("mail-1"), read("mail-4"));
    assert!(field(&read("mail-1"), "Message-ID").starts_with("<perfquilt."));
    // A Maildir takes it once, also if the bot is killed before it notes that.
    let mails = Mails::with("kind = \"fork\"", "maildir = \"../out\"\nwait_minutes = 0");
    let mut broken = mails.edit_and_write(2);
    broken.pop();
    mails.series_arrives(&broken);
    mails.runs();
    let answer = mails.answer();
    let name = std::fs::read_dir(mails.outbox.join("new"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let seen = mails
        .outbox
        .join("cur")
        .join(format!("{}:2,S", name.file_name().display()));
    let state = mails.environment.read(".perfquilt/bot/mail/state.json");
    assert!(state.contains("\"sent\":true"));
    // Another program writes no digest.
    let (state, _) = state.rsplit_once(",\"sha256\"").unwrap();
    std::fs::write(
        mails.environment.path(".perfquilt/bot/mail/state.json"),
        state.replace("\"sent\":true", "\"sent\":false") + "}",
    )
    .unwrap();
    std::fs::rename(name.path(), &seen).unwrap();
    mails.runs();
    assert!(mails.answers().is_empty());
    assert_eq!(std::fs::read_to_string(seen).unwrap(), answer);
}

#[test]
fn a_series_of_patches_is_changed_by_mail() {
    let mails = Mails::with("kind = \"series\"", "maildir = \"../out\"");
    let folder = &mails.clone;
    let workspace = mails.environment.workspace();
    git(folder, &["checkout", "--quiet", "--orphan", "series"]);
    git(folder, &["rm", "-rfq", "."]);
    std::fs::write(folder.join("series"), "# none yet\n").unwrap();
    commit_all(folder, "no patches");
    let remote = folder.parent().unwrap().join("server.git");
    git(
        folder,
        &[
            "push",
            "--quiet",
            "--force",
            remote.to_str().unwrap(),
            "HEAD:main",
        ],
    );
    crate::common::copy(&workspace.join("patches"), &folder.join("patches"));
    std::fs::write(folder.join("series"), "0001-fewer-rounds.patch\n").unwrap();
    commit_all(folder, "add a patch");
    mails.series_arrives(&mails.series(1, &[]));
    mails.runs();
    let told = text(&mails.answer());
    assert!(
        told.contains("0001-few") && told.contains("verdict"),
        "{told}"
    );
    // A patch to the server is none of the series.
    std::fs::write(folder.join("README"), "x\n").unwrap();
    commit_all(folder, "something else");
    std::fs::remove_dir_all(&mails.outbox).unwrap();
    mails.series_arrives(&mails.series(1, &["--base=HEAD~2"]));
    mails.runs();
    let told = text(&mails.answer()).replace('\n', " ");
    assert!(
        told.contains("change neither `series` nor `patches/`") && told.contains("kind = \"fork\""),
        "{told}"
    );
}

#[test]
fn settings_that_cannot_work_are_named() {
    let mails = Mails::new();
    let file = "bench-config/perfquilt.toml";
    let fails = |from: &str, to: &str, words: &str| {
        mails.environment.replace(file, from, to);
        let finished = mails.environment.run(&["bot", "mail", "--once"]);
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(
            finished.stderr.contains(words),
            "{words}: {}",
            finished.stderr
        );
        mails.environment.replace(file, to, from);
    };
    fails(
        "forge = \"mail\"",
        "forge = \"github\"",
        "`forge = \"mail\"` in [bot] is missing",
    );
    fails(
        "authserv_id = \"mx.example.org\"",
        "trust_from = false",
        "`authserv_id` is missing",
    );
    fails(
        "cc = [\"list@example.org\"]",
        "cc = [\"list\\nBcc: x@y\"]",
        "is no mail address",
    );
    fails(
        "inbox = \"../in\"",
        "inbox = \"../out\"",
        "neither a Maildir nor a public-inbox",
    );
    let state = mails.environment.path(".perfquilt/bot/mail/state.json");
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::fs::write(&state, "{").unwrap();
    fails(
        "cc = [\"list@example.org\"]",
        "cc = []",
        "the file of the mails is damaged",
    );
    // It does not listen for webhooks.
    let mut serve = mails.environment.command(&["bot", "serve"]);
    let output = serve
        .env("PERFQUILT_WEBHOOK_SECRET", "0123456789abcdef")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`mail` is no forge"), "{said}");
}

#[test]
fn mails_nobody_can_be_answered_are_named_and_passed_over() {
    let mails = Mails::new();
    let patch = one_patch(&mails);
    let without = patch.lines().filter(|line| !line.starts_with("Message-I"));
    mails.arrives("1", SIGNED, &without.collect::<Vec<_>>().join("\n"));
    mails.arrives(
        "2",
        SIGNED,
        &patch.replacen('\n', &format!("\nX: {}\n", "x".repeat(5 << 20)), 1),
    );
    mails.arrives("3", "", "");
    let said = mails.runs().stderr;
    for words in [
        "in/new/1 is skipped: it has no Message-ID",
        "in/new/2 is skipped: it is larger than 4 MiB",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(mails.answers().is_empty());
    assert!(!mails.runs().stderr.contains("skipped"));
}

/// A public-inbox of version 2 has a repository for each epoch, with a mail in each commit; one of version 1 has folders.
#[test]
fn a_public_inbox_is_read_from_where_it_was_left() {
    for version in [1, 2] {
        let mails = Mails::with("kind = \"fork\"", "maildir = \"../out\"\nwait_minutes = 0");
        let mut series = mails.edit_and_write(2);
        std::fs::remove_dir_all(&mails.inbox).unwrap();
        let work = mails.clone.parent().unwrap().join("archive");
        std::fs::create_dir_all(work.join("0a")).unwrap();
        git(&work, &["init", "--quiet", "--initial-branch=master", "."]);
        let add = |name: &str, mail: &str, epoch: u32| {
            std::fs::write(
                work.join(name),
                format!("{SIGNED}{}", mail.split_once('\n').unwrap().1),
            )
            .unwrap();
            commit_all(&work, "a mail");
            let bare = match version {
                1 => mails.inbox.clone(),
                _ => mails.inbox.join(format!("git/{epoch}.git")),
            };
            if !bare.exists() {
                git(
                    &work,
                    &["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()],
                );
            }
            git(
                &work,
                &[
                    "push",
                    "--quiet",
                    "--force",
                    bare.to_str().unwrap(),
                    "HEAD:master",
                ],
            );
        };
        let name = |of: u32| {
            if version == 1 {
                format!("0a/{of}")
            } else {
                "m".to_owned()
            }
        };
        let last = series.pop().unwrap();
        for (at, mail) in series.iter().enumerate() {
            add(&name(at as u32), mail, 0);
        }
        mails.runs();
        let answer = mails.answer();
        assert!(
            text(&answer).contains("1 patch of 2 did not arrive"),
            "{answer}"
        );
        add(&name(9), &last, 1);
        // The answer comes back by the list.
        add(&name(10), &format!("From x\n{answer}"), 1);
        mails.runs();
        assert_eq!(mails.answer(), answer);
        let state = mails.environment.read(".perfquilt/bot/mail/state.json");
        let head = git(&work, &["rev-parse", "HEAD"]);
        assert!(state.contains(&head), "{version}: {state}");
        assert!(state.contains(id(&last)), "{version}: {state}");
    }
}

#[test]
fn build_files_need_a_second_person_where_everybody_does() {
    let mails = Mails::with(
        "kind = \"fork\"\napproval = \"everybody\"",
        "maildir = \"../out\"",
    );
    let makefile = mails.clone.join("Makefile");
    let text = std::fs::read_to_string(&makefile).unwrap();
    std::fs::write(makefile, text + "# nothing\n").unwrap();
    commit_all(&mails.clone, "build: a comment");
    let series = mails.series(1, &[]);
    mails.series_arrives(&series);
    let held = mails.runs().stderr;
    assert!(
        held.contains("another one of `senders` has to reply"),
        "{held}"
    );
    // Its author does not count.
    let to = id(&series[0]);
    mails.arrives(
        "r1",
        SIGNED,
        &reply(to, "dev@example.org", "perfquilt: measure"),
    );
    mails.runs();
    assert!(mails.answers().is_empty());
    let signed = SIGNED.replace("d=example.org", "d=example.net");
    mails.arrives(
        "r2",
        &signed,
        &reply(to, "lead@team.example.net", "\nperfquilt: measure"),
    );
    mails.runs();
    let told = text_of(&mails);
    assert!(told.contains("build: a comment"), "{told}");
}

/// The text of the only answer.
fn text_of(mails: &Mails) -> String {
    text(&mails.answer())
}

#[test]
fn an_attachment_that_git_reads_is_a_patch() {
    let mails = Mails::new();
    mails.edit("100000u", "400u", "work: fewer rounds für alle");
    let series = mails.series(1, &["--attach", "--base=HEAD~1"]);
    assert!(
        series[0].contains("Content-Disposition: attachment"),
        "{}",
        series[0]
    );
    mails.series_arrives(&series);
    mails.runs();
    let told = text_of(&mails);
    assert!(
        told.starts_with("The series is ") && told.contains("work: fewer rounds"),
        "{told}"
    );
}
