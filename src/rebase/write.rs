//! Writing a moved series back.
