//! What the integration tests share. Each test uses a part of it.
#![allow(dead_code)]

pub mod arrays;
pub mod golden;
