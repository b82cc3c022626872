use std::collections::BTreeSet;

use rusqlite::Connection;

use super::*;

fn queue() -> (tempfile::TempDir, Queue) {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder.path().join("bot.db")).unwrap();
    (folder, queue)
}

fn open(path: &Path) -> Result<Queue> {
    Queue::open(path, "acme/series".into())
}

fn job(head: &str) -> NewJob {
    NewJob {
        head: head.into(),
        command: "run".into(),
        asked_by: "alice".into(),
        trusted: true,
    }
}

fn received(id: &str, body_digest: &str, changes: &[QueueChange]) -> ReceivedDelivery {
    ReceivedDelivery {
        id: id.into(),
        body_digest: body_digest.into(),
        number: 1,
        changes: changes.to_vec(),
    }
}

impl Queue {
    fn take(&self, delivery: &str, changes: &[QueueChange], now: i64) -> Result<bool> {
        self.take_of(1, delivery, changes, now)
    }

    fn take_of(
        &self,
        number: u64,
        delivery: &str,
        changes: &[QueueChange],
        now: i64,
    ) -> Result<bool> {
        let delivery = ReceivedDelivery {
            number,
            ..received(delivery, delivery, changes)
        };
        Ok(self.apply_deliveries(&[delivery], now)?[0])
    }
}

fn add(head: &str) -> Vec<QueueChange> {
    vec![QueueChange::Add(job(head))]
}

/// Pins the job whose commit is not known to `head`, and starts it.
fn started(queue: &Queue, head: &str, now: i64) -> Job {
    let waiting = queue.next_without_commit(now).unwrap().unwrap();
    queue.pin(&waiting, head).unwrap();
    queue.next(now).unwrap().unwrap()
}

fn pushed(head: &str, trusted: bool) -> Push {
    Push {
        head: head.into(),
        before: None,
        trusted,
    }
}

/// The changes of a delivery of the push of `head` after `before`.
fn delivered(before: &str, head: &str) -> Vec<QueueChange> {
    let push = Push {
        before: Some(before.into()),
        ..pushed(head, true)
    };
    vec![QueueChange::Cancel {
        newer: Some(push),
        why: "a newer commit".into(),
    }]
}

/// A reply to comment 5.
fn rocket() -> QueueChange {
    QueueChange::Reply {
        comment: 5,
        reaction: "rocket",
        answer: String::new(),
    }
}

fn doubtful(queue: &Queue) -> Vec<u64> {
    queue.doubts().unwrap().into_keys().collect()
}

/// Settles all doubts.
fn settle(queue: &Queue) {
    for (number, last) in queue.doubts().unwrap() {
        queue.settle(number, last).unwrap();
    }
}

#[test]
fn a_late_delivery_of_an_older_push_decides_nothing_about_a_newer_commit() {
    let (_folder, queue) = queue();
    // The pushes of h1 and h2; the job was asked for after both, and approved.
    queue.take("a", &add("h2"), 10).unwrap();
    let job = queue.next(11).unwrap().unwrap();
    queue.hold(job.id, "CMakeLists.txt").unwrap();
    let approve = QueueChange::Approve {
        commit: "h2".into(),
        by: "alice".into(),
        comment: 5,
    };
    queue.take("b", &[approve], 12).unwrap();
    let state = || queue.state(job.id).unwrap().unwrap();
    let approved = || queue.is_approved(1, "h2").unwrap();
    let doubts = || doubtful(&queue);
    queue.take("c", &delivered("h1", "h2"), 13).unwrap();
    assert_eq!(
        (state(), approved(), doubts()),
        (JobState::Waiting, true, vec![])
    );
    queue.take("d", &delivered("h0", "h1"), 14).unwrap();
    assert_eq!(
        (state(), approved(), doubts()),
        (JobState::Waiting, true, vec![1])
    );
    // GitHub says that h2 is the latest.
    let known = |head: &str| QueueChange::Cancel {
        newer: Some(pushed(head, true)),
        why: "a newer commit".into(),
    };
    queue.change(1, &known("h2"), 15).unwrap();
    settle(&queue);
    assert_eq!(
        (state(), approved(), doubts()),
        (JobState::Waiting, true, vec![])
    );
    // Deliveries were lost: GitHub says that h4 is.
    queue.take("e", &delivered("h3", "h4"), 16).unwrap();
    assert_eq!(
        (state(), approved(), doubts()),
        (JobState::Waiting, true, vec![1])
    );
    queue.change(1, &known("h4"), 17).unwrap();
    settle(&queue);
    assert_eq!(
        (state(), approved(), doubts()),
        (JobState::Cancelled, false, vec![])
    );
    // The next push in order cancels at once.
    queue.take("f", &add("h4"), 18).unwrap();
    let next = queue.next(19).unwrap().unwrap();
    queue.take("g", &delivered("h4", "h5"), 20).unwrap();
    assert_eq!(queue.state(next.id).unwrap(), Some(JobState::Cancelled));
    assert_eq!(doubts(), Vec::<u64>::new());
}

