//! A patch's header: reading it ends, what it says can stand in a commit, and another title can be written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use perfquilt_series::series::Header;
use perfquilt_series::series::message::{Message, update_header};

fuzz_target!(|bytes: &[u8]| {
    let header = Header::parse(bytes);
    if let Some(title) = header.title() {
        assert!(!title.contains('\n'));
    }
    if let Some(author) = &header.author {
        assert!(!author.name.contains(['<', '>', '\n']));
        assert!(!author.email.contains(['<', '>', '\n']));
    }
    let old = Message::of_header(bytes, "name");
    let mut new = old.clone();
    new.title = "another title".to_owned();
    let written = Message::of_header(&update_header(bytes, &old, &new), "name");
    assert!(written.same(&new), "{written:?} instead of {new:?}");
});
