//! A patch's header: reading it ends, and what it says can stand in a commit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use perfquilt_patches::series::Header;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let header = Header::parse(&text);
    if let Some(title) = header.title() {
        assert!(!title.contains('\n'));
    }
    if let Some(author) = &header.author {
        assert!(!author.name.contains(['<', '>', '\n']));
        assert!(!author.email.contains(['<', '>', '\n']));
    }
});