#[test]
fn a_delivery_counts_once() {
    let (_folder, queue) = queue();
    assert!(queue.take("a", &add("h1"), 10).unwrap());
    assert!(!queue.take_of(2, "a", &add("h2"), 11).unwrap());
    assert_eq!(queue.list(9, 0).unwrap().0.len(), 1);
    // The same request in another delivery is the same job.
    assert!(queue.take("b", &add("h1"), 12).unwrap());
    assert_eq!(queue.list(9, 0).unwrap().0.len(), 1);
}

#[test]
fn the_same_body_under_another_id_counts_once() {
    let (_folder, queue) = queue();
    let take = |id: &str, body: &str, now: i64| {
        let delivery = received(id, body, &add("h1"));
        queue.apply_deliveries(&[delivery], now).unwrap()[0]
    };
    assert!(take("a", "b1", 10));
    assert!(!take("b", "b1", 11));
    // GitHub's own repetition has the same id.
    assert!(!take("a", "b1", 12));
    assert!(take("c", "b2", 13));
    // Whoever has kept a delivery cannot repeat it years later.
    assert!(!take("d", "b1", 10 + 5 * 365 * 86_400));
    assert!(take("e", "b3", 11 + 5 * 365 * 86_400));
    assert!(!take("f", "b1", 12 + 5 * 365 * 86_400));
}

#[test]
fn reserved_room_is_part_of_the_file_and_of_its_log() {
    let (folder, queue) = queue();
    let sizes = || {
        ["bot.db", "bot.db-wal"]
            .map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len())
    };
    queue.reserve().unwrap();
    let reserved = sizes();
    assert!(reserved.iter().all(|size| *size > RESERVE), "{reserved:?}");
    for number in 0..3000 {
        queue
            .take_of(number, &number.to_string(), &add("h1"), 10)
            .unwrap();
    }
    // Neither needed more.
    assert_eq!(sizes(), reserved);
    queue.reserve().unwrap();
}

#[test]
fn a_queue_of_an_earlier_version_is_refused_with_what_to_do() {
    let (folder, queue) = queue();
    drop(queue);
    let path = folder.path().join("bot.db");
    let connection = Connection::open(&path).unwrap();
    let version = QUEUE.version - 1;
    connection
        .pragma_update(None, "user_version", version)
        .unwrap();
    drop(connection);
    let error = open(&path).unwrap_err();
    assert!(error.message().contains("an older perfquilt"), "{error}");
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("finish its jobs"), "{hint}");
}

#[test]
fn threads_that_open_a_new_queue_at_once_find_it_whole() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bot.db");
        let together = std::sync::Barrier::new(6);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d", "e", "f"] {
                let (path, together) = (&path, &together);
                scope.spawn(move || {
                    together.wait();
                    let queue = open(path).unwrap();
                    assert!(queue.take(name, &[], 10).unwrap());
                });
            }
        });
    }
}

