//! The status page: running, waiting and recent jobs. The page has no scripts and loads no resources.

use maud::{Markup, html};
use serde_json::json;

use perfquilt_report::{Name, clean};
use perfquilt_store::queue::{Job, JobState};

/// The data of the status page.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub repository: String,
    /// Seconds since 1970.
    pub now: i64,
    /// The progress of the running job.
    pub progress: String,
    /// Running and waiting jobs, in execution order.
    pub open: Vec<Job>,
    /// Finished jobs, the most recent first.
    pub past: Vec<Job>,
}

/// The refresh interval in seconds of a page that refreshes itself.
const REFRESH: u32 = 5;

/// The query of the page that refreshes itself. The plain page does not: whoever reads it with a screen reader or keyboard
/// would lose the place every time (WCAG 2.2, 2.2.1).
pub(super) const REFRESHING: &str = "refresh";

/// Renders the page as HTML; `refreshing` makes browsers reload it every few seconds.
pub(super) fn html(snapshot: &Snapshot, refreshing: bool) -> String {
    let title = format!("perfquilt: {}", snapshot.repository);
    let body = html! {
        header { h1 { "perfquilt serves " (Name(&snapshot.repository)) } }
        main {
            section aria-labelledby="open" {
                h2 #open { "Running and waiting" }
                @if snapshot.open.is_empty() { p.soft { "Nothing." } } @else { (open(snapshot)) }
            }
            section aria-labelledby="past" {
                h2 #past { "Last results" }
                @if snapshot.past.is_empty() { p.soft { "None yet." } } @else { (past(snapshot)) }
            }
        }
        footer { p {
            @if refreshing {
                "Refreshes every " (REFRESH) " seconds. " a href="?" { "Stop" }
            } @else {
                a href={ "?" (REFRESHING) } { "Refresh every " (REFRESH) " seconds" }
            }
        } }
    };
    perfquilt_report::page(&title, refreshing.then_some(REFRESH), &body)
}

fn open(snapshot: &Snapshot) -> Markup {
    let line = |(place, job): (usize, &Job)| {
        let (class, since, what) = match job.state {
            JobState::Running => (
                Some("running"),
                job.started.unwrap_or(job.received),
                snapshot.progress.as_str(),
            ),
            JobState::Held => (None, job.received, "needs an approval"),
            // The reason why the job was postponed.
            JobState::Waiting if !job.result.is_empty() => {
                (None, job.received, job.result.as_str())
            }
            _ => (None, job.received, "waiting"),
        };
        html! {
            tr class=[class] {
                td.n { (place + 1) }
                (cells(job))
                td { (duration_text(snapshot.now - since)) }
                td { (clean(what)) }
            }
        }
    };
    let columns = ["#", "pull request", "command", "asked by", "since", "state"];
    let rows = snapshot.open.iter().enumerate().map(line);
    table("Jobs that are running and waiting", &columns, rows)
}

fn past(snapshot: &Snapshot) -> Markup {
    let line = |job: &Job| {
        let state = job.state.name();
        let class = Some("bad").filter(|_| job.state == JobState::Failed);
        html! {
            tr {
                (cells(job))
                td { (duration_text(snapshot.now - job.ended.unwrap_or(job.received))) " ago" }
                td class=[class] { (state) ": " (clean(&job.result)) }
            }
        }
    };
    let columns = ["pull request", "command", "asked by", "ended", "result"];
    table("Finished jobs", &columns, snapshot.past.iter().map(line))
}

/// Returns a table that scrolls on a narrow screen; a column `#` has numbers.
fn table(label: &str, columns: &[&str], rows: impl Iterator<Item = Markup>) -> Markup {
    let table = html! {
        table {
            thead { tr {
                @for column in columns {
                    th class=[(*column == "#").then_some("n")] scope="col" { (column) }
                }
            } }
            tbody { @for row in rows { (row) } }
        }
    };
    perfquilt_report::scroll(label, &table)
}

/// Renders the same data as JSON.
pub(super) fn json(snapshot: &Snapshot) -> String {
    let document = json!({
        "schema": 1,
        "repository": snapshot.repository,
        "progress": snapshot.progress,
        "open": snapshot.open,
        "past": snapshot.past,
    });
    format!("{document}\n")
}

fn cells(job: &Job) -> Markup {
    let head: String = job.job.head.chars().take(7).collect();
    html! {
        td { (job.number) " " (Name(&head)) }
        td { (Name(&job.job.command)) }
        td { (clean(&job.job.asked_by)) }
    }
}

fn duration_text(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds @ 90..5400 => format!("{} min", seconds / 60),
        seconds @ 5400..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_store::queue::NewJob;

    fn job(state: JobState, text: &str) -> Job {
        Job {
            id: 1,
            repository: "acme/series".into(),
            number: 7,
            job: NewJob {
                head: "0123456789".into(),
                command: text.into(),
                asked_by: text.into(),
                trusted: true,
            },
            state,
            attempts: 1,
            received: 1000,
            started: Some(1010),
            ended: Some(1100),
            result: text.into(),
        }
    }

    #[test]
    fn untrusted_words_stay_words() {
        let hostile = "<script>alert(1)</script>\"'\u{1b}";
        let snapshot = Snapshot {
            repository: "acme/series".into(),
            now: 1200,
            progress: hostile.into(),
            open: vec![job(JobState::Running, hostile)],
            past: vec![job(JobState::Failed, hostile)],
        };
        let refreshing = html(&snapshot, true);
        assert!(refreshing.contains("<meta http-equiv=\"refresh\" content=\"5\">"));
        assert!(refreshing.contains("href=\"?\""));
        let page = html(&snapshot, false);
        assert!(
            !page.contains("<script") && !page.contains('\u{1b}'),
            "{page}"
        );
        assert_eq!(page.matches("&lt;script&gt;").count(), 6);
        insta::assert_snapshot!(page);
        let document: serde_json::Value = serde_json::from_str(&json(&snapshot)).unwrap();
        assert_eq!(document["past"][0]["state"], "failed");
    }
}
