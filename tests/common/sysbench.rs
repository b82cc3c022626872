//! The part of sysbench's output that is read.

/// A log of three runs of a thousand events, which took so many seconds each.
pub fn log(seconds: [f64; 3]) -> String {
    let run = |seconds: f64| {
        format!(
            "sysbench 1.0.20 (using system LuaJIT 2.1.0)\n\nGeneral statistics:\n    \
             total time:                          {seconds}s\n    total number of events:              1000\n"
        )
    };
    seconds.map(run).concat()
}