#[test]
fn jobs_are_done_one_after_the_other() {
    let (_folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    queue.take_of(2, "b", &add("h2"), 11).unwrap();
    let first = queue.next(20).unwrap().unwrap();
    assert_eq!((first.number, first.attempts), (1, 1));
    queue.end(first.id, JobState::Done, "faster", 30).unwrap();
    assert_eq!(queue.next(31).unwrap().unwrap().number, 2);
    assert_eq!(queue.next(32).unwrap(), None);
    let (open, past) = queue.list(9, 0).unwrap();
    assert_eq!((open.len(), past[0].result.as_str()), (1, "faster"));
}

#[test]
fn a_newer_commit_cancels_the_older() {
    let (_folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    let running = queue.next(11).unwrap().unwrap();
    let second = [delivered("h1", "h2"), add("h2")].concat();
    queue.take("b", &second, 12).unwrap();
    assert_eq!(queue.state(running.id).unwrap(), Some(JobState::Cancelled));
    // A later end does not undo the cancellation.
    queue.end(running.id, JobState::Done, "late", 13).unwrap();
    assert_eq!(queue.state(running.id).unwrap(), Some(JobState::Cancelled));
    assert_eq!(queue.next(14).unwrap().unwrap().job.head, "h2");
    let cancel = QueueChange::Cancel {
        newer: None,
        why: "closed".into(),
    };
    queue.take("c", &[cancel], 15).unwrap();
    assert_eq!(queue.list(9, 0).unwrap().0, []);
}

#[test]
fn a_push_leaves_what_is_about_the_same_commit() {
    let (_folder, queue) = queue();
    let push = |head: &str| QueueChange::Cancel {
        newer: Some(pushed(head, true)),
        why: "a newer commit".into(),
    };
    let state = |id| queue.state(id).unwrap().unwrap();
    queue.take("a", &add(""), 10).unwrap();
    // Nobody knows yet which commit it is about.
    assert_eq!(queue.next(10).unwrap(), None);
    queue.take("b", &[push("h1")], 11).unwrap();
    let running = started(&queue, "h2", 12);
    // A late notification, delivered again.
    queue.take("d", &[push("h2")], 14).unwrap();
    assert_eq!(state(running.id), JobState::Running);
    // If two pushes are delivered in the wrong order, each job is about its own commit, and GitHub tells the latest.
    let on_push = |before, head| [delivered(before, head), add(head)].concat();
    queue.take("e", &on_push("h3", "h4"), 15).unwrap();
    settle(&queue);
    queue.take("f", &on_push("h2", "h3"), 16).unwrap();
    assert_eq!(state(running.id), JobState::Cancelled);
    assert_eq!(doubtful(&queue), [1]);
    let (open, _) = queue.list(9, 17).unwrap();
    let heads: Vec<&str> = open.iter().map(|job| job.job.head.as_str()).collect();
    assert_eq!(heads, ["h4", "h3"]);
    queue.change(1, &push("h4"), 18).unwrap();
    assert_eq!(queue.next(19).unwrap().unwrap().job.head, "h4");
    assert_eq!(state(open[1].id), JobState::Cancelled);
}

#[test]
fn a_push_cancels_what_waits_for_an_untrusted_author() {
    let (_folder, queue) = queue();
    let mut asked = job("");
    asked.trusted = false;
    queue.take("a", &[QueueChange::Add(asked)], 10).unwrap();
    let push = QueueChange::Cancel {
        newer: Some(pushed("h1", true)),
        why: "a newer commit".into(),
    };
    queue.take("b", &[push], 11).unwrap();
    assert_eq!(queue.next(12).unwrap(), None);
}

#[test]
fn a_push_by_an_untrusted_author_cancels_what_would_take_it() {
    let (_folder, queue) = queue();
    let push = |head: &str, trusted: bool| QueueChange::Cancel {
        newer: Some(pushed(head, trusted)),
        why: "a newer commit".into(),
    };
    queue.take("a", &add(""), 10).unwrap();
    queue.take("b", &[push("h1", true)], 11).unwrap();
    assert_eq!(queue.list(9, 0).unwrap().0.len(), 1);
    queue.take("c", &[push("h2", false)], 12).unwrap();
    assert_eq!(queue.next(13).unwrap(), None);
    // The job starts before the notification of the push arrives.
    queue.take("d", &add(""), 14).unwrap();
    let running = started(&queue, "h3", 15);
    queue.take("e", &[push("h3", false)], 16).unwrap();
    assert_eq!(queue.state(running.id).unwrap(), Some(JobState::Cancelled));
}

#[test]
fn a_trusted_authors_job_is_about_the_commit_of_the_request_or_ends() {
    let (_folder, queue) = queue();
    queue.take("a", &add(""), 10).unwrap();
    let waiting = queue.next_without_commit(11).unwrap().unwrap();
    assert!(waiting.job.trusted && waiting.job.head.is_empty());
    queue.pin(&waiting, "h1").unwrap();
    let push = QueueChange::Cancel {
        newer: Some(pushed("h2", true)),
        why: "a newer commit".into(),
    };
    // As a poll does that finds a push whose delivery was lost.
    queue.change(1, &push, 12).unwrap();
    assert_eq!(queue.state(waiting.id).unwrap(), Some(JobState::Cancelled));
    assert_eq!(queue.next(13).unwrap(), None);
}

#[test]
fn an_approval_ends_with_any_push() {
    let (_folder, queue) = queue();
    let approve = |commit: &str| QueueChange::Approve {
        commit: commit.into(),
        by: "alice".into(),
        comment: 3,
    };
    let push = |head: &str| QueueChange::Cancel {
        newer: Some(pushed(head, true)),
        why: "a newer commit".into(),
    };
    let approved = |head: &str| queue.is_approved(1, head).unwrap();
    queue.take("a", &add("h1"), 10).unwrap();
    let running = queue.next(11).unwrap().unwrap();
    queue.hold(running.id, "Makefile").unwrap();
    queue.take("b", &[approve("h1")], 12).unwrap();
    assert!(approved("h1") && !approved("h2"));
    // A late notification of the very commit changes nothing.
    queue.take("c", &[push("h1")], 13).unwrap();
    assert!(approved("h1"));
    queue.take("d", &[push("h2")], 14).unwrap();
    // Also when the commit comes back.
    queue.take("e", &[push("h1")], 15).unwrap();
    assert!(!approved("h1") && !approved("h2"));
}

#[test]
fn an_untrusted_authors_job_starts_with_the_commit_that_its_requester_saw() {
    let (_folder, queue) = queue();
    let mut asked = job("");
    asked.trusted = false;
    let asked = vec![QueueChange::Add(asked)];
    let push = |head: &str| QueueChange::Cancel {
        newer: Some(pushed(head, true)),
        why: "a newer commit".into(),
    };
    queue.take("a", &asked, 10).unwrap();
    assert_eq!(queue.next(11).unwrap(), None);
    let waiting = queue.next_without_commit(11).unwrap().unwrap();
    assert!(waiting.job.head.is_empty());
    queue.pin_later(waiting.id, 20).unwrap();
    assert_eq!(queue.next_without_commit(19).unwrap(), None);
    queue.pin(&waiting, "h1").unwrap();
    assert_eq!(queue.next_without_commit(20).unwrap(), None);
    // The notification of that commit comes late.
    queue.take("b", &[push("h1")], 12).unwrap();
    let running = queue.next(13).unwrap().unwrap();
    assert_eq!((running.id, running.job.head.as_str()), (waiting.id, "h1"));
    // The same request again is the same job.
    queue.take("c", &asked, 14).unwrap();
    let again = queue.next_without_commit(15).unwrap().unwrap();
    queue.pin(&again, "h1").unwrap();
    assert_eq!(queue.list(9, 0).unwrap().0.len(), 1);
    queue.take("d", &[push("h2")], 16).unwrap();
    assert_eq!(queue.state(running.id).unwrap(), Some(JobState::Cancelled));
    // Nobody can say which commit was meant.
    queue.take("e", &asked, 17).unwrap();
    let late = queue.next_without_commit(18).unwrap().unwrap();
    queue.cancel_without_commit(&late, "too late", 19).unwrap();
    assert_eq!(queue.state(late.id).unwrap(), Some(JobState::Cancelled));
    assert!(
        queue
            .next_reply(20, &BTreeSet::new(), false)
            .unwrap()
            .is_some()
    );
    assert_eq!(queue.next(20).unwrap(), None);
}

#[test]
fn nothing_is_done_for_a_repository_that_is_not_served_any_more() {
    let (folder, queue) = queue();
    let other = Queue::open(&folder.path().join("bot.db"), "acme/other".into()).unwrap();
    other.take("a", &add("h1"), 10).unwrap();
    let begun = queue.next(11).unwrap().unwrap();
    queue.end(begun.id, JobState::Done, "faster", 12).unwrap();
    let asked = [QueueChange::Add(job("h1")), rocket()];
    other.take("b", &asked, 13).unwrap();
    queue.take("c", &add("h1"), 14).unwrap();
    let dropped = queue.remove_other_repositories().unwrap();
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].repository, "acme/other");
    let (open, past) = queue.list(9, 0).unwrap();
    assert_eq!((open.len(), past.len()), (1, 0));
    assert_eq!(open[0].repository, "acme/series");
    assert_eq!(queue.next_reply(99, &BTreeSet::new(), false).unwrap(), None);
}

