//! What the golden tests use.
#![allow(dead_code)]

pub mod arrays;
pub mod engines;
pub mod finite;
pub mod golden;
pub mod runs;
pub mod schedules;
