//! A delivery of a webhook: its interpretation ends, and asks nothing of the queue for who may not command.
//!
//! The first line is the event.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use perfquilt_bot::interpret;
use perfquilt_config::Config;
use perfquilt_forge::{Credentials, FORGES, Forge, RetryPolicy, Secret};
use perfquilt_store::queue::QueueChange;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n\
                [bot]\non_push = true\n[commands]\nusers = [\"alice\"]\nassociations = []\n";
    toml::from_str(text).unwrap()
});
static FORGE: LazyLock<Box<dyn Forge>> = LazyLock::new(|| {
    let token = Secret::new("x");
    let credentials = Credentials::Token { token, login: None };
    let (repository, api) = ("acme/series".parse().unwrap(), "https://forge.example");
    let forge = FORGES[0].connect(repository, api, credentials, RetryPolicy::default());
    forge.unwrap()
});

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let (event, body) = bytes.split_at(end.unwrap_or(bytes.len()));
    let event = String::from_utf8_lossy(event);
    if let Ok(delivery) = interpret("d".into(), &event, body, &**FORGE, &CONFIG, "") {
        for change in delivery.changes {
            let by_somebody = matches!(
                change,
                QueueChange::Add(_) | QueueChange::Approve { .. } | QueueChange::Accept(_)
            );
            let text = String::from_utf8_lossy(body).to_lowercase();
            // A letter of the name may be written as an escape.
            assert!(!by_somebody || text.contains("alice") || text.contains("\\u"));
        }
    }
});