#[test]
fn what_ran_when_the_program_was_killed_runs_again() {
    let (folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    queue.take_of(2, "b", &add("h2"), 10).unwrap();
    for attempt in 1..=MOST_ATTEMPTS {
        assert_eq!(queue.next(11).unwrap().unwrap().attempts, attempt);
        // Another process after an unexpected end of the first.
        let other = open(&folder.path().join("bot.db")).unwrap();
        let (back, given_up) = other.recover(12).unwrap();
        let last = usize::from(attempt == MOST_ATTEMPTS);
        assert_eq!((back, given_up.len()), (1 - last, last));
    }
    let next = queue.next(13).unwrap().unwrap();
    assert_eq!(next.number, 2);
    assert!(
        queue.list(9, 0).unwrap().1[0]
            .result
            .contains("several times")
    );
}

#[test]
fn what_is_stopped_in_order_is_not_given_up() {
    let (_folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    queue.take_of(2, "b", &add("h2"), 10).unwrap();
    for _ in 0..=2 * MOST_ATTEMPTS {
        let job = queue.next(11).unwrap().unwrap();
        // A job that was started before comes first.
        assert_eq!((job.number, job.attempts), (1, 1));
        queue.requeue(job.id).unwrap();
        assert_eq!(queue.recover(12).unwrap(), (0, vec![]));
    }
}

#[test]
fn what_is_put_off_comes_again_later_and_not_for_ever() {
    let (_folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    queue.take_of(2, "b", &add("h2"), 10).unwrap();
    let mut now = 10;
    let mut job = queue.next(now).unwrap().unwrap();
    for pause in (0..MOST_OUTAGES).map(|times| FIRST_PAUSE << times) {
        assert!(queue.postpone(&job, "no answer", now).unwrap());
        let waiting = queue.list(9, 0).unwrap().0.pop().unwrap();
        assert_eq!((waiting.id, waiting.result.as_str()), (job.id, "no answer"));
        let told = queue
            .next_reply(now, &BTreeSet::new(), false)
            .unwrap()
            .unwrap();
        assert_eq!((told.number, told.reaction.as_str()), (1, ""));
        queue.remove_reply(told.id).unwrap();
        // In the meantime other jobs run.
        let other = queue.next(now + pause - 1).unwrap();
        assert!(other.is_none_or(|other| other.number == 2));
        now += pause;
        job = queue.next(now).unwrap().unwrap();
        assert_eq!((job.number, job.attempts), (1, 1));
        assert_eq!(job.result, "");
    }
    assert!(!queue.postpone(&job, "no answer", now).unwrap());
    assert_eq!(queue.state(job.id).unwrap(), Some(JobState::Running));
}

#[test]
fn the_list_has_jobs_in_the_order_they_are_taken() {
    let (_folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    queue.take_of(2, "b", &add("h2"), 10).unwrap();
    let first = queue.next(10).unwrap().unwrap();
    assert!(queue.postpone(&first, "no answer", 10).unwrap());
    let order = |now: i64| {
        let (open, _) = queue.list(0, now).unwrap();
        open.iter().map(|job| job.number).collect::<Vec<_>>()
    };
    assert_eq!(order(10), [2, 1]);
    let later = 10 + FIRST_PAUSE;
    assert_eq!(order(later), [1, 2]);
    assert_eq!(queue.next(later).unwrap().unwrap().number, 1);
}

#[test]
fn a_job_without_a_commit_survives_one_that_names_its() {
    let (_folder, queue) = queue();
    let mut asked = job("");
    asked.command = "bisect a".into();
    queue.take("a", &[QueueChange::Add(asked)], 10).unwrap();
    queue.take("b", &add("h1"), 11).unwrap();
    assert_eq!(queue.list(9, 0).unwrap().0.len(), 2);
    assert_eq!(queue.next_reply(12, &BTreeSet::new(), false).unwrap(), None);
}

#[test]
fn that_something_waits_no_more_is_told() {
    let (_folder, queue) = queue();
    let cancel = || QueueChange::Cancel {
        newer: None,
        why: "closed".into(),
    };
    let told = || {
        let reply = queue.next_reply(99, &BTreeSet::new(), false).unwrap()?;
        queue.remove_reply(reply.id).unwrap();
        Some((reply.number, reply.reaction))
    };
    queue.take("a", &add("h1"), 10).unwrap();
    queue.take("b", &[cancel()], 11).unwrap();
    assert_eq!((told(), told()), (Some((1, String::new())), None));
    queue.take("c", &add("h1"), 12).unwrap();
    let push = [delivered("h1", "h2"), add("h2")].concat();
    queue.take("d", &push, 13).unwrap();
    assert_eq!((told(), told()), (Some((1, String::new())), None));
    // The worker of a running job reports its cancellation.
    queue.next(14).unwrap().unwrap();
    queue.take("e", &[cancel()], 15).unwrap();
    assert_eq!(told(), None);
}

#[test]
fn answers_wait_until_they_are_given() {
    let (_folder, queue) = queue();
    let deliveries = [received("a", "a", &[rocket()]), received("a", "a", &[])];
    assert_eq!(
        queue.apply_deliveries(&deliveries, 10).unwrap(),
        [true, false]
    );
    let waiting = queue
        .next_reply(10, &BTreeSet::new(), false)
        .unwrap()
        .unwrap();
    let told = (waiting.number, waiting.comment, waiting.reaction.as_str());
    assert_eq!(told, (1, 5, "rocket"));
    assert_eq!(waiting.answer, "");
    queue.postpone_reply(waiting.id, 20).unwrap();
    assert_eq!(queue.next_reply(19, &BTreeSet::new(), false).unwrap(), None);
    assert_eq!(
        queue
            .next_reply(20, &BTreeSet::new(), false)
            .unwrap()
            .unwrap()
            .attempts,
        1
    );
    queue.remove_reply(waiting.id).unwrap();
    assert_eq!(queue.next_reply(99, &BTreeSet::new(), false).unwrap(), None);
}

#[test]
fn counts() {
    let (_folder, queue) = queue();
    queue.take("a", &add("h1"), 10).unwrap();
    assert_eq!(queue.counts().unwrap()[0], (JobState::Waiting, 1));
    assert_eq!(queue.counts().unwrap()[1], (JobState::Held, 0));
}

#[test]
fn a_command_to_cancel_tells_whether_there_was_a_job() {
    let (_folder, queue) = queue();
    let cancel = |comment: u64| QueueChange::CancelAll {
        why: "cancelled by alice".into(),
        comment,
    };
    let answer = |comment: u64| {
        loop {
            // Some replies only update the comment.
            let reply = queue
                .next_reply(99, &BTreeSet::new(), false)
                .unwrap()
                .unwrap();
            queue.remove_reply(reply.id).unwrap();
            if reply.comment == comment {
                return (reply.reaction, reply.answer);
            }
        }
    };
    queue.take("a", &[cancel(1)], 10).unwrap();
    let (reaction, words) = answer(1);
    assert_eq!(reaction, "confused");
    assert!(words.starts_with("Nothing done"), "{words}");
    queue.take_of(2, "b", &add(""), 11).unwrap();
    queue.take("c", &[cancel(2)], 12).unwrap();
    assert_eq!(answer(2).0, "confused", "another pull request's job");
    queue.take("d", &add(""), 13).unwrap();
    queue.take("e", &[cancel(3)], 14).unwrap();
    assert_eq!(answer(3), ("+1".into(), String::new()));
    queue.take("f", &[cancel(4)], 15).unwrap();
    assert_eq!(answer(4).0, "confused", "they are cancelled already");
}

#[test]
fn a_held_job_waits_for_its_approval() {
    let (_folder, queue) = queue();
    let approve = |commit: &str, comment: u64| QueueChange::Approve {
        commit: commit.into(),
        by: "alice".into(),
        comment,
    };
    queue.take("a", &add(""), 10).unwrap();
    let begun = started(&queue, "c1", 11);
    queue.hold(begun.id, "Makefile").unwrap();
    assert_eq!(queue.next(12).unwrap(), None);
    assert_eq!(queue.recover(12).unwrap(), (0, vec![]));
    assert_eq!(queue.list(9, 0).unwrap().0[0].result, "Makefile");
    queue.take("b", &[approve("c2", 1)], 13).unwrap();
    assert_eq!(queue.next(14).unwrap(), None);
    assert!(!queue.is_approved(1, "c2").unwrap());
    queue.take("c", &[approve("c1", 2)], 15).unwrap();
    assert!(queue.is_approved(1, "c1").unwrap());
    assert!(!queue.is_approved(2, "c1").unwrap());
    let again = queue.next(16).unwrap().unwrap();
    assert_eq!((again.id, again.job.head.as_str()), (begun.id, "c1"));
    let reactions = |reply: Reply| {
        queue.remove_reply(reply.id).unwrap();
        (reply.comment, reply.reaction)
    };
    assert_eq!(
        reactions(
            queue
                .next_reply(17, &BTreeSet::new(), false)
                .unwrap()
                .unwrap()
        ),
        (1, "confused".into())
    );
    assert_eq!(
        reactions(
            queue
                .next_reply(17, &BTreeSet::new(), false)
                .unwrap()
                .unwrap()
        ),
        (2, "rocket".into())
    );
    // A newer commit invalidates the approval.
    queue.hold(again.id, "Makefile").unwrap();
    let cancel = QueueChange::Cancel {
        newer: None,
        why: "a newer commit".into(),
    };
    queue.take("d", &[cancel, approve("c1", 3)], 18).unwrap();
    assert_eq!(queue.next(19).unwrap(), None);
}

#[test]
fn a_closure_raises_a_doubt_that_only_an_answer_settles() {
    let (_folder, queue) = queue();
    let closed = || QueueChange::Doubt;
    let found = |newer: Option<Push>| QueueChange::Cancel {
        newer,
        why: "closed".into(),
    };
    let doubts = || doubtful(&queue);
    // Without jobs and approvals there is nothing to ask.
    queue.take("a", &[closed()], 10).unwrap();
    assert!(doubts().is_empty());
    queue.take("b", &add(""), 11).unwrap();
    let job = started(&queue, "c1", 12);
    queue.hold(job.id, "Makefile").unwrap();
    let approve = QueueChange::Approve {
        commit: "c1".into(),
        by: "alice".into(),
        comment: 1,
    };
    queue.take("c", &[approve, closed()], 13).unwrap();
    assert_eq!(doubts(), [1]);
    let waiting = || queue.list(9, 0).unwrap().0.len();
    // The pull request is open: what is about its commit stays.
    queue
        .change(1, &found(Some(pushed("c1", true))), 14)
        .unwrap();
    settle(&queue);
    assert_eq!((doubts(), waiting()), (vec![], 1));
    assert!(queue.is_approved(1, "c1").unwrap());
    // A command to cancel knows nothing of commits.
    queue.take("d", &[closed()], 15).unwrap();
    let cancel = QueueChange::CancelAll {
        why: "cancelled by alice".into(),
        comment: 2,
    };
    queue.take("e", &[cancel], 16).unwrap();
    assert_eq!((doubts(), waiting()), (vec![1], 0));
    // An answer from before the next closure does not settle it.
    let asked = queue.doubts().unwrap()[&1];
    queue.take("f", &[closed()], 17).unwrap();
    queue.settle(1, asked).unwrap();
    assert_eq!(doubts(), [1]);
    // It is closed, and nobody tells of pushes to it from now on.
    queue.change(1, &found(None), 18).unwrap();
    settle(&queue);
    assert!(doubts().is_empty());
    assert!(!queue.is_approved(1, "c1").unwrap());
}

/// 250 of them, wherever the file has something.
#[test]
fn a_flipped_bit_trusts_no_author() {
    let (folder, queue) = queue();
    for number in 1..5 {
        let untrusted = NewJob {
            trusted: false,
            ..job(&format!("{number}").repeat(40))
        };
        let (delivery, change) = (format!("d{number}"), QueueChange::Add(untrusted));
        queue.take_of(number, &delivery, &[change], 1).unwrap();
    }
    drop(queue);
    let sound = std::fs::read(folder.path().join("bot.db")).unwrap();
    let places: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    let (mut state, mut read) = (1_u64, 0);
    for round in 0..250 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = usize::try_from(state >> 33).unwrap();
        let mut flipped = sound.clone();
        flipped[places[draw % places.len()]] ^= 1 << (round % 8);
        let path = folder.path().join(format!("{round}.db"));
        std::fs::write(&path, flipped).unwrap();
        // A damaged file may be refused.
        if let Ok((open, past)) = open(&path).and_then(|queue| queue.list(9, 2)) {
            read += 1;
            for job in open.iter().chain(&past) {
                assert!(!job.job.trusted, "round {round}: {job:?}");
            }
        }
    }
    assert!(read > 0);
}
