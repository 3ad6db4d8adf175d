//! Tests of verdicts on training.
