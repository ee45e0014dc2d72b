//! Benchmarks of bayplan; run them with `cargo bench`. Nothing here is a library.
